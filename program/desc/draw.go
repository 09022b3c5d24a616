package desc

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Draw returns a diagram of a program as text in the language "mermaid" or "graphviz". Operators are boxes in their
// order, variables are connected to them by arrows along the flow of data, and bodies of operators are boxes around
// their contents.
//
// Draw accepts unchecked programs, and takes time in proportion to their size. Faults of a program, such as names
// without a variable or bodies of more than one operator, are drawn as they are.
func Draw(p *Program, form string) (string, error) {
	d := &drawing{program: p}
	switch form {
	case "mermaid":
		d.pen = &mermaid{}
	case "graphviz":
		d.pen = &graphviz{}
	default:
		return "", pyfeed.Errorf(pyfeed.Invalid, `expected the form "mermaid" or "graphviz", found %s`, quote(form))
	}
	d.resolve()
	d.draw()
	return d.pen.end(), nil
}

// A pen writes a diagram language. Ids consist of letters and digits; texts may contain anything.
type pen interface {
	open(id, title string)                       // a box around everything until close
	close()                                      //
	node(id, style, title string, more []string) // style: see styles
	edge(from, to, style, text string)           // style: data, back, both (directions), next or body
	end() string
}

// drawnDepth limits the nesting of boxes. Programs written by hand are less deep, and drawing tools fail on much deeper
// boxes. Blocks further down are drawn beside the others.
const drawnDepth = 24

// Limits of the texts, attributes and dims that are drawn.
const (
	drawnText  = 48 // characters
	drawnLines = 6
)

type drawing struct {
	program *Program
	pen     pen

	// For each block, the ids of the variables of its operators' arguments: of each operator the inputs, then the
	// outputs.
	of     [][]string
	orphan [][]string // for each block, names without a variable
	drawn  []bool
}

func variableID(block, i int) string { return fmt.Sprintf("b%dv%d", block, i) }
func orphanID(block, i int) string   { return fmt.Sprintf("b%du%d", block, i) }
func opID(block, i int) string       { return fmt.Sprintf("b%do%d", block, i) }

// head returns the id of the first node in a block.
func (d *drawing) head(block int) string {
	if len(d.program.Blocks[block].Ops) == 0 {
		return fmt.Sprintf("b%dempty", block)
	}
	return opID(block, 0)
}

// resolve finds the variables of all arguments in one walk through the tree of blocks. A block's parent must have a
// smaller index, otherwise it is ignored; therefore the blocks form a tree.
func (d *drawing) resolve() {
	blocks := d.program.Blocks
	d.of = make([][]string, len(blocks))
	d.orphan = make([][]string, len(blocks))
	d.drawn = make([]bool, len(blocks))
	children := make([][]int, len(blocks))
	var stack []int // blocks to enter, and blocks to leave as ^block
	for i := len(blocks) - 1; i >= 0; i-- {
		if parent := blocks[i].Parent; parent >= 0 && parent < i {
			children[parent] = append(children[parent], i)
		} else {
			stack = append(stack, i)
		}
	}
	visible := map[string][]string{} // by name, the ids of its variables; the innermost is last
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if i < 0 {
			for _, v := range blocks[^i].Variables {
				visible[v.Name] = visible[v.Name][:len(visible[v.Name])-1]
			}
			continue
		}
		for j, v := range blocks[i].Variables {
			visible[v.Name] = append(visible[v.Name], variableID(i, j))
		}
		orphans := map[string]string{}
		for _, op := range blocks[i].Ops {
			for _, names := range [][]string{op.Inputs, op.Outputs} {
				for _, name := range names {
					id := orphans[name]
					if ids := visible[name]; len(ids) > 0 {
						id = ids[len(ids)-1]
					} else if id == "" {
						id = orphanID(i, len(orphans))
						orphans[name] = id
						d.orphan[i] = append(d.orphan[i], name)
					}
					d.of[i] = append(d.of[i], id)
				}
			}
		}
		stack = append(append(stack, ^i), children[i]...)
	}
}

// A frame is a block that is being drawn, with the position in it.
type frame struct{ block, op, attribute int }

func (d *drawing) draw() {
	blocks := d.program.Blocks
	var bodies []func() // draws arrows to blocks that may not be drawn yet
	for first := range blocks {
		if d.drawn[first] {
			continue
		}
		title := "program"
		if first > 0 {
			title = fmt.Sprintf("block %d", first)
		}
		d.begin(first, title)
		for stack := []frame{{block: first}}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			b, i := top.block, top.op
			if i == len(blocks[b].Ops) {
				d.pen.close()
				stack = stack[:len(stack)-1]
				continue
			}
			op := blocks[b].Ops[i]
			if top.attribute == 0 {
				d.node(b, i)
			}
			if top.attribute == len(op.Attributes) {
				top.op, top.attribute = i+1, 0
				continue
			}
			top.attribute++
			// The last comes first, so that the true block is left of the false block.
			role, body := d.body(op.Attributes[len(op.Attributes)-top.attribute])
			if body < 0 {
				continue
			}
			bodies = append(bodies, func() { d.pen.edge(opID(b, i), d.head(body), "body", role) })
			if body > 0 && !d.drawn[body] && len(stack) < drawnDepth {
				d.begin(body, fmt.Sprintf("block %d: %s of op %d, %s", body, role, i, short(op.Type)))
				stack = append(stack, frame{block: body})
			}
		}
	}
	for b := range blocks {
		d.edges(b)
	}
	for _, draw := range bodies {
		draw()
	}
}

// body returns the block and its role if the attribute gives a body of the operator; block is -1 for other attributes.
func (d *drawing) body(a Attribute) (role string, block int) {
	switch a.Name {
	case "block":
		role = "body"
	case "true_block":
		role = "true"
	case "false_block":
		role = "false"
	default:
		return "", -1
	}
	if a.Value.Kind != IntValue || a.Value.Int < 0 || a.Value.Int >= int64(len(d.program.Blocks)) {
		return "", -1
	}
	return role, int(a.Value.Int)
}

// begin opens the box of a block and draws its variables.
func (d *drawing) begin(b int, title string) {
	d.drawn[b] = true
	block := d.program.Blocks[b]
	d.pen.open(fmt.Sprintf("b%d", b), title)
	for i, v := range block.Variables {
		style := v.Kind.String()
		if v.Kind < Tensor || v.Kind > Stage {
			style = "tensor"
		}
		if v.Persistable {
			style += " kept"
		}
		d.pen.node(variableID(b, i), style, v.Name, v.summary())
	}
	for i, name := range d.orphan[b] {
		d.pen.node(orphanID(b, i), "missing", name, []string{"no such variable"})
	}
	if len(block.Ops) == 0 {
		d.pen.node(d.head(b), "empty", "nothing", nil)
	}
}

// summary describes what is known of the variable.
func (v *Variable) summary() (lines []string) {
	var words []string
	if v.DType != pyfeed.Any {
		words = append(words, v.DType.String())
	}
	if v.Shaped {
		words = append(words, shortDims(v.Dims))
	}
	if v.LoDLevels > 0 {
		words = append(words, fmt.Sprintf("LoD %d", v.LoDLevels))
	}
	if len(words) > 0 {
		lines = append(lines, strings.Join(words, " "))
	}
	for i, s := range v.Slots {
		if i == drawnLines {
			return append(lines, "…")
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{short(s.Name), s.DType, shortDims(s.Dims)}, " ")))
	}
	return lines
}

func shortDims(dims pyfeed.Dims) string {
	value := dimsOf(dims[:min(len(dims), pyfeed.MaxRank)])
	return string(appendJSON(nil, &value))
}

func (d *drawing) node(b, i int) {
	op := d.program.Blocks[b].Ops[i]
	var lines []string
	for _, a := range op.Attributes {
		if _, body := d.body(a); body >= 0 {
			continue
		}
		if len(lines) == drawnLines {
			lines = append(lines, "…")
			break
		}
		lines = append(lines, short(a.Name)+" = "+short(string(appendJSON(nil, &a.Value))))
	}
	d.pen.node(opID(b, i), "op", fmt.Sprintf("%d  %s", i, short(op.Type)), lines)
}

// edges draws the arrows of a block's operators: between successive operators, and from and to variables.
func (d *drawing) edges(b int) {
	of, own := d.of[b], fmt.Sprintf("b%dv", b)
	for i, op := range d.program.Blocks[b].Ops {
		id := opID(b, i)
		if i > 0 {
			d.pen.edge(opID(b, i-1), id, "next", "")
		}
		inputs, outputs := of[:len(op.Inputs)], of[len(op.Inputs):len(op.Inputs)+len(op.Outputs)]
		of = of[len(op.Inputs)+len(op.Outputs):]
		const in, out = 1, 2
		ways := map[string]int{}
		for _, v := range inputs {
			ways[v] |= in
		}
		for _, v := range outputs {
			ways[v] |= out
		}
		for _, v := range append(inputs[:len(inputs):len(inputs)], outputs...) {
			switch ways[v] {
			case in:
				d.pen.edge(v, id, "data", "")
			case out:
				style := "data"
				if !strings.HasPrefix(v, own) {
					style = "back"
				}
				d.pen.edge(id, v, style, "")
			case in | out:
				d.pen.edge(v, id, "both", "")
			}
			delete(ways, v) // draw each variable once
		}
	}
}

// short formats text for one line: it escapes characters that are not printable, and cuts long text.
func short(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > drawnText {
			return b.String() + "…"
		}
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		case r == utf8.RuneError:
			b.WriteRune(utf8.RuneError)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// ---- Graphviz -------------------------------------------------------------------------------

type graphviz struct {
	b      strings.Builder
	indent int
}

func (g *graphviz) line(format string, args ...any) {
	if g.b.Len() == 0 {
		g.b.WriteString(`digraph program {
  compound=true; newrank=true; ranksep=0.35; nodesep=0.3;
  fontname="Helvetica,Arial,sans-serif"; fontsize=11; fontcolor="#5f6368"; style="rounded,filled"; color="#dadce0"; labeljust=l;
  node [fontname="Helvetica,Arial,sans-serif", fontsize=11, color="#5f6368", style=filled, fillcolor=white, margin="0.12,0.05", height=0.3];
  edge [fontname="Helvetica,Arial,sans-serif", fontsize=10, color="#3c4043", fontcolor="#5f6368", arrowsize=0.6];
`)
	}
	for range g.indent + 1 {
		g.b.WriteString("  ")
	}
	fmt.Fprintf(&g.b, format, args...)
	g.b.WriteByte('\n')
}

// Labels are HTML-like, so that every character can be written as a reference. Escapes such as "\N" (the node's name)
// are still replaced after the references. A zero-width space after the backslash prevents that.
var graphvizText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;", `\`, "&#92;&#8203;")

func (g *graphviz) text(text string) string { return graphvizText.Replace(short(text)) }

func (g *graphviz) open(id, title string) {
	fill := "#f8f9fa"
	if g.indent%2 == 1 {
		fill = "#ffffff"
	}
	g.line(`subgraph cluster_%s {`, id)
	g.indent++
	g.line(`label=<%s>; fillcolor="%s";`, g.text(title), fill)
}

func (g *graphviz) close() {
	g.indent--
	g.line("}")
}

var graphvizStyles = map[string]string{
	"op":     `shape=box, style="filled,rounded", fillcolor="#e8f0fe", color="#1967d2"`,
	"tensor": `shape=ellipse`,
	"reader": `shape=cylinder, fillcolor="#e6f4ea", color="#188038"`,
	"stage":  `shape=parallelogram, fillcolor="#fef7e0", color="#b06000"`,
	// Variables that stay after a run have thick outlines.
	"tensor kept": `shape=ellipse, penwidth=2`,
	"reader kept": `shape=cylinder, fillcolor="#e6f4ea", color="#188038", penwidth=2`,
	"stage kept":  `shape=parallelogram, fillcolor="#fef7e0", color="#b06000", penwidth=2`,
	"missing":     `shape=ellipse, style="filled,dashed", fillcolor="#fce8e6", color="#c5221f"`,
	"empty":       `shape=plaintext, fillcolor=transparent, fontcolor="#9aa0a6"`,
}

func (g *graphviz) node(id, style, title string, more []string) {
	title = g.text(title)
	if title == "" {
		title = "&nbsp;"
	}
	if style == "op" {
		title = "<B>" + title + "</B>"
	}
	for _, line := range more {
		if line != "" {
			title += `<BR/><FONT POINT-SIZE="9">` + g.text(line) + "</FONT>"
		}
	}
	g.line(`%s [label=<%s>, %s];`, id, title, graphvizStyles[style])
}

func (g *graphviz) edge(from, to, style, text string) {
	switch style {
	case "data":
		g.line(`%s -> %s;`, from, to)
	case "back": // from a block to an outer variable; does not influence the layout
		g.line(`%s -> %s [constraint=false];`, from, to)
	case "both":
		g.line(`%s -> %s [dir=both];`, from, to)
	case "next": // only determines the order
		g.line(`%s -> %s [style=dotted, color="#9aa0a6", weight=20];`, from, to)
	case "body":
		block, _, _ := strings.Cut(to, "o")
		block = strings.TrimSuffix(block, "empty")
		lhead := ""
		if !strings.HasPrefix(from, block+"o") {
			lhead = fmt.Sprintf(", lhead=cluster_%s", block)
		}
		g.line(`%s -> %s [label=<%s>, style=dashed, color="#1967d2"%s];`, from, to, g.text(text), lhead)
	}
}

func (g *graphviz) end() string {
	if g.b.Len() == 0 {
		g.line("// no blocks")
	}
	return g.b.String() + "}\n"
}

// ---- Mermaid --------------------------------------------------------------------------------

type mermaid struct {
	b      strings.Builder
	indent int
}

func (m *mermaid) line(format string, args ...any) {
	if m.b.Len() == 0 {
		m.b.WriteString(`flowchart TB
  classDef op fill:#e8f0fe,stroke:#1967d2,color:#202124
  classDef tensor fill:#ffffff,stroke:#5f6368,color:#202124
  classDef reader fill:#e6f4ea,stroke:#188038,color:#202124
  classDef stage fill:#fef7e0,stroke:#b06000,color:#202124
  classDef kept stroke-width:3px
  classDef missing fill:#fce8e6,stroke:#c5221f,color:#202124,stroke-dasharray:4
  classDef empty fill:none,stroke:none,color:#9aa0a6
`)
	}
	for range m.indent + 1 {
		m.b.WriteString("  ")
	}
	fmt.Fprintf(&m.b, format, args...)
	m.b.WriteByte('\n')
}

// text escapes text for a quoted label. Labels may be parsed as Markdown, and lines that look like styles are rewritten
// before parsing. Therefore all characters become numeric references, except letters, digits, and the characters that
// join them.
func (m *mermaid) text(text string) string {
	var b strings.Builder
	all := []rune(short(text))
	plain := func(i int) bool {
		return i >= 0 && i < len(all) && (unicode.IsLetter(all[i]) || unicode.IsDigit(all[i]))
	}
	for i, r := range all {
		joins := strings.ContainsRune(" _.-", r) && plain(i-1) && plain(i+1)
		if plain(i) || joins || strings.ContainsRune("[],=", r) || r == ' ' && i > 0 && i < len(all)-1 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}

func (m *mermaid) open(id, title string) {
	m.line(`subgraph %s["%s"]`, id, m.text(title))
	m.indent++
}

func (m *mermaid) close() {
	m.indent--
	m.line("end")
}

func (m *mermaid) node(id, style, title string, more []string) {
	title = m.text(title)
	if title == "" {
		title = "#160;"
	}
	for _, line := range more {
		if line != "" {
			title += "<br/>" + m.text(line)
		}
	}
	kind, _, kept := strings.Cut(style, " ")
	begin, end := `["`, `"]`
	switch kind {
	case "tensor", "missing":
		begin, end = `(["`, `"])`
	case "reader":
		begin, end = `[("`, `")]`
	case "stage":
		begin, end = `[/"`, `"/]`
	}
	m.line("%s%s%s%s:::%s", id, begin, title, end, kind)
	if kept {
		m.line("class %s kept", id)
	}
}

func (m *mermaid) edge(from, to, style, text string) {
	arrow := " --> "
	switch style {
	case "both":
		arrow = " <--> "
	case "next": // only determines the order
		arrow = " -.- "
	case "body":
		arrow = fmt.Sprintf(` -. "%s" .-> `, m.text(text))
	}
	m.line("%s%s%s", from, arrow, to)
}

func (m *mermaid) end() string {
	if m.b.Len() == 0 {
		m.line("%%%% no blocks")
	}
	return m.b.String()
}

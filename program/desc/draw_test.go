package desc

import (
	"fmt"
	"strings"
	"testing"
)

func drawn(t testing.TB, p *Program, form string) string {
	t.Helper()
	text, err := Draw(p, form)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDrawing(t *testing.T) {
	p := parsed(t, loop)
	graphviz, mermaid := drawn(t, p, "graphviz"), drawn(t, p, "mermaid")
	for text, all := range map[string][]string{
		graphviz: {
			`b0v0 [label=<double_buffer_reader<BR/><FONT POINT-SIZE="9">image float32 [-1, 64]</FONT>`,
			`subgraph cluster_b1 {`, `label=<block 1: body of op 3, while>`,
			"b0v1 -> b0o3;",                  // from the outer block's not_completed into while
			"b2o0 -> b2v0;", "b2v0 -> b2o1;", // read → image → call
			"b0v2 -> b3o1 [dir=both];", // increment of pass_count
			"b0o3 -> b1o0 [label=<body>", "b1o1 -> b2o0 [label=<true>", "b1o1 -> b3o0 [label=<false>",
		},
		mermaid: {
			`b0v0[("double_buffer_reader<br/>image float32 [#45;1, 64]<br/>label int64 [#45;1]")]:::reader`,
			`subgraph b1["block 1#58; body of op 3, while"]`,
			"b0v1 --> b0o3", "b2o0 --> b2v0", "b2v0 --> b2o1", "b0v2 <--> b3o1",
			`b0o3 -. "body" .-> b1o0`, `b1o1 -. "true" .-> b2o0`, `b1o1 -. "false" .-> b3o0`,
		},
	} {
		for _, want := range all {
			if strings.Count(text, want) != 1 {
				t.Errorf("expected %s once in\n%s", want, text)
			}
		}
	}
	// Boxes are closed, and inner boxes are inside the outer ones.
	if a, b := strings.Count(graphviz, "{\n"), strings.Count(graphviz, "}\n"); a != 5 || b != 5 {
		t.Errorf("expected the graph and 4 boxes, found %d beginnings and %d ends", a, b)
	}
	if a, b := strings.Count(mermaid, "subgraph "), strings.Count(mermaid, "end\n"); a != 4 || b != 4 {
		t.Errorf("expected 4 boxes, found %d beginnings and %d ends", a, b)
	}
	if _, err := Draw(p, "png"); err == nil || !strings.Contains(err.Error(), `expected the form "mermaid" or "graphviz", found "png"`) {
		t.Errorf("expected an error that lists the forms, found %v", err)
	}
}

// Names cannot break out of their quotes.
func TestNamesInDrawings(t *testing.T) {
	adversarial := "\"]; x -> y; <b>&amp;#35;`\\N\\\"\n%%{init}%%\u0000 end"
	p := &Program{Version: 1, Blocks: []*Block{{
		Variables: []*Variable{{Name: adversarial, Kind: Tensor}},
		Ops:       []*Op{{Type: adversarial, Inputs: []string{adversarial, "none " + adversarial}, Attributes: Attributes{{adversarial, textOf(adversarial)}}}},
	}}}
	for _, line := range strings.Split(drawn(t, p, "mermaid"), "\n") {
		if begin := strings.IndexByte(line, '"'); begin >= 0 {
			label := line[begin+1 : strings.LastIndexByte(line, '"')]
			label = strings.ReplaceAll(label, "<br/>", "")
			if strings.ContainsAny(label, "\"`<>&\\%:{}()|") {
				t.Errorf("found a character with a meaning in mermaid: %s", line)
			}
		}
	}
	for _, line := range strings.Split(drawn(t, p, "graphviz"), "\n") {
		if _, label, is := strings.Cut(line, "label=<"); is {
			label = label[:max(strings.LastIndex(label, ">, "), strings.LastIndex(label, ">; "))]
			for _, tag := range []string{"<B>", "</B>", "<BR/>", `<FONT POINT-SIZE="9">`, "</FONT>"} {
				label = strings.ReplaceAll(label, tag, "")
			}
			if strings.ContainsAny(label, "\"<>\\") {
				t.Errorf("found a character with a meaning in graphviz: %s", line)
			}
		}
	}
}

// Unchecked programs are drawn quickly: deeply nested blocks, cycles of blocks, and missing blocks.
func TestDrawingTheUnchecked(t *testing.T) {
	block := func(parent, body int) *Block {
		return &Block{Parent: parent, Variables: []*Variable{{Name: "x", Kind: Kind(parent & 7)}},
			Ops: []*Op{{Type: "while", Inputs: []string{"x", "y"}, Attributes: Attributes{{"block", intOf(body)}, {"true_block", intOf(-body)}}}}}
	}
	blocks := MaxBlocks
	if testing.Short() {
		blocks /= 32
	}
	deep, ring := &Program{}, &Program{}
	for i := range blocks {
		deep.Blocks = append(deep.Blocks, block(i-1, i+1)) // the body of the last block is missing
		ring.Blocks = append(ring.Blocks, block(blocks-i, (i+7)%blocks))
	}
	for _, p := range []*Program{{}, {Blocks: []*Block{{}}}, deep, ring} {
		for _, form := range []string{"mermaid", "graphviz"} {
			text := drawn(t, p, form)
			if limit := 2000 + 2000*len(p.Blocks); len(text) > limit {
				t.Errorf("expected at most %d bytes, found %d", limit, len(text))
			}
			for i := range p.Blocks {
				if i%20000 == 0 && !strings.Contains(text, fmt.Sprintf("b%d", i)) {
					t.Errorf("block %d is missing", i)
				}
			}
		}
	}
}

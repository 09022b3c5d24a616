// Package lint tests rules of the source that no compiler checks: which packages a package may import, which packages
// may import "C", how large a package may be, which names are retired, that every C function stops panics and refuses
// forked children, and that the declarations of earlier releases of pyfeed.h are unchanged.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/pyfeed/pyfeed/"
)

// allowed lists the packages of this module that each package may import. Imports point one way. A new package must be
// added here and to the layout in docs/design.md.
var allowed = map[string][]string{
	"pyfeed/memory":   {"internal/fence"},
	"pyfeed/trace":    {},
	"pyfeed/wait":     {"internal/limits", "pyfeed/trace"},
	"pyfeed":          {"pyfeed/memory", "pyfeed/trace", "pyfeed/wait"},
	"pyfeed/shared":   {"pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait"},
	"pyfeed/staging":  {"pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait"},
	"readers/storage": {"pyfeed", "pyfeed/memory"},

	"readers/internal/permutation": {},
	"readers/internal/async":       {"pyfeed", "pyfeed/trace", "pyfeed/wait"},
	"readers/internal/anchor":      {},
	"readers/state":                {"pyfeed"},

	"readers/record":  {"internal/prefetch", "pyfeed", "pyfeed/memory", "readers/internal/permutation", "readers/storage"},
	"readers":         {"pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait", "readers/record", "readers/state"},
	"readers/sources": {"pyfeed", "pyfeed/memory", "pyfeed/wait", "readers", "readers/internal/permutation", "readers/state"},
	"readers/files": {"internal/limits", "pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait", "readers", "readers/internal/anchor",
		"readers/index", "readers/internal/async", "readers/internal/permutation", "readers/record", "readers/state", "readers/storage"},
	"readers/index": {"pyfeed", "pyfeed/memory", "readers/record", "readers/storage"},
	"readers/decorators": {"pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait", "readers", "readers/internal/anchor", "readers/record",
		"readers/state"},
	"readers/processes": {"pyfeed", "pyfeed/shared", "pyfeed/wait", "readers/decorators"},
	"readers/ops": {"pyfeed", "pyfeed/wait", "readers", "readers/decorators", "readers/files", "readers/internal/async",
		"readers/record", "readers/sources", "readers/storage"},
	"readers/internal/readertest": {"pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait", "readers", "readers/record",
		"readers/storage"},

	"program/desc": {"pyfeed", "readers/record"},
	"program": {"pyfeed", "pyfeed/memory", "program/desc", "pyfeed/staging", "pyfeed/trace", "pyfeed/wait", "readers",
		"readers/ops", "readers/record"},

	"internal/fence":    {},
	"internal/limits":   {},
	"internal/prefetch": {},

	"cuda/driver": {},
	"cuda":        {"cuda/driver", "pyfeed", "pyfeed/memory", "pyfeed/trace", "pyfeed/wait"},

	"readers/columns":  {"pyfeed", "readers/record"},
	"readers/number":   {"pyfeed", "readers/record"},
	"readers/arrow":    append([]string{"readers/columns", "readers/number"}, format...),
	"readers/csv":      append([]string{"readers/columns", "readers/number"}, format...),
	"readers/idx":      format,
	"readers/jsonl":    append([]string{"readers/columns", "readers/number"}, format...),
	"readers/mds":      append([]string{"readers/columns"}, format...),
	"readers/npy":      format,
	"readers/npz":      append([]string{"readers/npy"}, format...),
	"readers/parquet":  append([]string{"pyfeed/wait", "readers/columns", "readers/number"}, format...),
	"readers/raw":      format,
	"readers/recordio": format,
	"readers/tar":      append([]string{"readers/npy"}, format...),
	"readers/tfrecord": format,
	"readers/tokens":   format,
	"readers/external": {"pyfeed", "pyfeed/trace", "pyfeed/wait", "readers/record"},
	"readers/all": {"readers/arrow", "readers/csv", "readers/idx", "readers/jsonl", "readers/mds", "readers/npy", "readers/npz",
		"readers/parquet", "readers/raw", "readers/recordio", "readers/tar", "readers/tfrecord", "readers/tokens"},
	"readers/formattest": format,

	"capi": {"cuda", "pyfeed", "pyfeed/memory", "program", "program/desc", "pyfeed/shared", "pyfeed/staging", "pyfeed/trace",
		"pyfeed/wait", "readers", "readers/all", "readers/decorators", "readers/external", "readers/files", "readers/ops", "readers/processes", "readers/record",
		"readers/storage"},
	"tests/fakecuda": {},
	"tests/lint":     {},
}

// format lists the packages that a file format may import.
var format = []string{"pyfeed", "pyfeed/memory", "readers/record", "readers/storage"}

// allowedInTests lists the packages that only the tests of a package may import: for example readers of real files and
// the fake CUDA driver.
var allowedInTests = map[string][]string{
	"capi":        {"tests/fakecuda"},
	"cuda":        {"readers", "readers/decorators", "readers/sources", "tests/fakecuda"},
	"cuda/driver": {"tests/fakecuda"},
	"program":     {"cuda", "readers/files", "readers/npy", "tests/fakecuda"},
	"readers":     {"readers/ops", "readers/storage"},
	"readers/all": {"internal/limits", "pyfeed", "pyfeed/memory", "pyfeed/wait", "readers", "readers/files", "readers/formattest", "readers/internal/permutation", "readers/internal/readertest",
		"readers/ops", "readers/record", "readers/state"},
	"readers/npy":        {"readers", "readers/ops"},
	"readers/number":     {"readers/formattest"},
	"readers/decorators": {"readers/internal/readertest", "readers/sources"},
	"readers/external":   {"readers", "readers/internal/readertest", "readers/ops"},
	"readers/files":      {"readers/internal/readertest"},
	"readers/processes":  {"pyfeed/memory", "readers", "readers/internal/readertest", "readers/sources"},
	"readers/ops":        {"cuda", "internal/limits", "pyfeed/memory", "readers/internal/permutation", "readers/internal/readertest"},
	"readers/record":     {"readers/internal/readertest"},
}

// formatTests is the package that the tests of file formats share. No other code may import it.
const formatTests = "readers/formattest"

// importsC lists the packages that may import "C".
var importsC = map[string]bool{"capi": true, "cuda/driver": true, "pyfeed/memory": true, "tests/fakecuda": true}

// parsed is a Go file of the module: the folder of its package, its path and its syntax tree.
type parsed struct {
	dir, path string
	file      *ast.File
}

// parse parses every Go file of the module, once for all tests.
var parse = sync.OnceValues(func() (all []parsed, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (name == "build" || name == "dist" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		all = append(all, parsed{filepath.ToSlash(dir), path, file})
		return err
	})
	return all, err
})

// files calls f for every Go file of the module.
func files(t *testing.T, f func(dir, path string, file *ast.File)) {
	t.Helper()
	all, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		f(p.dir, p.path, p.file)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	files(t, func(dir, path string, file *ast.File) {
		may, known := allowed[dir]
		if !known {
			t.Errorf("%s: its package is not in this test's table", path)
		}
		seen[dir] = true
		for _, spec := range file.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			if name == "C" && !importsC[dir] {
				t.Errorf("%s: only capi, cuda/driver, pyfeed/memory and tests/fakecuda may import \"C\"", path)
			}
			ours, is := strings.CutPrefix(name, module)
			if !is {
				continue
			}
			ok := slices.Contains(may, ours) || ours == dir // an Example test imports its own package
			if strings.HasSuffix(path, "_test.go") {
				ok = ok || slices.Contains(allowedInTests[dir], ours) || ours == formatTests && slices.Contains(allowed["readers/all"], dir)
			}
			if !ok {
				t.Errorf("%s: %s may not import %s", path, dir, ours)
			}
		}
	})
	for dir := range allowed {
		if !seen[dir] {
			t.Errorf("the package %s does not exist: remove it from this test's table", dir)
		}
	}
}

// TestNoImportCycle looks for cycles in the imports of all files and in the table of allowed imports, which may allow
// imports that no file has yet.
func TestNoImportCycle(t *testing.T) {
	imports := map[string][]string{}
	for dir, may := range allowed {
		imports[dir] = slices.Clone(may)
	}
	files(t, func(dir, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, spec := range file.Imports {
			if name, is := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); is {
				imports[dir] = append(imports[dir], name)
			}
		}
	})
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(dir string, from []string)
	visit = func(dir string, from []string) {
		switch state[dir] {
		case visiting:
			t.Fatalf("packages import each other: %s", strings.Join(append(from[slices.Index(from, dir):], dir), " -> "))
		case done:
			return
		}
		state[dir] = visiting
		for _, next := range imports[dir] {
			visit(next, append(from, dir))
		}
		state[dir] = done
	}
	for dir := range imports {
		visit(dir, nil)
	}
}

// TestNoPackageIsTooLarge keeps packages small enough to be read as a whole: a package may have at most a fifth of all
// lines of Go. Subfolders and tests do not count.
func TestNoPackageIsTooLarge(t *testing.T) {
	lines, total := map[string]int{}, 0
	files(t, func(dir, path string, _ *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		n := strings.Count(read(t, strings.TrimPrefix(filepath.ToSlash(path), root+"/")), "\n")
		lines[dir] += n
		total += n
	})
	for dir, n := range lines {
		if 5*n > total {
			t.Errorf("%s has %d of the %d lines of Go: expected at most a fifth", dir, n, total)
		}
	}
}

// A panic in a goroutine without a recover ends the trainer's process. So every goroutine must be started by wait.Go,
// which recovers; its own go statement, in background.go, is the only one.
func TestNoBareGoroutines(t *testing.T) {
	files(t, func(dir, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || dir == "pyfeed/wait" && filepath.Base(path) == "background.go" {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, is := n.(*ast.GoStmt); is {
				t.Errorf("%s: a go statement outside pyfeed/wait/background.go: use wait.Go, which recovers panics", path)
			}
			return true
		})
	})
}

func TestEveryExportIsGuarded(t *testing.T) {
	exports := 0
	files(t, func(dir, path string, file *ast.File) {
		if dir != "capi" {
			return
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Doc == nil || !strings.Contains(commentText(f.Doc), "//export ") {
				continue
			}
			exports++
			if !strings.HasPrefix(f.Name.Name, "pfgo_") {
				t.Errorf("%s: %s: expected the prefix pfgo_, which all exports have whose C entry points use guard.h", path, f.Name.Name)
			}
			if len(f.Body.List) == 0 || !isGuard(f.Body.List[0]) {
				t.Errorf("%s: %s does not begin with defer guard", path, f.Name.Name)
			}
		}
	})
	if exports < 30 {
		t.Errorf("found only %d exports: this test looks in the wrong place", exports)
	}
}

func commentText(g *ast.CommentGroup) string {
	var all strings.Builder
	for _, c := range g.List {
		all.WriteString(c.Text + "\n")
	}
	return all.String()
}

func isGuard(s ast.Stmt) bool {
	d, is := s.(*ast.DeferStmt)
	if !is {
		return false
	}
	name, is := d.Call.Fun.(*ast.Ident)
	return is && name.Name == "guard"
}

// withoutGo lists the functions that need no CHECK_ALIVE: they do not call Go, or check without it.
var withoutGo = map[string]bool{
	"pf_abi_version": true, "pf_version": true, "pf_dtype_name": true, "pf_dtype_size": true, "pf_status_name": true,
	"pf_error_release": true, "pf_string_release": true, "pf_map_event_release": true,
	"pf_tuple_release": true, // checks without CHECK_ALIVE, since it cannot return an error
}

func TestEveryFunctionOfTheHeaderRefusesForkedChildren(t *testing.T) {
	header := read(t, "capi/pyfeed.h")
	entry := ""
	sources, _ := filepath.Glob(filepath.Join(root, "capi", "*.c"))
	for _, path := range sources {
		entry += read(t, filepath.Join("capi", filepath.Base(path)))
	}
	declared := regexp.MustCompile(`(?m)^PF_API [^;(]*?\*?(pf_\w+)\(`).FindAllStringSubmatch(header, -1)
	if len(declared) < 30 {
		t.Fatalf("found only %d functions in the header", len(declared))
	}
	bodies := map[string]string{}
	for _, at := range regexp.MustCompile(`(?m)^[\w ]+ \*?(pf_\w+)\([^;{]*\)\s*\{`).FindAllStringSubmatchIndex(entry, -1) {
		body, _, _ := strings.Cut(entry[at[1]:], "\n}")
		if line, _, _ := strings.Cut(body, "\n"); strings.HasSuffix(line, "}") {
			body = line
		}
		bodies[entry[at[2]:at[3]]] = body
	}
	for _, d := range declared {
		name := d[1]
		body, defined := bodies[name]
		if !defined {
			t.Errorf("%s is declared in pyfeed.h but defined in no C file of capi", name)
			continue
		}
		before, _, enters := strings.Cut(body, "CHECK_ALIVE(err);")
		if !withoutGo[name] && (!enters || strings.Contains(before, "pfgo_")) {
			t.Errorf("%s calls Go without CHECK_ALIVE(err) first", name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

package lint

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired is names that must not be declared again in a folder or its subfolders, each with the standard term in use.
var retired = []struct {
	dir, suffix string
	terms       map[string]string
}{
	{"readers", ".go", map[string]string{
		"Delivered": "OutputSlots", "Lot": "Chunk", "Production": "ReadRequest", "Rowed": "BlockReader",
		"adopt": "takeBuffer", "bundle": "file group", "dear": "expensiveRead", "effort": "makeCost", "gathered": "batchBuilder",
		"handedBack": "requeued", "hurry": "warmup", "likeness": "fileSignature", "pile": "flush", "portion": "blockRef",
		"pump": "prefetcher", "relieve": "leaveStandby", "settling": "exportPool", "unlike": "firstMismatch", "unmade": "failed",
		"urge": "wakeWorkers", "worth": "minBatchWork",
	}},
	{"pyfeed", ".go", map[string]string{
		"Giver": "Owner", "Intact": "CheckTruncated", "Never": "NonBlocking", "Room": "AllocateTensor",
		"Settle": "EnsureExportable", "Sole": "IsUnique", "Turn": "TimeSlice", "TurnLength": "timeSliceLength",
	}},
	{"capi", ".go", map[string]string{
		"answer": "setError", "give": "newHandle", "giveBack": "releaseTuple", "known": "fillable", "knownThread": "callerThread",
		"mapping": "mapThreads", "running": "programRun", "shown": "callView", "takeBack": "endLoan", "taken": "mapInput",
		"yes": "cbool",
	}},
	{"capi", ".h", map[string]string{
		"BLOCKING": "RUN_BLOCKING", "ENTER": "CHECK_ALIVE", "WHOLE": "REQUIRE_STRUCT", "ZERO_BUT_LOAN": "ZERO_KEEP_LOAN",
	}},
	{"capi", ".hpp", map[string]string{
		"Dims": "Shape", "Feeding": "QueueBase", "Give": "Emit", "ProducerFailed": "ProducerError", "Slot": "Reservation",
		"WorkerDied": "WorkerError",
	}},
	{"cuda", ".go", map[string]string{"Hosted": "Emulated", "twin": "emulated device", "twins": "emulated devices"}},
	{"benchmarks", ".py", map[string]string{
		"NotOffered": "NotSupported", "Row": "Case", "Trainer": "Runner", "Way": "Library", "chosen": "selected",
		"in_turns": "interleave", "way": "library", "ways": "libraries",
	}},
	{"tests/long", ".py", map[string]string{
		"Finding": "Failure", "drawn": "random_of_round", "nothing_left": "no_leaks", "play": "run_round", "told": "described",
	}},
	{"tests/python", ".py", map[string]string{"ways_in": "push_modes"}},
	{"tests/cpp", ".cpp", map[string]string{"WaysIn": "PushModes"}},
}

// retiredPaths is files and folders that were renamed after standard terms.
var retiredPaths = []string{
	"benchmarks/measuring", "benchmarks/tasks", "benchmarks/ways",
	"capi/calls.go", "capi/entry.c", "capi/loans.go", "capi/words.c",
	"readers/bundle.go", "readers/lot.go", "readers/multiple.go", "readers/pump.go", "readers/rows.go",
	"pyfeed/program", "program/hostile_test.go",
	"tests/cpp/program_layers_test.cpp", "tests/cpp/ways_in_test.cpp", "tests/house", "tests/long/crews.py",
}

func TestRetiredNamesAreNotDeclared(t *testing.T) {
	inGo := map[string]map[string]string{} // a file that declares the name, by folder and name
	files(t, func(dir, path string, file *ast.File) {
		if inGo[dir] == nil {
			inGo[dir] = map[string]string{}
		}
		for _, name := range goNames(file) {
			inGo[dir][name] = path
		}
	})
	for _, r := range retired {
		if r.suffix == ".go" {
			for dir, declared := range inGo {
				if dir != r.dir && !strings.HasPrefix(dir, r.dir+"/") {
					continue
				}
				for name, term := range r.terms {
					if path := declared[name]; path != "" {
						t.Errorf("%s declares %s: the term is %s", path, name, term)
					}
				}
			}
			continue
		}
		declares := declaration(r.suffix, slices.Collect(maps.Keys(r.terms)))
		walk(t, r.dir, func(path string) {
			if filepath.Ext(path) != r.suffix {
				return
			}
			for _, found := range declares.FindAllStringSubmatch(read(t, path), -1) {
				for _, name := range found[1:] {
					if name != "" {
						t.Errorf("%s declares %s: the term is %s", path, name, r.terms[name])
					}
				}
			}
		})
	}
	for _, path := range retiredPaths {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			t.Errorf("%s exists again: it was renamed after a standard term", path)
		}
	}
}

// goNames is the types, functions, methods and fields, and the constants and variables of the package.
func goNames(file *ast.File) (names []string) {
	add := func(all ...*ast.Ident) {
		for _, id := range all {
			names = append(names, id.Name)
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name)
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					add(spec.Names...)
				case *ast.TypeSpec:
					add(spec.Name)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, is := n.(*ast.StructType); is {
			for _, f := range s.Fields.List {
				add(f.Names...)
			}
		}
		return true
	})
	return names
}

// declaration matches what declares one of the names in C, C++ or Python; the name is one of the submatches.
func declaration(suffix string, names []string) *regexp.Regexp {
	name := `(` + strings.Join(names, "|") + `)\b`
	if suffix == ".py" {
		return regexp.MustCompile(`(?m)^ *(?:async )?(?:def|class) ` + name + `|^ *(?:self\.)?` + name + `(?:: [^=\n]+)? = `)
	}
	return regexp.MustCompile(`(?m)^ *#define ` + name + `|^[a-z][\w *]* \*?` + name + ` *\(|enum \{[^}]*\b` + name + `|^class ` + name)
}

// walk calls f with every file below a folder, as a path from the root of the module.
func walk(t *testing.T, dir string, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"__pycache__", "build"}, d.Name()) {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			path, err = filepath.Rel(root, path)
			f(filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

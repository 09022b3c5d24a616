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

// retired lists names that must not be declared in a folder or its subfolders, each with the standard term that replaced
// the name.
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
		"awayTime": "pauseTime", "byItself": "singleRead", "deck": "randomFiles", "dontWake": "noWakeUp", "learnLength": "noteFileLength",
		"longAway": "longPause", "onTrial": "verifying", "inTrial": "verifying", "setTrial": "setVerification",
		"Lookahead": "PeekBuffer", "toSkip": "numToSkip", "untouched": "numUntaken",
		"Alike": "UniformReader", "Balance": "CheckLeaks", "Described": "Describer", "Ending": "EndReporter", "Gave": "Produced",
		"Intact": "CheckTruncated", "Look": "Poll", "LookEvery": "PollEvery", "Numbered": "Numberer", "Packed": "CompressedInput",
		"Says": "ExpectError", "anyOther": "anyFollowing", "asItIs": "mayBeUncompressed", "atHand": "nextInMemory",
		"barren": "sinceOutput", "blanks": "zeroRun", "dropRoom": "releaseBlock", "flaw": "chunkFault", "inPacked": "withDecompressed",
		"leastAlike": "minUniform", "leastHead": "minHead", "misfit": "badNumber", "mostBarren": "maxSinceOutput",
		"mostRecord": "maxRecord", "mostTried": "maxSearched", "passing": "skippedMember", "rareEntry": "parseGeneralEntry",
		"retried": "retryInterrupted", "sought": "searchInterrupted", "unplain": "notPlain", "untold": "undelivered",
	}},
	{"pyfeed", ".go", map[string]string{
		"Giver": "Owner", "Intact": "CheckTruncated", "Never": "NonBlocking", "Room": "AllocateTensor",
		"Settle": "EnsureExportable", "Sole": "IsUnique", "Turn": "TimeSlice", "TurnLength": "timeSliceLength",
		"KnownThread": "CurrentThread", "crowded": "forRoom", "everybody": "shared", "lookAt": "checkWorker", "mapAgain": "remap",
		"mostKept": "maxCachedBytes", "overGate": "shutDownGate", "uncounted": "ownerCounts", "untold": "incompleteReason",
	}},
	{"program", ".go", map[string]string{
		"about": "prefixError", "adopt": "addAll", "brain": "bfloat16", "byHand": "interpreter", "followed": "suffixError",
		"give": "setOutput", "must": "required", "reworded": "mapErrorText", "scribble": "overwriteAll",
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
	{"cuda", ".go", map[string]string{"Hosted": "Emulated", "twin": "emulated device", "twins": "emulated devices",
		"lose": "setLost", "loseTo": "failWith", "soon": "testTimeout", "tapped": "interceptedPort"}},
	{"benchmarks", ".py", map[string]string{
		"NotOffered": "NotSupported", "Row": "Case", "Trainer": "Runner", "Way": "Library", "chosen": "selected",
		"in_turns": "interleave", "way": "library", "ways": "libraries",
	}},
	{"tests/long", ".py", map[string]string{
		"Finding": "Failure", "drawn": "random_of_round", "nothing_left": "no_leaks", "play": "run_round", "told": "described",
	}},
	{"tests/python", ".py", map[string]string{"HOSTILE": "ADVERSARIAL", "ways_in": "push_modes"}},
	{"python", ".py", map[string]string{
		"Work": "MapTask", "_HEARSAY": "_EXIT_STATUS_WAIT", "_told": "_format_exception", "_under": "_derive",
		"a_place": "check_place", "a_program": "check_program", "a_scope": "check_scope", "homeless": "reader_owned",
		"movers": "daemon_threads", "shown": "format_value", "takes": "validate", "told": "format_exception",
		"unlike": "check_length", "untold": "report_unraisable",
	}},
	{"python", ".c", map[string]string{
		"WOKEN_FOR": "GIL_RELEASE_BYTES", "answer": "none_or_error", "queue_over": "queue_wrap", "text_give": "take_text",
		"tuple_give": "tuple_to_python", "workers_over": "workers_wrap",
	}},
	{"tests/cpp", ".cpp", map[string]string{"WaysIn": "PushModes"}},
}

// retiredPaths lists files and folders that were renamed to standard terms.
var retiredPaths = []string{
	"benchmarks/measuring", "benchmarks/tasks", "benchmarks/ways",
	"capi/calls.go", "capi/entry.c", "capi/loans.go", "capi/words.c",
	"readers/bundle.go", "readers/storage/alike.go", "readers/lot.go", "readers/lookahead.go", "readers/multiple.go", "readers/pump.go", "readers/rows.go",
	"pyfeed/program", "program/hostile_test.go",
	"python/pyfeed/_errors.py", "python/pyfeed/_told.py", "python/pyfeed/files.py", "python/pyfeed/place.py", "python/pyfeed/queue.py",
	"python/pyfeed/readers.py", "python/pyfeed/registry.py", "python/pyfeed/scope.py", "python/pyfeed/slots.py",
	"python/pyfeed/tracing.py", "python/pyfeed/writer.py",
	"tests/cpp/program_layers_test.cpp", "tests/cpp/ways_in_test.cpp", "tests/house", "tests/long/crews.py",
	"tests/python/scribbled.py", "tests/python/test_hostile.py",
}

func TestRetiredNamesAreNotDeclared(t *testing.T) {
	inGo := map[string]map[string]string{} // by folder and name: a file that declares the name
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
		names := slices.Collect(maps.Keys(r.terms))
		declares := declaration(r.suffix, names)
		walk(t, r.dir, func(path string) {
			if filepath.Ext(path) != r.suffix {
				return
			}
			text := read(t, path)
			if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) }) {
				return // as most files, in less time than the expression takes
			}
			for _, found := range declares.FindAllStringSubmatch(text, -1) {
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
			t.Errorf("%s exists again: it was renamed to a standard term", path)
		}
	}
}

// goNames returns the names that a file declares: types, functions, methods, struct fields, and the constants and
// variables of the package.
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

// declaration returns an expression that matches a declaration of one of the names in C, C++ or Python. The name is one
// of the submatches.
func declaration(suffix string, names []string) *regexp.Regexp {
	name := `(` + strings.Join(names, "|") + `)\b`
	if suffix == ".py" {
		return regexp.MustCompile(`(?m)^ *(?:async )?(?:def|class) ` + name + `|^ *(?:self\.)?` + name + `(?:: [^=\n]+)? = `)
	}
	return regexp.MustCompile(`(?m)^ *#define ` + name + `|^[a-z][\w *]* \*?` + name + ` *\(|enum \{[^}]*\b` + name + `|^class ` + name)
}

// walk calls f for every file below a folder, with the file's path relative to the root of the module.
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

package lint

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// systemFile is a file with what only Linux has.
var systemFile = regexp.MustCompile(`_linux\.(go|c|h)$`)

// systemPackages type-checks packages as they are built on one system. Of imports, it has syscall and
// golang.org/x/sys/unix only: that is fast, and the errors about other imports are the same on every system.
type systemPackages struct {
	context build.Context
	files   *token.FileSet
	dirs    map[string]string
	done    map[string]*types.Package
}

func (s *systemPackages) Import(path string) (*types.Package, error) {
	dir, known := s.dirs[path]
	if !known {
		return nil, fs.ErrNotExist
	}
	if s.done[path] == nil {
		p, _, err := s.check(path, dir, true)
		if err != nil {
			return nil, err
		}
		s.done[path] = p
	}
	return s.done[path], nil
}

// A failure is an error of the type checker.
type failure struct{ at, text string }

// check type-checks the files in dir that are built on the system. It returns the package and its errors.
func (s *systemPackages) check(path, dir string, withoutBodies bool) (*types.Package, map[failure]bool, error) {
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	var files []*ast.File
	for _, name := range all {
		if built, err := s.context.MatchFile(dir, filepath.Base(name)); err != nil || !built || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	failures := map[failure]bool{}
	config := types.Config{Importer: s, FakeImportC: true, IgnoreFuncBodies: withoutBodies, Error: func(err error) {
		if e, is := err.(types.Error); is {
			failures[failure{e.Fset.Position(e.Pos).String(), e.Msg}] = true
		}
	}}
	p, _ := config.Check(path, s.files, files, nil) // the errors are in failures
	return p, failures, nil
}

// systems returns the packages of Linux and of macOS.
func systems(t *testing.T) (linux, macOS *systemPackages) {
	t.Helper()
	dirs := map[string]string{}
	for _, path := range []string{"syscall", "golang.org/x/sys/unix"} {
		dir, err := exec.Command("go", "list", "-find", "-f", "{{.Dir}}", path).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", path, err)
		}
		dirs[path] = strings.TrimSpace(string(dir))
	}
	of := func(system string) *systemPackages {
		context := build.Default
		context.GOOS, context.GOARCH, context.CgoEnabled = system, "arm64", true
		return &systemPackages{context, token.NewFileSet(), dirs, map[string]*types.Package{}}
	}
	return of("linux"), of("darwin")
}

// declared returns the names that the *_linux.go files of a folder declare.
func declared(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files(t, func(in, path string, file *ast.File) {
		if in != dir || !strings.HasSuffix(path, "_linux.go") {
			return
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							names[name.Name] = true
						}
					}
				}
			}
		}
	})
	return names
}

// TestOnlySystemFilesNeedLinux type-checks each package for macOS. What is missing there, but not on Linux, must be
// declared in a *_linux.go file: the list of these files in CONTRIBUTING.md is what a port has to write.
func TestOnlySystemFilesNeedLinux(t *testing.T) {
	linux, macOS := systems(t)
	for _, s := range []*systemPackages{linux, macOS} {
		unix, err := s.Import("golang.org/x/sys/unix")
		if err != nil {
			t.Fatal(err)
		}
		if has := unix.Scope().Lookup("MemfdCreate") != nil; has != (s == linux) {
			t.Fatalf("%s: found MemfdCreate in golang.org/x/sys/unix: %v", s.context.GOOS, has)
		}
	}
	dirs := map[string]bool{}
	files(t, func(dir, _ string, _ *ast.File) { dirs[dir] = true })
	missing := 0
	for dir := range dirs {
		_, expected, err := linux.check(module+dir, filepath.Join(root, dir), false)
		if err != nil {
			t.Fatal(err)
		}
		_, found, err := macOS.check(module+dir, filepath.Join(root, dir), false)
		if err != nil {
			t.Fatal(err)
		}
		names := declared(t, dir)
		for e := range found {
			name, undefined := strings.CutPrefix(e.text, "undefined: ")
			switch {
			case expected[e]:
			case undefined && names[name]:
				missing++
			default:
				t.Errorf("%s: %s on macOS: move this to a *_linux.go file", e.at, e.text)
			}
		}
	}
	if missing < 10 {
		t.Errorf("only %d uses of *_linux.go files are missing on macOS: this test looks in the wrong place", missing)
	}
}

// TestBuildConstraintsAreInNames keeps the list of files complete: a constraint in a comment would hide a file from it.
// It also looks for names of files that only Linux has, which no type checker finds.
func TestBuildConstraintsAreInNames(t *testing.T) {
	here, there := build.Default, build.Default
	here.GOOS, there.GOOS = "linux", "darwin"
	files(t, func(dir, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || systemFile.MatchString(path) {
			return
		}
		onLinux, _ := here.MatchFile(filepath.Dir(path), filepath.Base(path))
		onMacOS, _ := there.MatchFile(filepath.Dir(path), filepath.Base(path))
		if onLinux != onMacOS {
			t.Errorf("%s: expected a name that ends in _linux.go, since the file is built on Linux only", path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, is := n.(*ast.BasicLit); is && s.Kind == token.STRING {
				if text, err := strconv.Unquote(s.Value); err == nil && strings.HasPrefix(text, "/proc/") {
					t.Errorf("%s: found %s: move it to a *_linux.go file", path, s.Value)
				}
			}
			return true
		})
	})
}

// linuxInC are names of Linux and glibc that macOS lacks, as far as this code uses them or might.
var linuxInC = regexp.MustCompile(`<linux/|<(sys/(syscall|eventfd|epoll|prctl|random|sysinfo)|elf|link)\.h>|"/proc/` +
	`|\b(SYS_\w+|MADV_HUGEPAGE|MADV_POPULATE_\w+|MREMAP_\w+|F_(GET|ADD)_SEALS|\w+_NP|EFD_\w+|MFD_\w+|CPU_COUNT|cpu_set_t` +
	`|memfd_create|mremap|pipe2|eventfd|sched_getaffinity|pthread_getcpuclockid|gettid|pidfd_open|accept4|epoll_\w+|signalfd|timerfd_\w+)\b`)

var commentInC = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

func TestOnlySystemFilesInCNeedLinux(t *testing.T) {
	found := 0
	for _, folder := range []string{"capi", "cuda", "pyfeed", "python"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "/testdata/") || !slices.Contains([]string{".c", ".h", ".hpp"}, filepath.Ext(path)) {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			code := commentInC.ReplaceAllString(read(t, name), "")
			switch names := linuxInC.FindAllString(code, -1); {
			case systemFile.MatchString(name):
				found += len(names)
			case len(names) > 0:
				t.Errorf("%s: found %q, which macOS does not have: move it to a file whose name ends in _linux", name, names)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("found only %d names of Linux in C: this test looks in the wrong place", found)
	}
}

// linuxInPython are what macOS's Python lacks.
var linuxInPython = regexp.MustCompile(`"/proc/|\b(memfd_create|mallopt|pidfd_open|sched_getaffinity|eventfd)\b`)

// TestThePortingListIsComplete compares the files in the table of CONTRIBUTING.md with those that need Linux.
func TestThePortingListIsComplete(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n### What a port to macOS has to write\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, line := range strings.Split(section, "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
				listed[name[1]] = true
			}
		}
	}
	need := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && path != root && (name == "build" || name == "dist" || name == "tests" || strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case systemFile.MatchString(name), d.Name() == "exports.map":
			need[name] = true
		case strings.HasPrefix(name, "python/") && strings.HasSuffix(name, ".py") && linuxInPython.MatchString(read(t, name)):
			need[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range maps.Keys(need) {
		if !listed[name] {
			t.Errorf("%s is not in the table of CONTRIBUTING.md", name)
		}
	}
	for name := range maps.Keys(listed) {
		if !need[name] {
			t.Errorf("CONTRIBUTING.md lists %s, which does not exist or needs nothing of Linux", name)
		}
	}
}

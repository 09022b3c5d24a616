package driver_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/cuda/driver"
)

// A process can have only one driver. Tests that open another one, or none, run in new processes.
func TestMain(m *testing.M) {
	if what, is := os.LookupEnv("DRIVER_TEST"); is {
		children[what](os.Getenv("DRIVER_TEST_LIBRARY"))
		return
	}
	os.Exit(m.Run())
}

var children = map[string]func(path string){
	"open": func(path string) {
		first := driver.Open()
		fmt.Println(first)
		if again := driver.Open(); again != first {
			fmt.Println("and then", again)
		}
		for _, err := range []error{second(driver.Count()), second(driver.Name(0)), second(driver.Retain(0)), driver.Release(0)} {
			if err != first {
				fmt.Println("elsewhere", err)
			}
		}
	},
	"file": func(path string) {
		err := driver.OpenFile(path)
		fmt.Println(err)
		var u *driver.Unavailable
		if !errors.As(err, &u) || u.Cause != nil {
			fmt.Printf("found %#v\n", err)
		}
	},
	"cause": func(path string) {
		err := driver.OpenFile(path)
		fmt.Println(err)
		var e *driver.Error
		if !errors.As(err, &e) {
			fmt.Printf("found %#v\n", err)
			return
		}
		fmt.Println(e.Code, e.Name, e.Text, e.Call)
	},
	"then": func(path string) {
		fmt.Println(driver.OpenFile(path + ".not.there"))
		fmt.Println(driver.OpenFile(path))
		fmt.Println(driver.Open())
		fmt.Println(driver.Count())
		fmt.Println(driver.OpenFile(path))
		fmt.Println(driver.OpenFile(path + ".not.there"))
	},
	"threads": func(string) {
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				if n, err := driver.Count(); n != 1 || err != nil {
					fmt.Println("found", n, err)
				}
			})
		}
		all.Wait()
	},
}

func second[T any](_ T, err error) error { return err }

// child runs one of the functions above in a new process and returns its output.
func child(t *testing.T, what, library string, environment ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	// GORACE: the race detector would otherwise wait a second at the end of the process.
	cmd.Env = append(os.Environ(), "DRIVER_TEST="+what, "DRIVER_TEST_LIBRARY="+library, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v, having printed %q", what, err, out)
	}
	return string(out)
}

// compile makes a shared library from a few lines of C.
func compile(t *testing.T, lines string) string {
	t.Helper()
	folder := t.TempDir()
	source, library := filepath.Join(folder, "driver.c"), filepath.Join(folder, "libcuda.so.1")
	if err := os.WriteFile(source, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		cc = []string{"cc"}
	}
	cmd := exec.Command(cc[0], append(cc[1:], "-shared", "-fPIC", "-o", library, source)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd, err, out)
	}
	return library
}

func expect(t *testing.T, what, expected, found string) {
	t.Helper()
	if expected != found {
		t.Errorf("%s: expected %q, found %q", what, expected, found)
	}
}

func TestNoDriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	expect(t, "a library that is not there", path+": cannot open shared object file: No such file or directory\n", child(t, "file", path))
}

// Open relies on the loader's search, and returns the loader's error to all callers.
func TestOpenAsksTheLoader(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "libcuda.so.1")
	if err := os.WriteFile(path, []byte("this is no library of any kind, and long enough to be looked at closely"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, "a file that is no library", path+": invalid ELF header\n", child(t, "open", "", "LD_LIBRARY_PATH="+folder))
}

func TestNoCUDADriver(t *testing.T) {
	path := compile(t, "int other;")
	expect(t, "another library", path+": not a CUDA driver, it has no cuInit\n", child(t, "file", path))
}

// A driver without an entry point that we call ourselves is refused, without cuInit being called.
func TestDriverTooOld(t *testing.T) {
	path := compile(t, "int cuInit(unsigned flags) { __builtin_trap(); }")
	expect(t, "an old driver", path+": this driver is too old, it has no cuCtxGetCurrent\n", child(t, "file", path))
}

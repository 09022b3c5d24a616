package fakecuda_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/tests/fakecuda"
)

// The self tests are C programs. They run without a sanitizer, with ThreadSanitizer, and with AddressSanitizer.
var variants = map[string]string{
	"plain":  "",
	"thread": "-fsanitize=thread",
	"memory": "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
}

// compile builds a self test with a variant of the fake. The program has the path of that library.
func compile(t *testing.T, name, flags string) string {
	t.Helper()
	library, err := fakecuda.BuildWith(flags)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(fakecuda.Folder(), "selftest", name+".c")
	for _, path := range []string{source, filepath.Join(fakecuda.Folder(), "selftest", "check.h")} {
		if _, err := os.Stat(path); err != nil { // makes Go's test cache depend on the file
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("sh", "-c", `exec ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -pthread $CGO_CPPFLAGS $FLAGS `+
		`-o "$0" "$1" "$2" -Wl,-rpath,"${2%/*}"`, program, source, library)
	cmd.Env = append(fakecuda.Environment(), "FLAGS="+flags)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd, err, out)
	}
	return program
}

// run returns the output of a program. The program is killed when the test's time is over.
func run(t *testing.T, program string, arguments, environment []string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, arguments...)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	cmd.Env = append(os.Environ(), environment...)
	err = cmd.Run()
	return out.String(), errors.String(), err
}

func passes(t *testing.T, program string, arguments, environment []string, expected string) string {
	t.Helper()
	stdout, stderr, err := run(t, program, arguments, environment)
	if err != nil || stdout != expected {
		t.Errorf("expected %q and success, found %q and %v:\n%s", expected, stdout, err, stderr)
	}
	return stderr
}

// The rules of CUDA, tested through the driver's own calls.
func TestRulesOfCUDA(t *testing.T) {
	for name, flags := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passes(t, compile(t, "rules", flags), nil, nil, "ok\n")
		})
	}
}

// The additional functions of the fake, each tested in its own process.
func TestFakeOnly(t *testing.T) {
	for name, flags := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := compile(t, "fake", flags)
			list, _, err := run(t, program, nil, nil)
			tests := strings.Fields(list)
			if err != nil || len(tests) < 20 {
				t.Fatalf("found only %d tests, %v", len(tests), err)
			}
			for i, test := range tests {
				if thread := test == "threads" || i%2 == 0; testing.Short() && (name == "thread" && !thread || name == "memory" && thread) {
					continue // each test runs with one of the sanitizers
				}
				t.Run(test, func(t *testing.T) {
					arguments := []string{test}
					switch test {
					case "touched":
						stdout, stderr, err := run(t, program, arguments, []string{"ASAN_OPTIONS=handle_segv=0", "TSAN_OPTIONS=handle_segv=0"})
						exit, is := err.(*exec.ExitError)
						if !is || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV || stdout != "touching\n" {
							t.Errorf("expected a segmentation fault, found %v, %q: %s", err, stdout, stderr)
						}
					case "environment":
						passes(t, program, arguments, []string{"FAKECUDA_DEVICES=3", "FAKECUDA_MEMORY=131072", "FAKECUDA_PINNED=65536",
							"FAKECUDA_DRIVER_VERSION=12060", "FAKECUDA_FAIL=cuMemAlloc_v2@2=2,cuMemcpyHtoDAsync_v2@1=719!"}, "ok\n")
					case "misuse":
						stderr := passes(t, program, arguments, nil, "ok\n")
						if n := strings.Count(stderr, "fakecuda: MISUSE: "); n != 20 {
							t.Errorf("expected the first 20 complaints, found %d", n)
						}
					case "ends":
						passes(t, program, arguments, nil, "ok\nlate\n")
					default:
						passes(t, program, arguments, nil, "ok\n")
					}
				})
			}
			if name == "plain" {
				t.Run("report", func(t *testing.T) { report(t, program) })
				t.Run("bad environment", func(t *testing.T) { badEnvironment(t, program) })
			}
		})
	}
}

func report(t *testing.T, program string) {
	stderr := passes(t, program, []string{"consumer"}, []string{"FAKECUDA_REPORT=1"}, "ok\n")
	if !strings.HasPrefix(stderr, "fakecuda: calls=") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("expected only a line with a report of calls, found %q", stderr)
	}
	if stderr := passes(t, program, []string{"consumer"}, nil, "ok\n"); stderr != "" {
		t.Errorf("expected nothing on stderr, found %q", stderr)
	}
	stderr = passes(t, program, []string{"leaks"}, []string{"FAKECUDA_REPORT=1"}, "ok\n")
	for _, part := range []string{"fakecuda: LEAK: 4 ", " leaks=4 ", " copies=1 copy_bytes=65536 copies_done=1"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("expected %q in the report, found %q", part, stderr)
		}
	}
}

// A wrong value of a variable ends the process, so that no test passes only because the value has no effect.
func badEnvironment(t *testing.T, program string) {
	for variable, why := range map[string]string{
		"FAKECUDA_MEMORY=1G":                "FAKECUDA_MEMORY: expected a number that is not negative, found \"1G\"",
		"FAKECUDA_DEVICES=-1":               "FAKECUDA_DEVICES: expected a number that is not negative, found \"-1\"",
		"FAKECUDA_FAIL=cuMemAloc@1=2":       "found \"cuMemAloc@1=2\"",
		"FAKECUDA_FAIL=cuMemAlloc_v2@1":     "found \"cuMemAlloc_v2@1\"",
		"FAKECUDA_FAIL=cuMemAlloc_v2@0=2":   "found \"cuMemAlloc_v2@0=2\"",
		"FAKECUDA_FAIL=cuInit@1=2?":         "found \"cuInit@1=2?\"",
		"FAKECUDA_FAIL=*@9=2,cuInit@1=2!!":  "found \"cuInit@1=2!!\"",
		"FAKECUDA_FAIL=*@9=2,,cuInit@1=100": "found \"\"",
	} {
		_, stderr, err := run(t, program, nil, []string{variable})
		if err == nil || !strings.Contains(stderr, "fakecuda: ") || !strings.Contains(stderr, why) {
			t.Errorf("%s: expected %s, found %v, %q", variable, why, err, stderr)
		}
	}
}

// All functions of the Go package, each called at least once.
func TestFromGo(t *testing.T) {
	fakecuda.Load(fakecuda.Build(t))
	fakecuda.Reset()
	expect := func(what string, expected, found any) {
		t.Helper()
		if expected != found {
			t.Errorf("%s: expected %v, found %v", what, expected, found)
		}
	}
	fakecuda.SetDevices(2)
	fakecuda.SetMemory(1 << 20)
	fakecuda.SetPinned(1 << 20)
	fakecuda.SetBandwidth(100, time.Microsecond)
	first, code := fakecuda.NewStream(0, true)
	expect("NewStream", 0, code)
	second, code := fakecuda.NewStream(1, false)
	expect("NewStream", 0, code)
	_, code = fakecuda.NewStream(2, false)
	expect("a device that is not there", 101, code)
	expect("streams", 2, len(fakecuda.Streams()))
	expect("the first", first, fakecuda.Streams()[0])
	expect("Count", int64(2), fakecuda.Count("contexts"))
	expect("Calls", int64(0), fakecuda.Calls("cuInit"))

	none := fakecuda.Range{}
	expect("Pause", 0, fakecuda.Pause(first))
	expect("Kernel", 0, fakecuda.Kernel(first, time.Microsecond, none, none, 0))
	expect("Kernel", 0, fakecuda.Kernel(first, 0, none, none, 0))
	expect("pending", int64(2), fakecuda.Count("pending"))
	expect("Let", 0, fakecuda.Let(first, 1))
	expect("Await", true, fakecuda.Await("kernels", 1, time.Minute))
	expect("Await", false, fakecuda.Await("kernels", 2, 0))
	expect("Resume", 0, fakecuda.Resume(first))
	expect("Synchronize", 0, fakecuda.Synchronize(first))
	expect("kernels", int64(2), fakecuda.Count("kernels"))
	for _, f := range []func(int) int{fakecuda.PauseCopies, fakecuda.ResumeCopies} {
		expect("copies of device 1", 0, f(1))
		expect("copies of device 8", 101, f(8))
	}

	_, code = fakecuda.Peek(0x1234, 1)
	expect("Peek of nothing", 1, code)
	_, code = fakecuda.Sum(first, 0x1234, 1)
	expect("Sum of nothing", 1, code)
	expect("Kernel of nothing", 1, fakecuda.Kernel(first, 0, fakecuda.Range{Address: 0x1234, Bytes: 1}, none, 0))
	expect("Hash", fakecuda.Hash([]byte("same")), fakecuda.Hash([]byte("same")))
	expect("Hash", false, fakecuda.Hash([]byte("same")) == fakecuda.Hash([]byte("Same")))
	fakecuda.Hash(nil)

	for _, mode := range []int{fakecuda.Global, fakecuda.ThreadLocal, fakecuda.Relaxed} {
		expect("BeginCapture", 0, fakecuda.BeginCapture(first, mode))
		expect("captures", int64(1), fakecuda.Count("captures"))
		expect("EndCapture", 0, fakecuda.EndCapture(first))
	}
	expect("EndCapture of no capture", 401, fakecuda.EndCapture(first))

	expect("Complaint", "", fakecuda.Complaint())
	expect("a stream that is not there", 400, fakecuda.Synchronize(0x1234))
	expect("Complaint", "0x1234 is no stream, or one that was destroyed", fakecuda.Complaint())

	expect("Break", 0, fakecuda.Break(1, 700))
	expect("Synchronize", 700, fakecuda.Synchronize(second))
	expect("Synchronize of the other device", 0, fakecuda.Synchronize(first))
	fakecuda.Reset()
	expect("Synchronize after a reset", 0, fakecuda.Synchronize(second))
	expect("Kernel", 0, fakecuda.Kernel(second, 0, none, none, 719))
	expect("Synchronize", 719, fakecuda.Synchronize(second))
	fakecuda.Deinitialize(true)
	_, code = fakecuda.NewStream(0, true)
	expect("NewStream at the end", 4, code)
	fakecuda.Deinitialize(false)
	expect("DestroyStream", 0, fakecuda.DestroyStream(first))
	expect("DestroyStream", 719, fakecuda.DestroyStream(second))
	for _, name := range []string{"contexts", "retains", "streams", "pending", "leaks"} {
		expect(name, int64(0), fakecuda.Count(name))
	}

	fakecuda.Fail("cuInit", 1, 100, true)
	fakecuda.FailFrom("*", 2, 999)
	fakecuda.Reset()
	for what, f := range map[string]func(){
		"Count": func() { fakecuda.Count("cuMemAlloc") },
		"Await": func() { fakecuda.Await("copys", 1, 0) },
		"Fail":  func() { fakecuda.Fail("cuMemAlloc", 1, 2, false) },
		"nth":   func() { fakecuda.Fail("cuMemAlloc_v2", 0, 2, false) },
		"Load":  func() { fakecuda.Load(filepath.Join(t.TempDir(), "libcuda.so.1")) },
	} {
		func() {
			defer func() { expect(what+" panics", true, recover() != nil) }()
			f()
		}()
	}
}

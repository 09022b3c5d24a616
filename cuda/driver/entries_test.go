package driver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// buildFlags returns the flags that this test was built with, so that entries.sh finds packages compiled already.
func buildFlags(t *testing.T) (flags []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test binary has no build information")
	}
	for _, s := range info.Settings {
		if s.Key == "-race" || s.Key == "-tags" {
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return flags
}

// A missing entry point makes the link of the C library fail. A superfluous one would only waste space, and one of ours
// that is not marked would be noticed only when it is called. This test finds all of these.
func TestEntriesAreThoseThatAreCalled(t *testing.T) {
	found := filepath.Join(t.TempDir(), "entries.h")
	entries := exec.Command("./entries.sh", found)
	entries.Env = append(os.Environ(), "GOFLAGS="+strings.Join(buildFlags(t), " "))
	if out, err := entries.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	listed, err := os.ReadFile("entries.h")
	if err != nil {
		t.Fatal(err)
	}
	called, err := os.ReadFile(found)
	if err != nil {
		t.Fatal(err)
	}
	if string(listed) != string(called) {
		t.Errorf("entries.h is out of date, run go generate ./cuda/driver: expected %d bytes:\n%s", len(called), called)
	}
}

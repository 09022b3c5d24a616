package driver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Too few entry points fail the link, in the C library at least; too many would be dead weight, and one of ours that is
// not marked would be missed only when it is called.
func TestEntriesAreThoseThatAreCalled(t *testing.T) {
	found := filepath.Join(t.TempDir(), "entries.h")
	if out, err := exec.Command("./entries.sh", found).CombinedOutput(); err != nil {
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

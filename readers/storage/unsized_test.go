package storage

import (
	"os"
	"testing"
)

// The files of /proc have a size of 0, whatever they contain.
func TestAFileOfUnknownSizeIsRead(t *testing.T) {
	p := pool(t)
	for name, least := range map[string]int{"/proc/version": 1, "/proc/kallsyms": smallFile + 1} {
		want, err := os.ReadFile(name)
		if info, bad := os.Stat(name); err != nil || bad != nil || info.Size() != 0 || len(want) < least {
			if least > 1 { // some machines do not show the symbols of the kernel
				continue
			}
			t.Fatal(name, err)
		}
		for _, o := range []Options{{}, {IO: "read"}, {IO: "map"}, {Compression: "none"}} {
			if testing.Short() && least > 1 && o.IO+o.Compression != "" {
				break // reading the symbols takes the kernel long
			}
			f, err := Open(name, o, p)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := readAll(f); err != nil || string(got) != string(want) {
					t.Errorf("%s, %+v: expected %d bytes, found %d, %v", name, o, len(want), len(got), err)
				}
				if err := f.Rewind(); err != nil {
					t.Error(err)
				}
			}
			f.Close()
		}
	}
}

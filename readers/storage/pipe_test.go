package storage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// writeLater opens a pipe in the usual way, writes data and closes the pipe.
func writeLater(name string, data []byte) <-chan error {
	done := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err == nil {
			_, err = w.Write(data)
			err = errors.Join(err, w.Close())
		}
		done <- err
	}()
	return done
}

// Pipes may be opened before their writer or after it.
func TestAPipeIsReadToItsEnd(t *testing.T) {
	p := pool(t)
	for _, kind := range []string{"", "none", "gzip"} {
		for _, size := range []int{0, 1, 100_000, 2*blockSize + 3} {
			data := noise(size)
			packed := data
			if kind == "gzip" {
				name := filepath.Join(t.TempDir(), "packed")
				write(t, name, kind, data)
				packed, _ = os.ReadFile(name)
			}
			for _, writerFirst := range []bool{false, true} {
				if kind == "gzip" && !writerFirst { // opening waits for the gzip header
					continue
				}
				name := fifo(t)
				var written <-chan error
				if writerFirst {
					written = writeLater(name, packed)
				}
				f, err := Open(name, Options{Compression: kind, Interrupt: new(Interrupt)}, p)
				if err != nil {
					t.Fatal(err)
				}
				if !writerFirst {
					written = writeLater(name, packed)
				}
				b, err := f.Peek(1) // like a format that checks the beginning
				f.Skip(len(b))
				if err = errors.Join(err, f.Rewind()); err != nil {
					t.Error(err)
				}
				if got, err := readAll(f); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%q, %d bytes: found %d, %v", kind, size, len(got), err)
				}
				if err := <-written; err != nil {
					t.Errorf("%q, %d bytes: the writer: %v", kind, size, err)
				}
				f.Close()
			}
		}
	}
}

// A writer that waits in open for a reader keeps that reader until its end.
func TestAPipeIsOpenedOnce(t *testing.T) {
	p := pool(t)
	for _, o := range []Options{{}, {Compression: "none"}, {Compression: "none", IO: "map"}} {
		name := fifo(t)
		held := writeLater(name, nil)
		f, err := Open(name, o, p)
		if err != nil {
			t.Fatal(err)
		}
		<-held
		again, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatalf("the pipe has no reader: %v", err)
		}
		again.Close()
		if got, err := readAll(f); err != nil || len(got) > 0 {
			t.Errorf("found %d bytes, %v", len(got), err)
		}
		f.Close()
	}
}

func TestAnInterruptEndsAWait(t *testing.T) {
	p := pool(t)
	for _, writer := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			name := fifo(t)
			stop := new(Interrupt)
			f, err := Open(name, Options{Interrupt: stop}, p)
			if err != nil {
				t.Fatal(err)
			}
			if writer {
				w, err := os.OpenFile(name, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
			}
			if before {
				stop.Stop()
			}
			done := make(chan error)
			go func() {
				_, err := f.Peek(1)
				done <- err
			}()
			if !before {
				stop.Stop()
			}
			if err := <-done; err != ErrInterrupted {
				t.Errorf("writer %v, before %v: found %v", writer, before, err)
			}
			f.Close()
			stop.Stop()
		}
	}
	stop := new(Interrupt)
	stop.Stop()
	f, err := Open(fifo(t), Options{Interrupt: stop}, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Peek(1); err != ErrInterrupted {
		t.Errorf("found %v", err)
	}
	f.Close()
}

package readers

import (
	"sync/atomic"
	"testing"
)

// restarted is a Reader of which only the passes matter.
type restarted struct{ Reader }

func (restarted) ReInit(uint64) error { return nil }

// At the end of a pass, a thread asks without the lock whether the reader below was reset by another caller, while the
// reader above begins the next pass.
func TestAResetByTheReaderAboveIsNoOthers(t *testing.T) {
	u := NewUpstream(&ReaderHolder{reader: restarted{}})
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pass := uint64(1); !stop.Load(); pass++ {
			u.mu.Lock()
			if err := u.resume(); err != nil {
				t.Error(err)
			}
			u.mu.Unlock()
			if err := u.Begin(pass); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 300_000 {
		if err := u.moved(); err != nil {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	<-ended

	if err := u.resume(); err != nil {
		t.Error(err)
	}
	if err := u.ReInit(); err != nil { // by another caller
		t.Error(err)
	}
	if u.moved() == nil {
		t.Error("expected an error about the reset by another caller, found none")
	}
}

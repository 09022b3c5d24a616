package decorators

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// Batches of 4 begin at multiples of 4, and anew behind a smaller batch, a failed one and the end of a pass.
func TestBatchesAfterABreak(t *testing.T) {
	g := batchGrid{size: 4}
	take := func(n int) {
		g.took(n)
		if n < 4 {
			g.align()
		}
	}
	expect := func(pass uint64, begins ...int64) {
		t.Helper()
		for batch, begin := range begins {
			if below, _, err := g.locate(readers.Position{Pass: pass, N: int64(batch)}); err != nil || below.N != begin {
				t.Errorf("pass %d, batch %d: expected %d, found %+v, %v", pass, batch, begin, below, err)
			}
		}
	}
	take(4)
	take(4)
	g.failed() // the second one
	take(4)
	take(3) // cut short
	take(4)
	expect(0, 0, 8, 12, 15, 19, 23)
	g.begin(1)
	take(4)
	take(2)    // the end of the pass
	g.failed() // it was not delivered
	expect(1, 0, 6)
	expect(0, 0, 8, 12, 15, 19, 23)
	below, from, err := g.locate(readers.Position{Pass: 0, N: 4})
	if err != nil {
		t.Fatal(err)
	}
	other := batchGrid{size: 4}
	if restored, err := other.restore(readers.Position{Pass: 0, N: 4}, batchState{from.batch, from.instance}); err != nil || restored != below {
		t.Errorf("expected %+v, found %+v, %v", below, restored, err)
	}
}

// Instances that are left out stay behind the position between two batches, until reading goes on.
func TestInstancesThatAreLeftOut(t *testing.T) {
	g := batchGrid{size: 4}
	g.passLeftOut()
	g.took(4)
	g.leaveOut(3) // before an error
	for step, expected := range []int64{4, 7} {
		if below, _, err := g.locate(readers.Position{N: 1}); err != nil || below.N != expected {
			t.Errorf("step %d: expected %d, found %+v, %v", step, expected, below, err)
		}
		g.passLeftOut()
	}
	g.took(4)
	if below, _, err := g.locate(readers.Position{N: 2}); err != nil || below.N != 11 {
		t.Errorf("expected 11, found %+v, %v", below, err)
	}
}

// A reader of any number of passes keeps a bounded number of breaks, and refuses a position that lies behind all of them.
func TestOldBreaksAreForgotten(t *testing.T) {
	g := batchGrid{size: 4}
	for pass := range uint64(3 * maxBreaks) {
		g.begin(pass)
		g.took(3)
		g.align()
	}
	if len(g.breaks) > maxBreaks {
		t.Errorf("found %d breaks", len(g.breaks))
	}
	if below, _, err := g.locate(readers.Position{Pass: 3*maxBreaks - 1000, N: 1}); err != nil || below.N != 3 {
		t.Errorf("found %+v, %v", below, err)
	}
	if _, _, err := g.locate(readers.Position{Pass: 1, N: 1}); !pyfeed.IsKind(err, pyfeed.State) {
		t.Errorf("found %v", err)
	}
}

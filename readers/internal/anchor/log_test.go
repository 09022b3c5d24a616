package anchor

import "testing"

// The distance from a position to the place that is found is at most a part of its distance from the latest place.
func TestPlacesAreForgottenByTheirAge(t *testing.T) {
	for _, dense := range []int{1, 4, 16} {
		l := Log[int64]{Dense: dense}
		const last = 200_000
		for at := int64(0); at <= last; at++ {
			l.Add(0, at, at)
		}
		if n := len(l.places); n >= 40*dense {
			t.Errorf("dense %d: %d places are kept", dense, n)
		}
		for at := int64(0); at <= last; at += 37 {
			p, found, next := l.Find(0, at)
			if !found || p.At != p.Value || p.At > at {
				t.Fatalf("dense %d: place %+v, %v for %d", dense, p, found, at)
			}
			if next != (p.At == at || p.At == last) {
				t.Fatalf("dense %d: place %d for %d: next is %v", dense, p.At, at, next)
			}
			// Places were last forgotten when there were up to 40 * dense fewer.
			if age := last - at + int64(40*dense); at-p.At > 2*age/int64(dense)+1 {
				t.Fatalf("dense %d: place %d for %d, of %d", dense, p.At, at, last)
			}
		}
	}
}

func TestPlacesOfPasses(t *testing.T) {
	l := Log[string]{Dense: 4}
	if _, found, next := l.Find(0, 5); found || !next {
		t.Error("an empty log has a place, or has forgotten one")
	}
	l.Add(3, 10, "a")
	l.Add(3, 20, "b")
	l.Add(4, 5, "c")
	for _, c := range []struct {
		pass  uint64
		at    int64
		value string
	}{{3, 9, ""}, {3, 10, "a"}, {3, 19, "a"}, {3, 20, "b"}, {3, 99, "b"}, {4, 4, ""}, {4, 5, "c"}, {2, 9, ""}, {5, 9, ""}} {
		if p, found, _ := l.Find(c.pass, c.at); p.Value != c.value || found != (c.value != "") {
			t.Errorf("%+v: found %+v, %v", c, p, found)
		}
	}
	l.Add(3, 15, "d") // the pass was begun again
	if p, _, next := l.Find(3, 25); p.Value != "d" || !next {
		t.Errorf("found %+v", p)
	}
	if _, found, _ := l.Find(4, 9); found {
		t.Error("a place of a later pass is left")
	}
	l.Reset()
	if _, found, _ := l.Find(3, 99); found {
		t.Error("a place is left after Reset")
	}
}

package main

import (
	"sync"
	"testing"
)

func TestTableFindsOnlyPresentEntries(t *testing.T) {
	var all table[string]
	a, b := all.put("a"), all.put("b")
	if v, ok := all.get(a); v != "a" || !ok {
		t.Errorf("found %q, %v", v, ok)
	}
	if v, ok := all.remove(a); v != "a" || !ok {
		t.Errorf("removed %q, %v", v, ok)
	}
	c := all.put("c") // reuses the row of a
	for _, stale := range []uint64{0, a, 1 << 31, ^uint64(0), a + 1<<40} {
		if v, ok := all.get(stale); ok {
			t.Errorf("id %#x: found %q", stale, v)
		}
		if _, ok := all.remove(stale); ok {
			t.Errorf("id %#x was removed", stale)
		}
	}
	if v, _ := all.get(c); v != "c" || c == a || all.len() != 2 {
		t.Errorf("found %q under %#x, %d rows", v, c, all.len())
	}
	if v, _ := all.get(b); v != "b" {
		t.Errorf("found %q", v)
	}
}

func TestTableGivesEachIdToOneCaller(t *testing.T) {
	var all table[int]
	var done sync.WaitGroup
	for w := range 8 {
		done.Go(func() {
			for i := range 2000 {
				id := all.put(w*10000 + i)
				if v, ok := all.remove(id); !ok || v != w*10000+i {
					t.Errorf("expected %d, found %d, %v", w*10000+i, v, ok)
				}
				if _, ok := all.remove(id); ok {
					t.Error("removed twice")
				}
			}
		})
	}
	done.Wait()
	if all.len() != 0 {
		t.Errorf("%d rows left", all.len())
	}
}

// Package anchor has the places from which readers can go on.
package anchor

import (
	"cmp"
	"math/bits"
	"slices"
)

// A Log has places in the data of a reader, of which it forgets more and more the older they are: of the latest Dense it
// keeps all, of twice as many before every second, of four times as many before every fourth, and so on. So the distance
// from any position to the last place before it is a fixed part of the distance from the latest place, whatever the
// readers above have read ahead. The caller has a lock.
type Log[T any] struct {
	Dense int // at least 1

	places []Place[T]
	added  uint64
}

// Place is a place behind At tuples of pass Pass.
type Place[T any] struct {
	Pass  uint64
	At    int64
	Value T

	number uint64 // how many were added before
}

// Add adds a place, which is behind all others of its pass. Those of later passes become void.
func (l *Log[T]) Add(pass uint64, at int64, value T) {
	for n := len(l.places); n > 0 && (l.places[n-1].Pass > pass || l.places[n-1].Pass == pass && l.places[n-1].At > at); n-- {
		l.places = l.places[:n-1]
	}
	l.places = append(l.places, Place[T]{pass, at, value, l.added})
	l.added++
	if len(l.places) >= 40*l.Dense { // more than 32 octaves of places never exist
		l.thin()
	}
}

func (l *Log[T]) thin() {
	l.places = slices.DeleteFunc(l.places, func(p Place[T]) bool {
		age := (l.added - 1 - p.number) / uint64(l.Dense)
		every := uint64(1) << (bits.Len64(age+1) - 1)
		return p.number%every != 0
	})
}

// Find returns the last place of a pass that is not behind the given number of tuples. found is false if there is none.
// next reports that no place between it and the given number was forgotten.
func (l *Log[T]) Find(pass uint64, at int64) (p Place[T], found, next bool) {
	i, _ := slices.BinarySearchFunc(l.places, at, func(p Place[T], at int64) int {
		if c := cmp.Compare(p.Pass, pass); c != 0 {
			return c
		}
		if p.At <= at {
			return -1
		}
		return 1
	})
	if i == 0 || l.places[i-1].Pass != pass {
		return Place[T]{}, false, l.added == 0
	}
	p = l.places[i-1]
	return p, true, p.At == at || i == len(l.places) || l.places[i].number == p.number+1
}

// Reset forgets all places.
func (l *Log[T]) Reset() { l.places, l.added = nil, 0 }

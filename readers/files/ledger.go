package files

import (
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// ledger lists the damage that was skipped, over all passes.
type ledger struct {
	mu      sync.Mutex
	count   int64
	entries []damageEntry
	listed  map[damagePlace]int // the index of a place in entries
}

// damagePlace identifies damage that is found again in another pass.
type damagePlace struct {
	file           string
	offset, record int64
}

// damageEntry describes a record, or a part of a file, that was skipped.
type damageEntry struct {
	File        string `json:"file"`
	Offset      int64  `json:"offset"`
	Record      int64  `json:"record"`
	Approximate bool   `json:"approximate"`
	Reason      string `json:"reason"`
	Times       int64  `json:"times"` // it was skipped: once in each pass that reached it
}

// maxLedger bounds the entries of the ledger. Damage at further places is only counted.
const maxLedger = 1000

func (l *ledger) add(e *pyfeed.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	d := damageEntry{Offset: -1, Record: -1, Reason: e.Text, Times: 1}
	if e.At != nil {
		d.File, d.Offset, d.Record, d.Approximate = TextOfName(e.At.File), e.At.Offset, e.At.Record, e.At.Approximate
	}
	place := damagePlace{d.File, d.Offset, d.Record}
	if i, known := l.listed[place]; known {
		l.entries[i].Times++
		return
	}
	if len(l.entries) < maxLedger {
		if l.listed == nil {
			l.listed = make(map[damagePlace]int)
		}
		l.listed[place] = len(l.entries)
		l.entries = append(l.entries, d)
	}
}

// total returns the number of places that were skipped.
func (l *ledger) total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// restore sets that number to one of another process, whose entries are not known.
func (l *ledger) restore(count int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count, l.entries, l.listed = count, nil, nil
}

func (l *ledger) describe(s *readers.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Extra["corrupt"] = l.count
	s.Extra["ledger"] = append([]damageEntry{}, l.entries...)
}

package files

import (
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// ledger has the damage that was skipped.
type ledger struct {
	mu      sync.Mutex
	count   int64
	entries []damageEntry
}

// damageEntry is a record, or a part of a file, that was skipped.
type damageEntry struct {
	File        string `json:"file"`
	Offset      int64  `json:"offset"`
	Record      int64  `json:"record"`
	Approximate bool   `json:"approximate"`
	Reason      string `json:"reason"`
}

// maxLedger bounds the ledger's entries: the count goes on.
const maxLedger = 1000

func (l *ledger) add(e *pyfeed.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if len(l.entries) < maxLedger {
		d := damageEntry{Offset: -1, Record: -1, Reason: e.Text}
		if e.At != nil {
			d.File, d.Offset, d.Record, d.Approximate = TextOfName(e.At.File), e.At.Offset, e.At.Record, e.At.Approximate
		}
		l.entries = append(l.entries, d)
	}
}

func (l *ledger) describe(s *readers.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Extra["corrupt"] = l.count
	s.Extra["ledger"] = append([]damageEntry{}, l.entries...)
}

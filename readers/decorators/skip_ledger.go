package decorators

import (
	"cmp"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// skipLedger lists the tuples that a map reader has skipped, over all passes. The reader's lock guards it.
type skipLedger struct {
	count   int64
	entries []skipEntry
}

// skip is a tuple that is skipped, and why.
type skip struct {
	at  readers.Position
	err error
}

// skipEntry describes a tuple that was skipped.
type skipEntry struct {
	Pass   uint64 `json:"pass"`
	Index  int64  `json:"index"`  // in the pass, from 0
	File   string `json:"file"`   // "" if it is not from a file
	Record int64  `json:"record"` // -1 if it is not known
	Reason string `json:"reason"`
}

// maxSkips bounds the entries. Further tuples are only counted.
const maxSkips = 1000

func (l *skipLedger) add(s *skip) {
	l.count++
	if len(l.entries) == maxSkips {
		return
	}
	e := skipEntry{Pass: s.at.Pass, Index: s.at.N, Record: -1, Reason: s.err.Error()}
	if failed, is := s.err.(*pyfeed.ProducerError); is {
		e.Reason = cmp.Or(failed.Type, "error")
		if failed.Message != "" {
			e.Reason += ": " + failed.Message
		}
		if failed.At != nil {
			e.File, e.Record = failed.At.File, failed.At.Record
		}
	}
	l.entries = append(l.entries, e)
}

func (l *skipLedger) describe(s *readers.Stats) {
	if l.count > 0 {
		s.Extra["skipped"], s.Extra["skips"] = l.count, append([]skipEntry{}, l.entries...)
	}
}

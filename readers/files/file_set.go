package files

import (
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// fileSet has what the files of one reader share.
type fileSet struct {
	configs map[string]*record.Config // by tag
	spec    *pyfeed.Spec
	skip    bool // damage is skipped
	// verifyFirst: each file is verified before its first record is delivered.
	verifyFirst   bool
	ledger        ledger
	counts        counts
	pool          *memory.Pool
	formatOptions map[string]json.RawMessage // by tag
	optionsText   any                        // the options of the formats, for states
	slotsText     any                        // the slots, for states
	compression   string                     // as it was given, for states; "": as the files are

	replays atomic.Bool // a file of a format without positions was opened

	identified sync.Once
	identity   identity

	mu     sync.Mutex
	spares [][]*pyfeed.Tuple // of closed files, for the next files
	opened openedFile        // the first file, if it is a pipe that was opened to get its slots
}

// openedFile is a file that was opened before its reader was made.
type openedFile struct {
	path        string
	records     record.Records // nil: no file was opened
	stop        *storage.Interrupt
	number      int64 // of the next record
	approximate bool  // number is only approximate
}

// noteFormat notes whether Records have positions.
func (s *fileSet) noteFormat(r record.Records) {
	if _, can := r.(record.Seeker); !can {
		s.replays.Store(true)
	}
}

// describe adds what was skipped, and whether a resumed reader reads files again from their beginning.
func (s *fileSet) describe(to *readers.Stats) {
	s.ledger.describe(to)
	to.Extra["replays"] = s.replays.Load()
}

// borrowSpare returns space for a chunk, with the empty tuples that a closed file has left, if any.
func (s *fileSet) borrowSpare() []*pyfeed.Tuple {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spares); n > 0 {
		spare := s.spares[n-1]
		s.spares = s.spares[:n-1]
		return spare
	}
	return make([]*pyfeed.Tuple, 0, record.ChunkSize)
}

func (s *fileSet) returnSpare(spare []*pyfeed.Tuple) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = append(s.spares, spare)
}

// takeOpened returns the file that was opened before the reader was made, if it has that path, and does so once.
func (s *fileSet) takeOpened(path string) openedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.opened
	if o.path != path {
		return openedFile{}
	}
	s.opened = openedFile{}
	return o
}

// close releases everything. No file may be open.
func (s *fileSet) close() {
	if s.opened.records != nil {
		s.opened.records.Close()
	}
	for _, spare := range s.spares {
		pyfeed.ReleaseAll(spare)
	}
	s.spares = nil
	s.pool.Close()
}

package files

import (
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// fileSet is what the files of one reader have in common.
type fileSet struct {
	configs map[string]*record.Config // by tag
	spec    *pyfeed.Spec
	skip    bool // damage is skipped
	// verifyFirst has each file verified before its first record is delivered.
	verifyFirst bool
	ledger      ledger
	pool        *memory.Pool

	mu     sync.Mutex
	spares [][]*pyfeed.Tuple // of files that are read no more, for those that are next
	opened openedFile        // the first one, if it is a pipe and was asked for the slots
}

// openedFile is a file that was opened before its reader was made.
type openedFile struct {
	path        string
	records     record.Records // nil: there is none
	stop        *storage.Interrupt
	number      int64 // of the next record
	approximate bool  // the number is
}

// borrowSpare is space for a chunk, with the empty tuples that another file has left over.
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

// takeOpened is the file that was begun before, if it is of that path, once.
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

// close gives everything back, when no file is open any more.
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

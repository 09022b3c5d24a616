package files

import (
	"sync"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// counts has the number of instances of each file that was opened, as its header or size gives it.
type counts struct {
	mu     sync.Mutex
	byPath map[string]int64
}

// add notes the number of instances of a file that was opened. Any goroutine may call it.
func (c *counts) add(path string, records record.Records) {
	counted, can := records.(record.Counted)
	if !can {
		return
	}
	n := counted.Count()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		delete(c.byPath, path)
		return
	}
	if c.byPath == nil {
		c.byPath = make(map[string]int64)
	}
	c.byPath[path] = n
}

// total is the number of instances of the files, or readers.Unknown.
func (c *counts) total(refs []record.FileRef) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, ref := range refs {
		n, known := c.byPath[ref.Path]
		if !known || n >= readers.Endless-sum {
			return readers.Unknown
		}
		sum += n
	}
	return sum
}

// length returns the number of instances of the files in a pass. It is unknown if damage is skipped.
func (s *fileSet) length(refs []record.FileRef) int64 {
	if s.skip {
		return readers.Unknown
	}
	return s.counts.total(refs)
}

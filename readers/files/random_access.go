package files

import (
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// accessor reads records of many files by their numbers, in any order, by one thread. It keeps some files open.
type accessor struct {
	*catalog
	set    *fileSet
	limit  int                   // files that are open at the same time
	block  int                   // bytes that are read at a time; 0: as many as if a file is read from front to back
	shards bool                  // each virtual shard has files of its own
	open   map[fileOfShard]*file // the open files
	used   []fileOfShard         // the same; the one that was used last comes last

	mu      sync.Mutex // guards the next fields, for interrupt
	reading *file
	stopped bool
}

// fileOfShard is a file that is opened for a virtual shard. Virtual shards do not share open files, so that each is read from
// front to back.
type fileOfShard struct{ file, shard int }

// maxOpenFiles is how many files the accessors of a reader keep open together.
const maxOpenFiles = 512

// openFiles returns how many files one of several accessors keeps open: together a quarter of what the process may open.
func openFiles(of int) int {
	var limit syscall.Rlimit
	most := uint64(maxOpenFiles)
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		most = min(most, limit.Cur/4)
	}
	return max(int(most)/of, 1)
}

// newAccessor returns one of several accessors of a reader.
func newAccessor(c *catalog, set *fileSet, of int) *accessor {
	block := 512
	for n := c.count(); n > 0 && int64(block) < c.bytes/n && block < 1<<20; {
		block *= 2
	}
	return &accessor{catalog: c, set: set, limit: openFiles(of), block: block, open: make(map[fileOfShard]*file)}
}

// readShards is called before the first read if each of n virtual shards is read from front to back. They have files of
// their own, unless they are more than the files that may be open.
func (a *accessor) readShards(n int) {
	if a.shards = n <= a.limit; a.shards {
		a.block = 0
	}
}

// read adds the records of a file from record number i on, at most limit, to a Chunk. It returns how many: at least one,
// unless there is an error. After an interruption the error is storage.ErrInterrupted.
func (a *accessor) read(to *record.Chunk, i, limit int64, shard int) (int64, error) {
	at, err := a.find(i)
	if err != nil {
		return 0, err
	}
	for {
		key := fileOfShard{file: at.file}
		if a.shards {
			key.shard = shard
		}
		f, err := a.file(key)
		if err != nil {
			return 0, err
		}
		a.mu.Lock()
		a.reading = f
		stopped := a.stopped
		a.mu.Unlock()
		if stopped {
			return 0, storage.ErrInterrupted
		}
		n, err := f.readAt(to, at.Position, at.number, int(min(limit, maxChunk)))
		if errors.Is(err, syscall.EMFILE) && len(a.used) > 1 { // others of the process have opened more files
			a.limit = max(len(a.used)/2, 1)
			for len(a.used) > 0 {
				if err := a.closeFile(a.used[0]); err != nil {
					return 0, err
				}
			}
			continue
		}
		return int64(n), err
	}
}

// file returns a file, which it may have to open. It then may close another one.
func (a *accessor) file(i fileOfShard) (*file, error) {
	if n := len(a.used); n > 0 && a.used[n-1] == i {
		return a.open[i], nil
	}
	f := a.open[i]
	if f != nil {
		a.used = slices.DeleteFunc(a.used, func(other fileOfShard) bool { return other == i })
		a.used = append(a.used, i)
		return f, nil
	}
	before := slices.IndexFunc(a.used, func(other fileOfShard) bool { return other.shard == i.shard })
	switch {
	case a.shards && before >= 0: // the shard is through with that file
	case len(a.used) == a.limit:
		before = 0
	default:
		before = -1
	}
	if before >= 0 {
		if err := a.closeFile(a.used[before]); err != nil {
			return nil, err
		}
	}
	f = &file{FileRef: a.refs[i.file], fileSet: a.set, block: a.block, key: &a.keys[i.file]}
	a.open[i] = f
	a.used = append(a.used, i)
	return f, nil
}

// closeFile closes a file. It returns an error if the file was written to since it was opened.
func (a *accessor) closeFile(i fileOfShard) error {
	f := a.open[i]
	var err error
	if f.records != nil {
		if err = f.records.CheckUnchanged(); err != nil {
			err = f.locate(err, f.number)
		}
	}
	f.close()
	delete(a.open, i)
	a.used = slices.DeleteFunc(a.used, func(other fileOfShard) bool { return other == i })
	return err
}

// close closes all files. It returns an error if one of them was written to since it was opened.
func (a *accessor) close() error {
	var first error
	for len(a.used) > 0 {
		if err := a.closeFile(a.used[0]); first == nil {
			first = err
		}
	}
	return first
}

// interrupt makes the read in progress, and all later ones, end soon. Any goroutine may call it.
func (a *accessor) interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.reading != nil {
		a.reading.interrupt()
	}
}

// readAt adds the records from a position on, at most limit, and returns how many. number is that of the first one. Damage
// behind the first record is left out: who needs a record behind it reads from there.
func (f *file) readAt(to *record.Chunk, p record.Position, number int64, limit int) (int, error) {
	for {
		seeks := f.records == nil || f.follows != number
		if seeks {
			f.beginAt(filePlace{seeks: true, position: p, number: number})
			f.toSeek, f.resync, f.numToSkip, f.err = true, false, 0, nil
		}
		before := to.Checkpoint()
		n, err := f.readOnce(to, limit)
		if f.follows = -1; err == nil && n > 0 && f.number-number == int64(n) {
			f.follows = f.number
		}
		switch {
		case n > 0 && f.number-number != int64(n): // some do not have the slots of the others, and were skipped
			to.Filter(before, func() bool { return false })
			limit = 1
			continue
		case n > 0:
			return n, nil
		case storage.IsPageFault(err) && f.reopen(err):
			continue
		case !seeks && err != nil && err != storage.ErrInterrupted:
			continue // damage that the index has left out, or the end of the file
		case err != nil && err != io.EOF:
			return 0, err
		}
		found := "damage that was skipped"
		if err == io.EOF {
			found = "the end of the file"
		}
		return 0, f.locate(pyfeed.Errorf(pyfeed.Corrupt, "expected a record of this number, found %s", found), number)
	}
}

// lookups reads single records for any thread.
type lookups struct {
	mu       sync.Mutex
	accessor *accessor // nil: nothing was looked up yet
	closed   bool
}

// at returns a record.
func (l *lookups) at(c *catalog, set *fileSet, i int64) (*pyfeed.Tuple, error) {
	if i < 0 || i >= c.count() {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "index: expected the number of one of %d records, found %d", c.count(), i)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // a caller has kept the reader without a reference
		return nil, pyfeed.Errorf(pyfeed.State, "expected an open reader, found one that was closed")
	}
	if l.accessor == nil {
		l.accessor = newAccessor(c, set, 8)
	}
	start := trace.Begin()
	var chunk record.Chunk
	_, err := l.accessor.read(&chunk, i, 1, 0) // without a way to interrupt it
	trace.Since(0, trace.Read, "record", start)
	if err != nil {
		return nil, err
	}
	return chunk.TakeOne()
}

// close closes the files.
func (l *lookups) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.accessor != nil {
		_ = l.accessor.close()
		l.accessor = nil
	}
}

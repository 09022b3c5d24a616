package files

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/index"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// catalog says where each record of many files is. Records are numbered through all files, in the order of the list.
type catalog struct {
	refs    []record.FileRef
	starts  []int64        // the number of the first record of each file, and the number of all records
	indexes []*index.Index // nil: positions are numbers, as those of Counted are
	keys    []index.Key
	bytes   int64 // of all files
	damaged int64 // places that were left out when the indexes were made

	hashed   sync.Once
	hashText state.Hash
}

// numbered is a record.Position whose number in the file is known.
type numbered struct {
	file   int
	number int64 // approximate behind damage that was left out
	record.Position
}

// count returns the number of records.
func (c *catalog) count() int64 { return c.starts[len(c.refs)] }

// hash returns what differs if one of the files has changed since a state was saved.
func (c *catalog) hash() state.Hash {
	c.hashed.Do(func() {
		b := make([]byte, 0, 24*len(c.keys))
		for i := range c.keys {
			b = binary.LittleEndian.AppendUint64(b, uint64(c.starts[i+1]-c.starts[i]))
			b = binary.LittleEndian.AppendUint64(b, uint64(c.keys[i].Size))
			b = binary.LittleEndian.AppendUint64(b, uint64(c.keys[i].Changed/1000)) // in microseconds, as in stamps
		}
		c.hashText = state.HashOf(string(b))
	})
	return c.hashText
}

// find returns where a record is.
func (c *catalog) find(i int64) (at numbered, err error) {
	file, exact := slices.BinarySearch(c.starts, i)
	if !exact {
		file--
	}
	for c.starts[file+1] == i { // the file has no records
		file++
	}
	at = numbered{file: file, number: i - c.starts[file]}
	if x := c.indexes[file]; x != nil {
		at.Position, err = x.Position(at.number)
	} else {
		at.Offset = at.number
	}
	return at, err
}

// close releases the indexes. No thread may use them afterwards.
func (c *catalog) close() {
	for _, x := range c.indexes {
		if x != nil {
			x.Close()
		}
	}
}

// catalogOf finds or makes the indexes of files, several at a time. With [wait.NonBlocking] it returns
// wait.ErrWouldBlock.
func (s *fileSet) catalogOf(ctx context.Context, refs []record.FileRef, o *Options) (*catalog, error) {
	if ctx == wait.NonBlocking {
		return nil, wait.ErrWouldBlock
	}
	dir, err := nameOfText(o.IndexDir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &catalog{refs: refs, starts: make([]int64, len(refs)+1), indexes: make([]*index.Index, len(refs)), keys: make([]index.Key, len(refs))}
	counts := make([]int64, len(refs))
	var next atomic.Int64
	var threads sync.WaitGroup
	for range min(o.NumThreads, len(refs)) {
		threads.Go(func() {
			stop := new(storage.Interrupt)
			defer context.AfterFunc(ctx, stop.Stop)()
			wait.Recovered(func() {
				for i := next.Add(1) - 1; i < int64(len(refs)) && ctx.Err() == nil; i = next.Add(1) - 1 {
					found, err := s.indexOf(ctx, stop, refs[i], dir)
					if err != nil {
						cancel(err)
						return
					}
					c.indexes[i], counts[i], c.keys[i] = found.index, found.count, found.key
				}
			}, func(fault error) { cancel(pyfeed.Errorf(pyfeed.Fault, "a thread that makes an index: %v", fault)) })
		})
	}
	threads.Wait()
	err = context.Cause(ctx)
	for i, n := range counts {
		if err == nil && n > maxRecords-c.starts[i] {
			err = pyfeed.Errorf(pyfeed.Unsupported, "index: expected at most %d records, found more", maxRecords)
		}
		c.starts[i+1] = c.starts[i] + n
		c.bytes += c.keys[i].Size
		if c.indexes[i] != nil {
			c.damaged += c.indexes[i].Damaged()
		}
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// maxRecords limits the records of a catalog. Its numbers, and those of their passes, then never overflow.
const maxRecords = int64(1) << 48

// countedFile is a file whose records were counted.
type countedFile struct {
	index *index.Index // nil: positions are numbers
	count int64
	key   index.Key
}

// indexOf returns the index of a file, which it makes if needed. Errors have their place.
func (s *fileSet) indexOf(ctx context.Context, stop *storage.Interrupt, ref record.FileRef, dir string) (countedFile, error) {
	file := &file{FileRef: ref, fileSet: s}
	if storage.IsPipe(ref.Path) {
		return countedFile{}, pyfeed.Errorf(pyfeed.Invalid, "%s: index: expected a file that can be read again, found a FIFO", ref.Path)
	}
	config := *s.configs[ref.Format.Tag]
	made := ref.Format.Tag
	if o, can := config.Options.(record.IndexOptions); can {
		config.Options, config.Slots, config.Names = o.ForIndex(), nil, nil
	} else {
		made += fmt.Sprintf("\n%v\n%v", optionsText(s.formatOptions[ref.Format.Tag], ref.Format.Defaults), slotsText(&config, true))
	}
	key, err := index.KeyOf(ref.Path, made)
	if err != nil {
		return countedFile{}, file.locate(unreadable(ref.Path, err), -1)
	}
	path := index.Path(ref.Path, dir)
	x, err := index.Load(path, key)
	if err == nil {
		return s.acceptIndex(countedFile{x, x.Count(), key}, ref)
	}
	if !errors.Is(err, fs.ErrNotExist) && err != index.ErrOther && !isCorrupt(err) { // a damaged index is made again
		return countedFile{}, file.locate(unreadable(path, err), -1)
	}
	config.Storage.Interrupt = stop
	found, err := s.makeIndex(ctx, file, &config, path, key)
	if err == nil && found.index != nil {
		var now index.Key
		if now, err = index.KeyOf(ref.Path, made); err == nil && now != key {
			found.index.Close()
			err = pyfeed.Errorf(pyfeed.Corrupt, "index: expected a file that stays as it is, found that it was written to meanwhile")
		}
	}
	if err != nil {
		return countedFile{}, file.locate(suggestIndexDir(err, dir), -1)
	}
	return s.acceptIndex(found, ref)
}

// makeIndex makes the index of a file, unless its positions are numbers.
func (s *fileSet) makeIndex(ctx context.Context, file *file, config *record.Config, path string, key index.Key) (countedFile, error) {
	compressed := false
	config.Storage.Opened = func(f *storage.File) { compressed = f.IsCompressed() }
	open := func() (record.Records, error) {
		r, err := file.Format.Open(file.Path, config)
		if err == nil && compressed {
			r.Close()
			return nil, pyfeed.Errorf(pyfeed.Unsupported, "index: expected a file that is not compressed, found one that is: "+
				"records in it can only be read in order")
		}
		return r, err
	}
	r, err := open()
	if err != nil {
		return countedFile{}, err
	}
	slots := s.spec.Len()
	if d, can := r.(record.Describer); can && config.Slots == nil {
		if described, _, err := d.Describe(); err == nil { // an error is also that of Read
			slots = len(described)
		}
	}
	deflated, can := r.(record.Deflated)
	inflates := can && deflated.Deflated()
	_, seeks := r.(record.Seeker)
	numbers, can := r.(record.Counted)
	count := int64(-1)
	if can {
		count = numbers.Count()
	}
	r.Close()
	switch {
	case inflates:
		return countedFile{}, pyfeed.Errorf(pyfeed.Unsupported, "index: expected arrays that are not compressed, found some that are: "+
			"each thread would keep all of them in memory")
	case !seeks:
		return countedFile{}, pyfeed.Errorf(pyfeed.Unsupported, "index: format %q has no positions of records", file.Format.Tag)
	case count >= 0:
		return countedFile{nil, count, key}, nil
	}
	err = index.Build(ctx, path, key, index.Source{Slots: slots, Open: open, SkipDamage: s.skip,
		Locate: func(err error, record int64) error { file.number = record; return file.locate(err, record) }})
	if err != nil {
		return countedFile{}, err
	}
	x, err := index.Load(path, key)
	if err != nil {
		return countedFile{}, err
	}
	return countedFile{x, x.Count(), key}, nil
}

// suggestIndexDir adds to an error that an index could not be written beside its file what the caller can do.
func suggestIndexDir(err error, dir string) error {
	var e *pyfeed.Error
	if _, missing := os.Stat(dir); dir != "" && errors.Is(missing, fs.ErrNotExist) && errors.As(err, &e) {
		advised := *e
		advised.Text += ": index_dir must be a directory that exists"
		return &advised
	}
	if dir != "" || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) || !errors.As(err, &e) {
		return err
	}
	advised := *e
	advised.Text += ": index_dir names another directory"
	return &advised
}

// acceptIndex refuses an index without damaged records if damage is an error.
func (s *fileSet) acceptIndex(found countedFile, ref record.FileRef) (countedFile, error) {
	if found.index == nil || s.skip || found.index.Damaged() == 0 {
		return found, nil
	}
	n := found.index.Damaged()
	found.index.Close()
	e := pyfeed.Errorf(pyfeed.Corrupt, "index: expected no damage, found %d damaged places when the index was made: "+
		"on_corrupt=\"skip\" leaves them out, and the command verify lists them", n)
	e.At = &pyfeed.Location{File: ref.Path, Offset: -1, Record: -1}
	return countedFile{}, e
}

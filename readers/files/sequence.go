package files

import (
	"slices"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/record"
)

// sequence says which records a process reads in a pass, and in which order. It computes each number and stores none.
//
// Records have a place in the pass: that of a permutation of all records, or that in the files, one after the other. The
// places are divided into virtual shards. Those of a permutation take every Total-th place; those of files are runs of
// places, so that they are read from front to back.
type sequence struct {
	*catalog
	shards   readers.VirtualShards
	even     readers.Even
	permuted *permutation.Feistel // nil: places are those in the files
	files    []int                // the order of the files in this pass; nil: as they are listed
	starts   []int64              // the place of the first record of each file in that order, and the number of all records

	lanes []record.Chunk // reused by readLanes; of one thread
}

// ofPass returns the sequence of a pass. The seeds are those of permutations of records and of files; nil: there is none.
func (s sequence) ofPass(shuffleRecords, shuffleFiles *uint64, pass uint64) sequence {
	switch {
	case shuffleRecords != nil:
		s.permuted = permutation.NewFeistel(uint64(s.count()), *shuffleRecords, pass)
	case shuffleFiles != nil:
		s.files = make([]int, len(s.refs))
		for i := range s.files {
			s.files[i] = i
		}
		permutation.Permute(s.files, *shuffleFiles, pass, blockOfFiles, nil)
		s.starts = make([]int64, len(s.files)+1)
		for i, file := range s.files {
			s.starts[i+1] = s.starts[i] + s.catalog.starts[file+1] - s.catalog.starts[file]
		}
	default:
		s.starts = s.catalog.starts
	}
	return s
}

// length returns the number of tuples that the process reads in a pass.
func (s *sequence) length() int64 {
	total := int64(s.shards.Total)
	length := s.count() / total
	if s.count()%total > 0 && s.even != readers.EvenDrop {
		length++
	}
	return length * int64(s.shards.Own())
}

// part is a run of places that a lane takes one after the other.
type part struct {
	place int64
	count int64
	zeros bool // it is one place, and a tuple of zeros like its record is taken
}

// part returns the places of a virtual shard from its k-th on, at most limit. If the shard is one of those that have a
// record less than others, the places after its last one are those of the others.
func (s *sequence) part(shard, k, limit int64) part {
	total := int64(s.shards.Total)
	whole, left := s.count()/total, s.count()%total
	length := whole
	if shard < left {
		length++
	}
	p := part{count: min(limit, length-k)}
	if p.count <= 0 {
		shard, k = shard%left, whole
		p.count, p.zeros = 1, s.even == readers.EvenPad
	}
	if s.permuted != nil {
		p.place, p.count = k*total+shard, 1
		return p
	}
	p.place = shard*whole + min(shard, left) + k
	return p
}

// record returns the number of the record at a place, and how many records follow in the same file, itself included.
func (s *sequence) record(place int64) (number, run int64) {
	if s.permuted != nil {
		return int64(s.permuted.At(uint64(place))), 1
	}
	i, exact := slices.BinarySearch(s.starts, place)
	if !exact {
		i--
	}
	for s.starts[i+1] == place { // the file has no records
		i++
	}
	number, run = place, s.starts[i+1]-place
	if s.files != nil {
		number += s.catalog.starts[s.files[i]] - s.starts[i]
	}
	return number, run
}

// read adds the process's tuples from one number to another. If it returns an error, those before it were added.
func (s *sequence) read(a *accessor, to *record.Chunk, from, until int64) error {
	own := int64(s.shards.Own())
	if own == 1 || s.permuted != nil {
		for i := from; i < until; {
			n, err := s.readPart(a, to, i%own, i/own, until-i)
			if err != nil {
				return err
			}
			i += n
		}
		return nil
	}
	lanes := min(own, until-from)
	for int64(len(s.lanes)) < lanes {
		s.lanes = append(s.lanes, record.Chunk{})
	}
	defer func() {
		for i := range s.lanes {
			s.lanes[i].Release()
		}
	}()
	var failed error
	for n := range lanes {
		i := from + n
		for i < until {
			count, err := s.readPart(a, &s.lanes[n], i%own, i/own, (until-i+own-1)/own)
			if i += count * own; err != nil {
				failed, until = err, i // the tuples of other lanes before this one are delivered
				break
			}
		}
	}
	interleave(s.lanes[:lanes], to, until-from)
	return failed
}

// interleave moves n tuples: one of each Chunk in turn.
func interleave(lanes []record.Chunk, to *record.Chunk, n int64) {
	if rounds := int(n / int64(len(lanes))); rounds > 0 {
		from := make([]*record.Chunk, len(lanes))
		for i := range lanes {
			from[i] = &lanes[i]
		}
		record.Interleave(from, to, rounds)
	}
	for i := range n % int64(len(lanes)) {
		lanes[i].MoveTo(to, 1)
	}
}

// readPart adds tuples of a lane from its k-th on, at most limit, and returns how many.
func (s *sequence) readPart(a *accessor, to *record.Chunk, lane, k, limit int64) (int64, error) {
	p := s.part(int64(s.shards.Shard(int(lane))), k, limit)
	number, run := s.record(p.place)
	if !p.zeros {
		return a.read(to, number, min(run, p.count), int(lane))
	}
	var like record.Chunk
	defer like.Release()
	n, err := a.read(&like, number, 1, int(lane))
	if err != nil {
		return n, err
	}
	t, err := record.ZerosLike(&like, a.set.spec)
	if err == nil {
		to.Add(t)
	}
	return n, err
}

package files

import (
	"slices"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/record"
)

// division says how records are divided among processes. It does not change.
type division struct {
	*catalog
	shards readers.VirtualShards // one shard of one process if the records are not divided
}

// sequence says which records a process reads in a pass, and in which order. It computes each number and stores none.
//
// Records have a place in the pass: that of a permutation of all records, or that in the files, one after the other. The
// places are divided into virtual shards. Those of a permutation take every Total-th place; those of files are runs of
// places, so that they are read from front to back. A process takes one tuple of each of its own
// virtual shards in turn.
type sequence struct {
	division
	pass     uint64
	permuted *permutation.Feistel // nil: places are those in the files
	files    []int                // the order of the files in this pass; nil: as they are listed
	starts   []int64              // the place of the first record of each file in that order, and the number of all records
}

// ofPass returns the sequence of a pass. The seeds are those of permutations of records and of files; nil: there is none.
func (d *division) ofPass(shuffleRecords, shuffleFiles *uint64, pass uint64) *sequence {
	s := &sequence{division: *d, pass: pass, starts: d.catalog.starts}
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
	}
	return s
}

// places are some places of a virtual shard that follow each other.
type places struct {
	first int64
	count int64
	zeros bool // it is one place, and a tuple of zeros like its record is taken
}

// placesOf returns the places of a virtual shard from its k-th on, at most limit. With EvenDrop, a shard that has one
// record more than others leaves out one. Otherwise, the others take Fill.
func (s *sequence) placesOf(shard, k, limit int64) places {
	total := int64(s.shards.Total)
	whole, left := s.count()/total, s.count()%total
	length := s.shards.RecordsOf(shard)
	p := places{count: min(limit, length-k)}
	if p.count <= 0 {
		p.count, p.zeros = 1, s.shards.Even == readers.EvenPad
		shard, k = s.shards.Fill(shard)
	}
	if s.permuted != nil {
		p.first, p.count = k*total+shard, 1
		return p
	}
	if shard < left && s.shards.Even == readers.EvenDrop {
		// Another record in each pass, the last one first, so that none is always left out.
		switch leftOut := whole - int64(s.pass%uint64(length)); {
		case k >= leftOut:
			k++
		default:
			p.count = min(p.count, leftOut-k)
		}
	}
	p.first = shard*whole + min(shard, left) + k
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

// readEach adds the tuples of a permutation from one number to another. If it returns an error, those before it were added.
func (s *sequence) readEach(a *accessor, to *record.Chunk, from, until int64) error {
	own := int64(s.shards.Own())
	for i := from; i < until; i++ {
		if _, err := s.readNext(a, to, i%own, i/own, 1); err != nil {
			return err
		}
	}
	return nil
}

// readShards reads tuples from one number to another: those of the virtual shards of one of several threads. It adds those
// of each virtual shard to a Chunk; the first Chunk is for the virtual shard of the first tuple. It returns the number
// behind the tuples that can be delivered, and the error that comes there.
func (s *sequence) readShards(a *accessor, to []record.Chunk, from, until int64, thread, threads int) (int64, error) {
	own := int64(s.shards.Own())
	var failed error
	for n := range min(own, until-from) {
		shard := (from + n) % own
		if int(shard)%threads != thread {
			continue
		}
		for i := from + n; i < until; {
			count, err := s.readNext(a, &to[n], shard, i/own, (until-i+own-1)/own)
			if i += count * own; err != nil {
				failed, until = err, i // the tuples of other shards before this one are delivered
			}
		}
	}
	return until, failed
}

// interleave moves n tuples: one of each Chunk in turn.
func interleave(shards []record.Chunk, to *record.Chunk, n int) {
	if rounds := n / len(shards); rounds > 0 {
		from := make([]*record.Chunk, len(shards))
		for i := range shards {
			from[i] = &shards[i]
		}
		record.Interleave(from, to, rounds)
		n -= rounds * len(shards)
	}
	for i := range n {
		shards[i].MoveTo(to, 1)
	}
}

// readNext adds tuples of the process's i-th virtual shard, from its k-th on, at most limit, and returns how many.
func (s *sequence) readNext(a *accessor, to *record.Chunk, i, k, limit int64) (int64, error) {
	p := s.placesOf(int64(s.shards.Shard(int(i))), k, limit)
	number, run := s.record(p.first)
	if !p.zeros {
		return a.read(to, number, min(run, p.count), int(i))
	}
	var like record.Chunk
	defer like.Release()
	n, err := a.read(&like, number, 1, int(i))
	if err != nil {
		return n, err
	}
	t, err := record.ZerosLike(&like, a.set.spec)
	if err == nil {
		to.Add(t)
	}
	return n, err
}

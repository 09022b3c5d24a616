package sources

import (
	"context"
	"encoding/binary"
	"io"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/state"
)

// rangeReader delivers the numbers from 0 to below a count: in order, or in an order that is a function of the seed and
// the pass. They are the numbers of the samples of a dataset that is read by other means.
type rangeReader struct {
	readers.PeekBuffer
	spec     *pyfeed.Spec
	shards   Division // readers.Undivided if the numbers are not divided among processes
	divided  bool
	seed     *uint64              // of the permutation; nil: there is none
	permuted *permutation.Feistel // of this pass; nil: there is none
	at       int64                // tuples delivered in this pass
	pool     *memory.Pool
	arena    *memory.Arena
}

// Division says how numbers are divided among processes; with the zero VirtualShards they are not.
type Division struct {
	readers.VirtualShards
	// Implied: there are as many virtual shards as processes. Then their number is not part of a state: a job of another
	// size has the same order, up to the numbers that cannot be divided evenly.
	Implied bool
}

// dataset stands for the file in the origin of a number, whose record is the number.
var dataset = "dataset"

// padding is the number that readers.EvenPad adds.
const padding = -1

// NewRange makes a reader of numbers, as int64 without dimensions. Tuple k of a virtual shard is place k*Total + shard of the
// pass.
func NewRange(count int64, seed *uint64, shards Division) (readers.Reader, error) {
	spec, err := pyfeed.NewSpec([]pyfeed.Slot{{Name: "index", DType: pyfeed.Int64}})
	if err != nil {
		return nil, err
	}
	r := &rangeReader{spec: spec, shards: shards, divided: shards.Total > 0, seed: seed}
	if r.shards.Records = count; !r.divided {
		r.shards.VirtualShards = readers.Undivided(count)
	}
	attribute := "virtual_shards"
	if shards.Implied {
		attribute = "world"
	}
	if err := r.shards.CheckRecords(attribute); err != nil {
		return nil, err
	}
	r.pool = memory.NewPool(memory.File)
	r.arena = memory.NewArena(r.pool)
	r.Read = readers.FromBatchFunc(r.next)
	r.begin(0, 0)
	return r, nil
}

func (r *rangeReader) begin(pass uint64, at int64) {
	r.at = at
	if r.seed != nil {
		r.permuted = permutation.NewFeistel(uint64(r.shards.Records), *r.seed, pass)
	}
}

func (r *rangeReader) next(_ context.Context, out []*pyfeed.Tuple) (int, error) {
	n := int(min(int64(len(out)), r.shards.Length()-r.at))
	if n == 0 {
		return 0, io.EOF
	}
	pyfeed.NewTuples(out[:n], 1)
	for k, t := range out[:n] {
		s := &t.Slots[0]
		s.DType = pyfeed.Int64
		data, b, err := r.arena.Get(s.DType.Size())
		if err != nil {
			pyfeed.ReleaseAll(out[:n])
			return 0, err
		}
		s.Hold(data, b)
		number := r.number(r.at)
		binary.NativeEndian.PutUint64(data, uint64(number))
		if t.From = (pyfeed.Origin{}); number != padding {
			t.From = pyfeed.Origin{File: &dataset, Record: number}
		}
		r.at++
		if k+1 < n && r.arena.Full() { // one memory block each call
			pyfeed.ReleaseAll(out[k+1 : n])
			return k + 1, nil
		}
	}
	return n, nil
}

// number returns the i-th number of the process in this pass.
func (r *rangeReader) number(i int64) int64 {
	own := int64(r.shards.Own())
	shard, k := int64(r.shards.Shard(int(i%own))), i/own
	if k >= r.shards.RecordsOf(shard) {
		if r.shards.Even == readers.EvenPad {
			return padding
		}
		shard, k = r.shards.Fill(shard)
	}
	place := k*int64(r.shards.Total) + shard
	if r.permuted != nil {
		return int64(r.permuted.At(uint64(place)))
	}
	return place
}

// ReInit begins a pass.
func (r *rangeReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.begin(pass, 0)
	return nil
}

// Identity implements readers.Resumable.
func (r *rangeReader) Identity() (string, []state.Option) {
	options := []state.Option{{Name: "count", Value: r.shards.Records, Optional: true}}
	if r.divided {
		options = append(options, state.Option{Name: "even", Value: string(r.shards.Even)})
	}
	if r.seed != nil {
		options = append(options, state.Option{Name: "shuffle", Value: strconv.FormatUint(*r.seed, 10)})
	}
	kind := "range"
	if r.divided {
		kind = "range with rank"
	}
	if r.divided && !r.shards.Implied {
		options = append(options, state.Option{Name: "virtual_shards", Value: r.shards.Total})
	}
	return kind, options
}

// Save implements readers.Resumable. The number of tuples suffices.
func (r *rangeReader) Save(readers.Position, *readers.Saver) error { return nil }

// Restore implements readers.Resumable.
func (r *rangeReader) Restore(p readers.Position, _ *readers.Restorer) (int64, error) {
	if length := r.Length(); p.N > length {
		return 0, readers.ErrPassTooShort(p.N - length)
	}
	r.begin(p.Pass, p.N)
	return 0, nil
}

// VirtualShards implements readers.Sharded.
func (r *rangeReader) VirtualShards() readers.VirtualShards {
	if !r.divided {
		return readers.VirtualShards{}
	}
	return r.shards.VirtualShards
}

// Length implements readers.Sized.
func (r *rangeReader) Length() int64 { return r.shards.Length() }

// Spec returns that of the numbers.
func (r *rangeReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
func (r *rangeReader) Describe(s *readers.Stats) {
	s.Reader = "range"
	s.Extra = map[string]any{"count": r.shards.Records}
	if r.seed != nil {
		s.Extra["shuffle"] = *r.seed
	}
	if r.divided {
		s.Extra["virtual_shards"], s.Extra["rank"], s.Extra["world"] = r.shards.Total, r.shards.Rank, r.shards.World
		s.Extra["even"] = string(r.shards.Even)
	}
}

// Close releases the memory.
func (r *rangeReader) Close() {
	r.DropPeeked()
	r.arena.Close()
	r.pool.Close()
}

package decorators

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// zipReader takes one tuple of each of its readers and joins their slots to one tuple.
type zipReader struct {
	readers.PeekBuffer
	inputs []zipInput
	spec   *pyfeed.Spec
	strict bool
	end    error
}

// zipInput is one of the readers, with the tuples that were read ahead from it.
type zipInput struct {
	source *readers.Upstream
	ready  []*pyfeed.Tuple
	buffer []*pyfeed.Tuple
	chunk  record.Chunk
	end    bool
}

// NewZipReader takes over references to the readers. A pass ends with the shortest reader. If strict is set, it is an
// error if the readers do not end together.
func NewZipReader(source []*readers.ReaderHolder, strict bool) (readers.Reader, error) {
	r := &zipReader{strict: strict}
	var slots []pyfeed.Slot
	for _, h := range source {
		r.inputs = append(r.inputs, zipInput{source: readers.NewUpstream(h), buffer: make([]*pyfeed.Tuple, record.ChunkSize)})
		for i := range h.Spec().Len() {
			slots = append(slots, h.Spec().Slot(i))
		}
	}
	var err error
	if len(source) < 2 {
		err = pyfeed.Errorf(pyfeed.Invalid, "zip: expected at least 2 readers, found %d", len(source))
	} else {
		r.spec, err = pyfeed.NewSpec(slots)
	}
	for i := 1; i < len(source) && err == nil; i++ {
		if first, other := source[0].VirtualShards(), source[i].VirtualShards(); first != other {
			err = pyfeed.Errorf(pyfeed.Invalid, "zip: expected readers with the same virtual shards, found %v and %v", first, other)
		}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	r.Read = readers.FromBatchFunc(r.take)
	return r, nil
}

func (r *zipReader) take(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	if r.end != nil {
		return 0, r.end
	}
	n, ended := len(out), 0
	for i := range r.inputs {
		in := &r.inputs[i]
		if len(in.ready) == 0 && !in.end {
			err := in.read(ctx, len(out))
			switch {
			case err == io.EOF:
				in.end = true
			case err != nil && !pyfeed.IsFinal(ctx, err):
				return 0, err
			case err != nil:
				r.end = err
				return 0, err
			}
		}
		if in.end && len(in.ready) == 0 {
			ended++
		}
		n = min(n, len(in.ready))
	}
	if ended > 0 {
		r.end = io.EOF
		if r.strict && ended < len(r.inputs) {
			r.end = r.uneven()
		}
		return 0, r.end
	}
	for k := range n {
		t := pyfeed.NewTuple(r.spec.Len())
		at := 0
		for i := range r.inputs {
			from := r.inputs[i].ready[k]
			for j := range from.Slots {
				t.Slots[at], from.Slots[j] = from.Slots[j], t.Slots[at]
				at++
			}
			t.Pass = max(t.Pass, from.Pass)
			if i == 0 || t.From.File == nil {
				t.From = from.From
			}
		}
		if err := r.spec.Check(t); err != nil {
			t.Release()
			for i := range r.inputs {
				pyfeed.ReleaseAll(r.inputs[i].ready[:k+1])
				r.inputs[i].ready = r.inputs[i].ready[k+1:]
			}
			r.end = err
			if k > 0 {
				return k, nil
			}
			return 0, err
		}
		out[k] = t
	}
	for i := range r.inputs {
		pyfeed.ReleaseAll(r.inputs[i].ready[:n])
		r.inputs[i].ready = r.inputs[i].ready[n:]
	}
	return n, nil
}

// maxZipped is how many bytes of records are made tuples at a time. Those that are verified late are verified then, which
// cannot be interrupted.
const maxZipped = 16 << 20

// read makes the next tuples ready, at most limit. A damaged record is an error once the tuples before it are taken.
func (in *zipInput) read(ctx context.Context, limit int) error {
	if in.chunk.Len() == 0 {
		if _, err := in.source.ReadInto(ctx, &in.chunk, limit); err != nil {
			return err
		}
	}
	n := min(in.chunk.Len(), len(in.buffer))
	if bytes := in.chunk.Bytes(); bytes > maxZipped {
		n = max(int(int64(n)*maxZipped/int64(bytes)), 1)
	}
	n, err := in.chunk.Take(in.buffer[:n])
	if in.ready = in.buffer[:n]; n > 0 {
		err = nil // the next Take returns it
	}
	return err
}

// uneven returns the error that names the readers that have ended and those that have not.
func (r *zipReader) uneven() error {
	var ended, not []int
	for i := range r.inputs {
		if r.inputs[i].end && len(r.inputs[i].ready) == 0 {
			ended = append(ended, i)
		} else {
			not = append(not, i)
		}
	}
	return pyfeed.Errorf(pyfeed.State, "zip: expected readers that end together, found an end of readers %v and more tuples of %v", ended, not)
}

func (r *zipReader) clear() {
	r.DropPeeked()
	for i := range r.inputs {
		pyfeed.ReleaseAll(r.inputs[i].ready)
		r.inputs[i].chunk.Release()
		r.inputs[i].ready, r.inputs[i].end = nil, false
	}
	r.end = nil
}

// ReInit resets all readers.
func (r *zipReader) ReInit(pass uint64) error {
	r.clear()
	for i := range r.inputs {
		if err := r.inputs[i].source.Begin(pass); err != nil {
			return err
		}
	}
	return nil
}

// Identity implements readers.Resumable.
func (r *zipReader) Identity() (string, []state.Option) {
	return "zip", []state.Option{{Name: "inputs", Value: len(r.inputs)}, {Name: "strict", Value: r.strict, Optional: true}}
}

// Save implements readers.Resumable.
func (r *zipReader) Save(p readers.Position, s *readers.Saver) error {
	for i := range r.inputs {
		if err := s.SaveBelow(r.inputs[i].source, p); err != nil {
			return err
		}
	}
	return nil
}

// Restore implements readers.Resumable.
func (r *zipReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	for i := range r.inputs {
		if err := s.RestoreBelow(r.inputs[i].source, p); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// Spec returns the slots of all readers.
func (r *zipReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
func (r *zipReader) Describe(s *readers.Stats) {
	s.Reader = "zip"
	s.Extra = map[string]any{"strict": r.strict}
	for i := range r.inputs {
		s.Below = append(s.Below, r.inputs[i].source.Stats())
	}
}

// Close releases the readers.
func (r *zipReader) Close() {
	r.clear()
	for i := range r.inputs {
		r.inputs[i].source.Drop()
	}
}

// Length implements readers.Sized: the length of the shortest reader.
func (r *zipReader) Length() int64 {
	least := readers.Endless
	for i := range r.inputs {
		n := r.inputs[i].source.Length()
		if n == readers.Unknown {
			return n
		}
		least = min(least, n)
	}
	return least
}

// Upstreams implements readers.Decorator.
func (r *zipReader) Upstreams() []*readers.Upstream {
	all := make([]*readers.Upstream, len(r.inputs))
	for i := range r.inputs {
		all[i] = r.inputs[i].source
	}
	return all
}

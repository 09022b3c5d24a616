package decorators

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// zipReader takes one instance of each of its readers and joins their slots to one instance. Instances of Blocks stay
// instances of Blocks, so that no tuple is made of them.
type zipReader struct {
	readers.PeekBuffer
	inputs []zipInput
	chunks []*record.Chunk // of the inputs
	spec   *pyfeed.Spec
	strict bool
	end    error
}

// zipInput is one of the readers, with the instances that were read ahead from it.
type zipInput struct {
	source *readers.Upstream
	chunk  record.Chunk
	some   [record.MinBlock]*pyfeed.Tuple // reused
	taken  int                            // of some
	end    bool

	inBlocks bool // the last instances were in Blocks
}

// ahead returns how many instances are read at most at once. Instances of Blocks take little memory, and the larger the
// Blocks are that are made of them, the less does each batch of a shuffle have to check.
func (in *zipInput) ahead() int {
	if in.inBlocks {
		return blocksEach
	}
	return record.ChunkSize
}

// NewZipReader takes over references to the readers. A pass ends with the shortest reader. If strict is set, it is an
// error if the readers do not end together.
func NewZipReader(source []*readers.ReaderHolder, strict bool) (readers.Reader, error) {
	r := &zipReader{strict: strict, inputs: make([]zipInput, len(source))}
	var slots []pyfeed.Slot
	for i, h := range source {
		r.inputs[i].source = readers.NewUpstream(h)
		r.chunks = append(r.chunks, &r.inputs[i].chunk)
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
	r.Read = r.take
	return r, nil
}

// take is a readers.ReadFunc.
func (r *zipReader) take(ctx context.Context, to *record.Chunk, limit int) (int, error) {
	if r.end != nil {
		return 0, r.end
	}
	n, ended := limit, 0
	for i := range r.inputs {
		in := &r.inputs[i]
		if in.chunk.Len() == 0 && !in.end {
			_, err := in.source.ReadInto(ctx, &in.chunk, min(limit, in.ahead()))
			switch {
			case err == io.EOF:
				in.end = true
			case err != nil && !pyfeed.IsFinal(ctx, err):
				return 0, err
			case err != nil:
				if r.end = r.damage(i); r.end == nil {
					r.end = err
				}
				return 0, r.end
			}
			in.inBlocks = in.chunk.MostlyBlocks()
		}
		if in.end && in.chunk.Len() == 0 {
			ended++
		}
		n = min(n, in.chunk.Len())
	}
	if ended > 0 {
		switch damage := r.damage(len(r.inputs)); {
		case damage != nil:
			r.end = damage
		case r.strict && ended < len(r.inputs):
			r.end = r.uneven()
		default:
			r.end = io.EOF
		}
		return 0, r.end
	}
	taken := 0
	for taken < n && r.end == nil {
		moved := record.Zip(r.chunks, to, n-taken, func(t *pyfeed.Tuple) bool { return r.spec.Check(t) == nil })
		if moved == 0 {
			moved = r.takeTuples(to, min(n-taken, record.MinBlock))
		}
		taken += moved
	}
	if taken == 0 {
		return 0, r.end
	}
	return taken, nil
}

// damage returns the error about the next instance of the first of n readers in which it is damaged. Such an instance is
// read, but is verified when it is joined. Damage of smaller instances, which are verified when they are read, comes
// before an end of another reader in the same place, and before the error of a reader that is named later: so does this.
func (r *zipReader) damage(n int) error {
	for i := range r.inputs[:n] {
		if c := &r.inputs[i].chunk; c.Len() > 0 {
			if err := c.VerifyNext(); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxZipped is how many bytes of records are made tuples at a time. Those that are verified late are verified then, which
// cannot be interrupted.
const maxZipped = 16 << 20

// takeTuples joins the next n instances as tuples, or fewer if they are large, and returns how many: all of them before
// the first that is damaged or does not match the Spec, which is the end.
func (r *zipReader) takeTuples(to *record.Chunk, n int) int {
	for i := range r.inputs {
		c := &r.inputs[i].chunk
		if all := c.NumTaken() + c.Len(); c.Bytes() > maxZipped {
			n = min(n, max(int(int64(all)*maxZipped/int64(c.Bytes())), 1))
		}
	}
	var damage error
	intact := n
	for i := range r.inputs {
		in := &r.inputs[i]
		k, err := in.chunk.Take(in.some[:n])
		if in.taken = k; k < intact {
			intact, damage = k, err
		}
	}
	taken := 0
	for taken < intact && r.end == nil {
		t := pyfeed.NewTuple(r.spec.Len())
		at := 0
		for i := range r.inputs {
			from := r.inputs[i].some[taken]
			for j := range from.Slots {
				t.Slots[at], from.Slots[j] = from.Slots[j], t.Slots[at]
				at++
			}
			t.Pass = max(t.Pass, from.Pass)
			if i == 0 || t.From.File == nil {
				t.From = from.From
			}
		}
		if r.end = r.spec.Check(t); r.end != nil {
			t.Release()
			break
		}
		to.Add(t)
		taken++
	}
	for i := range r.inputs {
		in := &r.inputs[i]
		pyfeed.ReleaseAll(in.some[:in.taken])
	}
	if r.end == nil {
		r.end = damage
	}
	return taken
}

// uneven returns the error that names the readers that have ended and those that have not.
func (r *zipReader) uneven() error {
	var ended, not []int
	for i := range r.inputs {
		if r.inputs[i].end && r.inputs[i].chunk.Len() == 0 {
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
		r.inputs[i].chunk.Release()
		r.inputs[i].end = false
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

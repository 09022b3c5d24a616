package readers

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// ZipReader joins the slots of one tuple of each of its readers to one tuple.
type ZipReader struct {
	ahead
	legs   []leg
	spec   *pyfeed.Spec
	strict bool
	end    error
}

// leg is one of the readers, and what was read of it ahead.
type leg struct {
	under *upstream
	ready []*pyfeed.Tuple
	room  []*pyfeed.Tuple
	lot   Lot
	end   bool
}

// NewZipReader takes over references to readers. The pass ends with the shortest; strict, it is an error if
// they do not end together.
func NewZipReader(under []*ReaderHolder, strict bool) (*ZipReader, error) {
	r := &ZipReader{strict: strict}
	var slots []pyfeed.Slot
	for _, h := range under {
		r.legs = append(r.legs, leg{under: above(h), room: make([]*pyfeed.Tuple, chunkSize)})
		for i := range h.Spec().Len() {
			slots = append(slots, h.Spec().Slot(i))
		}
	}
	var err error
	if len(under) < 2 {
		err = pyfeed.Errorf(pyfeed.Invalid, "zip: expected at least 2 readers, found %d", len(under))
	} else {
		r.spec, err = pyfeed.NewSpec(slots)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	r.read = several(r.take)
	return r, nil
}

func (r *ZipReader) take(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	if r.end != nil {
		return 0, r.end
	}
	n, ended := len(out), 0
	for i := range r.legs {
		l := &r.legs[i]
		if len(l.ready) == 0 && !l.end {
			_, err := l.under.readMany(ctx, &l.lot, len(out))
			switch {
			case err == io.EOF:
				l.end = true
			case err != nil && !pyfeed.Ends(ctx, err):
				return 0, err
			case err != nil:
				r.end = err
				return 0, err
			}
			l.ready = l.room[:l.lot.Take(l.room)]
		}
		if l.end && len(l.ready) == 0 {
			ended++
		}
		n = min(n, len(l.ready))
	}
	if ended > 0 {
		r.end = io.EOF
		if r.strict && ended < len(r.legs) {
			r.end = r.uneven()
		}
		return 0, r.end
	}
	for k := range n {
		t := pyfeed.NewTuple(r.spec.Len())
		at := 0
		for i := range r.legs {
			from := r.legs[i].ready[k]
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
			for i := range r.legs {
				pyfeed.ReleaseAll(r.legs[i].ready[:k+1])
				r.legs[i].ready = r.legs[i].ready[k+1:]
			}
			r.end = err
			if k > 0 {
				return k, nil
			}
			return 0, err
		}
		out[k] = t
	}
	for i := range r.legs {
		pyfeed.ReleaseAll(r.legs[i].ready[:n])
		r.legs[i].ready = r.legs[i].ready[n:]
	}
	return n, nil
}

// uneven says which readers have ended and which have not.
func (r *ZipReader) uneven() error {
	var ended, not []int
	for i := range r.legs {
		if r.legs[i].end && len(r.legs[i].ready) == 0 {
			ended = append(ended, i)
		} else {
			not = append(not, i)
		}
	}
	return pyfeed.Errorf(pyfeed.State, "zip: expected readers that end together, found an end of readers %v and more tuples of %v", ended, not)
}

func (r *ZipReader) clear() {
	r.drop()
	for i := range r.legs {
		pyfeed.ReleaseAll(r.legs[i].ready)
		r.legs[i].ready, r.legs[i].end = nil, false
	}
	r.end = nil
}

// ReInit starts all readers over.
func (r *ZipReader) ReInit(pass uint64) error {
	r.clear()
	for i := range r.legs {
		if err := r.legs[i].under.Begin(pass); err != nil {
			return err
		}
	}
	return nil
}

// Spec is the slots of all readers.
func (r *ZipReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it.
func (r *ZipReader) Describe(s *Stats) {
	s.Reader = "zip"
	s.Extra = map[string]any{"strict": r.strict}
	for i := range r.legs {
		s.Below = append(s.Below, r.legs[i].under.Stats())
	}
}

// Close lets go of the readers.
func (r *ZipReader) Close() {
	r.clear()
	for i := range r.legs {
		r.legs[i].under.Drop()
	}
}

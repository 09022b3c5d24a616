package tar

import (
	"errors"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// array makes a tensor of an npy member, whose data begins at the position. It is a view of the file, unless its
// elements have another order than in memory.
func (r *records) array(field int, s *pyfeed.LoDTensor, data []byte) bool {
	f := &r.plan.fields[field]
	a, err := r.npy[field].Parse(data)
	if err != nil {
		kind, at, text := pyfeed.Corrupt, int64(0), err.Error()
		var e *pyfeed.Error
		if errors.As(err, &e) {
			kind, text = e.Kind, e.Text
			if e.At != nil {
				at = e.At.Offset
			}
		}
		r.damage(atRemainder, 0, r.f.Offset()+at, "instance %.200q, member .%s: %s", r.key, f.ext, text)
		r.kind(kind)
		return false
	}
	elements := data[a.Begin:]
	if len(elements) != a.Size {
		r.damage(atRemainder, 0, r.f.Offset()+int64(a.Begin), "instance %.200q, member .%s: expected %d bytes, dims %v of %v, found %d",
			r.key, f.ext, a.Size, a.Shape, a.DType, len(elements))
		return false
	}
	if err := s.SetDims(a.Shape); err != nil {
		r.damage(atRemainder, 0, r.f.Offset(), "instance %.200q, member .%s: %v", r.key, f.ext, err)
		r.kind(pyfeed.Shape)
		return false
	}
	s.DType = a.DType
	if !a.InPlace() {
		to, in, err := r.arrays.Get(len(elements))
		if err != nil {
			r.err, r.resumeAt = err, noResume
			return false
		}
		s.Hold(to, in)
		if err := a.Decode(to, elements, r.f.Interrupt()); err != nil {
			r.err, r.resumeAt = err, noResume
			return false
		}
	} else {
		s.Hold(elements, r.hold.take())
		s.ReadOnly = true
	}
	if f.lod && len(a.Shape) > 0 {
		level := r.offsets.Get(2)
		level[1] = a.Shape[0]
		s.LoD, s.InHeap = append(s.LoD[:0], level), true
	}
	return true
}

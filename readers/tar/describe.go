package tar

import (
	"bytes"
	"io"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// mostFields bounds what the first instance may have.
const mostFields = 4096

// decide makes the plan by the next instance, and goes back to it. Interrupted, it goes on where it was.
func (r *records) decide() {
	var m member
	if r.known == nil {
		r.known, r.start = make(map[string]bool), 0
	}
	for r.header(&m) {
		stem, is := stemOf(m.name)
		of := is && r.begun && string(stem) == string(r.key)
		if is && r.begun && !of {
			break
		}
		switch {
		case !is, r.leave && string(stem) == string(r.key):
			is = false
		case r.torn:
			r.key, r.torn, r.leave = append(r.key[:0], stem...), false, true
			is = false
		case !r.begun:
			r.key, r.leave, r.begun, r.start = append(r.key[:0], stem...), false, true, r.f.Offset()
		}
		if !is {
			if !r.pass(&m) {
				break
			}
			continue
		}
		f := Field{Name: string(bytes.ToLower(m.name[len(stem)+1:]))}
		if r.known[f.Name] {
			r.damage(rest, r.f.Offset()+int64(m.lead+padded(m.size)), r.f.Offset(), "instance %.200q: expected one member .%s, found two", r.key, f.Name)
			break
		}
		if f.Name != "" && len(r.fields) < mostFields {
			if kindOf[f.Name[strings.LastIndexByte(f.Name, '.')+1:]] == jsonKind && !r.isNumber(&m) {
				f.Kind = "text"
			}
			if r.interrupted() {
				break
			}
			r.known[f.Name] = true
			r.fields = append(r.fields, f)
		}
		if !r.pass(&m) {
			break
		}
	}
	if r.interrupted() {
		return
	}
	r.begun, r.known = false, nil
	if r.err != nil && r.err != io.EOF {
		r.fields = nil
		return
	}
	r.err = nil
	if r.fields == nil {
		r.err = pyfeed.Errorf(pyfeed.Invalid, "%s: expected an instance to tell the fields by, found none: give fields", r.f.Path())
		r.behind = nowhere
		return
	}
	p, err := newPlan(r.fields, r.slots)
	if err == nil {
		err = r.f.Rewind()
	}
	if err != nil {
		r.err, r.behind = err, nowhere
		return
	}
	r.follow(p)
	r.ended = false
	if r.forward(r.start) != nil { // header goes on
		left := int(r.start - r.f.Offset())
		r.over = passing{r.f.Offset(), left, left}
		r.err = storage.ErrInterrupted
	}
	r.key = r.key[:0]
}

// isNumber tells a member that is a JSON number from any other.
func (r *records) isNumber(m *member) bool {
	b, err := r.f.Peek(m.lead + min(m.size, blockSize)) // any other error comes again
	if err == storage.ErrInterrupted {
		r.err = err
	}
	b = trim(b[min(m.lead, len(b)):min(m.lead+m.size, len(b))])
	return len(b) > 0 && (b[0] == '-' || b[0]-'0' < 10)
}

// forward moves the position up to an offset, or the end of what can be read. The error is storage.ErrInterrupted.
func (r *records) forward(to int64) error {
	for on := to - r.f.Offset(); on > 0; {
		b, err := r.f.Peek(1)
		if err == storage.ErrInterrupted {
			return err
		}
		if len(b) == 0 { // an error comes again
			return nil
		}
		n := min(on, int64(len(b)))
		r.f.Skip(int(n))
		on -= n
	}
	return nil
}

// Describe is the fields, and for arrays what the first instance has.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if r.plan == nil && r.err == nil {
		r.decide()
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	first := pyfeed.NewTuple(len(r.plan.fields))
	defer first.Release()
	for i := range r.plan.fields {
		if r.plan.fields[i].kind != npyKind {
			continue
		}
		if !r.instance(first) {
			r.hold.settle()
			if r.err == io.EOF {
				return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected an instance to tell the slots by, found none: give slots", r.f.Path())
			}
			return nil, nil, r.err
		}
		r.hold.settle()
		r.err = nil
		if err := r.f.Rewind(); err != nil {
			return nil, nil, err
		}
		r.number, r.leave, r.ended, r.key = 0, false, false, r.key[:0]
		break
	}
	var slots []pyfeed.Slot
	var names []string
	for i := range r.plan.fields {
		f := &r.plan.fields[i]
		if r.slots != nil {
			slots = append(slots, r.slots[i])
		} else {
			slots = append(slots, f.slot(&first.Slots[i]))
		}
		names = append(names, f.name)
	}
	return slots, names, nil
}

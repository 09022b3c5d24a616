package tar

import (
	"bytes"
	"io"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// maxFields is the largest number of fields that are inferred from the first instance.
const maxFields = 4096

// inferPlan makes the plan from the next instance, and goes back to that instance. After an interruption, the next call
// goes on.
func (r *records) inferPlan() {
	var m member
	if r.pendingFields == nil {
		r.pendingFields, r.start = make(map[string]bool), 0
	}
	for r.header(&m) {
		stem, is := keyOfName(m.name)
		of := is && r.inInstance && string(stem) == string(r.key)
		if is && r.inInstance && !of {
			break
		}
		switch {
		case !is, r.skipKey && string(stem) == string(r.key):
			is = false
		case r.afterDamage:
			r.key, r.afterDamage, r.skipKey = append(r.key[:0], stem...), false, true
			is = false
		case !r.inInstance:
			r.key, r.skipKey, r.inInstance, r.start = append(r.key[:0], stem...), false, true, r.f.Offset()
		}
		if !is {
			if !r.pass(&m) {
				break
			}
			continue
		}
		f := Field{Name: string(bytes.ToLower(m.name[len(stem)+1:]))}
		if r.pendingFields[f.Name] {
			r.damage(atRemainder, r.f.Offset()+int64(m.lead+roundToBlocks(m.size)), r.f.Offset(), "instance %.200q: expected one member .%s, found two", r.key, f.Name)
			break
		}
		if f.Name != "" && len(r.fields) < maxFields {
			if kindOf[f.Name[strings.LastIndexByte(f.Name, '.')+1:]] == jsonKind && !r.isNumber(&m) {
				f.Kind = "text"
			}
			if r.interrupted() {
				break
			}
			r.pendingFields[f.Name] = true
			r.fields = append(r.fields, f)
		}
		if !r.pass(&m) {
			break
		}
	}
	if r.interrupted() {
		return
	}
	r.inInstance, r.pendingFields = false, nil
	if r.err != nil && r.err != io.EOF {
		r.fields = nil
		return
	}
	r.err = nil
	if r.fields == nil {
		r.err = pyfeed.Errorf(pyfeed.Invalid, "%s: expected an instance to infer the fields from, found none: give fields", r.f.Path())
		r.resumeAt = noResume
		return
	}
	p, err := newPlan(r.fields, r.slots)
	if err == nil {
		err = r.f.Rewind()
	}
	if err != nil {
		r.err, r.resumeAt = err, noResume
		return
	}
	r.setPlan(p)
	r.ended = false
	if r.skipTo(r.start) != nil { // the next call of header goes on
		left := int(r.start - r.f.Offset())
		r.skipping = skippedMember{r.f.Offset(), left, left}
		r.err = storage.ErrInterrupted
	}
	r.key = r.key[:0]
}

// isNumber reports whether a JSON member is a number.
func (r *records) isNumber(m *member) bool {
	b, err := r.f.Peek(m.lead + min(m.size, blockSize)) // another error is returned when the member is read
	if err == storage.ErrInterrupted {
		r.err = err
	}
	b = trim(b[min(m.lead, len(b)):min(m.lead+m.size, len(b))])
	return len(b) > 0 && (b[0] == '-' || b[0]-'0' < 10)
}

// skipTo moves the position to an offset, or to the end of the readable data. The error is storage.ErrInterrupted.
func (r *records) skipTo(to int64) error {
	for on := to - r.f.Offset(); on > 0; {
		b, err := r.f.Peek(1)
		if err == storage.ErrInterrupted {
			return err
		}
		if len(b) == 0 { // an error is returned again by the next read
			return nil
		}
		n := min(on, int64(len(b)))
		r.f.Skip(int(n))
		on -= n
	}
	return nil
}

// Describe returns the slots of the fields; for arrays, those of the first instance.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if r.plan == nil && r.err == nil {
		r.inferPlan()
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
			r.hold.retain()
			if r.err == io.EOF {
				return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected an instance to infer the slots from, found none: give slots", r.f.Path())
			}
			return nil, nil, r.err
		}
		r.hold.retain()
		r.err = nil
		if err := r.f.Rewind(); err != nil {
			return nil, nil, err
		}
		r.number, r.skipKey, r.ended, r.key = 0, false, false, r.key[:0]
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

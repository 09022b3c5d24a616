package tfrecord

import (
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// A FeatureList is a list of Features, one for each step. Its slot has a level of LoD (level of detail) for the steps;
// another one for the values of each step unless these are a fixed number of numbers; and one for the bytes of each
// byte string.

// nextStep returns the first Feature of a FeatureList and the bytes after it. present is false at the end. ok is false if
// b does not consist of fields, or parsing has to stop.
func (e *examples) nextStep(b []byte) (feature, rest []byte, present, ok bool) {
	for len(b) > 0 {
		number, v, size := field(b)
		if size < 0 || !e.poll(size) {
			return nil, nil, false, false
		}
		if b = b[size:]; number == 1 {
			return v, b, true, true
		}
	}
	return nil, nil, false, true
}

// countStep returns the list of a step, and how many values and bytes it has.
func (e *examples) countStep(c *column, step int, feature []byte) (b []byte, n, size int, err error) {
	l, b, _, ok := e.values(&foundFeature{feature: feature, present: true})
	switch {
	case !ok:
		return nil, 0, 0, c.broken(c.Name)
	case l == none && c.fixed:
		return nil, 0, 0, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: step %d: expected %s, found a message Feature without a list", c.Name, step, c.wanted())
	case l == none:
		return nil, 0, 0, nil
	case l != c.list:
		return nil, 0, 0, pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: step %d: expected %s, found %v: use the dtype %s", c.Name, step, c.wantedList(), l, l.dtypes())
	}
	switch c.list {
	case byteStrings:
		n, size, ok = e.countBytes(b)
		if ok && c.Raw {
			if n > 1 || n == 0 && c.fixed {
				return nil, 0, 0, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: step %d: expected 1 value of raw bytes, found %d", c.Name, step, n)
			}
			n = size
		}
	case floats:
		n, _, ok = e.countFloats(b)
	default:
		n, ok = e.countInts(b)
	}
	switch {
	case !ok:
		return nil, 0, 0, c.broken(c.Name)
	case c.fixed && n != c.count:
		return nil, 0, 0, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: step %d: expected %s, found %d%s", c.Name, step, c.wanted(), n, c.suggestShape(n))
	case !c.fixed && n%c.inner != 0 && (c.list != byteStrings || c.Raw):
		return nil, 0, 0, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: step %d: expected rows of %s, found %d", c.Name, step, c.wanted(), n)
	}
	return b, n, size, nil
}

// fillSteps fills a slot from a feature list of a record that find accepted.
func (e *examples) fillSteps(s *pyfeed.LoDTensor, c *column, record []byte) error {
	f := &e.listed.found[c.key]
	if !f.present && c.fixed && !c.AllowMissing {
		return e.missing(c, record)
	}
	// In the first pass, the values of each step are counted.
	e.counts = e.counts[:0]
	values, total := 0, 0
	for rest := f.feature; ; {
		feature, behind, present, ok := e.nextStep(rest)
		if !ok {
			return c.broken(c.Name)
		}
		if !present {
			break
		}
		_, n, size, err := e.countStep(c, len(e.counts), feature)
		if err != nil {
			return err
		}
		e.counts = append(e.counts, n)
		values += n
		total += size
		rest = behind
	}
	element := c.slot.DType.Size()
	if c.list == byteStrings {
		element = 1
	} else {
		total = values * element
	}
	to, buffer, err := e.arena.Get(total)
	if err != nil {
		return err
	}
	s.DType = c.slot.DType
	s.Hold(to, buffer)
	e.divideSteps(s, c, values)
	if !e.copySteps(s, c, to, values) {
		return c.broken(c.Name)
	}
	if c.list == ints && s.DType != pyfeed.Int64 {
		if err := e.narrow(c, to, e.wide[:values]); err != nil {
			return err
		}
	}
	return s.SetDims(c.dims[:len(c.slot.Dims)])
}

// divideSteps makes the LoD levels of an instance with that many values, and sets the number of its rows.
func (e *examples) divideSteps(s *pyfeed.LoDTensor, c *column, values int) {
	steps := e.offsets.Get(2)
	steps[1] = int64(len(e.counts))
	s.LoD, s.InHeap = append(s.LoD[:0], steps), true
	isBytes := c.list == byteStrings && !c.Raw
	if !c.fixed || isBytes && len(c.Shape) > 0 {
		inner := c.inner
		if isBytes {
			inner = 1
		}
		level := e.offsets.Get(len(e.counts) + 1)
		for i, n := range e.counts {
			level[i+1] = level[i] + int64(n/inner)
		}
		s.LoD = append(s.LoD, level)
		c.dims[0] = level[len(e.counts)]
	} else {
		c.dims[0] = steps[1]
	}
	if isBytes {
		s.LoD = append(s.LoD, e.offsets.Get(values+1))
		c.dims[0] = int64(len(s.Data))
	}
}

// copySteps copies the values of all steps, which were counted.
func (e *examples) copySteps(s *pyfeed.LoDTensor, c *column, to []byte, values int) (ok bool) {
	var wide []int64
	narrow := to
	switch {
	case c.list == floats:
		narrow = to[len(to)-4*values:] // read as float32 into the end of to, and widened from there
	case c.list == ints && c.slot.DType == pyfeed.Int64:
		wide = unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(to))), values)
	case c.list == ints:
		if cap(e.wide) < values {
			e.wide = make([]int64, values)
		}
		wide = e.wide[:values]
	}
	rest, at, text := e.listed.found[c.key].feature, 0, 0
	for _, n := range e.counts {
		feature, behind, _, _ := e.nextStep(rest)
		rest = behind
		l, b, _, _ := e.values(&foundFeature{feature: feature, present: true})
		switch {
		case e.stopped:
			return false
		case l == none:
		case c.Raw && n > 0:
			v, _ := e.nextBytes(b)
			if !e.copyBytes(to[at:], v) {
				return false
			}
		case c.Raw:
		case c.list == byteStrings:
			ends := s.LoD[len(s.LoD)-1]
			for i := range n {
				var v []byte
				if v, b = e.nextBytes(b); !e.copyBytes(to[text:], v) {
					return false
				}
				text += len(v)
				ends[at+i+1] = int64(text)
			}
		case c.list == floats:
			ok = e.copyFloats(narrow[4*at:4*(at+n)], b)
		default:
			ok = e.readInts(wide[at:at+n], b)
		}
		if c.list != byteStrings && l != none && !ok {
			return false
		}
		at += n
	}
	return c.list != floats || c.slot.DType == pyfeed.Float32 || e.widen(to, narrow)
}

package jsonl

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// sampleBytes is the size of the part of a file, from its first record on, from which dtypes are inferred. One record
// is not enough: many floats are written as integers, and many lists are empty.
const sampleBytes = 1 << 20

// A form is a kind of values. That of a number is the narrowest type that it fits.
type form uint8

const (
	nothing  form = iota // null
	truth                // true or false
	small                // a non-negative integer that int64 can represent
	negative             // a negative integer that int64 can represent
	large                // an integer that only uint64 can represent
	tooLarge             // an integer that neither can represent
	fraction             // any other number
	words                // a string
	lists
	objects
	forms // the number of forms
)

func (f form) String() string {
	return [...]string{"null", "a bool", "a number", "a number", "a number", "a number", "a number", "a string", "a list", "an object"}[f]
}

// isNumber reports whether values of the form are numbers.
func (f form) isNumber() bool { return f >= small && f <= fraction }

// formOf returns the form of a value that was checked.
func formOf(value []byte) form {
	switch value[0] {
	case 'n':
		return nothing
	case 't', 'f':
		return truth
	case '"':
		return words
	case '[':
		return lists
	case '{':
		return objects
	}
	if bytes.ContainsAny(value, ".eE") {
		return fraction
	}
	switch v, f := number.ParseInteger(value, pyfeed.Int64); {
	case f == number.OK && int64(v) < 0:
		return negative
	case f == number.OK:
		return small
	}
	if _, f := number.ParseInteger(value, pyfeed.Uint64); f == number.OK {
		return large
	}
	return tooLarge
}

// lineNumber is where a record is.
type lineNumber struct {
	line, record, offset int64
}

// found has the place and the text of a value.
type found struct {
	lineNumber
	text string
}

func (f *found) String() string {
	if f == nil {
		return "no value"
	}
	return fmt.Sprintf("%s in line %d", f.text, f.line)
}

// observed has the first value of each form that a column had; nil: there was none.
type observed struct {
	forms    [forms]*found
	elements *observed // of its lists
}

// observe checks a value, and notes its form.
func (r *parser) observe(b []byte, p int, in *observed) int {
	begin := p
	if b[p] == '[' {
		if in.elements == nil {
			in.elements = new(observed)
		}
		if !r.enter(p) {
			return failed
		}
		if p = space(b, p+1); b[p] == ']' {
			r.leave()
			p++
		} else {
			for last := false; !last; {
				if p = r.observe(b, p, in.elements); p < 0 {
					return failed
				}
				if p, last = r.next(b, p, ']'); p < 0 {
					return failed
				}
			}
		}
	} else if p = r.value(b, p); p < 0 {
		return failed
	}
	if in.forms[small] != nil && isShortInteger(b[begin:p]) { // the common case, in long lists
		return p
	}
	if f := formOf(b[begin:p]); in.forms[f] == nil {
		in.forms[f] = &found{r.line, shown(b[begin:p])}
	}
	return p
}

// isShortInteger reports whether a value is a non-negative integer of at most 18 digits.
func isShortInteger(value []byte) bool {
	for _, c := range value {
		if c-'0' > 9 {
			return false
		}
	}
	return len(value) <= 18
}

// class returns the first value of numbers, and that of each form that cannot be in a column with them.
func (o *observed) class() (of form, first, other *found) {
	of = forms
	for f, v := range o.forms {
		f := form(f)
		if v == nil || f == nothing {
			continue
		}
		switch {
		case of == forms:
			of, first = f, v
		case of.isNumber() && f.isNumber():
		case other == nil || v.offset < other.offset:
			other = v
		}
	}
	return of, first, other
}

// numbers returns a dtype for all numbers. Integers become floats only if there are floats too: if no integer dtype can
// represent all integers, it returns those that prevent it.
func (o *observed) numbers() (d pyfeed.DType, wide []*found) {
	s := &o.forms
	switch {
	case s[fraction] != nil:
		return pyfeed.Float64, nil
	case s[tooLarge] != nil:
		return 0, []*found{s[tooLarge]}
	case s[large] != nil && s[negative] != nil:
		return 0, []*found{s[large], s[negative]}
	case s[large] != nil:
		return pyfeed.Uint64, nil
	}
	return pyfeed.Int64, nil
}

// infer returns the shape of the values of a group according to the samples. d is their dtype if that is known already,
// else Any.
func (g *group) infer(d pyfeed.DType) (s shape, err error) {
	if g.single {
		return g.columns[0].infer(d)
	}
	all := &column{path: g.columns[0].path}
	for _, c := range g.columns {
		of, first, other := c.sample.class()
		if of == forms || other != nil || of != truth && !of.isNumber() || of == truth != (all.sample.forms[truth] != nil) && all.sample != (observed{}) {
			return s, fmt.Errorf("expected numbers, or bools, in all columns of the slot within the first MiB, found %v in %v", cmp.Or(other, first), c)
		}
		for f, v := range c.sample.forms {
			if was := all.sample.forms[f]; was == nil || v != nil && v.offset < was.offset {
				all.sample.forms[f] = v
			}
		}
	}
	return all.infer(d)
}

// infer returns the shape of a column's values. If d is not Any, only the levels matter.
func (c *column) infer(d pyfeed.DType) (s shape, err error) {
	s.dtype = d
	for o := &c.sample; ; o = o.elements {
		of, first, other := o.class()
		where := c.String()
		if s.levels > 0 {
			where = "the lists of " + where
		}
		switch {
		case of == forms && s.levels > 0 && d != pyfeed.Any:
			return s, nil
		case of == forms && s.levels > 0:
			return s, fmt.Errorf("expected a value in %s within the first MiB, to infer the dtype from, found only empty ones: %s", where, c.hint("", true))
		case of == forms:
			return s, fmt.Errorf("expected a value in %s within the first MiB, to infer its dtype from, found null or none: %s, and \"default\" for records without it", where, c.hint("", d != pyfeed.Any))
		case of == objects && other == nil:
			return s, fmt.Errorf("expected a number, text or a list in %s, found an object, %v: select values in it by their paths, such as %q, or its JSON text by the dtype \"json\"",
				where, first, c.path+"."+"name")
		case other != nil:
			return s, fmt.Errorf("expected values of one kind in %s, found %v and %v: %s", where, first, other, c.hint("json", false))
		case of == lists:
			s.levels++
		case d != pyfeed.Any:
			return s, nil
		case of == words:
			s.kind, s.dtype = number.Text, pyfeed.Uint8
			return s, nil
		case of == truth:
			s.kind, s.dtype = number.Boolean, pyfeed.Bool
			return s, nil
		default:
			dtype, wide := o.numbers()
			if wide == nil {
				s.kind, _ = number.KindOf(dtype)
				s.dtype = dtype
				return s, nil
			}
			text := wide[0].String()
			if len(wide) > 1 {
				text += " and " + wide[1].String()
			}
			return s, &pyfeed.Error{Kind: pyfeed.Type, Slot: -1,
				Text: fmt.Sprintf("%s: expected integers that int64 or uint64 holds, found %s; %s", where, text, c.hint("float64", false)),
				At:   &pyfeed.Location{Offset: wide[0].offset, Record: wide[0].record}}
		}
	}
}

// hint says how to give the dtype of a column, and its dims if that matters.
func (c *column) hint(dtype string, dims bool) string {
	if dtype == "" {
		dtype = "float32"
	}
	with := ""
	if dims {
		with = ", \"dims\": [-1]"
	}
	return fmt.Sprintf("say what it holds by columns=[{\"columns\": %q, \"dtype\": %q%s}, ...], one for each slot, or by column_dtypes={%q: %q} (in JSON \"dtypes\")",
		c.path, dtype, with, c.path, dtype)
}

// readSample sets the samples of the columns at the nodes of a tree, from the records after the position, which does
// not move. It returns false if there are no records. Damaged records are left out, unless there are no others.
func (r *records) readSample(root *node) (bool, error) {
	if end, err := r.atEnd(); end || err != nil {
		return false, err
	}
	p := parser{scanner: scanner{interrupt: r.file.Interrupt()}, observing: true, stamp: r.stamp}
	defer func() { r.stamp = p.stamp }()
	some := false
	for want := sampleBytes; ; {
		b, end, err := r.peek(want) // another error is returned when reading gets there
		if err == storage.ErrInterrupted {
			return false, err
		}
		if len(b) > want {
			b, end = b[:want], false
		}
		lines := r.blankLines + r.record
		var damage error
		for at, n := 0, int64(0); at < len(b); {
			k, blank := leadingSpace(b[at:])
			at += k
			lines += blank
			size := bytes.IndexByte(b[at:], '\n') + 1
			line := b[at:]
			if size == 0 {
				if !end || at == len(b) {
					break
				}
				line = append(bytes.Clone(line), '\n')
				size = len(line) - 1
			}
			p.line = lineNumber{lines + 1, r.record + n, r.file.Offset() + int64(at)}
			if p.parse(line, 0, root) >= 0 {
				some = true
			} else if p.problem == "" {
				return false, storage.ErrInterrupted
			} else if damage == nil {
				damage = r.file.Corrupt(p.line.offset+int64(p.at), p.line.record, "line %d: %s", p.line.line, p.problem)
			}
			at += size
			lines++
			n++
		}
		if some {
			return true, nil
		}
		if damage != nil {
			return false, damage
		}
		if want, err = r.grow(b, err); err != nil { // the first record is longer than the sample
			return false, err
		}
	}
}

package csv

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// sampleBytes is the size of the part of a file, from its first record on, from which dtypes are inferred. One record
// is not enough: many columns of floats begin with an integer, and many columns of text with a number.
const sampleBytes = 1 << 20

// A form is the narrowest type that a field fits.
type form uint8

const (
	nothing  form = iota // an empty field
	truth                // true or false
	small                // a non-negative integer that int64 can represent
	negative             // a negative integer that int64 can represent
	large                // an integer that only uint64 can represent
	tooLarge             // an integer that neither can represent
	fraction             // any other number
	words                // any other text
	forms                // the number of forms
)

func formOf(field []byte) form {
	field = number.Trim(field)
	if len(field) == 0 {
		return nothing
	}
	switch v, f := number.ParseInteger(field, pyfeed.Int64); {
	case f == number.OK && int64(v) < 0:
		return negative
	case f == number.OK:
		return small
	case f == number.OutOfRange:
		if _, f = number.ParseInteger(field, pyfeed.Uint64); f == number.OK {
			return large
		}
		return tooLarge
	}
	if _, f := number.ParseFloat(field, 64); f != number.NotNumber {
		return fraction
	}
	if _, f := number.ParseBool(field); f == number.OK {
		return truth
	}
	return words
}

// number reports whether fields of the form are numbers.
func (f form) number() bool { return f >= small && f <= fraction }

// dtype returns the best dtype for fields of the form; Any stands for text.
func (f form) dtype() pyfeed.DType {
	switch f {
	case truth:
		return pyfeed.Bool
	case small, negative:
		return pyfeed.Int64
	case large:
		return pyfeed.Uint64
	case tooLarge, fraction:
		return pyfeed.Float64
	}
	return pyfeed.Any
}

// found has the position and the text of a field.
type found struct {
	column       int
	line, record int64
	offset       int64
	field        string // as errors show it
}

// observed has the first field of each form in one or several columns; nil: there is none.
type observed [forms]*found

// merge returns the first field of each form in either.
func (s observed) merge(other *observed) observed {
	for f, first := range other {
		if s[f] == nil || first != nil && first.offset < s[f].offset {
			s[f] = first
		}
	}
	return s
}

// dtype returns a dtype for all fields, or Any for text. Integers become floats only if there are floats too: if no
// integer dtype can represent all integers, dtype returns the fields that prevent it, the last of them first.
func (s *observed) dtype() (d pyfeed.DType, wide []*found) {
	integer := s[small] != nil || s[negative] != nil || s[large] != nil || s[tooLarge] != nil
	switch {
	case s[words] != nil, s[truth] != nil && (integer || s[fraction] != nil):
		return pyfeed.Any, nil
	case s[truth] != nil:
		return pyfeed.Bool, nil
	case s[fraction] != nil:
		return pyfeed.Float64, nil
	case s[tooLarge] != nil:
		return 0, []*found{s[tooLarge]}
	case s[large] != nil && s[negative] != nil:
		if s[large].offset > s[negative].offset {
			return 0, []*found{s[large], s[negative]}
		}
		return 0, []*found{s[negative], s[large]}
	case s[large] != nil:
		return pyfeed.Uint64, nil
	}
	return pyfeed.Int64, nil
}

// text returns the first field that is not a number.
func (s *observed) text() *found {
	if s[words] == nil || s[truth] != nil && s[truth].offset < s[words].offset {
		return s[truth]
	}
	return s[words]
}

// A sample has the forms of the fields of each column in the first records of a file.
type sample []observed

// readSample makes a sample of the records after the position, without moving it. nil: there are no records. Damaged
// records are left out, unless there are no others.
func (r *records) readSample() (sample, error) {
	if end, err := r.atEnd(); end || err != nil {
		return nil, err
	}
	b, end, err := r.peek(sampleBytes) // another error is returned when reading gets there
	if err == storage.ErrInterrupted {
		return nil, err
	}
	if len(b) > sampleBytes {
		b, end = b[:sampleBytes], false
	}
	s, some := make(sample, r.width), false
	spans := make([]span, 0, r.width+1)
	line := lineCounter{b: b, lines: r.lines}
	for at, record := 0, int64(0); ; record++ {
		n, state := r.isBlank(b[at:], end)
		if at += n; state != done || at == len(b) {
			break
		}
		next := 0
		if spans, next, state = r.split(spans[:0], b, at, end); state == more {
			break
		}
		if state == invalid { // reading goes on after the first line of the record
			k := bytes.IndexByte(b[at:], '\n')
			if k < 0 {
				break
			}
			next = at + k + 1
		} else if len(spans) == r.width {
			some = true
			for i := range spans {
				if f := s[i].newForm(&spans[i]); f != forms {
					content, err := r.unquote(nil, spans[i])
					if err != nil {
						return nil, err
					}
					s[i][f] = &found{i, line.at(at), record, r.file.Offset() + int64(at), quoteField(content)}
				}
			}
		}
		at = next
	}
	if some {
		return s, nil
	}
	fields, _, err := r.peekFields() // of a damaged record, or one longer than the sample
	if err != nil {
		return nil, err
	}
	if len(fields) != r.width {
		return nil, fmt.Errorf("expected %d columns in the first record, found %d", r.width, len(fields))
	}
	for i, data := range fields {
		s[i][formOf(data)] = &found{i, r.lines + 1, 0, r.file.Offset(), quoteField(data)}
	}
	return s, nil
}

// split returns the fields of the record that begins at position at in b, at most one more than there are columns, and
// the position of the next record.
func (r *records) split(to []span, b []byte, at int, end bool) (spans []span, next int, s status) {
	for last := false; !last; {
		f, s := r.field(b, at, end)
		if s != done {
			return to, at, s
		}
		if len(to) <= r.width {
			to = append(to, f.span(b))
		}
		at, last = f.next, f.last
	}
	return to, at, done
}

// lineCounter counts lines.
type lineCounter struct {
	b       []byte
	lines   int64 // before counted
	counted int
}

// at returns the number, from 1, of the line of byte n. n must not be less than in the last call.
func (l *lineCounter) at(n int) int64 {
	l.lines += int64(bytes.Count(l.b[l.counted:n], []byte{'\n'}))
	l.counted = n
	return l.lines + 1
}

// newForm returns the form of a field if no field of that form was seen in the column, else forms. After text, no
// further form matters, since text can hold all of them.
func (s *observed) newForm(field *span) form {
	if s[words] != nil || s.plain(field.data) {
		return forms
	}
	f := words // also for a field with quotes within it
	if !field.hasDoubledQuote {
		f = formOf(field.data)
	}
	if s[f] != nil {
		return forms
	}
	return f
}

// plain reports whether a field has a common form that needs no further look in this column: a short integer in a
// column of integers, or a number of the common form in a column with floats.
func (s *observed) plain(b []byte) bool {
	switch {
	case s[fraction] != nil:
		_, end := number.ScanDecimal(b, 0)
		return end > 0 && end == len(b)
	case s[small] != nil && len(b) <= 18:
		for _, c := range b {
			if c-'0' > 9 {
				return false
			}
		}
		return len(b) > 0
	}
	return false
}

// infer returns the dtype of columns according to the sample; Any stands for text, with the first field that is text.
func (t *table) infer(g group, o *Options, look func() (sample, error)) (d pyfeed.DType, text *found, err error) {
	s, err := look()
	if err != nil {
		return 0, nil, err
	}
	if s == nil {
		return 0, nil, fmt.Errorf("expected a record to infer dtypes from, found none: give slots or dtypes")
	}
	var all observed
	for _, at := range g.columns {
		one := s[at]
		if empty := one[nothing]; empty != nil && g.emptyField(o) != nil {
			var missing observed
			missing[formOf([]byte(*g.emptyField(o)))] = empty
			one = one.merge(&missing)
		}
		one[nothing] = nil
		if one == (observed{}) {
			return 0, nil, fmt.Errorf("expected a value in %s within the first MiB, to infer its dtype from, found empty fields; %s",
				t.known().Label(at), t.dtypeHint(at, pyfeed.Any))
		}
		all = all.merge(&one)
	}
	d, wide := all.dtype()
	if wide == nil {
		return d, all.text(), nil
	}
	last, others := wide[0], ""
	if len(wide) > 1 {
		others = fmt.Sprintf(" and, in line %d, %s", wide[1].line, wide[1].field)
	}
	return 0, nil, &pyfeed.Error{Kind: pyfeed.Type, Slot: -1,
		Text: fmt.Sprintf("line %d, %s: expected integers that int64 or uint64 holds, found %s%s; %s",
			last.line, t.known().Label(last.column), last.field, others, t.dtypeHint(last.column, pyfeed.Float64)),
		At: &pyfeed.Location{Offset: last.offset, Record: last.record}}
}

// dtypeHint says how to give a column dtype d, which holds more than the inferred one. Any stands for text.
func (t *table) dtypeHint(at int, d pyfeed.DType) string {
	name, dtype := strconv.Itoa(at), "bytes"
	if t.names != nil {
		if same, err := t.known().Index(t.names[at]); err == nil && same == at {
			name = strconv.Quote(t.names[at])
		}
	}
	if d != pyfeed.Any {
		dtype = d.String()
	}
	return fmt.Sprintf("say what it holds by columns=[{\"columns\": %s, \"dtype\": %q}, ...], one for each slot, or by column_dtypes={%s: %q} (in JSON \"dtypes\")",
		name, dtype, name, dtype)
}

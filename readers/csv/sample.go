package csv

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// sampleBytes is how much of a file, from its first record on, tells the dtypes of columns. One record does not suffice:
// many a column of floats begins with an integer, and many a column of text with a number.
const sampleBytes = 1 << 20

// A form is the narrowest thing that a field can be read as.
type form uint8

const (
	nothing  form = iota // an empty field
	truth                // true or false
	small                // an integer from 0 on that int64 holds
	negative             // an integer below 0 that int64 holds
	large                // an integer that only uint64 holds
	huge                 // an integer that neither holds
	fraction             // any other number
	words                // any other text
	forms                // how many there are
)

func formOf(field []byte) form {
	field = trim(field)
	if len(field) == 0 {
		return nothing
	}
	switch v, f := parseInteger(field, pyfeed.Int64); {
	case f == none && int64(v) < 0:
		return negative
	case f == none:
		return small
	case f == outOfRange:
		if _, f = parseInteger(field, pyfeed.Uint64); f == none {
			return large
		}
		return huge
	}
	if _, f := parseFloat(field, 64); f != noNumber {
		return fraction
	}
	if _, f := parseBool(field); f == none {
		return truth
	}
	return words
}

// number says whether numbers have the form.
func (f form) number() bool { return f >= small && f <= fraction }

// dtype is one that holds fields of the form, as well as any does; Any is text.
func (f form) dtype() pyfeed.DType {
	switch f {
	case truth:
		return pyfeed.Bool
	case small, negative:
		return pyfeed.Int64
	case large:
		return pyfeed.Uint64
	case huge, fraction:
		return pyfeed.Float64
	}
	return pyfeed.Any
}

// found is where a field is, and what is in it.
type found struct {
	column       int
	line, record int64
	offset       int64
	field        string // as an error shows it
}

// seen is the first field of each form among those of a column, or of several; nil: there is none.
type seen [forms]*found

// with is what was seen of either.
func (s seen) with(other *seen) seen {
	for f, first := range other {
		if s[f] == nil || first != nil && first.offset < s[f].offset {
			s[f] = first
		}
	}
	return s
}

// dtype is one that holds all that was seen, Any for text. An integer becomes a float only beside floats: where no dtype
// of integers holds all of them, those in the way are answered, the last of them first.
func (s *seen) dtype() (d pyfeed.DType, wide []*found) {
	integer := s[small] != nil || s[negative] != nil || s[large] != nil || s[huge] != nil
	switch {
	case s[words] != nil, s[truth] != nil && (integer || s[fraction] != nil):
		return pyfeed.Any, nil
	case s[truth] != nil:
		return pyfeed.Bool, nil
	case s[fraction] != nil:
		return pyfeed.Float64, nil
	case s[huge] != nil:
		return 0, []*found{s[huge]}
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

// text is the first field that is no number.
func (s *seen) text() *found {
	if s[words] == nil || s[truth] != nil && s[truth].offset < s[words].offset {
		return s[truth]
	}
	return s[words]
}

// A sample is what the columns hold in the first records of a file.
type sample []seen

// look makes a sample of the records from the position on, which stays where it is. nil: there is none. Records that are
// damaged are left out, unless there are no others.
func (r *records) look() (sample, error) {
	if end, err := r.atEnd(); end || err != nil {
		return nil, err
	}
	b, end, err := r.peek(sampleBytes) // any other error is told when it is reached
	if err == storage.ErrInterrupted {
		return nil, err
	}
	if len(b) > sampleBytes {
		b, end = b[:sampleBytes], false
	}
	s, some := make(sample, r.width), false
	spans := make([]span, 0, r.width+1)
	line := lineOf{b: b, lines: r.lines}
	for at, record := 0, int64(0); ; record++ {
		n, state := r.blank(b[at:], end)
		if at += n; state != done || at == len(b) {
			break
		}
		next := 0
		if spans, next, state = r.split(spans[:0], b, at, end); state == more {
			break
		}
		if state == bad { // reading goes on behind its first line
			k := bytes.IndexByte(b[at:], '\n')
			if k < 0 {
				break
			}
			next = at + k + 1
		} else if len(spans) == r.width {
			some = true
			for i := range spans {
				if f := s[i].news(&spans[i]); f != forms {
					content, err := r.unquote(nil, spans[i])
					if err != nil {
						return nil, err
					}
					s[i][f] = &found{i, line.at(at), record, r.file.Offset() + int64(at), shown(content)}
				}
			}
		}
		at = next
	}
	if some {
		return s, nil
	}
	fields, _, err := r.peekFields() // of a record that is damaged, or longer than the sample
	if err != nil {
		return nil, err
	}
	if len(fields) != r.width {
		return nil, fmt.Errorf("expected %d columns in the first record, found %d", r.width, len(fields))
	}
	for i, data := range fields {
		s[i][formOf(data)] = &found{i, r.lines + 1, 0, r.file.Offset(), shown(data)}
	}
	return s, nil
}

// split finds the fields of the record that begins at a place in b, and where the next one does: one more than there are
// columns at most.
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

// lineOf counts lines.
type lineOf struct {
	b       []byte
	lines   int64 // before counted
	counted int
}

// at is the number, from 1, of the line that a byte is in, which is not before that of the last call.
func (l *lineOf) at(n int) int64 {
	l.lines += int64(bytes.Count(l.b[l.counted:n], []byte{'\n'}))
	l.counted = n
	return l.lines + 1
}

// news is the form of a field, if none of that form was seen; else forms. Text holds everything, so that nothing behind it
// is news.
func (s *seen) news(field *span) form {
	if s[words] != nil || s.plain(field.data) {
		return forms
	}
	f := words // which quotes within are, too
	if !field.doubled {
		f = formOf(field.data)
	}
	if s[f] != nil {
		return forms
	}
	return f
}

// plain says whether a field is one of those that most are, in a column like this: a short integer, or any number in the
// common form beside a float.
func (s *seen) plain(b []byte) bool {
	switch {
	case s[fraction] != nil:
		_, end := scanDecimal(b, 0)
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

// infer tells the dtype of columns by a sample; Any is text, and the first field of it comes along.
func (t *table) infer(g group, o *Options, look func() (sample, error)) (d pyfeed.DType, text *found, err error) {
	s, err := look()
	if err != nil {
		return 0, nil, err
	}
	if s == nil {
		return 0, nil, fmt.Errorf("expected a record to tell dtypes by, found none: say slots, or dtypes")
	}
	var all seen
	for _, at := range g.columns {
		one := s[at]
		if empty := one[nothing]; empty != nil && o.Missing != nil {
			var missing seen
			missing[formOf([]byte(*o.Missing))] = empty
			one = one.with(&missing)
		}
		one[nothing] = nil
		if one == (seen{}) {
			return 0, nil, fmt.Errorf("expected a value in %s within the first MiB, to tell its dtype by, found empty fields; %s",
				t.label(at), t.advice(at, pyfeed.Any))
		}
		all = all.with(&one)
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
			last.line, t.label(last.column), last.field, others, t.advice(last.column, pyfeed.Float64)),
		At: &pyfeed.Location{Offset: last.offset, Record: last.record}}
}

// advice says how a column is given a dtype that holds more than what was inferred. Any is text.
func (t *table) advice(at int, d pyfeed.DType) string {
	name, dtype := strconv.Itoa(at), "bytes"
	if t.names != nil {
		if same, err := t.index(t.names[at]); err == nil && same == at {
			name = strconv.Quote(t.names[at])
		}
	}
	if d != pyfeed.Any {
		dtype = d.String()
	}
	return fmt.Sprintf("say what it holds by columns=[{\"columns\": %s, \"dtype\": %q}, ...], one for each slot, or by column_dtypes={%s: %q} (in JSON \"dtypes\")",
		name, dtype, name, dtype)
}

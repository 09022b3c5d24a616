package tar

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// records are the instances of one archive. Between two calls the File's position is at the first header of a member,
// the next instance's first if there is one.
type records struct {
	f      *storage.File
	fields []Field
	slots  []pyfeed.Slot // of Config
	toEnd  bool          // zeros do not end the archive
	plan   *plan
	valid  int64 // headers up to this offset were found valid
	ended  bool  // the archive, by zeros

	next  member
	ahead bool            // next was read already: its header is at the position
	over  passing         // what lies between the position and the next header, after an interruption
	blank blanks          // those before the position, likewise
	known map[string]bool // the fields by which decide makes the plan; nil: it does not
	start int64           // offset of the instance that has them
	part  pyfeed.Tuple    // what there is of an instance whose reading was interrupted

	key     []byte  // of the instance that was begun last
	begun   bool    // it is being read
	first   int64   // offset of its first header
	filled  int     // fields of it that were found
	turn    int     // extensions of it that were found
	order   []int   // the extensions, as the instance before had them
	got     []int32 // by field, the rank of the extension it is from, or -1
	seen    []bool  // by extension
	there   []byte  // the extensions, for errors
	number  int64   // of the instance
	guess   bool    // it is approximate: how many instances were skipped is not known
	leave   bool    // members of this key are what is left of a damaged instance
	torn    bool    // the next instance may be what is left of a damaged one
	nameBuf []byte  // of a name that does not lie in one piece

	hold    holder
	values  values
	arrays  *memory.Arena
	npy     []npy.Parser // of fields of kind npy
	offsets record.Offsets

	err    error // what Read goes on answering
	behind behind
	at     int64 // offset that Resync goes on from
}

// behind is where damage leads to.
type behind uint8

const (
	nowhere behind = iota // the file ends, or cannot be read
	fresh                 // to offset at, where another instance begins
	rest                  // to offset at, where more of the damaged instance may be
	search                // to the next valid header from offset at on, and likewise
)

// Open begins to read an archive.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	r := &records{f: f, fields: o.Fields, slots: c.Slots, toEnd: o.End == "file", valid: -1}
	r.hold = holder{f: f, number: -1}
	r.arrays = memory.NewArena(c.Pool)
	r.values.arena = r.arrays
	if r.fields == nil {
		r.fields = named(c.Names)
	}
	if r.fields != nil {
		p, err := newPlan(r.fields, r.slots)
		if err != nil {
			return nil, err
		}
		r.follow(p)
	}
	return r, nil
}

// named are the fields that the slots' names stand for, nil if one has none.
func named(names []string) []Field {
	var fields []Field
	for _, name := range names {
		if name == "" {
			return nil
		}
		fields = append(fields, Field{Name: name})
	}
	return fields
}

func (r *records) follow(p *plan) {
	r.plan = p
	r.got, r.seen, r.npy = make([]int32, len(p.fields)), make([]bool, len(p.exts)), make([]npy.Parser, len(p.fields))
	r.order = make([]int, len(p.exts)+1)
}

// Read fills out with instances, of about a window's size together.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err == nil && r.plan == nil {
		r.decide()
	}
	n, begin := 0, r.f.Offset()
	r.ahead = false
	for r.err == nil && n < len(out) && (n == 0 || r.f.Offset()-begin < memory.WindowSize) {
		t := out[n]
		if r.part.Slots != nil {
			t.Slots, r.part.Slots = r.part.Slots, nil
		}
		if len(t.Slots) != len(r.plan.fields) {
			t.Resize(len(r.plan.fields))
		}
		if !r.instance(t) {
			if r.begun && r.interrupted() {
				r.part.Slots, t.Slots = t.Slots, nil
			}
			break
		}
		n++
		r.number++
	}
	r.hold.settle()
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// interrupted says whether the next Read goes on where this one was.
func (r *records) interrupted() bool { return r.err == storage.ErrInterrupted }

// instance reads the next one. If there is none, err says why; it may say so afterwards too. Interrupted in one that was
// begun, it goes on with the same tuple.
func (r *records) instance(t *pyfeed.Tuple) bool {
	m := &r.next
	for {
		if !r.ahead && !r.header(m) {
			return r.finish(t)
		}
		r.ahead = false
		if !r.begun || !r.sameKey(m.name) {
			stem, is := stemOf(m.name)
			switch {
			case !is:
				if !r.pass(m) {
					return r.finish(t)
				}
				continue
			case r.begun:
				whole := r.finish(t)
				r.ahead = true // for the next instance
				if whole || r.err != nil {
					return whole
				}
				continue // it was what is left of a damaged one
			case r.leave && string(stem) == string(r.key):
				if !r.pass(m) {
					return false
				}
				continue
			}
			r.begin(stem)
		}
		ext := m.name[len(r.key)+1:]
		shown := len(r.there)
		if shown < 200 {
			r.there = append(append(r.there, ' ', '.'), ext...)
		}
		e := r.plan.find(ext, r.order[r.turn])
		if e < 0 {
			if !r.pass(m) {
				return r.finish(t)
			}
			continue
		}
		if r.seen[e] {
			r.damage(rest, r.f.Offset()+int64(m.lead+padded(m.size)), r.f.Offset(),
				"instance %.200q: expected one member .%s, found two", r.key, r.plan.exts[e].name)
			r.drop(t)
			return false
		}
		r.seen[e], r.order[r.turn] = true, e
		r.turn++
		if !r.member(t, e, m) {
			if r.interrupted() { // the member comes again
				r.turn--
				r.seen[e], r.there = false, r.there[:shown]
				return false
			}
			if !r.begun { // it was not whole
				r.drop(t)
				return false
			}
			return r.finish(t)
		}
	}
}

// begin starts an instance.
func (r *records) begin(stem []byte) {
	r.key = append(r.key[:0], stem...)
	r.begun, r.leave, r.filled, r.turn, r.first = true, false, 0, 0, r.f.Offset()
	r.there = r.there[:0]
	for i := range r.got {
		r.got[i] = -1
	}
	clear(r.seen)
}

// finish ends the instance, if one was begun. It is true if that is whole.
func (r *records) finish(t *pyfeed.Tuple) bool {
	if !r.begun || r.interrupted() {
		return false
	}
	if r.filled < r.plan.members && !r.torn && (r.err == nil || r.err == io.EOF) {
		r.complete(t)
	}
	if r.filled == r.plan.members && r.keys(t) {
		r.begun, r.torn = false, false
		return true
	}
	if r.torn { // it counts with the damage before it, and no other one does
		r.torn = false
		r.drop(t)
		return false
	}
	if r.err == nil || r.err == io.EOF {
		missing := ""
		for i := range r.plan.fields {
			if f := &r.plan.fields[i]; f.kind != keyKind && r.got[i] < 0 {
				missing = r.extensions(i)
				break
			}
		}
		r.damage(fresh, r.f.Offset(), r.first, "instance %.200q: expected a member %s, found%s", r.key, missing, r.there)
		r.number++
	}
	r.drop(t)
	return false
}

// extensions are those of a field, for errors.
func (r *records) extensions(field int) string {
	if len(r.fields) > field && strings.Contains(r.fields[field].Name, ";") {
		return "of the extensions " + r.fields[field].Name
	}
	return "." + r.plan.fields[field].ext
}

// drop forgets the instance, of which something is in t.
func (r *records) drop(t *pyfeed.Tuple) {
	r.hold.settle()
	for i := range t.Slots {
		t.Slots[i].Drop()
	}
	r.begun = false
}

// complete puts in what an instance has whose optional members are not there, if nothing else is missing and the
// instance is not one of damage. One member at least is there, or a file that has no business here would be an instance.
func (r *records) complete(t *pyfeed.Tuple) {
	for i := range r.plan.fields {
		if f := &r.plan.fields[i]; r.filled == 0 || f.kind != keyKind && !f.optional && r.got[i] < 0 {
			return
		}
	}
	for i := range r.plan.fields {
		f := &r.plan.fields[i]
		if f.kind == keyKind || r.got[i] >= 0 {
			continue
		}
		data, in, err := r.arrays.Get(len(f.absent))
		if err != nil {
			r.err, r.behind = err, nowhere
			return
		}
		copy(data, f.absent)
		s := &t.Slots[i]
		if f.kind.number() {
			f.describe(s)
		} else {
			r.sequence(i, s, len(data))
		}
		s.Hold(data, in)
		r.filled++
	}
}

// keys puts the key where it is asked for.
func (r *records) keys(t *pyfeed.Tuple) bool {
	if r.plan.members == len(r.plan.fields) {
		return true
	}
	for i := range r.plan.fields {
		if r.plan.fields[i].kind != keyKind {
			continue
		}
		data, in, err := r.arrays.Get(len(r.key))
		if err != nil {
			r.err, r.behind = err, nowhere
			return false
		}
		copy(data, r.key)
		r.sequence(i, &t.Slots[i], len(data))
		t.Slots[i].Hold(data, in)
	}
	return true
}

// sequence describes n bytes.
func (r *records) sequence(field int, s *pyfeed.LoDTensor, n int) {
	if r.plan.fields[field].lod {
		r.offsets.Sequence(s, n)
		return
	}
	s.DType = pyfeed.Uint8
	_ = s.SetDims(pyfeed.Dims{int64(n)}) // one is not too many
}

// sameKey says whether a member belongs to the instance that was begun.
func (r *records) sameKey(name []byte) bool {
	k := len(r.key)
	return len(name) > k && name[k] == '.' && bytes.Equal(name[:k], r.key) && bytes.IndexByte(name[k:], '/') < 0
}

// stemOf is the key in a member's name, and whether it is one of an instance.
func stemOf(name []byte) ([]byte, bool) {
	base := bytes.LastIndexByte(name, '/') + 1
	dot := bytes.IndexByte(name[base:], '.')
	if dot <= 0 {
		return nil, false
	}
	if len(name) > 1 && name[0] == '_' && name[1] == '_' {
		part, _, _ := bytes.Cut(name, []byte{'/'})
		if len(part) >= 4 && bytes.HasSuffix(part, []byte("__")) {
			return nil, false
		}
	}
	return name[:base+dot], true
}

// member reads the one at the position, of extension e, into its fields, and goes on behind it.
func (r *records) member(t *pyfeed.Tuple, e int, m *member) bool {
	if !r.room(m) {
		return false
	}
	whole := m.lead + padded(m.size)
	b, err := r.f.Peek(whole)
	if len(b) < m.lead+m.size {
		if err != nil {
			r.err, r.behind = err, nowhere
		} else {
			r.damage(nowhere, 0, r.f.Offset(), "expected a member of %d bytes, found %d before the end of the file", m.size, len(b)-m.lead)
		}
		return false
	}
	whole = min(whole, len(b))
	r.f.Skip(m.lead)
	data := b[m.lead : m.lead+m.size : m.lead+m.size]
	for _, u := range r.plan.exts[e].uses {
		if got := r.got[u.field]; got >= 0 {
			if got < u.rank {
				continue
			}
			r.hold.settle()
			t.Slots[u.field].Drop()
			r.filled--
		}
		if !r.fill(u.field, &t.Slots[u.field], data) {
			if r.interrupted() {
				t.Slots[u.field].Drop()
				r.f.Skip(-m.lead)
				return false
			}
			r.at = r.f.Offset() + int64(whole-m.lead)
			r.begun = false
			return false
		}
		r.got[u.field] = u.rank
		r.filled++
	}
	r.f.Skip(whole - m.lead)
	return true
}

// describe says what a number looks like.
func (f *field) describe(s *pyfeed.LoDTensor) {
	s.DType = f.dtype
	if f.rank1 {
		_ = s.SetDims(pyfeed.Dims{1}) // one is not too many
	}
}

// fill makes a tensor of a member's data, which begins at the position.
func (r *records) fill(field int, s *pyfeed.LoDTensor, data []byte) bool {
	f := &r.plan.fields[field]
	switch {
	case f.kind.number():
		to, in, err := r.values.get()
		if err != nil {
			r.err, r.behind = err, nowhere
			return false
		}
		if expected, found := f.number(to, data); expected != "" {
			in.Release()
			r.damage(rest, 0, r.f.Offset(), "instance %.200q, member .%s: expected %s, found %s", r.key, f.ext, expected, excerpt(found))
			return false
		}
		f.describe(s)
		s.Hold(to[:f.dtype.Size()], in)
		return true
	case f.kind == npyKind:
		return r.array(field, s, data)
	}
	r.sequence(field, s, len(data))
	s.Hold(data, r.hold.one())
	s.ReadOnly = true
	return true
}

// excerpt is a piece of a text for an error.
func excerpt(b []byte) string {
	if len(b) == 0 {
		return "nothing"
	}
	if len(b) > 32 {
		return fmt.Sprintf("%q...", b[:32])
	}
	return fmt.Sprintf("%q", b)
}

// damage makes Read answer an error about what is at an offset, until Resync goes on at another.
func (r *records) damage(to behind, on, offset int64, format string, args ...any) {
	r.behind, r.at = to, on
	if r.err = r.f.Intact(); r.err != nil {
		r.behind = nowhere
		return
	}
	number := r.number
	if r.begun && to != rest && r.plan != nil && r.filled == r.plan.members {
		number++ // the instance that was begun is whole
	}
	r.err = r.f.Corrupt(offset, number, format, args...)
}

// kind makes damage an error of another kind.
func (r *records) kind(k pyfeed.Kind) {
	if r.behind != nowhere { // else it is the file that shrank
		r.err.(*pyfeed.Error).Kind = k
	}
}

// Resync goes behind damage. What is left of the damaged instance there is passed over.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF || r.behind == nowhere {
		return io.EOF
	}
	if err := r.forward(r.at); err != nil {
		return err
	}
	if r.behind == search {
		if err := r.search(); err != nil {
			return err
		}
	}
	r.torn = r.torn || r.behind == search
	r.guess = r.guess || r.behind == search
	r.leave = r.behind != fresh
	if r.leave {
		r.number++
	}
	r.err = nil
	return nil
}

// Number is Numbered's.
func (r *records) Number() (int64, bool) { return r.number, !r.guess }

// search goes to the next header.
func (r *records) search() error {
	for n := 0; ; n++ {
		b, err := r.f.Peek(blockSize)
		if err == nil && r.lookDue(n) {
			err = r.f.Look()
		}
		switch {
		case err == storage.ErrInterrupted: // the next search goes on from here
			return err
		case err != nil: // for header to answer
			return nil
		case len(b) < blockSize:
			return io.EOF
		}
		if (*block)(b).valid() {
			r.valid = r.f.Offset()
			return nil
		}
		r.f.Skip(blockSize)
	}
}

// Intact is the File's.
func (r *records) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.f.Unchanged() }

// Close lets go of the file.
func (r *records) Close() {
	for i := range r.part.Slots {
		r.part.Slots[i].Drop()
	}
	r.values.close()
	r.arrays.Close()
	r.f.Close()
}

// holder counts the views of a mapped file's window, to retain it for all of them at once.
type holder struct {
	f      *storage.File
	number int64 // of the window
	in     *memory.Buffer
	n      int
}

// one is a reference to the memory at the position, which is there for good once settle was called.
func (h *holder) one() *memory.Buffer {
	if !h.f.Mapped() {
		return h.f.Hold(1)
	}
	if number := h.f.Offset() / memory.WindowSize; h.in == nil || number != h.number {
		h.settle()
		h.in, h.number = h.f.Hold(0), number
	}
	h.n++
	return h.in
}

// settle retains what was counted.
func (h *holder) settle() {
	if h.n > 0 {
		h.in.Retain(h.n)
	}
	h.in, h.n = nil, 0
}

// values hands out the memory of numbers, 8 bytes each, many of one piece.
type values struct {
	arena *memory.Arena
	piece []byte
	in    *memory.Buffer
}

const valueSize, manyValues = 8, 64

func (v *values) get() ([]byte, *memory.Buffer, error) {
	if len(v.piece) == 0 {
		piece, in, err := v.arena.Get(valueSize * manyValues)
		if err != nil {
			return nil, nil, err
		}
		in.Retain(manyValues - 1)
		v.piece, v.in = piece, in
	}
	value := v.piece[:valueSize:valueSize]
	v.piece = v.piece[valueSize:]
	return value, v.in, nil
}

func (v *values) close() {
	for ; len(v.piece) > 0; v.piece = v.piece[valueSize:] {
		v.in.Release()
	}
}

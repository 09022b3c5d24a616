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

// records reads one archive. Between two calls, the position of the File is at the first header of a member: of the
// next instance, if there is one.
type records struct {
	f      *storage.File
	fields []Field
	slots  []pyfeed.Slot // of Config
	toEnd  bool          // blocks of zeros do not end the archive
	plan   *plan
	valid  int64 // headers up to this offset are valid
	ended  bool  // blocks of zeros have ended the archive

	next          member
	nextRead      bool            // next was read, and its header is at the position
	skipping      skippedMember   // the rest of a member that has to be skipped first, after an interruption
	zeroBlocks    zeroRun         // blocks of zeros before the position, after an interruption
	pendingFields map[string]bool // the fields that inferPlan has found; nil: it is not running
	start         int64           // offset of the instance of pendingFields
	partial       pyfeed.Tuple    // slots of an instance whose reading was interrupted

	key            []byte  // of the current or last instance
	inInstance     bool    // an instance is being read
	first          int64   // offset of the instance's first header
	filled         int     // number of the instance's fields that were filled
	numExtensions  int     // number of the instance's extensions that were found
	order          []int   // the extensions in the order of the last instance
	fieldExtension []int32 // by field: the rank of the extension that filled it, or -1
	seenExtension  []bool  // by extension
	extensionNames []byte  // the extensions, for errors
	number         int64   // number of the instance
	approximate    bool    // number is approximate: it is not known how many instances were skipped
	skipKey        bool    // members with this key are the rest of a damaged instance
	afterDamage    bool    // the next instance may be the rest of a damaged one
	nameBuf        []byte  // for names that are stored in parts

	hold    references
	values  numberArena
	arrays  *memory.Arena
	npy     []npy.Parser // of fields of kind npy
	offsets record.Offsets

	err          error // the error that Read returns until Resync
	resumeAt     resumePoint
	resyncOffset int64 // offset at which Resync begins
}

// resumePoint is the point after damage where reading goes on.
type resumePoint uint8

const (
	noResume     resumePoint = iota // nowhere: the file ends, or cannot be read
	atInstance                      // at resyncOffset, where another instance begins
	atRemainder                     // at resyncOffset, where the rest of the damaged instance may be
	atNextHeader                    // at the next valid header from resyncOffset on, of the same or of another instance
)

// Open opens an archive for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	r := &records{f: f, fields: o.Fields, slots: c.Slots, toEnd: o.End == "file", valid: -1}
	r.hold = references{f: f, number: -1}
	r.arrays = memory.NewArena(c.Pool)
	r.values.arena = r.arrays
	if r.fields == nil {
		r.fields = fieldsOfNames(c.Names)
	}
	if r.fields != nil {
		p, err := newPlan(r.fields, r.slots)
		if err != nil {
			return nil, err
		}
		r.setPlan(p)
	}
	return r, nil
}

// fieldsOfNames returns fields with the names of the slots, or nil if a slot has no name.
func fieldsOfNames(names []string) []Field {
	var fields []Field
	for _, name := range names {
		if name == "" {
			return nil
		}
		fields = append(fields, Field{Name: name})
	}
	return fields
}

func (r *records) setPlan(p *plan) {
	r.plan = p
	r.fieldExtension, r.seenExtension, r.npy = make([]int32, len(p.fields)), make([]bool, len(p.exts)), make([]npy.Parser, len(p.fields))
	r.order = make([]int, len(p.exts)+1)
}

// Read fills out with instances, which together have about the size of a window.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err == nil && r.plan == nil {
		r.inferPlan()
	}
	n, begin := 0, r.f.Offset()
	r.nextRead = false
	for r.err == nil && n < len(out) && (n == 0 || r.f.Offset()-begin < memory.WindowSize) {
		t := out[n]
		if r.partial.Slots != nil {
			t.Slots, r.partial.Slots = r.partial.Slots, nil
		}
		if len(t.Slots) != len(r.plan.fields) {
			t.Resize(len(r.plan.fields))
		}
		if !r.instance(t) {
			if r.inInstance && r.interrupted() {
				r.partial.Slots, t.Slots = t.Slots, nil
			}
			break
		}
		n++
		r.number++
	}
	r.hold.retain()
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// interrupted reports whether the next Read goes on after an interruption.
func (r *records) interrupted() bool { return r.err == storage.ErrInterrupted }

// instance reads the next instance. If there is none, err says why; err may also be set after an instance. If it is
// interrupted within an instance, the next call goes on with the same tuple.
func (r *records) instance(t *pyfeed.Tuple) bool {
	m := &r.next
	for {
		if !r.nextRead && !r.header(m) {
			return r.finish(t)
		}
		r.nextRead = false
		if !r.inInstance || !r.sameKey(m.name) {
			stem, is := keyOfName(m.name)
			switch {
			case !is:
				if !r.pass(m) {
					return r.finish(t)
				}
				continue
			case r.inInstance:
				whole := r.finish(t)
				r.nextRead = true // for the next instance
				if whole || r.err != nil {
					return whole
				}
				continue // it was the rest of a damaged instance
			case r.skipKey && string(stem) == string(r.key):
				if !r.pass(m) {
					return false
				}
				continue
			}
			r.begin(stem)
		}
		ext := m.name[len(r.key)+1:]
		shown := len(r.extensionNames)
		if shown < 200 {
			r.extensionNames = append(append(r.extensionNames, ' ', '.'), ext...)
		}
		e := r.plan.find(ext, r.order[r.numExtensions])
		if e < 0 {
			if !r.pass(m) {
				return r.finish(t)
			}
			continue
		}
		if r.seenExtension[e] {
			r.damage(atRemainder, r.f.Offset()+int64(m.lead+roundToBlocks(m.size)), r.f.Offset(),
				"instance %.200q: expected one member .%s, found two", r.key, r.plan.exts[e].name)
			r.discardInstance(t)
			return false
		}
		r.seenExtension[e], r.order[r.numExtensions] = true, e
		r.numExtensions++
		if !r.member(t, e, m) {
			if r.interrupted() { // the member is read again
				r.numExtensions--
				r.seenExtension[e], r.extensionNames = false, r.extensionNames[:shown]
				return false
			}
			if !r.inInstance { // the instance is damaged
				r.discardInstance(t)
				return false
			}
			return r.finish(t)
		}
	}
}

// begin starts an instance.
func (r *records) begin(stem []byte) {
	r.key = append(r.key[:0], stem...)
	r.inInstance, r.skipKey, r.filled, r.numExtensions, r.first = true, false, 0, 0, r.f.Offset()
	r.extensionNames = r.extensionNames[:0]
	for i := range r.fieldExtension {
		r.fieldExtension[i] = -1
	}
	clear(r.seenExtension)
}

// finish ends the current instance, if there is one. It returns true if the instance is complete.
func (r *records) finish(t *pyfeed.Tuple) bool {
	if !r.inInstance || r.interrupted() {
		return false
	}
	if r.filled < r.plan.members && !r.afterDamage && (r.err == nil || r.err == io.EOF) {
		r.setDefaults(t)
	}
	if r.filled == r.plan.members && r.keys(t) {
		r.inInstance, r.afterDamage = false, false
		return true
	}
	if r.afterDamage { // it is counted together with the damage before it
		r.afterDamage = false
		r.discardInstance(t)
		return false
	}
	if r.err == nil || r.err == io.EOF {
		missing, advice := "", ""
		for i := range r.plan.fields {
			if f := &r.plan.fields[i]; f.kind != keyKind && r.fieldExtension[i] < 0 {
				missing, advice = r.extensions(i), record.Suggest(f.ext, r.unusedExtensions)
				break
			}
		}
		r.damage(atInstance, r.f.Offset(), r.first, "instance %.200q: expected a member %s, found%s%s", r.key, missing, r.extensionNames, advice)
		r.number++
	}
	r.discardInstance(t)
	return false
}

// extensions formats the extensions of a field for errors.
func (r *records) extensions(field int) string {
	if len(r.fields) > field && strings.Contains(r.fields[field].Name, ";") {
		return "of the extensions " + r.fields[field].Name
	}
	return "." + r.plan.fields[field].ext
}

// unusedExtensions yields the extensions of the current instance that no field is read from.
func (r *records) unusedExtensions(yield func(string) bool) {
	for name := range strings.FieldsSeq(string(r.extensionNames)) {
		if name = strings.TrimPrefix(name, "."); r.plan.find([]byte(name), 0) < 0 && !yield(name) {
			return
		}
	}
}

// discardInstance drops the current instance, of which t has some slots.
func (r *records) discardInstance(t *pyfeed.Tuple) {
	r.hold.retain()
	for i := range t.Slots {
		t.Slots[i].Drop()
	}
	r.inInstance = false
}

// setDefaults fills the slots of missing optional members, if no other member is missing and the instance is not
// damaged. At least one member has to be there. Otherwise unrelated files would become instances.
func (r *records) setDefaults(t *pyfeed.Tuple) {
	for i := range r.plan.fields {
		if f := &r.plan.fields[i]; r.filled == 0 || f.kind != keyKind && !f.optional && r.fieldExtension[i] < 0 {
			return
		}
	}
	for i := range r.plan.fields {
		f := &r.plan.fields[i]
		if f.kind == keyKind || r.fieldExtension[i] >= 0 {
			continue
		}
		data, in, err := r.arrays.Get(len(f.absent))
		if err != nil {
			r.err, r.resumeAt = err, noResume
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

// keys fills the slots of the key.
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
			r.err, r.resumeAt = err, noResume
			return false
		}
		copy(data, r.key)
		r.sequence(i, &t.Slots[i], len(data))
		t.Slots[i].Hold(data, in)
	}
	return true
}

// sequence sets dtype, dims and LoD (level of detail) for n bytes.
func (r *records) sequence(field int, s *pyfeed.LoDTensor, n int) {
	if r.plan.fields[field].lod {
		r.offsets.Sequence(s, n)
		return
	}
	s.DType = pyfeed.Uint8
	_ = s.SetDims(pyfeed.Dims{int64(n)}) // cannot fail: there is one dimension
}

// sameKey reports whether a member belongs to the current instance.
func (r *records) sameKey(name []byte) bool {
	k := len(r.key)
	return len(name) > k && name[k] == '.' && bytes.Equal(name[:k], r.key) && bytes.IndexByte(name[k:], '/') < 0
}

// keyOfName returns the key in a member's name, and whether the member belongs to an instance.
func keyOfName(name []byte) ([]byte, bool) {
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

// member reads the member of extension e at the position into its fields, and moves past it.
func (r *records) member(t *pyfeed.Tuple, e int, m *member) bool {
	if !r.fits(m) {
		return false
	}
	whole := m.lead + roundToBlocks(m.size)
	b, err := r.f.Peek(whole)
	if len(b) < m.lead+m.size {
		if err != nil {
			r.err, r.resumeAt = err, noResume
		} else {
			r.damage(noResume, 0, r.f.Offset(), "expected a member of %d bytes, found %d before the end of the file", m.size, len(b)-m.lead)
		}
		return false
	}
	whole = min(whole, len(b))
	r.f.Skip(m.lead)
	data := b[m.lead : m.lead+m.size : m.lead+m.size]
	for _, u := range r.plan.exts[e].uses {
		if got := r.fieldExtension[u.field]; got >= 0 {
			if got < u.rank {
				continue
			}
			r.hold.retain()
			t.Slots[u.field].Drop()
			r.filled--
		}
		if !r.fill(u.field, &t.Slots[u.field], data) {
			if r.interrupted() {
				t.Slots[u.field].Drop()
				r.f.Skip(-m.lead)
				return false
			}
			r.resyncOffset = r.f.Offset() + int64(whole-m.lead)
			r.inInstance = false
			return false
		}
		r.fieldExtension[u.field] = u.rank
		r.filled++
	}
	r.f.Skip(whole - m.lead)
	return true
}

// describe sets the dtype and dims of a number.
func (f *field) describe(s *pyfeed.LoDTensor) {
	s.DType = f.dtype
	if f.rank1 {
		_ = s.SetDims(pyfeed.Dims{1}) // cannot fail: there is one dimension
	}
}

// fill makes a tensor of a member's data, which begins at the position.
func (r *records) fill(field int, s *pyfeed.LoDTensor, data []byte) bool {
	f := &r.plan.fields[field]
	switch {
	case f.kind.number():
		to, in, err := r.values.get()
		if err != nil {
			r.err, r.resumeAt = err, noResume
			return false
		}
		if expected, found := f.number(to, data); expected != "" {
			in.Release()
			r.damage(atRemainder, 0, r.f.Offset(), "instance %.200q, member .%s: expected %s, found %s", r.key, f.ext, expected, excerpt(found))
			return false
		}
		f.describe(s)
		s.Hold(to[:f.dtype.Size()], in)
		return true
	case f.kind == npyKind:
		return r.array(field, s, data)
	}
	r.sequence(field, s, len(data))
	s.Hold(data, r.hold.take())
	s.ReadOnly = true
	return true
}

// excerpt formats the beginning of a text for an error.
func excerpt(b []byte) string {
	if len(b) == 0 {
		return "nothing"
	}
	if len(b) > 32 {
		return fmt.Sprintf("%q...", b[:32])
	}
	return fmt.Sprintf("%q", b)
}

// damage makes Read return an error about the data at an offset, until Resync goes on at offset on.
func (r *records) damage(to resumePoint, on, offset int64, format string, args ...any) {
	r.resumeAt, r.resyncOffset = to, on
	if r.err = r.f.CheckTruncated(); r.err != nil {
		r.resumeAt = noResume
		return
	}
	number := r.number
	if r.inInstance && to != atRemainder && r.plan != nil && r.filled == r.plan.members {
		number++ // the current instance is complete
	}
	r.err = r.f.Corrupt(offset, number, format, args...)
}

// kind changes the kind of the error that damage has set.
func (r *records) kind(k pyfeed.Kind) {
	if r.resumeAt != noResume { // otherwise the error is that the file has become shorter
		r.err.(*pyfeed.Error).Kind = k
	}
}

// Resync moves past the damage. It skips the rest of the damaged instance.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF || r.resumeAt == noResume {
		return io.EOF
	}
	if err := r.skipTo(r.resyncOffset); err != nil {
		return err
	}
	if r.resumeAt == atNextHeader {
		if err := r.search(); err != nil {
			return err
		}
	}
	r.afterDamage = r.afterDamage || r.resumeAt == atNextHeader
	r.approximate = r.approximate || r.resumeAt == atNextHeader
	r.skipKey = r.resumeAt != atInstance
	if r.skipKey {
		r.number++
	}
	r.err = nil
	return nil
}

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.number, !r.approximate }

// Position implements record.Seeker. It is the offset of the first header that may be that of the next instance. Behind
// damage it is only known after the next instance.
func (r *records) Position() (record.Position, bool) {
	known := r.err == nil && r.plan != nil && !r.inInstance && !r.skipKey && !r.afterDamage && !r.ended &&
		r.skipping.left == 0 && r.zeroBlocks.n == 0
	return record.Position{Offset: r.f.Offset()}, known
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, number int64, exact bool) error {
	if p.Offset < 0 || p.Offset%blockSize != 0 || p.Inner != 0 {
		return record.BadPosition(r.f.Path(), p, "the offset of a header, a multiple of 512")
	}
	for r.plan == nil { // its fields are those of the first instance without damage
		if r.err = record.ClearInterrupt(r.err); r.err == nil {
			r.inferPlan()
		}
		switch e, is := r.err.(*pyfeed.Error); {
		case r.err == nil:
		case is && e.Kind == pyfeed.Corrupt && r.resumeAt != noResume:
			if err := r.Resync(); err != nil {
				return err
			}
		default:
			return r.err
		}
	}
	r.err, r.skipping, r.skipKey, r.afterDamage, r.key = nil, skippedMember{}, false, false, r.key[:0]
	if err := r.f.SeekTo(p.Offset); err != nil {
		return err
	}
	r.number, r.approximate, r.valid = number, !exact, -1
	return nil
}

// search moves to the next valid header.
func (r *records) search() error {
	for n := 0; ; n++ {
		b, err := r.f.Peek(blockSize)
		if err == nil && r.pollDue(n) {
			err = r.f.Poll()
		}
		switch {
		case err == storage.ErrInterrupted: // the next search goes on from here
			return err
		case err != nil: // header returns it
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

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.f.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.f.CheckUnchanged() }

// Close closes the file.
func (r *records) Close() {
	for i := range r.partial.Slots {
		r.partial.Slots[i].Drop()
	}
	r.values.close()
	r.arrays.Close()
	r.f.Close()
}

// references counts the views of a window of a mapped file, to retain the window for all of them at once.
type references struct {
	f      *storage.File
	number int64 // of the window
	in     *memory.Buffer
	n      int
}

// take returns a buffer for the memory at the position. The reference is added later, by retain.
func (h *references) take() *memory.Buffer {
	if !h.f.IsMapped() {
		return h.f.Hold(1)
	}
	if number := h.f.Offset() / memory.WindowSize; h.in == nil || number != h.number {
		h.retain()
		h.in, h.number = h.f.Hold(0), number
	}
	h.n++
	return h.in
}

// retain adds the references that were counted.
func (h *references) retain() {
	if h.n > 0 {
		h.in.Retain(h.n)
	}
	h.in, h.n = nil, 0
}

// numberArena allocates the memory of numbers, 8 bytes each, in pieces for many numbers.
type numberArena struct {
	arena  *memory.Arena
	piece  []byte
	buffer *memory.Buffer
}

const valueSize, valuesPerPiece = 8, 64

func (v *numberArena) get() ([]byte, *memory.Buffer, error) {
	if len(v.piece) == 0 {
		piece, in, err := v.arena.Get(valueSize * valuesPerPiece)
		if err != nil {
			return nil, nil, err
		}
		in.Retain(valuesPerPiece - 1)
		v.piece, v.buffer = piece, in
	}
	value := v.piece[:valueSize:valueSize]
	v.piece = v.piece[valueSize:]
	return value, v.buffer, nil
}

func (v *numberArena) close() {
	for ; len(v.piece) > 0; v.piece = v.piece[valueSize:] {
		v.buffer.Release()
	}
}

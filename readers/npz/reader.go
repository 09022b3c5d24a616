package npz

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open begins to read the arrays of an archive.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	s, err := settle(c)
	if err != nil {
		return nil, err
	}
	r := &records{f: f, pool: c.Pool}
	if err = r.begin(s); err != nil {
		return nil, err
	}
	return r, nil
}

// records are the instances of an archive.
type records struct {
	f       *storage.File
	pool    *memory.Pool
	archive []byte // all of it
	members []*member
	count   int64 // of instances
	next    int64
	size    int   // bytes of an instance
	err     error // what ended them
}

// member is an array of the archive, and the npy.Source of its data.
type member struct {
	*records
	name   string
	file   *zip.File
	at     int    // of its bytes in the archive, as they are stored there
	stored []byte // those bytes
	array  *npy.Array
	in     *npy.Instances

	data    []byte         // its bytes, decompressed; nil before the first use
	memory  *memory.Buffer // that data lies in or, of a mapped file, the window held last
	window  int64          // that window's number
	sum     uint32         // CRC-32 of the first bytes of data
	checked int            // how many
}

func (r *records) begin(s settings) error {
	if err := r.all(); err != nil {
		return err
	}
	z, err := zip.NewReader(interruptible{bytes.NewReader(r.archive), r.f}, int64(len(r.archive)))
	if errors.Is(err, storage.ErrInterrupted) {
		return storage.ErrInterrupted
	}
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names lead nowhere here
		return r.f.Corrupt(max(0, int64(len(r.archive))-22), -1, "expected a zip archive, which ends with its directory: %s",
			strings.TrimPrefix(err.Error(), "zip: "))
	}
	files, err := r.choose(z.File, s)
	if err != nil {
		return err
	}
	for i, file := range files {
		m := &member{records: r, name: strings.TrimSuffix(file.Name, suffix), file: file, window: -1}
		r.members = append(r.members, m)
		if err = m.find(); err != nil {
			return err
		}
		if m.in, err = m.array.Instances(s.whole, r.pool); err != nil {
			return m.fault(err, 0)
		}
		r.size += m.in.Size
		first := r.members[0]
		if r.count = first.in.Count; m.in.Count != r.count {
			return &pyfeed.Error{Kind: pyfeed.Shape, Slot: i, At: m.place(0), Text: "array " + quote(m.name) + ": " +
				pyfeed.SlotErrorf(pyfeed.Shape, i, "first dimension: expected %d, as in array %s, found %d: instances are rows of all of them, unless it is said to be file",
					r.count, quote(first.name), m.in.Count).Text}
		}
	}
	return r.apart()
}

// mostInflated bounds an archive that is compressed once more, in bytes. It takes as much memory, and a file of a few MB
// may stand for gigabytes. Only tests change it.
var mostInflated = 1 << 30

// all has all of the archive be seen: its directory lies at the end. What is not mapped is read whole.
func (r *records) all() (err error) {
	head, err := r.f.Peek(len(memberHead))
	if err != nil {
		return err
	}
	// Before all of it: /dev/zero has no end.
	if head = head[:min(len(head), len(memberHead))]; len(head) == len(memberHead) && string(head) != memberHead && string(head) != directoryEnd {
		return r.f.Corrupt(0, -1, "expected a zip archive, which begins with %q, found %q", memberHead, head)
	}
	most := math.MaxInt
	if r.f.Compressed() {
		most = mostInflated + 1
	}
	if r.archive, err = r.f.Peek(most); err == nil && r.f.Compressed() && len(r.archive) > mostInflated {
		e := pyfeed.Errorf(pyfeed.Unsupported, "compression: expected an archive of at most %d MiB, which has to be in memory as a whole, "+
			"found more: decompress the file", mostInflated>>20)
		e.At, err = r.place(0), e
	}
	return err
}

// How an archive begins: with a member, or without any.
const (
	memberHead   = "PK\x03\x04"
	directoryEnd = "PK\x05\x06"
)

// interruptible is what a zip.Reader reads, a piece at a time.
type interruptible struct {
	*bytes.Reader
	f *storage.File
}

func (a interruptible) ReadAt(b []byte, at int64) (int, error) {
	if err := a.f.Look(); err != nil {
		return 0, err
	}
	return a.Reader.ReadAt(b, at)
}

// choose finds the members that are read.
func (r *records) choose(files []*zip.File, s settings) (chosen []*zip.File, err error) {
	named := make(map[string]*zip.File, len(files))
	var names []string // in the order of the file
	for _, f := range files {
		name, is := strings.CutSuffix(f.Name, suffix)
		if !is { // something else, that NumPy gives out as bytes
			continue
		}
		if named[name] != nil {
			return nil, r.f.Corrupt(0, -1, "expected members of different names, found two called %s", quote(f.Name))
		}
		named[name] = f
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, &pyfeed.Error{Kind: pyfeed.Slots, Slot: -1, At: r.place(0), Text: "expected members called *.npy, which are arrays, found none"}
	}
	wanted := names
	if s.names != nil {
		wanted = s.names
	}
	for i, name := range wanted {
		f := named[name]
		if f == nil {
			e := pyfeed.Errorf(pyfeed.Slots, "expected an array %s, found %s", quote(name), list(names))
			if s.slots {
				e = pyfeed.SlotErrorf(pyfeed.Slots, i, "expected an array of its name, %s, found %s: others can be named in the option arrays, in the order of the slots",
					quote(name), list(names))
			}
			e.At = r.place(0)
			return nil, e
		}
		chosen = append(chosen, f)
	}
	return chosen, nil
}

// quote puts a name in quotes, as much of it as an error shows.
func quote(name string) string {
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return "\"" + strings.ToValidUTF8(name, "?") + "\""
}

func list(names []string) string {
	var quoted []string
	for _, name := range names[:min(len(names), 16)] {
		quoted = append(quoted, quote(name))
	}
	if len(names) > 16 {
		quoted = append(quoted, "...")
	}
	return strings.Join(quoted, ", ")
}

func (r *records) place(offset int64) *pyfeed.Location {
	return &pyfeed.Location{File: r.f.Path(), Offset: offset, Record: -1}
}

// place is where a byte of the member's data is in the archive; where the member begins, if that is compressed.
func (m *member) place(offset int64) *pyfeed.Location {
	if m.file.Method != zip.Store {
		offset = 0
	}
	return m.records.place(int64(m.at) + offset)
}

// fault completes an error about the member, whose location, if it has one, is in its data, or at an offset there.
func (m *member) fault(err error, offset int64) error {
	var e *pyfeed.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.At != nil {
		offset = e.At.Offset
	}
	located := *e
	located.Text, located.At = "array "+quote(m.name)+": "+e.Text, m.place(offset)
	return &located
}

func (m *member) corrupt(offset int64, format string, args ...any) error {
	return m.fault(pyfeed.Errorf(pyfeed.Corrupt, format, args...), offset)
}

// methods are those of zip that some write and we do not read.
var methods = map[uint16]string{1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 94: "mp3", 95: "xz", 99: "AES encryption"}

// mostPacked bounds what a byte of deflate can hold.
const mostPacked = 1032

// find reads where the member is and what its header says, and holds the sizes against each other.
func (m *member) find() error {
	f := m.file
	switch f.Method {
	case zip.Store, zip.Deflate:
	default:
		return m.fault(pyfeed.Errorf(pyfeed.Unsupported, "compression: expected a member that is stored or deflated, found method %d, %s: save it by numpy.savez or savez_compressed",
			f.Method, name(f.Method)), 0)
	}
	if f.Flags&1 != 0 {
		return m.fault(pyfeed.Errorf(pyfeed.Unsupported, "expected a member that is not encrypted, found one that is"), 0)
	}
	at, err := f.DataOffset()
	if errors.Is(err, storage.ErrInterrupted) {
		return storage.ErrInterrupted
	}
	if err != nil {
		return m.corrupt(0, "expected a member where the directory says, found none: %s", strings.TrimPrefix(err.Error(), "zip: "))
	}
	total := uint64(len(m.archive))
	if at < 0 || uint64(at) > total || f.CompressedSize64 > total-uint64(at) {
		return m.corrupt(0, "expected a member of %d bytes at byte %d, as the directory says, found %d bytes of archive", f.CompressedSize64, at, total)
	}
	m.at = int(at)
	m.stored = m.archive[at:][:f.CompressedSize64:f.CompressedSize64]
	switch {
	case f.Method == zip.Store && f.UncompressedSize64 != f.CompressedSize64:
		return m.corrupt(0, "expected two equal sizes of a member that is stored, found %d and %d", f.CompressedSize64, f.UncompressedSize64)
	case f.UncompressedSize64/mostPacked > f.CompressedSize64:
		return m.corrupt(0, "expected %d bytes, which are more than %d can be inflated to", f.UncompressedSize64, f.CompressedSize64)
	}
	head, err := m.head()
	if err != nil {
		return err
	}
	if m.array, err = npy.Parse(head); err != nil {
		return m.fault(err, 0)
	}
	if have := f.UncompressedSize64 - uint64(m.array.Begin); have != uint64(m.array.Size) {
		return m.corrupt(int64(m.array.Begin), "expected %d bytes of data, as shape %v of %v is, found %d", m.array.Size, m.array.Shape, m.array.DType, have)
	}
	return nil
}

func name(method uint16) string {
	if name := methods[method]; name != "" {
		return name
	}
	return "which has no name here"
}

// head is the npy header, and perhaps more.
func (m *member) head() ([]byte, error) {
	size := m.file.UncompressedSize64
	if m.file.Method == zip.Store {
		return m.stored, nil
	}
	in := inflaters.Get().(*inflater)
	defer in.put()
	in.begin(m.f, m.stored)
	head := make([]byte, min(size, 512)) // those of NumPy have 128
	n, err := io.ReadFull(in, head)
	if err != nil {
		return nil, m.broken(n, err)
	}
	begin, err := npy.Begin(head)
	if err != nil {
		return nil, m.fault(err, 0)
	}
	if begin <= len(head) || uint64(begin) > size {
		return head, nil
	}
	head = append(head, make([]byte, begin-len(head))...)
	if k, err := io.ReadFull(in, head[n:]); err != nil {
		return nil, m.broken(n+k, err)
	}
	return head, nil
}

// broken is an error about compressed data after so many bytes of what it holds.
func (m *member) broken(n int, err error) error {
	if err == storage.ErrInterrupted {
		return err
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return m.corrupt(0, "expected %d bytes when inflated, as the directory says, found %d", m.file.UncompressedSize64, n)
	}
	return m.corrupt(0, "inflating, after %d bytes: %s", n, strings.TrimPrefix(err.Error(), "flate: "))
}

// apart refuses members that lie in each other: a small file could hold any amount then.
func (r *records) apart() error {
	sorted := slices.Clone(r.members)
	slices.SortFunc(sorted, func(a, b *member) int { return a.at - b.at })
	for i, m := range sorted[1:] {
		if before := sorted[i]; before.at+len(before.stored) > m.at {
			return m.corrupt(0, "expected members apart from each other, found it inside of array %s", quote(before.name))
		}
	}
	return nil
}

// Read makes the slots one after another, each for many tuples.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	n := int(min(int64(len(out)), r.count-r.next, int64(max(1, memory.WindowSize/max(1, r.size)))))
	if n == 0 {
		r.err = io.EOF
		return 0, r.err
	}
	out = out[:n]
	for _, m := range r.members { // before any goes on: this may take long, and be interrupted
		there, err := m.in.Ready(m)
		if r.err = m.numbered(err, 0); r.err != nil {
			return 0, r.err
		}
		out = out[:min(len(out), there)]
	}
	n = len(out)
	for _, t := range out {
		if len(t.Slots) != len(r.members) {
			t.Resize(len(r.members))
		}
	}
	whole := n // tuples that have all their slots
	for i, m := range r.members {
		got, err := m.read(out, i)
		if err != nil {
			whole, r.err = min(whole, got), err
		}
	}
	for _, t := range out[whole:] {
		for i := range t.Slots {
			t.Slots[i].Drop()
		}
	}
	r.next += int64(whole)
	if whole == 0 {
		return 0, r.err
	}
	return whole, nil
}

// read fills a slot of all tuples, or says of how many before there was an error.
func (m *member) read(out []*pyfeed.Tuple, slot int) (n int, err error) {
	for n < len(out) && err == nil {
		var k int
		k, err = m.in.Read(out[n:], slot, m)
		n += k
	}
	if err != nil {
		return n, m.numbered(err, n)
	}
	if m.in.Next == m.in.Count {
		m.drop()
	}
	return n, nil
}

// numbered completes an error behind n of the next instances.
func (m *member) numbered(err error, n int) error {
	if err == nil || err == storage.ErrInterrupted {
		return err
	}
	if e := m.f.Intact(); e != nil {
		err = e
	}
	var e *pyfeed.Error
	if errors.As(err, &e) && e.At != nil {
		e.At.Record = m.next + int64(n)
	}
	return err
}

// Interrupt is npy.Source's.
func (m *member) Interrupt() *storage.Interrupt { return m.f.Interrupt() }

// Peek is npy.Source's: what it shows has been checked.
func (m *member) Peek(at, n int) ([]byte, error) {
	if m.data == nil {
		if err := m.load(); err != nil {
			return nil, err
		}
	}
	at += m.array.Begin
	end := min(len(m.data), at+max(n, memory.WindowSize))
	if m.file.Method == zip.Store {
		if err := m.check(end); err != nil {
			return nil, err
		}
	}
	return m.data[at:end], nil
}

const (
	// atOnce is the most that is checked before the first instance, in bytes. Of a larger member that is stored, the
	// checksum goes along with the instances, and its last ones are kept back if it is wrong.
	atOnce = 64 << 20
	// piece is how much is checked at a time, in bytes: in the cache still when it is used.
	piece = 256 << 10
)

// check makes sure of the checksum of a stored member, up to an offset at least.
func (m *member) check(end int) error {
	if len(m.data) <= atOnce {
		end = len(m.data)
	}
	for begin := m.checked; m.checked < end; {
		if m.checked-begin > storage.LookEvery {
			if err := m.f.Look(); err != nil {
				return err
			}
			begin = m.checked
		}
		next := min(m.checked+piece, len(m.data))
		m.sum = crc32.Update(m.sum, crc32.IEEETable, m.data[m.checked:next])
		m.checked = next
	}
	if m.checked == len(m.data) {
		return m.verify()
	}
	return nil
}

func (m *member) verify() error {
	if m.sum != m.file.CRC32 {
		return m.corrupt(0, "checksum: expected %08x, found %08x", m.file.CRC32, m.sum)
	}
	return nil
}

// load finds the bytes of a stored member, or decompresses and checks them.
func (m *member) load() error {
	if m.file.Method == zip.Store {
		m.data = m.stored
		return nil
	}
	in := inflaters.Get().(*inflater)
	defer in.put()
	in.begin(m.f, m.stored)
	size := int(m.file.UncompressedSize64)
	// Memory grows with what there is, not with what the directory claims.
	b, err := m.pool.Get(min(size, max(64<<10, 8*len(m.stored))))
	if err != nil {
		return err
	}
	have := 0
	m.sum = 0
	for {
		if err := m.f.Look(); err != nil {
			b.Release()
			return err
		}
		n, err := io.ReadFull(in, b.Bytes()[have:min(b.Size(), have+piece)])
		m.sum = crc32.Update(m.sum, crc32.IEEETable, b.Bytes()[have:have+n])
		have += n
		if err == nil && have == size {
			err = in.end()
			if err == nil {
				break
			}
		}
		if err != nil {
			b.Release()
			return m.broken(have, err)
		}
		if have < b.Size() {
			continue
		}
		larger, err := m.pool.Get(min(size, 2*have))
		if err != nil {
			b.Release()
			return err
		}
		err = m.f.Interrupt().Copy(larger.Bytes(), b.Bytes())
		b.Release()
		if b = larger; err != nil {
			b.Release()
			return err
		}
	}
	m.memory = b
	m.data, m.checked = b.Bytes(), size
	return m.verify()
}

// Hold is npy.Source's.
func (m *member) Hold(at, size, n int) (*memory.Buffer, int) {
	switch {
	case m.file.Method != zip.Store:
	case !m.f.Mapped():
		return m.f.Hold(n), n
	default:
		// The File keeps the window of one place, but each member is at another.
		offset := int64(m.at + m.array.Begin + at)
		if window := offset / memory.WindowSize; m.memory == nil || m.window != window {
			m.release()
			m.memory, m.window = m.f.HoldAt(offset, 1), window
		}
		n = storage.InWindow(offset, size, n)
	}
	m.memory.Retain(n)
	return m.memory, n
}

func (m *member) release() {
	if m.memory != nil {
		m.memory.Release()
		m.memory = nil
	}
}

// drop lets go of what the member holds when all its instances were made.
func (m *member) drop() {
	m.in.Close()
	m.release()
	m.data = nil
}

// Resync finds nothing: what is wrong with an array is wrong with all of it.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Intact is the File's.
func (r *records) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.f.Unchanged() }

// Close lets go of the file.
func (r *records) Close() {
	for _, m := range r.members {
		if m.in != nil {
			m.in.Close()
		}
		m.release()
	}
	r.f.Close()
}

// Describe is what the headers say.
func (r *records) Describe() (slots []pyfeed.Slot, names []string, err error) {
	for _, m := range r.members {
		slots, names = append(slots, m.in.Slot()), append(names, m.name)
	}
	return slots, names, nil
}

// inflater decompresses. Its tables are large: they are kept.
type inflater struct {
	from   bytes.Reader
	packed storage.Packed // what is in from
	pieces *bufio.Reader  // of that
	flate  io.ReadCloser
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{pieces: bufio.NewReaderSize(nil, 64<<10)}
	in.flate = flate.NewReader(in.pieces)
	return in
}}

func (in *inflater) begin(f *storage.File, data []byte) {
	in.from.Reset(data)
	in.packed = f.Interrupt().Packed(&in.from)
	in.pieces.Reset(&in.packed)
	_ = in.flate.(flate.Resetter).Reset(in.pieces, nil)
}

func (in *inflater) Read(b []byte) (int, error) {
	n, err := in.flate.Read(b)
	in.packed.Gave(n)
	return n, err
}

func (in *inflater) put() {
	in.from.Reset(nil)
	in.packed = storage.Packed{}
	inflaters.Put(in)
}

// end says whether the data ends here, and has no bytes behind it.
func (in *inflater) end() error {
	var more [1]byte
	switch n, err := in.Read(more[:]); {
	case n > 0 || err == nil:
		return errors.New("expected the end, found more data")
	case err != io.EOF:
		return err
	case in.from.Len()+in.pieces.Buffered() > 0:
		return errors.New("expected the end, found bytes behind it")
	}
	return nil
}

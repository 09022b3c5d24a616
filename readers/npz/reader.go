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

// Open opens an archive for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	s, err := resolveOptions(c)
	if err != nil {
		return nil, err
	}
	r := &records{f: f, pool: c.Pool}
	if err = r.begin(s); err != nil {
		return nil, err
	}
	return r, nil
}

// records reads the instances of an archive.
type records struct {
	f       *storage.File
	pool    *memory.Pool
	archive []byte // the whole archive
	members []*member
	count   int64 // of instances
	next    int64
	size    int   // bytes of an instance
	err     error // the error at the end
}

// member is an array of the archive, and the npy.Source of its data.
type member struct {
	*records
	name   string
	file   *zip.File
	at     int    // offset of stored in the archive
	stored []byte // the member's bytes as stored
	array  *npy.Array
	in     *npy.Instances

	data    []byte         // decompressed bytes; nil before the first use
	memory  *memory.Buffer // memory of data; for a mapped file, the window that is held
	window  int64          // that window's number
	crc     uint32         // CRC-32 of the first checked bytes of data
	checked int            // see crc
}

func (r *records) begin(s settings) error {
	if err := r.loadAll(); err != nil {
		return err
	}
	z, err := zip.NewReader(interruptible{bytes.NewReader(r.archive), r.f}, int64(len(r.archive)))
	if errors.Is(err, storage.ErrInterrupted) {
		return storage.ErrInterrupted
	}
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are not used as paths
		return r.f.Corrupt(max(0, int64(len(r.archive))-22), -1, "expected a zip archive, which ends with its directory: %s",
			strings.TrimPrefix(err.Error(), "zip: "))
	}
	files, err := r.selectMembers(z.File, s)
	if err != nil {
		return err
	}
	for i, file := range files {
		m := &member{records: r, name: strings.TrimSuffix(file.Name, suffix), file: file, window: -1}
		r.members = append(r.members, m)
		if err = m.locate(); err != nil {
			return err
		}
		if m.in, err = m.array.Instances(s.whole, r.pool); err != nil {
			return m.fault(err, 0)
		}
		r.size += m.in.Size
		first := r.members[0]
		if r.count = first.in.Count; m.in.Count != r.count {
			return &pyfeed.Error{Kind: pyfeed.Shape, Slot: i, At: m.location(0), Text: "array " + quote(m.name) + ": " +
				pyfeed.SlotErrorf(pyfeed.Shape, i, "first dimension: expected %d, as in array %s, found %d: set the option instances to file to read whole arrays",
					r.count, quote(first.name), m.in.Count).Text}
		}
	}
	return r.checkOverlap()
}

// Count implements record.Counted.
func (r *records) Count() int64 { return r.count }

// Deflated implements record.Deflated.
func (r *records) Deflated() bool {
	return slices.ContainsFunc(r.members, func(m *member) bool { return m.file.Method != zip.Store })
}

// maxInflated is the largest size, in bytes, of an archive in a file that is compressed as a whole. Such an archive has
// to be decompressed into memory, and a file of a few MB may hold gigabytes. Only tests change it.
var maxInflated = 1 << 30

// loadAll makes the whole archive available, since its directory is at the end. A file that is not mapped is read
// completely.
func (r *records) loadAll() (err error) {
	head, err := r.f.Peek(len(memberHead))
	if err != nil {
		return err
	}
	// Check before reading everything: /dev/zero has no end.
	if head = head[:min(len(head), len(memberHead))]; len(head) == len(memberHead) && string(head) != memberHead && string(head) != directoryEnd {
		return r.f.Corrupt(0, -1, "expected a zip archive, which begins with %q, found %q", memberHead, head)
	}
	limit := math.MaxInt
	if r.f.IsCompressed() {
		limit = maxInflated + 1
	}
	if r.archive, err = r.f.Peek(limit); err == nil && r.f.IsCompressed() && len(r.archive) > maxInflated {
		e := pyfeed.Errorf(pyfeed.Unsupported, "compression: expected an archive of at most %d MiB, which has to be in memory as a whole, "+
			"found more: decompress the file", maxInflated>>20)
		e.At, err = r.location(0), e
	}
	return err
}

// The first bytes of an archive with members, and of one without any.
const (
	memberHead   = "PK\x03\x04"
	directoryEnd = "PK\x05\x06"
)

// interruptible is the input of a zip.Reader. It polls before each read.
type interruptible struct {
	*bytes.Reader
	f *storage.File
}

func (a interruptible) ReadAt(b []byte, at int64) (int, error) {
	if err := a.f.Poll(); err != nil {
		return 0, err
	}
	return a.Reader.ReadAt(b, at)
}

// selectMembers returns the members to read.
func (r *records) selectMembers(files []*zip.File, s settings) (chosen []*zip.File, err error) {
	named := make(map[string]*zip.File, len(files))
	var names []string // in the order of the file
	for _, f := range files {
		name, is := strings.CutSuffix(f.Name, suffix)
		if !is { // another kind of member, which NumPy returns as bytes
			continue
		}
		if named[name] != nil {
			return nil, r.f.Corrupt(0, -1, "expected members of different names, found two called %s", quote(f.Name))
		}
		named[name] = f
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, &pyfeed.Error{Kind: pyfeed.Slots, Slot: -1, At: r.location(0), Text: "expected members called *.npy, which are arrays, found none"}
	}
	wanted := names
	if s.names != nil {
		wanted = s.names
	}
	for i, name := range wanted {
		f := named[name]
		if f == nil {
			e := pyfeed.Errorf(pyfeed.Slots, "expected an array %s, found %s%s", quote(name), list(names), record.Suggest(name, slices.Values(names)))
			if s.namesAreSlots {
				e = pyfeed.SlotErrorf(pyfeed.Slots, i, "expected an array with the slot's name, %s, found %s: other names can be given in the option arrays, in the order of the slots",
					quote(name), list(names))
			}
			e.At = r.location(0)
			return nil, e
		}
		chosen = append(chosen, f)
	}
	return chosen, nil
}

// quote quotes a name for an error, shortened if it is long.
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

func (r *records) location(offset int64) *pyfeed.Location {
	return &pyfeed.Location{File: r.f.Path(), Offset: offset, Record: -1}
}

// location returns the position in the archive of a byte of the member's data, or of the member if it is compressed.
func (m *member) location(offset int64) *pyfeed.Location {
	if m.file.Method != zip.Store {
		offset = 0
	}
	return m.records.location(int64(m.at) + offset)
}

// fault completes an error about the member. The location of err, if any, is relative to the member's data; otherwise
// offset is.
func (m *member) fault(err error, offset int64) error {
	var e *pyfeed.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.At != nil {
		offset = e.At.Offset
	}
	located := *e
	located.Text, located.At = "array "+quote(m.name)+": "+e.Text, m.location(offset)
	return &located
}

func (m *member) corrupt(offset int64, format string, args ...any) error {
	return m.fault(pyfeed.Errorf(pyfeed.Corrupt, format, args...), offset)
}

// methods are the compression methods of zip that this package cannot read.
var methods = map[uint16]string{1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 94: "mp3", 95: "xz", 99: "AES encryption"}

// maxRatio is how many bytes one byte of deflate can hold at most.
const maxRatio = 1032

// locate finds the member's data, parses its npy header, and checks that all sizes agree.
func (m *member) locate() error {
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
	case f.UncompressedSize64/maxRatio > f.CompressedSize64:
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
	return "an unknown one"
}

// head returns the npy header, and perhaps more bytes.
func (m *member) head() ([]byte, error) {
	size := m.file.UncompressedSize64
	if m.file.Method == zip.Store {
		return m.stored, nil
	}
	in := inflaters.Get().(*inflater)
	defer in.release()
	in.begin(m.f, m.stored)
	head := make([]byte, min(size, 512)) // NumPy's headers have 128
	n, err := io.ReadFull(in, head)
	if err != nil {
		return nil, m.broken(n, err)
	}
	begin, err := npy.DataOffset(head)
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

// broken returns an error about compressed data that ended or failed after n decompressed bytes.
func (m *member) broken(n int, err error) error {
	if err == storage.ErrInterrupted {
		return err
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return m.corrupt(0, "expected %d bytes when inflated, as the directory says, found %d", m.file.UncompressedSize64, n)
	}
	return m.corrupt(0, "inflating, after %d bytes: %s", n, strings.TrimPrefix(err.Error(), "flate: "))
}

// checkOverlap returns an error if members overlap: otherwise a small file could hold any amount of data.
func (r *records) checkOverlap() error {
	sorted := slices.Clone(r.members)
	slices.SortFunc(sorted, func(a, b *member) int { return a.at - b.at })
	for i, m := range sorted[1:] {
		if before := sorted[i]; before.at+len(before.stored) > m.at {
			return m.corrupt(0, "expected members apart from each other, found it inside of array %s", quote(before.name))
		}
	}
	return nil
}

// Read fills the slots one after the other, each for many tuples.
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
	for _, m := range r.members { // before any slot is read, since this may take long and be interrupted
		there, err := m.in.Prepare(m)
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
	whole := n // tuples with all their slots
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

// ReadBlock implements record.BlockReader for rows that are used in place in all members.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	n := limit
	for _, m := range r.members { // before any slot is read: after an error, Read returns it
		if r.err != nil || n == 0 {
			return nil
		}
		n = m.in.Viewable(n, m)
	}
	if n == 0 {
		return nil
	}
	blocks := make([]*record.Block, len(r.members))
	for i, m := range r.members {
		blocks[i] = m.in.View(n, m)
		n = min(n, blocks[i].Len())
	}
	for i, m := range r.members {
		if more := blocks[i].Len() - n; more > 0 { // it was in memory for more instances than another member
			blocks[i].Shorten(n)
			m.in.Next -= int64(more)
		}
	}
	block := record.Join(blocks, make([]int, len(blocks)), n)
	r.next += int64(n)
	for _, m := range r.members {
		if m.in.Next == m.in.Count {
			m.drop()
		}
	}
	return block
}

// read fills a slot of all tuples. On an error, n is the number of tuples filled.
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

// numbered adds the number of the record to an error that occurred after n of the next instances.
func (m *member) numbered(err error, n int) error {
	if err == nil || err == storage.ErrInterrupted {
		return err
	}
	if e := m.f.CheckTruncated(); e != nil {
		err = e
	}
	var e *pyfeed.Error
	if errors.As(err, &e) && e.At != nil {
		e.At.Record = m.next + int64(n)
	}
	return err
}

// Interrupt implements npy.Source.
func (m *member) Interrupt() *storage.Interrupt { return m.f.Interrupt() }

// Peek implements npy.Source. The data that it returns has been checked.
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
	// maxEagerCheck is how many bytes are checked before the first instance is delivered. The checksum of a larger
	// stored member is computed as its instances are read; if it is wrong, the last ones are not delivered.
	maxEagerCheck = 64 << 20
	// piece is how many bytes are checked at a time, so that they are in the cache when they are used.
	piece = 256 << 10
)

// check verifies the checksum of a stored member, at least up to the offset end.
func (m *member) check(end int) error {
	if len(m.data) <= maxEagerCheck {
		end = len(m.data)
	}
	for begin := m.checked; m.checked < end; {
		if m.checked-begin > storage.PollEvery {
			if err := m.f.Poll(); err != nil {
				return err
			}
			begin = m.checked
		}
		next := min(m.checked+piece, len(m.data))
		m.crc = crc32.Update(m.crc, crc32.IEEETable, m.data[m.checked:next])
		m.checked = next
	}
	if m.checked == len(m.data) {
		return m.verify()
	}
	return nil
}

func (m *member) verify() error {
	if m.crc != m.file.CRC32 {
		return m.corrupt(0, "checksum: expected %08x, found %08x", m.file.CRC32, m.crc)
	}
	return nil
}

// load sets data: to the bytes of a stored member, or to the decompressed and verified bytes.
func (m *member) load() error {
	if m.file.Method == zip.Store {
		m.data = m.stored
		return nil
	}
	in := inflaters.Get().(*inflater)
	defer in.release()
	in.begin(m.f, m.stored)
	size := int(m.file.UncompressedSize64)
	// Memory grows with the data found, not with the size that the directory claims.
	b, err := m.pool.Get(min(size, max(64<<10, 8*len(m.stored))))
	if err != nil {
		return err
	}
	have := 0
	m.crc = 0
	for {
		if err := m.f.Poll(); err != nil {
			b.Release()
			return err
		}
		n, err := io.ReadFull(in, b.Bytes()[have:min(b.Size(), have+piece)])
		m.crc = crc32.Update(m.crc, crc32.IEEETable, b.Bytes()[have:have+n])
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
	if err := m.verify(); err != nil {
		b.Release()
		return err
	}
	m.memory = b
	m.data, m.checked = b.Bytes(), size
	return nil
}

// Hold implements npy.Source.
func (m *member) Hold(at, size, n int) (*memory.Buffer, int) {
	switch {
	case m.file.Method != zip.Store:
	case !m.f.IsMapped():
		return m.f.Hold(n), n
	default:
		// The File holds only one window, but each member reads at another position.
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

// drop releases the member's memory after its last instance.
func (m *member) drop() {
	m.in.Close()
	m.release()
	m.data = nil
}

// Resync ends the file: damage in an array makes the whole array unusable.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Position implements record.Seeker. It is the number of the instance.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.next}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	for _, m := range r.members {
		if err := m.in.CheckPosition(r.f.Path(), p); err != nil {
			return err
		}
		m.in.SeekTo(p.Offset)
	}
	r.next, r.err = p.Offset, nil
	return nil
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.f.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.f.CheckUnchanged() }

// Close closes the file.
func (r *records) Close() {
	for _, m := range r.members {
		if m.in != nil {
			m.in.Close()
		}
		m.release()
	}
	r.f.Close()
}

// Describe returns the slots that the headers describe.
func (r *records) Describe() (slots []pyfeed.Slot, names []string, err error) {
	for _, m := range r.members {
		slots, names = append(slots, m.in.Slot()), append(names, m.name)
	}
	return slots, names, nil
}

// inflater decompresses. inflaters keeps it for reuse, since its tables are large.
type inflater struct {
	from       bytes.Reader
	compressed storage.CompressedInput // reads from
	pieces     *bufio.Reader           // reads compressed
	flate      io.ReadCloser
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{pieces: bufio.NewReaderSize(nil, 64<<10)}
	in.flate = flate.NewReader(in.pieces)
	return in
}}

func (in *inflater) begin(f *storage.File, data []byte) {
	in.from.Reset(data)
	in.compressed = f.Interrupt().CompressedInput(&in.from)
	in.pieces.Reset(&in.compressed)
	_ = in.flate.(flate.Resetter).Reset(in.pieces, nil)
}

func (in *inflater) Read(b []byte) (int, error) {
	n, err := in.flate.Read(b)
	in.compressed.Produced(n)
	return n, err
}

func (in *inflater) release() {
	in.from.Reset(nil)
	in.compressed = storage.CompressedInput{}
	inflaters.Put(in)
}

// end returns an error unless the compressed data ends here and no bytes follow it.
func (in *inflater) end() error {
	var more [1]byte
	switch n, err := in.Read(more[:]); {
	case n > 0 || err == nil:
		return errors.New("expected the end, found more data")
	case err != io.EOF:
		return err
	case in.from.Len()+in.pieces.Buffered() > 0:
		return errors.New("expected the end, found bytes after it")
	}
	return nil
}

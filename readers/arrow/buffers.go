package arrow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A region is a buffer of an array: bytes of a mapped file, or of memory that the region holds.
type region struct {
	data   []byte
	offset int64          // of data in the mapped file; -1: data is in memory
	memory *memory.Buffer // that holds data, or the window of a mapped file; nil: none yet
	window int64          // number of that window
}

// hold returns references to the memory of n elements of size bytes from at on. If not all of them begin in the same
// memory, it returns references for the first of them, at least one. It returns their number. Each column of a batch is
// at another place of the file, but a File holds one window only, so each region holds one.
func (g *region) hold(f *storage.File, at, size, n int) (*memory.Buffer, int) {
	if g.offset >= 0 {
		offset := g.offset + int64(at)
		if window := offset / memory.WindowSize; g.memory == nil || g.window != window {
			g.release()
			g.memory, g.window = f.HoldAt(offset, 1), window
		}
		n = storage.InWindow(offset, size, n)
	}
	g.memory.Retain(n)
	return g.memory, n
}

func (g *region) release() {
	if g.memory != nil {
		g.memory.Release()
		g.memory = nil
	}
}

// batch is a record batch, or the values of a dictionary.
type batch struct {
	header   batchHeader
	body     []byte
	offset   int64          // of the body in the file
	mapped   bool           // the body is in a mapped file
	memory   *memory.Buffer // that the body is in, if the file is not mapped
	arrays   []array        // by node
	position []int          // number of the first variadic buffer of each array of views, among all of them
}

// array is a field of a batch.
type array struct {
	loaded   bool
	length   int
	allNull  bool
	validity region // bits; no data: no element is null
	offsets  region // of lists and byte strings; of arrays that are encoded by a dictionary, the indices
	data     region // or bits, or views
	variadic []region
}

// release releases the arrays and the body.
func (b *batch) release() {
	for i := range b.arrays {
		a := &b.arrays[i]
		for _, g := range []*region{&a.validity, &a.offsets, &a.data} {
			g.release()
		}
		for k := range a.variadic {
			a.variadic[k].release()
		}
		*a = array{}
	}
	if b.memory != nil {
		b.memory.Release()
		b.memory = nil
	}
	b.body = nil
}

// begin checks the numbers of nodes and buffers against the schema.
func (b *batch) begin(s *schema) error {
	views, sum := s.count.views, int64(0)
	b.position = b.position[:0]
	if len(b.header.variadic) != views {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected the number of buffers of %d arrays of views, found those of %d", views, len(b.header.variadic))
	}
	for _, n := range b.header.variadic {
		b.position = append(b.position, int(sum))
		if sum += n; n < 0 || sum > int64(len(b.header.parts)) {
			return pyfeed.Errorf(pyfeed.Corrupt, "expected the number of buffers of an array of views, found %d", n)
		}
	}
	b.position = append(b.position, int(sum))
	if nodes, parts := s.count.nodes, s.count.parts+int(sum); len(b.header.nodes) != nodes || len(b.header.parts) != parts {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected %d arrays and %d buffers, as the schema says, found %d and %d",
			nodes, parts, len(b.header.nodes), len(b.header.parts))
	}
	if cap(b.arrays) < s.count.nodes {
		b.arrays = make([]array, s.count.nodes)
	}
	b.arrays = b.arrays[:s.count.nodes]
	return nil
}

// maxEmpty limits the number of elements without data, since a header of a few bytes can claim any number. Only tests
// change it.
var maxEmpty = 1 << 24

// load returns the array of a field. After storage.ErrInterrupted, the next call goes on.
func (b *batch) load(f *field, r *records) (*array, error) {
	a := &b.arrays[f.node]
	if a.loaded {
		return a, nil
	}
	n := b.header.nodes[f.node]
	if n.length < 0 || n.length > 1<<48 || n.nulls > n.length {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "expected numbers of elements and of nulls, found %d and %d", n.length, n.nulls)
	}
	a.length = int(n.length)
	if f.kind == typeNull && !f.encoded {
		a.allNull, a.loaded = true, true
		return a, a.checkEmpty()
	}
	next := f.part + b.position[f.views] // variadic buffers of arrays before it
	part := func(g *region, least int64, what string) error {
		i := next
		next++
		if least < 0 || g.data != nil {
			return nil
		}
		if err := b.part(i, g, r); err != nil {
			return err
		}
		if int64(len(g.data)) < least {
			found := len(g.data)
			g.release()
			*g = region{}
			return pyfeed.Errorf(pyfeed.Corrupt, "expected at least %d bytes of %s for %d elements, found %d", least, what, n.length, found)
		}
		return nil
	}
	bits := (n.length + 7) / 8
	validity := int64(-1)
	if n.nulls != 0 && n.length > 0 {
		validity = bits
	}
	if err := part(&a.validity, validity, "validity"); err != nil {
		return nil, err
	}
	var err error
	width := int64(f.width)
	offsets := (n.length + 1) * pick[int64](f.isWide(), 8, 4)
	if n.length == 0 {
		offsets = 0 // such an array may have no offsets
	}
	switch {
	case f.encoded:
		err = part(&a.offsets, n.length*int64(f.index.Size()), "indices")
	case f.kind == typeStruct || f.kind == typeFixedList:
	case f.kind == typeBool:
		err = part(&a.data, bits, "bits")
	case f.kind == typeList || f.kind == typeLargeList || f.kind == typeMap:
		err = part(&a.offsets, offsets, "offsets")
	case f.kind == typeBinaryView || f.kind == typeUtf8View:
		if err = part(&a.data, n.length*viewSize, "views"); err != nil {
			break
		}
		if a.variadic == nil {
			a.variadic = make([]region, b.header.variadic[f.views])
		}
		for i := range a.variadic {
			if err = part(&a.variadic[i], 0, "data"); err != nil {
				break
			}
		}
	case f.isBytes():
		if err = part(&a.offsets, offsets, "offsets"); err == nil {
			err = part(&a.data, 0, "data")
		}
	case width == 0:
		err = a.checkEmpty()
		a.data = region{data: []byte{}, offset: -1}
	case n.length > 1<<62/width:
		err = pyfeed.Errorf(pyfeed.Corrupt, "expected fewer elements, found %d", n.length)
	default:
		err = part(&a.data, n.length*width, "data")
	}
	a.loaded = err == nil
	return a, err
}

func (a *array) checkEmpty() error {
	if a.length > maxEmpty {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected at most %d elements without data, found %d", maxEmpty, a.length)
	}
	return nil
}

// isWide reports whether offsets have 64 bits.
func (f *field) isWide() bool {
	return f.kind == typeLargeBinary || f.kind == typeLargeUtf8 || f.kind == typeLargeList
}

// part makes g buffer number i, decompressed.
func (b *batch) part(i int, g *region, r *records) error {
	p := b.header.parts[i]
	if p.at < 0 || p.size < 0 || p.at > int64(len(b.body)) || p.size > int64(len(b.body))-p.at {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected a buffer inside of the body of %d bytes, found %d bytes at %d", len(b.body), p.size, p.at)
	}
	data := b.body[p.at : p.at+p.size : p.at+p.size]
	if b.header.codec != codecNone && len(data) > 0 {
		if len(data) < 8 {
			return pyfeed.Errorf(pyfeed.Corrupt, "expected a buffer that begins with its size in 8 bytes, found %d bytes", len(data))
		}
		size := int64(binary.LittleEndian.Uint64(data))
		data = data[8:]
		p.at += 8
		if size != -1 {
			memory, err := r.decompress(b.header.codec, data, size)
			if err != nil {
				return err
			}
			*g = region{data: memory.Bytes()[:size:size], offset: -1, memory: memory}
			return nil
		}
	}
	*g = region{data: data, offset: -1}
	if data == nil {
		g.data = []byte{}
	}
	if b.mapped {
		g.offset = b.offset + p.at
		return nil
	}
	b.memory.Retain(1)
	g.memory = b.memory
	return nil
}

// decompressor decompresses buffers. decompressors keeps some for reuse, since their tables are large.
type decompressor struct {
	from       bytes.Reader
	compressed storage.CompressedInput // reads from
	zstd       *zstd.Decoder
	lz4        *lz4.Reader
}

var decompressors = sync.Pool{New: func() any { return new(decompressor) }}

func (d *decompressor) begin(codec int, data []byte, stop *storage.Interrupt) (in io.Reader, err error) {
	d.from.Reset(data)
	d.compressed = stop.CompressedInput(&d.from)
	if codec == codecLZ4 {
		if d.lz4 == nil {
			d.lz4 = lz4.NewReader(nil)
			err = d.lz4.Apply(lz4.ConcurrencyOption(1))
		}
		d.lz4.Reset(&d.compressed)
		return d.lz4, err
	}
	if d.zstd == nil {
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(512<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
	}
	return d.zstd, d.zstd.Reset(&d.compressed)
}

func (d *decompressor) release() {
	d.from.Reset(nil)
	d.compressed = storage.CompressedInput{}
	decompressors.Put(d)
}

// decompress returns the decompressed bytes of a buffer. They MUST be size bytes; memory grows with the data found.
func (r *records) decompress(codec int, data []byte, size int64) (*memory.Buffer, error) {
	if size < 0 || size > 1<<46 {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "expected the size of a decompressed buffer, found %d", size)
	}
	broken := func(have int, err error) error {
		if err == storage.ErrInterrupted || r.f.Interrupt().Stopped() {
			return storage.ErrInterrupted
		}
		if err == nil || err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return pyfeed.Errorf(pyfeed.Corrupt, "decompressing: expected %d bytes, found %d", size, have)
		}
		return pyfeed.Errorf(pyfeed.Corrupt, "decompressing, after %d of %d bytes: %v", have, size, err)
	}
	d := decompressors.Get().(*decompressor)
	defer d.release()
	in, err := d.begin(codec, data, r.f.Interrupt())
	if err != nil {
		return nil, broken(0, err)
	}
	b, err := r.pool.Get(int(min(size, max(64<<10, 8*int64(len(data))))))
	if err != nil {
		return nil, err
	}
	have := 0
	for polled := 0; ; {
		if have-polled > storage.PollEvery {
			if err := r.f.Poll(); err != nil {
				b.Release()
				return nil, err
			}
			polled = have
		}
		n, err := io.ReadFull(in, b.Bytes()[have:min(b.Size(), have+piece)])
		d.compressed.Produced(n)
		have += n
		if err == nil && int64(have) == size {
			var more [1]byte
			if n, err = io.ReadFull(in, more[:]); n == 0 && err == io.EOF {
				return b, nil
			}
			if n > 0 {
				err = errors.New("expected the end, found more data")
			}
		}
		if err != nil {
			b.Release()
			return nil, broken(have, err)
		}
		if have < b.Size() {
			continue
		}
		larger, err := r.pool.Get(int(min(size, 2*int64(have))))
		if err != nil {
			b.Release()
			return nil, err
		}
		err = r.f.Interrupt().Copy(larger.Bytes(), b.Bytes()[:have])
		b.Release()
		if b = larger; err != nil {
			b.Release()
			return nil, err
		}
	}
}

const piece = 1 << 20 // bytes that are decompressed at a time

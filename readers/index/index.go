// Package index keeps where each record of a file begins, in a file of its own beside the data: an index. With it, a
// record can be read by its number.
//
// An index is written in little-endian order:
//
//	magic      8 bytes, "PFINDEX1"
//	crc        uint32, CRC-32C of the other bytes of the header
//	words      uint32, 1 or 2: of a position
//	size       int64, bytes of the data file
//	changed    int64, the time of its last change, in nanoseconds since 1970
//	made       uint64, a hash of what decides where the records are, such as the format
//	damaged    int64, damaged places that are left out
//	count      int64, of positions
//	sum        uint32, CRC-32C of the positions, and 4 zeros
//	positions  count times the Offset of a record.Position; if words is 2, its Inner follows each
package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

const (
	magic      = "PFINDEX1"
	headerSize = 64
	suffix     = ".pfindex"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Path returns the path of a file's index: in dir, or beside the file if dir is "". Searches for files leave out an
// index, because its name begins with a dot.
func Path(file, dir string) string {
	base := filepath.Base(file)
	short := base[:min(len(base), maxBase)]
	if dir == "" && short == base {
		return filepath.Join(filepath.Dir(file), "."+base+suffix)
	}
	name := base
	if dir == "" {
		dir = filepath.Dir(file)
	} else if whole, err := filepath.Abs(file); err == nil {
		name = whole
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // cannot fail
	return filepath.Join(dir, fmt.Sprintf(".%s-%016x%s", short, h.Sum64(), suffix))
}

// maxBase limits the part of an index's name that is a file's name. The rest is for hash, suffix and temporary names.
const maxBase = 190

// Key tells whether an index is that of a file.
type Key struct {
	Size, Changed int64  // bytes; nanoseconds since 1970
	Made          uint64 // a hash of what decides where the records are
}

// KeyOf returns the key of a file. made describes what decides where its records are.
func KeyOf(path, made string) (Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Key{}, err
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(made)) // cannot fail
	return Key{info.Size(), info.ModTime().UnixNano(), h.Sum64()}, nil
}

// ErrOther is the error of Load for an index of another file, or of the file as it was before a change.
var ErrOther = errors.New("the index is of another file, or of the file as it was before it was changed")

// Index has the positions of a file's records. Any goroutine may use it.
type Index struct {
	path      string
	mapping   *memory.Mapping // nil: positions is a copy
	positions []byte
	words     int
	count     int64
	damaged   int64
	sum       uint32 // of the positions
	limit     int64  // offsets are less than that
}

// smallIndex is the size in bytes up to which an index is copied: a process cannot map any number of files.
const smallIndex = 64 << 10

// unpooled maps indexes. Its mappings survive that a file is cut off.
var unpooled = memory.NewUnpooled(memory.File)

// Load opens an index. Its error is [ErrOther], or one of the system, such as fs.ErrNotExist, or one of kind Corrupt.
func Load(path string, key Key) (*Index, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it does not wait if the name is that of a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var head [headerSize]byte
	if n, err := f.ReadAt(head[:], 0); err != nil {
		return nil, corrupt(path, int64(n), "expected a header of %d bytes, found %d", headerSize, n)
	}
	x, found, err := parse(path, head[:], info.Size())
	if err != nil {
		return nil, err
	}
	if found != key {
		return nil, ErrOther
	}
	x.path, x.limit = path, key.Size
	if info.Size() <= smallIndex {
		x.positions = make([]byte, info.Size()-headerSize)
		if n, err := f.ReadAt(x.positions, headerSize); n < len(x.positions) {
			return nil, err
		}
		if found := crc32.Checksum(x.positions, castagnoli); found != x.sum {
			return nil, corrupt(path, headerSize, "CRC of the positions: expected 0x%08x, found 0x%08x", x.sum, found)
		}
		return x, nil
	}
	if x.mapping, err = unpooled.Map(path, int(f.Fd()), info.Size()); err != nil {
		return nil, &os.PathError{Op: "map", Path: path, Err: err}
	}
	_ = unix.Madvise(x.mapping.Bytes(), unix.MADV_RANDOM) // a hint only
	x.positions = x.mapping.Bytes()[headerSize:]
	return x, nil
}

// parse checks the header of an index of so many bytes.
func parse(path string, head []byte, size int64) (*Index, Key, error) {
	order := binary.LittleEndian
	if string(head[:len(magic)]) != magic {
		return nil, Key{}, corrupt(path, 0, "expected %q, found %q", magic, head[:len(magic)])
	}
	if want, found := order.Uint32(head[8:]), headerCRC(head); want != found {
		return nil, Key{}, corrupt(path, 8, "CRC of the header: expected 0x%08x, found 0x%08x", want, found)
	}
	x := &Index{words: int(order.Uint32(head[12:])), damaged: int64(order.Uint64(head[40:])), count: int64(order.Uint64(head[48:])),
		sum: order.Uint32(head[56:])}
	key := Key{int64(order.Uint64(head[16:])), int64(order.Uint64(head[24:])), order.Uint64(head[32:])}
	if x.words != 1 && x.words != 2 {
		return nil, key, corrupt(path, 12, "expected 1 or 2 words for a position, found %d", x.words)
	}
	if rest := (size - headerSize) / int64(8*x.words); x.count < 0 || x.count > rest || headerSize+x.count*int64(8*x.words) != size {
		return nil, key, corrupt(path, 48, "expected %d bytes of positions, found %d", x.count*int64(8*x.words), size-headerSize)
	}
	return x, key, nil
}

func headerCRC(head []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:8], castagnoli), castagnoli, head[12:headerSize])
}

func corrupt(path string, offset int64, format string, args ...any) error {
	e := pyfeed.Errorf(pyfeed.Corrupt, format, args...)
	e.At = &pyfeed.Location{File: path, Offset: offset, Record: -1}
	return e
}

// Count returns the number of records.
func (x *Index) Count() int64 { return x.count }

// Damaged returns the number of damaged places that were left out when the index was made.
func (x *Index) Damaged() int64 { return x.damaged }

// Position returns where a record begins. It is an error if the index was cut off since Load, or if the position is not
// between those of the neighbours: the sum of a large index is not checked.
func (x *Index) Position(i int64) (record.Position, error) {
	p := x.at(i)
	if p.Offset < 0 || p.Offset >= x.limit || i > 0 && !precedes(x.at(i-1), p) || i+1 < x.count && !precedes(p, x.at(i+1)) {
		return p, corrupt(x.path, headerSize+i*int64(8*x.words), "expected positions that increase, below %d, found %d: remove the index", x.limit, p.Offset)
	}
	if x.mapping != nil && x.mapping.IsTorn() {
		return p, corrupt(x.path, -1, "expected an index that stays as it is, found that it was written to meanwhile")
	}
	return p, nil
}

func (x *Index) at(i int64) (p record.Position) {
	words := x.positions[i*int64(8*x.words):]
	p.Offset = int64(binary.LittleEndian.Uint64(words))
	if x.words == 2 {
		p.Inner = int64(binary.LittleEndian.Uint64(words[8:]))
	}
	return p
}

// precedes reports whether a record at p comes before one at q.
func precedes(p, q record.Position) bool {
	return p.Offset < q.Offset || p.Offset == q.Offset && p.Inner < q.Inner
}

// Close unmaps the index. It must not be used afterwards.
func (x *Index) Close() {
	if x.mapping != nil {
		x.mapping.Close()
		x.mapping, x.positions = nil, nil
	}
}

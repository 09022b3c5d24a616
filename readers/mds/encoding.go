package mds

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// kind is how the data of a column becomes a slot.
type kind int

const (
	opaque  kind = iota // the bytes as they are
	number              // a number in the file's byte order
	integer             // the digits of an integer
	float               // the digits of a float
	array               // an array
	pickle              // Python objects, which only Python can read
	foreign             // not known
)

// encoding is that of a column.
type encoding struct {
	name  string
	kind  kind
	known bool
	dtype pyfeed.DType // of number and array; Any: each array has its own
	dims  pyfeed.Dims  // of array; nil: each array has its own
}

// opaques are the encodings whose data are bytes, text, or files of images.
var opaques = []string{"bytes", "str", "str_decimal", "json", "jpeg", "png", "pil", "jpeg_array", "jpegarray", "list[jpeg]", "list[png]", "list[pil]"}

// arrayTypes are the dtypes of arrays by their codes.
var arrayTypes = map[byte]pyfeed.DType{8: pyfeed.Uint8, 9: pyfeed.Int8, 16: pyfeed.Uint16, 17: pyfeed.Int16, 18: pyfeed.Float16, 32: pyfeed.Uint32,
	33: pyfeed.Int32, 34: pyfeed.Float32, 64: pyfeed.Uint64, 65: pyfeed.Int64, 66: pyfeed.Float64}

// isNumber reports whether numbers and arrays of a dtype can be stored.
func isNumber(d pyfeed.DType) bool {
	for _, known := range arrayTypes {
		if known == d {
			return true
		}
	}
	return false
}

func encodingOf(name string) encoding {
	e := encoding{name: name, known: true}
	base, arguments, has := strings.Cut(name, ":")
	d, _ := pyfeed.DTypeOf(name)
	switch {
	case slices.Contains(opaques, name):
	case name == "int":
		e.kind, e.dtype = number, pyfeed.Int64
	case isNumber(d):
		e.kind, e.dtype = number, d
	case name == "str_int":
		e.kind, e.dtype = integer, pyfeed.Int64
	case name == "str_float":
		e.kind, e.dtype = float, pyfeed.Float64
	case name == "pkl":
		e.kind = pickle
	case base == "ndarray" && e.parseArray(arguments, has):
		e.kind = array
	default:
		e.kind, e.known = foreign, false
	}
	return e
}

// parseArray parses the dtype and the shape of an array, which may both be left out.
func (e *encoding) parseArray(arguments string, has bool) bool {
	if !has {
		return true
	}
	name, shape, fixed := strings.Cut(arguments, ":")
	d, _ := pyfeed.DTypeOf(name)
	if !isNumber(d) {
		return false
	}
	e.dtype = d
	if !fixed {
		return true
	}
	for _, text := range strings.Split(shape, ",") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return false
		}
		e.dims = append(e.dims, n)
	}
	_, ok := byteSize(d, e.dims)
	return ok
}

// byteSize returns the bytes of an array. It returns false if memory cannot hold it, or it has too many dimensions.
func byteSize(d pyfeed.DType, dims []int64) (int64, bool) {
	n := uint64(d.Size())
	for _, dim := range dims {
		high, low := bits.Mul64(n, uint64(dim))
		if high != 0 || low > math.MaxInt {
			return 0, false
		}
		n = low
	}
	return int64(n), len(dims) <= pyfeed.MaxRank
}

// size returns the bytes that the data of all samples has; -1: they differ.
func (e *encoding) size() int64 {
	switch {
	case e.kind == number:
		return int64(e.dtype.Size())
	case e.kind == array && e.dims != nil:
		n, _ := byteSize(e.dtype, e.dims)
		return n
	}
	return -1
}

// parsed is the array of a sample.
type parsed struct {
	dtype pyfeed.DType
	rank  int
	shape [pyfeed.MaxRank]int64
	begin int // of the elements in the data
}

// dims returns the shape. It is valid as long as p.
func (p *parsed) dims() []int64 { return p.shape[:p.rank] }

// parse parses the dtype and the shape in the data of an array, as far as the encoding does not have them.
func (e *encoding) parse(data []byte, p *parsed) error {
	p.dtype, p.begin, p.rank = e.dtype, 0, copy(p.shape[:], e.dims)
	take := func(n int) ([]byte, error) {
		if len(data)-p.begin < n {
			return nil, fmt.Errorf("expected an array, found the end after %d bytes", len(data))
		}
		p.begin += n
		return data[p.begin-n : p.begin], nil
	}
	if e.dtype == pyfeed.Any {
		b, err := take(1)
		if err != nil {
			return err
		}
		known := false
		if p.dtype, known = arrayTypes[b[0]]; !known {
			return fmt.Errorf("expected the code of a dtype, found %d", b[0])
		}
	}
	if e.dims == nil {
		b, err := take(1)
		if err != nil {
			return err
		}
		rank, item := int(b[0]>>2), 1<<(b[0]&3)
		if rank > pyfeed.MaxRank {
			return fmt.Errorf("expected an array of at most %d dimensions, found %d", pyfeed.MaxRank, rank)
		}
		if b, err = take(rank * item); err != nil {
			return err
		}
		p.rank = rank
		for i := range rank {
			var wide [8]byte
			copy(wide[:], b[i*item:(i+1)*item])
			n := binary.LittleEndian.Uint64(wide[:])
			if n > math.MaxInt64 {
				return fmt.Errorf("expected dimensions that memory can hold, found %d", n)
			}
			p.shape[i] = int64(n)
		}
	}
	size, can := byteSize(p.dtype, p.dims())
	if found := int64(len(data) - p.begin); !can || size != found {
		return fmt.Errorf("expected an array of dims %v of %v, found %d bytes", p.dims(), p.dtype, found)
	}
	return nil
}

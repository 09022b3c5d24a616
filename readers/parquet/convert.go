package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// converter converts one value from its physical form to an element of the output. It returns an error if the element
// cannot represent the value.
type converter func(to, from []byte) error

// form is what the values of a column are without a request.
type form struct {
	dtype   pyfeed.DType
	dims    pyfeed.Dims // of a value
	text    bool        // a value is a byte string of any length
	convert converter   // nil: elements are the physical values themselves
}

func (l *leaf) form() form {
	switch l.typ {
	case typeBoolean:
		return form{dtype: pyfeed.Bool}
	case typeInt32, typeInt64:
		d := pyfeed.Int32
		if l.typ == typeInt64 {
			d = pyfeed.Int64
		}
		switch l.annotation {
		case annotatedDecimal:
			return form{dtype: pyfeed.Float64, convert: decimal(l, pyfeed.Float64)}
		case annotatedInteger:
			if l.bits == 8*l.typ.size() && l.unsigned {
				return form{dtype: d + pyfeed.Uint32 - pyfeed.Int32}
			}
			if l.typ == typeInt32 && (l.bits == 8 || l.bits == 16) {
				d = pyfeed.Int8
				if l.bits == 16 {
					d = pyfeed.Int16
				}
				if l.unsigned {
					d += pyfeed.Uint8 - pyfeed.Int8
				}
				return form{dtype: d, convert: cast(pyfeed.Int32, d)}
			}
		}
		return form{dtype: d}
	case typeInt96:
		return form{dtype: pyfeed.Int64, convert: fromInt96}
	case typeFloat:
		return form{dtype: pyfeed.Float32}
	case typeDouble:
		return form{dtype: pyfeed.Float64}
	}
	switch {
	case l.annotation == annotatedDecimal:
		return form{dtype: pyfeed.Float64, convert: decimal(l, pyfeed.Float64)}
	case l.typ == typeByteArray:
		return form{dtype: pyfeed.Uint8, text: true}
	case l.annotation == annotatedFloat16 && l.length == 2:
		return form{dtype: pyfeed.Float16}
	}
	return form{dtype: pyfeed.Uint8, dims: pyfeed.Dims{int64(l.length)}}
}

// requested returns a converter of the values of a column to a dtype, or an error if there is none.
func requested(l *leaf, d pyfeed.DType) (converter, error) {
	f := l.form()
	from, isNumber := f.dtype, !f.text && f.dims == nil
	switch {
	case from == d && !f.text:
		return f.convert, nil
	case isNumber && l.annotation == annotatedDecimal && d == pyfeed.Int64:
		return decimal(l, d), nil
	case isNumber && l.annotation == annotatedDecimal:
		from = pyfeed.Float64
	}
	if !isNumber || !castable(from, d) {
		return nil, fmt.Errorf("dtype: expected one that %s can be converted to, found %v", l.describe(), d)
	}
	last := cast(from, d)
	if f.convert == nil {
		return last, nil
	}
	return func(to, value []byte) error {
		var between [8]byte
		if err := f.convert(between[:from.Size()], value); err != nil {
			return err
		}
		return last(to, between[:from.Size()])
	}, nil
}

func isFloat(d pyfeed.DType) bool { return d == pyfeed.Float32 || d == pyfeed.Float64 }

func isInteger(d pyfeed.DType) bool { return d >= pyfeed.Bool && d <= pyfeed.Uint64 }

// castable reports whether numbers of a dtype can be converted to another: integers to integers that hold them and to
// floats, and floats to other floats.
func castable(from, to pyfeed.DType) bool {
	switch {
	case from == pyfeed.Bool || to == pyfeed.Bool:
		return from == pyfeed.Bool && (isInteger(to) || isFloat(to))
	case isInteger(from):
		return isInteger(to) || isFloat(to)
	}
	return (isFloat(from) || from == pyfeed.Float16) && isFloat(to)
}

// cast returns a converter of elements.
func cast(from, to pyfeed.DType) converter {
	order := binary.NativeEndian
	size := to.Size()
	switch {
	case from == pyfeed.Int32 && size == 1 && isInteger(to): // pixels and categories
		least, most := int32(0), int32(math.MaxUint8)
		if to == pyfeed.Int8 {
			least, most = math.MinInt8, math.MaxInt8
		}
		return func(out, value []byte) error {
			v := int32(order.Uint32(value))
			if v < least || v > most {
				return fmt.Errorf("expected a value of %v, found %d", to, v)
			}
			out[0] = byte(v)
			return nil
		}
	case isInteger(from) && isInteger(to):
		return func(out, value []byte) error {
			v, _ := record.Integer(from, value)
			if !fits(v, from, to) {
				if from == pyfeed.Uint64 {
					return fmt.Errorf("expected a value of %v, found %d", to, uint64(v))
				}
				return fmt.Errorf("expected a value of %v, found %d", to, v)
			}
			record.PutElement(out, size, uint64(v))
			return nil
		}
	}
	return func(out, value []byte) error {
		f := float(from, value)
		if to == pyfeed.Float32 {
			order.PutUint32(out, math.Float32bits(float32(f)))
		} else {
			order.PutUint64(out, math.Float64bits(f))
		}
		return nil
	}
}

// fits reports whether an integer of a dtype can be one of another dtype.
func fits(v int64, from, to pyfeed.DType) bool {
	if from == pyfeed.Uint64 && v < 0 {
		return to == pyfeed.Uint64
	}
	bits := uint(to.Size() * 8)
	if to >= pyfeed.Uint8 {
		return v >= 0 && (bits == 64 || v < 1<<bits)
	}
	return bits == 64 || v >= -1<<(bits-1) && v < 1<<(bits-1)
}

// float returns a number as a float.
func float(d pyfeed.DType, value []byte) float64 {
	order := binary.NativeEndian
	switch d {
	case pyfeed.Float16:
		return record.FromHalf(order.Uint16(value), d)
	case pyfeed.Float32:
		return float64(math.Float32frombits(order.Uint32(value)))
	case pyfeed.Float64:
		return math.Float64frombits(order.Uint64(value))
	}
	v, _ := record.Integer(d, value)
	if d == pyfeed.Uint64 {
		return float64(uint64(v))
	}
	return float64(v)
}

// fromInt96 converts a time of Impala and older Spark: nanoseconds of a day, and the number of a Julian day. The result
// is in nanoseconds since 1970.
func fromInt96(to, from []byte) error {
	const epoch, day = 2440588, 24 * 60 * 60 * 1_000_000_000
	nanos := int64(binary.LittleEndian.Uint64(from))
	days := int64(int32(binary.LittleEndian.Uint32(from[8:]))) - epoch
	if limit := int64(math.MaxInt64)/day - 1; days > limit || days < -limit {
		return fmt.Errorf("expected a time that nanoseconds since 1970 can represent in 64 bits, found Julian day %d", days+epoch)
	}
	binary.NativeEndian.PutUint64(to, uint64(days*day+nanos))
	return nil
}

// decimal returns a converter of decimals: to float64, the nearest to the number; or to int64, the digits without the
// scale.
func decimal(l *leaf, to pyfeed.DType) converter {
	scale := l.scale
	read := func(from []byte) (int64, *big.Int) {
		switch l.typ {
		case typeInt32:
			return int64(int32(binary.LittleEndian.Uint32(from))), nil
		case typeInt64:
			return int64(binary.LittleEndian.Uint64(from)), nil
		}
		return twosComplement(from)
	}
	if to == pyfeed.Int64 {
		return func(to, from []byte) error {
			v, large := read(from)
			if large != nil {
				return fmt.Errorf("expected digits that int64 can hold, found %v", large)
			}
			binary.NativeEndian.PutUint64(to, uint64(v))
			return nil
		}
	}
	return func(to, from []byte) error {
		v, large := read(from)
		var f float64
		switch {
		case large == nil && v > -1<<53 && v < 1<<53 && scale >= 0 && scale <= 22: // both are exact, so one rounding
			f = float64(v) / powersOfTen[scale]
		case large == nil:
			f = nearest(strconv.FormatInt(v, 10), scale)
		default:
			f = nearest(large.String(), scale)
		}
		binary.NativeEndian.PutUint64(to, math.Float64bits(f))
		return nil
	}
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
	1e19, 1e20, 1e21, 1e22}

func nearest(digits string, scale int) float64 {
	f, _ := strconv.ParseFloat(digits+"e"+strconv.Itoa(-scale), 64) // beyond the range it is infinite
	return f
}

// twosComplement returns an integer that is stored with its high byte first; large is nil if 64 bits hold it.
func twosComplement(from []byte) (v int64, large *big.Int) {
	short := from
	for len(short) > 8 && (short[0] == 0 && short[1] < 0x80 || short[0] == 0xff && short[1] >= 0x80) {
		short = short[1:]
	}
	if len(short) <= 8 {
		if len(short) > 0 && short[0] >= 0x80 {
			v = -1
		}
		for _, b := range short {
			v = v<<8 | int64(b)
		}
		return v, nil
	}
	large = new(big.Int).SetBytes(short)
	if short[0] >= 0x80 {
		large.Sub(large, new(big.Int).Lsh(big.NewInt(1), uint(8*len(short))))
	}
	return 0, large
}

package tfrecord

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A Feature describes a feature of a tf.train.Example, or of a tf.train.SequenceExample, and the slot that it fills.
type Feature struct {
	Name string `json:"name"`
	// Part is where the feature is: "context" or "feature_lists" of a SequenceExample. If any Feature has a Part, the
	// records are SequenceExamples, and a Feature without one is in the context. In feature_lists, a feature is a list of
	// steps, and Kind and Shape describe each step.
	Part string `json:"part"`
	// AllowMissing says that a record may lack the feature list of a fixed feature. It then has no steps, like one of a
	// variable feature.
	AllowMissing bool `json:"allow_missing"`
	// Kind is "fixed" or "": as many values as Shape has; "variable": any number of values, like TensorFlow's
	// RaggedFeature without partitions; or "ragged": divided by RowLengths or RowSplits.
	Kind string `json:"kind"`
	// DType is "bytes"; "float32" or "float64" for a list of floats; "int64", another integer type or "bool" for a list
	// of int64, whose values MUST fit that type.
	DType string `json:"dtype"`
	// Raw says that the feature has one value of bytes: the memory of an array of DType, little-endian.
	Raw bool `json:"raw"`
	// Shape is that of a fixed feature. For another feature it is the shape without the dimension that varies. Fixed
	// bytes have at most one dimension, other bytes none.
	Shape Shape `json:"shape"`
	// Default is the value of a fixed feature that an example lacks: one value, or as many as Shape has.
	Default json.RawMessage `json:"default"`
	// RowLengths or RowSplits are the int64 features that divide a ragged feature, outermost first.
	RowLengths []string `json:"row_lengths"`
	RowSplits  []string `json:"row_splits"`
}

// Features are several. In JSON they are a list.
type Features []Feature

// UnmarshalJSON fills Features. Its errors also reach users of languages that have other words for JSON's types.
func (f *Features) UnmarshalJSON(b []byte) error {
	if b[0] != '[' && string(b) != "null" {
		return fmt.Errorf(`features: expected a list of descriptions with "name" and "dtype", found %.100s`, b)
	}
	return json.Unmarshal(b, (*[]Feature)(f))
}

// UnmarshalJSON fills a Feature. Its errors name the feature.
func (f *Feature) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return fmt.Errorf(`features: expected a description with "name" and "dtype", found %.100s`, b)
	}
	type plain Feature
	err := record.DecodeObject(b, (*plain)(f)) // which fills all other fields if one is wrong
	switch {
	case err == nil:
		return nil
	case f.Name == "":
		return fmt.Errorf("features: %v", err)
	}
	return fmt.Errorf("features: feature %q: %v", f.Name, err)
}

// A Shape is a list of sizes. In JSON it may also be one size.
type Shape []int64

// UnmarshalJSON fills a Shape.
func (s *Shape) UnmarshalJSON(b []byte) error {
	if b[0] != '[' && string(b) != "null" {
		b = slices.Concat([]byte("["), b, []byte("]"))
	}
	return json.Unmarshal(b, (*[]int64)(s))
}

// list is the kind of list that a Feature holds: the number of its field.
type list int32

const (
	none list = iota
	byteStrings
	floats
	ints
)

func (l list) String() string {
	return [...]string{"none", "bytes", "floats", "int64s"}[l]
}

// dtypes describes the dtypes by which a feature with such a list can be read.
func (l list) dtypes() string {
	return [...]string{"", `"bytes", or "raw": true for the memory of an array`, `"float32"`, `"int64"`}[l]
}

// column is a Feature prepared for parsing.
type column struct {
	Feature
	number int // of its slot
	slot   pyfeed.Slot
	list   list
	fixed  bool
	steps  bool                  // the feature is a list of steps
	count  int                   // number of values of a fixed feature; of bytes if it is raw
	inner  int                   // the same for a row of another feature
	dims   [pyfeed.MaxRank]int64 // of an instance; the first is set for each instance if it varies
	low    int64                 // the range of values that fit an integer DType
	high   int64

	key      int   // index of the Feature in the plan's keys, or in its lists
	rows     []int // the keys of RowLengths or RowSplits
	fallback []byte
}

// plan has what to read from an Example or a SequenceExample.
type plan struct {
	columns  []column
	keys     names // of features
	lists    names // of feature lists
	sequence bool  // records are SequenceExamples
	inPlace  bool  // all slots have a fixed number of values, which are used in place
}

// names are the names of features that are read, each once.
type names struct {
	all   []string
	index map[string]int
}

// add returns the number of a name.
func (n *names) add(name string) int {
	k, there := n.index[name]
	if !there {
		k = len(n.all)
		n.all = append(n.all, name)
		n.index[name] = k
	}
	return k
}

func newPlan(features []Feature) (*plan, error) {
	p := &plan{keys: names{index: make(map[string]int)}, lists: names{index: make(map[string]int)}, inPlace: true}
	if len(features) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "features: expected at least 1, found 0")
	}
	for i, f := range features {
		c := column{Feature: f, number: i}
		err := c.prepare()
		for _, other := range features[:i] {
			if other.Name == f.Name {
				err = errors.New("expected names that differ, found this one twice")
			}
		}
		if err != nil {
			kind := pyfeed.Invalid
			if wrong := (*pyfeed.Error)(nil); errors.As(err, &wrong) {
				kind = wrong.Kind
			}
			return nil, pyfeed.Errorf(kind, "features: feature %d %q: %v", i, f.Name, err)
		}
		p.sequence = p.sequence || f.Part != ""
		if c.steps {
			c.key = p.lists.add(f.Name)
		} else {
			c.key = p.keys.add(f.Name)
		}
		for _, name := range slices.Concat(f.RowLengths, f.RowSplits) {
			c.rows = append(c.rows, p.keys.add(name))
		}
		p.inPlace = p.inPlace && c.fixed && !c.steps && c.count > 0 && (c.Raw || c.slot.DType == pyfeed.Float32)
		p.columns = append(p.columns, c)
	}
	return p, nil
}

func (p *plan) describe() (all []pyfeed.Slot, names []string) {
	for _, c := range p.columns {
		s := c.slot
		s.Dims = slices.Clone(s.Dims)
		all, names = append(all, s), append(names, c.Name)
	}
	return all, names
}

// prepare sets the slot, or returns an error if the Feature is not valid.
func (c *column) prepare() error {
	if c.Name == "" {
		return errors.New("name: expected one, found none")
	}
	if err := c.prepareType(); err != nil {
		return err
	}
	if bytes.Equal(bytes.TrimSpace(c.Default), []byte("null")) {
		c.Default = nil
	}
	switch c.Part {
	case "", "context":
	case "feature_lists":
		c.steps = true
	default:
		return fmt.Errorf("part: expected context or feature_lists, found %q", c.Part)
	}
	divisions := len(c.RowLengths) + len(c.RowSplits)
	switch c.Kind {
	case "fixed", "":
		c.fixed = true
	case "variable", "ragged":
	default:
		return fmt.Errorf("kind: expected fixed, variable or ragged, found %q", c.Kind)
	}
	switch {
	case c.Kind == "ragged" && (divisions == 0 || len(c.RowLengths) > 0 && len(c.RowSplits) > 0):
		return fmt.Errorf("expected row_lengths or row_splits of a ragged feature, found %d and %d of them", len(c.RowLengths), len(c.RowSplits))
	case c.Kind == "ragged" && c.Raw:
		return errors.New("raw: expected a fixed or variable feature, found a ragged one")
	case c.Kind != "ragged" && divisions > 0:
		return errors.New("row_lengths, row_splits: expected none unless kind is ragged")
	case c.steps && c.Kind == "ragged":
		return errors.New("kind: expected fixed or variable steps of a feature list, found ragged")
	case c.steps && c.Default != nil:
		return errors.New("default: expected none of a feature list: allow_missing makes one that is missing empty")
	case c.AllowMissing && (!c.steps || !c.fixed):
		return errors.New("allow_missing: expected a feature list with fixed steps: give default for a feature, and nothing for a variable one, which is empty if it is missing")
	case !c.fixed && c.Default != nil:
		return errors.New("default: expected none unless kind is fixed: any other that is missing is empty")
	case c.Raw && c.Default != nil:
		return errors.New("default: expected none of a raw feature")
	}
	if err := c.prepareShape(); err != nil {
		return err
	}
	if levels := c.slot.LoDLevels; levels > pyfeed.MaxLoDLevels {
		return fmt.Errorf("LoD: expected at most %d levels, found %d", pyfeed.MaxLoDLevels, levels)
	}
	if c.Default == nil {
		return nil
	}
	return c.prepareDefault()
}

func (c *column) prepareType() error {
	d, known := pyfeed.DTypeOf(c.DType)
	if c.DType == "bytes" {
		d, known, c.list = pyfeed.Uint8, true, byteStrings
	}
	c.slot.DType = d
	c.low, c.high = math.MinInt64, math.MaxInt64
	switch {
	case c.Raw:
		if c.DType == "bytes" || d == pyfeed.Any || d == pyfeed.Bool || !known {
			return c.wrongType("that of the numbers in raw bytes", "")
		}
		c.list = byteStrings
	case c.list == byteStrings:
	case known && (d == pyfeed.Float32 || d == pyfeed.Float64):
		c.list = floats
	case known && d == pyfeed.Bool:
		c.list, c.low, c.high = ints, 0, 1
	case known && d >= pyfeed.Int8 && d <= pyfeed.Int64:
		c.list, c.low, c.high = ints, math.MinInt64>>(64-8*d.Size()), math.MaxInt64>>(64-8*d.Size())
	case known && d >= pyfeed.Uint8 && d <= pyfeed.Uint64:
		c.list, c.low, c.high = ints, 0, int64(uint64(math.MaxUint64)>>(64-8*d.Size())&math.MaxInt64)
	default:
		advice := ""
		switch name := strings.ToLower(c.DType); {
		case name == "str" || name == "string" || name == "text":
			advice = `: did you mean "bytes"?`
		case d.Valid():
			advice = `: use "raw": true for the memory of an array`
		}
		return c.wrongType(`"bytes", bool, an integer dtype, float32 or float64`, advice)
	}
	return nil
}

// wrongType is the error for a dtype. Its kind is Type unless there is none.
func (c *column) wrongType(expected, advice string) error {
	if c.DType == "" {
		return fmt.Errorf("dtype: expected %s, found none", expected)
	}
	return pyfeed.Errorf(pyfeed.Type, "dtype: expected %s, found %q%s", expected, c.DType, advice)
}

func (c *column) prepareShape() error {
	const limit = 1 << 40
	values := int64(1)
	for i, d := range c.Shape {
		if d < 0 && c.fixed {
			advice := `use "kind": "variable" for a list of any length, or the dtype "bytes"`
			if c.DType == "bytes" {
				advice = `use "kind": "variable" for any number of byte strings, or no shape for one of any length`
			}
			return fmt.Errorf("shape: dimension %d: expected a size, found %d: %s", i, d, advice)
		}
		if d < 0 || d == 0 && !c.fixed {
			return fmt.Errorf("shape: dimension %d: expected a size, found %d", i, d)
		}
		if d > 0 && values > limit/d {
			return fmt.Errorf("shape: expected at most 2^40 values, found %v", c.Shape)
		}
		values *= d
	}
	dims := pyfeed.Dims(c.Shape)
	switch {
	case c.list == byteStrings && !c.Raw:
		if len(c.Shape) > 1 || len(c.Shape) > 0 && !c.fixed {
			advice := ""
			if len(c.Shape) > 1 {
				advice = `: for the memory of an array, use its dtype, such as "uint8", and "raw": true`
			}
			return fmt.Errorf("shape: expected at most one dimension of fixed bytes and none of others, found %v%s", c.Shape, advice)
		}
		dims = nil
		c.slot.LoDLevels = 2
		if c.fixed && len(c.Shape) == 0 {
			c.slot.LoDLevels = 1
		}
	case !c.fixed:
		c.slot.LoDLevels = 1
	}
	c.slot.LoDLevels += len(c.RowLengths) + len(c.RowSplits)
	if c.steps {
		c.slot.LoDLevels++
	}
	if c.slot.LoDLevels > 0 {
		dims = append(pyfeed.Dims{-1}, dims...)
	}
	if len(dims) > pyfeed.MaxRank {
		return fmt.Errorf("shape: expected at most %d dimensions of a slot, found %v", pyfeed.MaxRank, dims)
	}
	c.slot.Dims = dims
	copy(c.dims[:], dims)
	if c.Raw {
		values *= int64(c.slot.DType.Size())
	}
	c.count, c.inner = int(values), int(values)
	return nil
}

// prepareDefault makes a Feature message of the default, so that it is parsed like one in the file.
func (c *column) prepareDefault() error {
	d := json.NewDecoder(bytes.NewReader(c.Default))
	d.UseNumber()
	var given any
	if err := d.Decode(&given); err != nil {
		return fmt.Errorf("default: %v", err)
	}
	if c.count > 1<<24 {
		return fmt.Errorf("default: expected at most 2^24 values, found shape %v", c.Shape)
	}
	values := flatten(given, nil)
	if _, many := given.([]any); !many {
		values = slices.Repeat(values, c.count)
	}
	if len(values) != c.count {
		return fmt.Errorf("default: expected 1 value or %d, found %d", c.count, len(values))
	}
	var packed []byte
	for _, v := range values {
		var err error
		if packed, err = c.appendDefault(packed, v); err != nil {
			return fmt.Errorf("default: %v", err)
		}
	}
	c.fallback = appendList(nil, c.list, packed)
	return nil
}

func flatten(v any, to []any) []any {
	all, is := v.([]any)
	if !is {
		return append(to, v)
	}
	for _, v := range all {
		to = flatten(v, to)
	}
	return to
}

func (c *column) appendDefault(to []byte, v any) ([]byte, error) {
	switch c.list {
	case byteStrings:
		if s, is := v.(string); is {
			return appendField(to, 1, []byte(s)), nil
		}
	case floats:
		if n, is := v.(json.Number); is {
			f, err := strconv.ParseFloat(n.String(), 32)
			if err != nil {
				return nil, fmt.Errorf("expected a float32, found %v", n)
			}
			return binary.LittleEndian.AppendUint32(to, math.Float32bits(float32(f))), nil
		}
	case ints:
		var n int64
		var err error
		switch v := v.(type) {
		case bool:
			if v {
				n = 1
			}
		case json.Number:
			n, err = strconv.ParseInt(v.String(), 10, 64)
		default:
			return nil, fmt.Errorf("expected %s, found %v", c.DType, v)
		}
		if errors.Is(err, strconv.ErrRange) || err == nil && (n < c.low || n > c.high) {
			return nil, fmt.Errorf("expected a value that fits into %s, found %v", c.DType, v)
		}
		if err != nil {
			return nil, fmt.Errorf("expected %s, found %v", c.DType, v)
		}
		return protowire.AppendVarint(to, uint64(n)), nil
	}
	return nil, fmt.Errorf("expected %s, found %v", c.DType, v)
}

// appendField appends a field with a length.
func appendField(to []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
}

// appendList appends the Feature message of a list of packed numbers, or of fields with values of bytes.
func appendList(to []byte, l list, values []byte) []byte {
	if l == byteStrings || len(values) == 0 {
		return appendField(to, protowire.Number(l), values)
	}
	to = protowire.AppendTag(to, protowire.Number(l), protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(values))))
	return appendField(to, 1, values)
}

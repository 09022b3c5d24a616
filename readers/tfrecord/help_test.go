package tfrecord

import (
	"encoding/binary"
	"io"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

var tested = formattest.Format{Suffix: ".tfrecord", Open: Open, Create: Create}

// config makes a Config with the options, and with the pool of the test.
func config(t testing.TB, options string) *record.Config {
	t.Helper()
	return &record.Config{Options: formattest.Options[Options](t, options), Pool: formattest.Pool(t)}
}

// inMemory opens a file in memory.
func inMemory(t testing.TB, c *record.Config, data []byte) *records {
	t.Helper()
	r, err := open(c, func(o storage.Options) (*storage.File, error) { return storage.New("a file", data, o, c.Pool) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// onDisk writes a file and opens it.
func onDisk(t testing.TB, c *record.Config, data []byte) record.Records {
	t.Helper()
	r, err := Open(formattest.File(t, "a.tfrecord", data), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// all reads to the end or an error, limit tuples in each call, and formats them.
func all(t testing.TB, r record.Records, limit int) (seen []string, err error) {
	t.Helper()
	if seen, err = formattest.Lines(t, r, limit); err == io.EOF {
		err = nil
	}
	return seen, err
}

// mergeSplits fails the test if a tuple is not one instance that matches spec.
func mergeSplits(t testing.TB, tuple *pyfeed.Tuple, spec *pyfeed.Spec) {
	t.Helper()
	if err := spec.Check(tuple); err != nil {
		t.Error(err)
	}
	for i := range tuple.Slots {
		s := &tuple.Slots[i]
		if size, err := s.Measure(); err != nil || size != len(s.Data) || len(s.LoD) > 0 && s.Rows() != 1 {
			t.Errorf("slot %d: dims %v of %v, LoD %v, %d bytes: %v", i, s.Dims(), s.DType, s.LoD, len(s.Data), err)
		}
	}
}

func specOf(t testing.TB, slots []pyfeed.Slot) *pyfeed.Spec {
	t.Helper()
	spec, err := pyfeed.NewSpec(slots)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// appendRecord appends data with its frame.
func appendRecord(to, data []byte) []byte {
	n := uint64(len(data))
	to = binary.LittleEndian.AppendUint64(to, n)
	to = binary.LittleEndian.AppendUint32(to, lengthCRC(n))
	to = append(to, data...)
	return binary.LittleEndian.AppendUint32(to, crc(data))
}

func file(records ...string) (all []byte) {
	for _, r := range records {
		all = appendRecord(all, []byte(r))
	}
	return all
}

// Encoders of messages, field by field, so that tests can make invalid ones.

func message(fields ...[]byte) (all []byte) {
	for _, f := range fields {
		all = append(all, f...)
	}
	return all
}

func sub(number protowire.Number, fields ...[]byte) []byte {
	return appendField(nil, number, message(fields...))
}

func varint(number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
}

func fixed32(number protowire.Number, v uint32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), v)
}

func example(entries ...[]byte) string {
	var all []byte
	for _, e := range entries {
		all = append(all, sub(1, e)...)
	}
	return string(sub(1, all))
}

func entry(key string, feature ...[]byte) []byte {
	return message(sub(1, []byte(key)), sub(2, feature...))
}

func strs(values ...string) []byte {
	var all []byte
	for _, v := range values {
		all = append(all, sub(1, []byte(v))...)
	}
	return sub(1, all)
}

func packedFloats(values ...float32) (all []byte) {
	for _, v := range values {
		all = binary.LittleEndian.AppendUint32(all, math.Float32bits(v))
	}
	return sub(1, all)
}

func packedInts(values ...int64) (all []byte) {
	for _, v := range values {
		all = protowire.AppendVarint(all, uint64(v))
	}
	return sub(1, all)
}

func floatList(values ...float32) []byte { return sub(2, packedFloats(values...)) }
func intList(values ...int64) []byte     { return sub(3, packedInts(values...)) }

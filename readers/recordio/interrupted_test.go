package recordio

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A checksum, a search and the decompression of a chunk can be interrupted at any poll. The next call continues.
func TestInterrupted(t *testing.T) {
	size := 100_000
	if testing.Short() {
		size = 70_000 // more than two polls
	}
	long := pseudo(size, 1)
	packed := chunkOf(false, gzipped, 2, formattest.Gzip(payloadOf(long, "d")))
	spoilt := chunkOf(false, uncompressed, 1, payloadOf(long))
	spoilt[100] ^= 1
	lost := chunkOf(false, uncompressed, 1, payloadOf(long))
	lost[0] ^= 1
	data := slices.Concat(chunkOf(false, uncompressed, 2, payloadOf("a", long)), spoilt, packed,
		chunkOf(false, uncompressed, 1, payloadOf("b")), lost, chunkOf(false, uncompressed, 1, payloadOf("c")))
	if n := tested.Interrupted(t, data, record.Config{Options: &Options{Records: "bytes"}}); n < 15 {
		t.Errorf("found %d polls", n)
	}
}

// The parsing of offsets or of a description can be interrupted at any poll. The next call parses the record again.
func TestInterruptedTensors(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 12_000
	}
	level := make([]int64, n+1)
	for i := range level {
		level[i] = int64(i)
	}
	ragged := pyfeed.LoDTensor{DType: pyfeed.Uint8, LoD: pyfeed.LoD{level}, Data: bytes.Repeat([]byte{1}, n)}
	if err := ragged.SetDims(pyfeed.Dims{int64(n)}); err != nil {
		t.Fatal(err)
	}
	// A tensor without LoD, whose description has unknown fields.
	description := bytes.Repeat([]byte{3 << 3, 0}, 2*n)
	description = append(description, typeField<<3, byte(fluidTypes[pyfeed.Uint8]), dimsField<<3, 1)
	described := binary.LittleEndian.AppendUint32(make([]byte, 4+8+4), uint32(len(description)))
	described = append(append(described, description...), 7)
	one := []byte{1, 0, 0, 0}
	for name, data := range map[string][]byte{"offsets": appendTensor(slices.Clone(one), &ragged), "description": append(slices.Clone(one), described...)} {
		t.Run(name, func(t *testing.T) {
			looks := func(records ...string) int {
				return tested.Interrupted(t, chunkOf(false, uncompressed, uint32(len(records)), payloadOf(records...)),
					record.Config{Options: &Options{Records: "tensors"}})
			}
			plain := tested.Interrupted(t, chunkOf(false, uncompressed, 2, payloadOf(string(data), string(data))),
				record.Config{Options: &Options{Records: "bytes"}})
			if n := looks(string(data), string(data)); n < plain+4 {
				t.Errorf("found %d polls, %d polls without parsing", n, plain)
			}
		})
	}
}

package recordio

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// fuzzed is a pool that all runs share, to reuse memory.
var fuzzed = memory.NewPool(memory.File)

// repair corrects the checksum of each chunk and of each snappy block of the old framing: a fuzzer would not find
// correct ones.
func repair(file []byte) []byte {
	file = slices.Clone(file)
	for at := 0; len(file)-at >= headerSize; {
		var h header
		b := file[at:]
		copy(b, magicBytes)
		if h.parse(b) != (chunkFault{}) {
			break
		}
		payload := b[headerSize:min(h.totalSize(), len(b))]
		if h.fluid && h.compressor == snappy {
			repairOld(payload)
		}
		field := 4
		if h.fluid {
			field = 8
		}
		binary.LittleEndian.PutUint32(b[field:], crc32.ChecksumIEEE(payload))
		at += headerSize + len(payload)
	}
	return file
}

func repairOld(b []byte) {
	for len(b) >= oldHeader {
		if bytes.HasPrefix(b, []byte(oldMagic)) {
			b = b[len(oldMagic):]
			continue
		}
		block := b[oldHeader:]
		block = block[:min(len(block), int(binary.BigEndian.Uint16(b[1:])))]
		plain := block
		if b[0] == 1 {
			if n, err := s2.DecodedLen(block); err != nil || n > oldBlock {
				return
			}
			plain, _ = s2.Decode(nil, block)
		}
		binary.BigEndian.PutUint32(b[3:], maskedCRC(plain))
		b = b[oldHeader+len(block):]
	}
}

func FuzzRecords(f *testing.F) {
	tensor := slices.Concat([]byte{2, 0, 0, 0}, goldenFloat, goldenLoD)
	payload := payloadOf(string(tensor), string(tensor))
	for _, b := range [][]byte{
		nil, goldenGo, goldenFluid, goldenFluid[:30], slices.Concat(goldenGo, goldenGo[:3], goldenFluid),
		chunkOf(true, uncompressed, 2, payload),
		chunkOf(true, snappy, 2, appendOld(nil, payload)),
		chunkOf(false, snappy, 2, appendFraming(nil, payload)),
		chunkOf(true, uncompressed, 2, payloadOf(string(goldenGo), string(goldenFluid))),
	} {
		for mode := range byte(12) {
			f.Add(b, mode)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, mode byte) {
		o := Options{Records: []string{"auto", "tensors", "bytes"}[mode/2%3]}
		if mode&1 != 0 {
			data = repair(data)
		}
		defer formattest.CheckLeaks(t)() // also after a failure, since the fuzzer goes on to minimize its input
		opened, err := tested.Memory(data, &record.Config{Options: &o, Storage: storage.Options{Compression: "none"}, Pool: fuzzed})
		if err != nil {
			t.Fatal(err)
		}
		r := opened.(*records)
		var out [8]*pyfeed.Tuple
		pyfeed.NewTuples(out[:], 1)
		defer func() {
			r.Close()
			pyfeed.ReleaseAll(out[:])
		}()
		slots, _, err := r.Describe()
		if (err == nil) != (len(slots) > 0) {
			t.Fatalf("found slots %v and %v", slots, err)
		}
		total := int64(0)
		progress := int64(-1)
		for total < 1e5 {
			read := record.Records.Read
			if mode >= 6 {
				read = formattest.Read
			}
			n, err := read(r, out[:])
			for _, tuple := range out[:n] {
				checkTuple(t, tuple, r.tensors)
			}
			total += int64(n)
			pyfeed.ReleaseAll(out[:n])
			pyfeed.NewTuples(out[:n], 1)
			if n > 0 {
				if err != nil {
					t.Fatalf("%d records and %v", n, err)
				}
				continue
			}
			if err == io.EOF {
				break
			}
			e, is := err.(*pyfeed.Error)
			if !is || e.Kind != pyfeed.Corrupt || e.At == nil || e.At.Offset < 0 || e.At.Offset > int64(len(data)) || e.At.Record < total {
				t.Fatalf("expected damage after %d records, found %v", total, err)
			}
			if err = r.Resync(); err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			now := 2 * (r.f.Offset() + r.number)
			if !r.open { // leaving a chunk at its end counts as progress
				now++
			}
			if now <= progress {
				t.Fatalf("Resync made no progress: byte %d, record %d", r.f.Offset(), r.number)
			}
			progress = now
		}
	})
}

func checkTuple(t *testing.T, tuple *pyfeed.Tuple, tensors bool) {
	for i := range tuple.Slots {
		s := &tuple.Slots[i]
		if n, err := s.Measure(); err != nil || n != len(s.Data) {
			t.Fatalf("slot %d: %v %v with %d bytes: %v", i, s.DType, s.Dims(), len(s.Data), err)
		}
		if !tensors {
			if err := s.CheckLoD(); err != nil || len(s.LoD) != 1 || len(tuple.Slots) != 1 {
				t.Fatalf("slot %d: LoD %v: %v", i, s.LoD, err)
			}
		}
	}
}

func FuzzTensors(f *testing.F) {
	f.Add(slices.Concat([]byte{1, 0, 0, 0}, goldenFloat))
	f.Add(slices.Concat([]byte{2, 0, 0, 0}, goldenFloat, goldenLoD))
	f.Add(slices.Concat([]byte{1, 0, 0, 0}, make([]byte, 16), []byte{7, 0, 0, 0, 0x12, 2, 2, 1, 0x08, 0, 0x18, 1, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o record.Offsets
		n, err := tensors(data)
		if err != nil {
			return
		}
		slots := make([]pyfeed.LoDTensor, n)
		at, err := parseTensors(data, slots, &o, nil)
		if at < 0 || at > len(data) || err == nil && at != len(data) {
			t.Fatalf("stopped at byte %d of %d: %v", at, len(data), err)
		}
		if err != nil {
			return
		}
		for i := range slots {
			if size, err := slots[i].Measure(); err != nil || size != len(slots[i].Data) {
				t.Fatal(size, err)
			}
		}
		again := make([]pyfeed.LoDTensor, n)
		if _, err = parseTensors(appendTensors(nil, slots), again, &o, nil); err != nil {
			t.Fatal(err)
		}
		for i := range slots {
			if a, b := slotOf(&slots[i]), slotOf(&again[i]); !reflect.DeepEqual(a, b) {
				t.Fatalf("slot %d: wrote %v, read %v", i, a, b)
			}
		}
	})
}

// unpackAll returns all data of a payload.
func unpackAll(h header, payload []byte) ([]byte, error) {
	u := unpacker{pool: fuzzed}
	defer u.close()
	if err := u.begin(&h, payload); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		b, err := u.peek(n)
		if err != nil {
			return nil, err
		}
		if len(b) < n {
			return slices.Clone(b), nil
		}
		n = len(b)
	}
}

func FuzzSnappy(f *testing.F) {
	f.Add([]byte(oldMagic), byte(0))
	f.Add(appendOld(nil, bytes.Repeat([]byte("abc"), 100)), byte(1))
	f.Add(appendOld(appendOld(nil, []byte("abc")), []byte(pseudo(300, 1))), byte(1))
	f.Add(appendFraming(nil, bytes.Repeat([]byte("abc"), 100)), byte(2))
	f.Add([]byte(pseudo(300, 1)), byte(3))
	f.Fuzz(func(t *testing.T, data []byte, mode byte) {
		defer formattest.CheckLeaks(t)()
		old, framing := header{fluid: true, compressor: snappy}, header{compressor: snappy}
		switch mode % 4 {
		case 1:
			data = slices.Clone(data)
			repairOld(data)
			fallthrough
		case 0:
			if got, err := unpackAll(old, data); err == nil {
				if again, err := unpackAll(old, appendOld(nil, got)); err != nil || !bytes.Equal(got, again) {
					t.Fatalf("wrote %d bytes, read %d: %v", len(got), len(again), err)
				}
			}
		case 2:
			got, err := unpackAll(framing, data)
			if err != nil {
				break
			}
			if theirs, err := io.ReadAll(s2.NewReader(bytes.NewReader(data))); err != nil || !bytes.Equal(got, theirs) {
				t.Fatalf("s2 decoded %d bytes, unpacker %d: %v", len(theirs), len(got), err)
			}
		case 3:
			for _, h := range []header{old, framing} {
				packed := appendFraming(nil, data)
				if h.fluid {
					packed = appendOld(nil, data)
				}
				if got, err := unpackAll(h, packed); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("wrote %d bytes, read %d: %v", len(data), len(got), err)
				}
			}
		}
	})
}

package recordio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// The golden files of the specification: records ABC, an empty one, DEFG.
var (
	goldenGo    = formattest.Hex("04030201 61933802 00000000 13000000 03000000 03000000 414243 00000000 04000000 44454647")
	goldenFluid = formattest.Hex("04030201 03000000 61933802 00000000 13000000 03000000 414243 00000000 04000000 44454647")
)

// layouts are all ways to write a file.
var layouts = []Options{
	{Layout: "fluid"}, {Layout: "fluid", Compression: "snappy"},
	{Layout: "go"}, {Layout: "go", Compression: "snappy"}, {Layout: "go", Compression: "gzip"},
}

var tested = formattest.Format{Suffix: ".rio", Open: Open, Begin: open, Create: Create}

// A fluidTensor is the content of a slot, for comparisons.
type fluidTensor struct {
	DType pyfeed.DType
	Dims  []int64
	LoD   [][]int64
	Data  string
}

func slotOf(s *pyfeed.LoDTensor) fluidTensor {
	g := fluidTensor{DType: s.DType, Dims: slices.Clone(s.Dims()), Data: string(s.Data)}
	for _, level := range s.LoD {
		g.LoD = append(g.LoD, slices.Clone(level))
	}
	return g
}

func bytesOf(data string) []fluidTensor {
	n := int64(len(data))
	return []fluidTensor{{pyfeed.Uint8, []int64{n}, [][]int64{{0, n}}, data}}
}

func tupleOf(slots []fluidTensor) *pyfeed.Tuple {
	var all []pyfeed.LoDTensor
	for _, g := range slots {
		all = append(all, formattest.Tensor(g.DType, g.Dims, []byte(g.Data), g.LoD...))
	}
	return formattest.Tuple(all...)
}

// readAll reads to the end or an error, bulk tuples in each call.
func readAll(t testing.TB, r record.Records, bulk int) (all [][]fluidTensor, err error) {
	t.Helper()
	_, err = formattest.Drain(t, r, bulk, func(_ int, tuple *pyfeed.Tuple) {
		var slots []fluidTensor
		for i := range tuple.Slots {
			slots = append(slots, slotOf(&tuple.Slots[i]))
		}
		all = append(all, slots)
	})
	return all, err
}

// openBytes opens a file in memory.
func openBytes(t testing.TB, data []byte, o Options) *records {
	t.Helper()
	r, err := tested.Memory(data, &record.Config{Options: &o, Storage: storage.Options{Compression: "none"}, Pool: formattest.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r.(*records)
}

func expect(t *testing.T, found, expected [][]fluidTensor) {
	t.Helper()
	if len(found) != len(expected) {
		t.Fatalf("expected %d records, found %d: %v", len(expected), len(found), found)
	}
	for i := range expected {
		if !reflect.DeepEqual(found[i], expected[i]) {
			t.Fatalf("record %d: expected %.200v, found %.200v", i, expected[i], found[i])
		}
	}
}

// expectError expects damage at an offset and record, with a text.
func expectError(t *testing.T, err error, offset, record int64, text string) {
	t.Helper()
	e := formattest.Expect(t, err, pyfeed.Corrupt, text)
	if e.At == nil || e.At.File != "a.rio" || e.At.Offset != offset || e.At.Record != record {
		t.Errorf("expected byte %d, record %d, found %v", offset, record, e)
	}
}

// write makes a file of tuples.
func write(t testing.TB, path string, c *record.Config, tuples [][]fluidTensor) {
	t.Helper()
	if err := tested.Write(t, path, c, tuplesOf(tuples)...); err != nil {
		t.Fatal(err)
	}
}

func tuplesOf(tuples [][]fluidTensor) (all []*pyfeed.Tuple) {
	for _, slots := range tuples {
		all = append(all, tupleOf(slots))
	}
	return all
}

// chunkOf returns a chunk with its header and a payload as it is stored.
func chunkOf(fluid bool, compressor, records uint32, payload []byte) []byte {
	h := header{fluid: fluid, records: records, checksum: crc32.ChecksumIEEE(payload), compressor: compressor, size: uint32(len(payload))}
	return append(h.put(nil), payload...)
}

// payloadOf returns records with their lengths.
func payloadOf(records ...string) (b []byte) {
	for _, r := range records {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(r)))
		b = append(b, r...)
	}
	return b
}

func TestGoldenFiles(t *testing.T) {
	expected := [][]fluidTensor{bytesOf("ABC"), bytesOf(""), bytesOf("DEFG")}
	for name, golden := range map[string][]byte{"go": goldenGo, "fluid": goldenFluid} {
		r := openBytes(t, golden, Options{})
		slots, names, err := r.Describe()
		if err != nil || names != nil || !reflect.DeepEqual(slots, []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}}) {
			t.Errorf("%s: found slots %v, %v, %v", name, slots, names, err)
		}
		all, err := readAll(t, r, 2)
		if err != io.EOF {
			t.Fatal(err)
		}
		expect(t, all, expected)

		path := filepath.Join(t.TempDir(), "a.recordio")
		write(t, path, &record.Config{Options: &Options{Layout: name, Records: "bytes"}}, expected)
		if found, _ := os.ReadFile(path); !bytes.Equal(found, golden) {
			t.Errorf("%s: expected\n%x, found\n%x", name, golden, found)
		}
	}
}

// A tensor as Fluid's own SerializeToStream wrote it (paddlepaddle 1.8.5, fluid.io.save_vars): float32 (2, 3) and
// int64 (5, 1) with LoD 0,2,5.
var (
	goldenFloat = formattest.Hex("00000000 0000000000000000 00000000 06000000 0805 1002 1003" +
		"00000000 0000803f 00000040 00004040 00008040 0000a040")
	goldenLoD = formattest.Hex("00000000 0100000000000000 1800000000000000 0000000000000000 0200000000000000 0500000000000000" +
		"00000000 06000000 0803 1005 1001" +
		"0000000000000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000")
)

func TestGoldenTensors(t *testing.T) {
	golden := slices.Concat([]byte{2, 0, 0, 0}, goldenFloat, goldenLoD)
	file := chunkOf(true, uncompressed, 1, payloadOf(string(golden)))
	r := openBytes(t, file, Options{})
	slots, _, err := r.Describe()
	if err != nil || !reflect.DeepEqual(slots, []pyfeed.Slot{
		{DType: pyfeed.Float32, Dims: pyfeed.Dims{2, 3}}, {DType: pyfeed.Int64, Dims: pyfeed.Dims{-1, 1}, LoDLevels: 1}}) {
		t.Fatalf("found slots %v, %v", slots, err)
	}
	all, err := readAll(t, r, 4)
	if err != io.EOF {
		t.Fatal(err)
	}
	tuple := []fluidTensor{
		{pyfeed.Float32, []int64{2, 3}, nil, string(goldenFloat[len(goldenFloat)-24:])},
		{pyfeed.Int64, []int64{5, 1}, [][]int64{{0, 2, 5}}, string(goldenLoD[len(goldenLoD)-40:])},
	}
	expect(t, all, [][]fluidTensor{tuple})

	path := filepath.Join(t.TempDir(), "a.recordio")
	write(t, path, &record.Config{}, [][]fluidTensor{tuple})
	if found, _ := os.ReadFile(path); !bytes.Equal(found, file) {
		t.Errorf("expected\n%x, found\n%x", file, found)
	}
	if all, err = readAll(t, openBytes(t, file, Options{Records: "bytes"}), 4); err != io.EOF {
		t.Fatal(err)
	}
	expect(t, all, [][]fluidTensor{bytesOf(string(golden))})
}

// Records outlive their file, wherever in a chunk or in a window of a mapped file they begin, and however many are read
// at once.
func TestManySmallRecordsOutliveTheFile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var file []byte
	var every []string
	for chunk := 0; len(file) < 2*memory.WindowSize+memory.WindowSize/2; chunk++ {
		records := make([]string, 1+random.IntN(3000))
		for i := range records {
			records[i] = pseudo(random.IntN(300), uint64(len(every)+i))
		}
		file = append(file, chunkOf(chunk%2 == 0, uncompressed, uint32(len(records)), payloadOf(records...))...)
		every = append(every, records...)
	}
	for _, many := range []int{1, 7, 5000} {
		read := func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			tuples := formattest.ReadAll(t, r, many)
			if len(tuples) != len(every) {
				t.Fatalf("expected %d records, found %d", len(every), len(tuples))
			}
			for i, tuple := range tuples {
				s := &tuple.Slots[0]
				if string(s.Data) != every[i] || len(s.LoD) != 1 || s.LoD[0][1] != int64(len(every[i])) {
					t.Fatalf("record %d of %d bytes: expected %.100q, found %.100q", i, len(every[i]), every[i], s.Data)
				}
			}
			pyfeed.ReleaseAll(tuples)
		}
		c := record.Config{Options: &Options{Records: "bytes"}}
		if !testing.Short() || many == 7 {
			tested.EachWay(t, file, c, read)
			continue
		}
		formattest.WithPool(t, func(pool *memory.Pool) {
			c.Pool = pool
			r, err := Open(formattest.File(t, "a.rio", file), &c)
			read(t, r, err)
		})
	}
}

// pseudo returns data that compresses to about half its size.
func pseudo(n int, seed uint64) string {
	r := rand.NewPCG(seed, 1)
	b := make([]byte, 0, n+32)
	for len(b) < n {
		if b = binary.LittleEndian.AppendUint64(b, r.Uint64()); len(b)%64 == 40 {
			b = append(b, make([]byte, 24)...)
		}
	}
	return string(b[:n])
}

// eachWay opens a file in each way that it can be read.
func eachWay(t *testing.T, path string, o Options, test func(t *testing.T, r record.Records)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tested.EachWay(t, data, record.Config{Options: &o}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		test(t, r)
	})
}

func TestBytesRoundTrip(t *testing.T) {
	sets := map[string][]string{
		"none":  {},
		"one":   {"x"},
		"empty": {"", "", ""},
		"tail":  make([]string, 1101), // one chunk of the Fluid layout and a part of another
		"large": {pseudo(5<<18, 1), "", pseudo(1, 2), pseudo(oldBlock, 3), pseudo(framingBlock+1, 4), strings.Repeat("a", 2<<20)},
	}
	for i := range sets["tail"] {
		sets["tail"][i] = pseudo(i%97, uint64(i))
	}
	for name, set := range sets {
		var tuples [][]fluidTensor
		for _, s := range set {
			tuples = append(tuples, bytesOf(s))
		}
		for i, o := range layouts {
			o.Records = "bytes"
			for _, limit := range []int64{0, 100} {
				if o.ChunkBytes = limit; limit > 0 && (name != "tail" || testing.Short() && i%2 > 0) {
					continue
				}
				t.Run(fmt.Sprint(name, o.Layout, o.Compression, limit), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "a.rio")
					write(t, path, &record.Config{Options: &o}, tuples)
					read := func(t *testing.T, r record.Records) {
						all, err := readAll(t, r, 64)
						if err != io.EOF {
							t.Fatal(err)
						}
						expect(t, all, tuples)
					}
					if testing.Short() && name == "large" && i > 0 {
						data, err := os.ReadFile(path)
						if err != nil {
							t.Fatal(err)
						}
						read(t, openBytes(t, data, Options{Records: "bytes"}))
						return
					}
					eachWay(t, path, Options{Records: "bytes"}, read)
				})
			}
		}
	}
}

// everyType returns a tuple with a slot of every dtype that Fluid has, with every rank, empty slots and LoD included.
func everyType(seed uint64) (tuple []fluidTensor) {
	for d := pyfeed.Bool; d.Valid(); d++ {
		if fluidTypes[d] < 0 {
			continue
		}
		rank := int(d) % (pyfeed.MaxRank + 1)
		g := fluidTensor{DType: d}
		n := d.Size()
		for i := range rank {
			dim := int64(i%3 + 1)
			g.Dims = append(g.Dims, dim)
			n *= int(dim)
		}
		g.Data = pseudo(n, seed+uint64(d))
		tuple = append(tuple, g)
	}
	return append(tuple,
		fluidTensor{pyfeed.Float32, []int64{0, 7}, [][]int64{{0, 0}}, ""},
		fluidTensor{pyfeed.Int64, []int64{1, 0, math.MaxInt64}, nil, ""},
		fluidTensor{pyfeed.Int16, []int64{6}, [][]int64{{0, 2, 2, 4}, {0, 1, 3, 3, 6}}, pseudo(12, seed)})
}

func TestTensorsRoundTrip(t *testing.T) {
	var tuples [][]fluidTensor
	for i := range 203 {
		tuples = append(tuples, everyType(uint64(i)))
	}
	for _, o := range layouts {
		o.RecordsPerChunk = 100
		t.Run(o.Layout+o.Compression, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.rio")
			write(t, path, &record.Config{Options: &o}, tuples)
			eachWay(t, path, Options{}, func(t *testing.T, r record.Records) {
				if slots, _, err := r.(record.Describer).Describe(); err != nil || len(slots) != len(tuples[0]) {
					t.Fatal(slots, err)
				}
				all, err := readAll(t, r, 100)
				if err != io.EOF {
					t.Fatal(err)
				}
				for i := range tuples {
					for j := range tuples[i] {
						if len(tuples[i][j].Dims) == 0 {
							tuples[i][j].Dims = all[i][j].Dims[:0]
						}
					}
				}
				expect(t, all, tuples)
			})
		})
	}
}

// Uncompressed data is not copied: tensors are views of the mapped file.
func TestTensorsAreViewsOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.rio")
	tuple := []fluidTensor{{pyfeed.Float32, []int64{1000}, nil, pseudo(4000, 1)}}
	write(t, path, &record.Config{}, [][]fluidTensor{tuple, tuple})
	pool := formattest.Pool(t)
	r, err := Open(path, &record.Config{Storage: storage.Options{IO: "map"}, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]*pyfeed.Tuple, 2)
	pyfeed.NewTuples(out, 1)
	before := memory.Count()
	if n, err := r.Read(out); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if after := memory.Count(); after.Live[memory.File] != before.Live[memory.File] {
		t.Errorf("expected no memory of files, found %d bytes", after.Live[memory.File])
	}
	if !out[0].Slots[0].ReadOnly {
		t.Error("a view of a mapped file can be written")
	}
	r.Close()
	if found := string(out[1].Slots[0].Data); found != tuple[0].Data {
		t.Error("a view after Close has other data")
	}
	pyfeed.ReleaseAll(out)
}

func TestLayoutsMayFollowEachOther(t *testing.T) {
	r := openBytes(t, slices.Concat(goldenGo, goldenFluid), Options{})
	all, err := readAll(t, r, 64)
	if err != io.EOF {
		t.Fatal(err)
	}
	expect(t, all, [][]fluidTensor{bytesOf("ABC"), bytesOf(""), bytesOf("DEFG"), bytesOf("ABC"), bytesOf(""), bytesOf("DEFG")})
}

// The table of damage in the specification, and similar cases.
func TestDamage(t *testing.T) {
	three := [][]fluidTensor{bytesOf("ABC"), bytesOf(""), bytesOf("DEFG")}
	size := int64(len(goldenGo))
	for name, golden := range map[string][]byte{"go": goldenGo, "fluid": goldenFluid} {
		t.Run(name, func(t *testing.T) {
			damaged := func(at int, to byte) []byte {
				b := slices.Concat(golden, golden, golden)
				b[int(size)+at] = to
				return b
			}
			flipped := damaged(headerSize+4, 'a')
			for _, c := range []struct {
				what   string
				data   []byte
				offset int64
				record int64
				text   string
				before int // records
				after  int // after Resync
			}{
				{"1 stray byte", append(slices.Clone(golden), 4), size, 3, "expected a chunk header of 20 bytes, found the end of the file after 1", 3, 0},
				{"3 stray bytes", append(slices.Clone(golden), 1, 2, 3), size, 3, "expected a chunk header of 20 bytes, found the end of the file after 3", 3, 0},
				{"8 stray bytes", append(slices.Clone(golden), golden[:8]...), size, 3, "expected a chunk header of 20 bytes, found the end of the file after 8", 3, 0},
				{"20 stray bytes", append(slices.Clone(golden), make([]byte, 20)...), size, 3, "expected the magic number 04030201 of a chunk, found 00000000", 3, 0},
				{"second header cut short", slices.Concat(golden, golden[:19]), size, 3, "expected a chunk header of 20 bytes, found the end of the file after 19", 3, 0},
				{"payload missing", slices.Concat(golden, golden[:20]), size, 3, "expected a chunk of 39 bytes, found 20 before the end of the file", 3, 0},
				{"payload cut", slices.Concat(golden, golden[:len(golden)-1]), size, 3, "expected a chunk of 39 bytes, found 38 before the end of the file", 3, 0},
				{"flipped bit", flipped, size, 3, "checksum of a chunk: expected 02389361, found", 3, 3},
				{"flipped bit in the last chunk", flipped[:2*size], size, 3, "checksum of a chunk: expected 02389361, found", 3, 0},
				{"flipped bit in the magic number", damaged(1, 2), size, 3, "expected the magic number 04030201 of a chunk, found 04020201", 3, 3},
				{"stray bytes between", slices.Concat(golden, golden[:8], golden), size, 3, "chunk", 3, 3},
				{"lost bytes", slices.Concat(golden, golden[8:], golden), size, 3, "expected the magic number", 3, 3},
			} {
				t.Run(c.what, func(t *testing.T) {
					r := openBytes(t, c.data, Options{})
					all, err := readAll(t, r, 64)
					expectError(t, err, c.offset, c.record, c.text)
					expect(t, all, three[:c.before])
					if err = r.Resync(); err != nil && err != io.EOF {
						t.Fatal(err)
					}
					all, err = readAll(t, r, 64)
					if err != io.EOF {
						t.Fatal(err)
					}
					expect(t, all, three[:c.after])
					if err = r.Resync(); err != io.EOF {
						t.Fatal(err)
					}
				})
			}
		})
	}
}

// Chunks that no writer produces, with a correct checksum.
func TestAdversarialChunks(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(append([]byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...))
	_ = z.Close()
	raw := func(uncompressed uint64) []byte { return protowire.AppendVarint(nil, uncompressed) }
	old := func(flag byte, size uint16, sum uint32, block []byte) []byte {
		b := binary.BigEndian.AppendUint16([]byte(oldMagic+string(flag)), size)
		return append(binary.BigEndian.AppendUint32(b, sum), block...)
	}
	frame := func(kind byte, size int, body ...byte) []byte {
		return append([]byte(framingMagic), append([]byte{kind, byte(size), byte(size >> 8), byte(size >> 16)}, body...)...)
	}
	header := func(fields ...uint32) []byte {
		b := slices.Clone(magicBytes)
		for _, f := range fields {
			b = binary.LittleEndian.AppendUint32(b, f)
		}
		return b
	}
	record := func(n uint32, rest string) []byte { return append(binary.LittleEndian.AppendUint32(nil, n), rest...) }
	for _, c := range []struct {
		what   string
		data   []byte
		offset int64
		text   string
	}{
		{"no record", header(0, 0, 0, 0), 0, "expected at least 1 record, found 0"},
		{"go: no record", header(0, 0, 4, 0), 0, "expected at least 1 record, found 0"},
		{"neither layout", header(0, 0, 2, 0), 0, "expected a compressor of 0 or 1 in Fluid's layout, or a size of at least 4 in Go's, found 2"},
		{"go: compressor", header(0, 3, 4, 1), 0, "expected a compressor of at most 2, found 3"},
		{"fluid: size 2^31", header(1, 0, 0, 1<<31), 0, "expected a chunk of 2147483668 bytes, found 20"},
		{"fluid: size 2^32-1", header(1, 0, 0, math.MaxUint32), 0, "expected a chunk of 4294967315 bytes, found 20"},
		{"go: size 2^32-1", header(0, 0, math.MaxUint32, 1), 0, "expected a chunk of 4294967315 bytes, found 20"},
		{"fluid: 2^32-1 records", header(math.MaxUint32, 0, 0, 4), 0, "expected at least 17179869180 bytes for the lengths of its records, found a size of 4"},
		{"record of 2^31", chunkOf(true, 0, 1, record(1<<31, "abc")), 20, "expected a record of 2147483648 bytes, found 3"},
		{"record of 2^32-1", chunkOf(false, 0, 1, record(math.MaxUint32, "abc")), 20, "expected a record of 4294967295 bytes, found 3"},
		{"too few records", chunkOf(true, 0, 2, payloadOf("abcd")), 28, "expected the length of a record, 4 bytes, with 1 records of the chunk to come, found 0"},
		{"too many records", chunkOf(true, 0, 1, payloadOf("abcd", "")), 28, "expected the end of the chunk after its 1 records, found more"},
		{"gzip: record of 2^32-1", chunkOf(false, gzipped, 1, bomb.Bytes()), 0, "expected a record of 4294967295 bytes, found 1048576"},
		{"gzip: not", chunkOf(false, gzipped, 1, []byte("abcd")), 0, "decompressing: expected more compressed data, found its end"},
		{"gzip: cut", chunkOf(false, gzipped, 1, bomb.Bytes()[:bomb.Len()-9]), 0, "decompressing: expected more compressed data, found its end"},
		{"gzip: bad", chunkOf(false, gzipped, 1, append(bomb.Bytes()[:bomb.Len()-8:bomb.Len()-8], make([]byte, 8)...)), 0, "decompressing: gzip: invalid checksum"},
		{"old: magic", chunkOf(true, snappy, 1, []byte("sNaPpY\x00xxxx")), 0, `expected "snappy\x00", found "sNaPpY\x00"`},
		{"old: short magic", chunkOf(true, snappy, 1, []byte("sna")), 0, `expected "snappy\x00", found "sna"`},
		{"old: nothing", chunkOf(true, snappy, 1, []byte(oldMagic)), 0, "expected the length of a record, 4 bytes, with 1 records of the chunk to come, found 0"},
		{"old: header", chunkOf(true, snappy, 1, []byte(oldMagic+"\x00\x00")), 0, "expected the header of a snappy block, 7 bytes, found 2"},
		{"old: flag", chunkOf(true, snappy, 1, old(2, 1, 0, []byte{1})), 0, "expected a snappy block, 1, or a stored one, 0, found 2"},
		{"old: empty", chunkOf(true, snappy, 1, old(0, 0, 0, nil)), 0, "expected a block of 1 to 32768 bytes, found 0"},
		{"old: large", chunkOf(true, snappy, 1, old(0, 32769, 0, make([]byte, 32769))), 0, "expected a block of 1 to 32768 bytes, found 32769"},
		{"old: cut", chunkOf(true, snappy, 1, old(0, 9, 0, []byte{1})), 0, "expected a block of 9 bytes, found 1"},
		{"old: checksum", chunkOf(true, snappy, 1, old(0, 1, 0, []byte{1})), 0, "checksum of a snappy block: expected 00000000, found"},
		{"old: too much in a block", chunkOf(true, snappy, 1, old(1, 3, 0, raw(32769))), 0, "expected a snappy block of at most 32768 bytes, found 32769"},
		{"old: 2^31 in a block", chunkOf(true, snappy, 1, old(1, 5, 0, raw(1<<31))), 0, "expected a snappy block of at most 32768 bytes, found 2147483648"},
		{"old: 2^64-1 in a block", chunkOf(true, snappy, 1, old(1, 10, 0, raw(math.MaxUint64))), 0, "found one without a size"},
		{"old: not snappy", chunkOf(true, snappy, 1, old(1, 2, 0, []byte{9, 0xff})), 0, "expected a snappy block, found one that cannot be decoded"},
		{"framing: magic", chunkOf(false, snappy, 1, []byte(oldMagic)), 0, "expected \"\\xff\\x06\\x00\\x00sNaPpY\", found"},
		{"framing: header", chunkOf(false, snappy, 1, []byte(framingMagic+"\x00\x00")), 0, "expected the header of a snappy frame, 4 bytes, found 2"},
		{"framing: cut", chunkOf(false, snappy, 1, frame(1, 1<<24-1, 1)), 0, "expected a snappy frame of 16777215 bytes, found 1"},
		{"framing: no checksum", chunkOf(false, snappy, 1, frame(1, 1, 1)), 0, "expected a snappy frame with a checksum, found 1 bytes"},
		{"framing: checksum", chunkOf(false, snappy, 1, frame(1, 5, 0, 0, 0, 0, 1)), 0, "checksum of a snappy block: expected 00000000, found"},
		{"framing: too much", chunkOf(false, snappy, 1, frame(1, 65541, make([]byte, 65541)...)), 0, "expected a stored block of at most 65536 bytes, found 65537"},
		{"framing: too much, packed", chunkOf(false, snappy, 1, frame(0, 7, append(make([]byte, 4), raw(65537)...)...)), 0, "expected a snappy block of at most 65536 bytes, found 65537"},
		{"framing: unknown", chunkOf(false, snappy, 1, frame(0x7f, 0)), 0, "expected a snappy frame that is known or may be skipped, found number 0x7f"},
		{"framing: magic again, wrong", chunkOf(false, snappy, 1, frame(0xff, 6, []byte("snappy")...)), 0, `expected the snappy frame "sNaPpY", found "snappy"`},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := openBytes(t, append(slices.Clone(c.data), goldenFluid...), Options{Records: "bytes"})
			whole := strings.Contains(c.text, "expected a chunk of")
			if whole { // records after it would be within the chunk
				r = openBytes(t, c.data, Options{Records: "bytes"})
			}
			all, err := readAll(t, r, 64)
			expectError(t, err, c.offset, int64(len(all)), c.text)
			if err = r.Resync(); err == io.EOF && whole {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if all, err = readAll(t, r, 64); err != io.EOF {
				t.Fatal(err)
			}
			expect(t, all, [][]fluidTensor{bytesOf("ABC"), bytesOf(""), bytesOf("DEFG")})
		})
	}
}

func TestOldSnappyMayRepeatItsMagic(t *testing.T) {
	payload := payloadOf("ABC", "", "DEFG")
	packed := appendOld(appendOld(nil, payload[:5]), payload[5:])
	all, err := readAll(t, openBytes(t, chunkOf(true, snappy, 3, packed), Options{}), 64)
	if err != io.EOF {
		t.Fatal(err)
	}
	expect(t, all, [][]fluidTensor{bytesOf("ABC"), bytesOf(""), bytesOf("DEFG")})
}

func TestStandardSnappyMaySkipFrames(t *testing.T) {
	payload := payloadOf("ABC", "", "DEFG")
	packed := append(appendFraming(nil, payload[:5]), 0x80, 2, 0, 0, 1, 2, 0xfe, 1, 0, 0, 9)
	packed = appendFraming(packed, payload[5:])
	all, err := readAll(t, openBytes(t, chunkOf(false, snappy, 3, packed), Options{}), 64)
	if err != io.EOF {
		t.Fatal(err)
	}
	expect(t, all, [][]fluidTensor{bytesOf("ABC"), bytesOf(""), bytesOf("DEFG")})
	// The reader of s2, which knows the standard framing, decodes the same.
	plain := []byte(pseudo(200000, 1))
	if found, err := io.ReadAll(s2.NewReader(bytes.NewReader(appendFraming(nil, plain)))); err != nil || !bytes.Equal(found, plain) {
		t.Error("s2 decoded other data", err)
	}
}

// small writes files of a few chunks, in every layout.
func small(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	for _, o := range layouts {
		for _, records := range []string{"bytes", "tensors"} {
			o.Records, o.RecordsPerChunk = records, 2
			var tuples [][]fluidTensor
			for i := range 5 {
				if records == "bytes" {
					tuples = append(tuples, bytesOf(pseudo(3*i, 1)))
				} else {
					tuples = append(tuples, []fluidTensor{{pyfeed.Int16, []int64{int64(i)}, [][]int64{{0, 0, int64(i)}}, pseudo(2*i, 2)}, {pyfeed.Float32, nil, nil, "abcd"}})
				}
			}
			path := filepath.Join(t.TempDir(), "a.rio")
			write(t, path, &record.Config{Options: &o}, tuples)
			all[o.Layout+o.Compression+records], _ = os.ReadFile(path)
		}
	}
	return all
}

func TestEveryTruncation(t *testing.T) {
	for name, data := range small(t) {
		t.Run(name, func(t *testing.T) {
			whole, err := readAll(t, openBytes(t, data, Options{}), 64)
			if err != io.EOF || len(whole) != 5 {
				t.Fatal(len(whole), err)
			}
			ends := map[int]int{} // positions of chunks' ends, and the number of records before them
			for at, n := 0, 0; at < len(data); {
				var h header
				if bad := h.parse(data[at:]); bad != (chunkFault{}) {
					t.Fatal(bad)
				}
				ends[at] = n
				at += h.totalSize()
				n += int(h.records)
			}
			before := 0
			for cut := range data {
				n, is := ends[cut]
				if testing.Short() && !is && cut%5 > 0 {
					continue
				}
				all, err := readAll(t, openBytes(t, data[:cut], Options{}), 64)
				if is {
					before = n
					if err != io.EOF {
						t.Fatalf("cut at %d: %v", cut, err)
					}
				} else if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Corrupt || e.At.Record != int64(before) {
					t.Fatalf("cut at %d: expected damage, found %v", cut, err)
				}
				expect(t, all, whole[:before])
			}
		})
	}
}

func TestEveryFlippedBit(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 19
	}
	for name, data := range small(t) {
		t.Run(name, func(t *testing.T) {
			whole, err := readAll(t, openBytes(t, data, Options{}), 64)
			if err != io.EOF {
				t.Fatal(err)
			}
			starts := []int{0}
			for at := 0; at < len(data); {
				var h header
				h.parse(data[at:])
				at += h.totalSize()
				starts = append(starts, at)
			}
			pool := formattest.Pool(t)
			for i := 0; i < 8*len(data); i += step {
				b := slices.Clone(data)
				b[i/8] ^= 1 << (i % 8)
				r, err := tested.Memory(b, &record.Config{Storage: storage.Options{Compression: "none"}, Pool: pool})
				if err != nil {
					t.Fatal(err)
				}
				var all [][]fluidTensor
				for err != io.EOF {
					var more [][]fluidTensor
					more, err = readAll(t, r, 6)
					all = append(all, more...)
					if err != io.EOF {
						if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Corrupt {
							t.Fatal(err)
						}
						if err = r.Resync(); err != nil && err != io.EOF {
							t.Fatal(err)
						}
					}
				}
				r.Close()
				// The records read are records of the file, in order. No chunk is lost except the one with the flipped
				// bit.
				c := 0
				for starts[c+1] <= i/8 {
					c++
				}
				left := append(slices.Clone(whole[:2*c]), whole[min(2*c+2, 5):]...)
				if !within(all, whole) || !within(left, all) {
					t.Fatalf("bit %d, in chunk %d: found %v", i, c, all)
				}
			}
		})
	}
}

// within reports whether whole contains the records of part, in the same order.
func within(part, whole [][]fluidTensor) bool {
	for _, w := range whole {
		if len(part) > 0 && reflect.DeepEqual(part[0], w) {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// A record can be a RecordIO file. If its chunk is damaged, the chunks in the record are not mistaken for chunks of the
// file.
func TestChunksInsideADamagedOne(t *testing.T) {
	bad := chunkOf(true, uncompressed, 2, payloadOf("x", string(goldenFluid)))
	bad[24] ^= 1
	for _, c := range []struct {
		tail     []byte
		expected [][]fluidTensor
	}{
		{nil, nil},
		{chunkOf(false, uncompressed, 1, payloadOf("behind")), [][]fluidTensor{bytesOf("behind")}},
	} {
		r := openBytes(t, slices.Concat(bad, c.tail), Options{})
		_, err := readAll(t, r, 64)
		expectError(t, err, 0, 0, "checksum of a chunk")
		if err = r.Resync(); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		all, err := readAll(t, r, 64)
		if err != io.EOF {
			t.Fatal(err)
		}
		expect(t, all, c.expected)
	}
}

// A magic number is found even where a piece of the search ends.
func TestResyncOverManyPieces(t *testing.T) {
	for shift := range 6 {
		data := slices.Concat(make([]byte, 2*memory.WindowSize-3-shift), goldenFluid)
		r := openBytes(t, data, Options{})
		_, err := readAll(t, r, 64)
		expectError(t, err, 0, 0, "expected the magic number")
		if err = r.Resync(); err != nil {
			t.Fatal(err)
		}
		if all, err := readAll(t, r, 64); len(all) != 3 || err != io.EOF {
			t.Fatal(len(all), err)
		}
	}
}

// A file of many headers that each claim the rest of the file does not take forever.
func TestSearchBudget(t *testing.T) {
	const n = 2000
	var b []byte
	for i := range n {
		h := header{fluid: true, records: 1, checksum: 1, size: uint32((n - i) * headerSize)}
		b = h.put(b)
	}
	r := openBytes(t, append(b, make([]byte, headerSize+3)...), Options{})
	r.searchBudget = 1000
	_, err := readAll(t, r, 64)
	expectError(t, err, 0, 0, "checksum")
	if err = r.Resync(); err == nil || err == io.EOF {
		t.Fatalf("expected an error, found %v", err)
	}
	if !strings.Contains(err.Error(), "gave up") {
		t.Fatal(err)
	}
	if _, again := readAll(t, r, 64); again != err {
		t.Fatal(again)
	}
}

func TestDamagedTensors(t *testing.T) {
	tensor := func(version uint32, lod []byte, version2 uint32, desc []byte, data string) string {
		b := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0}, version)
		b = append(b, lod...)
		b = binary.LittleEndian.AppendUint32(b, version2)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
		return string(append(append(b, desc...), data...))
	}
	u64 := func(all ...uint64) (b []byte) {
		for _, v := range all {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return b
	}
	desc := func(kind uint64, dims ...int64) []byte {
		b := protowire.AppendVarint([]byte{0x08}, kind)
		for _, d := range dims {
			b = protowire.AppendVarint(append(b, 0x10), uint64(d))
		}
		return b
	}
	good := tensor(0, u64(0), 0, desc(2, 1), "abcd")
	for _, c := range []struct {
		what, record string
		at           int64 // in the record
		text         string
		tells        bool // the record looks like one of tensors
	}{
		{"nothing", "", 0, "expected the number of tensors, 4 bytes, found a record of 0", false},
		{"no tensors", "\x00\x00\x00\x00", 0, "expected at least 1 tensor and, in a record of 4 bytes, at most 0, found 0", false},
		{"2^32-1 tensors", "\xff\xff\xff\xff" + good, 0, "at most 1, found 4294967295", false},
		{"version", tensor(1, u64(0), 0, desc(2, 1), "abcd"), 4, "tensor 0: expected version 0, found 1", false},
		{"tensor's version", tensor(0, u64(0), 7, desc(2, 1), "abcd"), 16, "tensor 0: expected version 0, found 7", false},
		{"9 levels", tensor(0, u64(9), 0, desc(2, 1), "abcd"), 8, "expected at most 8 LoD levels, found 9", false},
		{"2^64-1 levels", tensor(0, u64(math.MaxUint64), 0, desc(2, 1), "abcd"), 8, "expected at most 8 LoD levels, found 18446744073709551615", false},
		{"level's size", tensor(0, u64(1, 1<<31), 0, desc(2, 1), "abcd"), 16, "LoD level 0: expected a multiple of 8 bytes and at most 16, found 2147483648", false},
		{"level's odd size", tensor(0, u64(1, 3), 0, desc(2, 1), "abcd"), 16, "LoD level 0: expected a multiple of 8 bytes and at most 16, found 3", false},
		{"level of 2^64-8", tensor(0, u64(1, math.MaxUint64-7), 0, desc(2, 1), "abcd"), 16, "found 18446744073709551608", false},
		{"no type", tensor(0, u64(0), 0, desc(2, 1)[2:], "abcd"), 24, "description: expected a type, found none", false},
		{"strange type", tensor(0, u64(0), 0, desc(7, 1), "abcd"), 24, "description: expected the number of a type of elements, found 7", true},
		{"type -1", tensor(0, u64(0), 0, desc(math.MaxUint64, 1), "abcd"), 24, "description: expected the number of a type of elements, found -1", true},
		{"type 22", tensor(0, u64(0), 0, desc(22, 1), "abcd"), 24, "found 22", true},
		{"half a field", tensor(0, u64(0), 0, append(desc(2, 1), 0x10), "abcd"), 24, "description: expected a dimension, found unexpected EOF", true},
		{"half a tag", tensor(0, u64(0), 0, append(desc(2, 1), 0x80), "abcd"), 24, "description: expected a field, found unexpected EOF", true},
		{"half a packed field", tensor(0, u64(0), 0, append(desc(2), 0x12, 2, 1, 0x80), "abcd"), 24, "description: expected a dimension, found unexpected EOF", true},
		{"packed field cut", tensor(0, u64(0), 0, append(desc(2), 0x12, 9, 1), "abcd"), 24, "description: expected dimensions, found unexpected EOF", true},
		{"rank 9", tensor(0, u64(0), 0, desc(2, 1, 1, 1, 1, 1, 1, 1, 1, 1), "abcd"), 24, "rank: expected at most 8 dimensions, found more", true},
		{"negative dimension", tensor(0, u64(0), 0, desc(2, -1), "abcd"), 37, "dimension 0: expected a size, found -1", true},
		{"overflow", tensor(0, u64(0), 0, desc(3, 1<<31, 1<<31), "abcd"), 38, "are more bytes than there are", true},
		{"overflow to 0", tensor(0, u64(0), 0, desc(3, 1<<32, 1<<32), "abcd"), 38, "are more bytes than there are", true},
		{"too little data", tensor(0, u64(0), 0, desc(2, 2), "abcd"), 28, "tensor 0: expected 8 bytes of data for int32 [2], found 4", true},
		{"too much data", good + "!", int64(len(good)), "expected the end of the record after 1 tensors, found 1 more bytes", true},
		{"description's size", good[:20] + "\xff\xff\xff\xff" + good[24:], 20, "expected a description of at most 8 bytes, found a size of -1", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			first := chunkOf(true, uncompressed, 3, payloadOf(good, c.record, good))
			r := openBytes(t, first, Options{})
			all, err := readAll(t, r, 64)
			expect(t, all, [][]fluidTensor{{{pyfeed.Int32, []int64{1}, nil, "abcd"}}})
			at := c.at
			expectError(t, err, int64(headerSize+4+len(good)+4)+at, 1, c.text)
			// Only that record is skipped.
			if err = r.Resync(); err != nil {
				t.Fatal(err)
			}
			if all, err = readAll(t, r, 64); err != io.EOF {
				t.Fatal(err)
			}
			expect(t, all, [][]fluidTensor{{{pyfeed.Int32, []int64{1}, nil, "abcd"}}})

			// As the first record it is damage too, if it or a following record shows that the records are tensors.
			for name, file := range map[string][]byte{
				"one chunk":      chunkOf(true, uncompressed, 3, payloadOf(c.record, "\xff\xff\xff\xff", good)),
				"a packed chunk": chunkOf(true, snappy, 3, appendOld(nil, payloadOf(c.record, "\xff\xff\xff\xff", good))),
				"a chunk each":   slices.Concat(chunkOf(false, uncompressed, 1, payloadOf(c.record)), chunkOf(false, uncompressed, 1, payloadOf("")), chunkOf(false, uncompressed, 1, payloadOf(good))),
				"packed ones":    slices.Concat(chunkOf(true, snappy, 1, appendOld(nil, payloadOf(c.record))), chunkOf(true, snappy, 2, appendOld(nil, payloadOf("", good)))),
			} {
				r := openBytes(t, file, Options{})
				_, _, err := r.Describe()
				e := formattest.Expect(t, err, pyfeed.Corrupt, c.text+"; if the records hold no tensors, say so by the option records: \"bytes\"")
				if e.At.Record != 0 {
					t.Errorf("%s: expected record 0, found %v", name, e)
				}
				if err = r.Resync(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				_, err = readAll(t, r, 64) // a record with a damaged head is damage too now
				if formattest.Expect(t, err, pyfeed.Corrupt, "tensor").At.Record != 1 || r.Resync() != nil {
					t.Errorf("%s: expected record 1, found %v", name, err)
				}
				if all, err = readAll(t, r, 64); err != io.EOF {
					t.Fatalf("%s: %v", name, err)
				}
				expect(t, all, [][]fluidTensor{{{pyfeed.Int32, []int64{1}, nil, "abcd"}}})
			}
			file := chunkOf(false, uncompressed, 1, payloadOf(c.record))
			if all, err = readAll(t, openBytes(t, file, Options{}), 1); c.tells {
				expectError(t, err, headerSize+4+at, 0, c.text+"; if the records hold no tensors, say so by the option records: \"bytes\"")
			} else if err != io.EOF {
				t.Fatal(err)
			} else {
				expect(t, all, [][]fluidTensor{bytesOf(c.record)})
			}
			if all, err = readAll(t, openBytes(t, file, Options{Records: "bytes"}), 1); err != io.EOF {
				t.Fatal(err)
			}
			expect(t, all, [][]fluidTensor{bytesOf(c.record)})
			r = openBytes(t, file, Options{Records: "tensors"})
			_, _, err = r.Describe()
			expectError(t, err, headerSize+4+at, 0, c.text)
			if _, again := r.Read(nil); again != err {
				t.Fatal(again)
			}
			if err = r.Resync(); err != io.EOF {
				t.Fatal(err)
			}
			packed := chunkOf(true, snappy, 1, appendOld(nil, payloadOf(c.record)))
			_, err = readAll(t, openBytes(t, packed, Options{Records: "tensors"}), 1)
			expectError(t, err, 0, 0, c.text)
		})
	}
}

func TestDescriptionOfOtherWriters(t *testing.T) {
	// Packed dims, unknown fields, and a type that is given twice.
	desc := []byte{0x12, 3, 2, 0x81, 0, 0x1a, 1, 'x', 0x08, 5, 0x18, 7, 0x08, 0}
	record := slices.Concat([]byte{1, 0, 0, 0}, make([]byte, 16), []byte{byte(len(desc)), 0, 0, 0}, desc, []byte{1, 0})
	all, err := readAll(t, openBytes(t, chunkOf(true, 0, 1, payloadOf(string(record))), Options{}), 1)
	if err != io.EOF {
		t.Fatal(err)
	}
	expect(t, all, [][]fluidTensor{{{pyfeed.Bool, []int64{2, 1}, nil, "\x01\x00"}}})
}

func TestDescribeLeavesTheFirstRecord(t *testing.T) {
	r := openBytes(t, goldenFluid, Options{})
	for range 2 {
		if _, _, err := r.Describe(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readAll(t, r, 1)
	if err != io.EOF || len(all) != 3 {
		t.Fatal(all, err)
	}
	_, _, err = openBytes(t, nil, Options{}).Describe()
	if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Invalid || !strings.Contains(e.Text, "expected slots to be given") {
		t.Errorf("an empty file: found %v", err)
	}
	if slots, _, err := openBytes(t, nil, Options{Records: "bytes"}).Describe(); err != nil || len(slots) != 1 {
		t.Errorf("an empty file of bytes: found %v, %v", slots, err)
	}
	r = openBytes(t, goldenFluid[:30], Options{})
	_, _, err = r.Describe()
	expectError(t, err, 0, 0, "expected a chunk of 39 bytes, found 30")
}

func TestChunksEnd(t *testing.T) {
	chunks := func(data []byte) (counts []uint32) {
		for len(data) > 0 {
			var h header
			if bad := h.parse(data); bad != (chunkFault{}) {
				t.Fatal(bad)
			}
			counts = append(counts, h.records)
			data = data[h.totalSize():]
		}
		return counts
	}
	for _, c := range []struct {
		o        Options
		n, size  int
		expected []uint32
	}{
		{Options{}, 2001, 1, []uint32{1000, 1000, 1}},
		{Options{Layout: "go"}, 2001, 1, []uint32{2001}},
		{Options{RecordsPerChunk: 2}, 3, 1, []uint32{2, 1}},
		{Options{Layout: "go", RecordsPerChunk: 2}, 4, 1, []uint32{2, 2}},
		{Options{ChunkBytes: 10}, 5, 5, []uint32{2, 2, 1}},
		{Options{Layout: "go", ChunkBytes: 9}, 3, 5, []uint32{1, 1, 1}},
		{Options{ChunkBytes: 1}, 3, 5, []uint32{1, 1, 1}},
		{Options{ChunkBytes: 1}, 3, 0, []uint32{3}},
		{Options{}, 3, 20 << 20, []uint32{1, 1, 1}},
		{Options{}, 3, 8 << 10, []uint32{1, 1, 1}}, // large records have chunks of their own
		{Options{Layout: "go"}, 2, 4 << 20, []uint32{1, 1}},
		{Options{}, 3, 8<<10 - 1, []uint32{3}},
		{Options{}, 3, 4<<20 + 1, []uint32{3}},
		{Options{ChunkBytes: 32 << 20}, 3, 8 << 10, []uint32{3}},
		{Options{RecordsPerChunk: 1000}, 3, 8 << 10, []uint32{3}},
		{Options{Compression: "snappy"}, 3, 8 << 10, []uint32{3}},
	} {
		c.o.Records = "bytes"
		path := filepath.Join(t.TempDir(), "a.rio")
		write(t, path, &record.Config{Options: &c.o}, slices.Repeat([][]fluidTensor{bytesOf(strings.Repeat("x", c.size))}, c.n))
		data, _ := os.ReadFile(path)
		if found := chunks(data); !slices.Equal(found, c.expected) {
			t.Errorf("%+v, %d records of %d: expected chunks of %v, found %v", c.o, c.n, c.size, c.expected, found)
		}
	}
	path := filepath.Join(t.TempDir(), "mixed.rio")
	small, large := bytesOf("x"), bytesOf(strings.Repeat("x", 10_000))
	write(t, path, &record.Config{Options: &Options{Records: "bytes"}}, [][]fluidTensor{small, small, large, small, large, large})
	data, _ := os.ReadFile(path)
	if found, expected := chunks(data), []uint32{2, 1, 1, 1, 1}; !slices.Equal(found, expected) {
		t.Errorf("small and large records: expected chunks of %v, found %v", expected, found)
	}
}

func TestWriterRefuses(t *testing.T) {
	f32 := fluidTensor{pyfeed.Float32, []int64{1}, nil, "abcd"}
	for _, c := range []struct {
		what   string
		o      Options
		slots  []pyfeed.Slot
		tuples [][]fluidTensor
		kind   pyfeed.Kind
		text   string
	}{
		{"no slots", Options{}, nil, [][]fluidTensor{{}}, pyfeed.Slots, "slots: expected at least 1, found 0"},
		{"other number", Options{}, nil, [][]fluidTensor{{f32}, {f32, f32}}, pyfeed.Slots, "slots: expected 1, as in the first tuple, found 2"},
		{"other dtype", Options{}, nil, [][]fluidTensor{{f32, f32}, {f32, {pyfeed.Int32, []int64{1}, nil, "abcd"}}}, pyfeed.Type, "slot 1: dtype: expected float32, as in the first tuple, found int32"},
		{"other rank", Options{}, nil, [][]fluidTensor{{f32}, {{pyfeed.Float32, []int64{1, 1}, nil, "abcd"}}}, pyfeed.Shape, "slot 0: rank: expected 1, as in the first tuple, found 2, dims [1 1]"},
		{"other levels", Options{}, nil, [][]fluidTensor{{f32}, {{pyfeed.Float32, []int64{1}, [][]int64{{0, 1}}, "abcd"}}}, pyfeed.Shape, "slot 0: LoD: expected 0 levels, as in the first tuple, found 1"},
		{"bad LoD", Options{}, nil, [][]fluidTensor{{{pyfeed.Float32, []int64{1}, [][]int64{{0, 2}}, "abcd"}}}, pyfeed.Shape, "slot 0: LoD level 0: expected the last offset to be 1"},
		{"bad data", Options{}, nil, [][]fluidTensor{{{pyfeed.Float32, []int64{2}, nil, "abcd"}}}, pyfeed.Shape, "slot 0: expected 8 bytes of data for float32 [2], found 4"},
		{"not the slots", Options{}, []pyfeed.Slot{{DType: pyfeed.Int32, Dims: pyfeed.Dims{1}}}, [][]fluidTensor{{f32}}, pyfeed.Type, "slot 0: dtype: expected int32, found float32"},
		{"bytes of two slots", Options{Records: "bytes"}, nil, [][]fluidTensor{{f32, f32}}, pyfeed.Slots, "slots: expected 1 for a record of bytes, found 2"},
		{"bytes of two sequences", Options{Records: "bytes"}, nil, [][]fluidTensor{{{pyfeed.Uint8, []int64{2}, [][]int64{{0, 1, 2}}, "ab"}}}, pyfeed.Shape, "slot 0: LoD: expected one sequence for a record of bytes, found 1 levels, the first of 2 sequences"},
		{"uint16", Options{}, nil, [][]fluidTensor{{f32, {pyfeed.Uint16, []int64{2}, nil, "abcd"}}}, pyfeed.Type, "slot 1: dtype: expected one that Fluid's tensors have, [bool int8 int16 int32 int64 uint8 uint64 float16 float32 float64], found uint16: convert it, or write records=\"bytes\""},
		{"uint32", Options{Layout: "go"}, nil, [][]fluidTensor{{{pyfeed.Uint32, []int64{1}, nil, "abcd"}}}, pyfeed.Type, "found uint32"},
		{"bfloat16", Options{}, nil, [][]fluidTensor{{{pyfeed.BFloat16, []int64{2}, nil, "abcd"}}}, pyfeed.Type, "found bfloat16"},
		{"complex64", Options{}, nil, [][]fluidTensor{{{pyfeed.Complex64, []int64{0}, nil, ""}}}, pyfeed.Type, "found complex64"},
		{"complex128", Options{}, nil, [][]fluidTensor{{{pyfeed.Complex128, []int64{0}, nil, ""}}}, pyfeed.Type, "found complex128"},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.rio")
			config, tuples := &record.Config{Options: &c.o, Slots: c.slots}, tuplesOf(c.tuples)
			if err := tested.Write(t, path, config, tuples[:len(tuples)-1]...); err != nil {
				t.Fatal(err)
			}
			formattest.Expect(t, tested.Write(t, path, config, tuples...), c.kind, c.text)
		})
	}
}

// Bytes may have any dtype, and are read as uint8.
func TestBytesOfAnyType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.rio")
	write(t, path, &record.Config{Options: &Options{Records: "bytes"}}, [][]fluidTensor{{{pyfeed.BFloat16, []int64{1, 2}, nil, "abcd"}}})
	eachWay(t, path, Options{}, func(t *testing.T, r record.Records) {
		all, err := readAll(t, r, 1)
		if err != io.EOF {
			t.Fatal(err)
		}
		expect(t, all, [][]fluidTensor{bytesOf("abcd")})
	})
}

// The file's suffix gives the compression of the whole file, whatever the compression of its chunks.
func TestCompression(t *testing.T) {
	say := func(c *record.Config, compression string) { c.Storage.Compression = compression }
	c := record.Config{Options: &Options{Compression: "snappy"}}
	tested.Compressions(t, c, say, formattest.Tuple(formattest.Text("record")), "none", "gzip", "zlib", "zstd", "snappy")
	tested.Abort(t, &c, formattest.Tuple(formattest.Text("record")))
}

// Files written with "auto" are read with "auto", whatever bytes they hold: in the Fluid layout even bytes that look
// like tensors.
func TestAutoRoundTrip(t *testing.T) {
	tricky := string(slices.Concat([]byte{1, 0, 0, 0}, goldenFloat))
	path := filepath.Join(t.TempDir(), "a.rio")
	write(t, path, &record.Config{}, [][]fluidTensor{bytesOf(tricky)})
	eachWay(t, path, Options{}, func(t *testing.T, r record.Records) {
		all, _ := readAll(t, r, 1)
		expect(t, all, [][]fluidTensor{bytesOf(tricky)})
	})
	write(t, path, &record.Config{Options: &Options{Layout: "go"}}, [][]fluidTensor{bytesOf("(lp0\n.")})
	if data, _ := os.ReadFile(path); !bytes.Equal(data, chunkOf(false, uncompressed, 1, payloadOf("(lp0\n."))) {
		t.Errorf("expected a record as it is, found %x", data)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		o    Options
		text string
	}{
		{Options{Records: "pickles"}, `records: expected auto, tensors or bytes, found "pickles"`},
		{Options{Layout: "rust"}, `layout: expected fluid or go, found "rust"`},
		{Options{Compression: "zstd"}, `compression: expected none, snappy or gzip, found "zstd"`},
		{Options{Compression: "gzip"}, "compression: expected none or snappy in the fluid layout, found gzip, which only the go layout has"},
		{Options{RecordsPerChunk: -1}, "records_per_chunk: expected 1 to 4294967295, or 0 for the layout's own, found -1"},
		{Options{ChunkBytes: 1<<31 + 1}, "chunk_bytes: expected 1 to 2147483648, or 0 for 33554432, found 2147483649"},
	} {
		path := filepath.Join(t.TempDir(), "a.rio")
		_, err := Create(path, &record.Config{Options: &c.o})
		if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Invalid || e.Text != c.text {
			t.Errorf("Create: expected %q, found %v", c.text, err)
		}
		if err := os.WriteFile(path, goldenGo, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = Open(path, &record.Config{Options: &c.o, Pool: formattest.Pool(t)})
		if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Invalid || e.Text != c.text {
			t.Errorf("Open: expected %q, found %v", c.text, err)
		}
	}
	_, err := Open(filepath.Join(t.TempDir(), "none.rio"), &record.Config{Pool: formattest.Pool(t)})
	if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.IO {
		t.Errorf("expected an error of the system, found %v", err)
	}
}

// A mapped file that shrinks is an error, not zeros, and not damage that can be skipped.
func TestTheFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.rio")
	write(t, path, &record.Config{Options: &Options{Records: "bytes", RecordsPerChunk: 1}}, slices.Repeat([][]fluidTensor{bytesOf(pseudo(50000, 1))}, 100))
	r, err := Open(path, &record.Config{Options: &Options{}, Storage: storage.Options{IO: "map"}, Pool: formattest.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := make([]*pyfeed.Tuple, 1)
	pyfeed.NewTuples(out, 1)
	if n, err := r.Read(out); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	pyfeed.ReleaseAll(out)
	if err = os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	_, err = readAll(t, r, 1)
	if err == nil || !strings.Contains(err.Error(), "shrank") {
		t.Fatal(err)
	}
	if r.CheckTruncated() == nil {
		t.Error("expected CheckTruncated to return an error")
	}
	if err = r.Resync(); err == nil || !strings.Contains(err.Error(), "shrank") {
		t.Fatal(err)
	}
}

// A file that cannot be decompressed to its end returns the records before the damage, and then an error.
func TestBrokenStream(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(slices.Concat(goldenFluid, goldenGo, goldenGo[:30]))
	_ = z.Flush()
	r, err := Open(formattest.File(t, "a.rio.gz", zipped.Bytes()), &record.Config{Pool: formattest.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := readAll(t, r, 64)
	if len(all) != 6 || err == io.EOF || !strings.Contains(err.Error(), "decompressing: expected more compressed data") {
		t.Fatal(len(all), err)
	}
	if err = r.Resync(); err != io.EOF {
		t.Fatal(err)
	}
}

// Decompressing a chunk needs memory for one piece or for its largest record, not for the whole chunk.
func TestUnpackingTakesLittleMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.rio")
	tuple := bytesOf(strings.Repeat("a", 20000))
	write(t, path, &record.Config{Options: &Options{Layout: "go", Compression: "gzip", ChunkBytes: 1 << 30}}, slices.Repeat([][]fluidTensor{tuple}, 500))
	eachWay(t, path, Options{}, func(t *testing.T, r record.Records) {
		out := make([]*pyfeed.Tuple, 8)
		total, limit := 0, int64(0)
		for {
			pyfeed.NewTuples(out, 1)
			n, err := r.Read(out)
			total += n
			limit = max(limit, memory.Count().Live[memory.File])
			pyfeed.ReleaseAll(out)
			if err != nil {
				break
			}
		}
		if total != 500 || limit > 4<<20 {
			t.Errorf("expected 500 records with at most 4 MiB, found %d with %d bytes", total, limit)
		}
	})
}

// The format is registered, so that open_files finds it.
func TestRegistered(t *testing.T) {
	if !slices.Contains(record.Tags(), "recordio") {
		t.Errorf("found the tags %v", record.Tags())
	}
}

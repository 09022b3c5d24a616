package all_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	_ "github.com/pyfeed/pyfeed/readers/all"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// Records of one size are passed through shuffle and batch as Blocks if they are in the machine's byte order, and as
// tuples if their bytes have to be swapped. Consumers MUST NOT see a difference.

// numbered returns a file of the instances first to end-1. Instance i has the int32 i and the int16s i, i+1, i+2.
func numbered(order binary.AppendByteOrder, first, end int) (data []byte) {
	for i := first; i < end; i++ {
		data = order.AppendUint32(data, uint32(i))
		for k := range 3 {
			data = order.AppendUint16(data, uint16(i+k))
		}
	}
	return data
}

// npyRows returns an npy file of the rows first to end-1. Row i has width int32s in two dimensions: i, i+1 and so on.
func npyRows(order binary.AppendByteOrder, width, first, end int) []byte {
	letter := "<"
	if order == binary.BigEndian {
		letter = ">"
	}
	head := fmt.Sprintf("{'descr': '%si4', 'fortran_order': False, 'shape': (%d, 1, %d), }", letter, end-first, width)
	head += strings.Repeat(" ", 128-10-1-len(head)) + "\n"
	data := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), 0)
	data = append(data, head...)
	for i := first; i < end; i++ {
		for k := range width {
			data = order.AppendUint32(data, uint32(i+k))
		}
	}
	return data
}

var orders = map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian}

// bounds returns where three files of 2000, 1 and 3001 instances begin and end, or of fewer in short mode.
func bounds() []int {
	if testing.Short() {
		return []int{0, 800, 801, 2002}
	}
	return []int{0, 2000, 2001, 5002}
}

// filesOf writes three files of instances, and returns the attributes of open_files for them.
func filesOf(t *testing.T, format, order string) string {
	t.Helper()
	dir := t.TempDir()
	var quoted []string
	for k, end := range bounds()[1:] {
		data := npyRows(orders[order], 2, bounds()[k], end)
		switch format {
		case "raw":
			data = numbered(orders[order], bounds()[k], end)
		case "npz":
			data = npzOf(t, data, npyRows(orders[order], 3, bounds()[k], end))
		}
		quoted = append(quoted, fmt.Sprintf("%q", writeTo(t, dir, fmt.Sprintf("%d.%s", k, format), data)))
	}
	slots := ""
	if format == "raw" {
		slots = fmt.Sprintf(`, "slots": [{"dtype": "int32", "dims": []}, {"dtype": "int16", "dims": [3]}], "options": {"byte_order": %q}`, order)
	}
	return fmt.Sprintf(`"filenames": [%s]%s`, strings.Join(quoted, ", "), slots)
}

// npzOf returns an archive of npy files, which are not compressed.
func npzOf(t *testing.T, members ...[]byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for i, data := range members {
		w, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("%d.npy", i), Method: zip.Store})
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func writeTo(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// balanced fails a test that does not release all memory.
func balanced(t *testing.T) {
	t.Helper()
	before := memory.Count()
	t.Cleanup(func() {
		if after := memory.Count(); after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
}

// step is an operator that reads the readers before it.
type step struct{ op, attributes string }

var (
	shuffled = step{"create_shuffle_reader", `{"buffer_size": 300, "seed": 7}`}
	batched  = step{"create_batch_reader", `{"batch_size": 32}`}
	whole    = step{"create_batch_reader", `{"batch_size": 32, "drop_last": true}`}
	twice    = step{"create_multi_pass_reader", `{"pass_num": 2}`}
	buffered = step{"create_double_buffer_reader", `{"depth": 2}`}
	sharded  = step{"create_shard_reader", `{"rank": 1, "world": 3}`}
)

// build makes a chain over files. A zip gets a second reader of the same files.
func build(t *testing.T, files string, steps []step) *readers.ReaderHolder {
	t.Helper()
	scope := pyfeed.NewScope(nil)
	t.Cleanup(scope.Drop)
	if err := ops.Create(scope, "open_files", "0", nil, []byte("{"+files+"}")); err != nil {
		t.Fatal(err)
	}
	top := "0"
	for i, s := range steps {
		in := []string{top}
		top = fmt.Sprint(i + 1)
		if s.op == "create_zip_reader" {
			if err := ops.Create(scope, "open_files", "other", nil, []byte("{"+files+"}")); err != nil {
				t.Fatal(err)
			}
			in = append(in, "other")
		}
		if err := ops.Create(scope, s.op, top, in, []byte(s.attributes)); err != nil {
			t.Fatal(err)
		}
	}
	v, err := scope.FindVar(top)
	if err != nil {
		t.Fatal(err)
	}
	h, err := readers.HolderOf(v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Drop)
	return h
}

// shown returns all tuples of a reader as text, with their bytes as they are, and the error at the end.
func shown(h *readers.ReaderHolder) (all []string, err error) {
	for {
		tuple, err := h.ReadNext(context.Background())
		if err != nil {
			return all, err
		}
		text := fmt.Sprint(tuple.Pass)
		for i := range tuple.Slots {
			s := &tuple.Slots[i]
			text += fmt.Sprintf(" %v %v %v ", s.DType, s.Dims(), s.LoD) + string(s.Data)
		}
		all = append(all, text)
		tuple.Release()
	}
}

// chains are the chains that rows are passed through.
var chains = map[string][]step{
	"alone":                        nil,
	"shuffle":                      {shuffled},
	"batch":                        {batched},
	"shuffle batch double_buffer":  {shuffled, batched, buffered},
	"batch double_buffer shuffle":  {batched, {"create_double_buffer_reader", `{"depth": 16}`}, shuffled},
	"shuffle batch":                {shuffled, batched},
	"shuffle whole batches":        {shuffled, whole},
	"shuffle shuffle batch":        {shuffled, shuffled, batched},
	"multi_pass shuffle batch":     {twice, shuffled, batched},
	"shuffle multi_pass batch":     {shuffled, twice, batched},
	"shuffle double_buffer batch":  {shuffled, buffered, batched},
	"double_buffer of single ones": {shuffled, buffered},
	"shard shuffle batch":          {sharded, shuffled, batched},
	"batches of batches":           {shuffled, batched, batched},
	"zip shuffle batch":            {{"create_zip_reader", "{}"}, shuffled, batched},
	"zip batch double_buffer":      {{"create_zip_reader", "{}"}, batched, buffered},
	"shuffle batch split":          {shuffled, batched, {"create_split_batches_reader", `{"rank": 1, "world": 2}`}},
	"shuffle batch of odd sizes":   {shuffled, {"create_batch_reader", `{"batch_size": 77}`}},
	"shuffle zip":                  {shuffled, {"create_zip_reader", "{}"}},
	"batches larger than the rest": {shuffled, {"create_batch_reader", `{"batch_size": 2147483648}`}},
}

// someChains returns the chains, or a third of them in short mode.
func someChains() map[string][]step {
	if !testing.Short() {
		return chains
	}
	some := make(map[string][]step)
	for i, name := range slices.Sorted(maps.Keys(chains)) {
		if i%3 == 0 {
			some[name] = chains[name]
		}
	}
	return some
}

func TestRowsAreAsTuplesOfTheirOwn(t *testing.T) {
	for _, format := range []string{"raw", "npy", "npz"} {
		big, little := filesOf(t, format, "big"), filesOf(t, format, "little")
		for name, steps := range someChains() {
			t.Run(format+" "+name, func(t *testing.T) {
				balanced(t)
				want, end := shown(build(t, big, steps))
				if end != io.EOF || len(want) == 0 {
					t.Fatalf("%d tuples, %v", len(want), end)
				}
				for _, how := range []string{"map", "read"} {
					h := build(t, little+fmt.Sprintf(`, "storage": {"io": %q}`, how), steps)
					same(t, how, h, want)
					if s := h.Stats(); s.Tuples != int64(len(want)) || s.Bytes == 0 {
						t.Errorf("%s: expected %d tuples and their bytes, found %d and %d", how, len(want), s.Tuples, s.Bytes)
					}
				}
			})
		}
	}
}

// sequence returns record i of a file of byte strings: its number, repeated a varying number of times.
func sequence(i int) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint16(nil, uint16(i)), i*i%23)
}

// tfrecords returns a TFRecord file of the sequences first to end-1.
func tfrecords(first, end int) (data []byte) {
	sum := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for i := first; i < end; i++ {
		record := sequence(i)
		size := binary.LittleEndian.AppendUint64(nil, uint64(len(record)))
		data = binary.LittleEndian.AppendUint32(append(data, size...), sum(size))
		data = binary.LittleEndian.AppendUint32(append(data, record...), sum(record))
	}
	return data
}

// recordIO returns a RecordIO file of the same sequences, in chunks of 100 records, compressed by gzip or not.
func recordIO(first, end int, compressed bool) (data []byte) {
	for first < end {
		next := min(first+100, end)
		var payload []byte
		for i := first; i < next; i++ {
			record := sequence(i)
			payload = append(binary.LittleEndian.AppendUint32(payload, uint32(len(record))), record...)
		}
		compressor := uint32(0)
		if compressed {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			_, _ = w.Write(payload)
			_ = w.Close()
			payload, compressor = packed.Bytes(), 2
		}
		for _, field := range []uint32{0x01020304, crc32.ChecksumIEEE(payload), compressor, uint32(len(payload)), uint32(next - first)} {
			data = binary.LittleEndian.AppendUint32(data, field)
		}
		data = append(data, payload...)
		first = next
	}
	return data
}

// sequencesOf writes three files of sequences, and returns the attributes of open_files for them.
func sequencesOf(t *testing.T, format string, file func(first, end int) []byte) string {
	t.Helper()
	dir := t.TempDir()
	var quoted []string
	for k, end := range bounds()[1:] {
		quoted = append(quoted, fmt.Sprintf("%q", writeTo(t, dir, fmt.Sprintf("%d.%s", k, format), file(bounds()[k], end))))
	}
	text := fmt.Sprintf(`"filenames": [%s]`, strings.Join(quoted, ", "))
	if format == "recordio" {
		text += `, "options": {"records": "bytes"}`
	}
	return text
}

// Byte strings that lie uncompressed in a file are also passed as Blocks; those of compressed chunks are not.
func TestSequencesAreAsTuplesOfTheirOwn(t *testing.T) {
	packed := sequencesOf(t, "recordio", func(first, end int) []byte { return recordIO(first, end, true) })
	plain := sequencesOf(t, "recordio", func(first, end int) []byte { return recordIO(first, end, false) })
	tfrecord := sequencesOf(t, "tfrecord", tfrecords)
	for name, steps := range someChains() {
		t.Run(name, func(t *testing.T) {
			balanced(t)
			want, end := shown(build(t, packed, steps))
			if end != io.EOF || len(want) == 0 {
				t.Fatalf("%d tuples, %v", len(want), end)
			}
			for _, how := range []string{"map", "read"} {
				storage := fmt.Sprintf(`, "storage": {"io": %q}`, how)
				same(t, "RecordIO "+how, build(t, plain+storage, steps), want)
				same(t, "TFRecord "+how, build(t, tfrecord+storage, steps), want)
			}
		})
	}
}

// Damage among byte strings is reported after the strings before it; skipping it loses no other string.
func TestDamageAmongSequences(t *testing.T) {
	data := tfrecords(0, 1000)
	data[len(tfrecords(0, 700))+13] ^= 1 // in the data of record 700
	path := writeTo(t, t.TempDir(), "a.tfrecord", data)
	want := func(skip bool) (all []string) {
		for i := range 1000 {
			if i == 700 && skip {
				continue
			} else if i == 700 {
				break
			}
			all = append(all, fmt.Sprintf("0 uint8 [%d] [[0 %[1]d]] %[2]s", len(sequence(i)), sequence(i)))
		}
		return all
	}
	for _, threads := range []string{"", `, "num_threads": 2`} {
		balanced(t)
		got, err := shown(build(t, fmt.Sprintf(`"filenames": [%q]`+threads, path), nil))
		if !slices.Equal(got, want(false)) || err == io.EOF || !strings.Contains(err.Error(), "record 700") {
			t.Errorf("expected 700 records and an error, found %d and %v", len(got), err)
		}
		got, err = shown(build(t, fmt.Sprintf(`"filenames": [%q], "on_corrupt": "skip"`+threads, path), nil))
		if !slices.Equal(got, want(true)) || err != io.EOF {
			t.Errorf("expected 999 records, found %d and %v", len(got), err)
		}
	}
}

// If the slots require other dims than those of byte strings, each instance is checked.
func TestSequencesOfOneSizeOnly(t *testing.T) {
	balanced(t)
	path := writeTo(t, t.TempDir(), "a.tfrecord", tfrecords(0, 100))
	got, err := shown(build(t, fmt.Sprintf(`"filenames": [%q], "slots": [{"dtype": "int8", "dims": [-1], "lod_levels": 1}]`, path), nil))
	if len(got) != 0 || err == io.EOF || !strings.Contains(err.Error(), "expected int8, found uint8") {
		t.Errorf("expected an error about the dtype, found %d and %v", len(got), err)
	}
}

func same(t *testing.T, how string, h *readers.ReaderHolder, want []string) {
	t.Helper()
	got, end := shown(h)
	if end != io.EOF || len(got) != len(want) {
		t.Fatalf("%s: expected %d tuples, found %d and %v", how, len(want), len(got), end)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: tuple %d: expected %q, found %q", how, i, want[i], got[i])
		}
	}
}

// Each pass has the same order as without Blocks, wherever the previous pass was left. Batches that are held do not
// change.
func TestAResetAmongRows(t *testing.T) {
	balanced(t)
	steps := []step{shuffled, batched}
	plain, h := build(t, filesOf(t, "npy", "big"), steps), build(t, filesOf(t, "npy", "little"), steps)
	var held []*pyfeed.Tuple
	var values [][]byte
	for _, until := range []int{0, 1, 5, 40, 9} {
		for range until {
			tuple, err := h.ReadNext(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			held, values = append(held, tuple), append(values, bytes.Clone(tuple.Slots[0].Data))
		}
		for _, r := range []*readers.ReaderHolder{plain, h} {
			if err := r.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, _ := shown(plain)
	same(t, "after resets", h, want)
	for i, tuple := range held {
		if !bytes.Equal(tuple.Slots[0].Data, values[i]) {
			t.Errorf("batch %d was changed while it was held", i)
		}
		tuple.Release()
	}
}

func TestARowOfAnotherShapeIsRefusedByPlace(t *testing.T) {
	balanced(t)
	var texts []string
	for order, as := range orders {
		dir := t.TempDir()
		first := writeTo(t, dir, "0.npy", npyRows(as, 2, 0, 40))
		second := writeTo(t, dir, "1.npy", npyRows(as, 3, 0, 40))
		files := fmt.Sprintf(`"filenames": [%q, %q], "interleave": 1`, first, second)
		got, err := shown(build(t, files, []step{{"create_batch_reader", `{"batch_size": 32}`}}))
		if len(got) != 2 || err == io.EOF {
			t.Fatalf("%s: expected a batch of 32, one of 8 and an error, found %d and %v", order, len(got), err)
		}
		texts = append(texts, strings.ReplaceAll(err.Error(), dir, ""))
	}
	if texts[0] != texts[1] || !strings.Contains(texts[0], "1.npy") {
		t.Errorf("expected the same error with the file's name, found %q", texts)
	}
}

// Rows that differ in an open dimension cannot be stacked; they can be concatenated along the first dimension.
func TestRowsOfSeveralShapes(t *testing.T) {
	balanced(t)
	for dims, works := range map[string]bool{"[1, -1]": false, "[-1, 2]": true} {
		var ends []string
		var all [][]string
		for _, order := range []string{"big", "little"} {
			dir := t.TempDir()
			var quoted []string
			for k, width := range []int{2, 3} {
				if works {
					width = 2
				}
				quoted = append(quoted, fmt.Sprintf("%q", writeTo(t, dir, fmt.Sprintf("%d.npy", k), npyRows(orders[order], width, 100*k, 100*k+100))))
			}
			files := fmt.Sprintf(`"filenames": [%s], "slots": [{"dtype": "int32", "dims": %s}]`, strings.Join(quoted, ", "), dims)
			got, err := shown(build(t, files, []step{shuffled, batched}))
			all, ends = append(all, got), append(ends, strings.ReplaceAll(fmt.Sprint(err), dir, "dir"))
		}
		if ends[0] != ends[1] || fmt.Sprint(all[0]) != fmt.Sprint(all[1]) {
			t.Errorf("%s: expected %q and %q, found %q and %q", dims, all[0], ends[0], all[1], ends[1])
		}
		if works != (ends[0] == io.EOF.Error()) || !works && !strings.Contains(ends[0], "of a batch: expected int32") {
			t.Errorf("%s: %s", dims, ends[0])
		}
	}
}

func TestAFileOfRowsThatIsAnotherInTheNextPass(t *testing.T) {
	balanced(t)
	dir := t.TempDir()
	path := writeTo(t, dir, "a.npy", npyRows(binary.LittleEndian, 2, 0, 20_000))
	h := build(t, fmt.Sprintf(`"filenames": [%q]`, path), []step{shuffled, batched})
	if _, err := shown(h); err != io.EOF {
		t.Fatal(err)
	}
	if err := os.Rename(writeTo(t, dir, "b", npyRows(binary.LittleEndian, 2, 50_000, 65_000)), path); err != nil {
		t.Fatal(err)
	}
	other := build(t, fmt.Sprintf(`"filenames": [%q]`, path), []step{shuffled, batched})
	for _, r := range []*readers.ReaderHolder{h, other} {
		if err := r.ReInit(); err != nil { // so that both are in a pass with the same number
			t.Fatal(err)
		}
	}
	want, _ := shown(other)
	if len(want) != 15_000/32+1 {
		t.Fatal(len(want))
	}
	same(t, "the new file", h, want)
}

// If a file is cut off while its rows wait in a shuffle, the result is an error, not a batch of zeros.
func TestAFileThatShrinksUnderARowThatWaits(t *testing.T) {
	balanced(t)
	const rows = 800_000 // of 8 bytes, which is too much for the shuffle to copy them
	path := writeTo(t, t.TempDir(), "a.npy", npyRows(binary.LittleEndian, 2, 1, 1+rows))
	h := build(t, fmt.Sprintf(`"filenames": [%q], "storage": {"io": "map"}`, path),
		[]step{{"create_shuffle_reader", fmt.Sprintf(`{"buffer_size": %d}`, rows)}, {"create_batch_reader", `{"batch_size": 100}`}})
	tuple, err := h.ReadNext(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	tuple.Release()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		if tuple, err = h.ReadNext(context.Background()); err == nil {
			for i := 0; i < len(tuple.Slots[0].Data); i += 8 {
				if binary.LittleEndian.Uint32(tuple.Slots[0].Data[i:]) == 0 {
					t.Fatal("found a row of zeros")
				}
			}
			tuple.Release()
		}
	}
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || !strings.Contains(err.Error(), "shrank") || !strings.Contains(err.Error(), path) {
		t.Fatalf("expected that %s shrank, found %v", path, err)
	}
}

// Rows that a shuffle has copied before their file is cut off are delivered as they were.
func TestAFileThatShrinksAfterItsRowsWereCopied(t *testing.T) {
	balanced(t)
	const rows = 10_000
	path := writeTo(t, t.TempDir(), "a.npy", npyRows(binary.LittleEndian, 2, 1, 1+rows))
	h := build(t, fmt.Sprintf(`"filenames": [%q], "storage": {"io": "map"}`, path),
		[]step{{"create_shuffle_reader", fmt.Sprintf(`{"buffer_size": %d}`, rows)}, {"create_batch_reader", `{"batch_size": 100}`}})
	seen := make([]bool, 1+rows)
	for n := 0; ; n++ {
		tuple, err := h.ReadNext(context.Background())
		if err == io.EOF && n == rows/100 {
			break
		}
		if err != nil {
			t.Fatal(n, err)
		}
		if n == 0 {
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
		}
		for row := range slices.Chunk(tuple.Slots[0].Data, 8) {
			i := binary.LittleEndian.Uint32(row)
			if i == 0 || seen[i] || binary.LittleEndian.Uint32(row[4:]) != i+1 {
				t.Fatalf("batch %d: found row %d, with %d", n, i, binary.LittleEndian.Uint32(row[4:]))
			}
			seen[i] = true
		}
		tuple.Release()
	}
}

// A consumer may write to a batch, and keep it: no other batch changes.
func TestBatchesOfRowsMayBeWritten(t *testing.T) {
	for _, steps := range [][]step{{shuffled, batched}, {shuffled, batched, buffered}, {{"create_zip_reader", "{}"}, shuffled, batched}} {
		balanced(t)
		files := filesOf(t, "npy", "little")
		want, _ := shown(build(t, files, steps))
		h := build(t, files, steps)
		var held []*pyfeed.Tuple
		for i := range want {
			tuple, err := h.ReadNext(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprint(tuple.Pass)
			for k := range tuple.Slots {
				s := &tuple.Slots[k]
				text += fmt.Sprintf(" %v %v %v ", s.DType, s.Dims(), s.LoD) + string(s.Data)
				if s.ReadOnly {
					t.Fatalf("batch %d, slot %d: expected that it may be written", i, k)
				}
				for j := range s.Data {
					s.Data[j] = byte(i)
				}
			}
			if text != want[i] {
				t.Fatalf("batch %d: expected %q, found %q", i, want[i], text)
			}
			held = append(held, tuple)
		}
		for i, tuple := range held {
			for k := range tuple.Slots {
				if data := tuple.Slots[k].Data; !bytes.Equal(data, bytes.Repeat([]byte{byte(i)}, len(data))) {
					t.Errorf("batch %d, slot %d: it was changed while it was held", i, k)
				}
			}
			tuple.Release()
		}
	}
}

func TestRowsThatEndInTheMiddle(t *testing.T) {
	balanced(t)
	data := numbered(binary.LittleEndian, 0, 1000)
	path := writeTo(t, t.TempDir(), "a.raw", data[:len(data)-3])
	files := fmt.Sprintf(`"filenames": [%q], "slots": [{"dtype": "uint8", "dims": [10]}]`, path)
	got, err := shown(build(t, files, []step{shuffled, batched}))
	if len(got) != 999/32+1 || err == nil || !strings.Contains(err.Error(), "expected 10 bytes, a record, found 7") ||
		!strings.Contains(err.Error(), "record 999") {
		t.Fatalf("%d batches, %v", len(got), err)
	}
	got, err = shown(build(t, files+`, "on_corrupt": "skip"`, []step{shuffled, batched}))
	if len(got) != 999/32+1 || err != io.EOF {
		t.Fatalf("%d batches, %v", len(got), err)
	}
}

// A batch of short files that are contiguous in memory takes over the memory that they were read into. Only the
// consumer refers to it: a batch that is held does not change, and writing to it does not change the rest of the pass.
func TestBatchesThatTakeTheMemoryOfTheirFilesOver(t *testing.T) {
	const count, width, size = 300, 1024, 4 * 1024
	dir := t.TempDir()
	var quoted []string
	var want [][]byte
	for i := range count {
		file := npyRows(binary.LittleEndian, width, i, i+1)
		want = append(want, file[len(file)-size:])
		quoted = append(quoted, fmt.Sprintf("%q", writeTo(t, dir, fmt.Sprintf("%03d.npy", i), file)))
	}
	for _, how := range []string{
		`"num_threads": 1`, `"num_threads": 2`, `"num_threads": 3, "ordered": false`, `"num_threads": 2, "interleave": 3`, `"num_threads": 2, "shuffle_files": 5`,
	} {
		for _, steps := range [][]step{{batched}, {batched, buffered}, {{"create_batch_reader", `{"batch_size": 7}`}}, {{"create_batch_reader", `{"batch_size": 100}`}}} {
			t.Run(how+fmt.Sprint(steps), func(t *testing.T) {
				balanced(t)
				h := build(t, fmt.Sprintf(`"filenames": [%s], "options": {"instances": "file"}, %s`, strings.Join(quoted, ", "), how), steps)
				for range 2 {
					seen := make([]bool, count)
					var held []*pyfeed.Tuple
					for {
						batch, err := h.ReadNext(context.Background())
						if err == io.EOF {
							break
						}
						if err != nil {
							t.Fatal(err)
						}
						held = append(held, batch)
						s := &batch.Slots[0]
						if s.ReadOnly || s.Dims()[0]*size != int64(len(s.Data)) {
							t.Fatalf("found %v with %d bytes, read-only: %v", s.Dims(), len(s.Data), s.ReadOnly)
						}
						for at := 0; at < len(s.Data); at += size {
							first := binary.LittleEndian.Uint32(s.Data[at:])
							if first >= count || !bytes.Equal(s.Data[at:at+size], want[first]) {
								t.Fatalf("file %d: found other numbers: %d", first, s.Data[at:at+size])
							}
							if seen[first] {
								t.Fatalf("file %d was delivered twice", first)
							}
							seen[first] = true
						}
						copy(s.Data, bytes.Repeat([]byte{byte(len(held))}, len(s.Data)))
					}
					if i := slices.Index(seen, false); i >= 0 {
						t.Errorf("file %d was not delivered", i)
					}
					if live := memory.Count().Live; how == `"num_threads": 1` && len(steps) == 1 && steps[0] == batched && live[memory.File] < count/2*size {
						t.Errorf("expected most batches in the memory of files, found %v", live)
					}
					for i, batch := range held {
						if data := batch.Slots[0].Data; bytes.Count(data, []byte{byte(i + 1)}) != len(data) {
							t.Fatalf("batch %d was changed while it was held", i)
						}
						batch.Release()
					}
					if err := h.ReInit(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// When the goroutine and a consumer build batches in parallel and one cannot be built, its error is delivered after the
// batches before it, and it is not counted.
func TestABatchThatCannotBeMadeSideBySide(t *testing.T) {
	balanced(t)
	dir := t.TempDir()
	var quoted []string
	for k, width := range []int{2, 3} {
		quoted = append(quoted, fmt.Sprintf("%q", writeTo(t, dir, fmt.Sprintf("%d.npy", k), npyRows(binary.LittleEndian, width, 100*k, 100*k+80))))
	}
	files := fmt.Sprintf(`"filenames": [%s], "interleave": 1, "slots": [{"dtype": "int32", "dims": [1, -1]}]`, strings.Join(quoted, ", "))
	for depth := 1; depth <= 16; depth *= 4 {
		h := build(t, files, []step{batched, {"create_double_buffer_reader", fmt.Sprintf(`{"depth": %d}`, depth)}})
		for range 20 {
			got, err := shown(h)
			again, same := shown(h)
			if len(got) != 2 || len(again) != 0 || err != same || !strings.Contains(err.Error(), "tuple 16 of a batch: expected int32 [1 2]") {
				t.Fatalf("depth %d: expected two batches and an error, found %d, %d, %v, %v", depth, len(got), len(again), err, same)
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
		// Of the five batches of a pass, the last two may be built, after the third, which cannot be.
		if s := h.Stats(); s.Tuples != 40 || s.Below[0].Tuples < 40 || s.Below[0].Tuples > 80 {
			t.Errorf("depth %d: expected 40 batches delivered, and 40 to 80 below, found %d and %d", depth, s.Tuples, s.Below[0].Tuples)
		}
	}
}

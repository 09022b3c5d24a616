package all_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/files"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Large records are verified when they are copied or handed out. These tests damage one, and compare with the order of the
// same chain over an intact file, and with the error of Records.Read, which verifies when it reads.

// lateFormat is a format with such records.
type lateFormat struct {
	write string         // attributes of the writer
	read  map[string]any // and of open_files
	// detects: the first record of the file is verified when it is read, since it decides what the records hold.
	detects bool
}

var inBytes = attributes("options", attributes("records", "bytes"))

var lateFormats = map[string]lateFormat{
	"tfrecord":    {write: `{}`},
	"tfrecord.gz": {write: `{}`},
	"fluid.rio":   {write: `{"options": {"records": "bytes", "records_per_chunk": 1}}`, read: inBytes},
	"golang.rio":  {write: `{"options": {"layout": "go", "records": "bytes", "records_per_chunk": 1}}`, read: inBytes},
	"auto.rio":    {write: `{"options": {"records": "bytes", "records_per_chunk": 1}}`, detects: true},
}

// lateRecords is the number of records of a file, and lateSize the least size of one in bytes.
const (
	lateRecords = 24
	lateSize    = 10_000
)

// lateFile writes a file of records that begin with their numbers. If damaged is not negative, a byte of that record is
// wrong. It returns the error of Records.Read about it.
func lateFile(t *testing.T, format string, size, damaged int) (path string, want error) {
	t.Helper()
	name, packed := strings.CutSuffix(format, ".gz")
	path = filepath.Join(t.TempDir(), "a."+name)
	w, err := files.CreateWriter(path, "", []byte(lateFormats[format].write))
	if err != nil {
		t.Fatal(err)
	}
	var last []byte
	for i := range lateRecords {
		data := make([]byte, size+37*i)
		for j := range data {
			data[j] = byte(i*j>>3 + j)
		}
		binary.LittleEndian.PutUint64(data, uint64(i))
		if i == damaged {
			last = data
		}
		s := pyfeed.LoDTensor{DType: pyfeed.Uint8, Data: data, LoD: pyfeed.LoD{{0, int64(len(data))}}}
		_ = s.SetDims(pyfeed.Dims{int64(len(data))})
		if err := w.Write(&pyfeed.Tuple{Slots: []pyfeed.LoDTensor{s}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if damaged >= 0 {
		data[bytes.Index(data, last)+size/2] ^= 0x10
	}
	if packed {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(data)
		_ = w.Close()
		path, data = path+".gz", b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if damaged >= 0 {
		want = readError(t, path)
	}
	return path, want
}

// readError returns the error that Records.Read returns for a file.
func readError(t *testing.T, path string) error {
	t.Helper()
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	r, err := record.FormatBySuffix(path).Open(path, &record.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := make([]*pyfeed.Tuple, 1)
	for {
		pyfeed.NewTuples(out, 1)
		_, err := r.Read(out)
		pyfeed.ReleaseAll(out)
		if err != nil {
			return err
		}
	}
}

// numbersIn returns the numbers of the records in a tuple or batch.
func numbersIn(t *testing.T, tuple *pyfeed.Tuple) (all []int64) {
	t.Helper()
	for _, s := range tuple.Slots {
		if s.DType != pyfeed.Uint8 {
			continue
		}
		ends := s.LoD[0]
		for i, begin := range ends[:len(ends)-1] {
			data := s.Data[begin:ends[i+1]]
			if len(data) == 0 { // of a padded part
				all = append(all, -1)
				continue
			}
			number := int(binary.LittleEndian.Uint64(data))
			for j := 8; j < len(data); j++ {
				if data[j] != byte(number*j>>3+j) {
					t.Fatalf("byte %d of record %d: expected %d, found %d", j, number, byte(number*j>>3+j), data[j])
				}
			}
			all = append(all, int64(number))
		}
	}
	return all
}

// lateBatches reads to the end of the pass, in one of three ways, and returns the numbers of each tuple.
func lateBatches(t *testing.T, h *readers.ReaderHolder, way int) (all [][]int64, err error) {
	t.Helper()
	for {
		out := make([]*pyfeed.Tuple, 1)
		n := 1
		switch way {
		case 0:
			out[0], err = h.ReadNext(context.Background())
		case 1:
			var has bool
			if has, err = h.HasNext(context.Background()); err == nil && !has {
				err = io.EOF
			}
			if err == nil {
				if out[0], err = h.ReadNext(context.Background()); err != nil {
					t.Fatalf("expected a tuple where HasNext has found one, found %v", err)
				}
			}
		case 2:
			out = make([]*pyfeed.Tuple, 5)
			n, err = h.ReadMany(context.Background(), out)
		}
		if err != nil {
			return all, err
		}
		for _, tuple := range out[:n] {
			all = append(all, numbersIn(t, tuple))
			tuple.Release()
		}
	}
}

// until returns the tuples of an intact file before the one with a damaged record, and of that one the records before it.
func until(all [][]int64, damaged int64, dropLast bool) [][]int64 {
	for i, tuple := range all {
		k := slices.Index(tuple, damaged)
		switch {
		case k < 0:
		case k > 0 && !dropLast:
			return append(slices.Clone(all[:i]), tuple[:k])
		default:
			return all[:i]
		}
	}
	return all
}

func attributes(all ...any) map[string]any { return with(nil, all...) }

var lateChains = map[string][]link{
	"files":                         nil,
	"shuffle":                       {{"create_shuffle_reader", attributes("buffer_size", 10, "seed", 3)}},
	"shard":                         {{"create_shard_reader", attributes("rank", 1, "world", 2)}},
	"even shard":                    {{"create_shard_reader", attributes("rank", 1, "world", 5, "even", "pad")}},
	"batch":                         {{"create_batch_reader", attributes("batch_size", 5)}},
	"drop_last":                     {{"create_batch_reader", attributes("batch_size", 5, "drop_last", true)}},
	"double_buffer":                 {{"create_double_buffer_reader", nil}},
	"shuffle, batch, double_buffer": {{"create_shuffle_reader", attributes("buffer_size", 10, "seed", 3)}, {"create_batch_reader", attributes("batch_size", 3)}, {"create_double_buffer_reader", attributes("depth", 3)}},
	"multi_pass, shuffle, batch":    {{"create_multi_pass_reader", attributes("pass_num", 2)}, {"create_shuffle_reader", attributes("buffer_size", 10, "seed", 3)}, {"create_batch_reader", attributes("batch_size", 4)}},
}

// Records before the damaged one are delivered first, in the order of an intact file. The error is that of Records.Read,
// and is returned until a reset. A record that is not delivered is not verified.
func TestDamageIsFoundWhereItIsDelivered(t *testing.T) {
	damages := []int{0, 7, 11, lateRecords - 1}
	if testing.Short() {
		damages = damages[1:2]
	}
	for format := range lateFormats {
		for _, damaged := range damages {
			if damaged == 0 && lateFormats[format].detects {
				continue
			}
			path, want := lateFile(t, format, lateSize, damaged)
			intact, _ := lateFile(t, format, lateSize, -1)
			for name, links := range lateChains {
				for _, io := range []string{"map", "read"} {
					if io == "map" && strings.HasSuffix(path, ".gz") {
						continue
					}
					t.Run(fmt.Sprint(format, " ", damaged, " ", name, " ", io), func(t *testing.T) {
						readertest.Counted(t)
						checkLateDamage(t, path, intact, with(lateFormats[format].read, "storage", attributes("io", io)), links, damaged, want)
					})
				}
			}
		}
	}
}

func checkLateDamage(t *testing.T, path, intact string, options map[string]any, links []link, damaged int, want error) {
	open := func(path string, attempt int) (*readers.ReaderHolder, func()) {
		first := link{"open_files", with(options, "filenames", []string{path})}
		return chainOf(t, slices.Concat([]link{first}, links)...)(attempt)
	}
	whole, end := open(intact, 0)
	defer end()
	dropLast := len(links) > 0 && links[0].attributes["drop_last"] == true
	for way := range 3 {
		h, end := open(path, way)
		defer end()
		delivered := 0
		for pass := range 2 {
			if pass > 0 {
				if err := h.ReInit(); err != nil {
					t.Fatal(err)
				}
			}
			if err := whole.Begin(uint64(pass)); err != nil {
				t.Fatal(err)
			}
			order, _ := lateBatches(t, whole, 0)
			expected := until(order, int64(damaged), dropLast)
			found, err := lateBatches(t, h, way)
			if fmt.Sprint(found) != fmt.Sprint(expected) {
				t.Fatalf("way %d, pass %d: expected %v, found %v", way, pass, expected, found)
			}
			if delivered += len(found); h.Stats().Tuples != int64(delivered) {
				t.Errorf("way %d, pass %d: stats: expected %d tuples, found %d", way, pass, delivered, h.Stats().Tuples)
			}
			if fmt.Sprint(expected) == fmt.Sprint(order) {
				if err.Error() != "EOF" {
					t.Errorf("way %d, pass %d: expected no error for a record that is not delivered, found %v", way, pass, err)
				}
				continue
			}
			for range 2 {
				if err.Error() != want.Error() {
					t.Errorf("way %d, pass %d: expected %v, found %v", way, pass, want, err)
				}
				if found, err = lateBatches(t, h, way); len(found) > 0 {
					t.Errorf("way %d, pass %d: expected nothing behind the damage, found %v", way, pass, found)
				}
			}
		}
	}
}

// ids returns the numbers of the records of all tuples.
func ids(all [][]int64) (out []int64) { return slices.Concat(all...) }

// Parts of batches, and batches that grow, end where they would if the record were verified when it is read, as a small
// one is. The chains have no shuffle, so the order is the same.
func TestLateDamageEndsBatchesAsEarlyDamageDoes(t *testing.T) {
	part := func(rank int, even string, dropLast bool) []link {
		return []link{{"create_batch_reader", attributes("batch_size", 6, "drop_last", dropLast)},
			{"create_split_batches_reader", attributes("rank", rank, "world", 2, "even", even)}}
	}
	for name, links := range map[string][]link{
		"part":                      part(0, "drop", false),
		"other part":                part(1, "repeat", false),
		"padded part":               part(1, "pad", false),
		"part of whole batches":     part(1, "drop", true),
		"part, double_buffer":       append(part(0, "pad", false), link{"create_double_buffer_reader", nil}),
		"even shard, batch":         {{"create_shard_reader", attributes("rank", 0, "world", 3, "even", "drop")}, {"create_batch_reader", attributes("batch_size", 2)}},
		"drop_last, double_buffer":  {{"create_batch_reader", attributes("batch_size", 5, "drop_last", true)}, {"create_double_buffer_reader", attributes("depth", 8)}},
		"batch, batches of a batch": {{"create_batch_reader", attributes("batch_size", 4)}, {"create_double_buffer_reader", attributes("depth", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			readertest.Counted(t)
			for damaged := 0; damaged < 20; damaged += 3 { // drop_last leaves out the records behind
				var ends [2][][]int64
				for i, size := range []int{1000, lateSize} {
					path, want := lateFile(t, "tfrecord", size, damaged)
					h, end := chainOf(t, slices.Concat([]link{{"open_files", attributes("filenames", []string{path})}}, links)...)(0)
					var err error
					if ends[i], err = lateBatches(t, h, damaged%2); err.Error() != want.Error() {
						t.Errorf("record %d of %d bytes: expected %v, found %v", damaged, size, want, err)
					}
					end()
				}
				if fmt.Sprint(ends[1]) != fmt.Sprint(ends[0]) {
					t.Errorf("record %d: expected %v, found %v", damaged, ends[0], ends[1])
				}
			}
		})
	}
}

// A batch of more than 64 MiB grows by pieces while its records arrive.
func TestLateDamageInALargeBatch(t *testing.T) {
	readertest.Counted(t)
	const size = 4_000_000
	damages := []int{17, 20, 23} // in the first piece, in a later one, and behind the pieces
	if testing.Short() {
		damages = damages[1:2]
	}
	for _, damaged := range damages {
		path, want := lateFile(t, "tfrecord", size, damaged)
		for _, links := range [][]link{nil, {{"create_double_buffer_reader", nil}}} {
			chain := slices.Concat([]link{{"open_files", attributes("filenames", []string{path})}, {"create_batch_reader", attributes("batch_size", 24)}}, links)
			h, end := chainOf(t, chain...)(0)
			found, err := lateBatches(t, h, 0)
			if n := len(ids(found)); len(found) != 1 || n != damaged || err.Error() != want.Error() {
				t.Errorf("record %d: expected one batch of the records before it and %v, found %v and %v", damaged, want, found, err)
			}
			if _, again := lateBatches(t, h, 1); again.Error() != want.Error() {
				t.Errorf("record %d: expected the same error again, found %v", damaged, again)
			}
			end()
		}
	}
}

// A state is exact also behind a batch that ends before a damaged record: records are neither lost nor delivered twice.
func TestChainsWithLateDamageResume(t *testing.T) {
	anchorsOften(t)
	for format, options := range lateFormats {
		path, _ := lateFile(t, format, lateSize, 17)
		for _, name := range []string{"files", "shuffle", "batch", "drop_last", "shuffle, batch, double_buffer", "multi_pass, shuffle, batch"} {
			t.Run(format+" "+name, func(t *testing.T) {
				first := link{"open_files", with(options.read, "filenames", []string{path})}
				steps := lateRecords + 2
				if testing.Short() {
					steps = 9
				}
				readertest.Resumes(t, steps, chainOf(t, slices.Concat([]link{first}, lateChains[name])...))
			})
		}
	}
	left, _ := lateFile(t, "tfrecord", lateSize, 17)
	right, _ := lateFile(t, "fluid.rio", lateSize, -1)
	for _, name := range []string{"files", "batch", "drop_last", "double_buffer"} {
		t.Run("zip "+name, func(t *testing.T) {
			readertest.Resumes(t, lateRecords, chainOf(t, slices.Concat(zipped(t, left, right), lateChains[name])...))
		})
	}
}

// Damage that is skipped, and that of a file that is verified first, is found when the file is read.
func TestDamageIsFoundEarlyWhereItHasToBe(t *testing.T) {
	readertest.Counted(t)
	shuffled := lateChains["shuffle, batch, double_buffer"]
	for format, options := range lateFormats {
		path, want := lateFile(t, format, lateSize, 9)
		open := func(more ...any) (*readers.ReaderHolder, func()) {
			files := link{"open_files", with(with(options.read, "filenames", []string{path}), more...)}
			return chainOf(t, slices.Concat([]link{files}, shuffled)...)(1)
		}
		h, end := open("on_corrupt", "skip")
		found, err := lateBatches(t, h, 0)
		left := ids(found)
		slices.Sort(left)
		if len(left) != lateRecords-1 || slices.Contains(left, 9) || err.Error() != "EOF" {
			t.Errorf("%s: expected all records but one, found %v and %v", format, left, err)
		}
		end()
		h, end = open("verify_first", true)
		found, err = lateBatches(t, h, 0)
		if len(found) > 0 || !strings.Contains(err.Error(), "verify_first found it at record 9") {
			t.Errorf("%s: expected %v before any record, found %v and %v", format, want, found, err)
		}
		end()
		if strings.HasSuffix(path, ".gz") {
			continue // has no index
		}
		encoded, _ := json.Marshal(with(options.read, "filenames", []string{path}, "index", true, "index_dir", t.TempDir()))
		scope := pyfeed.NewScope(nil)
		if err = ops.Create(scope, "open_files", "r", nil, encoded); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: expected %v, found %v", format, want, err)
		}
		scope.Drop()
	}
}

// zipped are links that join the records of two files with the numbers of a third, which are in Blocks.
func zipped(t *testing.T, left, right string) []link {
	numbers := store(t, t.TempDir(), ".npy", 7, lateRecords-7)
	return []link{
		{"open_files", attributes("filenames", numbers)},
		{"open_files", attributes("filenames", []string{left})},
		{"open_files", with(inBytes, "filenames", []string{right})},
		{"create_zip_reader", nil},
	}
}

// zip joins the records before the first damaged one of any reader. Its error is returned until a reset; of two in one
// place, that of the reader that is named first.
func TestLateDamageBelowZip(t *testing.T) {
	readertest.Counted(t)
	for _, c := range []struct{ left, right int }{{-1, 14}, {14, -1}, {9, 14}, {14, 9}, {14, 14}, {0, 0}, {-1, lateRecords - 1}} {
		left, want := lateFile(t, "tfrecord", lateSize, c.left)
		right, other := lateFile(t, "fluid.rio", lateSize, c.right)
		damaged := c.left
		if c.left < 0 || 0 <= c.right && c.right < c.left {
			damaged, want = c.right, other
		}
		for _, size := range []int{1, 5} {
			links := zipped(t, left, right)
			if size > 1 {
				links = append(links, link{"create_batch_reader", attributes("batch_size", size)})
			}
			for way := range 3 {
				h, end := chainOf(t, links...)(way)
				var expected [][]int64
				for i := 0; i < damaged; i += size {
					var some []int64
					for k := i; k < min(i+size, damaged); k++ {
						some = append(some, int64(k))
					}
					expected = append(expected, slices.Concat(some, some))
				}
				for pass := range 2 {
					if pass > 0 {
						if err := h.ReInit(); err != nil {
							t.Fatal(err)
						}
					}
					found, err := lateBatches(t, h, way)
					if fmt.Sprint(found) != fmt.Sprint(expected) {
						t.Errorf("%v, way %d, pass %d: expected %v, found %v", c, way, pass, expected, found)
					}
					for range 2 {
						if err == nil || err.Error() != want.Error() {
							t.Errorf("%v, way %d, pass %d: expected %v, found %v", c, way, pass, want, err)
						}
						if found, err = lateBatches(t, h, way); len(found) > 0 {
							t.Errorf("%v, way %d, pass %d: expected nothing behind the damage, found %v", c, way, pass, found)
						}
					}
				}
				end()
			}
		}
	}
}

// Damage in the place where another reader ends or fails is found, whether records are verified when they are read or
// when they are joined. Of two errors in one place, that of the reader that is named first is returned.
func TestDamageWhereAnotherReaderEnds(t *testing.T) {
	readertest.Counted(t)
	const at = 9
	for _, size := range []int{1000, lateSize} {
		intact, _ := lateFile(t, "tfrecord", size, -1)
		damaged, want := lateFile(t, "tfrecord", size, at)
		small, other := lateFile(t, "tfrecord", 1000, at)
		short := store(t, t.TempDir(), ".npy", at)
		for name, c := range map[string]struct {
			files []string
			want  error
		}{
			"the end, then damage":   {[]string{short[0], damaged}, want},
			"damage, then the end":   {[]string{damaged, short[0]}, want},
			"damage, then damage":    {[]string{damaged, small}, want},
			"damage twice, reversed": {[]string{small, damaged}, other},
			"intact":                 {[]string{intact, short[0]}, io.EOF},
		} {
			for _, strict := range []bool{false, true} {
				var links []link
				for _, file := range c.files {
					links = append(links, link{"open_files", attributes("filenames", []string{file})})
				}
				links = append(links, link{"create_zip_reader", attributes("strict", strict)})
				for way := range 3 {
					h, end := chainOf(t, links...)(way)
					for pass := range 2 {
						if pass > 0 {
							if err := h.ReInit(); err != nil {
								t.Fatal(err)
							}
						}
						found, err := lateBatches(t, h, way)
						text := c.want.Error()
						if strict && c.want == io.EOF {
							text = "zip: expected readers that end together, found an end of readers [1] and more tuples of [0]"
						}
						if len(found) != at || err.Error() != text {
							t.Errorf("%s, %d bytes, strict: %v, way %d, pass %d: expected %d tuples and %s, found %d and %v", name, size, strict, way, pass, at, text, len(found), err)
						}
					}
					end()
				}
			}
		}
	}
}

// The copies of a batch are shared by several threads. The first damaged record in the batch decides.
func TestSeveralDamagedRecordsInABatch(t *testing.T) {
	readertest.Counted(t)
	path, _ := lateFile(t, "tfrecord", 300_000, 20)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{15, 6, 18} {
		data[at*310_000] ^= 4
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		want := readError(t, path)
		h, end := chainOf(t, link{"open_files", attributes("filenames", []string{path})}, link{"create_batch_reader", attributes("batch_size", lateRecords)})(0)
		found, err := lateBatches(t, h, 0)
		if first := fmt.Sprintf(", record %d: ", len(ids(found))); err.Error() != want.Error() || !strings.Contains(want.Error(), first) {
			t.Errorf("expected a batch before %v, found %v and %v", want, found, err)
		}
		end()
	}
}

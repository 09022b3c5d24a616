package readertest

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

func init() {
	for _, f := range []record.Format{
		{Tag: "ids", Suffixes: []string{".ids"}, Open: func(path string, c *record.Config) (record.Records, error) { return openIDs(path, c) }},
		{Tag: "described", Suffixes: []string{".described"}, Open: func(path string, c *record.Config) (record.Records, error) {
			r, err := openIDs(path, c)
			return described{r}, err
		}},
		{Tag: "cut", Suffixes: []string{".cut"}, Open: openCut},
		{Tag: "numbers", Suffixes: []string{".numbers"}, Open: openCard},
		{Tag: "vast", Suffixes: []string{".vast"}, Open: openVast},
	} {
		record.MustRegister(f)
	}
}

// ---- ids --------------------------------------------------------------------------------------

// IDs reads the format "ids", a file of int64 numbers. Each number is an instance of two slots: the number, and a
// sequence of number%4 numbers that begins with it.
type IDs struct {
	File  *storage.File
	arena *memory.Arena
	n     int64
}

// IDSlots are the slots of "ids", as attributes.
const IDSlots = `[{"name": "id", "dtype": "int64", "dims": []}, {"name": "seq", "dtype": "int64", "dims": [-1], "lod_levels": 1}]`

func openIDs(path string, c *record.Config) (*IDs, error) {
	f, err := storage.Open(path, c.Storage, c.Pool)
	if err != nil {
		return nil, err
	}
	return &IDs{File: f, arena: memory.NewArena(c.Pool)}, nil
}

// Read implements record.Records.
func (r *IDs) Read(out []*pyfeed.Tuple) (int, error) {
	for i, t := range out[:min(len(out), 7)] {
		b, err := r.File.Peek(8)
		if err != nil || len(b) == 0 {
			if i == 0 && err == nil {
				err = io.EOF
			}
			return i, err
		}
		if len(b) < 8 {
			return i, r.File.Corrupt(r.File.Offset(), r.n, "expected 8 bytes, found %d", len(b))
		}
		id := int64(binary.NativeEndian.Uint64(b))
		if id < 0 {
			return i, r.File.Corrupt(r.File.Offset(), r.n, "expected a number from 0 on, found %d", id)
		}
		t.Slots[0].DType = pyfeed.Int64
		t.Slots[0].Hold(b[:8:8], r.File.Hold(1))
		t.Slots[0].ReadOnly = true
		fillSequence(&t.Slots[1], r.arena, id)
		r.File.Skip(8)
		r.n++
	}
	return min(len(out), 7), nil
}

func fillSequence(s *pyfeed.LoDTensor, arena *memory.Arena, id int64) {
	n := id % 4
	s.DType = pyfeed.Int64
	_ = s.SetDims(pyfeed.Dims{n})
	s.LoD = append(s.LoD[:0], []int64{0, n})
	s.InHeap = true
	data, b, err := arena.Get(int(8 * n))
	if err != nil {
		panic(err)
	}
	for j := range n {
		binary.NativeEndian.PutUint64(data[8*j:], uint64(id+j))
	}
	s.Hold(data, b)
}

// AtEnd knows the end of small files that have an odd number of instances.
func (r *IDs) AtEnd() bool {
	b, err := r.File.Peek(1)
	return r.File.InMemory() && err == nil && len(b) == 0 && r.n%2 == 1
}

// Resync implements record.Records.
func (r *IDs) Resync() error {
	r.File.Skip(8)
	r.n++
	return nil
}

// Number implements record.Numberer.
func (r *IDs) Number() (int64, bool) { return r.n, true }

// CheckTruncated implements record.Records.
func (r *IDs) CheckTruncated() error { return r.File.CheckTruncated() }

// CheckUnchanged implements record.Records.
func (r *IDs) CheckUnchanged() error { return r.File.CheckUnchanged() }

// Close implements record.Records.
func (r *IDs) Close() {
	r.arena.Close()
	r.File.Close()
}

// WriteIDs makes files of counts[i] numbers each, all different.
func WriteIDs(t testing.TB, counts ...int) (names []string, all [][]int64) {
	t.Helper()
	dir := t.TempDir()
	next := int64(0)
	for i, n := range counts {
		var b []byte
		var in []int64
		for range n {
			b = binary.NativeEndian.AppendUint64(b, uint64(next))
			in = append(in, next)
			next++
		}
		name := filepath.Join(dir, fmt.Sprintf("%03d.ids", i))
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		names, all = append(names, name), append(all, in)
	}
	return names, all
}

// OpenIDs returns the attributes that open files of ids.
func OpenIDs(names []string, more string) string {
	quoted, _ := json.Marshal(names)
	return fmt.Sprintf(`{"filenames": %s, "slots": %s%s}`, quoted, IDSlots, more)
}

// DamageID overwrites a number in a file of ids.
func DamageID(t *testing.T, name string, offset int64, id int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(id)), offset); err != nil {
		t.Fatal(err)
	}
}

// IDsOf returns the ids of a tuple and checks the sequences that belong to them.
func IDsOf(tuple *pyfeed.Tuple) ([]int64, error) {
	id, seq := &tuple.Slots[0], &tuple.Slots[1]
	var all []int64
	for b := id.Data; len(b) > 0; b = b[8:] {
		all = append(all, int64(binary.NativeEndian.Uint64(b)))
	}
	level := seq.LoD[0]
	if len(level) != len(all)+1 {
		return nil, fmt.Errorf("%d sequences for %d ids", len(level)-1, len(all))
	}
	for i, v := range all {
		if n := level[i+1] - level[i]; n != v%4 {
			return nil, fmt.Errorf("id %d has a sequence of %d", v, n)
		}
		for j := level[i]; j < level[i+1]; j++ {
			if got := int64(binary.NativeEndian.Uint64(seq.Data[8*j:])); got != v+j-level[i] {
				return nil, fmt.Errorf("id %d: element %d is %d", v, j-level[i], got)
			}
		}
	}
	return all, nil
}

// Interleaved returns what open_files delivers when ordered: the ids in their order, one id for each tuple.
func Interleaved(files [][]int64, width int) (out [][]int64) {
	var lanes [][]int64
	for len(lanes) < width && len(files) > 0 {
		lanes, files = append(lanes, files[0]), files[1:]
	}
	for turn := 0; len(lanes) > 0; {
		turn %= len(lanes)
		if len(lanes[turn]) > 0 {
			out = append(out, lanes[turn][:1])
			lanes[turn] = lanes[turn][1:]
			turn++
			continue
		}
		if len(files) > 0 {
			lanes[turn], files = files[0], files[1:]
		} else {
			lanes = slices.Delete(lanes, turn, turn+1)
		}
	}
	return out
}

// described is the format "ids" with slots that it describes itself, after it has peeked at the file.
type described struct{ *IDs }

func (r described) Describe() ([]pyfeed.Slot, []string, error) {
	if _, err := r.File.Peek(1); err != nil {
		return nil, nil, err
	}
	var slots []record.SlotAttributes
	if err := json.Unmarshal([]byte(IDSlots), &slots); err != nil {
		return nil, nil, err
	}
	return record.ParseSlots(slots)
}

// ---- cut --------------------------------------------------------------------------------------

// cut reads records of one size without any framing. It is a minimal format.
type cut struct {
	f    *storage.File
	size int
}

func openCut(path string, c *record.Config) (record.Records, error) {
	f, err := storage.Open(path, c.Storage, c.Pool)
	if err != nil {
		return nil, err
	}
	return &cut{f, int(c.Slots[0].Dims[0])}, nil
}

func (r *cut) Read(out []*pyfeed.Tuple) (int, error) {
	for i, t := range out {
		b, err := r.f.Peek(r.size)
		if err != nil || len(b) == 0 {
			if i == 0 && err == nil {
				err = io.EOF
			}
			return i, err
		}
		if len(b) < r.size {
			return i, r.f.Corrupt(r.f.Offset(), -1, "expected %d bytes, found %d", r.size, len(b))
		}
		s := &t.Slots[0]
		s.DType = pyfeed.Uint8
		_ = s.SetDims(pyfeed.Dims{int64(r.size)})
		s.ReadOnly = true
		s.Hold(b[:r.size:r.size], r.f.Hold(1))
		r.f.Skip(r.size)
	}
	return len(out), nil
}

func (r *cut) Resync() error         { return io.EOF }
func (r *cut) CheckTruncated() error { return r.f.CheckTruncated() }
func (r *cut) CheckUnchanged() error { return r.f.CheckUnchanged() }
func (r *cut) Close()                { r.f.Close() }

// ---- numbers ----------------------------------------------------------------------------------

// card reads the format "numbers", whose files are called cards. A card has a head of 16 bytes, the last of which may
// have any value, and int64 numbers, each of which is an instance.
type card struct {
	f    *storage.File
	head []byte
	n    int64
}

const cardHead = "numbers follow:"

func openCard(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, func(f *storage.File, _ *record.Config) (record.Records, error) {
		b, err := f.Peek(16)
		if err != nil {
			return nil, err
		}
		if len(b) < 16 || string(b[:15]) != cardHead {
			return nil, f.Corrupt(0, -1, "expected a card, found %d bytes", len(b))
		}
		f.Skip(16)
		return &card{f: f, head: slices.Clone(b[:16])}, nil
	})
}

func (r *card) Read(out []*pyfeed.Tuple) (int, error) {
	b, err := r.f.Peek(8)
	if err != nil || len(b) == 0 {
		return 0, cmp.Or(err, io.EOF)
	}
	if len(b) < 8 {
		return 0, r.f.Corrupt(r.f.Offset(), r.n, "expected 8 bytes, found %d", len(b))
	}
	n := min(len(out), 7, len(b)/8)
	for i, t := range out[:n] {
		t.Slots[0].DType, t.Slots[0].ReadOnly = pyfeed.Int64, true
		t.Slots[0].Hold(b[8*i:8*i+8:8*i+8], r.f.Hold(1))
	}
	r.f.Skip(8 * n)
	r.n += int64(n)
	return n, nil
}

func (r *card) Resync() error {
	r.f.Skip(len(r.rest()))
	return io.EOF
}

func (r *card) rest() []byte {
	b, _ := r.f.Peek(1)
	return b
}

func (r *card) CheckTruncated() error { return r.f.CheckTruncated() }
func (r *card) CheckUnchanged() error { return r.f.CheckUnchanged() }
func (r *card) Close()                { r.f.Close() }
func (r *card) AtEnd() bool           { return r.f.InMemory() && len(r.rest()) == 0 }

func (r *card) Signature() ([]byte, pyfeed.Slot) {
	if !r.f.IsCopy() || r.n != 1 || !r.AtEnd() {
		return nil, pyfeed.Slot{}
	}
	return r.head, pyfeed.Slot{DType: pyfeed.Int64}
}

// Card returns the content of a card.
func Card(kind byte, numbers ...int64) []byte {
	b := append([]byte(cardHead), kind)
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// SameCards returns n cards that differ only in their number.
func SameCards(n int) (cards [][]byte) {
	for i := range n {
		cards = append(cards, Card('a', int64(i)))
	}
	return cards
}

// WriteCards writes each card to a file.
func WriteCards(t *testing.T, cards [][]byte) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for i, data := range cards {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%04d.numbers", i)))
		if err := os.WriteFile(paths[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// OpenCards returns the attributes that open cards.
func OpenCards(paths []string, more string) string {
	quoted, _ := json.Marshal(paths)
	return fmt.Sprintf(`{"filenames": %s, "slots": [{"dtype": "int64", "dims": []}]%s}`, quoted, more)
}

// ---- vast -------------------------------------------------------------------------------------

// vast is a format that finds damage in every file and searches for the next record without end, while it polls its
// Interrupt. If a file begins with "describe", it also searches before it describes its slots.
type vast struct {
	f        *storage.File
	describe bool
}

// Searched receives a value when a search in a vast file has begun.
var Searched = make(chan struct{}, 1<<10)

func openVast(path string, c *record.Config) (record.Records, error) {
	f, err := storage.Open(path, c.Storage, c.Pool)
	if err != nil {
		return nil, err
	}
	b, err := f.Peek(1)
	if err != nil {
		return nil, err
	}
	return &vast{f, string(b) == "describe"}, nil
}

func (v *vast) search() error {
	Searched <- struct{}{}
	for {
		if err := v.f.Poll(); err != nil {
			return err
		}
	}
}

func (v *vast) Read([]*pyfeed.Tuple) (int, error) { return 0, v.f.Corrupt(0, 0, "damaged") }
func (v *vast) Resync() error                     { return v.search() }
func (v *vast) CheckTruncated() error             { return nil }
func (*vast) CheckUnchanged() error               { return nil }
func (v *vast) Close()                            { v.f.Close() }
func (v *vast) Describe() ([]pyfeed.Slot, []string, error) {
	if v.describe {
		return nil, nil, v.search()
	}
	return []pyfeed.Slot{{DType: pyfeed.Uint8}}, nil, nil
}

// VastFile makes a vast file and returns the attributes that open it.
func VastFile(t *testing.T, content string) (attributes []byte) {
	t.Helper()
	for len(Searched) > 0 {
		<-Searched
	}
	name := filepath.Join(t.TempDir(), "a.vast")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"filenames": [%q], "on_corrupt": "skip"}`, name)
}

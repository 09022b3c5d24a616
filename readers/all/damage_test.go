package all_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/files"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/record"
)

// kindOfFile is a format with the attributes for writing and reading int64 numbers from 0 on.
type kindOfFile struct {
	suffix  string
	write   string // attributes of the writer
	read    string // and of open_files
	checked bool   // checksums: a delivered record is the one that was written
}

const oneNumber = `"slots": [{"name": "x", "dtype": "int64", "dims": []}]`

var kindsOfFiles = []kindOfFile{
	{"raw", oneNumber, oneNumber, false},
	{"npy", oneNumber, "", false},
	{"npz", oneNumber, "", true},
	{"idx", `"slots": [{"dtype": "int32", "dims": []}]`, "", false},
	{"arrow", oneNumber + `, "options": {"batch_records": 64}`, "", false},
	{"arrows", oneNumber + `, "options": {"batch_records": 64}`, "", false},
	{"tokens", oneNumber + `, "options": {"dtype": "int64"}`, `"format": "tokens", "options": {"length": 1, "dtype": "int64"}`, false},
	{"mds", oneNumber, "", false},
	{"csv", oneNumber, oneNumber, false},
	{"tsv", oneNumber, oneNumber, false},
	{"jsonl", oneNumber, oneNumber, false},
	{"tfrecord", oneNumber, oneNumber + `, "options": {"features": [{"name": "x", "dtype": "int64"}]}`, true},
	{"recordio", oneNumber + `, "options": {"records_per_chunk": 16}`, "", true},
	{"tar", `"slots": [{"name": "id", "dtype": "int64", "dims": []}]`, "", false},
	{"parquet", oneNumber + `, "options": {"row_group_records": 64}`, "", false},
}

// numbersFile returns the bytes of a file of n numbers, and whether the format can be written with that compression.
func numbersFile(t *testing.T, k kindOfFile, packed string, n int) (data []byte, can bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a."+k.suffix+packed)
	format := ""
	if k.suffix == "tokens" { // no suffix tells the format
		format = k.suffix
	}
	w, err := files.CreateWriter(path, format, []byte("{"+k.write+"}"))
	if e := (*pyfeed.Error)(nil); errors.As(err, &e) && e.Kind == pyfeed.Invalid && packed != "" {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var memory []byte
		s := pyfeed.LoDTensor{DType: pyfeed.Int64}
		if k.suffix == "idx" {
			s.DType, memory = pyfeed.Int32, binary.NativeEndian.AppendUint32(nil, uint32(i))
		} else {
			memory = binary.NativeEndian.AppendUint64(nil, uint64(i))
		}
		s.Data = memory
		_ = s.SetDims(nil)
		if err := w.Write(&pyfeed.Tuple{Slots: []pyfeed.LoDTensor{s}}); err != nil {
			t.Fatal(err)
		}
	}
	if err = w.Close(); err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data, true
}

// numbersOf reads a file of numbers. It returns the delivered numbers, the error at the end, and the skipped damage.
func numbersOf(t *testing.T, path string, attributes string) (all []int64, err error, ledger []place) {
	t.Helper()
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	if attributes != "" {
		attributes = ", " + attributes
	}
	err = ops.Create(scope, "open_files", "r", nil, fmt.Appendf(nil, `{"filenames": [%q], "num_threads": 1%s}`, path, attributes))
	if err != nil {
		return nil, err, nil
	}
	v, err := scope.FindVar("r")
	if err != nil {
		t.Fatal(err)
	}
	h, err := readers.HolderOf(v)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Drop()
	for err == nil {
		var tuple *pyfeed.Tuple
		if tuple, err = h.ReadNext(context.Background()); err == nil {
			number, _ := record.Integer(tuple.Slots[0].DType, tuple.Slots[0].Data)
			all = append(all, number)
			tuple.Release()
		}
	}
	ledger = placesOf(t, h)
	return all, err, ledger
}

// place is an entry of the ledger.
type place struct {
	File        string
	Offset      int64
	Record      int64
	Approximate bool
	Reason      string
}

func placesOf(t *testing.T, h *readers.ReaderHolder) (all []place) {
	t.Helper()
	data, err := json.Marshal(h.Stats().Extra["ledger"])
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// damages returns damaged copies of data: with one byte changed, or with the end cut off.
func damages(data []byte) (all [][]byte) {
	parts := 4
	if testing.Short() {
		parts = 2
	}
	for part := range parts {
		at := len(data) * part / parts
		flipped := slices.Clone(data)
		flipped[at] ^= 0x55
		all = append(all, flipped, data[:at], data[:len(data)-1-part])
	}
	return append(all, append(slices.Clone(data), "more"...))
}

// An error about damage has the number of the first record that is not delivered, whatever detects the damage.
func TestDamageHasTheNumberOfTheRecord(t *testing.T) {
	count := 500
	if testing.Short() {
		count = 200
	}
	for _, k := range kindsOfFiles {
		for _, packed := range []string{"", ".gz", ".zlib", ".zst", ".sz"} {
			data, can := numbersFile(t, k, packed, count)
			if !can {
				continue
			}
			t.Run(k.suffix+packed, func(t *testing.T) {
				balanced(t)
				found := 0
				for i, bad := range damages(data) {
					path := writeTo(t, t.TempDir(), "a."+k.suffix+packed, bad)
					all, err, _ := numbersOf(t, path, k.read)
					var e *pyfeed.Error
					if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt {
						continue // the damage is not detectable, or the file is valid with other slots
					}
					found++
					if e.At == nil || e.At.File != path || e.At.Record != int64(len(all)) || e.At.Approximate {
						t.Errorf("%d: %d delivered, %v, approximate: %v", i, len(all), err, e.At.Approximate)
					}
					_, err, ledger := numbersOf(t, path, join(k.read, `"on_corrupt": "skip"`))
					// The slots could not be inferred, or a damaged name left a line without its value, which is no damage.
					if err != io.EOF && !(errors.As(err, &e) && (len(ledger) == 0 || e.Kind == pyfeed.Invalid && strings.Contains(e.Text, "found null or none"))) {
						t.Errorf("%d: %v", i, err)
					}
					for j, p := range ledger {
						if p.Record < 0 || j > 0 && p.Record < ledger[j-1].Record || j == 0 && (p.Record != int64(len(all)) || p.Approximate) {
							t.Errorf("%d: %d delivered, %+v", i, len(all), ledger)
						}
					}
				}
				if found < min(4, len(damages(data))/2) {
					t.Errorf("damage was found in %d of %d damaged files only", found, len(damages(data)))
				}
			})
		}
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// After skipped damage, the number of a record is right, or marked as approximate.
func TestNumbersBehindSkippedDamage(t *testing.T) {
	const count = 300
	for _, k := range kindsOfFiles {
		data, _ := numbersFile(t, k, "", count)
		if !k.checked && k.suffix != "csv" && k.suffix != "jsonl" || k.suffix == "npz" {
			continue
		}
		t.Run(k.suffix, func(t *testing.T) {
			exact, about := 0, 0
			for first := len(data) / 8; first < len(data)/2; first += len(data)/40 + 1 {
				bad := slices.Clone(data)
				for _, at := range []int{first, first + len(data)/4, first + len(data)/2 - 1} {
					if k.suffix == "csv" || k.suffix == "jsonl" { // an invalid number, or a quote that is not closed
						at += bytes.IndexByte(data[at:], '\n') + 1
						bad[at] = 'x'
						if at%7 == 0 {
							bad[at] = '"'
						}
						continue
					}
					bad[at] ^= 0x55
				}
				all, err, ledger := numbersOf(t, writeTo(t, t.TempDir(), "a."+k.suffix, bad), join(k.read, `"on_corrupt": "skip"`))
				if err != io.EOF {
					t.Fatal(err)
				}
				if len(ledger) == 0 {
					t.Errorf("damage at %d: expected entries in the ledger, found none", first)
				}
				for _, p := range ledger {
					if p.Approximate {
						about++
						continue
					}
					exact++
					if slices.Contains(all, p.Record) {
						t.Errorf("damage at %d: record %d was delivered, and is in %+v", first, p.Record, ledger)
					}
				}
			}
			if everyLine := k.suffix == "jsonl"; exact == 0 || about == 0 != everyLine { // a line is a record, whatever is in it
				t.Errorf("%d exact numbers, %d approximate ones", exact, about)
			}
		})
	}
}

// With verify_first, all damage that reading would find is found before the first record.
func TestDamageIsFoundFirst(t *testing.T) {
	count := 500
	if testing.Short() {
		count = 200
	}
	for _, k := range kindsOfFiles {
		for _, packed := range []string{"", ".gz", ".sz"} {
			data, can := numbersFile(t, k, packed, count)
			if !can {
				continue
			}
			t.Run(k.suffix+packed, func(t *testing.T) {
				balanced(t)
				first := join(k.read, `"verify_first": true`)
				path := writeTo(t, t.TempDir(), "a."+k.suffix+packed, data)
				if all, err, _ := numbersOf(t, path, first); err != io.EOF || len(all) != count {
					t.Errorf("undamaged: %d delivered, %v", len(all), err)
				}
				for i, bad := range damages(data) {
					path := writeTo(t, t.TempDir(), "a."+k.suffix+packed, bad)
					var e *pyfeed.Error
					if _, err, _ := numbersOf(t, path, k.read); !errors.As(err, &e) || e.Kind != pyfeed.Corrupt {
						continue
					}
					all, err, _ := numbersOf(t, path, first)
					if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || len(all) > 0 || e.At.Record != 0 || e.At.Approximate {
						t.Errorf("%d: %d delivered, %v", i, len(all), err)
					}
					all, err, ledger := numbersOf(t, path, join(first, `"on_corrupt": "skip"`))
					if packed != "" && err == io.EOF && (len(all) > 0 || len(ledger) != 1 || ledger[0].Record != 0) {
						t.Errorf("%d, skipped: %d delivered, %v", i, len(all), ledger)
					}
				}
			})
		}
	}
}

// Damage in an uncompressed file is skipped as without verify_first, and is in the ledger once.
func TestVerifiedFilesAreSkippedInParts(t *testing.T) {
	for _, k := range kindsOfFiles {
		data, _ := numbersFile(t, k, "", 500)
		for i, bad := range damages(data) {
			path := writeTo(t, t.TempDir(), "a."+k.suffix, bad)
			want, wanted, places := numbersOf(t, path, join(k.read, `"on_corrupt": "skip"`))
			all, err, found := numbersOf(t, path, join(k.read, `"on_corrupt": "skip", "verify_first": true`))
			if (err == io.EOF) != (wanted == io.EOF) || !slices.Equal(all, want) || !slices.Equal(places, found) {
				t.Errorf("%s, %d: expected %d, %v, %v, found %d, %v, %v", k.suffix, i, len(want), wanted, places, len(all), err, found)
			}
		}
	}
}

func TestVerifyFirstWantsFilesThatCanBeReadTwice(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "a.raw")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	data, _ := numbersFile(t, kindsOfFiles[0], "", 3)
	file := writeTo(t, t.TempDir(), "a.raw", data)
	for _, op := range []string{"open_files", "create_file_reader"} {
		for _, names := range [][]string{{pipe}, {file, pipe}, {"raw:/dev/zero"}} {
			scope := pyfeed.NewScope(nil)
			err := ops.Create(scope, op, "r", nil, fmt.Appendf(nil, `{"filenames": ["%s"], "verify_first": true, %s}`,
				strings.Join(names, `", "`), oneNumber))
			scope.Drop()
			var e *pyfeed.Error
			if !errors.As(err, &e) || e.Kind != pyfeed.Invalid || !strings.Contains(e.Text, "verify_first: ") {
				t.Errorf("%s, %v: %v", op, names, err)
			}
		}
	}
}

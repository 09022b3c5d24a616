package tokens

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

var tested = formattest.Format{Suffix: ".tokens", Open: Open, Begin: begin, Create: Create}

func config(o Options) record.Config { return record.Config{Options: &o} }

// ids returns n different token ids, the same in each call.
func ids(n int) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i*2654435761) >> 3 % 50257
	}
	return all
}

// stored returns ids as little-endian integers of some bytes.
func stored(all []uint64, item int) (data []byte) {
	for _, id := range all {
		for b := range item {
			data = append(data, byte(id>>(8*b)))
		}
	}
	return data
}

// format formats a window as formattest does: the tokens, and the targets if there are some.
func format(all []uint64, targets bool) string {
	if !targets {
		return list(all)
	}
	return list(all[:len(all)-1]) + " " + list(all[1:])
}

func list(all []uint64) string { return fmt.Sprint(all) }

// expected divides documents into windows, one token at a time.
func expected(documents [][]uint64, o Options) (all []string) {
	stride, need := o.Stride, o.Length
	if stride == 0 {
		stride = o.Length
	}
	least := int64(1)
	if o.Targets {
		need, least = need+1, 2
	}
	for _, d := range documents {
		if o.Documents == "whole" {
			all = append(all, format(d, false))
			continue
		}
		covered := int64(0)
		for at := int64(0); at < int64(len(d)); at += stride {
			switch left := int64(len(d)) - at; {
			case left >= need:
				all = append(all, format(d[at:at+need], o.Targets))
				covered = at + need
				continue
			case o.Last == "short" && left >= least && covered < int64(len(d)):
				all = append(all, format(d[at:], o.Targets))
			}
			break
		}
	}
	return all
}

// pair writes the two files of Megatron-LM, and returns the path of the index. Each document is a list of sequences.
func pair(t testing.TB, documents [][][]uint64, d pyfeed.DType) string {
	t.Helper()
	code, _ := megatronCode(d)
	var sizes, pointers, begins, data []byte
	n := uint64(0)
	begins = binary.LittleEndian.AppendUint64(begins, 0)
	for _, document := range documents {
		for _, sequence := range document {
			sizes = binary.LittleEndian.AppendUint32(sizes, uint32(len(sequence)))
			pointers = binary.LittleEndian.AppendUint64(pointers, uint64(len(data)))
			data = append(data, stored(sequence, d.Size())...)
			n++
		}
		begins = binary.LittleEndian.AppendUint64(begins, n)
	}
	index := append([]byte("MMIDIDX\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), code)
	index = binary.LittleEndian.AppendUint64(index, n)
	index = binary.LittleEndian.AppendUint64(index, uint64(len(documents)+1))
	index = append(append(append(index, sizes...), pointers...), begins...)
	path := formattest.File(t, "a.idx", index)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "a.bin"), data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// texts returns documents of some lengths, in sequences of at most 5 tokens.
func texts(lengths ...int) (documents [][][]uint64, flat [][]uint64) {
	all := ids(10_000)
	for _, n := range lengths {
		d := all[:n]
		all = all[n:]
		flat = append(flat, d)
		var sequences [][]uint64
		for len(d) > 0 {
			k := min(5, len(d))
			sequences = append(sequences, d[:k])
			d = d[k:]
		}
		documents = append(documents, sequences)
	}
	return documents, flat
}

func join(documents [][]uint64) (all []uint64) {
	for _, d := range documents {
		all = append(all, d...)
	}
	return all
}

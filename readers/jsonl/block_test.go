package jsonl

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

const blockColumns = `{"columns": [{"columns": "t", "dtype": "bytes", "dims": [], "default": "none"}, {"columns": "n", "dtype": "float32", "dims": [], "default": 7}, {"columns": "o", "dtype": "json", "default": "[]"},
	{"columns": "b", "dtype": "bool", "dims": [], "default": "false"}, {"columns": "v", "dims": [3], "dtype": "int16", "default": 0}, {"columns": "u.0", "dtype": "bytes", "dims": [], "default": ""}]}`

// readBoth reads data with Read, and with ReadBlock where it returns a Block. It expects the same, and returns it: for
// damage the text of the error.
func readBoth(t *testing.T, pool *memory.Pool, data []byte, options string, prepare func(*records)) (all []string) {
	t.Helper()
	for _, many := range []int{4, 37} { // with an odd number, Drain reads Blocks
		c := record.Config{Pool: pool, Options: formattest.Options[Options](t, options)}
		c.Storage.Compression = "none"
		r, err := tested.Memory(data, &c)
		if err != nil {
			t.Fatal(err)
		}
		if prepare != nil {
			prepare(r.(*records))
		}
		var got []string
		for err != io.EOF {
			if _, err = formattest.Drain(t, r, many, func(_ int, tuple *pyfeed.Tuple) { got = append(got, formattest.FormatTuple(tuple)) }); err == io.EOF {
				break
			}
			position, _ := r.(record.Numberer).Number()
			got = append(got, fmt.Sprint(position, err))
			if err = r.Resync(); err != nil && err != io.EOF {
				t.Fatal(err)
			}
		}
		r.Close()
		if all != nil {
			formattest.ExpectTexts(t, got, all...)
		}
		all = got
	}
	return all
}

// Blocks with text have what Read returns, and end before damage and before text that does not fit.
func TestBlocksOfText(t *testing.T) {
	defer formattest.CheckLeaks(t)()
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	long := strings.Repeat(`lorem \"ipsum\" é 東 `, 20_000) // more than a block
	var lines []string
	for i := range 3000 {
		switch i % 500 {
		case 11:
			lines = append(lines, `{"t":null,"o":{"a":[1,"\""]}}`)
		case 12:
			lines = append(lines, "", "  ", `{}`)
		case 13:
			lines = append(lines, `{"t":"a\ud800","n":1}`)
		case 14:
			lines = append(lines, `{"t":"a","t":"b"}`)
		case 15:
			lines = append(lines, `{"u":["first \u00e9",2],"x":[{}],"v":[1,-2,3],"b":true,"t":""}`)
		case 16:
			lines = append(lines, `{"t":"not closed`)
		case 17:
			lines = append(lines, `{"t":"`+long+`"}`)
		case 18:
			lines = append(lines, `{"t":"`+strings.Repeat("m", 9000)+`","u":["\/"]}`)
		default:
			lines = append(lines, fmt.Sprintf(`{"t":"%d \"quoted\" é\n %s","n":%d.5}`, i, strings.Repeat("w ", i%90), i))
		}
	}
	data := []byte(strings.Join(lines, "\n"))
	all := readBoth(t, pool, data, blockColumns, nil)
	if len(all) != 3000 {
		t.Fatalf("expected 3000 records, found %d", len(all))
	}
	formattest.ExpectTexts(t, []string{all[1], all[12], all[15]}, `"1 \"quoted\" é\n w " 1.5 "[]" false [0 0 0] ""`, `"none" 7 "[]" false [0 0 0] ""`, `"" 7 "[]" true [1 -2 3] "first é"`)
	if !strings.Contains(all[14], `line 17: expected the name of column "t" only once`) {
		t.Errorf("expected damage in line 17, found %s", all[14])
	}
	readBoth(t, pool, data, `{"columns": ["t"], "default": ""}`, nil)
	readBoth(t, pool, data, `{"columns": ["t"], "default": ""}`, func(r *records) { r.maxRecord = 10_000 })
}

// Most instances with text are in Blocks, also if the file is read in parts, and if some lines do not fit into one.
func TestMostTextIsInBlocks(t *testing.T) {
	var data bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&data, `{"t":"%d %s","n":%d}`+"\n", i, strings.Repeat(`ab\n`, i%100), i)
		if i%5000 == 0 {
			fmt.Fprintf(&data, `{"t":"%s","n":%d}`+"\n", strings.Repeat("x", 2*textBlockBytes), i)
		}
	}
	o := formattest.Options[Options](t, `{"columns": ["t", "n"]}`)
	tested.EachWay(t, data.Bytes(), record.Config{Options: o}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out := make([]*pyfeed.Tuple, 4096)
		tuples, inBlocks := 0, 0
		for {
			if b := r.(record.BlockReader).ReadBlock(10_000); b != nil {
				inBlocks += b.Len()
				var c record.Chunk
				c.AddBlock(b)
				c.Release()
				continue
			}
			pyfeed.NewTuples(out, 2)
			n, err := r.Read(out)
			pyfeed.ReleaseAll(out)
			if tuples += n; err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if tuples+inBlocks != 20_004 || tuples > 20 {
			t.Errorf("found %d tuples, and %d instances in Blocks", tuples, inBlocks)
		}
	})
}

// Read and ReadBlock return the same for any lines.
func FuzzBlocks(f *testing.F) {
	for _, s := range seedLines {
		f.Add([]byte(s+"\n"+s+"\r\n"+s), uint8(0))
	}
	f.Add([]byte(strings.Join(seedLines, "\n")), uint8(1))
	f.Add([]byte(strings.Repeat(`{"t":"a \"b\" é","n":1,"o":{"x":"\n"},"u":["y"]}`+"\n", 40)), uint8(0))
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, mode uint8) {
		if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
			return
		}
		defer formattest.CheckLeaks(t)()
		readBoth(t, pool, data, blockColumns, func(r *records) {
			if mode&1 != 0 {
				r.maxRecord = 64
			}
		})
	})
}

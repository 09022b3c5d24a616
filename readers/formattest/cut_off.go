package formattest

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// CutOff reads a compressed file that is cut off in its last record. That record is damaged, begins with head, and is
// longer than what is read of the file at a time. Read MUST return the damage, Resync or the next Read that the file is
// cut off, and only then follows the end. prepare changes the Records before the first Read; nil: it has nothing to change.
func (f Format) CutOff(t *testing.T, head string, c record.Config, prepare func(r record.Records), damage string) {
	t.Helper()
	data, rng := []byte(head), rand.New(rand.NewPCG(1, 2))
	for range 8 << 20 { // so that the end of the compressed file is far from its beginning
		data = append(data, 'a'+byte(rng.IntN(26)))
	}
	data = Gzip(data)
	WithPool(t, func(pool *memory.Pool) {
		c.Pool = pool
		r, err := f.Open(File(t, "a"+f.Suffix+".gz", data[:len(data)-1<<10]), &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if prepare != nil {
			prepare(r)
		}
		_, err = Drain(t, r, 3, nil)
		Expect(t, err, pyfeed.Corrupt, damage)
		cut := r.Resync()
		if cut == nil {
			_, cut = Drain(t, r, 3, nil)
		}
		Expect(t, cut, pyfeed.Corrupt, "expected more compressed data")
		if _, err = Drain(t, r, 3, nil); err != cut {
			t.Errorf("expected %v again, found %v", cut, err)
		}
		if err = r.Resync(); err != io.EOF {
			t.Errorf("expected the end, found %v", err)
		}
	})
}

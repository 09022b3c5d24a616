package record

import (
	"fmt"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// textsBlock makes a Block of the instances first to end-1, each with two texts and its number as uint8 between them. The
// last text lies in memory of its own.
func textsBlock(t *testing.T, first, end int) *Block {
	t.Helper()
	n := end - first
	pool := poolFor(t)
	b, err := pool.Get(n * 100)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	other, err := pool.Get(n * 100)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	rows := b.Bytes()[:n:n]
	texts := []Text{{Base: b.Bytes()[n:], Buffer: b}, {}, {Base: other.Bytes(), Buffer: other}}
	used := make([]int, 3)
	for k := range n {
		rows[k] = byte(first + k)
		for _, slot := range []int{2, 0} {
			size := copy(texts[slot].Base[used[slot]:], fmt.Sprintf("%0*d", (first+k)%7*slot, first+k))
			texts[slot].Spans = append(texts[slot].Spans, Span{uint32(used[slot]), uint32(size)})
			used[slot] += size
		}
	}
	slots := make([]pyfeed.LoDTensor, 3)
	slots[1].DType, slots[1].Data = pyfeed.Uint8, rows[:1:n]
	stride := 0
	if first%2 == 0 {
		stride = 1 // the same, since a number takes one byte
	}
	return NewTextBlock(slots, texts, stride, n, b)
}

// sameInstances fails a test if the instances are not the given numbers.
func sameInstances(t *testing.T, c *Chunk, numbers ...int) {
	t.Helper()
	for _, number := range numbers {
		one := takeOne(t, c)
		want := fmt.Sprintf("%d %d %0*d", number, number, number%7*2, number)
		if got := fmt.Sprintf("%s %d %s", one.Slots[0].Data, one.Slots[1].Data[0], one.Slots[2].Data); got != want {
			t.Errorf("expected %s, found %s", want, got)
		}
		for _, i := range []int{0, 2} {
			s := &one.Slots[i]
			if n := int64(len(s.Data)); s.DType != pyfeed.Uint8 || len(s.LoD) != 1 || s.LoD[0][1] != n || s.Dims()[0] != n || !s.InHeap {
				t.Errorf("instance %d, slot %d: expected a byte string, found %v %v with LoD %v", number, i, s.DType, s.Dims(), s.LoD)
			}
		}
		one.Release()
	}
	if c.Len() > 0 {
		t.Errorf("found %d instances more", c.Len())
	}
}

func TestInstancesOfTextBlocks(t *testing.T) {
	released(t)
	var c, to Chunk
	c.AddBlock(textsBlock(t, 0, 20))
	c.AddBlock(textsBlock(t, 20, 30))
	want := 0
	for k := range 30 {
		want += len(fmt.Sprintf("%d", k)) + 1 + len(fmt.Sprintf("%0*d", k%7*2, k))
	}
	if c.Bytes() != want {
		t.Errorf("expected %d bytes, found %d", want, c.Bytes())
	}
	if !c.BlocksAlike(0, 1) {
		t.Error("expected Blocks with the same slots to be alike")
	}
	bytes := c.Bytes()
	c.MoveTo(&to, 25)
	if c.MoveTo(&to, 10); to.Bytes() != bytes {
		t.Errorf("expected %d bytes after a move, found %d", bytes, to.Bytes())
	}
	to.Keep(18, 4)
	sameInstances(t, &to, 18, 19, 20, 21)
}

func TestSpansOfBlocksAndTuples(t *testing.T) {
	released(t)
	inSlot := func(i int) bool { return i != 1 }
	var c, one Chunk
	c.AddBlock(textsBlock(t, 3, 5))
	one.AddBlock(textsBlock(t, 9, 10))
	c.Add(takeOne(t, &one))
	c.AddBlock(textsBlock(t, 12, 13))
	if !c.AllSpans(inSlot) || c.AllSpans(func(i int) bool { return true }) {
		t.Error("expected byte strings in the slots 0 and 2")
	}
	if got := fmt.Sprint(c.AppendSpanEnds([]int64{0}, 2)); got != "[0 6 14 18 28]" {
		t.Errorf("expected the ends of all instances, found %s", got)
	}
	found, numbers := make([]byte, 22), make([]byte, 4)
	if err := c.CopySpans(found, 2, 1, 4); err != nil || string(found) != "00000004"+"0009"+"0000000012" {
		t.Errorf("expected the texts of the last three instances, found %q, %v", found, err)
	}
	if err := c.CopySlot(numbers, 1, 1, 0, 4); err != nil || fmt.Sprint(numbers) != "[3 4 9 12]" {
		t.Errorf("expected the numbers of all instances, found %v, %v", numbers, err)
	}

	one.AddBlock(textsBlock(t, 1, 2))
	two := takeOne(t, &one)
	two.Slots[2].LoD[0] = []int64{0, 1, 2} // two byte strings
	c.Add(two)
	if c.AllSpans(inSlot) {
		t.Error("expected that a tuple with two byte strings is not like a Block")
	}
	c.Release()

	c.AddBlock(textsBlock(t, 0, 1))
	c.AddBlock(numbersBlock(t, poolFor(t), "a", 3, 0, 1))
	if c.AllSpans(inSlot) || c.BlocksAlike(0, 1) {
		t.Error("expected that a Block of numbers is not like one with text")
	}
	c.Release()
}

func TestATextBlockNeedsASpanForEachInstance(t *testing.T) {
	defer func() {
		if fault := recover(); fmt.Sprint(fault) != "record: NewTextBlock: slot 0: expected 2 spans, found 1" {
			t.Errorf("found %v", fault)
		}
	}()
	NewTextBlock(make([]pyfeed.LoDTensor, 1), []Text{{Spans: []Span{{0, 0}}}}, 0, 2, nil)
}

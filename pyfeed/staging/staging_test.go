package staging

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

var background = context.Background()

// makeBuffer makes a buffer outside the process's table, and checks at the end of the test that its memory was
// released.
func makeBuffer(t testing.TB, capacity, bytesLimit uint64) *Buffer {
	t.Helper()
	before := memory.Count()
	b, err := newBuffer(pyfeed.CPUPlace(), capacity, bytesLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.drop()
		if after := memory.Count(); after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
	return b
}

// shutDownAfter hides the process's buffers during a test. At the end it drops the buffers that the test has made.
func shutDownAfter(t testing.TB) {
	before := memory.Count()
	hide := func(all map[pyfeed.Place]*Buffer) (hidden map[pyfeed.Place]*Buffer) {
		buffers.mu.Lock()
		defer buffers.mu.Unlock()
		hidden, buffers.all = buffers.all, all
		return hidden
	}
	kept := hide(nil)
	t.Cleanup(func() {
		for _, b := range hide(kept) {
			b.drop()
		}
		if after := memory.Count(); after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
}

// drop closes a buffer. Only tests do that.
func (b *Buffer) drop() {
	b.queue.Drop()
	if b.stager != nil {
		b.stager.Close()
	}
}

// makeTuple makes a tuple of the given tensors in Go's heap.
func makeTuple(t testing.TB, slots ...pyfeed.LoDTensor) *pyfeed.Tuple {
	t.Helper()
	tuple := pyfeed.NewTuple(len(slots))
	copy(tuple.Slots, slots)
	return tuple
}

func tensor(t testing.TB, d pyfeed.DType, dims pyfeed.Dims, fill byte) pyfeed.LoDTensor {
	t.Helper()
	s := pyfeed.LoDTensor{DType: d}
	if err := s.SetDims(dims); err != nil {
		t.Fatal(err)
	}
	n, err := s.Measure()
	if err != nil {
		t.Fatal(err)
	}
	s.Data = bytes.Repeat([]byte{fill}, n)
	return s
}

func number(n int) *pyfeed.Tuple {
	tuple := pyfeed.NewTuple(1)
	s := &tuple.Slots[0]
	s.DType, s.Data = pyfeed.Int64, binary.NativeEndian.AppendUint64(nil, uint64(n))
	return tuple
}

func numberOf(tuple *pyfeed.Tuple) int {
	defer tuple.Release()
	return int(binary.NativeEndian.Uint64(tuple.Slots[0].Data))
}

func put(ctx context.Context, b *Buffer, n int) error {
	tuple := number(n)
	defer tuple.Release()
	return b.Put(ctx, tuple)
}

func mustPut(t testing.TB, b *Buffer, n int) {
	t.Helper()
	if err := put(background, b, n); err != nil {
		t.Fatal(err)
	}
}

func mustGet(t testing.TB, b *Buffer, want int) {
	t.Helper()
	tuple, err := b.Get(wait.NonBlocking)
	if err != nil {
		t.Fatal(err)
	}
	if n := numberOf(tuple); n != want {
		t.Errorf("expected %d, found %d", want, n)
	}
}

func expect(t testing.TB, err error, kind pyfeed.Kind, text string) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Text, text) {
		t.Errorf("expected an error of kind %d with %q, found %v", kind, text, err)
	}
}

// until waits until the condition holds.
func until(b *Buffer, is func(pyfeed.QueueInfo) bool) {
	for !is(b.Stats()) {
		runtime.Gosched()
	}
}

func producersWait(b *Buffer, n int) {
	until(b, func(i pyfeed.QueueInfo) bool { return i.WaitingProducers == n })
}

func TestOneBufferAPlace(t *testing.T) {
	shutDownAfter(t)
	_, err := Get(pyfeed.CPUPlace(), 0, 0)
	expect(t, err, pyfeed.Invalid, "capacity: expected at least 1 tuple, found 0")
	_, err = Get(pyfeed.CUDAPlace(1), 2, 64)
	expect(t, err, pyfeed.Unsupported, "found CUDAPlace(1)")

	var start, done sync.WaitGroup // the refused calls above have made no buffer
	start.Add(1)
	got := make([]*Buffer, 8)
	for i := range got {
		done.Go(func() {
			start.Wait()
			b, err := Get(pyfeed.CPUPlace(), 2, 64)
			if err != nil {
				t.Error(err)
			}
			got[i] = b
		})
	}
	start.Done()
	done.Wait()
	for _, b := range got {
		if b == nil || b != got[0] {
			t.Fatal("expected one buffer for the place, found two")
		}
	}
	if b := got[0]; b.Place() != pyfeed.CPUPlace() || b.Stats().Capacity != 2 || b.Stats().BytesLimit != 64 {
		t.Errorf("found place %v and %+v", b.Place(), b.Stats())
	}
	for _, limits := range [][2]uint64{{3, 64}, {2, 0}, {0, 64}} {
		_, err := Get(pyfeed.CPUPlace(), limits[0], limits[1])
		expect(t, err, pyfeed.State, "the buffer of CPUPlace() was made with, capacity 2 and bytes_limit 64, found capacity ")
	}

	got[0].Drop() // drops a handle: the buffer stays
	mustPut(t, got[0], 1)
	mustGet(t, got[0], 1)
}

func TestOrderIsThatOfPuts(t *testing.T) {
	b := makeBuffer(t, 3, 0)
	in, out := 0, 0
	for round := range 50 {
		for b.Size() < 3 {
			mustPut(t, b, in)
			in++
		}
		for range 1 + round%3 {
			mustGet(t, b, out)
			out++
		}
	}
}

func TestTuplesNeedNotLookAlike(t *testing.T) {
	b := makeBuffer(t, 4, 0)
	ragged := tensor(t, pyfeed.Float32, pyfeed.Dims{5, 2}, 3)
	ragged.LoD, ragged.InHeap = pyfeed.LoD{{0, 1, 2}, {0, 2, 5}}, true
	for _, in := range []*pyfeed.Tuple{
		makeTuple(t, tensor(t, pyfeed.Int64, nil, 1)),
		makeTuple(t, tensor(t, pyfeed.Uint8, pyfeed.Dims{7}, 2), ragged),
		makeTuple(t, tensor(t, pyfeed.Float64, pyfeed.Dims{0, 3}, 0), tensor(t, pyfeed.Bool, pyfeed.Dims{1}, 1), tensor(t, pyfeed.Complex128, pyfeed.Dims{2}, 5)),
	} {
		want := make([][]byte, len(in.Slots))
		for i := range in.Slots {
			want[i] = bytes.Clone(in.Slots[i].Data)
		}
		if err := b.Put(background, in); err != nil {
			t.Fatal(err)
		}
		for i := range in.Slots { // the buffer has its own copy
			clear(in.Slots[i].Data)
		}
		out, err := b.Get(background)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Slots) != len(in.Slots) {
			t.Fatalf("expected %d slots, found %d", len(in.Slots), len(out.Slots))
		}
		for i := range out.Slots {
			from, to := &in.Slots[i], &out.Slots[i]
			if to.DType != from.DType || !equal(to.Dims(), from.Dims()) || !bytes.Equal(to.Data, want[i]) {
				t.Errorf("slot %d: expected %v%v, found %v%v: % x", i, from.DType, from.Dims(), to.DType, to.Dims(), to.Data)
			}
			if to.InHeap || to.ReadOnly || to.Place != pyfeed.CPUPlace() || len(to.LoD) != len(from.LoD) {
				t.Errorf("slot %d: %+v", i, to)
			}
			for j := range to.LoD {
				if !equal(to.LoD[j], from.LoD[j]) {
					t.Errorf("slot %d, level %d: expected %v, found %v", i, j, from.LoD[j], to.LoD[j])
				}
			}
		}
		in.Release()
		out.Release()
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestNonTuplesAreRefused(t *testing.T) {
	b := makeBuffer(t, 2, 0)
	ragged := tensor(t, pyfeed.Float32, pyfeed.Dims{5}, 3)
	ragged.LoD = pyfeed.LoD{{0, 4}}
	strange := tensor(t, pyfeed.Float32, pyfeed.Dims{5}, 3)
	strange.DType = 99
	good := tensor(t, pyfeed.Float32, pyfeed.Dims{5}, 3)
	for _, c := range []struct {
		tuple *pyfeed.Tuple
		kind  pyfeed.Kind
		text  string
	}{
		{makeTuple(t), pyfeed.Slots, "slots: expected at least 1, found 0"},
		{makeTuple(t, good, ragged), pyfeed.Shape, "slot 1: LoD level 0: expected the last offset to be 5"},
		{makeTuple(t, good, strange), pyfeed.Type, "slot 1: expected a dtype, found number 99"},
	} {
		expect(t, b.Put(background, c.tuple), c.kind, c.text)
		c.tuple.Release()
	}
	if i := b.Stats(); i.Size != 0 || i.Reserved != 0 || i.Bytes != 0 {
		t.Errorf("expected an empty buffer, found %+v", i)
	}
}

func TestATupleOfAFileThatShrankIsRefused(t *testing.T) {
	b := makeBuffer(t, 2, 0)
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 8*page), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	m, err := pool.Map(path, int(f.Fd()), int64(8*page))
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()

	tuple := pyfeed.NewTuple(1)
	s := &tuple.Slots[0]
	s.DType = pyfeed.Uint8
	_ = s.SetDims(pyfeed.Dims{int64(8 * page)})
	s.Hold(m.Bytes(), m.Window(0, 1))
	if err := os.Truncate(path, int64(page)); err != nil {
		t.Fatal(err)
	}
	err = b.Put(background, tuple)
	expect(t, err, pyfeed.Corrupt, "slot 0: the file shrank before this was read")
	if i := b.Stats(); i.Size != 0 || i.Reserved != 0 || i.Bytes != 0 {
		t.Errorf("expected the tuple not to be queued, found %+v", i)
	}
	tuple.Release()
	m.Close()
}

func TestPutWaitsWhileThereAreTooManyTuples(t *testing.T) {
	b := makeBuffer(t, 2, 0)
	mustPut(t, b, 0)
	mustPut(t, b, 1)
	done := make(chan error)
	go func() { done <- put(background, b, 2) }()
	producersWait(b, 1)
	if b.Size() != 2 {
		t.Errorf("expected 2 tuples, found %d", b.Size())
	}
	mustGet(t, b, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	mustGet(t, b, 1)
	mustGet(t, b, 2)
}

func TestPutWaitsWhileThereAreTooManyBytes(t *testing.T) {
	b := makeBuffer(t, 8, 20)
	mustPut(t, b, 0)
	mustPut(t, b, 1)
	done := make(chan error)
	go func() { done <- put(background, b, 2) }()
	producersWait(b, 1)
	if i := b.Stats(); i.Size != 2 || i.Bytes != 16 {
		t.Errorf("expected 2 tuples of 16 bytes, found %+v", i)
	}
	mustGet(t, b, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	mustGet(t, b, 1)
	mustGet(t, b, 2)

	large := makeTuple(t, tensor(t, pyfeed.Uint8, pyfeed.Dims{12}, 0), tensor(t, pyfeed.Uint8, pyfeed.Dims{9}, 0))
	expect(t, b.Put(background, large), pyfeed.TooLarge, "bytes_limit: expected a tuple of at most 20 bytes, found 21")
	large.Release()
}

// With a limit on bytes, small tuples must not overtake a large one.
func TestALargeTupleIsNotOvertaken(t *testing.T) {
	b := makeBuffer(t, 8, 16)
	mustPut(t, b, 0)
	large := makeTuple(t, tensor(t, pyfeed.Uint8, pyfeed.Dims{16}, 7))
	defer large.Release()
	done := make(chan error)
	go func() { done <- b.Put(background, large) }()
	producersWait(b, 1)
	if err := put(wait.NonBlocking, b, 1); err != wait.ErrWouldBlock { // the small tuple would fit
		t.Errorf("expected ErrWouldBlock, found %v", err)
	}
	mustGet(t, b, 0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	tuple, err := b.Get(background)
	if err != nil || tuple.Slots[0].Data[0] != 7 {
		t.Error(err)
	}
	tuple.Release()
}

func TestGetWaitsForAPut(t *testing.T) {
	b := makeBuffer(t, 2, 0)
	got := make(chan int)
	go func() {
		tuple, err := b.Get(background)
		if err != nil {
			t.Error(err)
		}
		got <- numberOf(tuple)
	}()
	until(b, func(i pyfeed.QueueInfo) bool { return i.WaitingConsumers == 1 })
	mustPut(t, b, 5)
	if n := <-got; n != 5 {
		t.Errorf("expected 5, found %d", n)
	}
}

// A run of a program repeats a call that would block. Such a call changes nothing, so that the same tuple can be put
// again.
func TestATryThatWouldBlockChangesNothing(t *testing.T) {
	b := makeBuffer(t, 1, 0)
	mustPut(t, b, 0)
	var word uint32
	p := wait.NewFutexParker(&word)
	tuple := number(1)
	defer tuple.Release()
	before := memory.Count()
	for range 3 {
		if err := b.Put(p, tuple); err != wait.ErrWouldBlock {
			t.Fatalf("expected ErrWouldBlock, found %v", err)
		}
	}
	if after := memory.Count(); after != before || len(tuple.Slots) != 1 || len(tuple.Slots[0].Data) != 8 {
		t.Errorf("counts: %+v before, %+v after; %d slots", before, after, len(tuple.Slots))
	}
	mustGet(t, b, 0)
	if word == 0 {
		t.Error("expected the waiter to be woken")
	}
	if err := b.Put(p, tuple); err != nil {
		t.Error(err)
	}
	p.Finish()
	mustGet(t, b, 1)

	if _, err := b.Get(p); err != wait.ErrWouldBlock {
		t.Errorf("expected ErrWouldBlock, found %v", err)
	}
	mustPut(t, b, 2)
	mustGet(t, b, 2)
	p.Leave()
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	b := makeBuffer(t, 1, 0)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error)
	go func() {
		_, err := b.Get(ctx)
		done <- err
	}()
	until(b, func(i pyfeed.QueueInfo) bool { return i.WaitingConsumers == 1 })
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("expected the context's error, found %v", err)
	}
	mustPut(t, b, 0)
	if err := put(ctx, b, 1); err != context.Canceled {
		t.Errorf("expected the context's error, found %v", err)
	}
	mustGet(t, b, 0)
}

// Clear wakes as many waiting producers as it makes room for, in order of arrival.
func TestClearLetsThoseInThatWait(t *testing.T) {
	for _, bytesLimit := range []uint64{0, 3 * 8} {
		before := memory.Count()
		b := makeBuffer(t, 3, bytesLimit)
		for i := range 3 {
			mustPut(t, b, i)
		}
		var words [5]uint32
		var parkers [5]*wait.Parker
		for i := range parkers {
			parkers[i] = wait.NewFutexParker(&words[i])
			if err := put(parkers[i], b, 10+i); err != wait.ErrWouldBlock {
				t.Fatal(err)
			}
		}
		if n := b.Clear(); n != 3 {
			t.Errorf("expected 3 to be dropped, found %d", n)
		}
		if i := b.Stats(); i.Size != 0 || i.Bytes != 0 || i.Dropped != 3 || memory.Count() != before {
			t.Errorf("wrong state after Clear: %+v, %+v", i, memory.Count())
		}
		for i, word := range words {
			if woken := word != 0; woken != (i < 3) {
				t.Errorf("put %d: unexpected state of its wake-up: woken %v", i, woken)
			}
		}
		for i := range 3 {
			if err := put(parkers[i], b, 10+i); err != nil {
				t.Errorf("put %d: %v", i, err)
			}
			parkers[i].Finish()
		}
		for i := 3; i < 5; i++ {
			mustGet(t, b, 7+i)
			if words[i] == 0 {
				t.Errorf("put %d was not woken", i)
			}
			if err := put(parkers[i], b, 10+i); err != nil {
				t.Errorf("put %d: %v", i, err)
			}
			parkers[i].Finish()
		}
		if n := b.Clear(); n != 3 {
			t.Errorf("expected 3 to be dropped, found %d", n)
		}
		if n := b.Clear(); n != 0 {
			t.Errorf("expected nothing to be dropped, found %d", n)
		}
	}
}

func TestClearLeavesGettersWaiting(t *testing.T) {
	b := makeBuffer(t, 2, 0)
	var word uint32
	p := wait.NewFutexParker(&word)
	if _, err := b.Get(p); err != wait.ErrWouldBlock {
		t.Fatal(err)
	}
	b.Clear()
	if i := b.Stats(); word != 0 || i.WaitingConsumers != 1 {
		t.Errorf("expected the consumer to keep waiting, found word %d and %+v", word, i)
	}
	mustPut(t, b, 3)
	tuple, err := b.Get(p)
	if err != nil || numberOf(tuple) != 3 {
		t.Error(err)
	}
	p.Finish()
}

// A tuple that is being written when the buffer is cleared is queued afterwards.
func TestATupleThatIsBeingWrittenOutlivesAClear(t *testing.T) {
	b := makeBuffer(t, 2, 0)
	mustPut(t, b, 0)
	tuple := number(0)
	data := tuple.Slots[0].Data
	r, err := b.Reserve(wait.NonBlocking, tuple)
	if err != nil {
		t.Fatal(err)
	}
	if i := b.Stats(); i.Reserved != 1 || i.Bytes != 16 {
		t.Errorf("expected one tuple being written, found %+v", i)
	}
	if n := b.Clear(); n != 1 {
		t.Errorf("expected 1 to be dropped, found %d", n)
	}
	binary.NativeEndian.PutUint64(data, 4)
	copy(tuple.Slots[0].Data, data)
	if err := b.Commit(&r, tuple); err != nil {
		t.Fatal(err)
	}
	mustGet(t, b, 4)
}

func TestShutdownEndsEveryWait(t *testing.T) {
	shutDownAfter(t)
	b, err := Get(pyfeed.CPUPlace(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, b, 0)
	done := make(chan error)
	go func() { done <- put(background, b, 1) }()
	producersWait(b, 1)
	Shutdown()
	expect(t, <-done, pyfeed.Closed, "the staging buffer is shut down")
	expect(t, put(background, b, 1), pyfeed.Closed, "the staging buffer is shut down")
	_, err = b.Get(background)
	expect(t, err, pyfeed.Closed, "the staging buffer is shut down")
	Shutdown()
}

// Many threads put and get while one thread clears. Each tuple is got or dropped exactly once, and the tuples of each
// producer keep their order.
func TestNothingIsLostOrDoubled(t *testing.T) {
	for _, bytesLimit := range []uint64{0, 4 * 8} {
		b := makeBuffer(t, 3, bytesLimit)
		const producers, each, consumers = 4, 2000, 3
		var work, consume sync.WaitGroup
		for p := range producers {
			work.Go(func() {
				for i := range each {
					mustPut(t, b, p*each+i)
				}
			})
		}
		ctx, stop := context.WithCancel(background)
		seen := make([][]int, consumers)
		for c := range consumers {
			consume.Go(func() {
				for {
					tuple, err := b.Get(ctx)
					if err != nil {
						return
					}
					seen[c] = append(seen[c], numberOf(tuple))
				}
			})
		}
		dropped := 0
		work.Go(func() {
			for range 200 {
				dropped += b.Clear()
				runtime.Gosched()
			}
		})
		work.Wait()
		until(b, func(i pyfeed.QueueInfo) bool { return i.Size == 0 })
		stop()
		consume.Wait()

		once := make([]int, producers*each)
		got := 0
		for _, numbers := range seen {
			var last [producers]int
			for _, n := range numbers {
				once[n]++
				got++
				if p := n / each; last[p] > n {
					t.Errorf("%d came after %d", n, last[p])
				} else {
					last[p] = n
				}
			}
		}
		for n, times := range once {
			if times > 1 {
				t.Errorf("%d came %d times", n, times)
			}
		}
		if i := b.Stats(); got+dropped != producers*each || int(i.Popped) != got || int(i.Dropped) != dropped || i.Bytes != 0 {
			t.Errorf("expected %d to be got or dropped, found %d and %d: %+v", producers*each, got, dropped, i)
		}
	}
}

func TestPutAndGetAllocateNothing(t *testing.T) {
	b := makeBuffer(t, 2, 1<<20)
	ragged := tensor(t, pyfeed.Float32, pyfeed.Dims{500}, 3)
	ragged.LoD = pyfeed.LoD{{0, 4, 500}}
	tuple := makeTuple(t, tensor(t, pyfeed.Int64, pyfeed.Dims{64, 8}, 1), ragged)
	defer tuple.Release()
	once := func() {
		if err := b.Put(background, tuple); err != nil {
			t.Fatal(err)
		}
		out, err := b.Get(background)
		if err != nil {
			t.Fatal(err)
		}
		out.Release()
	}
	once()
	if n := testing.AllocsPerRun(200, once); n > 0 {
		t.Errorf("a put and a get: expected 0 allocations, found %v", n)
	}
}

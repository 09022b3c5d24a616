package shared

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// The workers of these tests are separate processes: testdata/worker.c with the workers' side of the ring.
var program, programWithoutPidfds string

func build(dir, name string, flags ...string) (string, error) {
	const root = "../.."
	out := filepath.Join(dir, name)
	cc := exec.Command("cc", append(flags, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-DPFW_STEPS", "-pthread",
		"-I"+root+"/capi", "-I"+root+"/python/pyfeed_worker/native", "-o", out, "testdata/worker.c",
		root+"/python/pyfeed_worker/native/ring.c", root+"/capi/gather.c", root+"/capi/info.c")...)
	cc.Stderr = os.Stderr
	return out, cc.Run()
}

func TestMain(m *testing.M) {
	if os.Getenv("PYFEED_TEST_TRAINER") != "" {
		trainer()
	}
	dir, err := os.MkdirTemp("", "pyfeed-shared")
	if err == nil {
		program, err = build(dir, "worker")
	}
	if err == nil {
		programWithoutPidfds, err = build(dir, "worker-without-pidfds", "-DPFW_NO_PIDFD")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the worker:", err)
		os.Exit(1)
	}
	code := m.Run()
	left := func() int64 { return int64(memory.Count().Slabs[memory.SharedSlab]) }
	for end := time.Now().Add(10 * time.Second); left() != 0 && time.Now().Before(end); { // the last rings may be ending
		time.Sleep(time.Millisecond)
	}
	if n := left(); n != 0 {
		fmt.Fprintln(os.Stderr, n, "bytes of shared memory were not released")
		code = 1
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// trainer runs this program as a trainer process that the test kills.
func trainer() {
	var holder pyfeed.PyArrayFeedQueueHolder
	_, r, err := New(Options{Slots: slots, RingCells: 2, CellBytes: 4096}, holder.InitOnce)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(r.FD())
	select {}
}

// When the trainer dies, its workers' waits end and later pushes and attaches fail.
func TestTheTrainerDies(t *testing.T) {
	for _, program := range []string{program, programWithoutPidfds} {
		trainer := exec.Command(os.Args[0])
		trainer.Env = append(os.Environ(), "PYFEED_TEST_TRAINER=1")
		out, err := trainer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := trainer.Start(); err != nil {
			t.Fatal(err)
		}
		var fd int
		if _, err := fmt.Fscan(out, &fd); err != nil {
			t.Fatal(err)
		}
		ring, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", trainer.Process.Pid, fd), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t}
		blocked, idle, late := b.run(program, ring).attach(), b.run(program, ring).attach(), b.run(program, ring)
		blocked.send("many 0 9 9")
		shared, err := syscall.Mmap(int(ring.Fd()), 0, int(unsafe.Sizeof(header{})), syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		for (*header)(unsafe.Pointer(&shared[0])).waitingWorkers.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		_ = syscall.Munmap(shared)
		_ = trainer.Process.Kill()
		const gone = "4 the trainer is gone: nobody takes tuples any more"
		if a := blocked.answer(); a != gone {
			t.Errorf("expected %q, found %q", gone, a)
		}
		_ = trainer.Wait()
		idle.send("push 1 1")
		late.do("open")
		late.send("attach")
		for _, c := range []*child{idle, late} {
			if a := c.answer(); a != gone {
				t.Errorf("expected %q, found %q", gone, a)
			}
		}
		_ = ring.Close()
	}
}

var slots = []pyfeed.Slot{{DType: pyfeed.Int64}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}}, {DType: pyfeed.Uint32}}

type bench struct {
	*testing.T
	queue *pyfeed.Consumer
	ring  *Ring
}

func newBench(t *testing.T, ringCells, bytes uint64) *bench {
	t.Helper()
	b := newBenchWithoutForwarder(t, Options{Slots: slots, RingCells: ringCells, CellBytes: bytes})
	b.ring.start()
	return b
}

// newBenchWithoutForwarder makes a bench whose ring the test starts itself.
func newBenchWithoutForwarder(t *testing.T, options Options) *bench {
	t.Helper()
	var holder pyfeed.PyArrayFeedQueueHolder
	q, r, err := newRing(options, holder.InitOnce)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, q, r}
	t.Cleanup(func() {
		holder.Drop()
		q.Drop()
		for r.references.Load() != 0 { // the forwarder notices the shutdown and drops its reference
			time.Sleep(time.Millisecond)
		}
	})
	return b
}

// child is a worker process of a test.
type child struct {
	*bench
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (b *bench) start(stopAt ...string) *child {
	b.Helper()
	return b.run(program, os.NewFile(uintptr(dup(b.T, b.ring.FD())), "ring"), stopAt...)
}

// run starts a program that gets the ring as descriptor 3.
func (b *bench) run(program string, ring *os.File, arguments ...string) *child {
	b.Helper()
	cmd := exec.Command(program, arguments...)
	cmd.ExtraFiles = []*os.File{ring}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &child{b, cmd, in, bufio.NewReader(out)}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return c
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	copied, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

func (c *child) send(format string, args ...any) {
	c.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.Fatal(err)
	}
}

func (c *child) answer() string {
	c.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.Fatalf("the worker is gone: %v", err)
	}
	return strings.TrimSpace(line)
}

func (c *child) do(format string, args ...any) {
	c.Helper()
	c.send(format, args...)
	if a := c.answer(); a != "0" {
		c.Fatalf("%s: %s", fmt.Sprintf(format, args...), a)
	}
}

func (c *child) attach() *child {
	c.Helper()
	c.do("open")
	c.do("attach")
	return c
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

func (b *bench) pop() (*pyfeed.Tuple, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return b.queue.Pop(ctx)
}

// number checks the checksum of a tuple and returns its number.
func (b *bench) number(t *pyfeed.Tuple) int64 {
	b.Helper()
	var sum uint32
	for _, v := range t.Slots[1].Data {
		sum = sum*31 + uint32(v)
	}
	if want := binary.NativeEndian.Uint32(t.Slots[2].Data); sum != want {
		b.Fatalf("%d bytes: expected checksum %d, found %d", len(t.Slots[1].Data), want, sum)
	}
	return int64(binary.NativeEndian.Uint64(t.Slots[0].Data))
}

func (b *bench) expect(want ...int64) {
	b.Helper()
	for _, w := range want {
		t, err := b.pop()
		if err != nil {
			b.Fatalf("expected tuple %d, found %v", w, err)
		}
		if n := b.number(t); n != w {
			b.Fatalf("expected tuple %d, found %d", w, n)
		}
		t.Release()
	}
}

func (b *bench) expectEnd() {
	b.Helper()
	if t, err := b.pop(); err != io.EOF {
		b.Fatalf("expected the end, found %v, %v", t, err)
	}
}

func (b *bench) expectDeath(c *child, status int32) {
	b.Helper()
	_, err := b.pop()
	var e *pyfeed.ProducerError
	if !errors.As(err, &e) || e.Worker != int64(c.cmd.Process.Pid) || e.ExitStatus != status {
		b.Fatalf("expected the death of worker %d with %d, found %#v: %v", c.cmd.Process.Pid, status, e, err)
	}
}

func TestLayout(t *testing.T) {
	b := newBench(t, 2, 64)
	c := b.start()
	c.send("layout")
	var h header
	want := fmt.Sprint(unsafe.Sizeof(h), unsafe.Sizeof(spec{}), unsafe.Sizeof(tensor{}), unsafe.Sizeof(worker{}), unsafe.Offsetof(h.specsAt),
		unsafe.Offsetof(h.trainer), unsafe.Offsetof(h.gate), unsafe.Offsetof(h.tail), unsafe.Offsetof(h.trainerEvents), unsafe.Offsetof(h.cellEvents),
		unsafe.Offsetof(tensor{}.lodAt), unsafe.Sizeof(taskRecord{}), unsafe.Offsetof(h.tasks), unsafe.Offsetof(h.taskEvents))
	if found := c.answer(); found != want {
		t.Errorf("expected %s, found %s", want, found)
	}
}

func TestOneWorker(t *testing.T) {
	b := newBench(t, 4, 1<<20)
	c := b.start().attach()
	b.ring.Expect(1)
	c.send("many 0 100 100000")
	for i := range int64(100) {
		b.expect(i)
	}
	if a := c.answer(); a != "0" {
		t.Fatal(a)
	}
	c.do("end")
	b.expectEnd()
	// The same process attaches again in the next pass.
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	c.send("push 1 1")
	if a := c.answer(); !strings.Contains(a, "not attached") {
		t.Error(a)
	}
	c.do("attach")
	c.do("push 7 1000")
	b.expect(7)
	b.queue.Input().Close(pyfeed.PassCurrent)
	b.expectEnd()
	c.send("push 8 1")
	if a := c.answer(); !strings.Contains(a, "the queue is closed: pass 1 takes no more tuples") {
		t.Error(a)
	}
}

func TestCloseDeliversPushedTuples(t *testing.T) {
	b := newBench(t, 4, 256*4)
	c := b.start().attach()
	for i := range 4 {
		c.do("push %d 10", i)
	}
	c.send("push 4 1") // blocks
	b.blocked(1)
	b.queue.Input().Close(pyfeed.PassCurrent)
	if a := c.answer(); !strings.HasPrefix(a, "4 the queue is closed") {
		t.Error(a)
	}
	b.expect(0, 1, 2, 3)
	b.expectEnd()
}

// The forwarder saw a cell free when it began a pass. Before it looks again, a worker of the next pass claims and
// commits the cell. The forwarder must not take it for a cell of a pass that is over.
func TestACellOfTheNextPassIsNotTakenForAStaleOne(t *testing.T) {
	r := &Ring{states: make([]atomic.Uint64, 1), leases: make([]lease, 1), head: new(header), pass: 3}
	r.leases[0].ring = r
	r.forwarder.pass = 2
	ofPass := func(kind, pass uint64) uint64 { return stateOf(kind, 7) | pass<<48 }
	for _, seen := range []uint64{stateOf(free, 6), ofPass(writing, 1), ofPass(revoked, 1), ofPass(committed, 1)} {
		for kind, kept := range map[uint64]bool{ofPass(committed, 3): true, ofPass(committed, 2): true, ofPass(committed, 1): false} {
			r.states[0].Store(kind)
			r.freeIfStale(0, seen)
			want := kind
			if !kept && kindOf(seen) != free {
				want = stateOf(free, 8)
			}
			if found := r.states[0].Load(); found != want {
				t.Errorf("seen as %#x, then %#x: expected %#x, found %#x", seen, kind, want, found)
			}
		}
	}
}

// Workers may push before the forwarder has begun their pass. With a single cell, a consumer that holds a tuple while
// it asks for the next gets a copy, as in any pass.
func TestTheOnlyCellIsPushedBeforeTheForwarderBegins(t *testing.T) {
	b := newBenchWithoutForwarder(t, Options{Slots: slots, RingCells: 1, CellBytes: 4096})
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	c := b.start().attach()
	c.do("push 1 100")
	c.send("push 2 100")
	b.blocked(1)
	b.ring.start()
	first, err := b.pop()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	if n := b.number(first); n != 1 {
		t.Errorf("expected tuple 1, found %d", n)
	}
	b.expect(2)
	if a := c.answer(); a != "0" {
		t.Error(a)
	}
	c.do("end")
}

// The last cell is not lent at the end of a pass either, because the workers of the next pass need a cell.
func TestTheLastTuplesOfAPassAreKept(t *testing.T) {
	for _, cells := range []uint64{1, 2, 3} {
		b := newBench(t, cells, 4096)
		c := b.start().attach()
		b.ring.Expect(1)
		for i := range cells {
			c.do("push %d 100", i)
		}
		c.do("end")
		var kept []*pyfeed.Tuple
		for range cells {
			tuple, err := b.pop()
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, tuple)
		}
		b.expectEnd()
		if _, _, err := b.queue.Reopen(); err != nil {
			t.Fatal(err)
		}
		next := b.start().attach()
		next.do("push 7 100")
		b.expect(7)
		for i, tuple := range kept {
			if n := b.number(tuple); n != int64(i) {
				t.Errorf("expected tuple %d, found %d", i, n)
			}
		}
		pyfeed.ReleaseAll(kept)
	}
}

// A tuple that one consumer gets does not hide that another consumer still waits.
func TestEachOfTwoConsumersKeepsATuple(t *testing.T) {
	b := newBench(t, 2, 4096)
	c := b.start().attach()
	tuples := make(chan *pyfeed.Tuple, 2)
	for range 2 {
		go func() {
			tuple, err := b.pop()
			if err != nil {
				t.Error(err)
			}
			tuples <- tuple
		}()
	}
	for b.queue.Info().WaitingConsumers != 2 {
		time.Sleep(time.Millisecond)
	}
	c.do("push 0 100")
	first := <-tuples
	c.do("push 1 100")
	second := <-tuples
	if n, m := b.number(first), b.number(second); n != 0 || m != 1 {
		t.Errorf("expected tuples 0 and 1, found %d and %d", n, m)
	}
	pyfeed.ReleaseAll([]*pyfeed.Tuple{first, second})
	c.do("end")
}

// A cell that is being written when the queue is closed does not delay the end of the pass.
func TestCloseWhileASlotIsWritten(t *testing.T) {
	b := newBench(t, 2, 256*4)
	c := b.start().attach()
	c.do("reserve 10")
	b.queue.Input().Close(pyfeed.PassCurrent)
	b.expectEnd()
	c.send("commit")
	if a := c.answer(); !strings.HasPrefix(a, "4 the queue is closed") {
		t.Error(a)
	}
	b.allFree()
}

func (b *bench) blocked(n uint32) {
	for b.ring.head.waitingWorkers.Load() != n {
		time.Sleep(time.Millisecond)
	}
}

// allFree waits until all cells are free.
func (b *bench) allFree() {
	for i := range b.ring.states {
		for kindOf(b.ring.states[i].Load()) != free {
			time.Sleep(time.Millisecond)
		}
	}
}

func TestKilledAtEachStep(t *testing.T) {
	const slots = 4
	dies, ends := syscall.SIGKILL, syscall.Signal(0)
	for _, test := range []struct {
		step string
		send string
		want []int64
		end  syscall.Signal
	}{
		{"attached", "attach", nil, dies},
		{"claimed", "push 1 100", nil, dies},
		{"described", "push 1 100", nil, dies},
		{"copying", "push 1 100", nil, dies},
		{"written", "push 1 100", nil, dies},
		{"committed", "push 1 100", []int64{1}, dies},
		{"queued", "push 1 100", []int64{1}, dies},
		{"arrival counted", "push 1 100", []int64{1}, dies},
		{"blocked", "many 0 9 10", []int64{0, 1, 2, 3}, dies},
		{"writing", "reserve 10", nil, dies},
		{"abandoned", "reserve 10\nabandon", nil, dies},
		{"failing", "fail", nil, dies},
		{"ending", "end", nil, dies},
		{"ended", "end", nil, ends},
	} {
		t.Run(test.step, func(t *testing.T) {
			b := newBench(t, slots, 4096)
			other := b.start()
			other.do("open")
			args := []string{test.step}
			if test.step == "arrival counted" { // attaching passes this step too: stop at the push
				args = append(args, "1")
			}
			c := b.start(args...)
			c.do("open")
			if test.step != "attached" {
				c.do("attach")
			}
			b.ring.Expect(1)
			c.send("%s", test.send)
			a := c.answer()
			if a == "0" { // the result of the first of two commands
				a = c.answer()
			}
			if a != "stopped" {
				t.Fatal(a)
			}
			c.kill()
			// The worker died before it woke the trainer; the next worker to attach wakes it.
			if test.step == "attached" {
				other.do("attach")
			}
			b.expect(test.want...)
			if test.end == dies {
				b.expectDeath(c, -int32(dies))
			} else {
				b.expectEnd()
			}
			if test.step == "attached" {
				other.send("end")
				other.answer()
			}
			// All cells are free for other workers.
			if _, _, err := b.queue.Reopen(); err != nil {
				t.Fatal(err)
			}
			b.allFree()
			other.do("attach")
			for i := range slots {
				other.do("push %d 100", i)
			}
			b.expect(0, 1, 2, 3)
			other.do("end")
		})
	}
}

// A worker that dies while it attaches does not count, and its entry in the table is reused.
func TestKilledWhileAttaching(t *testing.T) {
	b := newBench(t, 2, 4096)
	c := b.start("attaching")
	c.do("open")
	c.send("attach")
	if a := c.answer(); a != "stopped" {
		t.Fatal(a)
	}
	c.kill()
	other := b.start().attach()
	b.ring.Expect(1)
	other.do("push 1 1")
	b.expect(1)
	for b.ring.workers[0].state.Load() != vacant {
		time.Sleep(time.Millisecond)
	}
	other.do("end")
	b.expectEnd()
}

// The entry of an attaching worker may still hold the start time of an earlier worker.
func TestAnEntryThatWasUsedBefore(t *testing.T) {
	b := newBench(t, 2, 4096)
	b.ring.Expect(4)
	b.start().attach().do("end")
	entry := &b.ring.workers[0]
	for entry.state.Load() != vacant {
		time.Sleep(time.Millisecond)
	}
	entry.started.Store(1)
	slow := b.start("attaching")
	slow.do("open")
	slow.send("attach")
	if a := slow.answer(); a != "stopped" {
		t.Fatal(a)
	}
	other := b.start().attach()
	b.seen(other) // the trainer has read the entries before it in the table, too
	third := b.start().attach()
	b.seen(third)
	if pid := pidOf(entry.state.Load()); pid != slow.cmd.Process.Pid {
		t.Fatalf("the entry of process %d was taken: it holds pid %d", slow.cmd.Process.Pid, pid)
	}
	slow.do("go on")
	for i, c := range []*child{slow, other, third} {
		c.do("push %d 1", i)
		b.expect(int64(i))
		c.do("end")
	}
	b.expectEnd()
}

// seen waits until the trainer watches a worker's process.
func (b *bench) seen(c *child) {
	for {
		b.ring.mu.Lock()
		p := b.ring.processes[c.cmd.Process.Pid]
		b.ring.mu.Unlock()
		if p != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAttachingToOnePassOnly(t *testing.T) {
	b := newBench(t, 2, 4096)
	c := b.start()
	c.do("open")
	c.do("attach 0")
	c.do("end")
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	c.send("attach 0")
	if a, want := c.answer(), "4 pass 0 of the queue is over, it is at pass 1"; a != want {
		t.Errorf("expected %q, found %q", want, a)
	}
	c.do("attach 1")
}

// A worker fails while another of its threads writes to a cell. The cell becomes free when that thread abandons it or
// the process ends.
func TestAWorkerFailsWhileItWrites(t *testing.T) {
	for _, end := range []func(*child){(*child).kill, func(c *child) { c.do("abandon") }} {
		b := newBench(t, 2, 4096)
		c := b.start().attach()
		c.do("reserve 10")
		c.do("fail")
		if _, err := b.pop(); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("expected the error 'no such file', found %v", err)
		}
		if _, _, err := b.queue.Reopen(); err != nil {
			t.Fatal(err)
		}
		end(c)
		b.allFree()
	}
}

func TestOneOfTwoDies(t *testing.T) {
	b := newBench(t, 8, 4096)
	one, two := b.start().attach(), b.start().attach()
	one.do("push 1 1")
	two.do("push 2 1")
	one.do("push 3 1")
	one.kill()
	b.expect(1, 2, 3)
	b.expectDeath(one, -9)
	two.send("push 4 1")
	if a := two.answer(); !strings.HasPrefix(a, "4 the queue is closed") {
		t.Error(a)
	}
}

func TestExitStatus(t *testing.T) {
	b := newBench(t, 2, 4096)
	c := b.start().attach()
	c.send("exit 3")
	b.expectDeath(c, 3)
	// The worker is not a child of the trainer: its parent reports the exit status.
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	c = b.start().attach()
	b.ring.Exited(c.cmd.Process.Pid, 7)
	c.kill()
	b.expectDeath(c, 7)
	// A worker ends with status 0 without having attached.
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	b.ring.Exited(4321, 0)
	b.ring.Exited(1234567, -11)
	_, err := b.pop()
	if want := "worker process 1234567 failed: it was killed by signal 11, SIGSEGV"; err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
}

// Errors name the number that a worker has given itself. The next worker in the same entry of the table has none.
func TestTheNumberOfAWorker(t *testing.T) {
	b := newBench(t, 2, 4096)
	c := b.start()
	c.do("open")
	c.do("number 3")
	c.do("attach")
	pid := c.cmd.Process.Pid
	c.do("fail")
	_, err := b.pop()
	if want := fmt.Sprintf("worker 3 (process %d) failed: ValueError: no such file", pid); err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	c.do("attach")
	b.seen(c)
	c.kill()
	_, err = b.pop()
	if want := fmt.Sprintf("worker 3 (process %d) failed: it was killed by signal 9, SIGKILL", pid); err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
	if _, _, err := b.queue.Reopen(); err != nil {
		t.Fatal(err)
	}
	other := b.start().attach()
	other.do("fail")
	_, err = b.pop()
	if want := fmt.Sprintf("worker process %d failed: ValueError: no such file", other.cmd.Process.Pid); err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
}

// A process that ends with status 1, as Python does after an exception, may not have been able to start its worker.
func TestAWorkerThatExitsBeforeItAttaches(t *testing.T) {
	b := newBench(t, 2, 4096)
	b.ring.Expect(1)
	b.ring.Exited(1234567, 1)
	_, err := b.pop()
	want := "worker process 1234567 failed: it exited with status 1 before it attached to the queue: see its standard error. " +
		"Scripts that use spawn or forkserver must be files, and need the guard 'if __name__ == \"__main__\":'"
	if err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
}

// Without pidfds, polling finds that a worker died.
func TestWithoutPidfds(t *testing.T) {
	real := openPidfd
	openPidfd = func(int) (*os.File, error) { return nil, syscall.ENOSYS }
	defer func() { openPidfd = real }()
	b := newBench(t, 2, 4096)
	c := b.start().attach()
	c.do("push 5 1")
	b.expect(5)
	c.kill()
	b.expectDeath(c, -9)
}

func TestAWorkerFails(t *testing.T) {
	b := newBench(t, 2, 4096)
	c := b.start().attach()
	c.do("push 1 1")
	c.do("fail")
	b.expect(1)
	_, err := b.pop()
	var e *pyfeed.ProducerError
	if !errors.As(err, &e) || e.Type != "ValueError" || e.Message != "no such file" || e.Traceback != "line 1\nline 2" || e.Worker != 0 {
		t.Errorf("expected the worker's ValueError, found %#v", e)
	}
}

func TestRefusedByName(t *testing.T) {
	b := newBench(t, 2, 1000)
	c := b.start().attach()
	c.send("push 1 1000")
	if a, want := c.answer(), "10 cell_bytes: expected a tuple of at most 1000 bytes, found 1536"; a != want {
		t.Errorf("expected %q, found %q", want, a)
	}
	if _, _, err := pyfeed.ReserveCopy(context.Background(), b.queue.Input(), pyfeed.PassCurrent, nil); err == nil || err.(*pyfeed.Error).Kind != pyfeed.State {
		t.Errorf("push by the trainer: expected a State error, found %v", err)
	}
	if a, want := c.timedOut(), "2 the time to wait went by"; a != want {
		t.Errorf("expected %q, found %q", want, a)
	}
}

func (c *child) timedOut() string {
	c.do("push 1 1")
	c.do("push 2 1")
	c.send("try 20")
	return c.answer()
}

// A consumer that keeps its tuples, for a batch or a shuffle, gets copies once it holds all cells except one.
func TestAHoardingConsumer(t *testing.T) {
	for _, slots := range []uint64{1, 2, 5} {
		b := newBench(t, slots, 4096)
		c := b.start().attach()
		c.send("many 0 50 3000")
		var kept []*pyfeed.Tuple
		for range 50 {
			tuple, err := b.pop()
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, tuple)
		}
		for i, tuple := range kept {
			if n := b.number(tuple); n != int64(i) {
				t.Fatalf("expected %d, found %d", i, n)
			}
		}
		pyfeed.ReleaseAll(kept)
		c.do("end")
	}
}

// A tuple that was popped outlives its queue.
func TestATupleOutlivesItsQueue(t *testing.T) {
	b := newBench(t, 4, 4096)
	c := b.start().attach()
	c.do("push 9 100")
	tuple, err := b.pop()
	if err != nil {
		t.Fatal(err)
	}
	b.queue.Shutdown()
	c.send("push 1 1")
	if a := c.answer(); !strings.HasPrefix(a, "4 ") {
		t.Error(a)
	}
	if n := b.number(tuple); n != 9 {
		t.Errorf("expected tuple 9, found %d", n)
	}
	tuple.Release()
}

func TestStress(t *testing.T) {
	each := 3000
	if testing.Short() {
		each = 800
	}
	for _, test := range []struct{ slots, workers, consumers int }{{1, 2, 1}, {3, 4, 2}, {16, 4, 1}} {
		b := newBench(t, uint64(test.slots), 64<<10)
		b.ring.Expect(uint32(test.workers))
		children := make([]*child, test.workers)
		for i := range children {
			children[i] = b.start().attach()
		}
		for i, c := range children {
			c.send("many %d %d 50000", i*each, (i+1)*each)
		}
		var all sync.WaitGroup
		found := make([][]int64, test.consumers)
		for i := range found {
			all.Go(func() {
				for {
					tuple, err := b.pop()
					if err != nil {
						if err != io.EOF {
							t.Error(err)
						}
						return
					}
					found[i] = append(found[i], b.number(tuple))
					tuple.Release()
				}
			})
		}
		for _, c := range children {
			if a := c.answer(); a != "0" {
				t.Error(a)
			}
			c.do("end")
		}
		all.Wait()
		if test.consumers == 1 { // tuples of one worker keep their order
			last := make([]int64, test.workers)
			for _, n := range found[0] {
				if w := n / int64(each); n < last[w] {
					t.Fatalf("tuple %d came after %d", n, last[w])
				} else {
					last[w] = n
				}
			}
		}
		numbers := slices.Concat(found...)
		slices.Sort(numbers)
		if numbers = slices.Compact(numbers); len(numbers) != test.workers*each {
			t.Errorf("expected %d tuples, found %d", test.workers*each, len(numbers))
		}
	}
}

// Workers are killed at random moments while they push. The ring stays usable.
func TestKilledWhereverTheyAre(t *testing.T) {
	b := newBench(t, 5, 64<<10)
	for round := range 30 {
		var all []*child
		for range 3 {
			all = append(all, b.start().attach())
		}
		for i, c := range all {
			c.send("many %d %d 50000", i*1000000, (i+1)*1000000)
		}
		last := []int64{-1, -1, -1}
		for n := 0; ; n++ {
			tuple, err := b.pop()
			if err != nil {
				var e *pyfeed.ProducerError
				if !errors.As(err, &e) || e.Worker != int64(all[round%3].cmd.Process.Pid) || e.ExitStatus != -9 {
					t.Fatal(err)
				}
				break
			}
			number := b.number(tuple)
			if w := number / 1000000; number%1000000 != last[w]+1 {
				t.Fatalf("round %d: tuple %d of worker %d came after %d", round, number%1000000, w, last[w])
			} else {
				last[w]++
			}
			tuple.Release()
			if n == round*3 {
				all[round%3].kill()
			}
		}
		for i, c := range all {
			if i != round%3 {
				if a := c.answer(); !strings.HasPrefix(a, "4 the queue is closed") {
					t.Error(a)
				}
			}
			c.kill()
		}
		if _, _, err := b.queue.Reopen(); err != nil {
			t.Fatal(err)
		}
		b.allFree()
	}
}

// Descriptors written by a broken worker are checked before they are used.
func TestABrokenWorker(t *testing.T) {
	for _, test := range []struct {
		at   uintptr
		want string
	}{
		{unsafe.Offsetof(tensor{}.dtype), "expected a dtype, found number"},
		{unsafe.Offsetof(tensor{}.rank), "rank: expected"},
		{unsafe.Offsetof(tensor{}.lodLevels), "LoD: expected at most 8 levels"},
		{unsafe.Offsetof(tensor{}.dataAt), "aligned and within"},
		{unsafe.Offsetof(tensor{}.nbytes), "aligned and within"},
	} {
		b := newBench(t, 2, 4096)
		c := b.start().attach()
		c.do("reserve 10")
		c.do("smash %d 99", test.at)
		c.do("commit")
		_, err := b.pop()
		want := fmt.Sprintf("worker process %d failed: it committed a tuple that is not valid for this queue: slot 0: ", c.cmd.Process.Pid)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("expected %q, found %v", test.want, err)
		}
	}
}

// A broken worker may write anywhere in the ring. The consumer gets an error, the trainer does not hang, and the next
// pass works normally.
func TestAnOverwrittenRing(t *testing.T) {
	const broken = "a worker process failed: it has overwritten parts of the ring: "
	entry := func(change func(state uint64) uint64) func(*bench, *child) {
		return func(b *bench, c *child) {
			b.seen(c)
			b.asleep()
			w := &b.ring.workers[0].state
			w.Store(change(w.Load()))
			c.kill()
		}
	}
	pushes := func(change func(*Ring)) func(*bench, *child) {
		return func(b *bench, c *child) {
			b.asleep()
			change(b.ring)
			c.send("push 1 1")
			c.answer()
		}
	}
	for _, test := range []struct {
		what  string
		spoil func(*bench, *child)
		want  string
	}{
		{"the trainer's sleep, then a death", func(b *bench, c *child) {
			b.seen(c)
			b.asleep()
			b.ring.head.trainerSleeping.Store(0)
			c.kill()
		}, "worker process %d failed: it was killed by signal 9, SIGKILL"},
		{"the trainer's sleep, then work", func(b *bench, c *child) {
			b.seen(c)
			b.asleep()
			b.ring.head.trainerSleeping.Store(0)
			c.send("many 0 5 1") // one more than there are cells
			b.expect(0, 1, 2, 3, 4)
			c.answer()
			c.do("fail")
		}, "worker process %d failed: ValueError: no such file"},
		{"how many workers sleep", func(b *bench, c *child) {
			c.send("many 0 9 1")
			b.blocked(1)
			b.ring.head.waitingWorkers.Store(0)
			b.expect(0, 1, 2, 3, 4, 5, 6, 7, 8)
			c.answer()
			c.do("fail")
		}, "worker process %d failed: ValueError: no such file"},
		{"the entry of a worker", entry(func(uint64) uint64 { return 0 }), "worker process %d failed: its entry in the ring was overwritten"},
		{"its process", entry(func(s uint64) uint64 { return s&0xffffffff | 1<<32 }), "worker process %d failed: its entry in the ring was overwritten"},
		{"its state", entry(func(s uint64) uint64 { return s | 0x77 }), "worker process %d failed: its entry in the ring was overwritten"},
		{"an empty entry", func(b *bench, c *child) {
			b.ring.workers[9].state.Store(0x77)
			other := b.start()
			other.do("open")
			other.send("attach")
			other.answer()
		}, broken + "the table of workers"},
		{"an entry of the order", pushes(func(r *Ring) { r.order[0].Store(0x555555<<40 | 1) }), broken + "its order"},
		{"an entry of no cell", pushes(func(r *Ring) { r.order[0].Store(0x7000) }), broken + "its order"},
		{"the tail, by much", pushes(func(r *Ring) { r.head.tail.Store(0x7777777777777777) }), broken + "its order"},
		{"the tail, by one", pushes(func(r *Ring) { r.head.tail.Store(1) }), broken + "its order"},
		{"the gate", func(b *bench, c *child) {
			b.ring.Expect(1)
			b.ring.mu.Lock() // the forwarder cannot mend the gate before the worker has seen it
			defer b.ring.mu.Unlock()
			b.ring.head.gate.And(^uint32(openGate))
			c.send("push 1 1")
			if a := c.answer(); !strings.HasPrefix(a, "4 the queue is closed") {
				b.Error(a)
			}
			c.do("end")
		}, broken + "its gate"},
		{"the gate, and the pass ends before the forwarder sees it", func(b *bench, c *child) {
			b.asleep()
			b.ring.head.gate.And(^uint32(openGate))
			b.ring.Close(pyfeed.PassCurrent)
		}, broken + "its gate"},
		{"the gate, and the pass ends before the forwarder reports it", func(b *bench, c *child) {
			b.asleep()
			b.ring.mu.Lock()
			b.ring.head.gate.And(^uint32(openGate))
			b.ring.mendGate() // as the forwarder does, which reports it when it has released the lock
			b.ring.mu.Unlock()
			b.ring.Close(pyfeed.PassCurrent)
		}, broken + "its gate"},
		{"a cell that the consumer holds", func(b *bench, c *child) {
			c.do("push 1 1")
			held, err := b.pop()
			if err != nil {
				b.Fatal(err)
			}
			b.ring.states[0].Store(free)
			c.do("push 2 1")
			for b.queue.Info().Closed == false {
				time.Sleep(time.Millisecond)
			}
			held.Release()
		}, broken + "the state of a cell"},
		{"a cell that is returned", func(b *bench, c *child) {
			c.do("push 1 1")
			held, err := b.pop()
			if err != nil {
				b.Fatal(err)
			}
			b.ring.states[0].Store(writing | 77<<8)
			held.Release()
		}, broken + "the state of a cell"},
	} {
		t.Run(test.what, func(t *testing.T) {
			b := newBench(t, 4, 4096)
			c := b.start().attach()
			test.spoil(b, c)
			tuple, err := b.pop()
			for ; err == nil; tuple, err = b.pop() {
				tuple.Release()
			}
			want := test.want
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, c.cmd.Process.Pid)
			}
			if err.Error() != want {
				t.Fatalf("expected %q, found %v", want, err)
			}
			c.kill()
			if _, _, err := b.queue.Reopen(); err != nil {
				t.Fatal(err)
			}
			b.allFree()
			c = b.start().attach()
			b.ring.Expect(1)
			for i := range 20 {
				c.do("push %d 100", i)
				b.expect(int64(i))
			}
			c.do("end")
			b.expectEnd()
		})
	}
}

// asleep waits until the forwarder sleeps.
func (b *bench) asleep() {
	for b.ring.head.trainerSleeping.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
}

// If the trainer cannot find a worker's cell because the order is overwritten, the worker does not wait forever.
func TestAnOverwrittenOrderEndsWithThePass(t *testing.T) {
	b := newBench(t, 4, 4096)
	c := b.start("committed").attach()
	c.send("push 1 1")
	if a := c.answer(); a != "stopped" {
		t.Fatal(a)
	}
	b.queue.Input().Close(pyfeed.PassCurrent)
	b.expect(1)
	b.expectEnd()
	b.asleep()
	for i := range b.ring.order {
		b.ring.order[i].Store(0x555555<<40 | 1)
	}
	c.do("go on")
}

func FuzzDescriptors(f *testing.F) {
	good := tensor{dtype: int32(pyfeed.Float32), rank: 2, lodLevels: 1, dataAt: 256, nbytes: 24}
	good.dims = [8]int64{2, 3}
	good.lodCount[0] = 2
	f.Add(unsafe.Slice((*byte)(unsafe.Pointer(&good)), unsafe.Sizeof(good)), []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x02"))
	spare := memory.NewPool(memory.View)
	f.Fuzz(func(t *testing.T, description, content []byte) {
		found := make([]tensor, 2)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&found[0])), 2*unsafe.Sizeof(tensor{})), description)
		slot := make([]byte, 4096)
		copy(slot, content)
		r := &Ring{offsets: spare}
		lod, err := r.copyOffsets(found, slot)
		if err != nil {
			return
		}
		if lod != nil {
			defer lod.Release()
		}
		for i := range found {
			var s pyfeed.LoDTensor
			end, err := found[i].fill(&s, slot)
			if err != nil {
				continue
			}
			size, err := s.Measure()
			if err != nil || size != len(s.Data) || end > len(slot) || cap(s.Data) != len(s.Data) {
				t.Errorf("invalid descriptor accepted: %d bytes of data that end at %d, for dims %v of %v", len(s.Data), end, s.Dims(), s.DType)
			}
		}
	})
}

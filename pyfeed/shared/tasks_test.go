package shared

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// taskBench is a ring with tasks of one uint8 slot, and the events that its forwarder reports.
type taskBench struct {
	*bench
	mu       sync.Mutex
	failures []TaskFailure
	freed    chan struct{}
}

func newTaskBench(t *testing.T, tasks int) *taskBench {
	t.Helper()
	options := Options{Slots: slots, RingCells: 4, CellBytes: 4096, Tasks: TaskOptions{Count: tasks, Slots: 1, Bytes: 4096}}
	b := &taskBench{bench: newBenchWithoutForwarder(t, options), freed: make(chan struct{}, 100)}
	b.ring.HandleTasks(TaskEvents{
		Freed: func() { b.freed <- struct{}{} },
		Failed: func(f TaskFailure) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.failures = append(b.failures, f)
		},
	})
	b.ring.start()
	return b
}

var taskPool = memory.NewPool(memory.Queue)

// post posts a tuple of n bytes with the given ticket.
func (b *taskBench) post(ticket uint64, n int) bool {
	b.Helper()
	t := pyfeed.NewTuple(1)
	defer t.Release()
	if err := t.Slots[0].AllocateTensor(pyfeed.Uint8, pyfeed.Dims{int64(n)}, nil, taskPool); err != nil {
		b.Fatal(err)
	}
	copy(t.Slots[0].Data, bytes.Repeat([]byte{byte(ticket)}, n))
	posted, err := b.ring.Post(Task{ticket, 7, ticket + 100}, t)
	if err != nil {
		b.Fatal(err)
	}
	return posted
}

// expectTask lets a worker take the task with the given ticket.
func (b *taskBench) expectTask(c *child, ticket uint64, n int) {
	b.Helper()
	sum := uint32(0)
	for range n {
		sum = sum*31 + uint32(ticket)
	}
	c.send("take")
	if a, want := c.answer(), fmt.Sprint(ticket, 7, ticket+100, sum); a != want {
		b.Fatalf("task %d: expected %q, found %q", ticket, want, a)
	}
}

func (b *taskBench) expectFreed() {
	b.Helper()
	select {
	case <-b.freed:
	case <-time.After(time.Minute):
		b.Fatal("no task was freed")
	}
}

func TestTasksAreTakenInOrder(t *testing.T) {
	b := newTaskBench(t, 3)
	c := b.start().attach()
	for _, ticket := range []uint64{5, 3, 4} {
		if !b.post(ticket, int(ticket)) {
			t.Fatal("expected a free task, found none")
		}
	}
	if b.post(9, 1) {
		t.Fatal("expected no free task, found one")
	}
	for ticket := range uint64(3) {
		b.expectTask(c, 3+ticket, int(3+ticket))
		c.do("release")
	}
	c.send("take") // waits, and tells that tasks are free
	b.expectFreed()
	if !b.post(6, 2) {
		t.Fatal("expected a free task, found none")
	}
	if a := c.answer(); a != "6 7 106 192" {
		t.Errorf("expected task 6, found %q", a)
	}
}

func TestTheErrorOfATask(t *testing.T) {
	b := newTaskBench(t, 1)
	c := b.start().attach()
	b.post(1, 1)
	b.expectTask(c, 1, 1)
	if b.post(2, 1) {
		t.Fatal("expected no free task, found one")
	}
	c.do("fail_task")
	c.do("release")
	c.send("take")
	b.expectFreed()
	b.mu.Lock()
	failures := b.failures
	b.mu.Unlock()
	if len(failures) != 1 || failures[0].Ticket != 1 || failures[0].Type != "ValueError" || failures[0].Message != "bad" ||
		failures[0].Traceback != "line 1" || string(failures[0].Pickle) != "pickle" {
		t.Errorf("found %+v", failures)
	}
	b.post(2, 1)
	if a := c.answer(); a != "2 7 102 2" {
		t.Errorf("expected task 2, found %q", a)
	}
}

func TestTasksThatAreRevoked(t *testing.T) {
	b := newTaskBench(t, 2)
	c := b.start().attach()
	b.post(1, 1)
	b.post(2, 1)
	b.expectTask(c, 1, 1)
	b.ring.Revoke() // the second task only
	if !b.post(3, 1) {
		t.Fatal("expected a free task, found none")
	}
	c.do("release")
	b.expectTask(c, 3, 1)
}

// Wherever a worker is killed, its task is lost if it had one, and is free again; another worker takes the others.
func TestTasksOfWorkersThatAreKilled(t *testing.T) {
	for step, lost := range map[string][]uint64{"wants a task": nil, "taken": {1}, "raised": {1}, "released": nil} {
		t.Run(step, func(t *testing.T) {
			b := newTaskBench(t, 2)
			c := b.start(step).attach()
			if step == "wants a task" {
				c.send("take")
			} else {
				b.post(1, 1)
				b.post(2, 1)
				c.send("take")
				if step != "taken" {
					c.answer()
				}
				switch step {
				case "raised":
					c.send("fail_task")
				case "released":
					c.send("release")
				}
			}
			if a := c.answer(); a != "stopped" {
				t.Fatalf("expected to stop at %q, found %q", step, a)
			}
			c.kill()
			b.expectDeath(c, -9)
			if found, attached := b.ring.Lost(); !slices.Equal(found, lost) || !attached {
				t.Errorf("expected to lose %v, lost %v; attached: %t", lost, found, attached)
			}
			b.ring.Revoke()
			if _, _, err := b.queue.Reopen(); err != nil {
				t.Fatal(err)
			}
			next := b.start().attach()
			for ticket := range uint64(2) {
				if !b.post(11+ticket, 1) {
					t.Fatal("expected a free task, found none")
				}
			}
			b.expectTask(next, 11, 1)
			next.do("release")
			b.expectTask(next, 12, 1)
		})
	}
}

func TestTasksThatDoNotFit(t *testing.T) {
	b := newTaskBench(t, 1)
	large := pyfeed.NewTuple(1)
	defer large.Release()
	if err := large.Slots[0].AllocateTensor(pyfeed.Uint8, pyfeed.Dims{5000}, nil, taskPool); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ring.Post(Task{}, large); !pyfeed.IsKind(err, pyfeed.TooLarge) {
		t.Errorf("expected an error of kind TooLarge, found %v", err)
	}
	two := pyfeed.NewTuple(2)
	defer two.Release()
	if _, err := b.ring.Post(Task{}, two); !pyfeed.IsKind(err, pyfeed.Slots) {
		t.Errorf("expected an error of kind Slots, found %v", err)
	}
	if !b.post(1, 4096) {
		t.Error("expected a free task, found none")
	}
	var holder pyfeed.PyArrayFeedQueueHolder
	defer holder.Drop()
	for _, o := range []TaskOptions{{-1, 1, 1}, {maxTasks + 1, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1 << 41}} {
		if _, _, err := New(Options{Slots: slots, RingCells: 1, CellBytes: 64, Tasks: o}, holder.InitOnce); !pyfeed.IsKind(err, pyfeed.Invalid) {
			t.Errorf("%+v: expected an error of kind Invalid, found %v", o, err)
		}
	}
}

// A worker that overwrites the record of a task fails the pass, and cannot block the task for ever.
func TestATaskThatIsOverwritten(t *testing.T) {
	b := newTaskBench(t, 1)
	c := b.start().attach()
	b.post(1, 1)
	b.ring.tasks.records[0].state.Store(stateOf(9, 0))
	c.send("push 1 1") // wakes the forwarder
	c.answer()
	for {
		one, err := b.pop()
		if err != nil {
			break
		}
		one.Release()
	}
	if !b.post(2, 1) {
		t.Error("expected a free task, found none")
	}
}

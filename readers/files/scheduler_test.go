package files

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// scheduled makes a scheduler of files that are never opened: the tests simulate the reads. Its clock stands still.
func scheduled(files, threads, width int, ordered bool) *scheduler {
	s := newScheduler(&fileSet{}, sync.NewCond(new(sync.Mutex)), threads, width, ordered)
	for i := range files {
		s.refs = append(s.refs, record.FileRef{Path: fmt.Sprint(i)})
	}
	s.now = func() int64 { return 0 }
	s.start()
	return &s
}

// simulateRead simulates a read of n instances for a lane, followed by end. The pass of an instance is its number in
// the file.
func (s *scheduler) simulateRead(l *lane, n int, end error) {
	l.busy = true
	chunk := s.newChunk()
	for i := range n {
		t := pyfeed.NewTuple(1)
		t.Pass = l.file.number + int64(i)
		chunk.Add(t)
	}
	l.file.number += int64(n)
	s.wasRead(l, chunk, n, 100*n, end)
}

// takeAll takes instances and returns "file:number" for each.
func (s *scheduler) takeAll(t *testing.T, limit int) (all []string, err error) {
	t.Helper()
	for len(all) < limit {
		path := ""
		if len(s.lanes) > 0 {
			if l := s.ready(); l != nil {
				path = l.file.Path
			}
		}
		var c record.Chunk
		n, err := s.take(&c, 1)
		if n == 0 {
			return all, err
		}
		tuple, err := c.TakeOne()
		if err != nil {
			return all, err
		}
		all = append(all, fmt.Sprintf("%s:%d", path, tuple.Pass))
		tuple.Release()
	}
	return all, nil
}

// The emptiest lane is read first, and of equally empty lanes the one whose turn is next. A lane that a thread reads
// for is skipped.
func TestTheEmptiestLaneIsReadFirst(t *testing.T) {
	s := scheduled(5, 2, 3, true)
	s.warmup = false
	first := s.pick()
	s.begin(first)
	second := s.pick()
	s.begin(second)
	if first != s.lanes[0] || second != s.lanes[1] {
		t.Errorf("expected lanes 0 and 1, found files %s and %s", first.file.Path, second.file.Path)
	}
	s.simulateRead(first, 10, nil)
	if l := s.pick(); l != s.lanes[2] {
		t.Errorf("expected lane 2, found that of file %s", l.file.Path)
	}
	s.simulateRead(s.lanes[1], 10, nil)
	s.simulateRead(s.lanes[2], 10, nil)
	s.turn = 2
	if l := s.pick(); l != s.lanes[2] {
		t.Errorf("expected lane 2, whose turn is next, found that of file %s", l.file.Path)
	}
	for _, l := range s.lanes {
		s.simulateRead(l, 10, nil)
	}
	if l := s.pick(); l == nil || l.file.Path != "3" || !l.standsBy {
		t.Fatal("expected the next file to stand by when no lane has room")
	}
	s.begin(s.standby[0])
	if l := s.pick(); l != nil {
		t.Errorf("expected that one file stands by, found file %s", l.file.Path)
	}
}

// In ordered mode, one instance is taken from each lane in turn, and the next file takes the place of one that has
// ended.
func TestOrderedLanesAreTakenInTurn(t *testing.T) {
	s := scheduled(3, 1, 2, true)
	s.simulateRead(s.lanes[0], 2, io.EOF)
	s.simulateRead(s.lanes[1], 3, nil)
	got, err := s.takeAll(t, 10)
	if want := []string{"0:0", "1:0", "0:1", "1:1"}; !slices.Equal(got, want) || err != nil {
		t.Fatalf("expected %v, found %v, %v", want, got, err)
	}
	if s.canTake() {
		t.Error("file 2, whose turn it is, is not read yet")
	}
	s.simulateRead(s.lanes[0], 1, io.EOF)
	s.simulateRead(s.lanes[1], 0, io.EOF)
	got, err = s.takeAll(t, 10)
	if want := []string{"2:0", "1:2"}; !slices.Equal(got, want) || err != io.EOF {
		t.Errorf("expected %v and the end, found %v, %v", want, got, err)
	}
}

// In unordered mode, instances are taken from any lane that has some.
func TestUnorderedLanesAreTakenAsTheyCome(t *testing.T) {
	s := scheduled(2, 2, 2, false)
	s.simulateRead(s.lanes[1], 2, nil)
	if got, err := s.takeAll(t, 10); !slices.Equal(got, []string{"1:0", "1:1"}) || err != nil {
		t.Errorf("found %v, %v", got, err)
	}
	s.simulateRead(s.lanes[0], 1, errors.New("mine"))
	if got, err := s.takeAll(t, 10); !slices.Equal(got, []string{"0:0"}) || err == nil || err.Error() != "mine" {
		t.Errorf("found %v, %v", got, err)
	}
}

// In the warmup, threads read for each lane its share of the request, and nothing ahead.
func TestTheWarmupReadsTheRequestOnly(t *testing.T) {
	s := scheduled(4, 2, 2, true)
	if n, err := s.take(new(record.Chunk), 80); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	s.onRequest(80)
	for range 2 {
		l := s.pick()
		s.begin(l)
		if n := s.chunkLimit(l); n != 40 {
			t.Errorf("expected 40 instances of a lane, found %d", n)
		}
		s.simulateRead(l, 40, nil)
	}
	if l := s.pick(); l != nil {
		t.Errorf("expected that nothing is read ahead, found file %s", l.file.Path)
	}
	var c record.Chunk
	n, err := s.take(&c, 80)
	c.Release()
	if s.wasTaken(n, false); n != 80 || err != nil || !s.warmup {
		t.Errorf("found %d, %v, warmup %v", n, err, s.warmup)
	}
	if _, err := s.take(&c, 1); err != nil || s.warmup {
		t.Errorf("expected the second request to end the warmup, found %v, %v", s.warmup, err)
	}
}

// The warmup also ends when another consumer waits: the one that took the instances may not ask again.
func TestAWaitingConsumerEndsTheWarmup(t *testing.T) {
	s := scheduled(1, 1, 1, true)
	s.simulateRead(s.lanes[0], minWarmup, nil)
	var c record.Chunk
	n, _ := s.take(&c, minWarmup)
	c.Release()
	if s.wasTaken(n, true); s.warmup {
		t.Error("the warmup goes on")
	}
}

// A consumer is woken for as many instances as it asked for, up to wakeAfter, or after a pause; else after maxDelay.
func TestWhenAConsumerIsWoken(t *testing.T) {
	for _, c := range []struct {
		name        string
		request     int
		came        []int
		pause       time.Duration
		want        wakeUp
		undelivered int
	}{
		{"nothing that can be taken", 8, []int{0}, time.Hour, noWakeUp, 0},
		{"fewer than it asked for", 8, []int{7}, 0, wakeDelayed, 7},
		{"as many as it asked for", 8, []int{4, 4}, 0, wakeNow, 0},
		{"as many as pay", 1000, []int{wakeAfter}, 0, wakeNow, 0},
		{"after a pause", 8, []int{1}, longPause + 1, wakeNow, 0},
	} {
		s := scheduled(1, 1, 1, true)
		s.warmup = false
		s.onRequest(c.request)
		s.now = func() int64 { return int64(c.pause) }
		var got wakeUp
		for _, n := range c.came {
			if n > 0 {
				s.simulateRead(s.lanes[0], n, nil)
			}
			got = s.onRecords(n)
		}
		if got != c.want || s.undelivered != c.undelivered {
			t.Errorf("%s: expected %d with %d undelivered, found %d with %d", c.name, c.want, c.undelivered, got, s.undelivered)
		}
		s.reset()
	}
}

// In the warmup, a consumer takes from each lane in turn: it is woken when each lane has its share.
func TestInTheWarmupAConsumerIsWokenForAllLanes(t *testing.T) {
	s := scheduled(2, 2, 2, true)
	var c record.Chunk
	_, _ = s.take(&c, 20)
	s.onRequest(20)
	s.simulateRead(s.lanes[0], 10, nil)
	if got := s.onRecords(10); got != wakeDelayed {
		t.Errorf("with one of two lanes: found %d", got)
	}
	s.simulateRead(s.lanes[1], 10, nil)
	if got := s.onRecords(10); got != wakeNow {
		t.Errorf("with both lanes: found %d", got)
	}
	s.reset()
}

// Threads that have found no room are woken when half of it is free.
func TestThreadsRestUntilHalfOfTheRoomIsFree(t *testing.T) {
	s := scheduled(100, 1, 1, true)
	s.simulateRead(s.lanes[0], 1, nil)
	s.simulateRead(s.lanes[0], 1, nil)
	s.warmup, s.maxStandby = false, 8
	for range 8 {
		if l := s.pick(); l == nil || l.file.Path == "0" {
			t.Fatal("expected a file that stands by")
		} else {
			s.begin(l)
			l.busy, l.end = false, io.EOF
		}
	}
	if s.pick() != nil {
		t.Fatal("more files stand by than may")
	}
	s.nextStandby()
	if !s.mayOpen() {
		t.Error("expected threads to go on once a file has left")
	}
	s.reset()
}

// A reset keeps only the order of files, and the end of the warmup.
func TestAResetOfTheScheduler(t *testing.T) {
	s := scheduled(10, 1, 2, true)
	s.endWarmup()
	s.simulateRead(s.lanes[0], 1, io.EOF)
	s.simulateRead(s.lanes[1], 1, io.EOF)
	s.pick()
	s.stopping = true
	s.reset()
	if len(s.lanes) != 0 || len(s.standby) != 0 || s.next != 0 || s.maxStandby != 1 || s.standbyBytes != 0 || s.numStandby != 0 || s.stopping || s.warmup {
		t.Errorf("found %+v", s)
	}
	s.start()
	if len(s.lanes) != 2 || s.lanes[0].file.Path != "0" || len(s.refs) != 10 {
		t.Errorf("found %d lanes, %d files", len(s.lanes), len(s.refs))
	}
}

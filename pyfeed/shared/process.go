package shared

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

const (
	// Somebody else's child has its exit status told, this often, at most. Then the error goes without.
	statusInterval = 10 * time.Millisecond
	statusPolls    = 25
	// Where the system has no pidfds, a process is looked at so often.
	lookInterval = 20 * time.Millisecond
)

// process is one that workers are in, watched until it ends.
type process struct {
	ring    *Ring
	pid     int
	started uint64
	fd      *os.File // or nil

	dead        atomic.Bool
	statusKnown atomic.Bool // its exit status is known, or is not going to be
	known       bool        // which; with the next written before settled
	status      int32
	stop        chan struct{} // ends a watch without a pidfd
}

// watch is the process of that number and time, watched. 0: that which has the number now.
func (r *Ring) watch(pid int, started uint64) *process {
	if started == 0 {
		_, started, _ = processStat(pid)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.processes[pid]; p != nil && !p.dead.Load() && (started == 0 || p.started == 0 || p.started == started) {
		return p
	}
	p := &process{ring: r, pid: pid, started: started, stop: make(chan struct{})}
	r.processes[pid] = p
	if status, known := r.exitStatuses[pid]; known && status != unknownStatus {
		p.setStatus(status)
	}
	fd, err := openPidfd(pid)
	_, is, seen := processStat(pid)
	switch {
	case err == syscall.ESRCH, seen && started != 0 && is != started:
		if err == nil {
			_ = fd.Close()
		}
		p.dead.Store(true) // and its number is another's, perhaps
		p.pollStatus(statusPolls)
	case err != nil:
		wait.Go(p.look, r.poisoned)
	default:
		p.fd = fd
		wait.Go(p.poll, r.poisoned)
	}
	return p
}

// poll waits for the end of the process: in Go's poller, with no thread.
func (p *process) poll() {
	conn, err := p.fd.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			if !hasEnded(fd) {
				return false
			}
			p.end(unix.P_PIDFD, int(fd))
			return true
		})
	}
	if err == nil {
		p.pollStatus(statusPolls)
	}
}

// close ends the watch, if it has not ended.
func (p *process) close() {
	if p.fd != nil {
		_ = p.fd.Close()
	}
}

// look is poll where there are no pidfds.
func (p *process) look() {
	ticks := time.NewTicker(lookInterval)
	defer ticks.Stop()
	for {
		state, started, seen := processStat(p.pid)
		if !seen || state == 'Z' || state == 'X' || p.started != 0 && started != p.started {
			p.end(unix.P_PID, p.pid)
			p.pollStatus(statusPolls)
			return
		}
		select {
		case <-ticks.C:
		case <-p.stop:
			return
		}
	}
}

func (p *process) end(kind, id int) {
	p.findBy(kind, id)
	p.dead.Store(true)
	p.ring.wakeIfRunning()
}

func (p *process) exited(status int32) {
	p.ring.mu.Lock()
	defer p.ring.mu.Unlock()
	if !p.statusKnown.Load() {
		p.setStatus(status)
	}
}

// setStatus is for the holder of the ring's lock.
func (p *process) setStatus(status int32) {
	p.known, p.status = true, status
	p.statusKnown.Store(true)
}

// pollStatus tries to find out how the process has ended, and goes without in the end.
func (p *process) pollStatus(more int) {
	if p.statusKnown.Load() {
		p.close()
		return
	}
	time.AfterFunc(statusInterval, func() {
		p.find()
		if more > 1 && !p.statusKnown.Load() {
			p.pollStatus(more - 1)
			return
		}
		p.statusKnown.Store(true)
		p.close()
		p.ring.wakeIfRunning()
	})
}

// find finds out how the process has ended, if that can be found out by now.
func (p *process) find() {
	if p.fd == nil {
		p.findBy(unix.P_PID, p.pid)
	} else if conn, err := p.fd.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { p.findBy(unix.P_PIDFD, int(fd)) })
	}
}

func (p *process) findBy(kind, id int) {
	if status, known := exitStatus(kind, id); known {
		p.exited(status)
	}
}

// wakeIfRunning is kick for one who may come after the end of the ring.
func (r *Ring) wakeIfRunning() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.wakeForwarder()
	}
}

// forget ends all watches: the queue is shut down.
func (r *Ring) forget() {
	r.mu.Lock()
	all := r.processes
	r.processes = nil
	r.mu.Unlock()
	for _, p := range all { // without the lock, which a watch that ends wants
		close(p.stop)
		p.close()
	}
}

func pidOf(state uint64) int { return int(state >> 32) }

func workerName(pid int) string { return fmt.Sprintf("worker process %d", pid) }

// lookAtWorkers sees to those that have come, ended, failed or died.
func (r *Ring) lookAtWorkers() {
	m := &r.forwarder
	r.mu.Lock() // before the news: who has ended has said all by then
	statuses := maps.Clone(r.exitStatuses)
	r.mu.Unlock()
	events := r.head.workerEvents.Load()
	fresh := events != m.workerEvents
	m.workerEvents = events
	for i := range r.workers {
		if fresh || m.present[i] != nil {
			r.lookAt(i)
		}
	}
	r.mu.Lock()
	expected := r.expected
	current := r.pass == m.pass // or the statuses are of another pass
	r.mu.Unlock()
	var gone *pyfeed.ProducerError
	for pid, status := range statuses {
		if (status != 0 || expected > 0) && !m.attached[pid] && current {
			gone = diedWith(pid, status, status != unknownStatus, "it attached to the queue")
		}
	}
	if gone != nil && !m.finished {
		r.fail(gone)
	}
	if expected > 0 && m.done >= expected && !m.finished {
		r.Close(m.pass)
	}
}

func (r *Ring) lookAt(i int) {
	m, w := &r.forwarder, &r.workers[i]
	s := w.state.Load()
	if s != vacant && m.present[i] == nil && r.early(s>>8&0xffff) {
		return
	}
	p, was := m.present[i], m.entries[i]
	// Whose an entry is, is the trainer's to change, and no worker goes back.
	if kind := s & 0xff; p != nil && (s&^0xff != was&^0xff || kind < was&0xff || kind > failed) {
		r.fail(&pyfeed.ProducerError{Who: workerName(p.pid), Message: "its entry in the ring was overwritten"})
		if !w.state.CompareAndSwap(s, was) {
			return
		}
		s = was
	}
	pid, pass := pidOf(s), s>>8&0xffff
	current := s>>8&0xffffff == workerPass(m.pass)
	switch s & 0xff {
	case attaching, attached:
		if p == nil {
			started := uint64(0)
			if s&0xff == attached { // before, it may be that of whoever had the entry before
				started = w.started.Load()
			}
			p = r.watch(pid, started)
		}
		m.present[i], m.entries[i] = p, s
		if s&0xff == attached && current {
			m.attached[pid] = true
		}
		if !p.dead.Load() || s&0xff == attached && !p.statusKnown.Load() {
			return
		}
		if w.state.Load() != s { // the last it did
			r.lookAt(i)
			return
		}
		r.recover(i, pass)
		if s&0xff == attached && current {
			r.fail(diedWith(pid, p.status, p.known, "it closed its producer"))
		}
	case ended:
		if current {
			m.attached[pid] = true
			m.done++
		}
	case failed:
		if current {
			m.attached[pid] = true
			r.fail(r.failureOf(i, pid))
		}
		if r.writes(i, pass) { // another of its threads, still, or until it ends
			if p == nil {
				p = r.watch(pid, w.started.Load())
			}
			m.present[i], m.entries[i] = p, s
			if !p.dead.Load() {
				return
			}
			r.recover(i, pass)
		}
	default:
		if s == vacant {
			return
		}
		r.overwritten("the table of workers")
	}
	m.present[i] = nil
	w.started.Store(0)
	w.state.Store(vacant)
}

func (r *Ring) fail(err *pyfeed.ProducerError) { _ = r.Fail(r.forwarder.pass, err) }

// writes says whether a worker has cells that it was writing. Its number may have been another's before, in another pass.
func (r *Ring) writes(number int, pass uint64) bool { return r.each(number, pass, func(int) {}) }

// recover frees the cells that a dead worker was writing.
func (r *Ring) recover(number int, pass uint64) { r.each(number, pass, r.release) }

func (r *Ring) each(number int, pass uint64, do func(cell int)) (any bool) {
	for i := range r.states {
		s := r.states[i].Load()
		if k := kindOf(s); workerOf(s) == number && passOf(s) == pass && (k == writing || k == revoked) {
			do(i)
			any = true
		}
	}
	return any
}

// failureOf is what a worker says of its error.
func (r *Ring) failureOf(i, pid int) *pyfeed.ProducerError {
	text := append([]byte(nil), r.data[int(r.at.failuresAt)+i*failureBytes:][:failureBytes]...)
	return &pyfeed.ProducerError{
		Who:       workerName(pid),
		Type:      terminated(text[:typeBytes]),
		Message:   terminated(text[typeBytes:][:textBytes]),
		Traceback: terminated(text[typeBytes+textBytes:]),
	}
}

func terminated(text []byte) string {
	s, _, _ := strings.Cut(string(text), "\x00")
	return strings.ToValidUTF8(s, "\uFFFD")
}

func diedWith(pid int, status int32, known bool, before string) *pyfeed.ProducerError {
	e := &pyfeed.ProducerError{Who: workerName(pid), Worker: int64(pid), ExitStatus: status}
	switch {
	case !known:
		e.Message = "it ended before " + before + "; its exit status is not known"
	case status < 0:
		e.Message = fmt.Sprintf("it was killed by signal %d, %s", -status, unix.SignalName(syscall.Signal(-status)))
	default:
		e.Message = fmt.Sprintf("it exited with status %d before %s", status, before)
	}
	return e
}

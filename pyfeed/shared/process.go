package shared

import (
	"fmt"
	"maps"
	"math"
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
	// The exit status of a worker that is not the trainer's child is known only to its parent. The ring polls for the
	// parent's report at this interval, statusPolls times, and then raises the error without a status.
	statusInterval = 10 * time.Millisecond
	statusPolls    = 25
	// Without pidfds, the ring checks at this interval whether a process still exists.
	checkInterval = 20 * time.Millisecond
)

// process is a process with workers in it. It is watched until it ends.
type process struct {
	ring    *Ring
	pid     int
	started uint64
	fd      *os.File // its pidfd, or nil

	dead        atomic.Bool
	statusKnown atomic.Bool // the search for the exit status has ended
	known       bool        // status was found; known and status are written before statusKnown
	status      int32
	stop        chan struct{} // ends a watch without a pidfd
}

// watch returns the process with the given pid and start time, and watches it. A start time of 0 means the process that
// has the pid now.
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
		p.dead.Store(true) // the process has ended, and its pid may belong to another process now
		p.pollStatus(statusPolls)
	case err != nil:
		wait.Go(p.pollExit, r.poisoned)
	default:
		p.fd = fd
		wait.Go(p.poll, r.poisoned)
	}
	return p
}

// poll waits in Go's poller until the process ends. It does not block a thread.
func (p *process) poll() {
	conn, err := p.fd.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			if !hasEnded(fd) {
				return false
			}
			p.end(byPidfd, int(fd))
			return true
		})
	}
	if err == nil {
		p.pollStatus(statusPolls)
	}
}

// close ends the watch, unless it has ended already.
func (p *process) close() {
	if p.fd != nil {
		_ = p.fd.Close()
	}
}

// pollExit is poll for systems without pidfds.
func (p *process) pollExit() {
	ticks := time.NewTicker(checkInterval)
	defer ticks.Stop()
	for {
		state, started, seen := processStat(p.pid)
		if !seen || state == 'Z' || state == 'X' || p.started != 0 && started != p.started {
			p.end(byPid, p.pid)
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
	p.waitID(kind, id)
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

// setStatus stores the exit status. The ring's lock is held.
func (p *process) setStatus(status int32) {
	p.known, p.status = true, status
	p.statusKnown.Store(true)
}

// pollStatus looks for the exit status of an ended process, at most more times, and then gives up.
func (p *process) pollStatus(more int) {
	if p.statusKnown.Load() {
		p.close()
		return
	}
	time.AfterFunc(statusInterval, func() {
		p.findExitStatus()
		if more > 1 && !p.statusKnown.Load() {
			p.pollStatus(more - 1)
			return
		}
		p.statusKnown.Store(true)
		p.close()
		p.ring.wakeIfRunning()
	})
}

// findExitStatus asks the system once for the exit status.
func (p *process) findExitStatus() {
	if p.fd == nil {
		p.waitID(byPid, p.pid)
	} else if conn, err := p.fd.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { p.waitID(byPidfd, int(fd)) })
	}
}

func (p *process) waitID(kind, id int) {
	if status, known := exitStatus(kind, id); known {
		p.exited(status)
	}
}

// wakeIfRunning is wakeForwarder for callers that may run after the ring was shut down.
func (r *Ring) wakeIfRunning() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.wakeForwarder()
	}
}

// stopWatching ends all watches after the shutdown of the queue.
func (r *Ring) stopWatching() {
	r.mu.Lock()
	all := r.processes
	r.processes = nil
	r.mu.Unlock()
	for _, p := range all { // without the lock, which a watch takes when it ends
		close(p.stop)
		p.close()
	}
}

func pidOf(state uint64) int { return int(state >> 32) }

// workerName returns a name for messages: with the worker's number if the worker has given itself one.
func (r *Ring) workerName(i, pid int) string {
	n := r.workers[i].number.Load()
	if n == 0 || n > math.MaxUint32 {
		return workerProcess(pid)
	}
	return fmt.Sprintf("worker %d (process %d)", n-1, pid)
}

func workerProcess(pid int) string { return fmt.Sprintf("worker process %d", pid) }

// checkWorkers handles workers that have attached, ended, failed or died.
func (r *Ring) checkWorkers() {
	m := &r.forwarder
	r.mu.Lock() // read before the workers' states: a worker whose exit is reported has written its last state
	statuses := maps.Clone(r.exitStatuses)
	r.mu.Unlock()
	events := r.head.workerEvents.Load()
	fresh := events != m.workerEvents
	m.workerEvents = events
	for i := range r.workers {
		if fresh || m.processes[i] != nil {
			r.checkWorker(i)
		}
	}
	r.mu.Lock()
	expected := r.expected
	current := r.pass == m.pass // otherwise the statuses belong to another pass
	r.mu.Unlock()
	var gone *pyfeed.ProducerError
	for pid, status := range statuses {
		if (status != 0 || expected > 0) && !r.attached[pid] && current {
			gone = diedWith(workerProcess(pid), pid, status, status != unknownStatus, "it attached to the queue")
			if status == 1 {
				gone.Message += ": see its standard error. Scripts that use spawn or forkserver must be files, and need the guard 'if __name__ == \"__main__\":'"
			}
		}
	}
	if gone != nil && !m.finished {
		r.fail(gone)
	}
	if expected > 0 && m.done >= expected && !m.finished {
		r.Close(m.pass)
	}
}

func (r *Ring) checkWorker(i int) {
	m, w := &r.forwarder, &r.workers[i]
	s := w.state.Load()
	if s != vacant && m.processes[i] == nil && r.isAhead(s>>8&0xffff) {
		return
	}
	p, was := m.processes[i], m.entries[i]
	// Only the trainer assigns an entry to another process, and the state of a worker only increases.
	if kind := s & 0xff; p != nil && (s&^0xff != was&^0xff || kind < was&0xff || kind > failed) {
		r.fail(&pyfeed.ProducerError{Who: r.workerName(i, p.pid), Message: "its entry in the ring was overwritten"})
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
			if s&0xff == attached { // before that, the field may still have the previous worker's value
				started = w.started.Load()
			}
			p = r.watch(pid, started)
		}
		m.processes[i], m.entries[i] = p, s
		if s&0xff == attached && current && !r.attached[pid] {
			r.addAttached(pid)
			r.noteAttached()
		}
		if !p.dead.Load() || s&0xff == attached && !p.statusKnown.Load() {
			return
		}
		if w.state.Load() != s { // the worker changed its state before it died
			r.checkWorker(i)
			return
		}
		r.reclaimCells(i, pass)
		r.reclaimTasks(i, pid, pass)
		if s&0xff == attached && current {
			r.fail(diedWith(r.workerName(i, pid), pid, p.status, p.known, "it closed its producer"))
		}
	case ended:
		if current {
			r.addAttached(pid)
			m.done++
		}
	case failed:
		if current {
			r.addAttached(pid)
			r.fail(r.failureOf(i, pid))
		}
		// Another thread of the worker is still writing: keep the entry until it frees its cells or the process ends.
		if r.writes(i, pass) {
			if p == nil {
				p = r.watch(pid, w.started.Load())
			}
			m.processes[i], m.entries[i] = p, s
			if !p.dead.Load() {
				return
			}
			r.reclaimCells(i, pass)
			r.reclaimTasks(i, pid, pass)
		}
	default:
		if s == vacant {
			return
		}
		r.overwritten("the table of workers")
	}
	m.processes[i] = nil
	w.started.Store(0)
	w.number.Store(0)
	w.state.Store(vacant)
}

func (r *Ring) addAttached(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attached[pid] = true
}

func (r *Ring) fail(err *pyfeed.ProducerError) { _ = r.Fail(r.forwarder.pass, err) }

// writes reports whether a worker is writing to cells in the given pass. In another pass, its number may have belonged
// to another worker.
func (r *Ring) writes(number int, pass uint64) bool { return r.forEachCell(number, pass, func(int) {}) }

// reclaimCells frees the cells that a dead worker was writing in the given pass.
func (r *Ring) reclaimCells(number int, pass uint64) { r.forEachCell(number, pass, r.release) }

func (r *Ring) forEachCell(number int, pass uint64, do func(cell int)) (any bool) {
	for i := range r.states {
		s := r.states[i].Load()
		if k := kindOf(s); workerOf(s) == number && passOf(s) == pass && (k == writing || k == revoked) {
			do(i)
			any = true
		}
	}
	return any
}

// failureOf returns the error that a worker has written into the ring.
func (r *Ring) failureOf(i, pid int) *pyfeed.ProducerError {
	text := append([]byte(nil), r.data[int(r.at.failuresAt)+i*failureBytes:][:failureBytes]...)
	return &pyfeed.ProducerError{
		Who:       r.workerName(i, pid),
		Type:      terminated(text[:typeBytes]),
		Message:   terminated(text[typeBytes:][:textBytes]),
		Traceback: terminated(text[typeBytes+textBytes:]),
	}
}

func terminated(text []byte) string {
	s, _, _ := strings.Cut(string(text), "\x00")
	return strings.ToValidUTF8(s, "\uFFFD")
}

func diedWith(who string, pid int, status int32, known bool, before string) *pyfeed.ProducerError {
	e := &pyfeed.ProducerError{Who: who, Worker: int64(pid), ExitStatus: status}
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

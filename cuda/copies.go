package cuda

import (
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// This file submits the copies to a device, waits for their end, and then releases the pinned memory that they read.

// submitCopy submits the copy of a buffer's tuple, segment by segment. After an error, certain reports that none of its
// segments is still being copied.
func (d *Device) submitCopy(s *deviceBuffer) (certain bool, err error) {
	defer func() {
		if err != nil {
			certain, _ = d.drain()
		}
	}()
	total := s.bytes // after the last segment is submitted, the buffer may already be reused for another tuple
	for at := 0; at < total; {
		if err := d.waitForSlot(); err != nil {
			return false, err
		}
		n := min(segmentBytes, total-at)
		l := inFlightCopy{event: s.copied, deviceBuffer: s, bytes: n}
		if at+n < total {
			l.event, l.deviceBuffer = d.segmentEvents[d.nextSegmentEvent], nil
			d.nextSegmentEvent = (d.nextSegmentEvent + 1) % maxInFlight
		}
		l.timer, err = d.port.Copy(s.memory.addr+uint64(at), unsafe.Add(s.from, at), n, l.event, trace.On())
		if err != nil {
			return false, d.failed(err)
		}
		if at += n; at == total {
			s.setState(copyStarted)
		}
		if err := d.addInFlight(l); err != nil {
			return false, err
		}
	}
	return false, nil
}

// waitForSlot waits until fewer than maxInFlight copies are in progress.
func (d *Device) waitForSlot() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inFlightCount == maxInFlight && !d.completerFailed {
		d.submitter.Wait()
	}
	if d.completerFailed {
		return d.lost
	}
	return nil
}

// addInFlight registers a submitted copy with the completer. The caller has called waitForSlot before.
func (d *Device) addInFlight(l inFlightCopy) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.completerFailed {
		return d.lost
	}
	d.inFlight[d.inFlightCount] = l
	d.inFlightCount++
	d.completer.Signal()
	return nil
}

// awaitCopies runs on the completer's thread. It waits for the copies in order of submission.
func (d *Device) awaitCopies(attached chan<- error) {
	defer d.detach()
	err := d.attach()
	attached <- err
	if err != nil {
		return
	}
	var lane trace.Lane
	defer lane.Done()
	track, done := "copies to "+d.name, int64(0)
	for {
		l, more := d.oldestCopy()
		if !more {
			return
		}
		certain, err := d.awaitEvent(l.event)
		if l.timer.running {
			now := trace.Now()
			if took := d.port.Elapsed(l.timer); took >= 0 {
				trace.TransferSpan(lane.Track(track), d.name, max(now-took, done), now, l.bytes)
			}
			done = now
		}
		d.completed()
		if l.deviceBuffer != nil {
			l.deviceBuffer.finishCopy(err, certain)
		}
	}
}

// awaitEvent waits for an event. certain reports that the work before it is known to be done, as for drain.
func (d *Device) awaitEvent(e event) (certain bool, err error) {
	if err = d.port.Synchronize(e); err != nil && !lost(err) {
		return d.drain()
	}
	return true, d.fatal(err)
}

// drain waits until no copy is in progress. certain reports that this is known: a lost device no longer copies, but
// after another error a copy may still read host memory, so drain repeats a failed wait up to maxFailedWaits times. An
// error means that the device is lost.
func (d *Device) drain() (certain bool, err error) {
	for range maxFailedWaits {
		if err = d.port.Drain(); err == nil || lost(err) {
			return true, d.fatal(err)
		}
	}
	return false, d.fatal(err)
}

// oldestCopy waits for a copy and returns the one submitted first. It returns false when there will be no more.
func (d *Device) oldestCopy() (l inFlightCopy, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inFlightCount == 0 && !d.closing {
		d.completer.Wait()
	}
	return d.inFlight[0], d.inFlightCount > 0
}

// completed removes the oldest copy. Its event may be reused.
func (d *Device) completed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.inFlight[:], d.inFlight[1:d.inFlightCount])
	d.inFlightCount--
	d.inFlight[d.inFlightCount] = inFlightCopy{}
	d.submitter.Signal()
}

// keepUnconfirmed keeps a tuple in pinned memory that a copy may still read.
func (d *Device) keepUnconfirmed(host *pyfeed.Tuple) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unconfirmed = append(d.unconfirmed, host)
}

// releaseConfirmed releases the tuples kept by keepUnconfirmed if a wait for the copies now succeeds.
func (d *Device) releaseConfirmed() {
	d.mu.Lock()
	unconfirmed := d.unconfirmed
	d.unconfirmed = nil
	d.mu.Unlock()
	if len(unconfirmed) == 0 {
		return
	}
	certain, _ := d.drain()
	for _, host := range unconfirmed {
		if certain {
			host.Release()
		} else {
			d.keepUnconfirmed(host)
		}
	}
}

// fatal marks the device as lost after err, because the state of its copies is unknown, and returns the device's error.
// It returns nil if err is nil.
func (d *Device) fatal(err error) error {
	if err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.setLost(atPlace(d.place, err))
	return d.lost
}

// run copies the tuple to the device, unless its references have all been dropped.
func (s *deviceBuffer) run(d *Device) {
	if s.owners.Load() == 1 {
		s.finishCopy(nil, true)
		return
	}
	empty, certain := s.bytes == 0, true
	err := d.err()
	if err == nil {
		err = s.prepare(d)
	}
	if err == nil {
		certain, err = d.submitCopy(s)
	}
	if err != nil || empty {
		s.finishCopy(err, certain || empty)
	}
}

// prepare makes the copy wait for earlier uses of the buffer, and makes the buffer large enough.
func (s *deviceBuffer) prepare(d *Device) error {
	if s.copied == 0 {
		e, err := d.port.NewEvent()
		if err != nil {
			return d.failed(err)
		}
		s.copied = e
	}
	s.mu.Lock() // held only briefly: dropping a tuple never waits for a device
	uses, unknown := s.uses, s.undefined
	s.uses, s.undefined = nil, false
	s.mu.Unlock()
	if unknown {
		d.quarantine(s)
		for i := range uses {
			uses[i].recorded = false // belonged to the quarantined memory
		}
	}
	small := s.memory.size < s.bytes
	err := d.waitForUses(uses, small)
	s.mu.Lock()
	s.uses = uses
	s.mu.Unlock()
	if err == nil && small {
		err = d.resize(s, s.bytes+s.bytes/4)
	}
	return err
}

// waitForUses makes the copy stream, or the host, wait for all recorded uses.
func (d *Device) waitForUses(uses []use, host bool) error {
	for i := range uses {
		u := &uses[i]
		if !u.recorded {
			continue
		}
		wait := d.port.Wait
		if host {
			wait = d.port.Synchronize
		}
		if err := wait(u.event); err != nil {
			return d.failed(err)
		}
		u.recorded = false
	}
	return nil
}

// finishCopy ends the copy, with or without an error. Only the first call has an effect. If it is not certain that the
// copy is over, the pinned memory is kept.
func (s *deviceBuffer) finishCopy(err error, certain bool) {
	if !s.copying.CompareAndSwap(true, false) {
		return
	}
	host := s.host
	s.host = nil
	if certain {
		host.Release()
	} else {
		s.device().keepUnconfirmed(host)
	}
	if err != nil {
		s.err = err
		s.setState(failed)
	} else {
		s.setState(arrived)
	}
	s.dropOwner()
}

// abandon ends a copy that will not run, unless it has ended already.
func (s *deviceBuffer) abandon(err error, certain bool) { s.finishCopy(err, certain) }

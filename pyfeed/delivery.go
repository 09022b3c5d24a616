package pyfeed

import (
	"context"
	"sync"
)

// Delivery brings tuples to a place, one after the other, as they are asked for: what is read ahead is read by others.
// Any thread.
type Delivery struct {
	place Place

	mu      sync.Mutex
	stager  Stager // made for the first tuple
	pending *Tuple // on its way
	staged  bool   // and at the Stager already
	closed  bool
}

// NewDelivery is to a place that is a device's.
func NewDelivery(place Place) *Delivery { return &Delivery{place: place} }

// Next is the next tuple of pull, at the device, its copy under way. It waits as pull does. A tuple that is at the
// device already is only waited for.
func (d *Delivery) Next(ctx context.Context, pull func(context.Context) (*Tuple, error)) (*Tuple, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending == nil {
		if d.stager != nil {
			if err := d.stager.Err(); err != nil { // rather than wait for a tuple
				return nil, err
			}
		}
		t, err := pull(ctx)
		if err != nil {
			return nil, err
		}
		d.pending, d.staged = t, t.OnDevice()
	}
	if err := d.ensureStager(); err != nil {
		d.drop()
		return nil, err
	}
	if !d.staged {
		t, err := d.stager.Put(ctx, d.pending)
		if err != nil {
			return nil, d.dropIfFinal(ctx, err)
		}
		d.pending, d.staged = t, true
	}
	if err := d.stager.Next(ctx, d.pending); err != nil {
		return nil, d.dropIfFinal(ctx, err)
	}
	t := d.pending
	d.pending = nil
	return t, nil
}

// dropIfFinal drops the tuple that err is about, unless it is only waited for.
func (d *Delivery) dropIfFinal(ctx context.Context, err error) error {
	if IsFinal(ctx, err) {
		d.drop()
	}
	return err
}

func (d *Delivery) ensureStager() error {
	if d.closed {
		return Errorf(Closed, "the way to %v is closed", d.place)
	}
	if d.stager != nil {
		return nil
	}
	b, err := BackendOf(d.place)
	if err != nil {
		return err
	}
	d.stager, err = b.NewStager(d.place, 1)
	return err
}

// Ready says whether there is a tuple that Next need not pull.
func (d *Delivery) Ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pending != nil
}

// Drop forgets the tuple that is on its way.
func (d *Delivery) Drop() { d.dropIf(func() bool { return true }) }

// dropIf forgets the tuple that is on its way, if there is one and it is stale: that function runs under the same lock as
// Next's pull.
func (d *Delivery) dropIf(stale func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending != nil && stale() {
		d.drop()
	}
}

func (d *Delivery) drop() {
	if d.pending != nil {
		d.pending.Release()
		d.pending = nil
	}
}

// Close gives everything back but what the tuples need that are still held.
func (d *Delivery) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	d.closed = true
	if d.stager != nil {
		d.stager.Close()
		d.stager = nil
	}
}

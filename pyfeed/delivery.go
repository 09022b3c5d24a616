package pyfeed

import (
	"context"
	"sync"
)

// Delivery copies tuples to a device one by one, each when the consumer asks for it. It does not read ahead. All
// methods are safe for concurrent use.
type Delivery struct {
	place Place

	mu      sync.Mutex
	stager  Stager // made for the first tuple
	pending *Tuple // a tuple that was pulled but not yet returned
	staged  bool   // pending was handed to the Stager
	closed  bool
}

// NewDelivery makes a Delivery to a device.
func NewDelivery(place Place) *Delivery { return &Delivery{place: place} }

// Next returns the next tuple of pull, on the device, with its copy submitted. It waits as pull does. If the tuple is
// on the device already, Next only waits until its copy is submitted.
func (d *Delivery) Next(ctx context.Context, pull func(context.Context) (*Tuple, error)) (*Tuple, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending == nil {
		if d.stager != nil {
			// A lost device is reported at once, instead of after the wait for a tuple.
			if err := d.stager.Err(); err != nil {
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

// dropIfFinal drops the pending tuple if err is final. After an interrupted wait the tuple stays for the next call.
func (d *Delivery) dropIfFinal(ctx context.Context, err error) error {
	if IsFinal(ctx, err) {
		d.drop()
	}
	return err
}

func (d *Delivery) ensureStager() error {
	if d.closed {
		return Errorf(Closed, "the delivery to %v is closed", d.place)
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

// Ready reports whether Next has a tuple without a call of pull.
func (d *Delivery) Ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pending != nil
}

// Drop releases the pending tuple.
func (d *Delivery) Drop() { d.dropIf(func() bool { return true }) }

// dropIf releases the pending tuple if stale returns true. It holds the lock that Next holds when it calls pull.
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

// Close releases everything except the memory of tuples that consumers still hold.
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

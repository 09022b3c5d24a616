package pyfeed

import (
	"context"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// A Backend moves tuples to places that are not the CPU's. The cuda package is the one there is; it says so with
// [SetBackend] when it is linked in. Its methods are for any thread.
type Backend interface {
	// Check says why tuples cannot be fed to p, if they cannot. It opens the driver.
	Check(p Place) error
	// Pool makes a pool of host memory that p's device copies from by itself.
	Pool(p Place, purpose memory.Purpose) (*memory.Pool, error)
	// Register makes memory of the caller's such memory, until the function that it answers is called: not while a
	// copy from it is under way.
	Register(p Place, data []byte) (unregister func(), err error)
	// NewStager makes a Stager to p that has depth tuples ready at most, beside one being copied and one with the
	// consumer. Of Unlimited depth, its Put never waits.
	NewStager(p Place, depth int) (Stager, error)
	// NewStream makes a stream of p's to compute on.
	NewStream(p Place) (Stream, error)
}

// A Stager copies tuples to a device, in the order in which they are Put, one copy for all slots of a tuple. What
// comes out is a tuple whose tensors are [memory.Resident] on the device. Any thread.
type Stager interface {
	// Take gives t, whose slots have DType, dims and LoD and were measured, host memory to be written and then Put.
	Take(t *Tuple) error
	// Put begins to copy t and answers the tuple at the device, whose copy may not have begun. It waits for memory
	// of the device. t is the Stager's then, unless the answer is an error.
	Put(ctx context.Context, t *Tuple) (*Tuple, error)
	// Next waits until the copy of a tuple that Put answered is under way, so that streams can wait for it: never
	// until it is done.
	Next(ctx context.Context, t *Tuple) error
	// Err is why nothing can be copied any more: the device is lost.
	Err() error
	// Close waits for the copies under way. Tuples that are still held keep what they need.
	Close()
}

// A Stream is one of a device's, in whose order an executor's kernels compute.
type Stream interface {
	Number() uint64
	Close()
}

// Unlimited is the depth of a Stager whose caller sets the limits.
const Unlimited = -1

var backend atomic.Pointer[Backend]

// SetBackend says who serves places other than the CPU's.
func SetBackend(b Backend) { backend.Store(&b) }

// BackendOf is who serves a place, which is not the CPU's, or the reason why nobody does.
func BackendOf(p Place) (Backend, error) {
	b := backend.Load()
	if b == nil || p.Kind != CUDA && p.Kind != CUDAPinned {
		return nil, Errorf(Unsupported, "place: this build feeds CPUPlace() only, found %v", p)
	}
	return *b, (*b).Check(p)
}

// Resident is the device memory that the tensor lies in, or nil if it lies in the host's.
func (t *LoDTensor) Resident() memory.Resident {
	if t.buffer == nil {
		return nil
	}
	return t.buffer.Resident()
}

// OnHost is an error if the host MUST NOT touch the tensor's Data.
func (t *LoDTensor) OnHost() error {
	if t.OnDevice() {
		return Errorf(Unsupported, "expected a tensor in the host's memory, found one at %v", t.Place)
	}
	return nil
}

// OnDevice says whether the tensor's Data is addresses of a device, which the host MUST NOT touch.
func (t *LoDTensor) OnDevice() bool { return t.Place.Kind == CUDA && t.Resident() != nil }

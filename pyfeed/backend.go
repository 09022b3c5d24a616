package pyfeed

import (
	"context"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// A Backend moves tuples to places other than the CPU. The only one is the cuda package, which registers itself with
// [SetBackend] when it is linked in. All methods are safe for concurrent use.
type Backend interface {
	// Check returns an error if tuples cannot be delivered to p. It opens the driver.
	Check(p Place) error
	// Pool makes a pool of pinned host memory, which p's device can copy from directly.
	Pool(p Place, purpose memory.Purpose) (*memory.Pool, error)
	// Register pins the caller's memory, so that p's device can copy from it directly, until unregister is called. The
	// caller MUST NOT call unregister while a copy from the memory is in progress.
	Register(p Place, data []byte) (unregister func(), err error)
	// NewStager makes a Stager to p. Beside one tuple being copied and one with the consumer, at most depth tuples are
	// ready. With a depth of Unlimited, Put never waits.
	NewStager(p Place, depth int) (Stager, error)
	// NewStream makes a stream on p's device for kernels to compute on.
	NewStream(p Place) (Stream, error)
}

// A Stager copies tuples to a device in the order of the calls of Put, with one copy for all slots of a tuple. The
// tensors of its output are [memory.Resident] on the device. All methods are safe for concurrent use.
type Stager interface {
	// Take allocates pinned host memory for t, whose slots have DType, dims and LoD and were measured
	// (LoDTensor.Measure). The caller writes the data and then calls Put.
	Take(t *Tuple) error
	// Put queues the copy of t and returns the tuple on the device; the copy may not have begun. Put waits for device
	// memory. It takes ownership of t unless it returns an error.
	Put(ctx context.Context, t *Tuple) (*Tuple, error)
	// Next waits until the copy of a tuple that Put returned has been submitted to the device, so that streams can wait
	// for it. It does not wait for the end of the copy.
	Next(ctx context.Context, t *Tuple) error
	// Err returns the error that made the device unusable; nil if there is none.
	Err() error
	// Close waits for the copies in progress. Tuples that callers still hold keep their device memory.
	Close()
}

// A Stream is a stream of a device. Kernels of one executor compute in its order.
type Stream interface {
	Number() uint64
	Close()
}

// Unlimited is the depth of a Stager whose caller limits the number of tuples.
const Unlimited = -1

var backend atomic.Pointer[Backend]

// SetBackend registers the backend that serves all places other than the CPU.
func SetBackend(b Backend) { backend.Store(&b) }

// BackendOf returns the backend of a place other than the CPU. It returns an error if there is none, or if the backend
// cannot serve p.
func BackendOf(p Place) (Backend, error) {
	b := backend.Load()
	if b == nil || p.Kind != CUDA && p.Kind != CUDAPinned {
		return nil, Errorf(Unsupported, "place: this build feeds CPUPlace() only, found %v", p)
	}
	return *b, (*b).Check(p)
}

// Resident returns the device memory that holds the tensor, or nil if the tensor is in host memory.
func (t *LoDTensor) Resident() memory.Resident {
	if t.buffer == nil {
		return nil
	}
	return t.buffer.Resident()
}

// OnHost returns an error if the tensor is on a device, where the host MUST NOT touch its Data.
func (t *LoDTensor) OnHost() error {
	if t.OnDevice() {
		return Errorf(Unsupported, "expected a tensor in the host's memory, found one at %v", t.Place)
	}
	return nil
}

// OnDevice reports whether Data consists of device addresses, which the host MUST NOT touch.
func (t *LoDTensor) OnDevice() bool { return t.Place.Kind == CUDA && t.Resident() != nil }

// Package pyfeed has the types that all other packages share: Place, DType, Dims, LoD, LoDTensor, Tuple, the queue that
// producers push into, and the Scope that names readers and queues. It does not depend on C.
package pyfeed

import (
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// PlaceKind is a kind of memory.
type PlaceKind int32

// The kinds of memory that a tensor can be in. The C API uses the same numbers.
const (
	CPU PlaceKind = iota
	CUDA
	CUDAPinned
)

// A Place is a kind of memory and, for CUDA, the number of the device.
type Place struct {
	Kind   PlaceKind
	Device int32 // of CUDA; otherwise 0
}

// CPUPlace is ordinary host memory.
func CPUPlace() Place { return Place{} }

// CUDAPlace is the memory of GPU number device.
func CUDAPlace(device int) Place { return Place{CUDA, int32(device)} }

// CUDAPinnedPlace is pinned host memory, which GPUs can copy from directly.
func CUDAPinnedPlace() Place { return Place{Kind: CUDAPinned} }

func (p Place) String() string {
	switch p.Kind {
	case CPU:
		return "CPUPlace()"
	case CUDA:
		return fmt.Sprintf("CUDAPlace(%d)", p.Device)
	case CUDAPinned:
		return "CUDAPinnedPlace()"
	}
	return fmt.Sprintf("Place(%d)", p.Kind)
}

// Check returns an error if tuples cannot be delivered to p.
func (p Place) Check() error {
	if p == CPUPlace() {
		return nil
	}
	_, err := BackendOf(p)
	return err
}

// host returns the host memory in which tuples for p are written: pinned memory for a device.
func (p Place) host() Place {
	if p.Kind == CUDA {
		return CUDAPinnedPlace()
	}
	return p
}

// HostPool makes a pool of host memory for tuples that are written on the host and then delivered to p.
func HostPool(p Place, purpose memory.Purpose) (*memory.Pool, error) {
	if p == CPUPlace() {
		return memory.NewPool(purpose), nil
	}
	b, err := BackendOf(p)
	if err != nil {
		return nil, err
	}
	return b.Pool(p, purpose)
}

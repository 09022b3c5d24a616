// Package pyfeed holds the words everyone speaks: Place, DType, Dims, LoD, LoDTensor, Tuple, the
// queue that Python feeds, and the Scope that its readers are found in. It knows nothing of C.
package pyfeed

import (
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// PlaceKind is a sort of memory.
type PlaceKind int32

// The kinds of memory a tensor can be in. The numbers are those of the C API.
const (
	CPU PlaceKind = iota
	CUDA
	CUDAPinned
)

// A Place is where memory is.
type Place struct {
	Kind   PlaceKind
	Device int32 // of CUDA; else 0
}

// CPUPlace is ordinary memory.
func CPUPlace() Place { return Place{} }

// CUDAPlace is the memory of a GPU.
func CUDAPlace(device int) Place { return Place{CUDA, int32(device)} }

// CUDAPinnedPlace is host memory that GPUs can copy from by themselves.
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

// Check says why tuples cannot be fed to a place, if they cannot.
func (p Place) Check() error {
	if p == CPUPlace() {
		return nil
	}
	_, err := BackendOf(p)
	return err
}

// host is the place of what is written for p: where the host can touch it.
func (p Place) host() Place {
	if p.Kind == CUDA {
		return CUDAPinnedPlace()
	}
	return p
}

// HostPool makes a pool of memory for what is written for p, by the host, which is copied from there.
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

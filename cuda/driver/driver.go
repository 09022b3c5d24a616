// Package driver speaks with the CUDA driver, which it opens when it is first asked for: a machine without one loads this
// library as well as any other.
//
// The driver is gorgonia.org/cu's and ours at once. cu has the plain calls; the C of this package has those that cu lacks,
// and those that belong together, so that they are one crossing from Go. Of cu, only its functions and handles are used: its
// Ctx loses errors, and in the end destroys the context that it shares with the whole process; BatchedContext aborts;
// CUContext.Unlock waits for all that the device does.
//
// Two kinds of threads call. One that is attached to a context for good ([Context.Attach]) makes the calls of its engine
// directly. All others are guests: the methods of [Context] make the context current for the time of the call, and keep out
// of the way of a graph that somebody captures meanwhile.
package driver

// #cgo LDFLAGS: -L${SRCDIR}/lib -Wl,--as-needed -ldl
// #cgo noescape pfd_open
// #cgo nocallback pfd_open
// #cgo noescape pfd_relax
// #cgo nocallback pfd_relax
// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"
)

//go:generate ./entries.sh

// library is what the driver installs. The loader looks for it, in LD_LIBRARY_PATH first.
const library = "libcuda.so.1"

// Unavailable says why there is no driver to speak with.
type Unavailable struct {
	Reason string // the loader's words, or the driver's
	Cause  *Error // what the driver said, or nil if there is none
}

func (u *Unavailable) Error() string { return u.Reason }

// Unwrap is the driver's error.
func (u *Unavailable) Unwrap() error {
	if u.Cause == nil {
		return nil
	}
	return u.Cause
}

// outcome of the first attempt, or of the one that succeeded.
type outcome struct {
	path string
	err  *Unavailable
}

var (
	opening sync.Mutex
	opened  atomic.Pointer[outcome]
)

func (o *outcome) answer() error {
	if o.err == nil {
		return nil
	}
	return o.err
}

// Open opens the driver, once: later calls answer the same, which is nil or an [*Unavailable].
func Open() error {
	if o := opened.Load(); o != nil {
		return o.answer()
	}
	opening.Lock()
	defer opening.Unlock()
	if o := opened.Load(); o != nil {
		return o.answer()
	}
	return open(library).answer()
}

// OpenFile opens another library as the driver, for tests. It is refused once a driver is open.
func OpenFile(path string) error {
	opening.Lock()
	defer opening.Unlock()
	if o := opened.Load(); o != nil && o.err == nil {
		if o.path == path {
			return nil
		}
		return fmt.Errorf("opening %s: %s is open already, a process has one driver", path, o.path)
	}
	return open(path).answer()
}

func open(path string) *outcome {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why C.pfd_reason
	r := C.pfd_open(name, &why)
	o := &outcome{path: path}
	if r.call == nil {
		o.err = &Unavailable{Reason: C.GoString(&why.text[0])}
	} else if err := check(r); err != nil {
		cause := err.(*Error)
		o.err = &Unavailable{Reason: cause.Error(), Cause: cause}
	}
	opened.Store(o)
	return o
}

// Count is how many devices there are.
func Count() (int, error) {
	if err := Open(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, checked("cuDeviceGetCount", err)
}

// Name is what a device is called, such as "NVIDIA H200".
func Name(device int) (string, error) {
	d, err := find(device)
	if err != nil {
		return "", err
	}
	name, err := d.Name()
	return name, checked("cuDeviceGetName", err)
}

func find(device int) (cu.Device, error) {
	if err := Open(); err != nil {
		return 0, err
	}
	d, err := cu.GetDevice(device)
	return d, checked("cuDeviceGet", err)
}

// Retain makes the device's primary context, which it shares with PyTorch, CuPy and JAX, or counts one user more.
func Retain(device int) (Context, error) {
	d, err := find(device)
	if err != nil {
		return 0, err
	}
	var c cu.CUContext
	err = relaxed(func() error {
		c, err = d.RetainPrimaryCtx()
		return checked("cuDevicePrimaryCtxRetain", err)
	})
	return *(*Context)(unsafe.Pointer(&c)), err
}

// Release undoes one Retain. The last one of the process destroys the context.
func Release(device int) error {
	if err := Open(); err != nil {
		return err
	}
	return relaxed(func() error { return checked("cuDevicePrimaryCtxRelease", cu.Device(device).ReleasePrimaryCtx()) })
}

// relaxed calls f on a thread that no other thread's capture of a graph forbids anything.
func relaxed(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before C.int
	if r := C.pfd_relax(&before); r.code == C.CUDA_SUCCESS {
		defer C.pfd_restore(before)
	}
	return f()
}

// Package driver calls the CUDA driver. It opens the driver when it is first needed, so that the library also loads on
// a machine without a driver.
//
// The driver is called in two ways. gorgonia.org/cu makes the plain calls. The C code of this package makes the calls
// that cu lacks, and sequences of calls that should cross from Go to C only once. Only functions and handles of cu are
// used, for these reasons: its Ctx loses errors, and finally destroys the context, which the whole process shares;
// BatchedContext aborts the process; CUContext.Unlock waits for all work of the device.
//
// There are two kinds of calling threads. A thread that is attached to a context ([Context.Attach]) makes its calls
// directly. All other threads use the methods of [Context], which make the context current during the call and do not
// disturb a graph capture on another thread.
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

// library is the name of the driver's library. The loader searches for it, in LD_LIBRARY_PATH first.
const library = "libcuda.so.1"

// Unavailable is the error when there is no usable driver.
type Unavailable struct {
	Reason string // the error of the loader or of the driver
	Cause  *Error // the driver's error, or nil
}

func (u *Unavailable) Error() string { return u.Reason }

// Unwrap returns the driver's error.
func (u *Unavailable) Unwrap() error {
	if u.Cause == nil {
		return nil
	}
	return u.Cause
}

// outcome is the result of the last attempt to open a driver.
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

// Open opens the driver once. Later calls return the same result: nil or an [*Unavailable].
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

// OpenFile opens another library as the driver, for tests. It fails if another driver is already open.
func OpenFile(path string) error {
	opening.Lock()
	defer opening.Unlock()
	if o := opened.Load(); o != nil && o.err == nil {
		if o.path == path {
			return nil
		}
		return fmt.Errorf("opening %s: the driver %s is already open, and a process can have only one", path, o.path)
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

// Count returns the number of devices.
func Count() (int, error) {
	if err := Open(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, checked("cuDeviceGetCount", err)
}

// Name returns the name of a device, such as "NVIDIA H200".
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

// Retain creates the device's primary context, or adds a reference to it. PyTorch, CuPy and JAX share this context.
func Retain(device int) (Context, error) {
	d, err := find(device)
	if err != nil {
		return 0, err
	}
	var c cu.CUContext
	err = withRelaxedCapture(func() error {
		c, err = d.RetainPrimaryCtx()
		return checked("cuDevicePrimaryCtxRetain", err)
	})
	return *(*Context)(unsafe.Pointer(&c)), err
}

// Release undoes one Retain. The last Release in the process destroys the context.
func Release(device int) error {
	if err := Open(); err != nil {
		return err
	}
	return withRelaxedCapture(func() error { return checked("cuDevicePrimaryCtxRelease", cu.Device(device).ReleasePrimaryCtx()) })
}

// withRelaxedCapture calls f in relaxed capture mode, so that a graph capture on another thread does not make f's calls
// fail.
func withRelaxedCapture(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before C.int
	if r := C.pfd_relax(&before); r.code == C.CUDA_SUCCESS {
		defer C.pfd_restore(before)
	}
	return f()
}

package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-python/gopy/gopyh"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/staging"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/external"
)

// Handles are ids in gopy's table of counted handles. The table holds one reference to each object.

type object interface{ Drop() }

// A variable belongs to its scope. Its handle only names it, so Drop does nothing.
type variable struct{ *pyfeed.Variable }

func (variable) Drop() {}

type staleHandle struct {
	id    C.pf_handle
	want  string
	found string
}

func (e staleHandle) Error() string {
	return fmt.Sprintf("handle %d: expected %s, found %s", uint64(e.id), e.want, e.found)
}

func kindOf(o any) string {
	switch o.(type) {
	case *pyfeed.Scope:
		return "a scope"
	case variable:
		return "a variable"
	case *pyfeed.Consumer:
		return "a queue"
	case *pyfeed.Producer:
		return "a producer of a queue"
	case *readers.ReaderHolder:
		return "a reader"
	case *decorators.MapWorkers:
		return "workers of a map reader"
	case *external.Format:
		return "a format"
	case *writer:
		return "a writer"
	case *program.Program:
		return "a program"
	case *program.Executor:
		return "an executor"
	case *kernelHandle:
		return "a kernel"
	case *staging.Buffer:
		return "a staging buffer"
	case *cancelToken:
		return "a cancel token"
	case recording:
		return "a trace"
	case object:
		return "a handle"
	}
	return "none: it is not valid, or no longer"
}

// recentHandles lets most calls find their object without the table, whose lock all threads share. An entry is made
// with its handle and removed with it, so it is never stale.
var recentHandles [64]atomic.Pointer[entry]

type entry struct {
	handle C.pf_handle
	object object
}

// newHandle returns a new handle for an object. The handle takes over the caller's reference to it.
func newHandle(o object) C.pf_handle {
	raiseProcs()
	h := gopyh.Register("pyfeed", o)
	gopyh.IncRef(h)
	e := &entry{C.pf_handle(h), o}
	recentHandles[e.handle%64].Store(e)
	return e.handle
}

// find returns the object of a handle, or nil if the handle is stale. The table keeps its reference.
func find(h C.pf_handle) any {
	if e := recentHandles[h%64].Load(); e != nil && e.handle == h {
		return e.object
	}
	return findInTable(h)
}

func findInTable(h C.pf_handle) any {
	o, _ := gopyh.VarFromHandleTry(gopyh.CGoHandle(h), "pyfeed")
	return o
}

// lookup returns the object of a handle. It fails if the handle is stale or if the object is not a T.
func lookup[T object](h C.pf_handle) (T, error) {
	o := find(h)
	t, ok := o.(T)
	if !ok {
		return t, staleError[T](h, o)
	}
	return t, nil
}

func staleError[T object](h C.pf_handle, found any) error {
	var want T
	return staleHandle{h, kindOf(want), kindOf(found)}
}

// refcounts makes each change of a count atomic: a change takes two calls of the table.
var refcounts sync.Mutex

//export pfgo_retain
func pfgo_retain(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	refcounts.Lock()
	defer refcounts.Unlock()
	if _, e := lookup[object](h); e != nil {
		return setError(e, err)
	}
	gopyh.IncRef(gopyh.CGoHandle(h))
	return C.PF_OK
}

//export pfgo_release
func pfgo_release(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	refcounts.Lock()
	o, e := lookup[object](h)
	if e != nil {
		refcounts.Unlock()
		return setError(e, err)
	}
	gopyh.DecRef(gopyh.CGoHandle(h))
	_, gone := gopyh.VarFromHandleTry(gopyh.CGoHandle(h), "pyfeed")
	if e := recentHandles[h%64].Load(); gone != nil && e != nil && e.handle == h {
		recentHandles[h%64].CompareAndSwap(e, nil)
	}
	refcounts.Unlock()
	if gone != nil {
		o.Drop()
	}
	return C.PF_OK
}

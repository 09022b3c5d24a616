package main

// #include "internal.h"
import "C"

import (
	"context"
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	_ "github.com/pyfeed/pyfeed/readers/all" // the formats that come with the library
	"github.com/pyfeed/pyfeed/readers/external"
	"github.com/pyfeed/pyfeed/readers/files"
	"github.com/pyfeed/pyfeed/readers/record"
)

//export pfgo_format_list
func pfgo_format_list(out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	return setError(setJSON(record.Formats(), out), err)
}

var listings table[*files.Listing]

//export pfgo_file_list
func pfgo_file_list(names **C.char, n C.uint32_t, format *C.char, call *C.pfi_call, out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if call.phase != C.PFI_FIRST {
		return setError(finishListing(call, out), err)
	}
	all := goStrings(names, n)
	found, e := files.ListFiles(wait.NonBlocking, all, string(optionalBytes(format)))
	switch e {
	case nil:
		e = setNames(found, out)
	case wait.ErrWouldBlock:
		call.opening = C.uint64_t(listings.put(files.StartListing(all, string(optionalBytes(format)))))
		e = finishListing(call, out)
	}
	return setError(e, err)
}

// finishListing waits for the listing that a call has begun in the background. It stops the listing unless the call has
// to wait again.
func finishListing(call *C.pfi_call, out **C.char) error {
	l, _ := listings.get(uint64(call.opening))
	found, err := blocking(call, func(ctx context.Context) ([]string, error) { return l.Wait(ctx) })
	if err == wait.ErrWouldBlock {
		return err
	}
	listings.remove(uint64(call.opening))
	l.Stop()
	if err != nil {
		return err
	}
	return setNames(found, out)
}

// setNames stores names of files in *out, as a JSON list.
func setNames(names []string, out **C.char) error {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = files.TextOfName(name)
	}
	return setJSON(texts, out)
}

//export pfgo_format_register
func pfgo_format_register(tag *C.char, suffixes **C.char, n C.uint32_t, slots *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	f, e := external.Register(C.GoString(tag), goStrings(suffixes, n), optionalBytes(slots))
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(f)
	return C.PF_OK
}

//export pfgo_format_wait
func pfgo_format_wait(h C.pf_handle, call *C.pfi_call, queue *C.pf_handle, path, options **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	f, e := lookup[*external.Format](h)
	if e != nil {
		return setError(e, err)
	}
	p, e := blocking(call, func(ctx context.Context) (*external.ReadRequest, error) { return f.NextRequest(ctx) })
	if e != nil {
		return setError(e, err)
	}
	*queue = newHandle(p.Queue)
	*path = C.CString(p.Path)
	if len(p.Options) == 0 {
		p.Options = []byte("{}")
	}
	*options = C.CString(string(p.Options))
	return C.PF_OK
}

// A writer is a file that C writes. Any thread may use it; the lock lets one write at a time.
type writer struct {
	mu sync.Mutex
	record.Writer
}

// Drop removes the file unless it is complete.
func (w *writer) Drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Abort()
}

//export pfgo_writer_create
func pfgo_writer_create(filename, format, attributes *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := files.CreateWriter(C.GoString(filename), string(optionalBytes(format)), optionalBytes(attributes))
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(&writer{Writer: w})
	return C.PF_OK
}

//export pfgo_writer_set_names
func pfgo_writer_set_names(h C.pf_handle, names **C.char, n C.uint32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*writer](h)
	if e != nil {
		return setError(e, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return setError(w.SetNames(goStrings(names, n)), err)
}

//export pfgo_writer_write
func pfgo_writer_write(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*writer](h)
	if e != nil {
		return setError(e, err)
	}
	t, e := viewTensors(tensors, n)
	if e != nil {
		return setError(e, err)
	}
	defer t.Release()
	w.mu.Lock()
	defer w.mu.Unlock()
	return setError(w.Write(t), err)
}

// viewTensors returns a tuple that views C's tensors during the call. It copies strided tensors. The caller releases
// the tuple.
func viewTensors(tensors *C.pf_tensor, n C.uint32_t) (*pyfeed.Tuple, error) {
	t, err := parseTensors(tensors, n, true)
	if err != nil {
		return nil, err
	}
	for i := range t.Slots {
		in := elementAt(tensors, i, tensors.size)
		if err := t.Slots[i].CheckLoD(); err != nil {
			t.Release()
			return nil, pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
		if C.pfi_contiguous(in) == 0 {
			gathered := make([]byte, len(t.Slots[i].Data))
			C.pfi_gather(unsafe.Pointer(unsafe.SliceData(gathered)), in)
			t.Slots[i].Data = gathered
			if err := pyfeed.TornError(tearAt(in), i); err != nil {
				t.Release()
				return nil, err
			}
		}
	}
	return t, nil
}

//export pfgo_writer_close
func pfgo_writer_close(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*writer](h)
	if e != nil {
		return setError(e, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return setError(w.Close(), err)
}

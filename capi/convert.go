package main

// #include <stdlib.h>
// #include <string.h>
// #include "internal.h"
import "C"

import (
	"encoding/json"
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

func cbool(b bool) C.uint8_t {
	if b {
		return 1
	}
	return 0
}

func goPlace(p C.pf_place) pyfeed.Place {
	return pyfeed.Place{Kind: pyfeed.PlaceKind(p.kind), Device: int32(p.device)}
}

func cPlace(p pyfeed.Place) C.pf_place { return C.pf_place{C.int32_t(p.Kind), C.int32_t(p.Device)} }

func goStrings(texts **C.char, n C.uint32_t) []string {
	all := make([]string, n)
	for i, s := range unsafe.Slice(texts, n) {
		all[i] = C.GoString(s)
	}
	return all
}

// borrowString returns a view of a C string, which is valid only during the call.
func borrowString(s *C.char) string { return unsafe.String((*byte)(unsafe.Pointer(s)), C.strlen(s)) }

// optionalBytes returns a copy of a C string; nil if it is NULL.
func optionalBytes(s *C.char) []byte {
	if s == nil {
		return nil
	}
	return []byte(C.GoString(s))
}

// cStringOrNil returns a new C string; NULL if s is empty.
func cStringOrNil(s string) *C.char {
	if s == "" {
		return nil
	}
	return C.CString(s)
}

// setJSON stores v as JSON in *out, a new C string that the caller of the library frees.
func setJSON(v any, out **C.char) error {
	text, e := json.Marshal(v)
	if e == nil {
		*out = C.CString(string(text))
	}
	return e
}

var lastingStrings sync.Map // from string to *C.char

// lastingString returns a C string that is never freed, the same one for the same text; NULL if s is empty.
func lastingString(s string) *C.char {
	if s == "" {
		return nil
	}
	if found, is := lastingStrings.Load(s); is {
		return found.(*C.char)
	}
	text := C.CString(s)
	found, is := lastingStrings.LoadOrStore(s, text)
	if is {
		C.free(unsafe.Pointer(text))
	}
	return found.(*C.char)
}

func parseSlots(specs *C.pf_slot_spec, n C.uint32_t) []pyfeed.Slot {
	slots := make([]pyfeed.Slot, n)
	for i := range slots {
		in := elementAt(specs, i, specs.size)
		slots[i] = pyfeed.Slot{
			DType:     pyfeed.DType(in.dtype),
			Dims:      unsafe.Slice((*int64)(in.dims), in.rank),
			LoDLevels: int(in.lod_levels),
		}
		if uintptr(in.size) >= unsafe.Offsetof(in.name)+unsafe.Sizeof(in.name) && in.name != nil {
			slots[i].Name = C.GoString(in.name)
		}
	}
	return slots
}

func producerError(f *C.pf_failure) *pyfeed.ProducerError {
	return &pyfeed.ProducerError{
		Type:      C.GoString(f._type),
		Message:   C.GoString(f.message),
		Traceback: C.GoString(f.traceback),
		Token:     uint64(f.token),
	}
}

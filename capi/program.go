package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

//export pfgo_program_create
func pfgo_program_create(out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	*out = newHandle(program.New())
	return C.PF_OK
}

//export pfgo_program_clone
func pfgo_program_clone(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e == nil {
		*out = newHandle(p.Clone())
	}
	return setError(e, err)
}

//export pfgo_program_add_block
func pfgo_program_add_block(h C.pf_handle, parent C.uint32_t, out *C.uint32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e != nil {
		return setError(e, err)
	}
	block, e := p.AddBlock(int(parent))
	*out = C.uint32_t(block)
	return setError(e, err)
}

// dropOffset removes the byte offset from an error in JSON that comes from no file. The message has the line and the
// column.
func dropOffset(err error) error {
	if e, is := err.(*pyfeed.Error); is {
		e.At = nil
	}
	return err
}

//export pfgo_program_add_variable
func pfgo_program_add_variable(h C.pf_handle, block C.uint32_t, variable *C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e != nil {
		return setError(e, err)
	}
	v, e := desc.ParseVariable([]byte(C.GoString(variable)))
	e = dropOffset(e)
	if e == nil {
		e = p.AddVariable(int(block), v)
	}
	return setError(e, err)
}

//export pfgo_program_add_op
func pfgo_program_add_op(h C.pf_handle, block C.uint32_t, op *C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e != nil {
		return setError(e, err)
	}
	o, e := desc.ParseOp([]byte(C.GoString(op)))
	e = dropOffset(e)
	if e == nil {
		e = p.AddOp(int(block), o)
	}
	return setError(e, err)
}

//export pfgo_program_get_variable
func pfgo_program_get_variable(h C.pf_handle, block C.uint32_t, name *C.char, out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e != nil {
		return setError(e, err)
	}
	v, e := p.Variable(int(block), C.GoString(name))
	if e == nil {
		*out = C.CString(string(v.JSON()))
	}
	return setError(e, err)
}

// encodeProgram returns a program in one of its forms. An unknown form is an Invalid error.
func encodeProgram(p *program.Program, form string) (data []byte, err error) {
	p.Desc(func(d *desc.Program) {
		switch form {
		case "protobuf":
			data = desc.Marshal(d)
		case "json":
			data = desc.ToJSON(d)
		case "mermaid", "graphviz":
			var text string
			text, err = desc.Draw(d, form)
			data = []byte(text)
		default:
			err = pyfeed.Errorf(pyfeed.Invalid, "form: expected protobuf, json, mermaid or graphviz, found %q", form)
		}
	})
	return data, err
}

//export pfgo_program_serialize
func pfgo_program_serialize(h C.pf_handle, form *C.char, out **C.char, size *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e != nil {
		return setError(e, err)
	}
	data, e := encodeProgram(p, C.GoString(form))
	if e != nil {
		return setError(e, err)
	}
	*out, *size = C.CString(string(data)), C.uint64_t(len(data))
	return C.PF_OK
}

// maxProgramBytes is the largest size of a program that can be parsed or loaded.
const maxProgramBytes = 1 << 28

func parseProgram(data []byte) (*program.Program, error) {
	d, err := desc.Parse(data)
	if err != nil {
		return nil, err
	}
	return program.From(d)
}

//export pfgo_program_parse
func pfgo_program_parse(data *C.char, size C.uint64_t, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if size > maxProgramBytes {
		return setError(pyfeed.Errorf(pyfeed.TooLarge, "program: expected at most %d bytes, found %d", maxProgramBytes, uint64(size)), err)
	}
	p, e := parseProgram(C.GoBytes(unsafe.Pointer(data), C.int(size)))
	if e == nil {
		*out = newHandle(p)
	}
	return setError(e, err)
}

//export pfgo_program_save
func pfgo_program_save(h C.pf_handle, path *C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*program.Program](h)
	if e != nil {
		return setError(e, err)
	}
	return setError(saveProgram(p, C.GoString(path)), err)
}

func saveProgram(p *program.Program, path string) error {
	form, name := "protobuf", path
	if storage.ByName(path) != "none" {
		name = strings.TrimSuffix(path, filepath.Ext(path))
	}
	if strings.HasSuffix(name, ".json") {
		form = "json"
	}
	data, err := encodeProgram(p, form)
	if err != nil {
		return err
	}
	s, err := storage.Create(path, "auto")
	if err != nil {
		return err
	}
	if _, err = s.Write(data); err == nil {
		return s.Commit()
	}
	s.Abort()
	return err
}

//export pfgo_program_load
func pfgo_program_load(path *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := loadProgram(C.GoString(path))
	if e == nil {
		*out = newHandle(p)
	}
	return setError(e, err)
}

// loadProgram reads a program from a file, compressed or not. Its errors name the file.
func loadProgram(path string) (*program.Program, error) {
	data, err := readProgram(path)
	if err != nil {
		return nil, err
	}
	p, err := parseProgram(data)
	var e *pyfeed.Error // the error of an operator contains it
	if errors.As(err, &e) {
		if e.At == nil {
			e.At = &pyfeed.Location{Offset: -1, Record: -1}
		}
		e.At.File = path
	}
	return p, err
}

func readProgram(path string) ([]byte, error) {
	// Refuses pipes: opening one would block until it has a writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		found := storage.RegularFile(info.Mode())
		return nil, &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, Text: found.Error(), Cause: found,
			At: &pyfeed.Location{File: path, Offset: -1, Record: -1}}
	}
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	f, err := storage.Open(path, storage.Options{}, pool)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var data []byte
	for {
		piece, err := f.Peek(1)
		if err != nil {
			return nil, err
		}
		if len(piece) == 0 {
			return data, f.CheckTruncated()
		}
		if data = append(data, piece...); len(data) > maxProgramBytes {
			return nil, pyfeed.Errorf(pyfeed.TooLarge, "%s: expected a program of at most %d bytes, found more", path, maxProgramBytes)
		}
		f.Skip(len(piece))
	}
}

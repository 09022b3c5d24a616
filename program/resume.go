package program

import (
	"context"
	"slices"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers"
)

// The operators that save and restore the position of a reader: with them, a program goes on where a killed one was. The
// state is a tensor, so that a kernel can store it together with the model.

var saveReaderOp = &operator{
	ins:      exactly(1),
	outs:     exactly(1),
	inKind:   desc.Reader,
	category: trace.Read,
	check:    func(c *checking) error { return c.note(0, pyfeed.Uint8, pyfeed.Dims{-1}, true, 0) },
	step: func(r *Run, in *instruction, _ context.Context) error {
		h, err := r.reader(in)
		if err != nil {
			return err
		}
		state, err := h.State()
		if err != nil {
			return err
		}
		return r.vars[in.out[0]].Write(pyfeed.Uint8, pyfeed.Dims{int64(len(state))}, r.pool, func(data []byte) { copy(data, state) })
	},
}

var loadReaderOp = &operator{
	ins:        exactly(1),
	outs:       exactly(1),
	outKind:    desc.Reader,
	attributes: []attribute{{name: "strict", value: boolValue(true)}},
	category:   trace.Read,
	prepare:    func(op *desc.Op) (any, error) { return valueOf(op, "strict").Bool, nil },
	step: func(r *Run, in *instruction, _ context.Context) error {
		h, err := readers.HolderOf(r.vars[in.out[0]])
		if err != nil {
			return err
		}
		defer h.Drop()
		var state []byte
		if err := r.vars[in.in[0]].ReadTensor(func(t *pyfeed.LoDTensor) error {
			if t.DType != pyfeed.Uint8 || t.OnDevice() {
				return pyfeed.Errorf(pyfeed.Type, "expected a state as a tensor of uint8 in host memory, found %v", t.DType)
			}
			state = slices.Clone(t.Data)
			return nil
		}); err != nil {
			return err
		}
		if len(state) == 0 {
			return nil // nothing was saved yet
		}
		return h.SetState(state, in.data.(bool))
	},
}

package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Of is the reader in a variable, with a reference that the caller drops.
func Of(v *pyfeed.Variable) (*ReaderHolder, error) {
	var h *ReaderHolder
	v.With(func(c pyfeed.Content) {
		if held, ok := c.(*ReaderHolder); ok {
			h = held.Retain()
		}
	})
	if h == nil {
		return nil, pyfeed.Errorf(pyfeed.State, "variable %q: expected a reader in it, found none", v.Name())
	}
	return h, nil
}

func find(scope *pyfeed.Scope, name string) (*ReaderHolder, error) {
	v, err := scope.FindVar(name)
	if err != nil {
		return nil, err
	}
	return Of(v)
}

func put(scope *pyfeed.Scope, name string, r Reader) error {
	v, err := scope.Var(name)
	if err != nil {
		r.Close()
		return err
	}
	v.Set(NewHolder(r))
	return nil
}

// CreatePyArrayReader is the operator create_py_array_reader: a reader of the queue in the variable
// feederName, into the variable out.
func CreatePyArrayReader(scope *pyfeed.Scope, out, feederName string) error {
	v, err := scope.FindVar(feederName)
	if err != nil {
		return err
	}
	q, err := v.Feeder()
	if err != nil {
		return err
	}
	return put(scope, out, NewPyArrayReader(q))
}

// CreateBatchReader is the operator create_batch_reader.
func CreateBatchReader(scope *pyfeed.Scope, out, in string, batchSize uint64, dropLast bool) error {
	under, err := find(scope, in)
	if err != nil {
		return err
	}
	r, err := NewBatchReader(under, batchSize, dropLast)
	if err != nil {
		return err
	}
	return put(scope, out, r)
}

// Read is the read op: the next tuple of the reader in the variable reader, slot by slot into the
// variables outs. Nothing is copied. At the end of the pass the variables stay as they are.
func Read(ctx context.Context, scope *pyfeed.Scope, reader string, outs []string) error {
	h, err := find(scope, reader)
	if err != nil {
		return err
	}
	defer h.Drop()
	if n := h.Spec().Len(); n != len(outs) {
		return pyfeed.Errorf(pyfeed.Slots, "read: reader %q has %d slots, but %d outputs were named", reader, n, len(outs))
	}
	vars := make([]*pyfeed.Variable, 0, 8)
	for _, name := range outs {
		v, err := scope.FindVar(name)
		if err != nil {
			if v, err = scope.Var(name); err != nil {
				return err
			}
		}
		vars = append(vars, v)
	}
	t, err := h.ReadNext(ctx)
	if err != nil {
		return err
	}
	for i := range t.Slots {
		vars[i].SetTensor(&t.Slots[i])
	}
	t.Release()
	return nil
}

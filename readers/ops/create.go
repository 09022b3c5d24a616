package ops

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/async"
)

// MakeNow runs an operator, which Check found good: it makes a reader of others, whose references it takes over. Attributes are
// a JSON object, or nothing. It does not wait for files: [wait.ErrWouldBlock] says that it would have to, and that [Open]
// does.
func MakeNow(scope *pyfeed.Scope, name string, in []*readers.ReaderHolder, attributes []byte) (readers.Reader, error) {
	return operators.byName[name].make(wait.NonBlocking, scope, in, attributes)
}

// Create runs an operator: it makes a reader from the readers in the variables ins and puts it into the variable out, which is
// made if need be. Attributes are a JSON object, or nothing.
func Create(scope *pyfeed.Scope, name, out string, ins []string, attributes []byte) error {
	return create(context.Background(), scope, name, out, ins, attributes)
}

// CreateNow is Create that does not wait for files: [wait.ErrWouldBlock] says that it would have to, and that [Open] does.
func CreateNow(scope *pyfeed.Scope, name, out string, ins []string, attributes []byte) error {
	return create(wait.NonBlocking, scope, name, out, ins, attributes)
}

func create(ctx context.Context, scope *pyfeed.Scope, name, out string, ins []string, attributes []byte) error {
	if err := Check(name, len(ins), attributes); err != nil {
		return err
	}
	var in []*readers.ReaderHolder
	for _, name := range ins {
		h, err := readers.FindHolder(scope, name)
		if err != nil {
			for _, h := range in {
				h.Drop()
			}
			return err
		}
		in = append(in, h)
	}
	r, err := operators.byName[name].make(ctx, scope, in, attributes)
	if err != nil {
		return err
	}
	return Put(scope, out, r)
}

// Put puts the reader, which it owns, into a variable, which is made if need be.
func Put(scope *pyfeed.Scope, out string, r readers.Reader) error {
	v, err := scope.Var(out) // not before: where nothing is made, there is no variable
	if err != nil {
		r.Close()
		return err
	}
	return v.Set(readers.NewHolder(r).Named(out))
}

// An Opening is an operator that takes long to make its reader: it looks through directories, or its first file has to say
// what its instances look like and is a pipe, for which it waits, or one in which it has to search.
type Opening struct {
	async.Task[readers.Reader]
}

// Open runs an operator that [CreateNow] or [MakeNow] has found to have to wait, in a goroutine.
func Open(scope *pyfeed.Scope, name string, attributes []byte) *Opening {
	o := new(Opening)
	o.Start("waits for a file to be opened", func(ctx context.Context) (readers.Reader, error) {
		return operators.byName[name].make(ctx, scope, nil, attributes)
	}, readers.Reader.Close)
	return o
}

// Read is the read op: the next tuple of the reader in the variable reader, slot by slot into the
// variables outs. Nothing is copied. At the end of the pass the variables stay as they are.
func Read(ctx context.Context, scope *pyfeed.Scope, reader string, outs []string) error {
	h, err := readers.FindHolder(scope, reader)
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
	defer t.Release()
	for i := range t.Slots {
		if err := vars[i].SetTensor(&t.Slots[i]); err != nil {
			return err
		}
	}
	return nil
}

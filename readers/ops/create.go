package ops

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/async"
)

// MakeNow runs an operator that Check has accepted: it makes a reader of the readers in, whose references it takes
// over. attributes is a JSON object, or nothing. MakeNow does not wait for files: it returns [wait.ErrWouldBlock] if it
// would have to. [Open] waits.
func MakeNow(scope *pyfeed.Scope, name string, in []*readers.ReaderHolder, attributes []byte) (readers.Reader, error) {
	return operators.byName[name].make(wait.NonBlocking, scope, in, attributes)
}

// Create runs an operator: it makes a reader of the readers in the variables ins, and puts it into the variable out,
// which it makes if need be. attributes is a JSON object, or nothing.
func Create(scope *pyfeed.Scope, name, out string, ins []string, attributes []byte) error {
	return create(context.Background(), scope, name, out, ins, attributes)
}

// CreateNow is Create without waiting for files: it returns [wait.ErrWouldBlock] if it would have to. [Open] waits.
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

// Put puts a reader, which it takes over, into the variable out, which it makes if need be.
func Put(scope *pyfeed.Scope, out string, r readers.Reader) error {
	v, err := scope.Var(out) // only now: without a reader, no variable is made
	if err != nil {
		r.Close()
		return err
	}
	return v.Set(readers.NewHolder(r).Named(out))
}

// An Opening is an operator that takes long to make its reader. It searches directories; or it infers the slots from
// the first file, which is a pipe whose writer it waits for, or a file in which it has to skip damage.
type Opening struct {
	async.Task[readers.Reader]
}

// Open runs, in a goroutine, an operator for which [CreateNow] or [MakeNow] has returned [wait.ErrWouldBlock].
func Open(scope *pyfeed.Scope, name string, attributes []byte) *Opening {
	o := new(Opening)
	o.Start("waits for a file to be opened", func(ctx context.Context) (readers.Reader, error) {
		return operators.byName[name].make(ctx, scope, nil, attributes)
	}, readers.Reader.Close)
	return o
}

// Read is the read op: it puts the slots of the next tuple of a reader into the variables outs, without a copy. The
// reader is in the variable of that name. At the end of the pass the variables stay as they are.
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

package program

import (
	"context"
	"slices"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/record"
)

// The operators of readers: those that make a reader, and read, has_next and reset.

func addReaderOps(all map[string]*operator) {
	for _, o := range ops.All() {
		all[o.Name] = &operator{
			ins:          arity{0, many},
			outs:         exactly(1),
			inKind:       desc.Reader,
			outKind:      desc.Reader,
			checkedBelow: true,
			category:     trace.Read,
			check:        checkCreate,
			prepare:      func(op *desc.Op) (any, error) { return op.Attributes.JSON(), nil },
			step:         stepCreate,
		}
	}
}

func checkCreate(c *checking) error {
	attributes := c.op.Attributes.JSON()
	if err := ops.Check(c.op.Type, len(c.in), attributes); err != nil {
		return unprefixed(err, c.op.Type+": ")
	}
	var below [][]record.SlotAttributes
	for _, v := range c.in {
		below = append(below, v.Slots)
	}
	slots, err := ops.OutputSlots(c.op.Type, below, attributes)
	if err != nil {
		return unprefixed(err, c.op.Type+": ")
	}
	out := c.out[0]
	if out.Slots == nil || slots == nil {
		if slots != nil {
			out.Slots = slots
		}
		return nil
	}
	return sameSlots(out.Slots, slots)
}

func sameSlots(declared, found []record.SlotAttributes) error {
	if len(declared) != len(found) {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected %d, as declared, found %d", len(declared), len(found))
	}
	for i := range found {
		d, f := declared[i], found[i]
		if !isAny(d.DType) && !isAny(f.DType) && d.DType != f.DType {
			return pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected %s, as declared, found %s", d.DType, f.DType)
		}
		fits := len(d.Dims) == len(f.Dims) && d.LoDLevels == f.LoDLevels
		for j := 0; fits && j < len(f.Dims); j++ {
			fits = d.Dims[j] == f.Dims[j] || d.Dims[j] == -1 || f.Dims[j] == -1
		}
		if !fits {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "expected dims %s and %d LoD levels, as declared, found %s and %d",
				dimsText(d.Dims), d.LoDLevels, dimsText(f.Dims), f.LoDLevels)
		}
	}
	return nil
}

func isAny(dtype string) bool { return dtype == "" || dtype == "any" }

func stepCreate(r *Run, in *instruction, ctx context.Context) error {
	made, err := r.makeReader(ctx, in)
	if err == wait.ErrWouldBlock {
		return err
	}
	if err != nil {
		return unprefixed(err, in.op.Type+": ")
	}
	h := readers.NewHolder(made).Named(r.vars[in.out[0]].Name())
	if declared := in.outs[0].Slots; declared != nil {
		if err := sameSlots(declared, record.DescribeSpec(h.Spec())); err != nil {
			h.Drop()
			return err
		}
	}
	return r.vars[in.out[0]].Set(h)
}

// makeReader makes a reader. If files have to be opened, it starts that in the background and waits for it.
func (r *Run) makeReader(ctx context.Context, in *instruction) (readers.Reader, error) {
	attributes := in.data.([]byte)
	if r.opening == nil {
		var below []*readers.ReaderHolder
		for _, variable := range in.in {
			h, err := readers.HolderOf(r.vars[variable])
			if err != nil {
				for _, h := range below {
					h.Drop()
				}
				return nil, err
			}
			below = append(below, h)
		}
		made, err := ops.MakeNow(r.scope, in.op.Type, below, attributes)
		if err != wait.ErrWouldBlock {
			return made, err
		}
		r.opening = ops.Open(r.scope, in.op.Type, attributes) // operators that open files have no inputs
	}
	made, err := r.opening.Wait(ctx)
	if err != wait.ErrWouldBlock {
		r.stopOpening()
	}
	return made, err
}

func (r *Run) stopOpening() {
	if r.opening != nil {
		r.opening.Stop()
		r.opening = nil
	}
}

// A readerRef is the reader in the input variable of an operator. The Run keeps a reference to it until the variable
// changes.
type readerRef struct {
	reader  *readers.ReaderHolder
	version uint64
}

func (h *readerRef) drop() {
	if h.reader != nil {
		h.reader.Drop()
		h.reader = nil
	}
}

// reader returns the reader in the operator's input variable. The Run keeps the reference.
func (r *Run) reader(in *instruction) (*readers.ReaderHolder, error) {
	h, v := &r.readers[in.state], r.vars[in.in[0]]
	version := v.Version() // read before the reader, so that the next call finds a change in between
	if h.reader != nil && h.version == version {
		return h.reader, nil
	}
	h.drop()
	reader, err := readers.HolderOf(v)
	if err != nil {
		return nil, err
	}
	h.reader, h.version = reader, version
	return reader, nil
}

var readOp = &operator{
	ins:      exactly(1),
	outs:     arity{1, many},
	inKind:   desc.Reader,
	category: trace.Read,
	check: func(c *checking) error {
		return c.noteSlots(c.in[0], "reader")
	},
	step: stepRead,
}

// noteSlots records that the outputs are the slots of a reader or a staging buffer, if these are known.
func (c *checking) noteSlots(from *desc.Variable, what string) error {
	if from.Slots == nil {
		return nil
	}
	if len(from.Slots) != len(c.out) {
		return pyfeed.Errorf(pyfeed.Slots, "outputs: expected %d, as %s %q has slots, found %d", len(from.Slots), what, from.Name, len(c.out))
	}
	for i, s := range from.Slots {
		dtype := pyfeed.Any
		if !isAny(s.DType) {
			dtype, _ = pyfeed.DTypeOf(s.DType) // the names were checked with the slots
		}
		if err := c.note(i, dtype, s.Dims, true, s.LoDLevels); err != nil {
			return err
		}
	}
	return nil
}

func stepRead(r *Run, in *instruction, ctx context.Context) error {
	h, err := r.reader(in)
	if err != nil {
		return err
	}
	if n := h.Spec().Len(); n != len(in.out) { // checked before reading, so that no tuple is lost
		return pyfeed.Errorf(pyfeed.Slots, "expected a reader of %d slots, as there are outputs, found one of %d", len(in.out), n)
	}
	t, err := h.ReadNext(ctx)
	if err != nil {
		return err
	}
	return r.split(t, in)
}

// split moves the slots of a tuple to the outputs, and takes ownership of the tuple.
func (r *Run) split(t *pyfeed.Tuple, in *instruction) error {
	defer t.Release()
	if t.OnDevice() {
		if err := r.waitForTuple(t); err != nil {
			return suffixError(err, "; the tuple is lost")
		}
	}
	for i := range t.Slots {
		if err := conforms(&t.Slots[i], in.outs[i], "output", i); err != nil {
			return suffixError(err, "; the tuple is lost")
		}
	}
	for i := range t.Slots {
		if err := r.vars[in.out[i]].SetTensor(&t.Slots[i]); err != nil {
			return err
		}
	}
	return nil
}

// waitForTuple makes the executor's stream wait until the tuple is on the device. The tuple's memory is not reused
// until the work submitted to the stream by the time of its release is done.
func (r *Run) waitForTuple(t *pyfeed.Tuple) error {
	if at := t.Slots[0].Place; at != r.place {
		return pyfeed.Errorf(pyfeed.State, "expected tuples at %v, where the executor is, found one at %v", r.place, at)
	}
	return t.Slots[0].Resident().Use(r.executor.Stream())
}

// oneElement returns the dims for a boolean result: the declared dims if they are of one element, else none.
func oneElement(declared *desc.Variable) pyfeed.Dims {
	if !declared.Shaped || slices.ContainsFunc(declared.Dims, func(d int64) bool { return d != 1 }) {
		return nil
	}
	return declared.Dims
}

var hasNextOp = &operator{
	ins:      exactly(1),
	outs:     exactly(1),
	inKind:   desc.Reader,
	category: trace.Read,
	check:    func(c *checking) error { return c.note(0, pyfeed.Bool, oneElement(c.out[0]), true, 0) },
	step: func(r *Run, in *instruction, ctx context.Context) error {
		h, err := r.reader(in)
		if err != nil {
			return err
		}
		has, err := h.HasNext(ctx)
		if err != nil {
			return err
		}
		return r.vars[in.out[0]].Write(pyfeed.Bool, oneElement(in.outs[0]), r.pool, func(data []byte) {
			data[0] = 0
			if has {
				data[0] = 1
			}
		})
	},
}

var resetOp = &operator{
	ins:      exactly(1),
	inKind:   desc.Reader,
	category: trace.Read,
	step: func(r *Run, in *instruction, _ context.Context) error {
		h, err := r.reader(in)
		if err != nil {
			return err
		}
		return h.ReInit()
	},
}

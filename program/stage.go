package program

import (
	"context"
	"slices"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/staging"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// The operators of the staging buffer: stage puts a tuple into it, unstage takes the oldest tuple out.

// The default capacity is 3: two tuples to warm up with, and one that the loop stages before it takes the next out.
var stageAttributes = []attribute{{name: "capacity", value: intValue(3)}, {name: "bytes_limit", value: intValue(0)}}

// limits are the values of these attributes.
type limits struct{ capacity, bytes uint64 }

func limitsOf(op *desc.Op) (any, error) {
	capacity, err := limited(op, "capacity", 1)
	if err != nil {
		return nil, err
	}
	bytes, err := limited(op, "bytes_limit", 0)
	return limits{uint64(capacity), uint64(bytes)}, err
}

var stageOp = &operator{
	ins:        arity{1, many},
	outs:       exactly(1),
	outKind:    desc.Stage,
	attributes: stageAttributes,
	category:   trace.Copy,
	check: func(c *checking) error {
		if _, err := limitsOf(c.op); err != nil {
			return err
		}
		var slots []record.SlotAttributes
		for _, v := range c.in {
			if !v.Shaped {
				return nil // not all inputs are known yet
			}
			slots = append(slots, slotOf(v))
		}
		if c.out[0].Slots != nil {
			return sameSlots(c.out[0].Slots, slots)
		}
		c.out[0].Slots = slots
		return nil
	},
	prepare: limitsOf,
	step:    stepStage,
}

// slotOf describes a tensor as a slot of many tuples. With a LoD, the length of the first dimension varies.
func slotOf(v *desc.Variable) record.SlotAttributes {
	s := record.SlotAttributes{Name: v.Name, DType: v.DType.String(), Dims: slices.Clone(v.Dims), LoDLevels: v.LoDLevels}
	if v.LoDLevels > 0 && len(s.Dims) > 0 {
		s.Dims[0] = -1
	}
	return s
}

func (r *Run) buffer(in *instruction) (*staging.Buffer, error) {
	l := in.data.(limits)
	return staging.Get(r.place, l.capacity, l.bytes)
}

func stepStage(r *Run, in *instruction, ctx context.Context) error {
	b, err := r.buffer(in)
	if err != nil {
		return err
	}
	t := r.tuple
	if t == nil {
		if t, err = r.gather(in); err != nil || t == nil {
			return err
		}
		r.tuple = t // kept for the next try, in case there is no room
	}
	if err := b.Put(ctx, t); err != nil {
		return err
	}
	r.tuple = nil
	t.Release()
	return nil
}

// gather makes a tuple of the inputs. It returns nil if none of them has a tensor; if only some do, it returns an
// error.
func (r *Run) gather(in *instruction) (*pyfeed.Tuple, error) {
	t := pyfeed.NewTuple(len(in.in))
	var missing error
	found := 0
	for i, variable := range in.in {
		if err := r.vars[variable].ShareTensor(&t.Slots[i]); err != nil {
			missing = err
		} else {
			found++
		}
	}
	if missing == nil {
		return t, nil
	}
	t.Release()
	if found == 0 {
		return nil, nil
	}
	return nil, missing
}

var unstageOp = &operator{
	ins:        exactly(1),
	outs:       arity{1, many},
	inKind:     desc.Stage,
	attributes: stageAttributes,
	category:   trace.Read,
	check: func(c *checking) error {
		if _, err := limitsOf(c.op); err != nil {
			return err
		}
		return c.noteSlots(c.in[0], "stage")
	},
	prepare: limitsOf,
	step: func(r *Run, in *instruction, ctx context.Context) error {
		b, err := r.buffer(in)
		if err != nil {
			return err
		}
		t, err := b.Get(ctx)
		if err != nil {
			return err
		}
		if len(t.Slots) != len(in.out) {
			defer t.Release()
			return pyfeed.Errorf(pyfeed.Slots, "expected a staged tuple of %d slots, as there are outputs, found one of %d, which is lost", len(in.out), len(t.Slots))
		}
		return r.split(t, in)
	},
}

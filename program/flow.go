package program

import (
	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
)

// The operators with bodies. Run.Resume and Run.enter execute them.

var bodyAttributes = map[string][]string{
	"while":   {"block"},
	"if_else": {"true_block", "false_block"},
}

// bodies returns the blocks that an Op has as bodies.
func bodies(op *desc.Op) []int {
	var all []int
	for _, name := range bodyAttributes[op.Type] {
		if v, given := op.Attributes.Get(name); given {
			all = append(all, int(v.Int))
		}
	}
	return all
}

var whileOp = &operator{
	ins:        exactly(1),
	attributes: []attribute{{name: "block", value: intValue(0), required: true}},
	check:      checkFlow,
}

var ifElseOp = &operator{
	ins: exactly(1),
	attributes: []attribute{
		{name: "true_block", value: intValue(-1)},
		{name: "false_block", value: intValue(-1)},
	},
	check: checkFlow,
}

func checkFlow(c *checking) error {
	all := bodies(c.op)
	if len(all) == 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "attributes: expected true_block, false_block or both, found neither")
	}
	if len(all) == 2 && all[0] == all[1] {
		return pyfeed.Errorf(pyfeed.Invalid, "attributes: expected two blocks, found block %d twice", all[0])
	}
	return condition(c.in[0])
}

// checkBodies returns an error if an Op that is being added cannot have its bodies.
func (p *Program) checkBodies(at site) error {
	for _, body := range bodies(at.op) {
		if body <= at.block || body >= len(p.desc.Blocks) || p.desc.Blocks[body].Parent != at.block {
			return pyfeed.Errorf(pyfeed.Invalid, "body: expected a block within block %d, found %d", at.block, body)
		}
		if p.body[body] {
			return pyfeed.Errorf(pyfeed.State, "body: block %d is already the body of another operator", body)
		}
	}
	return nil
}

// condition returns an error if it is known that the variable cannot be a condition.
func condition(v *desc.Variable) error {
	if v.DType != pyfeed.Any && v.DType != pyfeed.Bool {
		return pyfeed.Errorf(pyfeed.Type, "condition %q: expected bool, found %v", v.Name, v.DType)
	}
	if v.Shaped {
		for _, d := range v.Dims {
			if d != 1 && d != -1 {
				return pyfeed.Errorf(pyfeed.Shape, "condition %q: expected one element, found dims %s", v.Name, dimsText(v.Dims))
			}
		}
	}
	return nil
}

// isTrue returns the value of a condition.
func isTrue(v *pyfeed.Variable) (yes bool, err error) {
	err = v.ReadTensor(func(t *pyfeed.LoDTensor) error {
		if t.DType != pyfeed.Bool {
			return pyfeed.Errorf(pyfeed.Type, "condition: expected bool, found %v", t.DType)
		}
		if err := t.OnHost(); err != nil {
			return err
		}
		if len(t.Data) != 1 {
			return pyfeed.Errorf(pyfeed.Shape, "condition: expected one element, found dims %s", dimsText(t.Dims()))
		}
		yes = t.Data[0] != 0
		return nil
	})
	return yes, err
}

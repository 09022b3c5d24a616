package program

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// A Kernel is a function that programs call by its name. It is called by the thread that runs the program.
type Kernel struct {
	Name string
	// Run does the work, in Go. It may answer wait.ErrWouldBlock, as readers do, and is called again then.
	Run func(ctx context.Context, c *Call) error
	// Foreign is a function of another language, for whoever runs the program to call: Run is nil then.
	Foreign any
	// Finished is called once nobody has the Kernel any more, on any thread. May be nil.
	Finished func()

	references atomic.Int32
}

var kernels struct {
	mu  sync.RWMutex
	all map[string]*Kernel
}

// Register makes a Kernel known, for every program in the process. The registration holds a reference, until Unregister.
func Register(k *Kernel) error {
	if k.Name == "" {
		return pyfeed.Errorf(pyfeed.Invalid, "kernel: expected a name, found an empty string")
	}
	if !utf8.ValidString(k.Name) {
		return pyfeed.Errorf(pyfeed.Invalid, "kernel: expected a name in UTF-8, found %q", k.Name)
	}
	kernels.mu.Lock()
	defer kernels.mu.Unlock()
	if kernels.all[k.Name] != nil {
		return pyfeed.Errorf(pyfeed.State, "kernel %q: there is one of that name", k.Name)
	}
	if kernels.all == nil {
		kernels.all = make(map[string]*Kernel)
	}
	k.references.Add(1) // runs may have it still, of an earlier registration
	kernels.all[k.Name] = k
	return nil
}

// Unregister takes a Kernel back: runs that begin later do not find it.
func Unregister(k *Kernel) {
	kernels.mu.Lock()
	known := kernels.all[k.Name] == k
	if known {
		delete(kernels.all, k.Name)
	}
	kernels.mu.Unlock()
	if known {
		k.drop()
	}
}

// Kernels are the names there are, sorted.
func Kernels() []string {
	kernels.mu.RLock()
	defer kernels.mu.RUnlock()
	return slices.Sorted(maps.Keys(kernels.all))
}

// kernelOf is the Kernel of that name, with a reference.
func kernelOf(name string) (*Kernel, error) {
	kernels.mu.RLock()
	defer kernels.mu.RUnlock()
	if k := kernels.all[name]; k != nil {
		k.references.Add(1)
		return k, nil
	}
	there := "there are none: register them, or load the library that does"
	if len(kernels.all) > 0 {
		there = "there are " + strings.Join(slices.Sorted(maps.Keys(kernels.all)), ", ")
	}
	return nil, pyfeed.Errorf(pyfeed.NotFound, "kernel %q: it is not registered; %s", name, there)
}

func (k *Kernel) drop() {
	if k.references.Add(-1) == 0 && k.Finished != nil {
		k.Finished()
	}
}

// A Call is a Kernel at work for one operator of one Run. It is used again for the next time.
type Call struct {
	Kernel     *Kernel
	Attributes string // JSON
	Ins        []*pyfeed.LoDTensor
	Outs       []pyfeed.LoDTensor
	Shared     any // what who calls foreign kernels keeps with it

	run    *Run
	in     *instruction
	inputs []pyfeed.LoDTensor // of variables that others see: references of the Call's own
	inOut  []int              // of each output: the input that it is too, or -1
	// What outputs had before they got something else.
	replaced []pyfeed.LoDTensor
	begun    bool
	done     bool
	err      error
}

// newCall makes the Call of an operator of a Run.
func newCall(r *Run, in *instruction) Call {
	c := Call{
		Attributes: in.data.(string),
		Ins:        make([]*pyfeed.LoDTensor, len(in.in)),
		Outs:       make([]pyfeed.LoDTensor, len(in.out)),
		run:        r,
		in:         in,
		inputs:     make([]pyfeed.LoDTensor, len(in.in)),
		replaced:   make([]pyfeed.LoDTensor, len(in.out)),
	}
	for _, variable := range in.out {
		c.inOut = append(c.inOut, slices.Index(in.in, variable))
	}
	return c
}

func (c *Call) who() string { return fmt.Sprintf("kernel %q", c.Kernel.Name) }

// Place is where the Run is.
func (c *Call) Place() pyfeed.Place { return c.run.place }

// Stream is the number of the stream to compute on, where the executor is at a device; else 0.
func (c *Call) Stream() uint64 { return c.run.executor.Stream() }

// begin takes the tensors. An output that is an input too has its own, to be written in place.
func (c *Call) begin() error {
	err := c.take()
	if err != nil {
		_ = c.finish(false)
	}
	c.begun = err == nil
	return err
}

func (c *Call) take() error {
	for i, variable := range c.in.out {
		if at := c.inOut[i]; at >= 0 {
			if err := c.run.vars[variable].BeginWrite(&c.Outs[i], c.run.pool); err != nil {
				return err
			}
			c.Outs[i].Share(&c.inputs[at])
			c.Ins[at] = &c.inputs[at]
		}
	}
	for i, variable := range c.in.in {
		if c.Ins[i] != nil {
			continue
		}
		var err error
		switch v := c.run.vars[variable]; {
		case slices.Contains(c.in.out, variable): // it comes twice, and is being written
			c.Ins[i] = c.Ins[slices.Index(c.in.in, variable)]
		case !c.run.plan.variables[variable].scope: // nobody else sees it
			c.Ins[i], err = v.UnsharedTensor()
		default:
			err = v.ShareTensor(&c.inputs[i])
			c.Ins[i] = &c.inputs[i]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Output makes output i a tensor of that dtype, dims and LoD. It keeps what is in it if it is one already.
func (c *Call) Output(i int, dtype pyfeed.DType, dims pyfeed.Dims, lod pyfeed.LoD) (*pyfeed.LoDTensor, error) {
	t := &c.Outs[i]
	if t.DType == dtype && slices.Equal(t.Dims(), dims) && len(lod) == 0 && len(t.LoD) == 0 {
		return t, nil
	}
	return c.Replace(i, dtype, dims, lod)
}

// Replace is Output in memory of its own: what the output had stays until it is replaced once more, or the Call is over,
// so that it may be looked at meanwhile. After an error the output is as it was.
func (c *Call) Replace(i int, dtype pyfeed.DType, dims pyfeed.Dims, lod pyfeed.LoD) (*pyfeed.LoDTensor, error) {
	var made pyfeed.LoDTensor
	if err := made.AllocateTensor(dtype, dims, lod, c.run.pool); err != nil {
		return nil, err
	}
	t := &c.Outs[i]
	c.replaced[i].Drop()
	c.replaced[i], *t = *t, made
	return t, nil
}

// finish moves the outputs to their variables, if all went well, and lets go of everything.
func (c *Call) finish(well bool) (err error) {
	clear(c.Ins)
	for i := range c.Outs {
		t, v := &c.Outs[i], c.run.vars[c.in.out[i]]
		if at := c.inOut[i]; at >= 0 && c.inputs[at].DType != pyfeed.Any { // it was begun to be written
			if !well { // there may be another tensor in its place, or none
				*t, c.inputs[at] = c.inputs[at], *t
			}
			err = cmp.Or(err, v.EndWrite(t))
		} else if well {
			err = cmp.Or(err, v.SetTensor(t))
		}
		if t.DType != pyfeed.Any {
			t.Drop()
		}
	}
	for _, all := range [2][]pyfeed.LoDTensor{c.inputs, c.replaced} {
		for i := range all {
			if all[i].DType != pyfeed.Any {
				all[i].Drop()
			}
		}
	}
	c.begun, c.done, c.err = false, false, nil
	return err
}

// end is the end of a Kernel that answered err.
func (c *Call) end(err error) error {
	for i := 0; err == nil && i < len(c.Outs); i++ {
		t := &c.Outs[i]
		if t.DType == pyfeed.Any {
			err = pyfeed.SlotErrorf(pyfeed.Slots, i, "kernel %q gave no tensor for output %q", c.Kernel.Name, c.in.op.Outputs[i])
		} else {
			err = conforms(t, c.in.outs[i], "output", i)
		}
	}
	return cmp.Or(err, c.finish(err == nil))
}

var callOp = &operator{
	ins:  arity{0, many},
	outs: arity{0, many},
	attributes: []attribute{
		{name: "kernel", value: textValue(""), must: true},
		{name: "attributes", value: desc.Value{Kind: desc.MapValue}},
	},
	category: trace.Compute,
	check: func(c *checking) error {
		if valueOf(c.op, "kernel").Text == "" {
			return pyfeed.Errorf(pyfeed.Invalid, "attribute %q: expected a name, found an empty string", "kernel")
		}
		return nil
	},
	prepare: func(op *desc.Op) (any, error) {
		return string(valueOf(op, "attributes").Map.JSON()), nil
	},
	step: stepCall,
}

func stepCall(r *Run, in *instruction, ctx context.Context) error {
	c := &r.calls[in.state]
	if !c.begun {
		if err := c.begin(); err != nil {
			return err
		}
		if c.Kernel.Run == nil {
			return ErrKernel
		}
	}
	if c.Kernel.Run == nil {
		if !c.done {
			return ErrKernel
		}
		return c.end(c.err)
	}
	err := c.work(ctx)
	if err == wait.ErrWouldBlock {
		return err
	}
	return c.end(err)
}

// work runs a Kernel in Go. A panic of it is its error.
func (c *Call) work(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &pyfeed.ProducerError{Who: c.who(), Type: "panic", Message: fmt.Sprint(v), Traceback: string(debug.Stack())}
		}
	}()
	return c.Kernel.Run(ctx, c)
}

// ShareInput puts a second reference to input i into to, which is empty; to a copy of it, if it is an output too, which
// is written in place.
func (c *Call) ShareInput(i int, to *pyfeed.LoDTensor) error {
	t := c.Ins[i]
	if !slices.Contains(c.in.out, c.in.in[i]) {
		t.Share(to)
		return nil
	}
	if err := to.AllocateTensor(t.DType, t.Dims(), t.LoD, c.run.pool); err != nil {
		return err
	}
	pyfeed.Copy(to.Data, t.Data)
	if err := t.CheckTruncated(i); err != nil {
		to.Drop()
		return err
	}
	return nil
}

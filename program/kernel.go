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

// A Kernel is a function that programs call by name. It is called by the thread that runs the program.
type Kernel struct {
	Name string
	// Run is a kernel in Go. It may return wait.ErrWouldBlock, as readers do; it is then called again.
	Run func(ctx context.Context, c *Call) error
	// Foreign is a kernel in another language, which the caller of Run.Resume calls. Run is nil then.
	Foreign any
	// Finished is called on any thread after the last reference to the Kernel was dropped. It may be nil.
	Finished func()

	references atomic.Int32
}

var kernels struct {
	mu  sync.RWMutex
	all map[string]*Kernel
}

// Register registers a Kernel for all programs of the process. The registration holds a reference until Unregister.
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
	k.references.Add(1) // added, not set: runs may still hold references from an earlier registration
	kernels.all[k.Name] = k
	return nil
}

// Unregister removes a Kernel. Runs that begin later do not find it.
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

// Kernels returns the names of all registered kernels, sorted.
func Kernels() []string {
	kernels.mu.RLock()
	defer kernels.mu.RUnlock()
	return slices.Sorted(maps.Keys(kernels.all))
}

// kernelOf returns the Kernel of the given name, with a reference for the caller.
func kernelOf(name string) (*Kernel, error) {
	kernels.mu.RLock()
	defer kernels.mu.RUnlock()
	if k := kernels.all[name]; k != nil {
		k.references.Add(1)
		return k, nil
	}
	there := "there are none: register them, or load the library that does (in C++, keep the object that register_kernel returns)"
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

// A Call is a call of a Kernel by one operator of one Run. The Run reuses it when it executes the operator again.
type Call struct {
	Kernel     *Kernel
	Attributes string // JSON
	Ins        []*pyfeed.LoDTensor
	Outs       []pyfeed.LoDTensor
	Shared     any // data of the caller that calls foreign kernels

	run    *Run
	in     *instruction
	inputs []pyfeed.LoDTensor // references to inputs that other users can see too
	inOut  []int              // for each output the index of the input with the same variable, or -1
	// Previous tensors of outputs that were replaced.
	replaced []pyfeed.LoDTensor
	begun    bool
	done     bool
	err      error
}

// newCall makes the Call for an operator of a Run.
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

func (c *Call) name() string { return fmt.Sprintf("kernel %q", c.Kernel.Name) }

// Place returns the place of the executor.
func (c *Call) Place() pyfeed.Place { return c.run.place }

// Stream returns the number of the stream to compute on if the executor is at a device; else 0.
func (c *Call) Stream() uint64 { return c.run.executor.Stream() }

// begin takes the input tensors. An output that is also an input begins with the input's tensor, to be written in
// place.
func (c *Call) begin() error {
	err := c.takeInputs()
	if err != nil {
		_ = c.finish(false)
	}
	c.begun = err == nil
	return err
}

func (c *Call) takeInputs() error {
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
		case slices.Contains(c.in.out, variable): // an input given twice, which is also an output
			c.Ins[i] = c.Ins[slices.Index(c.in.in, variable)]
		case !c.run.plan.variables[variable].scope: // only this run uses it
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

// Output makes output i a tensor of the given dtype, dims and LoD. If it is one already, its contents are kept.
func (c *Call) Output(i int, dtype pyfeed.DType, dims pyfeed.Dims, lod pyfeed.LoD) (*pyfeed.LoDTensor, error) {
	t := &c.Outs[i]
	if t.DType == dtype && slices.Equal(t.Dims(), dims) && len(lod) == 0 && len(t.LoD) == 0 {
		return t, nil
	}
	return c.Replace(i, dtype, dims, lod)
}

// Replace is Output in new memory. The previous tensor stays valid until the output is replaced again or the Call ends,
// so that the kernel can read it meanwhile. After an error the output is unchanged.
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

// finish moves the outputs to their variables if the kernel succeeded, and releases all tensors.
func (c *Call) finish(well bool) (err error) {
	clear(c.Ins)
	for i := range c.Outs {
		t, v := &c.Outs[i], c.run.vars[c.in.out[i]]
		if at := c.inOut[i]; at >= 0 && c.inputs[at].DType != pyfeed.Any { // BeginWrite was called
			if !well { // a failed kernel may have replaced or removed the tensor: restore it
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

// end ends a call whose Kernel returned err.
func (c *Call) end(err error) error {
	for i := 0; err == nil && i < len(c.Outs); i++ {
		t := &c.Outs[i]
		if t.DType == pyfeed.Any {
			err = pyfeed.SlotErrorf(pyfeed.Slots, i, "kernel %q set no tensor for output %q", c.Kernel.Name, c.in.op.Outputs[i])
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
		{name: "kernel", value: textValue(""), required: true},
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

// work runs a Kernel in Go. A panic in it becomes an error.
func (c *Call) work(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &pyfeed.ProducerError{Who: c.name(), Type: "panic", Message: fmt.Sprint(v), Traceback: string(debug.Stack())}
		}
	}()
	return c.Kernel.Run(ctx, c)
}

// ShareInput stores a second reference to input i in to, which must be empty. If the input is also an output, it stores
// a copy, because the input is written in place.
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

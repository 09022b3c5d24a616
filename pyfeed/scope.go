package pyfeed

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Content is what a Variable can hold: a *LoDTensor, a *PyArrayFeedQueueHolder, a reader's holder.
type Content interface {
	Drop() // lets go of what it holds; called once, when it leaves the Variable
}

// A Variable is a named place for a Content. Any thread.
type Variable struct {
	name string

	mu      sync.Mutex
	content Content
	writing bool // the tensor in content is being written in place
	erased  bool // from its Scope: nobody would drop what is put in any more

	version atomic.Uint64 // of content, but for one tensor in place of another
}

// NewVariable makes a Variable that no Scope has.
func NewVariable(name string) *Variable { return &Variable{name: name} }

// Name is the name in the Scope.
func (v *Variable) Name() string { return v.name }

// Version is another one after another Content was put in. Tensors do not count: they come and go.
func (v *Variable) Version() uint64 { return v.version.Load() }

// Set puts a Content in, drops the old one, and owns the new one from then on. Of a Variable that was erased it drops the
// new one, and says so.
func (v *Variable) Set(c Content) (err error) {
	v.mu.Lock()
	old := v.content
	if v.erased && c != nil {
		old, err = c, v.isErased()
	} else {
		v.content = c
		v.version.Add(1)
	}
	v.mu.Unlock()
	if old != nil {
		old.Drop()
	}
	return err
}

func (v *Variable) isErased() error {
	return Errorf(NotFound, "variable %q: it was erased from its scope meanwhile", v.name)
}

// erase empties the Variable for good.
func (v *Variable) erase() {
	v.mu.Lock()
	v.erased = true
	v.mu.Unlock()
	_ = v.Set(nil)
}

// With calls f with the Content, nil if there is none, which cannot be replaced meanwhile.
func (v *Variable) With(f func(Content)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v.content)
}

// SetTensor moves a tensor in, and the one that was there, if any, out into t for the caller to
// drop. A Variable that holds one already is written without an allocation. One that was erased takes nothing.
func (v *Variable) SetTensor(t *LoDTensor) error { return v.setTensor(t, false) }

// setTensor is SetTensor, which may end what BeginWrite began.
func (v *Variable) setTensor(t *LoDTensor, written bool) error {
	v.mu.Lock()
	if written {
		v.writing = false
	}
	if v.erased {
		v.mu.Unlock()
		return v.isErased()
	}
	held, old := v.makeTensor()
	*held, *t = *t, *held
	v.mu.Unlock()
	if old != nil {
		old.Drop()
	}
	return nil
}

// makeTensor makes the content a tensor, and answers what it was before if that is to be dropped. The lock is held.
func (v *Variable) makeTensor() (held *LoDTensor, old Content) {
	held, ok := v.content.(*LoDTensor)
	if !ok {
		held, old = new(LoDTensor), v.content
		v.content = held
		v.version.Add(1)
	}
	return held, old
}

// ShareTensor puts a second reference to the tensor in the Variable into to, which is empty.
func (v *Variable) ShareTensor(to *LoDTensor) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := v.tensor()
	if err == nil {
		t.Share(to)
	}
	return err
}

// UnsharedTensor is the tensor in a Variable that nobody else sees, which is its own still.
func (v *Variable) UnsharedTensor() (*LoDTensor, error) { return v.tensor() }

// ReadTensor calls f with the tensor in the Variable, which stays as it is meanwhile.
func (v *Variable) ReadTensor(f func(*LoDTensor) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := v.tensor()
	if err == nil {
		err = f(t)
	}
	return err
}

func (v *Variable) tensor() (*LoDTensor, error) {
	t, ok := v.content.(*LoDTensor)
	if !ok || t.DType == Any {
		return nil, v.missing("tensor")
	}
	if v.writing {
		return nil, v.beingWritten()
	}
	return t, nil
}

func (v *Variable) beingWritten() error {
	return Errorf(State, "variable %q: a kernel is writing its tensor in place right now", v.name)
}

// Scalar copies the one element of the tensor in the Variable to to, and answers its dtype and rank; Any if it has not
// one, or none.
func (v *Variable) Scalar(to *[16]byte) (dtype DType, rank int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := v.tensor()
	if err != nil || len(t.Data) != t.DType.Size() || t.OnDevice() {
		return Any, 0
	}
	copy(to[:], t.Data)
	return t.DType, t.rank
}

// Modify has f change the tensor in the Variable; a copy of it, if somebody else has it too.
func (v *Variable) Modify(pool *memory.Pool, f func(*LoDTensor) error) error {
	var old LoDTensor // dropped without the lock: its memory may be somebody's who wants to know
	v.mu.Lock()
	t, err := v.tensor()
	if err == nil {
		err = t.OnHost()
	}
	if err == nil && !t.IsUnique() {
		if err = old.AllocateTensor(t.DType, t.Dims(), t.LoD, pool); err == nil {
			Copy(old.Data, t.Data)
			if err = t.CheckTruncated(0); err == nil {
				*t, old = old, *t
			}
		}
	}
	if err == nil {
		err = f(t)
	}
	v.mu.Unlock()
	old.Drop()
	return err
}

// Write has f write a tensor of that dtype and dims, without LoD: into the memory of the one that is there, if nobody
// else has it, else into some of the pool's. What f finds there is of no meaning.
func (v *Variable) Write(dtype DType, dims Dims, pool *memory.Pool, f func(data []byte)) error {
	v.mu.Lock()
	t, ok := v.content.(*LoDTensor)
	var err error
	switch {
	case v.erased:
		err = v.isErased()
	case ok && v.writing:
		err = v.beingWritten()
	case ok && t.IsUnique() && t.DType == dtype && len(t.LoD) == 0 && slices.Equal(t.Dims(), dims):
		f(t.Data)
	default:
		var fresh LoDTensor
		if err = fresh.AllocateTensor(dtype, dims, nil, pool); err != nil {
			break
		}
		f(fresh.Data)
		held, old := v.makeTensor()
		*held, fresh = fresh, *held
		v.mu.Unlock()
		fresh.Drop()
		if old != nil {
			old.Drop()
		}
		return nil
	}
	v.mu.Unlock()
	return err
}

// BeginWrite puts a second reference to the tensor in the Variable into to, which is empty, to be written in place; if
// somebody else has it too, or it is read-only, a copy. EndWrite MUST follow. Meanwhile others are refused the tensor.
func (v *Variable) BeginWrite(to *LoDTensor, pool *memory.Pool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := v.tensor()
	if err == nil {
		err = t.OnHost()
	}
	if err != nil {
		return err
	}
	if t.IsUnique() {
		t.Share(to)
	} else if err := to.AllocateTensor(t.DType, t.Dims(), t.LoD, pool); err != nil {
		return err
	} else {
		Copy(to.Data, t.Data)
		if err := t.CheckTruncated(0); err != nil {
			to.Drop()
			return err
		}
	}
	v.writing = true
	return nil
}

// EndWrite ends what BeginWrite began: it moves the tensor in.
func (v *Variable) EndWrite(t *LoDTensor) error {
	err := v.setTensor(t, true)
	t.Drop()
	return err
}

// InitQueue makes the queue of the PyArrayFeedQueueHolder in the Variable, which is put there if the
// Variable is empty, and answers it with a reference that the caller drops.
func (v *Variable) InitQueue(o QueueOptions) (*Consumer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.erased {
		return nil, v.isErased()
	}
	if v.content == nil {
		v.content = new(PyArrayFeedQueueHolder)
	}
	h, ok := v.content.(*PyArrayFeedQueueHolder)
	if !ok {
		return nil, v.missing("queue")
	}
	return h.InitOnce(o)
}

// Feeder is the queue in the Variable, with a reference that the caller drops; an error if it holds
// none, or none yet.
func (v *Variable) Feeder() (*Consumer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.content.(*PyArrayFeedQueueHolder)
	if !ok {
		return nil, v.missing("queue")
	}
	return h.Feeder()
}

func (v *Variable) missing(what string) error {
	return Errorf(State, "variable %q: expected a %s in it, found none", v.name, what)
}

// A Scope maps names to Variables, and asks its parent for those it does not have. Any thread.
type Scope struct {
	parent     *Scope
	references atomic.Int32

	mu   sync.RWMutex
	vars map[string]*Variable
}

var global = NewScope(nil)

// GlobalScope is the one that all parts of a process share.
func GlobalScope() *Scope { return global }

// NewScope makes a Scope with one reference. It keeps its parent, if any, alive.
func NewScope(parent *Scope) *Scope {
	s := &Scope{vars: make(map[string]*Variable)}
	s.references.Store(1)
	if parent != nil {
		s.parent = parent.Retain()
	}
	return s
}

// Retain adds a reference.
func (s *Scope) Retain() *Scope {
	s.references.Add(1)
	return s
}

// Var is the Variable of that name in this very Scope, made if there is none.
func (s *Scope) Var(name string) (*Variable, error) {
	if name == "" {
		return nil, Errorf(Invalid, "variable: expected a name, found an empty string")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[name]
	if v == nil {
		name = strings.Clone(name) // it may be C's
		v = &Variable{name: name}
		s.vars[name] = v
	}
	return v, nil
}

// FindVar is the Variable of that name here or in the nearest parent that has it.
func (s *Scope) FindVar(name string) (*Variable, error) {
	for at := s; at != nil; at = at.parent {
		at.mu.RLock()
		v := at.vars[name]
		at.mu.RUnlock()
		if v != nil {
			return v, nil
		}
	}
	return nil, Errorf(NotFound, "variable %q: there is none in this scope or its parents", name)
}

// Erase takes a Variable of this very Scope out and drops what it holds.
func (s *Scope) Erase(name string) error {
	s.mu.Lock()
	v := s.vars[name]
	delete(s.vars, name)
	s.mu.Unlock()
	if v == nil {
		return Errorf(NotFound, "variable %q: there is none in this scope", name)
	}
	v.erase()
	return nil
}

// Drop takes a reference away; the last one erases everything.
func (s *Scope) Drop() {
	if s.references.Add(-1) > 0 {
		return
	}
	if s.parent != nil {
		defer s.parent.Drop()
	}
	s.mu.Lock()
	vars := s.vars
	s.vars = make(map[string]*Variable)
	s.mu.Unlock()
	for _, v := range vars {
		v.erase()
	}
}

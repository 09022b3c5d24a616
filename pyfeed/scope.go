package pyfeed

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Content is the value of a Variable: a *LoDTensor, a *PyArrayFeedQueueHolder or the holder of a reader.
type Content interface {
	Drop() // releases what the Content holds; called once, when it leaves the Variable
}

// A Variable is a named container of a Content. All methods are safe for concurrent use.
type Variable struct {
	name string

	mu      sync.Mutex
	content Content
	writing bool // a kernel is writing the tensor in content in place
	erased  bool // erased from its Scope

	version atomic.Uint64 // counts changes of content, except a tensor replaced by another
}

// NewVariable makes a Variable that belongs to no Scope.
func NewVariable(name string) *Variable { return &Variable{name: name} }

// Name returns the name in the Scope.
func (v *Variable) Name() string { return v.name }

// Version returns a number that changes when another Content is set. Replacing one tensor with another does not change
// it.
func (v *Variable) Version() uint64 { return v.version.Load() }

// Set replaces the Content, drops the old one and takes ownership of the new one. If the Variable was erased, Set drops
// the new Content and returns NotFound.
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

// erase empties the Variable. Later calls of Set fail.
func (v *Variable) erase() {
	v.mu.Lock()
	v.erased = true
	v.mu.Unlock()
	_ = v.Set(nil)
}

// With calls f with the Content, or nil if there is none. The Content cannot be replaced while f runs.
func (v *Variable) With(f func(Content)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v.content)
}

// SetTensor moves t into the Variable. If the Variable held a tensor, it is moved out into t for the caller to drop,
// and nothing is allocated. SetTensor fails if the Variable was erased.
func (v *Variable) SetTensor(t *LoDTensor) error { return v.setTensor(t, false) }

// setTensor is SetTensor; with written set, it also ends the write that BeginWrite began.
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

// makeTensor makes the content a tensor. It returns the tensor, and the previous content if the caller must drop it.
// The lock is held.
func (v *Variable) makeTensor() (held *LoDTensor, old Content) {
	held, ok := v.content.(*LoDTensor)
	if !ok {
		held, old = new(LoDTensor), v.content
		v.content = held
		v.version.Add(1)
	}
	return held, old
}

// ShareTensor stores a second reference to the Variable's tensor in to, which must be empty.
func (v *Variable) ShareTensor(to *LoDTensor) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := v.tensor()
	if err == nil {
		t.Share(to)
	}
	return err
}

// UnsharedTensor returns the tensor of a Variable that only the caller uses. The Variable keeps ownership.
func (v *Variable) UnsharedTensor() (*LoDTensor, error) { return v.tensor() }

// ReadTensor calls f with the Variable's tensor, which does not change while f runs.
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

// Scalar copies the single element of the Variable's tensor to to, and returns its dtype and rank. It returns Any if
// there is no tensor, or if the tensor does not have exactly one element in host memory.
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

// Modify calls f to change the Variable's tensor. If the tensor is shared, it is copied first.
func (v *Variable) Modify(pool *memory.Pool, f func(*LoDTensor) error) error {
	var old LoDTensor // dropped without the lock, because the drop may call the memory's owner
	v.mu.Lock()
	t, err := v.tensor()
	if err == nil {
		err = t.OnHost()
	}
	if err == nil && !t.isUnique() {
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

// Write calls f to write a tensor of the given dtype and dims, without LoD. f writes into the memory of the present
// tensor if it has the same dtype and dims and is not shared, otherwise into new memory from the pool. The contents of
// the memory are undefined before.
func (v *Variable) Write(dtype DType, dims Dims, pool *memory.Pool, f func(data []byte)) error {
	v.mu.Lock()
	t, ok := v.content.(*LoDTensor)
	var err error
	switch {
	case v.erased:
		err = v.isErased()
	case ok && v.writing:
		err = v.beingWritten()
	case ok && t.isUnique() && t.DType == dtype && len(t.LoD) == 0 && slices.Equal(t.Dims(), dims):
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

// BeginWrite stores a second reference to the Variable's tensor in to, which must be empty, for writing in place. A
// shared or read-only tensor is copied first. The caller MUST call EndWrite; until then every other use of the tensor
// fails with State.
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
	if t.isUnique() {
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

// EndWrite ends the write that BeginWrite began, and moves t into the Variable.
func (v *Variable) EndWrite(t *LoDTensor) error {
	err := v.setTensor(t, true)
	t.Drop()
	return err
}

// InitQueue makes the queue of the Variable's PyArrayFeedQueueHolder and returns it with a reference that the caller
// drops. If the Variable is empty, it makes the holder too.
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

// Feeder returns the Variable's queue with a reference that the caller drops. It fails with State if the Variable holds
// no queue, or if the queue was not made yet.
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

// A Scope maps names to Variables; lookups continue in its parent. All methods are safe for concurrent use.
type Scope struct {
	parent     *Scope
	references atomic.Int32

	mu   sync.RWMutex
	vars map[string]*Variable
}

var global = NewScope(nil)

// GlobalScope returns the scope that the whole process shares.
func GlobalScope() *Scope { return global }

// NewScope makes a Scope with one reference. It holds a reference to its parent, which may be nil.
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

// Var returns the Variable of the given name in this Scope, and makes it if it does not exist. It ignores the parents.
func (s *Scope) Var(name string) (*Variable, error) {
	if name == "" {
		return nil, Errorf(Invalid, "variable: expected a name, found an empty string")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[name]
	if v == nil {
		name = strings.Clone(name) // the bytes may belong to C
		v = &Variable{name: name}
		s.vars[name] = v
	}
	return v, nil
}

// FindVar returns the Variable of the given name in this Scope or the nearest parent that has it.
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

// Erase removes a Variable from this Scope and drops its content. It ignores the parents.
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

// Drop releases a reference; the last Drop erases all Variables.
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

package main

import "sync"

// A table maps ids to values that have one owner each. gopy's table is for objects with a reference count. An id is
// never used twice, so a stale id finds nothing.
type table[T any] struct {
	mu   sync.Mutex
	rows []row[T]
	free []uint32
	n    int
}

type row[T any] struct {
	value      T
	generation uint32 // odd while in use
}

func (t *table[T]) put(v T) uint64 {
	t.mu.Lock()
	if len(t.free) == 0 {
		t.rows = append(t.rows, row[T]{})
		t.free = append(t.free, uint32(len(t.rows)-1))
	}
	index := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	r := &t.rows[index]
	r.value = v
	r.generation++
	t.n++
	id := uint64(r.generation)<<32 | uint64(index)
	t.mu.Unlock()
	return id
}

func (t *table[T]) find(id uint64) *row[T] {
	index := id & (1<<32 - 1)
	if index >= uint64(len(t.rows)) || t.rows[index].generation != uint32(id>>32) || t.rows[index].generation%2 == 0 {
		return nil
	}
	return &t.rows[index]
}

func (t *table[T]) get(id uint64) (v T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.find(id); r != nil {
		return r.value, true
	}
	return v, false
}

// remove removes a row and returns its value. ok is false if there is none of that id.
func (t *table[T]) remove(id uint64) (v T, ok bool) {
	t.mu.Lock()
	r := t.find(id)
	if ok = r != nil; ok {
		v = r.value
		t.empty(r, id)
	}
	t.mu.Unlock()
	return v, ok
}

// empty removes a row that find has returned. The caller holds the lock.
func (t *table[T]) empty(r *row[T], id uint64) {
	var none T
	r.value = none
	r.generation++
	t.free = append(t.free, uint32(id))
	t.n--
}

func (t *table[T]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

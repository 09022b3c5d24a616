/* _native.Loop: an iterator over a pass of a reader, for `for` and Reader.current_pass(). */
#include "reader.h"

static PyTypeObject *loop_type;

typedef struct {
    PyObject ob_base;
    reader *of; /* NULL once the pass has ended */
    uint64_t generation;
    uint64_t loop; /* of pf_reader_begin_loop: the library also notices resets through other handles */
    int counted;   /* this loop counts in the reader's `loops` */
} loop;

/* Stops counting this loop, so that the reader may begin another pass. With `forget` the loop is over. */
static void uncount(loop *self, int forget) {
    reader *of;
    int counted;
    LOCK_OBJECT((PyObject *)self);
    of = self->of;
    counted = self->counted;
    self->counted = 0;
    if (forget)
        self->of = NULL;
    else
        Py_XINCREF((PyObject *)of);
    UNLOCK_OBJECT();
    if (!of) return;
    LOCK_OBJECT((PyObject *)of);
    if (counted && self->generation == of->generation) of->loops--;
    UNLOCK_OBJECT();
    Py_DECREF((PyObject *)of);
}

/* The library decides whether the loop begins a pass: readers/loop.go. */
static PyObject *begin_loop(reader *of, int current) {
    if (reader_await_resets(of) < 0) return NULL;
    if (reader_enter(of) < 0) return NULL;
    loop *self = PyObject_GC_New(loop, loop_type);
    if (!self) {
        reader_leave(of);
        return NULL;
    }
    self->of = (reader *)Py_NewRef((PyObject *)of);
    self->loop = 0;
    LOCK_OBJECT((PyObject *)of);
    self->counted = current || of->loops == 0 || forked;
    if (self->counted) {
        if (!current) of->generation++;
        self->generation = of->generation;
        of->loops++;
    }
    UNLOCK_OBJECT();
    PyObject_GC_Track((PyObject *)self);
    if (!self->counted) {
        reader_leave(of);
        Py_DECREF((PyObject *)self);
        return raise_named("StateError", -1,
                           "another loop over this reader is under way: loops that share a pass go over "
                           "reader.current_pass(); end that loop, or reset() the reader, to begin another");
    }
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_begin_loop(of->handle, (uint8_t)current, &self->loop, &err);
    Py_END_ALLOW_THREADS reader_leave(of);
    if (status == PF_OK) return (PyObject *)self;
    uncount(self, 0);
    reader_raise(of, status, &err);
    Py_DECREF((PyObject *)self);
    return NULL;
}

PyObject *loop_begin(PyObject *self) { return begin_loop((reader *)self, 0); }

PyObject *loop_join(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count, PyObject *keywords) {
    return arguments_none("Reader.current_pass", count, keywords) < 0 ? NULL : begin_loop((reader *)self, 1);
}

static PyObject *loop_next(PyObject *self_) {
    loop *self = (loop *)self_;
    reader *of; /* owned: another thread may end this loop meanwhile */
    LOCK_OBJECT(self_);
    of = self->of;
    Py_XINCREF((PyObject *)of);
    UNLOCK_OBJECT();
    if (!of) return NULL;
    int end = 0;
    PyObject *tuple = NULL;
    if (reader_await_resets(of) == 0) {
        int over;
        LOCK_OBJECT((PyObject *)of);
        over = self->generation != of->generation;
        UNLOCK_OBJECT();
        if (over && !atomic_load(&of->closed))
            raise_named("Cancelled", -1, "the reader was reset: the pass of this loop is over");
        else
            tuple = reader_next(of, self->loop, NULL, &end);
    }
    if (!tuple) uncount(self, end);
    Py_DECREF((PyObject *)of);
    return tuple;
}

static int loop_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)((loop *)self)->of);
    return 0;
}

static int loop_clear(PyObject *self_) {
    uncount((loop *)self_, 1);
    return 0;
}

static void loop_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    loop_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, loop_dealloc},
    {Py_tp_traverse, loop_traverse},
    {Py_tp_clear, loop_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, loop_next},
    {Py_tp_doc, "A loop over a pass of a reader."},
    {0, NULL},
};
static PyType_Spec spec = {"pyfeed._native.Loop", sizeof(loop), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int loop_init(PyObject *module) { return add_type(module, &spec, &loop_type); }

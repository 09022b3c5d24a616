/* Tuples that are results: arrays over memory of the library. The last array that dies releases the tuple. */
#include "native.h"

typedef struct {
    PyObject ob_base;
    pf_tuple tuple;
} tuple_owner;

static PyTypeObject *memory_type;
static PyObject *lod_tensor_wrap;

/* The tuple that was dropped last, if it is small. The next pop releases it in the same call, which saves a call.
 * Guarded by module_lock. */
static pf_tuple deferred = PF_TUPLE_INIT;

static void defer_release(pf_tuple *tuple) {
    uint64_t bytes = 0;
    int ours = 1;
    for (uint32_t i = 0; i < tuple->num_slots; i++) {
        bytes += tuple->slots[i].nbytes;
        ours = ours && !(tuple->slots[i].flags & PF_READ_ONLY);
    }
    if (ours && bytes <= SMALL_COPY_BYTES) {
        module_lock();
        int deferred_here = deferred.loan == 0;
        if (deferred_here) deferred = *tuple;
        module_unlock();
        if (deferred_here) return;
    }
    int before = lent_suspend_drain(); /* it may hold the last reference to memory that a producer lent */
    pf_tuple_release(tuple);
    lent_resume_drain(before);
}

pf_tuple tuple_begin(void) {
    module_lock();
    pf_tuple tuple = deferred;
    deferred = (pf_tuple)PF_TUPLE_INIT;
    module_unlock();
    return tuple;
}

void tuple_flush(void) {
    pf_tuple tuple = tuple_begin();
    pf_tuple_release(&tuple);
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    defer_release(&((tuple_owner *)self)->tuple);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_doc, "Owns a tuple of the library: the base object of its arrays."},
    {0, NULL},
};
static PyType_Spec memory_spec = {"pyfeed._native.Memory", sizeof(tuple_owner), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

static PyObject *over(PyObject *base, PyArray_Descr *descr, int rank, const int64_t *dims, void *data,
                      int writable) {
    if (!descr) return NULL;
    PyObject *a = PyArray_NewFromDescr(&PyArray_Type, descr, rank, (const npy_intp *)dims, NULL, data,
                                       writable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO, NULL);
    if (!a) {
        if (PyErr_ExceptionMatches(PyExc_ValueError)) { /* such as shape (0, 2^62) */
            PyErr_Clear();
            raise_named("ShapeError", -1,
                        "expected a shape that NumPy supports, found one with too large dimensions");
        }
        return NULL;
    }
    Py_INCREF(base);
    if (PyArray_SetBaseObject((PyArrayObject *)a, base) < 0) Py_CLEAR(a);
    return a;
}

static PyObject *with_lod(PyObject *base, const pf_tensor *t, PyObject *data) {
    PyObject *levels = PyTuple_New(t->lod_levels);
    for (uint32_t i = 0; levels && i < t->lod_levels; i++) {
        int64_t n = (int64_t)t->lod[i].count;
        PyObject *level = over(base, PyArray_DescrFromType(NPY_INT64), 1, &n, (void *)t->lod[i].offsets, 0);
        if (!level || PyTuple_SetItem(levels, i, level) < 0) Py_CLEAR(levels);
    }
    PyObject *tensor = levels ? PyObject_CallFunctionObjArgs(lod_tensor_wrap, data, levels, NULL) : NULL;
    Py_XDECREF(levels);
    return tensor;
}

static PyObject *give_to_host(pf_tuple *tuple, int writable) {
    tuple_owner *base = PyObject_New(tuple_owner, memory_type);
    if (!base) {
        pf_tuple_release(tuple);
        return NULL;
    }
    base->tuple = *tuple;
    *tuple = (pf_tuple)PF_TUPLE_INIT;
    uint32_t n = base->tuple.num_slots;
    PyObject *out = PyTuple_New(n);
    for (uint32_t i = 0; out && i < n; i++) {
        const pf_tensor *t = &base->tuple.slots[i];
        if (t->place.kind == PF_CUDA) continue;
        PyObject *a = over((PyObject *)base, dtype_descr(t->dtype), t->rank, t->dims, t->data,
                           writable && !(t->flags & PF_READ_ONLY));
        if (a && t->lod_levels) {
            PyObject *tensor = with_lod((PyObject *)base, t, a);
            Py_DECREF(a);
            a = tensor;
        }
        if (!a || PyTuple_SetItem(out, i, a) < 0) Py_CLEAR(out);
    }
    Py_DECREF((PyObject *)base);
    return out;
}

PyObject *tuple_to_python(pf_tuple *tuple, int writable) {
    uint32_t n = tuple->num_slots, at_device = 0;
    for (uint32_t i = 0; i < n; i++) at_device += tuple->slots[i].place.kind == PF_CUDA;
    if (at_device == 0) return give_to_host(tuple, writable);
    pf_tuple shared = PF_TUPLE_INIT; /* the ndarrays own a loan of their own */
    pf_error err = PF_ERROR_INIT;
    pf_status status = at_device < n ? pf_tuple_share(tuple, &shared, &err) : PF_OK;
    if (status) {
        pf_tuple_release(tuple);
        return raise_error(status, &err);
    }
    device_tuple *d = device_tuple_new(tuple);
    PyObject *out = !d ? NULL : at_device < n ? give_to_host(&shared, writable) : PyTuple_New(n);
    for (uint32_t i = 0; out && i < n; i++) {
        if (d->tuple.slots[i].place.kind != PF_CUDA) continue;
        PyObject *a = device_array_new(d, i, writable);
        if (!a || PyTuple_SetItem(out, i, a) < 0) Py_CLEAR(out);
    }
    device_tuple_drop(d);
    pf_tuple_release(&shared);
    return out;
}

int tuples_init(PyObject *module) {
    PyObject *class = import_attribute("pyfeed._lod", "LoDTensor");
    lod_tensor_wrap = class ? PyObject_GetAttrString(class, "_wrap") : NULL;
    Py_XDECREF(class);
    return lod_tensor_wrap ? add_type(module, &memory_spec, &memory_type) : -1;
}

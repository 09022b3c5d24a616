/* pyfeed.cuda.DeviceArray: a slot of a tuple in the memory of a device. */
#include <stdlib.h>
#include <string.h>

#include "dlpack.h"
#include "docs.h"
#include "native.h"

static PyTypeObject *array_type;
static PyObject *make_place; /* the class pyfeed._place.Place */

/* ---- The tuple ---- */

static device_tuple *retain(device_tuple *d) {
    atomic_fetch_add_explicit(&d->owners, 1, memory_order_relaxed);
    return d;
}

void device_tuple_drop(device_tuple *d) {
    if (!d || atomic_fetch_sub_explicit(&d->owners, 1, memory_order_acq_rel) != 1) return;
    pf_tuple_release(&d->tuple);
    free(d);
}

device_tuple *device_tuple_new(pf_tuple *tuple) {
    device_tuple *d = malloc(sizeof *d);
    if (!d) {
        pf_tuple_release(tuple);
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&d->owners, 1);
    d->tuple = *tuple;
    *tuple = (pf_tuple)PF_TUPLE_INIT;
    return d;
}

/* ---- The array ---- */

typedef struct {
    PyObject ob_base;
    device_tuple *tuple; /* NULL: released; the fields below stay valid */
    uint32_t slot;
    pf_dtype dtype;
    pf_place place;
    uint32_t flags;
    int32_t rank;
    void *data;
    uint64_t nbytes;
    int64_t dims[PF_MAX_RANK];
    PyObject *lod; /* a tuple of ndarrays in host memory */
} array;

static PyObject *copy_level(const pf_lod_level *level) {
    npy_intp n = (npy_intp)level->count;
    PyObject *a = PyArray_SimpleNew(1, &n, NPY_INT64);
    if (!a) return NULL;
    memcpy(PyArray_DATA((PyArrayObject *)a), level->offsets, (size_t)n * sizeof *level->offsets);
    PyArray_CLEARFLAGS((PyArrayObject *)a, NPY_ARRAY_WRITEABLE);
    return a;
}

PyObject *device_array_new(device_tuple *d, uint32_t slot, int writable) {
    const pf_tensor *t = &d->tuple.slots[slot];
    PyObject *lod = PyTuple_New(t->lod_levels);
    for (uint32_t i = 0; lod && i < t->lod_levels; i++) {
        PyObject *level = copy_level(&t->lod[i]);
        if (!level || PyTuple_SetItem(lod, i, level) < 0) Py_CLEAR(lod);
    }
    array *self = lod ? PyObject_New(array, array_type) : NULL;
    if (!self) {
        Py_XDECREF(lod);
        return NULL;
    }
    self->tuple = retain(d);
    self->slot = slot;
    self->dtype = t->dtype;
    self->place = t->place;
    self->flags = t->flags | (writable ? 0 : PF_READ_ONLY);
    self->rank = t->rank;
    self->data = t->data;
    self->nbytes = t->nbytes;
    memcpy(self->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
    self->lod = lod;
    return (PyObject *)self;
}

static void array_dealloc(PyObject *self_) {
    array *self = (array *)self_;
    PyTypeObject *type = Py_TYPE(self_);
    device_tuple_drop(self->tuple);
    Py_DECREF(self->lod);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

int device_array_refuse(PyObject *object, Py_ssize_t slot) {
    if (Py_TYPE(object) != array_type) return 0;
    raise_named("UnsupportedError", slot,
                "slot %zd: place: expected memory of the host, found a DeviceArray at CUDAPlace(%d): pass "
                "what its numpy() returns",
                slot, ((array *)object)->place.device);
    return 1;
}

/* Returns a reference to the tuple, which the caller drops. Other threads may release the array meanwhile. Returns NULL
 * with a StateError set if the array is released. */
static device_tuple *tuple_of(array *self) {
    device_tuple *d;
    LOCK_OBJECT((PyObject *)self);
    d = self->tuple ? retain(self->tuple) : NULL;
    UNLOCK_OBJECT();
    if (!d) raise_named("StateError", -1, "the array was released");
    return d;
}

static int alive(array *self) {
    device_tuple *d = tuple_of(self);
    device_tuple_drop(d);
    return d != NULL;
}

/* Parses a stream: a number, or an object with the protocol of the CUDA packages for Python. */
static int stream_parse(PyObject *stream, int64_t least, int64_t *number) {
    PyObject *protocol = PyObject_GetAttrString((PyObject *)Py_TYPE(stream), "__cuda_stream__");
    if (!protocol) {
        PyErr_Clear();
        if (argument_integer("stream", stream, INT64_MIN, number) < 0) return -1;
    } else {
        long long version;
        PyObject *pair = PyObject_CallFunctionObjArgs(protocol, stream, NULL);
        Py_DECREF(protocol);
        PyObject *tuple = pair ? PySequence_Tuple(pair) : NULL;
        int parsed = tuple && PyArg_ParseTuple(tuple, "LL:__cuda_stream__", &version, number);
        if (!parsed && pair && argument_is_no_number())
            argument_refuse("stream", "a __cuda_stream__() that returns (version, number)", pair);
        Py_XDECREF(pair);
        Py_XDECREF(tuple);
        if (!parsed) return -1;
    }
    if (PyErr_Occurred()) return -1;
    if (*number < least) {
        raise_named("InvalidArgument", -1,
                    "stream: expected a CUDA stream's number, at least %lld, found %lld", (long long)least,
                    (long long)*number);
        return -1;
    }
    return 0;
}

static PyObject *array_use(array *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"stream"};
    static const signature use = {"DeviceArray.use", names, 1, 1, 1, 1};
    PyObject *stream;
    int64_t number;
    if (arguments_bind(&use, args, count, keywords, &stream) < 0) return NULL;
    if (!alive(self) || stream_parse(stream, 0, &number) < 0) return NULL;
    device_tuple *d = tuple_of(self); /* the user's stream object may have run any code, such as release() */
    if (!d) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_tuple_use(&d->tuple, (uint64_t)number, &err);
    device_tuple_drop(d);
    return none_or_error(status, &err);
}

/* If other owners of the tuple remain, they may submit more work to the same stream. So the stream is then only noted,
 * and the end of its work is recorded when the last owner is gone. */
static PyObject *array_release(array *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"stream"};
    static const signature release = {"DeviceArray.release", names, 1, 1, 0, 0};
    PyObject *stream;
    int64_t number = 0;
    if (arguments_bind(&release, args, count, keywords, &stream) < 0) return NULL;
    if (!stream) stream = Py_None;
    if (stream != Py_None && stream_parse(stream, 0, &number) < 0) return NULL;
    device_tuple *d;
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_OK;
    LOCK_OBJECT((PyObject *)self);
    d = self->tuple;
    if (d && stream != Py_None) {
        int last = atomic_load_explicit(&d->owners, memory_order_acquire) == 1;
        status = last ? pf_tuple_release_on(&d->tuple, (uint64_t)number, &err)
                      : pf_tuple_use(&d->tuple, (uint64_t)number, &err);
    }
    if (status == PF_OK) self->tuple = NULL;
    UNLOCK_OBJECT();
    if (status) return raise_error(status, &err);
    device_tuple_drop(d);
    Py_RETURN_NONE;
}

/* Waits without the GIL. */
static int wait_for_copy(device_tuple *d, PyObject *timeout) {
    waiting w;
    if (waiting_parse(&w, timeout) < 0) return -1;
    pf_error err = PF_ERROR_INIT;
    waiting_begin(&w);
    pf_status status = pf_tuple_synchronize(&d->tuple, &w.wait, &err);
    waiting_end(&w);
    PyObject *none = none_or_error(status, &err);
    Py_XDECREF(none);
    return none ? 0 : -1;
}

static PyObject *array_synchronize(array *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"timeout"};
    static const signature synchronize = {"DeviceArray.synchronize", names, 1, 1, 0, 0};
    PyObject *timeout;
    if (arguments_bind(&synchronize, args, count, keywords, &timeout) < 0) return NULL;
    device_tuple *d = tuple_of(self);
    int failed = !d || wait_for_copy(d, timeout) < 0;
    device_tuple_drop(d);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *array_numpy(array *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                             PyObject *keywords) {
    if (arguments_none("DeviceArray.numpy", count, keywords) < 0) return NULL;
    device_tuple *d = tuple_of(self);
    PyArray_Descr *descr = d ? dtype_descr(self->dtype) : NULL;
    PyObject *out = descr ? PyArray_NewFromDescr(&PyArray_Type, descr, self->rank,
                                                 (const npy_intp *)self->dims, NULL, NULL, 0, NULL)
                          : NULL;
    if (!out) {
        device_tuple_drop(d);
        return NULL;
    }
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_OK;
    void *to = PyArray_DATA((PyArrayObject *)out);
    int waited = wait_for_copy(d, NULL);
    if (waited == 0) {
        Py_BEGIN_ALLOW_THREADS status = pf_tuple_download(&d->tuple, self->slot, to, self->nbytes, &err);
        Py_END_ALLOW_THREADS
    }
    device_tuple_drop(d);
    if (waited < 0 || status) Py_CLEAR(out);
    return status ? raise_error(status, &err) : out;
}

/* np.asarray calls this. Without it, np.asarray would make an array of one object. */
static PyObject *array_array(array *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    return PyErr_Format(PyExc_TypeError,
                        "a DeviceArray at CUDAPlace(%d) is not copied to the host unasked: call its numpy()",
                        self->place.device);
}

/* ---- DLPack ---- */

static int is_emulated(const array *self) { return (self->flags & PF_HOST_EMULATED) != 0; }
static dl_device device_of(const array *self) {
    return is_emulated(self) ? (dl_device){DL_CPU, 0} : (dl_device){DL_CUDA, self->place.device};
}

static uint8_t dl_code(pf_dtype dtype) {
    switch (dtype) {
        case PF_BOOL:
            return DL_BOOL;
        case PF_INT8:
        case PF_INT16:
        case PF_INT32:
        case PF_INT64:
            return DL_INT;
        case PF_UINT8:
        case PF_UINT16:
        case PF_UINT32:
        case PF_UINT64:
            return DL_UINT;
        case PF_BFLOAT16:
            return DL_BFLOAT;
        case PF_COMPLEX64:
        case PF_COMPLEX128:
            return DL_COMPLEX;
    }
    return DL_FLOAT;
}

/* An array that was exported to another library. */
typedef struct {
    union {
        dl_managed plain;
        dl_versioned versioned;
    } managed;
    device_tuple *tuple;
    int64_t shape[PF_MAX_RANK], strides[PF_MAX_RANK];
} exported;

static void exported_drop(exported *e) {
    device_tuple_drop(e->tuple);
    free(e);
}
static void delete_plain(dl_managed *m) { exported_drop(m->context); }
static void delete_versioned(dl_versioned *m) { exported_drop(m->context); }

static const char plain_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

/* The destructor of a capsule: releases the tensor if no library has taken it over. */
static void capsule_drop(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, plain_name)) {
        dl_managed *m = PyCapsule_GetPointer(capsule, plain_name);
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, versioned_name)) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, versioned_name);
        m->deleter(m);
    }
}

/* Takes over a reference to the tuple. */
static PyObject *export_array(const array *self, device_tuple *d, int versioned) {
    exported *e = malloc(sizeof *e);
    if (!e) {
        device_tuple_drop(d);
        return PyErr_NoMemory();
    }
    int64_t step = 1;
    for (int32_t i = self->rank - 1; i >= 0; i--) {
        e->shape[i] = self->dims[i];
        e->strides[i] = step;
        step *= self->dims[i];
    }
    const dl_tensor tensor = {
        .data = self->data,
        .device = device_of(self),
        .ndim = self->rank,
        .code = dl_code(self->dtype),
        .bits = (uint8_t)(8 * pf_dtype_size(self->dtype)),
        .lanes = 1,
        .shape = e->shape,
        .strides = e->strides,
    };
    if (versioned)
        e->managed.versioned =
            (dl_versioned){1, 0, e, delete_versioned, self->flags & PF_READ_ONLY ? DL_READ_ONLY : 0, tensor};
    else
        e->managed.plain = (dl_managed){tensor, e, delete_plain};
    e->tuple = d;
    PyObject *capsule = PyCapsule_New(&e->managed, versioned ? versioned_name : plain_name, capsule_drop);
    if (!capsule) exported_drop(e);
    return capsule;
}

static int pair_parse(const char *name, PyObject *value, long *first, long *second) {
    PyObject *pair = PySequence_Tuple(value);
    int two = pair && PyTuple_Size(pair) == 2;
    PyObject *one = two ? PyNumber_Index(PyTuple_GetItem(pair, 0)) : NULL;
    PyObject *other = one ? PyNumber_Index(PyTuple_GetItem(pair, 1)) : NULL;
    if (other) {
        *first = PyLong_AsLong(one);
        *second = PyLong_AsLong(other);
    } else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        argument_refuse(name, "two integers", value);
    }
    Py_XDECREF(one);
    Py_XDECREF(other);
    Py_XDECREF(pair);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *array_dlpack(array *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *dl_device_ = Py_None, *copy = Py_None;
    int64_t number = 1; /* the legacy default stream, as the protocol defines */
    long major = 0, minor, type, id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version,
                                     &dl_device_, &copy) ||
        (stream != Py_None && stream_parse(stream, -1, &number) < 0) ||
        (max_version != Py_None && pair_parse("max_version", max_version, &major, &minor) < 0))
        return NULL;
    if (number == 0)
        return raise_named(
            "InvalidArgument", -1,
            "stream: expected 1 for the legacy default stream or 2 for the thread's own, found 0, "
            "which may mean either");
    if (dl_device_ != Py_None) {
        if (pair_parse("dl_device", dl_device_, &type, &id) < 0) return NULL;
        dl_device own = device_of(self);
        if (type != own.type || id != own.id)
            return PyErr_Format(
                PyExc_BufferError,
                "dl_device: expected (%d, %d), where the array is, found (%ld, %ld): its numpy() is "
                "a copy on the host",
                (int)own.type, (int)own.id, type, id);
    }
    int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (copies < 0) return NULL;
    if (copies) return PyErr_Format(PyExc_BufferError, "copy: expected None or False: a DeviceArray is lent");
    device_tuple *d = tuple_of(self);
    if (!d) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = number < 0 ? PF_OK : pf_tuple_use(&d->tuple, (uint64_t)number, &err);
    if (status == PF_OK) return export_array(self, d, major >= 1);
    device_tuple_drop(d);
    return raise_error(status, &err);
}

static PyObject *array_dlpack_device(array *self, PyObject *Py_UNUSED(unused)) {
    dl_device device = device_of(self);
    return Py_BuildValue("(ii)", (int)device.type, (int)device.id);
}

/* ---- __cuda_array_interface__, version 3 ---- */

static PyObject *shape_of(const array *self) {
    PyObject *shape = PyTuple_New(self->rank);
    for (int32_t i = 0; shape && i < self->rank; i++) {
        PyObject *n = PyLong_FromLongLong(self->dims[i]);
        if (!n || PyTuple_SetItem(shape, i, n) < 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *array_interface(array *self, void *Py_UNUSED(unused)) {
    if (is_emulated(self))
        return PyErr_Format(
            PyExc_AttributeError,
            "__cuda_array_interface__: expected a device's memory, found that of its host emulation");
    if (self->dtype == PF_BFLOAT16)
        return PyErr_Format(PyExc_AttributeError,
                            "__cuda_array_interface__ cannot describe bfloat16: use __dlpack__");
    device_tuple *d = tuple_of(self);
    if (!d) return NULL;
    int failed = wait_for_copy(d, NULL) < 0;
    /* The protocol does not tell which stream will use the array. Most likely the legacy default stream waits for that
     * stream, so this notes a use on the legacy default stream. During a graph capture that fails, which is ignored. */
    if (!failed) pf_tuple_use(&d->tuple, 1, NULL);
    device_tuple_drop(d);
    if (failed || !alive(self)) return NULL; /* the address is valid as long as the array */
    PyObject *descr = (PyObject *)dtype_descr(self->dtype);
    PyObject *type = descr ? PyObject_GetAttrString(descr, "str") : NULL;
    PyObject *shape = type ? shape_of(self) : NULL;
    Py_XDECREF(descr);
    if (!shape) {
        Py_XDECREF(type);
        return NULL;
    }
    return Py_BuildValue("{s:N,s:N,s:(KN),s:O,s:O,s:i}", "shape", shape, "typestr", type, "data",
                         (unsigned long long)(self->nbytes ? (uintptr_t)self->data : 0),
                         PyBool_FromLong((self->flags & PF_READ_ONLY) != 0), "strides", Py_None, "stream",
                         Py_None, "version", 3);
}

/* ---- Attributes ---- */

static PyObject *array_shape(array *self, void *Py_UNUSED(unused)) { return shape_of(self); }
static PyObject *array_dtype(array *self, void *Py_UNUSED(unused)) {
    return (PyObject *)dtype_descr(self->dtype);
}
static PyObject *array_ndim(array *self, void *Py_UNUSED(unused)) { return PyLong_FromLong(self->rank); }
static PyObject *array_itemsize(array *self, void *Py_UNUSED(unused)) {
    return PyLong_FromSize_t(pf_dtype_size(self->dtype));
}
static PyObject *array_size(array *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->nbytes / pf_dtype_size(self->dtype));
}
static PyObject *array_nbytes(array *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->nbytes);
}
static PyObject *array_place(array *self, void *Py_UNUSED(unused)) {
    return PyObject_CallFunction(make_place, "ii", (int)self->place.kind, (int)self->place.device);
}
static PyObject *array_lod(array *self, void *Py_UNUSED(unused)) { return Py_NewRef(self->lod); }
static PyObject *array_pointer(array *self, void *Py_UNUSED(unused)) {
    return alive(self) ? PyLong_FromVoidPtr(self->data) : NULL;
}

static Py_ssize_t array_length(array *self) {
    if (self->rank > 0) return (Py_ssize_t)self->dims[0];
    PyErr_SetString(PyExc_TypeError, "len() of a DeviceArray without dimensions");
    return -1;
}

static int array_truth(array *self) {
    PyErr_Format(PyExc_TypeError, "a DeviceArray at CUDAPlace(%d) is not true or false: call its numpy()",
                 self->place.device);
    return -1;
}

static PyObject *array_repr(array *self) {
    PyObject *shape = shape_of(self);
    PyObject *lod =
        PyTuple_Size(self->lod) ? PyUnicode_FromFormat(", lod=%R", self->lod) : PyUnicode_FromString("");
    PyObject *text = shape && lod
                         ? PyUnicode_FromFormat("DeviceArray(shape=%R, dtype=%s, place=CUDAPlace(%d)%U%s)",
                                                shape, pf_dtype_name(self->dtype), self->place.device, lod,
                                                self->tuple ? "" : ", released")
                         : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(lod);
    return text;
}

static PyMethodDef methods[] = {
    {"use", (PyCFunction)(void *)array_use, METH_FASTCALL | METH_KEYWORDS, USE_DOC},
    {"release", (PyCFunction)(void *)array_release, METH_FASTCALL | METH_KEYWORDS, RELEASE_DOC},
    {"synchronize", (PyCFunction)(void *)array_synchronize, METH_FASTCALL | METH_KEYWORDS, SYNCHRONIZE_DOC},
    {"numpy", (PyCFunction)(void *)array_numpy, METH_FASTCALL | METH_KEYWORDS, NUMPY_DOC},
    {"__array__", (PyCFunction)(void *)array_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack__", (PyCFunction)(void *)array_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", (PyCFunction)array_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"shape", (getter)array_shape, NULL, "The sizes of the dimensions.", NULL},
    {"dtype", (getter)array_dtype, NULL, "The NumPy dtype of the elements.", NULL},
    {"ndim", (getter)array_ndim, NULL, "The number of dimensions.", NULL},
    {"size", (getter)array_size, NULL, "The number of elements.", NULL},
    {"itemsize", (getter)array_itemsize, NULL, "The size of one element in bytes.", NULL},
    {"nbytes", (getter)array_nbytes, NULL, "The size of all elements in bytes.", NULL},
    {"place", (getter)array_place, NULL, "The `CUDAPlace` whose memory the array is in.", NULL},
    {"lod", (getter)array_lod, NULL, "The ragged offsets (LoD), outermost level first, on the host.", NULL},
    {"pointer", (getter)array_pointer, NULL, "The device address of the first element.", NULL},
    {"__cuda_array_interface__", (getter)array_interface, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, array_dealloc}, {Py_tp_methods, methods},
    {Py_tp_getset, getset},         {Py_mp_length, array_length},
    {Py_nb_bool, array_truth},      {Py_tp_repr, array_repr},
    {Py_tp_doc, DEVICE_ARRAY_DOC},  {0, NULL},
};
static PyType_Spec spec = {"pyfeed.cuda.DeviceArray", sizeof(array), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int device_array_init(PyObject *module) {
    make_place = import_attribute("pyfeed._place", "Place");
    return make_place ? add_type(module, &spec, &array_type) : -1;
}

/* ---- The driver: pyfeed.cuda ---- */

/* _cuda_reason(): the reason why no device can be fed, or None */
PyObject *cuda_reason(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    uint8_t available;
    char *reason = NULL;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_cuda_available(&available, &reason, &err);
    Py_END_ALLOW_THREADS if (status) return raise_error(status, &err);
    if (available) Py_RETURN_NONE;
    return take_text(reason);
}

PyObject *cuda_device_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    uint32_t count;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_cuda_device_count(&count, &err);
    Py_END_ALLOW_THREADS return status ? raise_error(status, &err) : PyLong_FromUnsignedLong(count);
}

/* _cuda_device(device): its name, and the free and the total bytes of its memory */
PyObject *cuda_device(PyObject *Py_UNUSED(module), PyObject *args) {
    long long device;
    if (!PyArg_ParseTuple(args, "L", &device)) return NULL;
    if (device < 0 || device > INT32_MAX)
        return raise_named("InvalidArgument", -1, "device: expected a number from 0 on, found %lld", device);
    pf_cuda_device_info info = PF_CUDA_DEVICE_INFO_INIT;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_cuda_device_stats((uint32_t)device, &info, &err);
    Py_END_ALLOW_THREADS return status ? raise_error(status, &err)
                                       : Py_BuildValue("sKK", info.name, info.free_bytes, info.total_bytes);
}

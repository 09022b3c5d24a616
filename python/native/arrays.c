/* Arrays that are arguments: NumPy arrays, and, by way of NumPy, objects with the buffer protocol or
 * __array_interface__. DLPack is read here, since NumPy refuses its bfloat16. Python's numbers, text and bytes take the
 * dtype of their slot. */
#include <stdatomic.h>
#include <string.h>

#include "dlpack.h"
#include "native.h"

/* The module of LoDTensor. pyfeed_worker compiles this file too and has a LoDTensor of its own. */
#ifndef PYFEED_LOD_MODULE
#define PYFEED_LOD_MODULE "pyfeed._lod"
#endif

static PyObject *lod_tensor;              /* the class */
static _Atomic(PyArray_Descr *) bfloat16; /* set on first use */

/* ---- DLPack ---- */

static pf_dtype dl_dtype(const dl_tensor *t) {
    if (t->lanes != 1) return PF_DTYPE_ANY;
    switch (t->code << 8 | t->bits) {
        case DL_BOOL << 8 | 8:
            return PF_BOOL;
        case DL_INT << 8 | 8:
            return PF_INT8;
        case DL_INT << 8 | 16:
            return PF_INT16;
        case DL_INT << 8 | 32:
            return PF_INT32;
        case DL_INT << 8 | 64:
            return PF_INT64;
        case DL_UINT << 8 | 8:
            return PF_UINT8;
        case DL_UINT << 8 | 16:
            return PF_UINT16;
        case DL_UINT << 8 | 32:
            return PF_UINT32;
        case DL_UINT << 8 | 64:
            return PF_UINT64;
        case DL_FLOAT << 8 | 16:
            return PF_FLOAT16;
        case DL_BFLOAT << 8 | 16:
            return PF_BFLOAT16;
        case DL_FLOAT << 8 | 32:
            return PF_FLOAT32;
        case DL_FLOAT << 8 | 64:
            return PF_FLOAT64;
        case DL_COMPLEX << 8 | 64:
            return PF_COMPLEX64;
        case DL_COMPLEX << 8 | 128:
            return PF_COMPLEX128;
    }
    return PF_DTYPE_ANY;
}

static void dl_drop(PyObject *capsule) {
    dl_managed *m = PyCapsule_GetPointer(capsule, "used_dltensor");
    if (m && m->deleter) m->deleter(m);
}

/* `unit` is the unit of the strides, in bytes. The library refuses a rank above PF_MAX_RANK. */
static void set_layout(incoming *in, Py_ssize_t i, int rank, const int64_t *dims, const int64_t *strides,
                       int64_t unit) {
    layout *to = &in->layouts[i];
    for (int j = 0; j < rank && j < PF_MAX_RANK; j++) {
        to->dims[j] = dims[j];
        if (strides) to->strides[j] = strides[j] * unit;
    }
    in->tensors[i].rank = rank;
    in->tensors[i].dims = to->dims;
    in->tensors[i].strides = strides ? to->strides : NULL;
}

static int read_dlpack(incoming *in, Py_ssize_t i, PyObject *object) {
    pf_tensor *out = &in->tensors[i];
    PyObject *capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
    if (!capsule) return -1;
    dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
    if (!m || PyCapsule_SetName(capsule, "used_dltensor") < 0) {
        Py_DECREF(capsule);
        return -1;
    }
    in->held[i].capsule = capsule; /* from here on dl_drop has to call its deleter */
    const dl_tensor *t = &m->tensor;
    if (t->device.type != DL_CPU && t->device.type != DL_CUDA_HOST) {
        raise_named("UnsupportedError", i,
                    "slot %zd: place: expected memory of the host, found DLPack device %d", i,
                    (int)t->device.type);
        return -1;
    }
    out->dtype = dl_dtype(t);
    if (out->dtype == PF_DTYPE_ANY) {
        raise_named("DTypeError", i,
                    "slot %zd: dtype: DLPack type code %d of %d bits and %d lanes is not supported", i,
                    (int)t->code, (int)t->bits, (int)t->lanes);
        return -1;
    }
    out->data = (char *)t->data + t->byte_offset;
    set_layout(in, i, t->ndim, t->shape, t->strides, (int64_t)pf_dtype_size(out->dtype));
    return 0;
}

/* ---- NumPy ---- */

static const int npy_types[] = {
    [PF_DTYPE_ANY] = NPY_NOTYPE,      [PF_BOOL] = NPY_BOOL,       [PF_INT8] = NPY_INT8,
    [PF_INT16] = NPY_INT16,           [PF_INT32] = NPY_INT32,     [PF_INT64] = NPY_INT64,
    [PF_UINT8] = NPY_UINT8,           [PF_UINT16] = NPY_UINT16,   [PF_UINT32] = NPY_UINT32,
    [PF_UINT64] = NPY_UINT64,         [PF_FLOAT16] = NPY_FLOAT16, [PF_BFLOAT16] = NPY_VOID,
    [PF_FLOAT32] = NPY_FLOAT32,       [PF_FLOAT64] = NPY_FLOAT64, [PF_COMPLEX64] = NPY_COMPLEX64,
    [PF_COMPLEX128] = NPY_COMPLEX128,
};

/* Whether a dtype is bfloat16: that of ml_dtypes, which NumPy gives a user-defined type number, or V2, NumPy's dtype
 * for two bytes of unknown type. */
static int is_bfloat16(PyArray_Descr *d) {
    if (d->type_num == NPY_VOID)
        return PyDataType_ELSIZE(d) == 2 && !PyDataType_HASFIELDS(d) && !PyDataType_HASSUBARRAY(d);
    if (d->type_num < NPY_USERDEF) return 0;
    PyObject *name = PyObject_GetAttrString((PyObject *)d, "name");
    int yes = name && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    Py_XDECREF(name);
    PyErr_Clear();
    return yes;
}

static pf_dtype descr_dtype(PyArray_Descr *d) {
    switch (d->type_num) {
        case NPY_BOOL:
            return PF_BOOL;
        case NPY_BYTE:
            return PF_INT8;
        case NPY_UBYTE:
            return PF_UINT8;
        case NPY_SHORT:
            return PF_INT16;
        case NPY_USHORT:
            return PF_UINT16;
        case NPY_INT:
            return PF_INT32;
        case NPY_UINT:
            return PF_UINT32;
        case NPY_LONG:
            return sizeof(long) == 8 ? PF_INT64 : PF_INT32;
        case NPY_ULONG:
            return sizeof(long) == 8 ? PF_UINT64 : PF_UINT32;
        case NPY_LONGLONG:
            return PF_INT64;
        case NPY_ULONGLONG:
            return PF_UINT64;
        case NPY_HALF:
            return PF_FLOAT16;
        case NPY_FLOAT:
            return PF_FLOAT32;
        case NPY_DOUBLE:
            return PF_FLOAT64;
        case NPY_CFLOAT:
            return PF_COMPLEX64;
        case NPY_CDOUBLE:
            return PF_COMPLEX128;
    }
    return is_bfloat16(d) ? PF_BFLOAT16 : PF_DTYPE_ANY;
}

PyArray_Descr *dtype_descr(pf_dtype dtype) {
    if (dtype != PF_BFLOAT16) return PyArray_DescrFromType(npy_types[dtype]);
    PyArray_Descr *known = atomic_load_explicit(&bfloat16, memory_order_acquire);
    if (!known) {
        PyObject *module = PyImport_ImportModule("ml_dtypes");
        PyObject *type = module ? PyObject_GetAttrString(module, "bfloat16") : PyUnicode_FromString("V2");
        if (!module) PyErr_Clear();
        if (type) PyArray_DescrConverter(type, &known);
        Py_XDECREF(type);
        Py_XDECREF(module);
        PyArray_Descr *first = NULL;
        if (known && !atomic_compare_exchange_strong(&bfloat16, &first, known)) {
            Py_DECREF((PyObject *)known); /* another thread was first */
            known = first;
        }
    }
    Py_XINCREF((PyObject *)known);
    return known;
}

static pf_dtype refuse_dtype(PyObject *found) {
    raise_named("DTypeError", -1,
                "dtype: expected bool, an integer, float, bfloat16 or complex in native byte order, found %R",
                found);
    return -1;
}

pf_dtype dtype_parse(PyObject *dtype) {
    if (dtype == Py_None) return PF_DTYPE_ANY;
    if (PyUnicode_Check(dtype) && PyUnicode_CompareWithASCIIString(dtype, "bfloat16") == 0)
        return PF_BFLOAT16;
    PyArray_Descr *d;
    if (PyArray_DescrConverter(dtype, &d) != NPY_SUCCEED) {
        if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
        PyErr_Clear();
        return refuse_dtype(dtype);
    }
    pf_dtype found = descr_dtype(d);
    if (PyArray_ISNBO(d->byteorder) == 0 || found == PF_DTYPE_ANY) found = refuse_dtype((PyObject *)d);
    Py_DECREF((PyObject *)d);
    return found;
}

static int read_ndarray(incoming *in, Py_ssize_t i, PyArrayObject *a) {
    pf_tensor *out = &in->tensors[i];
    PyArray_Descr *d = PyArray_DESCR(a);
    in->held[i].array = (PyObject *)a;
    out->dtype = descr_dtype(d);
    if (out->dtype == PF_DTYPE_ANY) {
        raise_named("DTypeError", i,
                    "slot %zd: dtype: expected bool, an integer, float, bfloat16 or complex, found %S", i, d);
        return -1;
    }
    if (PyArray_ISBYTESWAPPED(a)) {
        raise_named("ByteOrderError", i,
                    "slot %zd: byte order: expected native, found %S: convert it with "
                    "a.astype(a.dtype.newbyteorder('='))",
                    i, d);
        return -1;
    }
    out->data = PyArray_DATA(a);
    set_layout(in, i, PyArray_NDIM(a), (const int64_t *)PyArray_DIMS(a),
               PyArray_IS_C_CONTIGUOUS(a) ? NULL : (const int64_t *)PyArray_STRIDES(a), 1);
    return 0;
}

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "dims and strides are read as they are");

static int has(PyObject *object, const char *name) {
    PyObject *attribute = PyObject_GetAttrString((PyObject *)Py_TYPE(object), name);
    if (!attribute) PyErr_Clear();
    Py_XDECREF(attribute);
    return attribute != NULL;
}

static int read_array(incoming *in, Py_ssize_t i, PyObject *object, const expected *e);

/* Makes room for the levels of all slots. Returns -1 without memory. */
static int reserve_lod(incoming *in) {
    if (!in->lod) in->lod = PyMem_Calloc((size_t)in->count, sizeof *in->lod);
    if (!in->lod) PyErr_NoMemory();
    return in->lod ? 0 : -1;
}

static int read_lod_tensor(incoming *in, Py_ssize_t i, PyObject *object) {
    PyObject *lod = PyObject_GetAttrString(object, "lod");
    PyObject *levels = lod ? PySequence_Tuple(lod) : NULL;
    Py_XDECREF(lod);
    if (!levels) return -1;
    in->held[i].lod = levels;
    Py_ssize_t n = PyTuple_Size(levels);
    if (n > PF_MAX_LOD_LEVELS) {
        raise_named("ShapeError", i, "slot %zd: LoD: expected at most %d levels, found %zd", i,
                    PF_MAX_LOD_LEVELS, n);
        return -1;
    }
    if (reserve_lod(in) < 0) return -1;
    for (Py_ssize_t j = 0; j < n; j++) {
        PyObject *level = PyTuple_GetItem(levels, j);
        if (!PyArray_Check(level) || PyArray_TYPE((PyArrayObject *)level) != NPY_INT64 ||
            PyArray_NDIM((PyArrayObject *)level) != 1 || !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)level)) {
            raise_named("DTypeError", i,
                        "slot %zd: LoD level %zd: expected a contiguous int64 array, found %R", i, j, level);
            return -1;
        }
        in->lod[i][j].offsets = PyArray_DATA((PyArrayObject *)level);
        in->lod[i][j].count = (uint64_t)PyArray_DIM((PyArrayObject *)level, 0);
    }
    PyObject *data = PyObject_GetAttrString(object, "data");
    int r = data ? PyObject_IsInstance(data, lod_tensor) : -1;
    if (r > 0) {
        raise_named("DTypeError", i,
                    "slot %zd: data: expected an array in the LoDTensor, found another LoDTensor", i);
        r = -1;
    } else if (r == 0) {
        r = read_array(in, i, data, NULL); /* text gets no level beside those of the LoDTensor */
    }
    Py_XDECREF(data);
    in->tensors[i].lod = in->lod[i];
    in->tensors[i].lod_levels = (uint32_t)n;
    return r;
}

/* ---- Python's numbers, text and bytes ---- */

/* The kinds of dtypes, in an order in which each can hold the numbers of the ones before. */
enum { BOOLS, INTEGERS, FLOATS, COMPLEXES };

static int kind_of_dtype(pf_dtype d) {
    if (d == PF_BOOL) return BOOLS;
    if (d == PF_COMPLEX64 || d == PF_COMPLEX128) return COMPLEXES;
    return d == PF_FLOAT16 || d == PF_BFLOAT16 || d == PF_FLOAT32 || d == PF_FLOAT64 ? FLOATS : INTEGERS;
}

/* The kind of a number of Python, or -1. The scalars of NumPy are arrays. */
static int kind_of_number(PyObject *object) {
    if (PyBool_Check(object)) return BOOLS;
    if (PyLong_Check(object)) return INTEGERS;
    if (PyArray_IsScalar(object, Generic)) return -1;
    return PyFloat_Check(object) ? FLOATS : PyComplex_Check(object) ? COMPLEXES : -1;
}

static void refuse_number(Py_ssize_t i, const char *expected, pf_dtype dtype, PyObject *number) {
    PyObject *text = PyObject_Repr(number);
    PyErr_Clear(); /* Python formats no integer of more than some thousand digits */
    raise_named("InvalidArgument", i, "slot %zd: expected %s that %s can hold, found %S", i, expected,
                pf_dtype_name(dtype), text ? text : (PyObject *)Py_TYPE(number));
    Py_XDECREF(text);
}

static PyObject *store_integer(Py_ssize_t i, PyObject *object, pf_dtype dtype) {
    int bits = 8 * (int)pf_dtype_size(dtype), overflow = 0;
    int is_unsigned = dtype == PF_UINT8 || dtype == PF_UINT16 || dtype == PF_UINT32 || dtype == PF_UINT64;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (value == -1 && !overflow && PyErr_Occurred()) return NULL;
    int fits = !overflow && (is_unsigned ? value >= 0 && (bits == 64 || value >> bits == 0)
                                         : bits == 64 || value >> (bits - 1) == (value < 0 ? -1 : 0));
    if (overflow > 0 && is_unsigned && bits == 64) {
        value = (long long)PyLong_AsUnsignedLongLong(object);
        fits = !PyErr_Occurred();
        PyErr_Clear();
    }
    if (!fits) {
        refuse_number(i, "an integer", dtype, object);
        return NULL;
    }
    PyObject *array = PyArray_Zeros(0, NULL, dtype_descr(dtype), 0);
    if (array) memcpy(PyArray_DATA((PyArrayObject *)array), &value, (size_t)bits / 8); /* little-endian */
    return array;
}

/* NumPy cannot convert a number to bfloat16 without ml_dtypes. */
static PyObject *store_bfloat16(PyObject *object) {
    float value = (float)PyFloat_AsDouble(object);
    if (PyErr_Occurred()) return NULL;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* Rounds to the nearest, ties to even; a NaN stays one. */
    uint16_t half = value != value ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    PyObject *array = PyArray_Zeros(0, NULL, dtype_descr(PF_BFLOAT16), 0);
    if (array) memcpy(PyArray_DATA((PyArrayObject *)array), &half, sizeof half);
    return array;
}

static int read_number(incoming *in, Py_ssize_t i, PyObject *object, int kind, slot_kind slot) {
    static const pf_dtype natural[] = {PF_BOOL, PF_INT64, PF_FLOAT64, PF_COMPLEX128};
    pf_dtype dtype = slot.dtype == PF_DTYPE_ANY ? natural[kind] : slot.dtype;
    if (kind_of_dtype(dtype) < kind) {
        raise_named("DTypeError", i, "slot %zd: dtype: expected %s, found the %s %R", i, pf_dtype_name(dtype),
                    kind == INTEGERS ? "int"
                    : kind == FLOATS ? "float"
                                     : "complex number",
                    object);
        return -1;
    }
    PyObject *array = kind_of_dtype(dtype) == INTEGERS ? store_integer(i, object, dtype)
                      : dtype == PF_BFLOAT16 ? store_bfloat16(object)
                                             : PyArray_FromAny(object, dtype_descr(dtype), 0, 0, 0, NULL);
    if (!array && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        refuse_number(i, "a number", dtype, object);
    }
    return array ? read_ndarray(in, i, (PyArrayObject *)array) : -1;
}

/* Reads text, as UTF-8, or bytes. For a slot with ragged offsets they are one sequence. */
static int read_text(incoming *in, Py_ssize_t i, PyObject *object, slot_kind slot) {
    if (slot.dtype != PF_DTYPE_ANY && slot.dtype != PF_UINT8) {
        raise_named("DTypeError", i, "slot %zd: dtype: expected %s, found %R", i, pf_dtype_name(slot.dtype),
                    (PyObject *)Py_TYPE(object));
        return -1;
    }
    PyObject *bytes =
        PyUnicode_Check(object) ? PyUnicode_AsUTF8String(object) : PyMemoryView_FromObject(object);
    if (!bytes) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            PyErr_Clear();
            raise_named("InvalidArgument", i, "slot %zd: expected text that UTF-8 can encode, found %R", i,
                        object);
        }
        return -1;
    }
    PyObject *view = PyUnicode_Check(object) ? PyMemoryView_FromObject(bytes) : NULL;
    PyObject *array = PyArray_FromAny(view ? view : bytes, PyArray_DescrFromType(NPY_UINT8), 1, 1, 0, NULL);
    Py_XDECREF(view);
    Py_DECREF(bytes);
    if (!array || read_ndarray(in, i, (PyArrayObject *)array) < 0) return -1;
    if (slot.lod_levels != 1) return 0;
    if (reserve_lod(in) < 0) return -1;
    npy_intp two = 2;
    PyObject *level = PyArray_SimpleNew(1, &two, NPY_INT64);
    in->held[i].lod = level ? PyTuple_Pack(1, level) : NULL;
    Py_XDECREF(level);
    if (!in->held[i].lod) return -1;
    int64_t *offsets = PyArray_DATA((PyArrayObject *)level);
    offsets[0] = 0;
    offsets[1] = PyArray_DIM((PyArrayObject *)array, 0);
    in->lod[i][0] = (pf_lod_level){offsets, 2};
    in->tensors[i].lod = in->lod[i];
    in->tensors[i].lod_levels = 1;
    return 0;
}

int slot_kinds_read(slot_kinds *k, PyObject *tuple) {
    Py_ssize_t n = PyTuple_Size(tuple);
    *k = (slot_kinds){n, PyMem_Calloc((size_t)n + 1, sizeof *k->kinds)};
    if (!k->kinds) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *dtype;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "OI", &dtype, &k->kinds[i].lod_levels) ||
            (k->kinds[i].dtype = dtype_parse(dtype)) < 0)
            return -1;
    }
    return 0;
}

slot_kind slot_kinds_get(void *of, Py_ssize_t slot) {
    const slot_kinds *k = of;
    return slot < k->count ? k->kinds[slot] : (slot_kind){PF_DTYPE_ANY, 0};
}

static slot_kind slot_kind_of(const expected *e, Py_ssize_t i) {
    return e && e->kind ? e->kind(e->of, i) : (slot_kind){PF_DTYPE_ANY, 0};
}

/* Returns the end of an error message about an object of Python that is not an array, or "". */
static const char *conversion_hint(PyObject *object) {
    return PyList_Check(object) || PyTuple_Check(object) ? ": convert it with np.array(x)" : "";
}

static int read_array(incoming *in, Py_ssize_t i, PyObject *object, const expected *e) {
    if (PyArray_Check(object)) {
        Py_INCREF(object);
        return read_ndarray(in, i, (PyArrayObject *)object);
    }
    int kind = kind_of_number(object);
    if (kind >= 0) return read_number(in, i, object, kind, slot_kind_of(e, i));
    if (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object))
        return read_text(in, i, object, slot_kind_of(e, i));
    if (device_array_refuse(object, i)) return -1;
    int is_lod = PyObject_IsInstance(object, lod_tensor);
    if (is_lod) return is_lod < 0 ? -1 : read_lod_tensor(in, i, object);
    if (has(object, "__dlpack__")) return read_dlpack(in, i, object);
    PyObject *array = NULL;
    if (has(object, "__array_interface__") || has(object, "__array_struct__")) {
        array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    } else if (PyObject_CheckBuffer(object)) {
        PyObject *view = PyMemoryView_FromObject(object);
        array = view ? PyArray_FromAny(view, NULL, 0, 0, 0, NULL) : NULL;
        Py_XDECREF(view);
    } else {
        raise_named("DTypeError", i,
                    "slot %zd: expected an array (NumPy, the buffer protocol, __array_interface__ or "
                    "DLPack), a number, text or bytes, found %R%s",
                    i, (PyObject *)Py_TYPE(object), conversion_hint(object));
    }
    return array ? read_ndarray(in, i, (PyArrayObject *)array) : -1;
}

/* ---- A whole tuple ---- */

static void held_drop(held *h) {
    if (h->capsule) dl_drop(h->capsule);
    Py_CLEAR(h->capsule);
    Py_CLEAR(h->array);
    Py_CLEAR(h->lod);
}

static int refuse_tuple(PyObject *arrays) {
    int is_array = PyArray_Check(arrays) || has(arrays, "__dlpack__") || has(arrays, "__array_interface__");
    raise_named("DTypeError", -1, "arrays: expected a tuple or list of arrays, one for each slot, found %R%s",
                (PyObject *)Py_TYPE(arrays),
                is_array               ? ": for one slot, give (x,)"
                : PyDict_Check(arrays) ? ": for dicts, give the slots names"
                                       : "");
    return -1;
}

static int read_all(incoming *in, PyObject *arrays, const expected *e) {
    int is_tuple = PyTuple_Check(arrays);
    if (!is_tuple && !PyList_Check(arrays)) return refuse_tuple(arrays);
    in->count = is_tuple ? PyTuple_Size(arrays) : PyList_Size(arrays);
    in->bytes = 0;
    in->lod = NULL;
    in->tensors = in->few_tensors;
    in->held = in->few_held;
    in->layouts = in->few_layouts;
    if (in->count > FEW_SLOTS) {
        in->tensors = PyMem_Calloc((size_t)in->count, sizeof *in->tensors);
        in->held = PyMem_Calloc((size_t)in->count, sizeof *in->held);
        in->layouts = PyMem_Calloc((size_t)in->count, sizeof *in->layouts);
        if (!in->tensors || !in->held || !in->layouts) {
            in->count = 0;
            incoming_drop(in);
            PyErr_NoMemory();
            return -1;
        }
    }
    memset(in->held, 0, (size_t)in->count * sizeof *in->held);
    for (Py_ssize_t i = 0; i < in->count; i++) {
        in->tensors[i] = (pf_tensor)PF_TENSOR_INIT;
        /* Reading an array may run Python code, which may shorten the list and drop the object. */
        PyObject *object = is_tuple ? Py_NewRef(PyTuple_GetItem(arrays, i)) : list_item(arrays, i);
        int r = object ? read_array(in, i, object, e) : -1;
        Py_XDECREF(object);
        if (r < 0) {
            incoming_drop(in);
            return -1;
        }
        size_t bytes = pf_dtype_size(in->tensors[i].dtype);
        for (int32_t j = 0; j < in->tensors[i].rank && j < PF_MAX_RANK; j++)
            bytes *= (size_t)in->tensors[i].dims[j];
        in->bytes += bytes;
    }
    return 0;
}

int incoming_read(incoming *in, PyObject *arrays, const expected *e) {
    if (!e || !e->structure) return read_all(in, arrays, e);
    PyObject *flat = structure_flatten(e->structure, arrays);
    int r = flat ? read_all(in, flat, e) : -1;
    Py_XDECREF(flat);
    return r;
}

void incoming_drop(incoming *in) {
    PyObject *type, *value, *traceback; /* drops may run Python code, and a failure may be set */
    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < in->count; i++) held_drop(&in->held[i]);
    PyErr_Restore(type, value, traceback);
    PyMem_Free(in->lod);
    if (in->tensors != in->few_tensors) PyMem_Free(in->tensors);
    if (in->held != in->few_held) PyMem_Free(in->held);
    if (in->layouts != in->few_layouts) PyMem_Free(in->layouts);
    in->count = 0;
}

/* ---- Lent memory ----
 *
 * The library returns lent memory on any thread, which may know nothing of Python. So lent_return only puts it on a
 * list and asks Python to call lent_drain soon; the next push calls it anyway. While a NumPy array is lent it is not
 * writeable. */

struct lent {
    struct lent *next;
    Py_ssize_t count;
    held held[];
};

static _Atomic(lent *) returned;
static atomic_int drain_asked; /* at most one request: the interpreter has room for few */
static atomic_int stopped;     /* the interpreter is ending: drop nothing more */

/* The number of lends that make an array read-only, for each lent array. They are found by the address of the array, in
 * a hash table with linear probing. Its size is a power of two, and at least half of its entries are empty. Guarded by
 * module_lock, which the callers of the functions below hold. */
typedef struct {
    PyObject *array; /* NULL: this entry is empty */
    size_t lends;
} write_lock;
static write_lock *locks;
static size_t locks_used, locks_size;

static size_t lock_home(PyObject *array) {
    return (size_t)((uintptr_t)array * 0x9e3779b97f4a7c15u >> 32) & (locks_size - 1);
}

static size_t lock_next(size_t i) { return (i + 1) & (locks_size - 1); }

/* Returns the entry of the array, or the empty entry where it would go. */
static write_lock *lock_find(PyObject *array) {
    size_t i = lock_home(array);
    while (locks[i].array && locks[i].array != array) i = lock_next(i);
    return &locks[i];
}

/* Makes room for `more` entries. Returns -1 without memory. */
static int locks_reserve(size_t more) {
    if (2 * (locks_used + more) <= locks_size) return 0;
    size_t n = locks_size, size = n ? 2 * n : 64;
    while (2 * (locks_used + more) > size) size *= 2;
    write_lock *old = locks, *fresh = PyMem_Calloc(size, sizeof *fresh);
    if (!fresh) return -1;
    locks = fresh;
    locks_size = size;
    for (size_t i = 0; i < n; i++)
        if (old[i].array) *lock_find(old[i].array) = old[i];
    PyMem_Free(old);
    return 0;
}

/* locks_reserve MUST have made room. */
static void write_lock_array(PyObject *array) {
    PyArrayObject *a = (PyArrayObject *)array;
    if (!PyArray_ISWRITEABLE(a) && locks_used == 0) return;
    write_lock *l = lock_find(array);
    if (!l->array && !PyArray_ISWRITEABLE(a)) return;
    locks_used += !l->array;
    l->array = array;
    l->lends++;
    PyArray_CLEARFLAGS(a, NPY_ARRAY_WRITEABLE);
}

static void write_unlock_array(PyObject *array) {
    if (locks_used == 0) return;
    write_lock *l = lock_find(array);
    if (!l->array || --l->lends > 0) return;
    PyArray_ENABLEFLAGS((PyArrayObject *)array, NPY_ARRAY_WRITEABLE);
    size_t hole = (size_t)(l - locks);
    for (size_t i = lock_next(hole); locks[i].array; i = lock_next(i)) {
        /* Moves later entries into the hole, except one that would then lie before its home. */
        if (((i - lock_home(locks[i].array)) & (locks_size - 1)) < ((i - hole) & (locks_size - 1))) continue;
        locks[hole] = locks[i];
        hole = i;
    }
    locks[hole] = (write_lock){NULL, 0};
    locks_used--;
}

lent *lent_take(incoming *in) {
    lent *l = PyMem_Malloc(sizeof *l + (size_t)in->count * sizeof(held));
    module_lock();
    int failed = !l || locks_reserve((size_t)in->count) < 0;
    for (Py_ssize_t i = 0; !failed && i < in->count; i++)
        if (in->held[i].array) write_lock_array(in->held[i].array);
    module_unlock();
    if (failed) {
        PyMem_Free(l);
        PyErr_NoMemory();
        return NULL;
    }
    l->count = in->count;
    memcpy(l->held, in->held, (size_t)in->count * sizeof(held));
    memset(in->held, 0, (size_t)in->count * sizeof(held));
    return l;
}

void lent_cancel(lent *l) {
    module_lock();
    for (Py_ssize_t i = 0; i < l->count; i++)
        if (l->held[i].array) write_unlock_array(l->held[i].array);
    module_unlock();
    for (Py_ssize_t i = 0; i < l->count; i++) held_drop(&l->held[i]);
    PyMem_Free(l);
}

void lent_drain(void) {
    if (!atomic_load(&returned)) return;
    lent *l = atomic_exchange(&returned, NULL);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (l) {
        lent *next = l->next;
        lent_cancel(l);
        l = next;
    }
    PyErr_Restore(type, value, traceback);
}

/* Pretends that a request is pending: this thread calls lent_drain soon, before it releases the GIL. */
int lent_suspend_drain(void) { return atomic_exchange(&drain_asked, 1); }

void lent_resume_drain(int before) {
    if (!before) atomic_store(&drain_asked, 0);
    lent_drain();
}

static int drain(void *Py_UNUSED(unused)) {
    atomic_store(&drain_asked, 0);
    lent_drain();
    return 0;
}

void lent_return(void *lent_) {
    lent *l = lent_;
    l->next = atomic_load(&returned);
    while (!atomic_compare_exchange_weak(&returned, &l->next, l));
    if (!atomic_load(&stopped) && !atomic_exchange(&drain_asked, 1) && Py_AddPendingCall(drain, NULL) < 0)
        atomic_store(&drain_asked, 0); /* no room: the next lent_return asks again */
}

void lent_stop(void) { atomic_store(&stopped, 1); }

int arrays_init(void) {
    PyObject *module = PyImport_ImportModule(PYFEED_LOD_MODULE);
    lod_tensor = module ? PyObject_GetAttrString(module, "LoDTensor") : NULL;
    Py_XDECREF(module);
    return lod_tensor ? 0 : -1;
}

/* _native.Buffer: the staging buffer of a place. */
#include "docs.h"
#include "native.h"

static PyTypeObject *buffer_type;

/* Buffer._get(place, capacity, bytes_limit) */
static PyObject *buffer_of(PyObject *class, PyObject *args) {
    pf_place place;
    long long capacity, bytes_limit;
    if (!PyArg_ParseTuple(args, "(ii)LL", &place.kind, &place.device, &capacity, &bytes_limit)) return NULL;
    if (capacity < 0 || bytes_limit < 0)
        return raise_named("InvalidArgument", -1, "%s: expected at least %d, found %lld",
                           capacity < 0 ? "capacity" : "bytes_limit", capacity < 0,
                           capacity < 0 ? capacity : bytes_limit);
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_staging_create(place, (uint64_t)capacity, (uint64_t)bytes_limit, &handle, &err);
    return owner_or_error(class, status, handle, &err);
}

/* put(arrays, /, *, timeout=None) */
static PyObject *buffer_put(owner *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"arrays", "timeout"};
    static const signature put = {"StagingBuffer.put", names, 2, 1, 1, 1};
    PyObject *values[2];
    waiting w;
    incoming in;
    lent_drain();
    if (arguments_bind(&put, args, count, keywords, values) < 0 || waiting_parse(&w, values[1]) < 0 ||
        incoming_read(&in, values[0], NULL) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_TIMEOUT;
    uint32_t n = (uint32_t)in.count;
    /* Tries first without a wait and with the GIL, because taking the GIL again is slow. */
    if (in.bytes <= SMALL_COPY_BYTES) status = pf_staging_put(self->handle, in.tensors, n, &no_wait, NULL);
    if (status != PF_OK) {
        waiting_begin(&w);
        status = pf_staging_put(self->handle, in.tensors, n, &w.wait, &err);
        waiting_end(&w);
    }
    incoming_drop(&in);
    return none_or_error(status, &err);
}

/* get(timeout=None) */
static PyObject *buffer_get(owner *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"timeout"};
    static const signature get = {"StagingBuffer.get", names, 1, 1, 0, 0};
    PyObject *timeout;
    waiting w;
    if (arguments_bind(&get, args, count, keywords, &timeout) < 0 || waiting_parse(&w, timeout) < 0)
        return NULL;
    pf_tuple tuple = tuple_begin();
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_staging_get(self->handle, &no_wait, &tuple, &err);
    if (status == PF_TIMEOUT) { /* other errors are final: a second call would not return them again */
        pf_error_release(&err);
        w.kind = WAITS_FOR_CALL;
        waiting_begin(&w);
        status = pf_staging_get(self->handle, &w.wait, &tuple, &err);
        waiting_end(&w);
    }
    return status == PF_OK ? tuple_to_python(&tuple, 1) : none_or_error(status, &err);
}

static PyObject *buffer_clear(owner *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("StagingBuffer.clear", count, keywords) < 0) return NULL;
    uint64_t dropped;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_staging_clear(self->handle, &dropped, &err);
    Py_END_ALLOW_THREADS return status ? raise_error(status, &err) : PyLong_FromUnsignedLongLong(dropped);
}

static PyObject *buffer_stats(owner *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("StagingBuffer.stats", count, keywords) < 0) return NULL;
    pf_staging_info i = PF_STAGING_INFO_INIT;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_staging_stats(self->handle, &i, &err);
    if (status) return raise_error(status, &err);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:K,s:K,s:K,s:K,s:d,s:d}", "size", i.num_tuples, "capacity", i.capacity,
        "reserved", i.reserved_tuples, "bytes", i.bytes, "bytes_limit", i.bytes_limit, "waiting_producers",
        i.waiting_producers, "waiting_consumers", i.waiting_consumers, "put", i.put, "got", i.got, "dropped",
        i.dropped, "put_bytes", i.put_bytes, "producers_waited", (double)i.producers_waited_ns / 1e9,
        "consumers_waited", (double)i.consumers_waited_ns / 1e9);
}

static PyObject *buffer_place(owner *self, PyObject *Py_UNUSED(unused)) {
    pf_staging_info i = PF_STAGING_INFO_INIT;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_staging_stats(self->handle, &i, &err);
    return status ? raise_error(status, &err) : Py_BuildValue("(ii)", i.place.kind, i.place.device);
}

/* _shutdown_buffers(): for the end of the interpreter */
PyObject *shutdown_buffers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_staging_shutdown(&err), &err);
}

static PyMethodDef methods[] = {
    {"_get", (PyCFunction)buffer_of, METH_VARARGS | METH_CLASS, NULL},
    {"put", (PyCFunction)(void *)buffer_put, METH_FASTCALL | METH_KEYWORDS, PUT_DOC},
    {"get", (PyCFunction)(void *)buffer_get, METH_FASTCALL | METH_KEYWORDS, GET_DOC},
    {"clear", (PyCFunction)(void *)buffer_clear, METH_FASTCALL | METH_KEYWORDS, CLEAR_DOC},
    {"stats", (PyCFunction)(void *)buffer_stats, METH_FASTCALL | METH_KEYWORDS, BUFFER_STATS_DOC},
    {"_place", (PyCFunction)buffer_place, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"handle", (getter)owner_handle, NULL, "The handle of the object in the C API.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, owner_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "The part of pyfeed.staging.StagingBuffer that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {"pyfeed._native.Buffer", sizeof(owner), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int staging_init(PyObject *module) { return add_type(module, &spec, &buffer_type); }

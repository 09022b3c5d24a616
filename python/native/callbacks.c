/* _native.Workers, _native.Failure, _native.Format and _native.Writer: the work that Python threads do for readers, and
 * files that Python writes. */
#include "native.h"

static PyTypeObject *workers_type, *processes_type, *result_type, *failure_type, *format_type, *writer_type;

PyObject *take_text(char *text) {
    PyObject *s = PyUnicode_FromString(text);
    pf_string_release(text);
    return s;
}

/* ---- Failures: exceptions for a reader to raise ---- */

typedef struct {
    PyObject ob_base;
    kept failure;
    uint64_t token;
} failure;

/* Failure._new(exception): keeps the exception as long as the Failure lives */
static PyObject *failure_new(PyObject *class, PyObject *args) {
    PyObject *exception;
    if (!PyArg_ParseTuple(args, "O!", PyExc_BaseException, &exception)) return NULL;
    allocfunc make = PyType_GetSlot((PyTypeObject *)class, Py_tp_alloc);
    failure *self = (failure *)make((PyTypeObject *)class, 0);
    if (self) {
        self->token = kept_new_token();
        kept_set(&self->failure, exception, self->token, 0);
    }
    return (PyObject *)self;
}

static int failure_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return kept_traverse(&((failure *)self)->failure, visit, arg);
}

static int failure_clear(PyObject *self) {
    kept_drop(&((failure *)self)->failure);
    return 0;
}

static void failure_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    kept_drop(&((failure *)self)->failure);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *failure_token(failure *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->token);
}

static PyMethodDef failure_methods[] = {
    {"_new", (PyCFunction)failure_new, METH_VARARGS | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef failure_getset[] = {
    {"token", (getter)failure_token, NULL, "The number by which a reader finds the exception.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot failure_slots[] = {
    {Py_tp_dealloc, failure_dealloc},
    {Py_tp_traverse, failure_traverse},
    {Py_tp_clear, failure_clear},
    {Py_tp_methods, failure_methods},
    {Py_tp_getset, failure_getset},
    {Py_tp_doc, "An exception that a reader is going to raise."},
    {0, NULL},
};
static PyType_Spec failure_spec = {
    "pyfeed._native.Failure", sizeof(failure), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, failure_slots};

/* ---- Workers of a map reader ---- */

typedef struct {
    owner owner;
    slot_kinds kinds;              /* of the results */
    PyObject *arguments, *results; /* structures; NULL: tuples of arrays */
} workers;

PyObject *workers_wrap(pf_handle handle, PyObject *kinds, PyObject *arguments, PyObject *results) {
    workers *self = (workers *)owner_new((PyObject *)workers_type, handle);
    if (!self) return NULL;
    if (arguments != Py_None) self->arguments = Py_NewRef(arguments);
    if (results != Py_None) self->results = Py_NewRef(results);
    if (slot_kinds_read(&self->kinds, kinds) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void workers_dealloc(PyObject *self_) {
    workers *self = (workers *)self_;
    PyMem_Free(self->kinds.kinds);
    Py_CLEAR(self->arguments);
    Py_CLEAR(self->results);
    owner_dealloc(self_);
}

/* next(): the arguments of the function for the next tuple, and the ticket for its result */
static PyObject *workers_next(workers *self, PyObject *Py_UNUSED(unused)) {
    waiting w;
    waiting_of_worker(&w);
    pf_tuple tuple = tuple_begin();
    pf_error err = PF_ERROR_INIT;
    uint64_t ticket;
    waiting_begin(&w);
    pf_status status = pf_map_workers_next(self->owner.handle, &w.wait, &tuple, &ticket, &err);
    waiting_end(&w);
    if (status) return none_or_error(status, &err);
    PyObject *arrays = structure_of_tuple(Py_XNewRef(self->arguments), tuple_to_python(&tuple, 1));
    PyObject *both = arrays ? Py_BuildValue("(NK)", arrays, ticket) : NULL;
    if (!both) { /* only this call knows the ticket, and a consumer waits for it */
        pf_failure f = PF_FAILURE_INIT;
        f.message = "no memory for the arrays of a tuple";
        pf_map_workers_fail(self->owner.handle, ticket, &f, NULL);
    }
    return both;
}

/* complete(ticket, arrays): arrays are the result of the function */
static PyObject *workers_complete(workers *self, PyObject *args) {
    unsigned long long ticket;
    PyObject *arrays;
    incoming in;
    if (!PyArg_ParseTuple(args, "KO", &ticket, &arrays) ||
        incoming_read(&in, arrays, &(expected){self->results, slot_kinds_get, &self->kinds}) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    if (in.bytes <= SMALL_COPY_BYTES) {
        status = pf_map_workers_complete(self->owner.handle, ticket, in.tensors, (uint32_t)in.count, &err);
    } else {
        Py_BEGIN_ALLOW_THREADS status =
            pf_map_workers_complete(self->owner.handle, ticket, in.tensors, (uint32_t)in.count, &err);
        Py_END_ALLOW_THREADS
    }
    incoming_drop(&in);
    return none_or_error(status, &err);
}

/* Memory for a result, until it is committed. */
typedef struct {
    PyObject ob_base;
    pf_tuple tuple;
} result;

static void result_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    pf_tuple_release(&((result *)self)->tuple);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot result_slots[] = {
    {Py_tp_dealloc, result_dealloc},
    {Py_tp_doc, "Memory for a result of a map reader."},
    {0, NULL},
};
static PyType_Spec result_spec = {"pyfeed._native.Result", sizeof(result), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, result_slots};

/* reserve(slots): the argument of commit, and arrays over the memory. slots are tuples of (dtype, dims, lod_levels,
 * name), without levels. */
static PyObject *workers_reserve(workers *self, PyObject *slots) {
    slot_specs specs;
    pf_tensor *tensors = NULL;
    result *memory = NULL;
    PyObject *arrays = NULL, *out = NULL;
    if (slot_specs_read(&specs, slots) < 0) goto done;
    if (!(tensors = PyMem_Calloc(specs.count + 1, sizeof *tensors))) {
        PyErr_NoMemory();
        goto done;
    }
    for (uint32_t i = 0; i < specs.count; i++) {
        tensors[i] = (pf_tensor)PF_TENSOR_INIT;
        tensors[i].dtype = specs.slots[i].dtype;
        tensors[i].rank = specs.slots[i].rank;
        tensors[i].dims = specs.dims[i];
    }
    if (!(memory = PyObject_New(result, result_type))) goto done;
    memory->tuple = (pf_tuple)PF_TUPLE_INIT;
    pf_tuple shared = PF_TUPLE_INIT; /* the arrays own a loan of their own */
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_map_workers_reserve(self->owner.handle, tensors, specs.count, &memory->tuple, &err);
    if (status == PF_OK) status = pf_tuple_share(&memory->tuple, &shared, &err);
    if (status)
        raise_error(status, &err);
    else if ((arrays = tuple_to_python(&shared, 1)))
        out = PyTuple_Pack(2, (PyObject *)memory, arrays);
done:
    Py_XDECREF(arrays);
    Py_XDECREF((PyObject *)memory);
    PyMem_Free(tensors);
    slot_specs_drop(&specs);
    return out;
}

/* commit(ticket, result) */
static PyObject *workers_commit(workers *self, PyObject *args) {
    unsigned long long ticket;
    PyObject *memory;
    if (!PyArg_ParseTuple(args, "KO!", &ticket, result_type, &memory)) return NULL;
    pf_tuple tuple; /* taken, in case another thread commits the same result */
    LOCK_OBJECT(memory);
    tuple = ((result *)memory)->tuple;
    ((result *)memory)->tuple = (pf_tuple)PF_TUPLE_INIT;
    UNLOCK_OBJECT();
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_map_workers_commit(self->owner.handle, ticket, &tuple, &err);
    pf_tuple_release(&tuple); /* does nothing if the reader has taken the tuple */
    return none_or_error(status, &err);
}

/* fail(ticket, token, type, message, traceback) */
static PyObject *workers_fail(owner *self, PyObject *args) {
    unsigned long long ticket, token;
    pf_failure f = PF_FAILURE_INIT;
    if (!PyArg_ParseTuple(args, "KKsss", &ticket, &token, &f.type, &f.message, &f.traceback)) return NULL;
    f.token = token;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_map_workers_fail(self->handle, ticket, &f, &err), &err);
}

/* skip(ticket, token, type, message, traceback) */
static PyObject *workers_skip(owner *self, PyObject *args) {
    unsigned long long ticket, token;
    pf_failure f = PF_FAILURE_INIT;
    if (!PyArg_ParseTuple(args, "KKsss", &ticket, &token, &f.type, &f.message, &f.traceback)) return NULL;
    f.token = token;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_map_workers_skip(self->handle, ticket, &f, &err), &err);
}

/* position(ticket): the numbers of the pass and of the tuple in it */
static PyObject *workers_position(owner *self, PyObject *args) {
    unsigned long long ticket;
    uint64_t pass, index;
    if (!PyArg_ParseTuple(args, "K", &ticket)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_map_workers_position(self->handle, ticket, &pass, &index, &err);
    if (status) return raise_error(status, &err);
    return Py_BuildValue("(KK)", (unsigned long long)pass, (unsigned long long)index);
}

/* processes(queue's handle): an object for worker processes that compute the results */
static PyObject *workers_processes(workers *self, PyObject *args) {
    unsigned long long queue;
    if (!PyArg_ParseTuple(args, "K", &queue)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_map_processes_create(self->owner.handle, queue, &handle, &err);
    return owner_or_error((PyObject *)processes_type, status, handle, &err);
}

/* next(): the ticket of the next event, and None, or type, message, traceback and pickle of the error of a worker */
static PyObject *processes_next(owner *self, PyObject *Py_UNUSED(unused)) {
    waiting w;
    waiting_of_worker(&w);
    pf_map_event event = PF_MAP_EVENT_INIT;
    pf_error err = PF_ERROR_INIT;
    w.kind = WAITS_FOR_CALL;
    waiting_begin(&w);
    pf_status status = pf_map_processes_next(self->handle, &w.wait, &event, &err);
    waiting_end(&w);
    if (status) return none_or_error(status, &err);
    PyObject *out =
        event.kind == PF_MAP_WORKERS_NEEDED
            ? Py_BuildValue("(KO)", (unsigned long long)event.ticket, Py_None)
            : Py_BuildValue("(K(sssy#))", (unsigned long long)event.ticket, event.type ? event.type : "",
                            event.message ? event.message : "", event.traceback ? event.traceback : "",
                            event.detail ? (char *)event.detail : "", (Py_ssize_t)event.detail_bytes);
    pf_map_event_release(&event);
    return out;
}

static PyMethodDef processes_methods[] = {
    {"next", (PyCFunction)processes_next, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot processes_slots[] = {
    {Py_tp_dealloc, owner_dealloc},
    {Py_tp_methods, processes_methods},
    {Py_tp_doc, "The worker processes of a map reader."},
    {0, NULL},
};
static PyType_Spec processes_spec = {"pyfeed._native.MapProcesses", sizeof(owner), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, processes_slots};

static PyMethodDef workers_methods[] = {
    {"processes", (PyCFunction)workers_processes, METH_VARARGS, NULL},
    {"next", (PyCFunction)workers_next, METH_NOARGS, NULL},
    {"complete", (PyCFunction)workers_complete, METH_VARARGS, NULL},
    {"reserve", (PyCFunction)workers_reserve, METH_O, NULL},
    {"commit", (PyCFunction)workers_commit, METH_VARARGS, NULL},
    {"fail", (PyCFunction)workers_fail, METH_VARARGS, NULL},
    {"skip", (PyCFunction)workers_skip, METH_VARARGS, NULL},
    {"position", (PyCFunction)workers_position, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot workers_slots[] = {
    {Py_tp_dealloc, workers_dealloc},
    {Py_tp_methods, workers_methods},
    {Py_tp_doc, "The workers' end of a map reader: threads take tuples from it and give it their results."},
    {0, NULL},
};
static PyType_Spec workers_spec = {"pyfeed._native.Workers", sizeof(workers), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, workers_slots};

/* ---- Formats ---- */

/* Format._register(tag, suffixes, slots): slots are JSON or None */
static PyObject *format_register(PyObject *class, PyObject *args) {
    enum { MOST = 64 };
    const char *tag, *slots, *suffixes[MOST];
    PyObject *list;
    if (!PyArg_ParseTuple(args, "sO!z", &tag, &PyTuple_Type, &list, &slots)) return NULL;
    Py_ssize_t n = PyTuple_Size(list);
    if (n > MOST)
        return raise_named("InvalidArgument", -1, "suffixes: expected at most %d, found %zd", MOST, n);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(suffixes[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(list, i), NULL))) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_format_register(tag, suffixes, (uint32_t)n, slots, &handle, &err);
    return owner_or_error(class, status, handle, &err);
}

/* wait(class): the next file to read: the queue for its instances, as an object of `class`, its path, and its options
 * as JSON */
static PyObject *format_wait(owner *self, PyObject *class) {
    waiting w;
    if (waiting_parse(&w, NULL) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle queue;
    char *path, *options;
    w.kind = WAITS_FOR_CALL;
    waiting_begin(&w);
    pf_status status = pf_format_wait(self->handle, &w.wait, &queue, &path, &options, &err);
    waiting_end(&w);
    if (status) return none_or_error(status, &err);
    PyObject *file = PyUnicode_DecodeFSDefault(path);
    pf_string_release(path);
    PyObject *text = take_text(options), *q = queue_wrap(class, queue);
    PyObject *out = file && text && q ? PyTuple_Pack(3, q, file, text) : NULL;
    Py_XDECREF(file);
    Py_XDECREF(text);
    Py_XDECREF(q);
    return out;
}

static PyMethodDef format_methods[] = {
    {"_register", (PyCFunction)format_register, METH_VARARGS | METH_CLASS, NULL},
    {"wait", (PyCFunction)format_wait, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot format_slots[] = {
    {Py_tp_dealloc, owner_dealloc},
    {Py_tp_methods, format_methods},
    {Py_tp_doc, "A format whose files Python threads read."},
    {0, NULL},
};
static PyType_Spec format_spec = {"pyfeed._native.Format", sizeof(owner), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, format_slots};

/* _list_files(names, format): a JSON list; names are bytes, format may be None */
PyObject *list_files(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *list;
    const char *format;
    waiting w;
    if (!PyArg_ParseTuple(args, "O!z", &PyTuple_Type, &list, &format) || waiting_parse(&w, NULL) < 0)
        return NULL;
    Py_ssize_t n = PyTuple_Size(list);
    const char **names = PyMem_Calloc((size_t)n + 1, sizeof *names);
    if (!names) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        char *name = NULL; /* stays NULL if the name contains a NUL: an error is set */
        PyBytes_AsStringAndSize(PyTuple_GetItem(list, i), &name, NULL);
        names[i] = name;
    }
    pf_error err = PF_ERROR_INIT;
    char *json;
    pf_status status = PF_OK;
    if (!PyErr_Occurred()) {
        waiting_begin(&w);
        status = pf_file_list(names, (uint32_t)n, format, &w.wait, &json, &err);
        waiting_end(&w);
    }
    PyMem_Free(names);
    if (PyErr_Occurred()) return NULL;
    return status ? raise_error(status, &err) : take_text(json);
}

PyObject *formats(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    char *json;
    pf_status status = pf_format_list(&json, &err);
    return status ? raise_error(status, &err) : take_text(json);
}

/* ---- Writers ---- */

typedef struct {
    owner owner;
    atomic_int failed;   /* a write failed: the file cannot be completed */
    PyObject *structure; /* of the tuples; NULL: tuples of arrays */
    slot_kinds kinds;    /* of the slots; empty before the first write, unless they were given */
} writer;

/* Writer._create(filename, format, attributes, kinds): the format may be None; kinds are as for slot_kinds_read, or () */
static PyObject *writer_create(PyObject *class, PyObject *args) {
    const char *filename, *format, *attributes;
    PyObject *kinds;
    slot_kinds k;
    if (!PyArg_ParseTuple(args, "yzzO!", &filename, &format, &attributes, &PyTuple_Type, &kinds)) return NULL;
    if (slot_kinds_read(&k, kinds) < 0) {
        PyMem_Free(k.kinds);
        return NULL;
    }
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_writer_create(filename, format, attributes, &handle, &err);
    Py_END_ALLOW_THREADS writer *self = (writer *)owner_or_error(class, status, handle, &err);
    if (self)
        self->kinds = k;
    else
        PyMem_Free(k.kinds);
    return (PyObject *)self;
}

static void writer_dealloc(PyObject *self_) {
    writer *self = (writer *)self_;
    PyMem_Free(self->kinds.kinds);
    Py_CLEAR(self->structure);
    owner_dealloc(self_);
}

/* _set_structure(structure, names): the structure of all tuples; names are those of the slots, or None if the writer
 * knows them */
static PyObject *writer_set_structure(writer *self, PyObject *args) {
    PyObject *structure, *names;
    if (!PyArg_ParseTuple(args, "OO", &structure, &names)) return NULL;
    if (names != Py_None) {
        const char **texts = program_names(names);
        if (!texts) return NULL;
        pf_error err = PF_ERROR_INIT;
        pf_status status =
            pf_writer_set_names(self->owner.handle, texts, (uint32_t)PyTuple_Size(names), &err);
        PyMem_Free(texts);
        if (status) return raise_error(status, &err);
    }
    field_set((PyObject *)self, &self->structure, structure);
    Py_RETURN_NONE;
}

static PyObject *writer_structure(writer *self, void *Py_UNUSED(unused)) {
    PyObject *structure = field_get((PyObject *)self, &self->structure);
    return structure ? structure : Py_NewRef(Py_None);
}

/* Before the first tuple, text becomes a sequence of bytes. */
static slot_kind kind_for_writer(void *writer_, Py_ssize_t slot) {
    const writer *self = writer_;
    slot_kind kind = {PF_DTYPE_ANY, 1};
    LOCK_OBJECT((PyObject *)writer_);
    if (slot < self->kinds.count) kind = self->kinds.kinds[slot];
    UNLOCK_OBJECT();
    return kind;
}

/* Keeps the kinds of the first tuple, for numbers and text in later tuples. */
static void note_kinds(writer *self, const incoming *in) {
    LOCK_OBJECT((PyObject *)self);
    if (self->kinds.count == in->count) {
        for (Py_ssize_t i = 0; i < in->count; i++) self->kinds.kinds[i].dtype = in->tensors[i].dtype;
    } else if (self->kinds.count == 0) {
        slot_kind *kinds = PyMem_Calloc((size_t)in->count, sizeof *kinds);
        for (Py_ssize_t i = 0; kinds && i < in->count; i++)
            kinds[i] = (slot_kind){in->tensors[i].dtype, in->tensors[i].lod_levels};
        if (kinds) {
            PyMem_Free(self->kinds.kinds);
            self->kinds = (slot_kinds){in->count, kinds};
        }
    }
    UNLOCK_OBJECT();
}

static int writer_ready(writer *self, const char *method) {
    pf_handle handle = owner_load((PyObject *)self);
    if (handle && !atomic_load(&self->failed)) return 0;
    raise_named("StateError", -1, "%s: expected an open writer, found %s", method,
                handle ? "one whose last write failed: abort() is all that is left" : "a closed one");
    return -1;
}

/* The library lets one caller at a time use the writer. */
static PyObject *writer_write(writer *self, PyObject *arrays) {
    incoming in;
    PyObject *structure = field_get((PyObject *)self, &self->structure);
    int read = incoming_read(&in, arrays, &(expected){structure, kind_for_writer, self});
    Py_XDECREF(structure);
    if (read < 0) return NULL;
    if (writer_ready(self, "write") < 0) {
        incoming_drop(&in);
        return NULL;
    }
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    pf_handle handle = owner_load((PyObject *)self);
    Py_BEGIN_ALLOW_THREADS status = pf_writer_write(handle, in.tensors, (uint32_t)in.count, &err);
    Py_END_ALLOW_THREADS atomic_store(&self->failed, status != PF_OK);
    if (!status) note_kinds(self, &in);
    incoming_drop(&in);
    return none_or_error(status, &err);
}

static void writer_release(writer *self) { handle_release(owner_take((PyObject *)self)); }

static PyObject *writer_close(writer *self, PyObject *Py_UNUSED(unused)) {
    pf_handle handle = owner_load((PyObject *)self);
    if (!handle) Py_RETURN_NONE;
    if (writer_ready(self, "close") < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_writer_close(handle, &err);
    Py_END_ALLOW_THREADS writer_release(self);
    return none_or_error(status, &err);
}

static PyObject *writer_abort(writer *self, PyObject *Py_UNUSED(unused)) {
    writer_release(self);
    Py_RETURN_NONE;
}

static PyObject *writer_closed(writer *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(!owner_load((PyObject *)self));
}

static PyMethodDef writer_methods[] = {
    {"_create", (PyCFunction)writer_create, METH_VARARGS | METH_CLASS, NULL},
    {"_set_structure", (PyCFunction)writer_set_structure, METH_VARARGS, NULL},
    {"_write", (PyCFunction)writer_write, METH_O, NULL},
    {"_close", (PyCFunction)writer_close, METH_NOARGS, NULL},
    {"_abort", (PyCFunction)writer_abort, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef writer_getset[] = {
    {"_structure", (getter)writer_structure, NULL, NULL, NULL},
    {"closed", (getter)writer_closed, NULL, "Whether the writer is closed or aborted.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot writer_slots[] = {
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_getset},
    {Py_tp_doc, "The part of pyfeed.formats.Writer that is written in C."},
    {0, NULL},
};
static PyType_Spec writer_spec = {
    "pyfeed._native.Writer", sizeof(writer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, writer_slots};

int files_init(PyObject *module) {
    return add_type(module, &failure_spec, &failure_type) || add_type(module, &workers_spec, &workers_type) ||
                   add_type(module, &processes_spec, &processes_type) ||
                   add_type(module, &result_spec, &result_type) ||
                   add_type(module, &format_spec, &format_type) ||
                   add_type(module, &writer_spec, &writer_type)
               ? -1
               : 0;
}

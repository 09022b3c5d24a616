/* _native.Kernel: Python functions that programs call, on the thread that runs the program. */
#include <stdatomic.h>
#include <unistd.h>

#include "native.h"

static PyTypeObject *kernel_type;

/* The context that the library has of a kernel. */
typedef struct bound {
    struct bound *next;
    PyObject *function; /* called with the inputs, the attributes as JSON and the number of outputs */
} bound;

typedef struct {
    owner owner;
    bound *bound; /* lives as long as the registration; NULL: closed */
} kernel;

static _Atomic(bound *) finished; /* kernels whose functions wait to be dropped with the GIL */
static atomic_int drain_asked;    /* at most one request: the interpreter has room for few */
static atomic_int stopped;

/* ---- The call ---- */

/* Returns the inputs as a tuple of arrays, which the function may keep. */
static PyObject *inputs(const pf_kernel_call *c) {
    PyObject *all = PyTuple_New(c->num_ins);
    for (uint32_t i = 0; all && i < c->num_ins; i++) {
        pf_tuple tuple = PF_TUPLE_INIT;
        pf_error err = PF_ERROR_INIT;
        pf_status status = pf_kernel_share(c, i, &tuple, &err);
        PyObject *one = status ? raise_error(status, &err) : tuple_to_python(&tuple, 0);
        if (!one || PyTuple_SetItem(all, i, Py_NewRef(PyTuple_GetItem(one, 0))) < 0) Py_CLEAR(all);
        Py_XDECREF(one);
    }
    return all;
}

static int set_outputs(const pf_kernel_call *c, PyObject *arrays) {
    incoming in;
    if (incoming_read(&in, arrays, NULL) < 0) return -1;
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_OK;
    PyThreadState *state = in.bytes > SMALL_COPY_BYTES ? PyEval_SaveThread() : NULL;
    for (uint32_t i = 0; status == PF_OK && i < (uint32_t)in.count; i++)
        status = pf_kernel_set(c, i, &in.tensors[i], &err);
    if (state) PyEval_RestoreThread(state);
    incoming_drop(&in);
    if (status) raise_error(status, &err);
    return status ? -1 : 0;
}

static int run(PyObject *function, const pf_kernel_call *c) {
    PyObject *ins = inputs(c);
    PyObject *outs =
        ins ? PyObject_CallFunction(function, "OsI", ins, c->attributes ? c->attributes : "{}", c->num_outs)
            : NULL;
    Py_XDECREF(ins);
    int r = outs ? set_outputs(c, outs) : -1;
    Py_XDECREF(outs);
    return r;
}

/* Makes the exception that is set the error of the run. A run that Python began gets the exception itself; other
 * callers get its text. */
static void report_exception(const pf_kernel_call *c, waiting *w) {
    PyObject *type, *e, *traceback;
    PyErr_Fetch(&type, &e, &traceback);
    PyErr_NormalizeException(&type, &e, &traceback);
    if (traceback) PyException_SetTraceback(e, traceback);
    PyObject *module = PyImport_ImportModule("pyfeed._failures");
    PyObject *texts = module ? PyObject_CallMethod(module, "format_exception", "O", e) : NULL;
    pf_failure failure = PF_FAILURE_INIT;
    if (texts) PyArg_ParseTuple(texts, "sss", &failure.type, &failure.message, &failure.traceback);
    PyErr_Clear();
    if (w && w->failure) {
        failure.token = kept_new_token();
        kept_set(w->failure, e, failure.token, 0);
    }
    pf_kernel_fail(c, &failure, NULL);
    Py_XDECREF(texts);
    Py_XDECREF(module);
    Py_XDECREF(type);
    Py_XDECREF(e);
    Py_XDECREF(traceback);
}

/* The library calls this as the kernel, with no lock held. */
static int call(void *context, const pf_kernel_call *c) {
    /* The interpreter is about to end: a daemon thread that asks for the GIL after the end would crash. */
    if (atomic_load(&stopped) && !waiting_in_main_thread())
        for (;;) pause();
    PyGILState_STATE state = PyGILState_Ensure();
    waiting *w = waiting_suspend();
    PyObject *function = Py_NewRef(((bound *)context)->function);
    int failed = run(function, c) < 0;
    if (failed) report_exception(c, w);
    Py_DECREF(function);
    waiting_resume(w);
    PyGILState_Release(state);
    return failed;
}

/* ---- The end of a kernel ---- */

void kernels_drain(void) {
    if (!atomic_load_explicit(&finished, memory_order_relaxed)) return;
    bound *b = atomic_exchange(&finished, NULL);
    while (b) {
        bound *next = b->next;
        Py_DECREF(b->function);
        PyMem_Free(b);
        b = next;
    }
}

static int drain(void *Py_UNUSED(unused)) {
    atomic_store(&drain_asked, 0);
    kernels_drain();
    return 0;
}

/* The library calls this when a kernel is finished: on any thread, without the GIL. */
static void finish(void *context) {
    bound *b = context;
    b->next = atomic_load(&finished);
    while (!atomic_compare_exchange_weak(&finished, &b->next, b));
    if (!atomic_load(&stopped) && !atomic_exchange(&drain_asked, 1) && Py_AddPendingCall(drain, NULL) < 0)
        atomic_store(&drain_asked, 0); /* no room: the next run drops the function */
}

void kernels_stop(void) { atomic_store(&stopped, 1); }

/* ---- The object ---- */

/* Kernel._register(name, function) */
static PyObject *kernel_register(PyObject *class, PyObject *args) {
    const char *name;
    PyObject *function;
    if (!PyArg_ParseTuple(args, "sO", &name, &function)) return NULL;
    bound *b = PyMem_Malloc(sizeof *b);
    if (!b) return PyErr_NoMemory();
    b->function = Py_NewRef(function);
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_kernel_register(name, call, b, finish, &handle, &err);
    if (status) {
        Py_DECREF(function);
        PyMem_Free(b);
        return raise_error(status, &err);
    }
    kernel *self = (kernel *)owner_new(class, handle);
    if (self) self->bound = b;
    return (PyObject *)self;
}

static PyObject *kernel_close(kernel *self, PyObject *Py_UNUSED(unused)) {
    LOCK_OBJECT((PyObject *)self);
    self->bound = NULL; /* the registration owns it */
    UNLOCK_OBJECT();
    handle_release(owner_take((PyObject *)self));
    kernels_drain();
    Py_RETURN_NONE;
}

static PyObject *kernel_closed(kernel *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(!owner_load((PyObject *)self));
}

/* The kernel owns the function, which may refer back to the kernel. */
static int kernel_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (((kernel *)self)->bound) Py_VISIT(((kernel *)self)->bound->function);
    return 0;
}

static int kernel_clear(PyObject *self) {
    Py_DECREF(kernel_close((kernel *)self, NULL));
    return 0;
}

static void kernel_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    owner_dealloc(self);
}

static PyMethodDef methods[] = {
    {"_register", (PyCFunction)kernel_register, METH_VARARGS | METH_CLASS, NULL},
    {"_close", (PyCFunction)kernel_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"closed", (getter)kernel_closed, NULL, "Whether the kernel was removed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_traverse, kernel_traverse},
    {Py_tp_clear, kernel_clear},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "The part of pyfeed.program.kernels.Kernel that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {
    "pyfeed._native.Kernel", sizeof(kernel), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

/* _load_kernels(path): path is bytes */
PyObject *load_kernels(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "y", &path)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_kernel_load(path, &err);
    Py_END_ALLOW_THREADS return none_or_error(status, &err);
}

/* _kernels(): a JSON list of names */
PyObject *kernels(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    char *json;
    pf_status status = pf_kernel_list(&json, &err);
    return status ? raise_error(status, &err) : take_text(json);
}

int kernels_init(PyObject *module) { return add_type(module, &spec, &kernel_type); }

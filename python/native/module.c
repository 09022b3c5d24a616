/* The module pyfeed._native. */
#define PYFEED_IMPORTS_NUMPY
#include "docs.h"
#include "native.h"

static PyObject *memory_stats(PyObject *Py_UNUSED(module), PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("memory_stats", count, keywords) < 0) return NULL;
    tuple_flush();
    lent_drain();
    kernels_drain();
    pf_memory_info m = PF_MEMORY_INFO_INIT;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_memory_stats(&m, &err);
    if (status) return raise_error(status, &err);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "handles", m.handles,
                         "tuples_on_loan", m.tuples_on_loan, "live_queue_bytes", m.live_queue_bytes,
                         "live_lent_bytes", m.live_lent_bytes, "live_batch_bytes", m.live_batch_bytes,
                         "live_view_bytes", m.live_view_bytes, "live_file_bytes", m.live_file_bytes,
                         "live_mapped_bytes", m.live_mapped_bytes, "pinned_bytes", m.pinned_bytes,
                         "device_bytes", m.device_bytes, "shared_bytes", m.shared_bytes, "idle_bytes",
                         m.idle_bytes, "live_buffers", m.live_buffers);
}

/* _dtype_name(dtype): such as "float32"; None for None */
static PyObject *dtype_name(PyObject *Py_UNUSED(module), PyObject *dtype) {
    pf_dtype d = dtype_parse(dtype);
    return d < 0 ? NULL : Py_BuildValue("z", pf_dtype_name(d));
}

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    lent_stop();
    kernels_stop();
    Py_RETURN_NONE;
}

/* A thread that is being started. */
struct start {
    PyObject *function;
    PyThread_type_lock begun; /* held until the interpreter knows the thread */
};

static void run(void *starting) {
    struct start *start = starting;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *function = start->function;
    PyThread_release_lock(start->begun); /* `start` is invalid from here on */
    PyObject *none = PyObject_CallNoArgs(function);
    if (!none) PyErr_WriteUnraisable(function);
    Py_XDECREF(none);
    Py_DECREF(function);
    PyGILState_Release(state);
}

/* _start_thread(function): starts a thread also while the interpreter is ending, which Python 3.12 itself refuses. It
 * returns once the interpreter knows the thread: a thread that registers after the end of the interpreter would crash.
 */
static PyObject *start_thread(PyObject *Py_UNUSED(module), PyObject *function) {
    struct start start = {function, PyThread_allocate_lock()};
    if (!start.begun) return PyErr_NoMemory();
    PyThread_acquire_lock(start.begun, NOWAIT_LOCK);
    Py_INCREF(function);
    int started = PyThread_start_new_thread(run, &start) != (unsigned long)-1;
    if (started) {
        Py_BEGIN_ALLOW_THREADS;
        PyThread_acquire_lock(start.begun, WAIT_LOCK);
        Py_END_ALLOW_THREADS;
    } else {
        Py_DECREF(function);
        PyErr_SetString(PyExc_RuntimeError, "the system could not start a thread");
    }
    PyThread_release_lock(start.begun);
    PyThread_free_lock(start.begun);
    if (!started) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"memory_stats", (PyCFunction)(void *)memory_stats, METH_FASTCALL | METH_KEYWORDS, MEMORY_STATS_DOC},
    {"_formats", formats, METH_NOARGS, NULL},
    {"_list_files", list_files, METH_VARARGS, NULL},
    {"_load_kernels", load_kernels, METH_VARARGS, NULL},
    {"_kernels", kernels, METH_NOARGS, NULL},
    {"_dtype_name", dtype_name, METH_O, NULL},
    {"_waiting_threads", waiting_threads, METH_NOARGS, NULL},
    {"_start_thread", start_thread, METH_O, NULL},
    {"_cuda_reason", cuda_reason, METH_NOARGS, NULL},
    {"_cuda_device_count", cuda_device_count, METH_NOARGS, NULL},
    {"_cuda_device", cuda_device, METH_VARARGS, NULL},
    {"_shared_init", shared_init, METH_VARARGS, NULL},
    {"_shared_expect", shared_expect, METH_VARARGS, NULL},
    {"_shared_exited", shared_exited, METH_VARARGS, NULL},
    {"_shared_at_work", shared_at_work, METH_VARARGS, NULL},
    {"_shutdown_buffers", shutdown_buffers, METH_NOARGS, NULL},
    {"_stop", stop, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* Checks that this is the package of pyarrayfeed, whose __init__.py imports _loading first. The distribution pyfeed, an
 * RSS parser, has a package of the same name. If it has overwritten or removed __init__.py, other modules would fail
 * with errors that do not name the cause. */
static int package_check(void) {
    PyObject *name = PyUnicode_FromString("pyfeed._loading");
    PyObject *loading = name ? PyImport_GetModule(name) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(loading);
    if (loading) return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(
            PyExc_ImportError,
            "pyfeed: expected the package of the distribution pyarrayfeed, found another __init__.py or "
            "none: the distribution pyfeed, an RSS parser, has a package of the same name. Both cannot be "
            "installed together: pip uninstall pyfeed, then pip install --force-reinstall pyarrayfeed");
    return -1;
}

/* Initialises the module. If it is imported again, after somebody has removed it from sys.modules, it gets what the
 * first one has: the types and the errors exist once. */
static int initialise(PyObject *module) {
    static PyObject *first;
    if (interpreter_check() < 0 || package_check() < 0) return -1;
    if (first) return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(first));
    if (PyArray_ImportNumPyAPI() < 0) return -1;
    if (pf_abi_version() != PF_ABI_VERSION) {
        PyErr_Format(PyExc_ImportError,
                     "pyfeed was built for version %u of libpyfeed's ABI, but the library loaded is of "
                     "version %u (%s)",
                     PF_ABI_VERSION, pf_abi_version(), pf_version());
        return -1;
    }
    if (lock_init() != 0 || errors_init() < 0 || waiting_init() < 0 || arrays_init() < 0 ||
        tuples_init(module) < 0 || device_array_init(module) < 0 || queue_init(module) < 0 ||
        reader_init(module) < 0 || scope_init(module) < 0 || files_init(module) < 0 ||
        program_init(module) < 0 || executor_init(module) < 0 || kernels_init(module) < 0 ||
        tracing_init(module) < 0 || staging_init(module) < 0 ||
        PyModule_AddStringConstant(module, "__version__", pf_version()) < 0)
        return -1;
    first = Py_NewRef(module);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, initialise},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "pyfeed._native",
    "The part of pyfeed that is written in C, over libpyfeed.",
    0,
    methods,
    slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }

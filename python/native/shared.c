/* Queues that worker processes fill. python/pyfeed_worker is the side of the workers. */
#include "native.h"

/* _shared_init(class, variable's handle, slots, ring_cells, cell_bytes, place, (num_tasks, task_slots, task_bytes)): the
 * queue and the file descriptor of its ring */
PyObject *shared_init(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *class, *slots;
    unsigned long long var;
    long long ring_cells, cell_bytes;
    unsigned int num_tasks, task_slots;
    unsigned long long task_bytes;
    int place, device, fd = -1;
    if (!PyArg_ParseTuple(args, "O!KO!LL(ii)(IIK)", &PyType_Type, &class, &var, &PyTuple_Type, &slots,
                          &ring_cells, &cell_bytes, &place, &device, &num_tasks, &task_slots, &task_bytes))
        return NULL;
    if (ring_cells < 0 || cell_bytes < 0)
        return raise_named("InvalidArgument", -1, "%s: expected at least 1, found %lld",
                           ring_cells < 0 ? "ring_cells" : "cell_bytes",
                           ring_cells < 0 ? ring_cells : cell_bytes);
    slot_specs specs;
    if (slot_specs_read(&specs, slots) < 0) {
        slot_specs_drop(&specs);
        return NULL;
    }
    pf_shared_queue_options options = PF_SHARED_QUEUE_OPTIONS_INIT;
    options.num_slots = specs.count;
    options.slots = specs.slots;
    options.ring_cells = (uint64_t)ring_cells;
    options.cell_bytes = (uint64_t)cell_bytes;
    options.place = (pf_place){place, device};
    options.num_tasks = num_tasks;
    options.task_slots = task_slots;
    options.task_bytes = task_bytes;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS; /* registering memory with the CUDA driver takes long */
    status = pf_shared_queue_init_once(var, &options, &fd, &handle, &err);
    Py_END_ALLOW_THREADS;
    slot_specs_drop(&specs);
    if (status) return raise_error(status, &err);
    PyObject *queue = queue_wrap(class, handle);
    return queue ? Py_BuildValue("Ni", queue, fd) : NULL;
}

/* _shared_expect(handle, workers) */
PyObject *shared_expect(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long handle;
    unsigned int workers;
    if (!PyArg_ParseTuple(args, "KI", &handle, &workers)) return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_shared_queue_expect(handle, workers, &err), &err);
}

/* _shared_exited(handle, pid, exit_status) */
PyObject *shared_exited(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long handle;
    long long pid;
    int exit_status;
    if (!PyArg_ParseTuple(args, "KLi", &handle, &pid, &exit_status)) return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_shared_queue_report_exit(handle, pid, exit_status, &err), &err);
}

/* _shared_at_work(handle, (pid, ...)): whether a worker process may put a tuple into the queue */
PyObject *shared_at_work(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long handle;
    PyObject *coming;
    if (!PyArg_ParseTuple(args, "KO!", &handle, &PyTuple_Type, &coming)) return NULL;
    Py_ssize_t n = PyTuple_Size(coming);
    int64_t *pids = PyMem_Calloc((size_t)n + 1, sizeof *pids);
    if (!pids) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) pids[i] = PyLong_AsLongLong(PyTuple_GetItem(coming, i));
    pf_error err = PF_ERROR_INIT;
    uint8_t at_work = 0;
    pf_status status =
        PyErr_Occurred() ? PF_OK : pf_shared_queue_at_work(handle, pids, (uint32_t)n, &at_work, &err);
    PyMem_Free(pids);
    if (PyErr_Occurred()) return NULL;
    return status ? raise_error(status, &err) : PyBool_FromLong(at_work);
}

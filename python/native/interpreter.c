/* Whether this interpreter may use the package: pyfeed's and pyfeed_worker's. */
#include "native.h"

#ifndef PYFEED_PACKAGE
#define PYFEED_PACKAGE "pyfeed"
#endif

/* The types, the errors and the hooks at exit are one set for the process, and the library's threads outlive any
 * sub-interpreter: the exit would wait for it for ever. */
int interpreter_check(void) {
    int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (id <= 0) return (int)id; /* the main interpreter, or an error */
    PyErr_Format(PyExc_ImportError,
                 PYFEED_PACKAGE
                 ": expected the main interpreter, found sub-interpreter %lld: sub-interpreters "
                 "are not supported, use threads or processes",
                 (long long)id);
    return -1;
}

/* _check_interpreter(): again at each import of the package. Python copies the module into a sub-interpreter, without a
 * call of its PyInit, once the main interpreter has it. */
PyObject *check_interpreter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    if (interpreter_check() < 0) return NULL;
    Py_RETURN_NONE;
}

/* The arguments of functions that Python calls. C checks whether they are valid; pyfeed._arguments makes the errors. */
#include <string.h>

#include "native.h"

/* Calls a function of pyfeed._arguments that raises an error. The format builds the tuple of its arguments. Returns -1.
 */
static int call_arguments_module(const char *function, const char *format, ...) {
    PyObject *module = PyImport_ImportModule("pyfeed._arguments");
    PyObject *callable = module ? PyObject_GetAttrString(module, function) : NULL;
    va_list list;
    va_start(list, format);
    PyObject *args = callable ? Py_VaBuildValue(format, list) : NULL;
    va_end(list);
    PyObject *passed = args ? PyObject_CallObject(callable, args) : NULL;
    if (passed) raise_named("ArgumentTypeError", -1, "expected other arguments, found %R", args);
    Py_XDECREF(passed);
    Py_XDECREF(args);
    Py_XDECREF(callable);
    Py_XDECREF(module);
    return -1;
}

int argument_refuse(const char *name, const char *expected, PyObject *value) {
    return call_arguments_module("refuse", "(ssO)", name, expected, value);
}

int argument_is_no_number(void) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError) &&
        !PyErr_ExceptionMatches(PyExc_ValueError))
        return 0;
    PyErr_Clear();
    return 1;
}

static PyObject *names_of(const signature *s) {
    PyObject *names = PyTuple_New(s->count);
    for (int i = 0; names && i < s->count; i++) {
        PyObject *name = PyUnicode_FromString(s->names[i]);
        if (!name || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
    }
    return names;
}

static int refuse_call(const signature *s, Py_ssize_t count, PyObject *keywords) {
    PyObject *names = names_of(s), *given = keywords ? Py_NewRef(keywords) : PyTuple_New(0);
    int r = names && given ? call_arguments_module("refuse_call", "(sOiiinO)", s->function, names,
                                                   s->positional, s->unnamed, s->required, count, given)
                           : -1;
    Py_XDECREF(given);
    Py_XDECREF(names);
    return r;
}

/* Returns the index of the argument that a keyword names, or -1. */
static int number_of(const signature *s, PyObject *keyword) {
    for (int i = s->unnamed; i < s->count; i++)
        if (PyUnicode_CompareWithASCIIString(keyword, s->names[i]) == 0) return i;
    return -1;
}

int arguments_bind(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                   PyObject **values) {
    int right = count <= s->positional;
    for (int i = 0; i < s->count; i++) values[i] = i < count ? args[i] : NULL;
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t i = 0; i < named && right; i++) {
        int at = number_of(s, PyTuple_GetItem(keywords, i));
        right = at >= 0 && !values[at];
        if (right) values[at] = args[count + i];
    }
    for (int i = 0; i < s->required && right; i++) right = values[i] != NULL;
    return right ? 0 : refuse_call(s, count, keywords);
}

int arguments_none(const char *function, Py_ssize_t count, PyObject *keywords) {
    if (count == 0 && !(keywords && PyTuple_Size(keywords) > 0)) return 0;
    return refuse_call(&(signature){.function = function}, count, keywords);
}

int argument_text(const char *name, PyObject *value, const char **text) {
    Py_ssize_t size;
    *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
    if (*text && strlen(*text) == (size_t)size) return 0;
    PyErr_Clear();
    return call_arguments_module("text", "(sO)", name, value);
}

PyObject *argument_names(const char *name, PyObject *value) {
    if (PyTuple_Check(value) || PyList_Check(value)) return PySequence_Tuple(value);
    PyObject *module = PyImport_ImportModule("pyfeed._arguments");
    PyObject *list = module ? PyObject_CallMethod(module, "names", "sO", name, value) : NULL;
    PyObject *tuple = list ? PySequence_Tuple(list) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(module);
    return tuple;
}

int argument_pass(const char *name, PyObject *value, uint64_t *pass) {
    if (!value || value == Py_None) return 0;
    PyObject *index = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (index) *pass = PyLong_AsUnsignedLongLong(index);
    Py_XDECREF(index);
    if (index && !PyErr_Occurred() && *pass <= INT64_MAX) return 0;
    return PyErr_Occurred() && !argument_is_no_number()
               ? -1
               : call_arguments_module("pass_id", "(sO)", name, value);
}

PyObject *pass_object(uint64_t pass) {
    if (pass == PF_PASS_NONE) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(pass);
}

int argument_integer(const char *name, PyObject *value, int64_t least, int64_t *number) {
    PyObject *index = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (index) *number = PyLong_AsLongLong(index);
    Py_XDECREF(index);
    if (index && !PyErr_Occurred() && *number >= least) return 0;
    return PyErr_Occurred() && !argument_is_no_number()
               ? -1
               : call_arguments_module("number", "(sOL)", name, value, (long long)least);
}

int argument_flag(const char *name, PyObject *value, int *flag) {
    if (!value) return 0;
    if (value != Py_True && value != Py_False && !PyArray_IsScalar(value, Bool))
        return call_arguments_module("flag", "(sO)", name, value);
    *flag = PyObject_IsTrue(value);
    return 0;
}

int argument_seconds(const char *name, PyObject *value, double *seconds) {
    int is_bool = PyBool_Check(value) || PyArray_IsScalar(value, Bool);  // PyFloat_AsDouble would accept it
    *seconds = is_bool ? -1 : PyFloat_AsDouble(value);
    if (PyErr_Occurred() && !argument_is_no_number()) return -1;
    return *seconds >= 0 ? 0 : call_arguments_module("seconds", "(sO)", name, value);
}

/* The structure of a tuple in Python: a dict, a list or a tuple, which may contain others. It is described by a template
 * of the same form, in which the number of its slot stands for each array. Keys of dicts are str. */
#include "native.h"

PyObject *structure_assemble(PyObject *structure, PyObject *arrays) {
    if (PyLong_Check(structure)) {
        PyObject *array = PyTuple_GetItem(arrays, PyLong_AsSsize_t(structure));
        Py_XINCREF(array);
        return array;
    }
    PyObject *out;
    if (PyDict_Check(structure)) {
        out = PyDict_New();
        PyObject *key, *inner;
        for (Py_ssize_t at = 0; out && PyDict_Next(structure, &at, &key, &inner);) {
            PyObject *value = structure_assemble(inner, arrays);
            if (!value || PyDict_SetItem(out, key, value) < 0) Py_CLEAR(out);
            Py_XDECREF(value);
        }
        return out;
    }
    int is_list = PyList_Check(structure);
    Py_ssize_t n = is_list ? PyList_Size(structure) : PyTuple_Size(structure);
    out = is_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *inner = is_list ? PyList_GetItem(structure, i) : PyTuple_GetItem(structure, i);
        PyObject *value = structure_assemble(inner, arrays);
        if (!value || (is_list ? PyList_SetItem(out, i, value) : PyTuple_SetItem(out, i, value)) < 0)
            Py_CLEAR(out);
    }
    return out;
}

PyObject *structure_of_tuple(PyObject *structure, PyObject *arrays) {
    if (!structure) return arrays;
    PyObject *out = arrays ? structure_assemble(structure, arrays) : NULL;
    Py_DECREF(structure);
    Py_XDECREF(arrays);
    return out;
}

static int is_sequence(PyObject *value) { return PyTuple_Check(value) || PyList_Check(value); }

int structure_is_mapping(PyObject *value) {
    return PyDict_Check(value) || (!is_sequence(value) && PyObject_HasAttrString(value, "keys"));
}

/* Where an error is: the path to a part of a value, such as ".meta.boxes". */
typedef struct path {
    const struct path *outer; /* NULL: the value itself */
    PyObject *key;            /* of a dict; NULL: an index */
    Py_ssize_t index;
} path;

static PyObject *path_text(const path *p) {
    if (!p) return PyUnicode_FromString("arrays");
    PyObject *outer = path_text(p->outer);
    PyObject *text = !outer   ? NULL
                     : p->key ? PyUnicode_FromFormat("%U[%R]", outer, p->key)
                              : PyUnicode_FromFormat("%U[%zd]", outer, p->index);
    Py_XDECREF(outer);
    return text;
}

static int refuse(const char *class, const path *p, const char *expected, PyObject *what, PyObject *found) {
    PyObject *where = path_text(p);
    if (where) raise_named(class, -1, "%U: expected %s%R, found %R", where, expected, what, found);
    Py_XDECREF(where);
    return -1;
}

/* Returns a new reference to the dict itself, or to a dict of another mapping; NULL without an error: it is no mapping. */
static PyObject *as_dict(PyObject *value) {
    if (PyDict_Check(value)) {
        Py_INCREF(value);
        return value;
    }
    if (!structure_is_mapping(value)) return NULL;
    PyObject *dict = PyDict_New();
    if (dict && PyDict_Update(dict, value) < 0) Py_CLEAR(dict);
    return dict;
}

static int flatten(PyObject *structure, PyObject *value, const path *p, PyObject *out);

static int flatten_dict(PyObject *structure, PyObject *value, const path *p, PyObject *out) {
    PyObject *dict = as_dict(value);
    PyObject *expected = PyDict_Keys(structure);
    int result = -1;
    if (!dict) {
        if (expected && !PyErr_Occurred())
            refuse("DTypeError", p, "a dict with the keys ", expected, (PyObject *)Py_TYPE(value));
    } else if (expected) {
        PyObject *key, *inner;
        result = 0;
        int same = PyDict_Size(dict) == PyDict_Size(structure);
        for (Py_ssize_t at = 0; same && !result && PyDict_Next(structure, &at, &key, &inner);) {
            PyObject *one = dict_item(dict, key); /* owned: reading an array may run Python code */
            same = one != NULL;
            if (one) result = flatten(inner, one, &(path){p, key, 0}, out);
            Py_XDECREF(one);
        }
        if (!same && !PyErr_Occurred()) {
            PyObject *found = PyDict_Keys(dict);
            if (found) refuse("SlotCountError", p, "the keys ", expected, found);
            Py_XDECREF(found);
        }
        if (PyErr_Occurred()) result = -1;
    }
    Py_XDECREF(expected);
    Py_XDECREF(dict);
    return result;
}

static int flatten_sequence(PyObject *structure, PyObject *value, const path *p, PyObject *out) {
    int is_list = PyList_Check(structure);
    Py_ssize_t n = is_list ? PyList_Size(structure) : PyTuple_Size(structure);
    PyObject *count = PyLong_FromSsize_t(n);
    if (!count) return -1;
    int result = 0;
    if (!is_sequence(value)) {
        result = refuse("DTypeError", p, "a list or tuple of length ", count, (PyObject *)Py_TYPE(value));
    } else if (PySequence_Size(value) != n) {
        PyObject *found = PyLong_FromSsize_t(PySequence_Size(value));
        if (found) refuse("SlotCountError", p, "the length ", count, found);
        Py_XDECREF(found);
        result = -1;
    }
    for (Py_ssize_t i = 0; !result && i < n; i++) {
        PyObject *inner = is_list ? PyList_GetItem(structure, i) : PyTuple_GetItem(structure, i);
        PyObject *one = PySequence_GetItem(value, i);
        result = one ? flatten(inner, one, &(path){p, NULL, i}, out) : -1;
        Py_XDECREF(one);
    }
    Py_DECREF(count);
    return result;
}

/* Puts the arrays of a value into a list, in the places of their slots. */
static int flatten(PyObject *structure, PyObject *value, const path *p, PyObject *out) {
    if (PyLong_Check(structure)) {
        Py_INCREF(value);
        return PyList_SetItem(out, PyLong_AsSsize_t(structure), value);
    }
    return (PyDict_Check(structure) ? flatten_dict : flatten_sequence)(structure, value, p, out);
}

static Py_ssize_t leaves(PyObject *structure) {
    if (PyLong_Check(structure)) return 1;
    Py_ssize_t n = 0;
    if (PyDict_Check(structure)) {
        PyObject *key, *inner;
        for (Py_ssize_t at = 0; PyDict_Next(structure, &at, &key, &inner);) n += leaves(inner);
    } else {
        for (Py_ssize_t i = 0; i < PySequence_Size(structure); i++)
            n += leaves(PyList_Check(structure) ? PyList_GetItem(structure, i)
                                                : PyTuple_GetItem(structure, i));
    }
    return n;
}

PyObject *structure_flatten(PyObject *structure, PyObject *value) {
    if (PyDict_Check(structure) && is_sequence(value)) { /* the arrays in the order of the slots */
        Py_INCREF(value);
        return value;
    }
    PyObject *out = PyList_New(leaves(structure));
    if (out && flatten(structure, value, NULL, out) < 0) Py_CLEAR(out);
    return out;
}

PyObject *structure_of_names(PyObject *names) {
    PyObject *structure = PyDict_New();
    for (Py_ssize_t i = 0; structure && i < PyTuple_Size(names); i++) {
        PyObject *slot = PyLong_FromSsize_t(i);
        if (!slot || PyDict_SetItem(structure, PyTuple_GetItem(names, i), slot) < 0) Py_CLEAR(structure);
        Py_XDECREF(slot);
    }
    return structure;
}

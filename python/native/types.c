/* Types of the stable ABI: adding them to the module, and objects that only own a handle. */
#include "native.h"

PyObject *import_attribute(const char *module, const char *name) {
    PyObject *m = PyImport_ImportModule(module), *value = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    return value;
}

int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type ? PyModule_AddType(module, *type) : -1;
}

PyObject *owner_new(PyObject *class, pf_handle handle) {
    allocfunc make = PyType_GetSlot((PyTypeObject *)class, Py_tp_alloc);
    owner *self = (owner *)make((PyTypeObject *)class, 0);
    if (self)
        self->handle = handle;
    else
        handle_release(handle);
    return (PyObject *)self;
}

PyObject *owner_or_error(PyObject *class, pf_status status, pf_handle handle, pf_error *err) {
    return status ? raise_error(status, err) : owner_new(class, handle);
}

void owner_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    handle_release(((owner *)self)->handle);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

pf_handle owner_load(PyObject *self) {
    pf_handle handle;
    LOCK_OBJECT(self);
    handle = ((owner *)self)->handle;
    UNLOCK_OBJECT();
    return handle;
}

pf_handle owner_take(PyObject *self) {
    pf_handle handle;
    LOCK_OBJECT(self);
    handle = ((owner *)self)->handle;
    ((owner *)self)->handle = 0;
    UNLOCK_OBJECT();
    return handle;
}

PyObject *owner_handle(PyObject *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(((owner *)self)->handle);
}

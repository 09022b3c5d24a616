/* Locks for what the GIL guards, in builds of Python without a GIL. With a GIL they are nothing.
 *
 * - LOCK_OBJECT guards the fields of one object. It is a critical section of Python: it ends for a while whenever the
 *   thread waits, as the GIL does. So Python code may run in it.
 * - module_lock guards static state. Between it and module_unlock no Python code may run: no object is dropped, made or
 *   called. */
#ifndef PYFEED_LOCK_H
#define PYFEED_LOCK_H

#ifdef Py_GIL_DISABLED
#define LOCK_OBJECT(object) Py_BEGIN_CRITICAL_SECTION(object)
#define UNLOCK_OBJECT() Py_END_CRITICAL_SECTION()
void module_lock(void);
void module_unlock(void);
#else
#define LOCK_OBJECT(object) {
#define UNLOCK_OBJECT() }
static inline void module_lock(void) {}
static inline void module_unlock(void) {}
#endif

/* Makes the module lock free in a child of fork(). A second call does nothing. Returns 0, or an error number. */
int lock_init(void);

/* Returns a new reference to an object that a field refers to, or NULL. The owner is the object that has the field. */
static inline PyObject *field_get(PyObject *owner, PyObject *const *field) {
    PyObject *value;
    (void)owner;
    if (!__atomic_load_n(field, __ATOMIC_RELAXED)) return NULL; /* most fields are never set */
    LOCK_OBJECT(owner);
    value = Py_XNewRef(*field);
    UNLOCK_OBJECT();
    return value;
}

/* Makes a field refer to a value, or to nothing if the value is NULL. */
static inline void field_set(PyObject *owner, PyObject **field, PyObject *value) {
    PyObject *old;
    (void)owner;
    LOCK_OBJECT(owner);
    old = *field;
    __atomic_store_n(field, Py_XNewRef(value), __ATOMIC_RELAXED);
    UNLOCK_OBJECT();
    Py_XDECREF(old);
}

/* Returns a new reference to an element of a list, or NULL with an IndexError set. Other threads may change the list. */
static inline PyObject *list_item(PyObject *list, Py_ssize_t i) {
#ifdef Py_GIL_DISABLED
    return PyList_GetItemRef(list, i);
#else
    return Py_XNewRef(PyList_GetItem(list, i));
#endif
}

/* Returns a new reference to a value of a dict, or NULL, with an exception set or without one if there is no such key. */
static inline PyObject *dict_item(PyObject *dict, PyObject *key) {
#ifdef Py_GIL_DISABLED
    PyObject *value;
    PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

#endif

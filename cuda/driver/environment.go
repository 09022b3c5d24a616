package driver

// #include <stdlib.h>
import "C"

import "unsafe"

// Getenv is a variable of the process's environment as it is now: Go's own has what it was when the process began, which
// is not what a program in another language has set since.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	value := C.getenv(c)
	if value == nil {
		return ""
	}
	return C.GoString(value)
}

package driver

// #include <stdlib.h>
import "C"

import "unsafe"

// Getenv returns a variable of the process's present environment. Go's own copy dates from the start of the process,
// and lacks what code in another language has set since.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	value := C.getenv(c)
	if value == nil {
		return ""
	}
	return C.GoString(value)
}

package main

// #include "internal.h"
import "C"

// The packages below have been initialised.
func init() { C.pfi_release_tables() }

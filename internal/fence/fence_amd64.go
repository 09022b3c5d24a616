// Package fence orders loads of memory that other threads change without synchronization.
package fence

// Loads orders all loads before it before all loads and stores after it. x86-64 never changes the order of loads.
func Loads() {}

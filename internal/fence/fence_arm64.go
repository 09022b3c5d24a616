// Package fence orders loads of memory that other threads change without synchronization.
package fence

// Loads orders all loads before it before all loads and stores after it. Go's atomic loads order only what follows
// them. It is for code that reads data and then checks whether the data was valid when it was read.
func Loads()

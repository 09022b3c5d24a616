// Package limits holds limits that tests of several packages change.
package limits

import "time"

// TimeSlice is how long an operation that finds all it needs goes on in one try.
var TimeSlice = 10 * time.Millisecond

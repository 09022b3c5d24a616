// Package limits has limits that tests of several packages change.
package limits

import "time"

// TimeSlice is how long one try of an operation runs when it never has to wait.
var TimeSlice = 10 * time.Millisecond

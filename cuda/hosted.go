package cuda

// Hosted says whether devices are their twins in the host's memory, which the host can touch.
func Hosted() bool { return hosted() }

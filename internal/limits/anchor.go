package limits

// A reader of files notes where it can go on after so many instances, or so many bytes with fewer instances. The
// instances between such a place and a position are read again when the position is restored. Measured in
// docs/performance.md, "Exact resume".
var (
	AnchorInstances = 1024
	AnchorBytes     = 8 << 20
)

package memory

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// populate touches every page, in several threads: one alone has the kernel clear some 4 GB a second.
func populate(data []byte) {
	const least = 64 << 20 // below, threads cost more than they save
	n := min(runtime.NumCPU(), max(len(data)/least, 1))
	part := (len(data)/n + SlabUnit - 1) &^ (SlabUnit - 1)
	var all sync.WaitGroup
	for at := 0; at < len(data); at += part {
		piece := data[at:min(at+part, len(data))]
		all.Go(func() {
			if unix.Madvise(piece, unix.MADV_POPULATE_WRITE) != nil { // before Linux 5.14
				for i := 0; i < len(piece); i += 4096 {
					piece[i] = 0
				}
			}
		})
	}
	all.Wait()
}

package memory

import (
	"runtime"
	"sync"
)

// populate touches every page, on several threads: on one thread, the kernel clears only some 4 GB a second.
func populate(data []byte) {
	const minPart = 64 << 20 // bytes per thread; for less, starting a thread costs more than it saves
	n := min(runtime.NumCPU(), max(len(data)/minPart, 1))
	part := (len(data)/n + SlabUnit - 1) &^ (SlabUnit - 1)
	var all sync.WaitGroup
	for at := 0; at < len(data); at += part {
		piece := data[at:min(at+part, len(data))]
		all.Go(func() {
			if !MapPages(piece) {
				for i := 0; i < len(piece); i += 4096 {
					piece[i] = 0
				}
			}
		})
	}
	all.Wait()
}

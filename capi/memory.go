package main

// #include "internal.h"
import "C"

import (
	"github.com/go-python/gopy/gopyh"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

//export pfgo_memory_stats
func pfgo_memory_stats(out *C.pf_memory_info, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	out.handles = C.uint64_t(gopyh.NumHandles())
	out.tuples_on_loan = C.uint64_t(loans.len() + writeLoans.len())
	m := memory.Count()
	out.live_queue_bytes = C.uint64_t(m.Live[memory.Queue])
	out.live_lent_bytes = C.uint64_t(m.Live[memory.Lent])
	out.live_batch_bytes = C.uint64_t(m.Live[memory.Batch])
	out.live_view_bytes = C.uint64_t(m.Live[memory.View])
	out.live_file_bytes = C.uint64_t(m.Live[memory.File])
	out.live_mapped_bytes = C.uint64_t(m.Live[memory.Mapped])
	out.live_buffers = C.uint64_t(m.Buffers)
	out.idle_bytes = C.uint64_t(m.Idle)
	out.pinned_bytes = C.uint64_t(m.Slabs[memory.PinnedSlab])
	out.device_bytes = C.uint64_t(m.Slabs[memory.DeviceSlab])
	out.shared_bytes = C.uint64_t(m.Slabs[memory.SharedSlab])
	return C.PF_OK
}

// The library itself: its release, and the memory that it has.
#ifndef PYFEED_PYFEED_LIBRARY_HPP
#define PYFEED_PYFEED_LIBRARY_HPP

#include <string>

#include "wait.hpp"

namespace pyfeed {

using MemoryInfo = pf_memory_info;

// What is alive: everything but idle_bytes goes back to 0 when all is closed and released.
inline MemoryInfo memory_stats() {
    detail::check_abi();
    detail::Call call;
    pf_memory_info stats = PF_MEMORY_INFO_INIT;
    call.check(pf_memory_stats(&stats, call.err()));
    return stats;
}

// The release of the library that is loaded.
inline std::string version() { return pf_version(); }

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_LIBRARY_HPP

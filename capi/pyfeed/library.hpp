// The library itself: its release, and the memory that it uses.
#ifndef PYFEED_PYFEED_LIBRARY_HPP
#define PYFEED_PYFEED_LIBRARY_HPP

#include <string>

#include "wait.hpp"

namespace pyfeed {

using MemoryInfo = pf_memory_info;

// The memory and the objects of this process. All counts except idle_bytes are 0 again once everything is
// closed and released.
inline MemoryInfo memory_stats() {
    detail::check_abi();
    detail::Call call;
    pf_memory_info stats = PF_MEMORY_INFO_INIT;
    call.check(pf_memory_stats(&stats, call.err()));
    return stats;
}

// The release of the loaded library, such as "0.1.0".
inline std::string version() { return pf_version(); }

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_LIBRARY_HPP

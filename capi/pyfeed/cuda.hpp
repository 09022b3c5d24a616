// CUDA devices.
#ifndef PYFEED_PYFEED_CUDA_HPP
#define PYFEED_PYFEED_CUDA_HPP

#include <cstdint>
#include <string>

#include "wait.hpp"

namespace pyfeed {

// The devices that the CUDA driver has, which is opened by the first call of these, or the first CUDAPlace that is fed.
namespace cuda {

// Why there is no device to feed, in the driver's words; empty if there is.
inline std::string reason() {
    detail::check_abi();
    detail::Call call;
    uint8_t available = 0;
    char *text = nullptr;
    call.check(pf_cuda_available(&available, &text, call.err()));
    return detail::take_string(text);
}
inline bool available() { return reason().empty(); }

// UnsupportedError, with the reason, without a driver.
inline uint32_t device_count() {
    detail::check_abi();
    detail::Call call;
    uint32_t count = 0;
    call.check(pf_cuda_device_count(&count, call.err()));
    return count;
}

// Of a device's memory, in bytes, as the driver says now.
struct MemoryInfo {
    uint64_t free;
    uint64_t total;
};

inline pf_cuda_device_info device_info(uint32_t device) {
    detail::check_abi();
    detail::Call call;
    pf_cuda_device_info info = PF_CUDA_DEVICE_INFO_INIT;
    call.check(pf_cuda_device_stats(device, &info, call.err()));
    return info;
}
inline MemoryInfo memory_info(uint32_t device = 0) {
    const pf_cuda_device_info info = device_info(device);
    return {info.free_bytes, info.total_bytes};
}
// Such as "NVIDIA H200".
inline std::string device_name(uint32_t device = 0) { return device_info(device).name; }

}  // namespace cuda

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_CUDA_HPP

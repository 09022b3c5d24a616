// CUDA devices.
#ifndef PYFEED_PYFEED_CUDA_HPP
#define PYFEED_PYFEED_CUDA_HPP

#include <cstdint>
#include <string>

#include "wait.hpp"

namespace pyfeed {

// The devices of the CUDA driver. The driver is opened by the first call of these functions, or by the first
// CUDAPlace that is fed.
namespace cuda {

// The reason why no device can be fed, in the words of the driver; empty if there is a device.
inline std::string reason() {
    detail::check_abi();
    detail::Call call;
    uint8_t available = 0;
    char *text = nullptr;
    call.check(pf_cuda_available(&available, &text, call.err()));
    return detail::take_string(text);
}
inline bool available() { return reason().empty(); }

// The number of devices. Throws UnsupportedError, with the reason, if there is no driver.
inline uint32_t device_count() {
    detail::check_abi();
    detail::Call call;
    uint32_t count = 0;
    call.check(pf_cuda_device_count(&count, call.err()));
    return count;
}

// The memory of a device in bytes, as the driver reports it now.
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
// The name of a device, such as "NVIDIA H200".
inline std::string device_name(uint32_t device = 0) { return device_info(device).name; }

}  // namespace cuda

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_CUDA_HPP

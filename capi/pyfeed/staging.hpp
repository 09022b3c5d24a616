// Staging buffers.
#ifndef PYFEED_PYFEED_STAGING_HPP
#define PYFEED_PYFEED_STAGING_HPP

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tuple.hpp"

namespace pyfeed {

using StagingInfo = pf_staging_info;

// The staging buffer of a place: a queue of tuples that were copied to the place ahead of their use. It is
// first in, first out, for any number of threads. The process has one for each place, for good. Made by
// get_buffer.
class StagingBuffer {
public:
    // Takes over a reference to a handle.
    static StagingBuffer adopt(pf_handle handle) {
        detail::check_abi();
        return StagingBuffer(detail::Handle(handle));
    }

    // Copies a tuple, strided or not, to the place. Tuples may have different slots. Blocks while the buffer
    // is full. Throws TooLargeError if the tuple alone is larger than bytes_limit.
    void put(const Tensors &tensors, const Wait &wait = {}) const {
        detail::Call call(wait);
        call.check(pf_staging_put(handle(), tensors.data(), tensors.size(), call.wait(), call.err()));
    }

    // Takes the oldest tuple. Blocks while there is none.
    Tuple get(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_staging_get(handle(), call.wait(), &raw, call.err()));
        return Tuple(raw);
    }

    // Drops all tuples in the buffer and returns their memory to the system. The buffer stays in use, and
    // blocked puts get the room. Returns the number of tuples.
    uint64_t clear() const {
        detail::Call call;
        uint64_t dropped = 0;
        call.check(pf_staging_clear(handle(), &dropped, call.err()));
        return dropped;
    }

    StagingInfo stats() const {
        detail::Call call;
        pf_staging_info info = PF_STAGING_INFO_INIT;
        call.check(pf_staging_stats(handle(), &info, call.err()));
        return info;
    }
    size_t size() const { return static_cast<size_t>(stats().num_tuples); }
    size_t capacity() const { return static_cast<size_t>(stats().capacity); }
    uint64_t bytes_limit() const { return stats().bytes_limit; }
    Place place() const { return stats().place; }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    explicit StagingBuffer(detail::Handle handle) : handle_(std::move(handle)) {}

    detail::Handle handle_;
};

// The staging buffer of a place. The first call makes it; a later call with other limits throws StateError.
// `capacity` is in tuples, at least 1; `bytes_limit` is in bytes, 0: no limit.
inline StagingBuffer get_buffer(Place place, uint64_t capacity, uint64_t bytes_limit = 0) {
    detail::check_abi();
    detail::Call call;
    pf_handle handle = 0;
    call.check(pf_staging_create(place, capacity, bytes_limit, &handle, call.err()));
    return StagingBuffer::adopt(handle);
}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_STAGING_HPP

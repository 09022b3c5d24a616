// Exchange of tensors with other libraries by DLPack.
#ifndef PYFEED_PYFEED_DLPACK_HPP
#define PYFEED_PYFEED_DLPACK_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "tuple.hpp"

namespace pyfeed {

// The structures of the public DLPack ABI, for programs without a dlpack.h. The functions below accept these
// or those of dlpack.h: to_dlpack<::DLManagedTensorVersioned>(...).
namespace dlpack {

struct DLDevice {
    int32_t device_type;
    int32_t device_id;
};
struct DLDataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};
struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;  // in elements
    uint64_t byte_offset;
};
struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(DLManagedTensor *self);
};
struct DLPackVersion {
    uint32_t major;
    uint32_t minor;
};
struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
};

enum { kCPU = 1, kCUDA = 2, kCUDAHost = 3 };                                     // device_type
enum { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };  // dtype.code
enum : uint64_t { kReadOnly = 1 };                                               // flags

}  // namespace dlpack

namespace detail {

template <class Managed, class = void>
inline constexpr bool is_versioned = false;
template <class Managed>
inline constexpr bool is_versioned<Managed, std::void_t<decltype(std::declval<Managed>().version)>> = true;

struct DLPackDType {
    uint8_t code, bits;
};
inline DLPackDType to_dlpack_dtype(DType dtype) {
    const auto bits = static_cast<uint8_t>(8 * dtype_size(dtype));
    switch (dtype) {
        case DType::bool_:
            return {dlpack::kBool, bits};
        case DType::int8:
        case DType::int16:
        case DType::int32:
        case DType::int64:
            return {dlpack::kInt, bits};
        case DType::uint8:
        case DType::uint16:
        case DType::uint32:
        case DType::uint64:
            return {dlpack::kUInt, bits};
        case DType::float16:
        case DType::float32:
        case DType::float64:
            return {dlpack::kFloat, bits};
        case DType::bfloat16:
            return {dlpack::kBfloat, bits};
        case DType::complex64:
        case DType::complex128:
            return {dlpack::kComplex, bits};
        case DType::any:
            break;
    }
    throw DTypeError("DLPack has no " + dtype_name(dtype));
}
inline DType from_dlpack_dtype(int code, int bits, int lanes) {
    if (lanes == 1) {
        for (pf_dtype i = PF_BOOL; i <= PF_COMPLEX128; i++) {
            const DLPackDType d = to_dlpack_dtype(static_cast<DType>(i));
            if (d.code == code && d.bits == bits) return static_cast<DType>(i);
        }
    }
    throw DTypeError("no dtype is DLPack's code " + std::to_string(code) + " with " + std::to_string(bits) +
                     " bits and " + std::to_string(lanes) + " lanes");
}

// An exported tensor, with the arrays that it points to and the tuple that owns its memory.
template <class Managed>
struct Exported {
    Managed managed{};
    int64_t shape[PF_MAX_RANK];
    int64_t strides[PF_MAX_RANK];
    std::shared_ptr<const Tuple> owner;
};

}  // namespace detail

// Exports one slot of a tuple to another library, without copying. The tuple is released when the last
// exported tensor is deleted and no other reference to `tuple` is left. The ragged offsets (LoD, level of
// detail) are not exported, since DLPack has none. A lent tensor is exported as read-only. Only the versioned
// structure can express that; the other one throws StateError. For a tuple at a CUDAPlace, call
// tuple->use(stream) first: it makes the stream that will use the tensor wait for the copy.
template <class Managed = dlpack::DLManagedTensorVersioned>
Managed *to_dlpack(std::shared_ptr<const Tuple> tuple, size_t slot) {
    if (tuple == nullptr) throw InvalidArgument("to_dlpack: there is no tuple");
    const TensorView view = tuple->at(slot);
    if (!detail::is_versioned<Managed> && view.read_only()) {
        throw StateError("the tensor is lent and read-only, which an unversioned DLPack tensor cannot say",
                         static_cast<int>(slot));
    }

    auto exported = std::make_unique<detail::Exported<Managed>>();
    Managed &managed = exported->managed;
    auto &tensor = managed.dl_tensor;
    tensor.data = const_cast<void *>(view.data());
    using DeviceType = decltype(tensor.device.device_type);
    const Place place = view.on_host() && view.place().kind == PF_CUDA ? CPUPlace() : view.place();
    switch (place.kind) {
        case PF_CUDA:
            tensor.device.device_type = static_cast<DeviceType>(dlpack::kCUDA);
            break;
        case PF_CUDA_PINNED:
            tensor.device.device_type = static_cast<DeviceType>(dlpack::kCUDAHost);
            break;
        default:
            tensor.device.device_type = static_cast<DeviceType>(dlpack::kCPU);
    }
    tensor.device.device_id = place.device;
    tensor.ndim = static_cast<int32_t>(view.rank());
    const detail::DLPackDType dtype = detail::to_dlpack_dtype(view.dtype());
    tensor.dtype.code = dtype.code;
    tensor.dtype.bits = dtype.bits;
    tensor.dtype.lanes = 1;
    const auto strides = view.strides();
    const auto itemsize = static_cast<int64_t>(dtype_size(view.dtype()));
    int64_t step = 1;
    for (size_t i = view.rank(); i-- > 0;) {
        exported->shape[i] = view.dim(i);
        exported->strides[i] = strides ? (*strides)[i] / itemsize : step;
        step *= view.dim(i);
    }
    tensor.shape = exported->shape;
    tensor.strides = exported->strides;
    tensor.byte_offset = 0;
    managed.manager_ctx = exported.get();
    managed.deleter = [](Managed *self) {
        if (self != nullptr) delete static_cast<detail::Exported<Managed> *>(self->manager_ctx);
    };
    if constexpr (detail::is_versioned<Managed>) {
        managed.version.major = 1;
        managed.version.minor = 0;
        managed.flags = view.read_only() ? uint64_t{dlpack::kReadOnly} : 0;
    }
    exported->owner = std::move(tuple);
    return &exported.release()->managed;
}

// The same, for a tuple that is only used for this slot.
template <class Managed = dlpack::DLManagedTensorVersioned>
Managed *to_dlpack(Tuple &&tuple, size_t slot) {
    return to_dlpack<Managed>(std::make_shared<const Tuple>(std::move(tuple)), slot);
}

// A tensor of another library: a view to push, and the owner of its memory. The memory stays as long as any
// copy of this object or of owner() lives. To lend it: queue.push_lent({t.view()}, t.owner()). The thread
// that drops the last copy then calls the deleter of the other library, which must allow any thread.
class DLPackTensor {
public:
    DLPackTensor(const TensorView &view, std::shared_ptr<const void> owner)
        : view_(view), owner_(std::move(owner)) {}

    const TensorView &view() const { return view_; }
    const std::shared_ptr<const void> &owner() const { return owner_; }

private:
    TensorView view_;
    std::shared_ptr<const void> owner_;
};

// Takes a tensor over from another library. If it throws, it has called the deleter of the tensor.
template <class Managed>
DLPackTensor from_dlpack(Managed *managed) {
    if (managed == nullptr) throw InvalidArgument("from_dlpack: there is no tensor");
    std::shared_ptr<const void> owner(static_cast<const void *>(managed), [managed](const void *) {
        if (managed->deleter != nullptr) managed->deleter(managed);
    });
    uint64_t flags = 0;
    if constexpr (detail::is_versioned<Managed>) {
        // In another major version the fields after the deleter may have moved.
        if (managed->version.major != 1) {
            throw UnsupportedError("from_dlpack: expected DLPack 1, found " +
                                   std::to_string(managed->version.major) + "." +
                                   std::to_string(managed->version.minor));
        }
        flags = managed->flags;
    }
    const auto &tensor = managed->dl_tensor;
    const auto device_type = static_cast<int>(tensor.device.device_type);
    Place place{};
    if (device_type == dlpack::kCUDA) {
        place = CUDAPlace(tensor.device.device_id);
    } else if (device_type == dlpack::kCUDAHost) {
        place = CUDAPinnedPlace();
    } else if (device_type != dlpack::kCPU) {
        throw UnsupportedError(
            "from_dlpack: expected memory of the CPU or of CUDA, found DLPack's device type " +
            std::to_string(device_type));
    }
    if (tensor.ndim < 0) {
        throw ShapeError("from_dlpack: a tensor of " + std::to_string(tensor.ndim) + " dimensions");
    }
    const auto rank = static_cast<size_t>(tensor.ndim);
    if (rank > 0 && tensor.shape == nullptr) throw InvalidArgument("from_dlpack: the tensor has no shape");
    const DType dtype = detail::from_dlpack_dtype(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
    const auto itemsize = static_cast<int64_t>(dtype_size(dtype));
    const Shape shape(tensor.shape, rank);

    char *data = static_cast<char *>(tensor.data);
    if (data != nullptr) data += tensor.byte_offset;
    TensorView view(dtype, shape, data);
    view.with_place(place).with_read_only((flags & dlpack::kReadOnly) != 0);

    // Strides of a contiguous tensor are left out: a tensor with strides cannot be lent.
    if (tensor.strides != nullptr) {
        Shape strides(tensor.strides, rank);
        bool contiguous = true;
        int64_t step = 1;
        for (size_t i = rank; i-- > 0;) {
            if (shape[i] != 1 && strides[i] != step) contiguous = false;
            step *= shape[i];
            strides[i] *= itemsize;
        }
        if (!contiguous && shape.numel() > 0) view.with_strides(strides);
    }
    return {view, std::move(owner)};
}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_DLPACK_HPP

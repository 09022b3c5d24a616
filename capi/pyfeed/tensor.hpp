// Views of tensors.
#ifndef PYFEED_PYFEED_TENSOR_HPP
#define PYFEED_PYFEED_TENSOR_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "types.hpp"

namespace pyfeed {

// A view of a tensor. It copies shape and strides, and borrows the data and the ragged offsets (LoD, level of
// detail).
class TensorView {
public:
    TensorView() = default;

    // A tensor of that dtype and shape at `data`. Without data it describes a tensor, for Queue::reserve.
    TensorView(DType dtype, const Shape &shape, void *data = nullptr)
        : dtype_(dtype), data_(data), shape_(shape) {
        const int64_t n = shape.numel();
        nbytes_ = n > 0 ? static_cast<uint64_t>(n) * dtype_size(dtype) : 0;
    }

    template <class T, class = std::enable_if_t<detail::has_dtype<T>>>
    TensorView(T *data, const Shape &shape)
        : TensorView(dtype_of<T>(), shape, const_cast<std::remove_cv_t<T> *>(data)) {
        if constexpr (std::is_const_v<T>) flags_ |= PF_READ_ONLY;
    }

    explicit TensorView(const pf_tensor &raw)
        : dtype_(static_cast<DType>(raw.dtype)),
          place_(raw.place),
          flags_(raw.flags),
          lod_levels_(raw.lod_levels),
          data_(raw.data),
          nbytes_(raw.nbytes),
          lod_(raw.lod),
          shape_(raw.dims, static_cast<size_t>(raw.rank)) {
        if (raw.strides != nullptr) with_strides(Shape(raw.strides, static_cast<size_t>(raw.rank)));
    }

    // Sets strides in bytes, one for each dimension. They may be negative, or 0 to repeat elements.
    TensorView &with_strides(const Shape &strides) {
        strides_ = strides;
        strided_ = true;
        return *this;
    }
    // Sets the LoD. It is borrowed: it must live until the end of the call that this view is given to.
    TensorView &with_lod(const LoD &lod) {
        lod_ = lod.raw();
        lod_levels_ = static_cast<uint32_t>(lod.size());
        return *this;
    }
    TensorView &with_place(Place place) {
        place_ = place;
        return *this;
    }
    TensorView &with_read_only(bool read_only) {
        flags_ = read_only ? flags_ | PF_READ_ONLY : flags_ & ~static_cast<uint32_t>(PF_READ_ONLY);
        return *this;
    }

    DType dtype() const { return dtype_; }
    Place place() const { return place_; }
    Shape shape() const { return shape_; }
    size_t rank() const { return shape_.rank(); }
    int64_t dim(size_t i) const { return shape_[i]; }
    int64_t numel() const { return shape_.numel(); }
    uint64_t nbytes() const { return nbytes_; }
    uint32_t flags() const { return flags_; }
    bool read_only() const { return (flags_ & PF_READ_ONLY) != 0; }
    // Whether the host can access the data. It can, except for data at a CUDAPlace that is not emulated.
    bool on_host() const { return place_.kind != PF_CUDA || (flags_ & PF_HOST_EMULATED) != 0; }
    // The strides in bytes; empty if the tensor is contiguous, with the last dimension fastest.
    std::optional<Shape> strides() const { return strided_ ? std::optional<Shape>(strides_) : std::nullopt; }

    size_t lod_levels() const { return lod_levels_; }
    // The offsets of one level, outermost first.
    Span<const int64_t> lod(size_t level) const {
        if (level >= lod_levels_) {
            throw InvalidArgument("no level of detail " + std::to_string(level) + ": the tensor has " +
                                  std::to_string(lod_levels_));
        }
        return {lod_[level].offsets, static_cast<size_t>(lod_[level].count)};
    }

    const void *data() const { return data_; }
    // The elements. Throws DTypeError if they have another type.
    template <class T>
    const T *data() const {
        check_dtype<T>();
        return static_cast<const T *>(data_);
    }
    // The elements, for writing. Throws StateError if the tensor is lent.
    template <class T>
    T *mutable_data() const {
        check_dtype<T>();
        if (read_only()) throw StateError("the tensor is read-only: its memory is lent");
        return static_cast<T *>(data_);
    }
    // All elements in order. Throws StateError if the tensor has strides or if the host cannot access its
    // data.
    template <class T>
    Span<const T> values() const {
        if (!on_host()) {
            throw StateError("the tensor is at CUDAPlace(" + std::to_string(place_.device) +
                             "): download it to look at it");
        }
        if (strided_) throw StateError("the tensor is strided: its elements do not lie in order");
        return {data<T>(), static_cast<size_t>(numel())};
    }

    // The struct for the C functions. It points into this view, so the view must be a named object.
    pf_tensor raw() const && = delete;
    pf_tensor raw() const & {
        pf_tensor t = PF_TENSOR_INIT;
        t.dtype = static_cast<pf_dtype>(dtype_);
        t.place = place_;
        t.rank = static_cast<int32_t>(shape_.rank());
        t.lod_levels = lod_levels_;
        t.flags = flags_;
        t.data = data_;
        t.nbytes = nbytes_;
        t.dims = shape_.data();
        t.strides = strided_ ? strides_.data() : nullptr;
        t.lod = lod_;
        return t;
    }

private:
    template <class T>
    void check_dtype() const {
        if (dtype_ != dtype_of<T>()) {
            throw DTypeError("expected " + dtype_name(dtype_of<T>()) + ", but the tensor holds " +
                             dtype_name(dtype_));
        }
    }

    DType dtype_ = DType::any;
    Place place_;
    uint32_t flags_ = 0;
    uint32_t lod_levels_ = 0;
    bool strided_ = false;
    void *data_ = nullptr;
    uint64_t nbytes_ = 0;
    const pf_lod_level *lod_ = nullptr;
    Shape shape_;
    Shape strides_;
};

template <class T>
TensorView view(T *data, const Shape &shape) {
    return TensorView(data, shape);
}
// A view of all elements of a container with contiguous memory, such as a std::vector, a std::array or a
// Span. It has one dimension, or the given shape. The container is borrowed.
template <class C, class = decltype(std::declval<C &>().data() + std::declval<C &>().size())>
TensorView view(C &&values) {
    return TensorView(values.data(), {values.size()});
}
template <class C, class = decltype(std::declval<C &>().data() + std::declval<C &>().size())>
TensorView view(C &&values, const Shape &shape) {
    if (shape.numel() != static_cast<int64_t>(values.size())) {
        throw ShapeError(std::to_string(values.size()) + " elements do not have the shape " +
                         shape.to_string());
    }
    return TensorView(values.data(), shape);
}
// A description of a tensor without data, for Queue::reserve.
template <class T>
TensorView tensor_spec(const Shape &shape) {
    return TensorView(dtype_of<T>(), shape);
}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_TENSOR_HPP

// Small types: spans, dtypes, places, streams, shapes, ragged offsets (LoD, level of detail) and slots.
#ifndef PYFEED_PYFEED_TYPES_HPP
#define PYFEED_PYFEED_TYPES_HPP

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "error.hpp"

namespace pyfeed {

// A view of an array of values that it does not own.
template <class T>
class Span {
public:
    constexpr Span() = default;
    constexpr Span(T *data, size_t size) : data_(data), size_(size) {}

    constexpr T *data() const { return data_; }
    constexpr size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    constexpr T &operator[](size_t i) const { return data_[i]; }
    constexpr T *begin() const { return data_; }
    constexpr T *end() const { return data_ + size_; }

private:
    T *data_ = nullptr;
    size_t size_ = 0;
};

enum class DType : pf_dtype {
    any = PF_DTYPE_ANY,  // only in a SlotSpec: the first tuple decides
    bool_ = PF_BOOL,
    int8 = PF_INT8,
    int16 = PF_INT16,
    int32 = PF_INT32,
    int64 = PF_INT64,
    uint8 = PF_UINT8,
    uint16 = PF_UINT16,
    uint32 = PF_UINT32,
    uint64 = PF_UINT64,
    float16 = PF_FLOAT16,
    bfloat16 = PF_BFLOAT16,
    float32 = PF_FLOAT32,
    float64 = PF_FLOAT64,
    complex64 = PF_COMPLEX64,
    complex128 = PF_COMPLEX128,
};

// The size of one element in bytes; 0 for DType::any.
inline size_t dtype_size(DType dtype) { return pf_dtype_size(static_cast<pf_dtype>(dtype)); }
// The name, such as "float32".
inline std::string dtype_name(DType dtype) {
    if (dtype == DType::any) return "any";
    const char *name = pf_dtype_name(static_cast<pf_dtype>(dtype));
    return name != nullptr ? name : "dtype " + std::to_string(static_cast<pf_dtype>(dtype));
}

// Storage for the two types that C++17 has no arithmetic for.
struct Float16 {
    uint16_t bits;
};
struct BFloat16 {
    uint16_t bits;
};

// The dtype of a C++ type. Specialise it for your own type that has the layout of one of the dtypes. char and
// wchar_t are text and have no dtype; int8_t and uint8_t have one.
template <class T, class Enable = void>
struct DTypeOf;

namespace detail {
template <class T, DType D>
struct DTypeIs {
    static_assert(!std::is_const_v<T>);
    static constexpr DType value = D;
};
template <class T>
inline constexpr bool is_plain_integer =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
    !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t> &&
    sizeof(T) <= 8;
template <size_t size, bool is_signed>
constexpr DType integer_dtype() {
    if constexpr (size == 1) return is_signed ? DType::int8 : DType::uint8;
    if constexpr (size == 2) return is_signed ? DType::int16 : DType::uint16;
    if constexpr (size == 4) return is_signed ? DType::int32 : DType::uint32;
    return is_signed ? DType::int64 : DType::uint64;
}
template <class T, class = void>
inline constexpr bool has_dtype = false;
template <class T>
inline constexpr bool has_dtype<T, std::void_t<decltype(DTypeOf<std::remove_cv_t<T>>::value)>> = true;
}  // namespace detail

template <class T>
struct DTypeOf<T, std::enable_if_t<detail::is_plain_integer<T>>>
    : detail::DTypeIs<T, detail::integer_dtype<sizeof(T), std::is_signed_v<T>>()> {};
template <>
struct DTypeOf<bool> : detail::DTypeIs<bool, DType::bool_> {
    static_assert(sizeof(bool) == 1);
};
template <>
struct DTypeOf<Float16> : detail::DTypeIs<Float16, DType::float16> {};
template <>
struct DTypeOf<BFloat16> : detail::DTypeIs<BFloat16, DType::bfloat16> {};
template <>
struct DTypeOf<float> : detail::DTypeIs<float, DType::float32> {};
template <>
struct DTypeOf<double> : detail::DTypeIs<double, DType::float64> {};
template <>
struct DTypeOf<std::complex<float>> : detail::DTypeIs<std::complex<float>, DType::complex64> {};
template <>
struct DTypeOf<std::complex<double>> : detail::DTypeIs<std::complex<double>, DType::complex128> {};

template <class T>
constexpr DType dtype_of() noexcept {
    static_assert(detail::has_dtype<T>, "this type has no dtype: see pyfeed::DTypeOf");
    return DTypeOf<std::remove_cv_t<T>>::value;
}

// Where memory is: see pf_place.
struct Place {
    int32_t kind = PF_CPU;
    int32_t device = 0;

    constexpr Place() = default;
    constexpr Place(int32_t kind_, int32_t device_) : kind(kind_), device(device_) {}
    constexpr Place(pf_place raw) : kind(raw.kind), device(raw.device) {}
    constexpr operator pf_place() const { return pf_place{kind, device}; }

    friend constexpr bool operator==(Place a, Place b) { return a.kind == b.kind && a.device == b.device; }
    friend constexpr bool operator!=(Place a, Place b) { return !(a == b); }
};

constexpr Place CPUPlace() { return {PF_CPU, 0}; }
constexpr Place CUDAPlace(int32_t device) { return {PF_CUDA, device}; }
constexpr Place CUDAPinnedPlace() { return {PF_CUDA_PINNED, 0}; }

// One place, or a list of places: {CUDAPlace(0), CUDAPlace(1)}.
class Places {
public:
    Places() : places_(1) {}
    Places(Place place) : places_(1, place) {}
    Places(std::initializer_list<Place> places) : places_(places) {}
    explicit Places(std::vector<Place> places) : places_(std::move(places)) {}

    const std::vector<Place> &list() const { return places_; }

private:
    std::vector<Place> places_;
};

// A stream of a device: a CUstream or cudaStream_t, or its number. 0 and 1 are the legacy default stream, 2
// is the default stream of the calling thread.
class Stream {
public:
    template <class I, class = std::enable_if_t<std::is_integral_v<I>>>
    constexpr Stream(I number) : number_(static_cast<uint64_t>(number)) {}
    template <class T>
    Stream(T *handle) : number_(reinterpret_cast<uintptr_t>(handle)) {}

    constexpr uint64_t number() const { return number_; }

private:
    uint64_t number_;
};

// Up to PF_MAX_RANK dimensions or strides, without heap memory. A scalar has none.
class Shape {
public:
    // Accepts any integer, so that {values.size(), 3} needs no cast.
    struct Extent {
        int64_t value;
        template <class I, class = std::enable_if_t<std::is_integral_v<I>>>
        constexpr Extent(I i) : value(static_cast<int64_t>(i)) {}
    };

    Shape() = default;
    Shape(std::initializer_list<Extent> dims) {
        set_rank(dims.size());
        for (size_t i = 0; i < rank_; i++) values_[i] = dims.begin()[i].value;
    }
    Shape(const int64_t *dims, size_t rank) {
        set_rank(rank);
        for (size_t i = 0; i < rank_; i++) values_[i] = dims[i];
    }
    explicit Shape(const std::vector<int64_t> &dims) : Shape(dims.data(), dims.size()) {}

    size_t rank() const { return rank_; }
    const int64_t *data() const { return values_; }
    int64_t operator[](size_t i) const { return values_[i]; }
    int64_t &operator[](size_t i) { return values_[i]; }
    const int64_t *begin() const { return values_; }
    const int64_t *end() const { return values_ + rank_; }

    // The number of elements. It is meaningless if it does not fit in 64 bits or if a dimension is -1.
    int64_t numel() const {
        uint64_t n = 1;
        for (const int64_t d : *this) n *= static_cast<uint64_t>(d);
        return static_cast<int64_t>(n);
    }

    // As in messages of the library: "(-1, 784)".
    std::string to_string() const {
        std::string s = "(";
        for (size_t i = 0; i < rank_; i++) s += (i > 0 ? ", " : "") + std::to_string(values_[i]);
        return s + (rank_ == 1 ? ",)" : ")");
    }

    friend bool operator==(const Shape &a, const Shape &b) {
        if (a.rank_ != b.rank_) return false;
        for (size_t i = 0; i < a.rank_; i++)
            if (a.values_[i] != b.values_[i]) return false;
        return true;
    }
    friend bool operator!=(const Shape &a, const Shape &b) { return !(a == b); }

private:
    void set_rank(size_t rank) {
        if (rank > PF_MAX_RANK) {
            throw ShapeError("expected at most " + std::to_string(PF_MAX_RANK) + " dimensions, found " +
                             std::to_string(rank));
        }
        rank_ = static_cast<uint32_t>(rank);
    }

    uint32_t rank_ = 0;
    int64_t values_[PF_MAX_RANK] = {};
};

// Ragged offsets (LoD, level of detail) of a tensor that is an argument, outermost level first: LoD{{0, 2,
// 5}}.
class LoD {
public:
    LoD() = default;
    LoD(std::initializer_list<std::vector<int64_t>> levels) : levels_(levels) { link(); }
    explicit LoD(std::vector<std::vector<int64_t>> levels) : levels_(std::move(levels)) { link(); }
    LoD(const LoD &other) : levels_(other.levels_) { link(); }
    LoD(LoD &&) = default;
    LoD &operator=(LoD other) {
        levels_ = std::move(other.levels_);
        raw_ = std::move(other.raw_);
        return *this;
    }

    size_t size() const { return levels_.size(); }
    const std::vector<int64_t> &operator[](size_t level) const { return levels_[level]; }
    const pf_lod_level *raw() const { return raw_.data(); }

private:
    void link() {
        raw_.clear();
        for (const auto &level : levels_) raw_.push_back({level.data(), level.size()});
    }

    std::vector<std::vector<int64_t>> levels_;
    std::vector<pf_lod_level> raw_;
};

// What one slot of every tuple must look like. -1 matches any size; a first dimension of -1 is the batch
// dimension.
struct SlotSpec {
    Shape shape{};
    DType dtype = DType::any;
    uint32_t lod_levels = 0;
    std::string name{};  // such as that of a column of a file; may be empty
};

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_TYPES_HPP

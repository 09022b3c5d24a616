// pyfeed for C++17: pyfeed.h with owners, exceptions and iteration. Header only.
//
// What holds for every class, unless its comment says otherwise:
//
// - Ownership.  Scope, Variable, Queue, Reader and CancelToken are counted handles: a copy is one count
//               more, like a std::shared_ptr. Tuple and Slot have one owner and move. TensorView and Span
//               own nothing: they are good as long as what they look at.
// - Errors.     A status other than PF_OK throws the class of that status, all of them under Error. The
//               end of the data is no error: next() and pop() answer an empty optional, a loop ends.
// - Threads.    Handles may be used from any thread at the same time; so may two copies of one handle. A
//               single object must not be assigned to while another thread uses it.
// - Blocking.   Only what takes a Wait blocks. Without one it waits for ever.
// - Nothing thrown by a callback crosses the library: poll functions hand their exception to the call that
//               polled; release functions must not throw.
#ifndef PYFEED_HPP
#define PYFEED_HPP

#if __cplusplus < 201703L
#error "pyfeed.hpp needs C++17"
#endif

#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#if defined(__GNUG__)
#include <cxxabi.h>
#endif

#include "pyfeed.h"

namespace pyfeed {

// ---- Errors ---------------------------------------------------------------------------------------

// What the library refused, and why: what() is a sentence.
class Error : public std::runtime_error {
public:
    Error(pf_status status, const std::string &message, int slot = -1)
        : std::runtime_error(message), status_(status), slot_(slot) {}

    pf_status status() const noexcept { return status_; }
    // The slot of the tuple it is about, or -1.
    int slot() const noexcept { return slot_; }

private:
    pf_status status_;
    int slot_;
};

namespace detail {
template <pf_status S>
class ErrorOf : public Error {
public:
    explicit ErrorOf(const std::string &message, int slot = -1) : Error(S, message, slot) {}
};
}  // namespace detail

#define PYFEED_ERROR_CLASS(name, status)          \
    class name : public detail::ErrorOf<status> { \
    public:                                       \
        using ErrorOf::ErrorOf;                   \
    }

PYFEED_ERROR_CLASS(Timeout, PF_TIMEOUT);
PYFEED_ERROR_CLASS(Cancelled, PF_CANCELLED);
PYFEED_ERROR_CLASS(Closed, PF_CLOSED);
PYFEED_ERROR_CLASS(InvalidArgument, PF_INVALID);
PYFEED_ERROR_CLASS(ShapeError, PF_SHAPE);
PYFEED_ERROR_CLASS(DTypeError, PF_DTYPE);
PYFEED_ERROR_CLASS(SlotCountError, PF_SLOTS);
PYFEED_ERROR_CLASS(TooLarge, PF_TOO_LARGE);
PYFEED_ERROR_CLASS(StaleHandle, PF_STALE_HANDLE);
PYFEED_ERROR_CLASS(StateError, PF_STATE);
PYFEED_ERROR_CLASS(NotFound, PF_NOT_FOUND);
PYFEED_ERROR_CLASS(Unsupported, PF_UNSUPPORTED);
PYFEED_ERROR_CLASS(OutOfMemory, PF_NO_MEMORY);
PYFEED_ERROR_CLASS(Forked, PF_FORKED);
PYFEED_ERROR_CLASS(Poisoned, PF_POISONED);

#undef PYFEED_ERROR_CLASS

// A producer failed, and this is its error, after every tuple it had pushed.
class ProducerFailed : public Error {
public:
    explicit ProducerFailed(const std::string &what, std::string type = {}, std::string message = {},
                            std::string traceback = {}, uint64_t token = 0)
        : Error(PF_FAILED, what),
          type_(std::move(type)),
          message_(std::move(message)),
          traceback_(std::move(traceback)),
          token_(token) {}

    // Each of the three is empty where the producer did not say.
    const std::string &type() const noexcept { return type_; }
    const std::string &message() const noexcept { return message_; }
    const std::string &traceback() const noexcept { return traceback_; }
    uint64_t token() const noexcept { return token_; }

private:
    std::string type_, message_, traceback_;
    uint64_t token_;
};

namespace detail {

[[noreturn]] inline void raise(pf_status status, const pf_error &err) {
    auto text = [](const char *s) { return std::string(s != nullptr ? s : ""); };
    const std::string message = err.message != nullptr ? err.message : pf_status_name(status);
    switch (status) {
        case PF_TIMEOUT:
            throw Timeout(message, err.slot);
        case PF_CANCELLED:
            throw Cancelled(message, err.slot);
        case PF_CLOSED:
            throw Closed(message, err.slot);
        case PF_FAILED:
            throw ProducerFailed(message, text(err.cause_type), text(err.cause_message),
                                 text(err.cause_traceback), err.cause_token);
        case PF_INVALID:
            throw InvalidArgument(message, err.slot);
        case PF_SHAPE:
            throw ShapeError(message, err.slot);
        case PF_DTYPE:
            throw DTypeError(message, err.slot);
        case PF_SLOTS:
            throw SlotCountError(message, err.slot);
        case PF_TOO_LARGE:
            throw TooLarge(message, err.slot);
        case PF_STALE_HANDLE:
            throw StaleHandle(message, err.slot);
        case PF_STATE:
            throw StateError(message, err.slot);
        case PF_NOT_FOUND:
            throw NotFound(message, err.slot);
        case PF_UNSUPPORTED:
            throw Unsupported(message, err.slot);
        case PF_NO_MEMORY:
            throw OutOfMemory(message, err.slot);
        case PF_FORKED:
            throw Forked(message, err.slot);
        case PF_POISONED:
            throw Poisoned(message, err.slot);
        default:  // a status of a later release
            throw Error(status, message, err.slot);
    }
}

// The ABI of the library that is loaded against the one this was compiled for.
inline void check_abi() {
    static const bool checked = [] {
        const uint32_t found = pf_abi_version();
        if (found != PF_ABI_VERSION) {
            throw Unsupported("this program was compiled for pyfeed ABI " + std::to_string(PF_ABI_VERSION) +
                              " (release " PF_VERSION "), but the library that is loaded has ABI " +
                              std::to_string(found) + " (release " + pf_version() + ")");
        }
        return true;
    }();
    (void)checked;
}

}  // namespace detail

// ---- Words ----------------------------------------------------------------------------------------

// A run of values somewhere else.
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

// Bytes of one element; 0 for DType::any.
inline size_t dtype_size(DType dtype) { return pf_dtype_size(static_cast<pf_dtype>(dtype)); }
// "float32" and the like.
inline std::string dtype_name(DType dtype) {
    if (dtype == DType::any) return "any";
    const char *name = pf_dtype_name(static_cast<pf_dtype>(dtype));
    return name != nullptr ? name : "dtype " + std::to_string(static_cast<pf_dtype>(dtype));
}

// Storage of the two types C++17 has no arithmetic for.
struct Float16 {
    uint16_t bits;
};
struct BFloat16 {
    uint16_t bits;
};

// The dtype of a C++ type. Specialise it for a type of your own that has the layout of one of them. char
// and wchar_t have none, for they are text; int8_t and uint8_t do.
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

// Where memory is.
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

// Up to PF_MAX_RANK dimensions, or strides, without a heap. None at all is a scalar's shape.
class Dims {
public:
    // Any integer, so that {values.size(), 3} needs no cast.
    struct Extent {
        int64_t value;
        template <class I, class = std::enable_if_t<std::is_integral_v<I>>>
        constexpr Extent(I i) : value(static_cast<int64_t>(i)) {}
    };

    Dims() = default;
    Dims(std::initializer_list<Extent> dims) {
        set_rank(dims.size());
        for (size_t i = 0; i < rank_; i++) values_[i] = dims.begin()[i].value;
    }
    Dims(const int64_t *dims, size_t rank) {
        set_rank(rank);
        for (size_t i = 0; i < rank_; i++) values_[i] = dims[i];
    }
    explicit Dims(const std::vector<int64_t> &dims) : Dims(dims.data(), dims.size()) {}

    size_t rank() const { return rank_; }
    const int64_t *data() const { return values_; }
    int64_t operator[](size_t i) const { return values_[i]; }
    int64_t &operator[](size_t i) { return values_[i]; }
    const int64_t *begin() const { return values_; }
    const int64_t *end() const { return values_ + rank_; }

    // The number of elements of that shape.
    int64_t numel() const {
        int64_t n = 1;
        for (int64_t d : *this) n *= d;
        return n;
    }

    // As the library's messages write it: "(-1, 784)".
    std::string to_string() const {
        std::string s = "(";
        for (size_t i = 0; i < rank_; i++) s += (i > 0 ? ", " : "") + std::to_string(values_[i]);
        return s + (rank_ == 1 ? ",)" : ")");
    }

    friend bool operator==(const Dims &a, const Dims &b) {
        if (a.rank_ != b.rank_) return false;
        for (size_t i = 0; i < a.rank_; i++)
            if (a.values_[i] != b.values_[i]) return false;
        return true;
    }
    friend bool operator!=(const Dims &a, const Dims &b) { return !(a == b); }

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

// Levels of detail, outermost first, to give to a tensor that goes in: LoD{{0, 2, 5}}.
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

// ---- Tensors --------------------------------------------------------------------------------------

// A tensor in somebody's memory. It has its own copy of the dimensions and strides; the data and the level
// of detail are borrowed.
class TensorView {
public:
    TensorView() = default;

    // A tensor of that dtype and shape at `data`. Without data: what Queue::reserve wants to know.
    TensorView(DType dtype, const Dims &dims, void *data = nullptr)
        : dtype_(dtype), data_(data), dims_(dims) {
        const int64_t n = dims.numel();
        nbytes_ = n > 0 ? static_cast<uint64_t>(n) * dtype_size(dtype) : 0;
    }

    template <class T, class = std::enable_if_t<detail::has_dtype<T>>>
    TensorView(T *data, const Dims &dims)
        : TensorView(dtype_of<T>(), dims, const_cast<std::remove_cv_t<T> *>(data)) {
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
          dims_(raw.dims, static_cast<size_t>(raw.rank)) {
        if (raw.strides != nullptr) with_strides(Dims(raw.strides, static_cast<size_t>(raw.rank)));
    }

    // Strides in bytes, one for each dimension. They may be negative, or 0 to repeat.
    TensorView &with_strides(const Dims &strides) {
        strides_ = strides;
        strided_ = true;
        return *this;
    }
    // Borrows `lod`: it must live until the call this view is given to.
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
    Dims dims() const { return dims_; }
    size_t rank() const { return dims_.rank(); }
    int64_t dim(size_t i) const { return dims_[i]; }
    int64_t numel() const { return dims_.numel(); }
    uint64_t nbytes() const { return nbytes_; }
    uint32_t flags() const { return flags_; }
    bool read_only() const { return (flags_ & PF_READ_ONLY) != 0; }
    // Empty: contiguous, the last dimension fastest.
    std::optional<Dims> strides() const { return strided_ ? std::optional<Dims>(strides_) : std::nullopt; }

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
    // The elements. DTypeError if they are not of that type.
    template <class T>
    const T *data() const {
        check_dtype<T>();
        return static_cast<const T *>(data_);
    }
    // The same to write to. StateError if the tensor is lent.
    template <class T>
    T *mutable_data() const {
        check_dtype<T>();
        if (read_only()) throw StateError("the tensor is read-only: its memory is lent");
        return static_cast<T *>(data_);
    }
    // All elements in order. StateError if they are strided.
    template <class T>
    Span<const T> values() const {
        if (strided_) throw StateError("the tensor is strided: its elements do not lie in order");
        return {data<T>(), static_cast<size_t>(numel())};
    }

    // For the C functions. Points into this view, which therefore must have a name.
    pf_tensor raw() const && = delete;
    pf_tensor raw() const & {
        pf_tensor t = PF_TENSOR_INIT;
        t.dtype = static_cast<pf_dtype>(dtype_);
        t.place = place_;
        t.rank = static_cast<int32_t>(dims_.rank());
        t.lod_levels = lod_levels_;
        t.flags = flags_;
        t.data = data_;
        t.nbytes = nbytes_;
        t.dims = dims_.data();
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
    Dims dims_;
    Dims strides_;
};

template <class T>
TensorView view(T *data, const Dims &dims) {
    return TensorView(data, dims);
}
// All of a container of contiguous elements, such as a std::vector, a std::array or a Span, as one dimension
// or in the shape given. It is borrowed.
template <class C, class = decltype(std::declval<C &>().data() + std::declval<C &>().size())>
TensorView view(C &&values) {
    return TensorView(values.data(), {values.size()});
}
template <class C, class = decltype(std::declval<C &>().data() + std::declval<C &>().size())>
TensorView view(C &&values, const Dims &dims) {
    if (dims.numel() != static_cast<int64_t>(values.size())) {
        throw ShapeError(std::to_string(values.size()) + " elements do not have the shape " +
                         dims.to_string());
    }
    return TensorView(values.data(), dims);
}
// Dtype and shape without data, for Queue::reserve.
template <class T>
TensorView shape_of(const Dims &dims) {
    return TensorView(dtype_of<T>(), dims);
}

// The slots of one instance or one batch, on loan from the library; given back by the destructor. Views of
// its tensors must not be used after that.
class Tuple {
public:
    Tuple() = default;
    // Takes over a loan.
    explicit Tuple(const pf_tuple &raw) noexcept : raw_(raw) {}
    Tuple(Tuple &&other) noexcept : raw_(std::exchange(other.raw_, pf_tuple PF_TUPLE_INIT)) {}
    Tuple &operator=(Tuple &&other) noexcept {
        if (this != &other) {
            release();
            raw_ = std::exchange(other.raw_, pf_tuple PF_TUPLE_INIT);
        }
        return *this;
    }
    ~Tuple() { release(); }

    size_t size() const noexcept { return raw_.num_slots; }
    bool empty() const noexcept { return raw_.num_slots == 0; }
    TensorView operator[](size_t slot) const { return TensorView(slot_raw(slot)); }
    TensorView at(size_t slot) const {
        if (slot >= size()) {
            throw InvalidArgument("no slot " + std::to_string(slot) + ": the tuple has " +
                                  std::to_string(size()));
        }
        return (*this)[slot];
    }

    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = TensorView;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = TensorView;

        iterator(const Tuple *tuple, size_t slot) : tuple_(tuple), slot_(slot) {}
        TensorView operator*() const { return (*tuple_)[slot_]; }
        iterator &operator++() {
            slot_++;
            return *this;
        }
        iterator operator++(int) { return {tuple_, slot_++}; }
        bool operator==(const iterator &other) const { return slot_ == other.slot_; }
        bool operator!=(const iterator &other) const { return slot_ != other.slot_; }

    private:
        const Tuple *tuple_;
        size_t slot_;
    };
    iterator begin() const { return {this, 0}; }
    iterator end() const { return {this, size()}; }

    // The same memory once more: it stays until both are given back. Defined below, with what it calls.
    inline Tuple share() const;

    // Gives the loan back now. Any thread; twice is fine.
    void release() noexcept {
        if (raw_.loan != 0) pf_tuple_release(&raw_);
        raw_ = pf_tuple PF_TUPLE_INIT;
    }
    // Hands the loan to the caller, who owes a pf_tuple_release.
    pf_tuple detach() noexcept { return std::exchange(raw_, pf_tuple PF_TUPLE_INIT); }
    const pf_tuple &raw() const noexcept { return raw_; }

private:
    // A library newer than this header has longer tensors: the first one's size is the step.
    const pf_tensor &slot_raw(size_t slot) const {
        const char *first = reinterpret_cast<const char *>(raw_.slots);
        return *reinterpret_cast<const pf_tensor *>(first + slot * raw_.slots->size);
    }

    pf_tuple raw_ = PF_TUPLE_INIT;
};

// The tensors of one tuple, as an argument: {view(x), view(y)}, a vector of views, one view, or a Tuple to
// pass on. Built in the call and good for that call. No heap up to eight slots.
class Tensors {
public:
    Tensors(std::initializer_list<TensorView> tensors) : Tensors(tensors.begin(), tensors.size()) {}
    Tensors(const std::vector<TensorView> &tensors) : Tensors(tensors.data(), tensors.size()) {}
    Tensors(const TensorView &tensor) : Tensors(&tensor, 1) {}
    Tensors(const Tuple &tuple) : data_(tuple.raw().slots), size_(tuple.raw().num_slots) {}
    Tensors(const TensorView *tensors, size_t size) : size_(static_cast<uint32_t>(size)) {
        pf_tensor *out = few_;
        if (size > few) {
            many_.resize(size);
            out = many_.data();
        }
        for (size_t i = 0; i < size; i++) out[i] = tensors[i].raw();
        data_ = out;
    }
    Tensors(const Tensors &) = delete;
    Tensors &operator=(const Tensors &) = delete;

    const pf_tensor *data() const { return data_; }
    uint32_t size() const { return size_; }

private:
    static constexpr size_t few = 8;
    pf_tensor few_[few];
    std::vector<pf_tensor> many_;
    const pf_tensor *data_ = nullptr;
    uint32_t size_ = 0;
};

// ---- Handles and waiting --------------------------------------------------------------------------

namespace detail {

class Call;

// One count of a handle.
class Handle {
public:
    Handle() = default;
    explicit Handle(pf_handle id) noexcept : id_(id) {}
    inline Handle(const Handle &other);
    Handle(Handle &&other) noexcept : id_(std::exchange(other.id_, 0)) {}
    Handle &operator=(Handle other) noexcept {
        std::swap(id_, other.id_);
        return *this;
    }
    // Nothing useful can be done about a release that fails: in a child of fork it always does.
    ~Handle() {
        if (id_ != 0) pf_release(id_, nullptr);
    }

    pf_handle get() const noexcept { return id_; }

private:
    pf_handle id_ = 0;
};

}  // namespace detail

// Ends waits: give it to a Wait. cancel() is for good. Copies are the same token.
class CancelToken {
public:
    inline CancelToken();

    inline void cancel() const;
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Wait;

    detail::Handle handle_;
};

// How long to wait: for ever, unless told otherwise. A duration is a Wait: queue.pop(100ms). Build one once
// and use it often; it may be used by several threads at once if its poll function may.
class Wait {
public:
    Wait() = default;
    template <class Rep, class Period>
    Wait(std::chrono::duration<Rep, Period> timeout) {
        this->timeout(timeout);
    }

    static Wait forever() { return {}; }
    // Not at all: Timeout at once where it would block.
    static Wait none() { return std::chrono::nanoseconds(0); }

    // Timeout when this has gone by. What is left of a deadline that is over is 0, not for ever.
    template <class Rep, class Period>
    Wait &timeout(std::chrono::duration<Rep, Period> timeout) {
        const auto seconds = std::chrono::duration<double>(timeout).count();
        if (!(seconds > 0)) {
            timeout_ns_ = 0;
        } else if (seconds >= 9e9) {  // 285 years: more nanoseconds than fit
            timeout_ns_ = -1;
        } else {
            timeout_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
        }
        return *this;
    }
    // Cancelled when the token is.
    Wait &cancel(const CancelToken &token) {
        token_ = token.handle_;
        return *this;
    }
    // Asked on the waiting thread about every `interval` and after each signal: true ends the wait with
    // Cancelled. What it throws comes out of the call that waits.
    Wait &poll(std::function<bool()> stop,
               std::chrono::milliseconds interval = std::chrono::milliseconds(100)) {
        poll_ = std::move(stop);
        interval_ms_ = interval.count() > 0 ? static_cast<uint32_t>(interval.count()) : 1;
        return *this;
    }

private:
    friend class detail::Call;

    int64_t timeout_ns_ = -1;
    uint32_t interval_ms_ = 0;
    detail::Handle token_;
    std::function<bool()> poll_;
};

namespace detail {

// The error and the wait of one call into the library.
class Call {
public:
    Call() = default;
    explicit Call(const Wait &wait) : poll_(wait.poll_ ? &wait.poll_ : nullptr) {
        if (wait.timeout_ns_ < 0 && wait.token_.get() == 0 && poll_ == nullptr) return;
        waits_ = true;
        wait_.timeout_ns = wait.timeout_ns_;
        wait_.poll_interval_ms = wait.interval_ms_;
        wait_.cancel = wait.token_.get();
        if (poll_ != nullptr) {
            wait_.poll = &Call::poll;
            wait_.poll_context = this;
        }
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    ~Call() {
        if (failed_) pf_error_release(&err_);
    }

    pf_error *err() { return &err_; }
    const pf_wait *wait() const { return waits_ ? &wait_ : nullptr; }

    // Throws unless the call went well.
    void check(pf_status status) {
        if (status == PF_OK) return;
        failed_ = true;
        if (status == PF_CANCELLED && thrown_) std::rethrow_exception(thrown_);
        raise(status, err_);
    }
    // The same, but answers false to one status that is no error here.
    bool unless(pf_status expected, pf_status status) {
        if (status == expected) {
            failed_ = true;
            return false;
        }
        check(status);
        return true;
    }

private:
    static int poll(void *context) noexcept {
        Call *call = static_cast<Call *>(context);
        try {
            return (*call->poll_)() ? 1 : 0;
        } catch (...) {
            call->thrown_ = std::current_exception();
            return 1;
        }
    }

    pf_error err_ = PF_ERROR_INIT;
    pf_wait wait_ = PF_WAIT_INIT;
    bool waits_ = false;
    bool failed_ = false;
    const std::function<bool()> *poll_ = nullptr;
    std::exception_ptr thrown_;
};

inline Handle::Handle(const Handle &other) {
    if (other.id_ == 0) return;
    Call call;
    call.check(pf_retain(other.id_, call.err()));
    id_ = other.id_;
}

// Runs a function that makes a handle.
template <class F>
Handle make(F &&f) {
    check_abi();
    Call call;
    pf_handle id = 0;
    call.check(f(&id, call.err()));
    return Handle(id);
}

// The tuples of a queue or a reader until its end, for a range-for. A tuple is given back before the next
// one is waited for.
template <class Source>
class TupleIterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Tuple;
    using difference_type = std::ptrdiff_t;
    using pointer = Tuple *;
    using reference = Tuple &;
    struct End {};

    TupleIterator(const Source *source, Wait wait) : source_(source), wait_(std::move(wait)) { ++*this; }

    Tuple &operator*() { return *current_; }
    Tuple *operator->() { return &*current_; }
    TupleIterator &operator++() {
        current_.reset();
        current_ = source_->next(wait_);
        return *this;
    }
    bool operator==(End) const { return !current_.has_value(); }
    bool operator!=(End) const { return current_.has_value(); }

private:
    const Source *source_;
    Wait wait_;
    std::optional<Tuple> current_;
};

template <class Source>
class TupleRange {
public:
    TupleRange(const Source &source, Wait wait) : source_(source), wait_(std::move(wait)) {}

    TupleIterator<Source> begin() const { return {&source_, wait_}; }
    typename TupleIterator<Source>::End end() const { return {}; }

private:
    Source source_;
    Wait wait_;
};

}  // namespace detail

inline Tuple Tuple::share() const {
    detail::Call call;
    pf_tuple out = PF_TUPLE_INIT;
    call.check(pf_tuple_share(&raw_, &out, call.err()));
    return Tuple(out);
}

inline CancelToken::CancelToken()
    : handle_(detail::make([](pf_handle *id, pf_error *err) { return pf_cancel_new(id, err); })) {}

inline void CancelToken::cancel() const {
    detail::Call call;
    call.check(pf_cancel(handle(), call.err()));
}

// ---- The queue ------------------------------------------------------------------------------------

// What one slot of every tuple must look like. -1 matches anything; a first dimension of -1 is the batch's.
struct SlotSpec {
    DType dtype = DType::any;
    Dims dims{};
    uint32_t lod_levels = 0;
};

struct QueueOptions {
    uint64_t capacity = 0;  // in tuples; at least 1
    std::vector<SlotSpec> slots;
    uint64_t bytes_limit = 0;  // in bytes of all tuples queued or being written; 0: no limit
    Place place{};
    bool restartable = false;  // the producer can start over: see Queue::wait_pass
};

using QueueInfo = pf_queue_info;

// A tuple in the queue's own memory, to be written in place and then committed. Dropped if it is not.
class Slot {
public:
    explicit Slot(const pf_tuple &raw) noexcept : tuple_(raw) {}

    size_t size() const noexcept { return tuple_.size(); }
    TensorView operator[](size_t slot) const { return tuple_[slot]; }
    TensorView at(size_t slot) const { return tuple_.at(slot); }

    // The same memory once more, to be looked at after the commit.
    Tuple share() const { return tuple_.share(); }

    // Queues it. Closed if its pass has ended meanwhile: it is dropped then. Never blocks.
    void commit() {
        pf_tuple raw = tuple_.detach();
        detail::Call call;
        const pf_status status = pf_queue_commit(&raw, call.err());
        tuple_ = Tuple(raw);
        call.check(status);
    }
    // Drops it now.
    void drop() noexcept { tuple_.release(); }

private:
    Tuple tuple_;
};

// A bounded queue of tuples, first in, first out, for any number of producers and consumers. Made by
// PyArrayFeedQueueHolder::init_once.
//
// `pass` is the number of the pass a push, close or failure belongs to: once the queue has moved on, it is
// Closed (close: ignored). 0 means the pass that is current when the call begins.
class Queue {
public:
    // Takes over one count of a handle.
    static Queue adopt(pf_handle handle) {
        detail::check_abi();
        return Queue(detail::Handle(handle));
    }

    // Copies a tuple in, strided or not. Blocks while the queue is full.
    void push(const Tensors &tensors, const Wait &wait = {}, uint64_t pass = 0) const {
        detail::Call call(wait);
        call.check(pf_queue_push(handle(), tensors.data(), tensors.size(), pass, call.wait(), call.err()));
    }

    // Lends a tuple: nothing is copied, the tensors must be contiguous and stay as they are until
    // release(context) is called: once, on any thread, and only if this call returns. It must not block,
    // throw or call pyfeed. Blocks while the queue is full.
    void push_lent(const Tensors &tensors, void (*release)(void *context), void *context,
                   const Wait &wait = {}, uint64_t pass = 0) const {
        detail::Call call(wait);
        call.check(pf_queue_push_lent(handle(), tensors.data(), tensors.size(), pass, release, context,
                                      call.wait(), call.err()));
    }
    // The same with anything that can be called. If the push throws, it is destroyed without being called.
    template <class F, class = std::enable_if_t<std::is_invocable_v<std::decay_t<F> &>>>
    void push_lent(const Tensors &tensors, F &&release, const Wait &wait = {}, uint64_t pass = 0) const {
        using Release = std::decay_t<F>;
        auto owned = std::make_unique<Release>(std::forward<F>(release));
        auto run = [](void *context) noexcept {
            std::unique_ptr<Release> f(static_cast<Release *>(context));
            (*f)();
        };
        push_lent(tensors, +run, owned.get(), wait, pass);
        owned.release();  // the library's now, and perhaps already gone
    }
    // The same with an owner: a copy of the pointer is held until the memory is no longer needed.
    template <class T>
    void push_lent(const Tensors &tensors, std::shared_ptr<T> owner, const Wait &wait = {},
                   uint64_t pass = 0) const {
        push_lent(tensors, [owner = std::move(owner)] {}, wait, pass);
    }

    // Reserves a tuple of those dtypes, shapes and levels of detail in the queue's own memory. Blocks while
    // the queue is full.
    Slot reserve(const Tensors &tensors, const Wait &wait = {}, uint64_t pass = 0) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(
            pf_queue_reserve(handle(), tensors.data(), tensors.size(), pass, call.wait(), &raw, call.err()));
        return Slot(raw);
    }

    // The oldest tuple; nothing at the end of the pass. ProducerFailed after the last tuple of a pass that
    // failed. Blocks while the queue is empty.
    std::optional<Tuple> pop(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        if (!call.unless(PF_END, pf_queue_pop(handle(), call.wait(), &raw, call.err()))) return std::nullopt;
        return std::optional<Tuple>(std::in_place, raw);
    }
    std::optional<Tuple> next(const Wait &wait = {}) const { return pop(wait); }

    // for (Tuple &tuple : queue): pops until the end of the pass; queue.tuples(wait) waits as told.
    detail::TupleIterator<Queue> begin() const { return {this, Wait()}; }
    detail::TupleIterator<Queue>::End end() const { return {}; }
    detail::TupleRange<Queue> tuples(const Wait &wait) const { return {*this, wait}; }

    // Ends the pass: pushes are Closed from now on, what is queued is still delivered. Twice is fine.
    void close(uint64_t pass = 0) const {
        detail::Call call;
        call.check(pf_queue_close(handle(), pass, call.err()));
    }

    // Ends the pass with an error, which the consumer gets after the last tuple as ProducerFailed. `token` is
    // whatever the producer's side wants to find there. False, and no exception, for this is called where one
    // is being handled: the pass has ended already, and nobody will be told.
    bool fail(const std::string &type, const std::string &message, const std::string &traceback = {},
              uint64_t token = 0, uint64_t pass = 0) const {
        pf_failure failure = PF_FAILURE_INIT;
        failure.type = type.empty() ? nullptr : type.c_str();
        failure.message = message.empty() ? nullptr : message.c_str();
        failure.traceback = traceback.empty() ? nullptr : traceback.c_str();
        failure.token = token;
        detail::Call call;
        return call.unless(PF_CLOSED, pf_queue_fail(handle(), pass, &failure, call.err()));
    }
    // The same with an exception: its type and text, and the chain of what is nested in it as traceback. A
    // ProducerFailed from another queue passes on what it brought.
    inline bool fail(const std::exception &error, uint64_t token = 0, uint64_t pass = 0) const;
    inline bool fail(std::exception_ptr error, uint64_t token = 0, uint64_t pass = 0) const;

    struct Reopened {
        uint64_t pass;     // the number of the new pass
        uint64_t dropped;  // tuples that were still queued
    };
    // Begins the next pass: closes, drops what is still queued, opens. Pushes and pops that began before
    // cannot see the new pass.
    Reopened reopen() const {
        detail::Call call;
        Reopened out{0, 0};
        call.check(pf_queue_reopen(handle(), &out.pass, &out.dropped, call.err()));
        return out;
    }

    // For the producer of a restartable queue: waits for a pass with a number above `after`, and gives its
    // number. Closed once the queue is shut down.
    uint64_t wait_pass(uint64_t after, const Wait &wait = {}) const {
        detail::Call call(wait);
        uint64_t pass = 0;
        call.check(pf_queue_wait_pass(handle(), after, call.wait(), &pass, call.err()));
        return pass;
    }

    // Closes for good and drops what is queued.
    void shutdown() const {
        detail::Call call;
        call.check(pf_queue_shutdown(handle(), call.err()));
    }

    QueueInfo stats() const {
        detail::Call call;
        pf_queue_info info = PF_QUEUE_INFO_INIT;
        call.check(pf_queue_stats(handle(), &info, call.err()));
        return info;
    }
    size_t size() const { return static_cast<size_t>(stats().num_tuples); }
    size_t capacity() const { return static_cast<size_t>(stats().capacity); }
    bool is_empty() const { return stats().num_tuples == 0; }
    // Tuples being written count: a push would have to wait for them.
    bool is_full() const {
        const QueueInfo info = stats();
        return info.num_tuples + info.reserved_tuples >= info.capacity;
    }

    // What a slot must look like, with the dtype the first tuple settled.
    SlotSpec slot(uint32_t index) const {
        detail::Call call;
        pf_slot_spec spec = PF_SLOT_SPEC_INIT;
        int64_t dims[PF_MAX_RANK];
        call.check(pf_queue_slot(handle(), index, &spec, dims, call.err()));
        return {static_cast<DType>(spec.dtype), Dims(spec.dims, static_cast<size_t>(spec.rank)),
                spec.lod_levels};
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    explicit Queue(detail::Handle handle) : handle_(std::move(handle)) {}

    detail::Handle handle_;
};

namespace detail {

inline std::string type_name(const std::type_info &type) {
#if defined(__GNUG__)
    int status = 0;
    std::unique_ptr<char, void (*)(void *)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                 std::free);
    if (name != nullptr) return name.get();
#endif
    return type.name();
}

// One line for each exception, the outermost first.
inline void describe(const std::exception &error, std::string &out) {
    out += type_name(typeid(error)) + ": " + error.what() + "\n";
    try {
        std::rethrow_if_nested(error);
    } catch (const std::exception &nested) {
        out += "caused by ";
        describe(nested, out);
    } catch (...) {
        out += "caused by something that is no std::exception\n";
    }
}

}  // namespace detail

inline bool Queue::fail(const std::exception &error, uint64_t token, uint64_t pass) const {
    if (auto *failed = dynamic_cast<const ProducerFailed *>(&error)) {
        return fail(failed->type(), failed->message(), failed->traceback(),
                    token != 0 ? token : failed->token(), pass);
    }
    std::string traceback;
    if (dynamic_cast<const std::nested_exception *>(&error) != nullptr) detail::describe(error, traceback);
    return fail(detail::type_name(typeid(error)), error.what(), traceback, token, pass);
}

inline bool Queue::fail(std::exception_ptr error, uint64_t token, uint64_t pass) const {
    if (error == nullptr) throw InvalidArgument("fail: there is no exception");
    try {
        std::rethrow_exception(error);
    } catch (const std::exception &e) {
        return fail(e, token, pass);
    } catch (...) {
        return fail("unknown", "an exception that is no std::exception", {}, token, pass);
    }
}

// ---- Scope and variables --------------------------------------------------------------------------

class Variable;
class Reader;

// Names of variables. Copies are the same scope.
class Scope {
public:
    Scope() : Scope(pf_handle{0}) {}
    // The scope every part of the process shares.
    static Scope global() {
        return Scope(detail::make([](pf_handle *id, pf_error *err) { return pf_scope_global(id, err); }));
    }
    // The scope of a number that C gave, or Python as scope.handle: with a count of its own.
    static Scope retain(pf_handle number) {
        return Scope(detail::make([number](pf_handle *id, pf_error *err) {
            *id = number;
            return pf_retain(number, err);
        }));
    }
    // A new scope inside this one, which it keeps alive: look-ups that fail in it go on here.
    Scope child() const { return Scope(handle()); }

    // The variable of that name in this scope itself, made empty if there is none.
    inline Variable var(const std::string &name) const;
    // The variable of that name in this scope or the nearest parent that has it; else NotFound.
    inline Variable find(const std::string &name) const;
    inline bool has(const std::string &name) const;
    // Takes the variable out of this scope and drops what it holds; NotFound if there is none.
    inline void erase(const std::string &name) const;

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    explicit Scope(pf_handle parent)
        : handle_(detail::make(
              [parent](pf_handle *id, pf_error *err) { return pf_scope_new(parent, id, err); })) {}
    explicit Scope(detail::Handle handle) : handle_(std::move(handle)) {}

    detail::Handle handle_;
};

enum class VarKind : int32_t {
    empty = PF_VAR_EMPTY,
    tensor = PF_VAR_TENSOR,
    queue = PF_VAR_QUEUE,
    reader = PF_VAR_READER,
};

// What a scope has under a name: a tensor, a queue's holder or a reader.
class Variable {
public:
    VarKind kind() const {
        detail::Call call;
        int32_t kind = 0;
        call.check(pf_var_kind(handle(), &kind, call.err()));
        return static_cast<VarKind>(kind);
    }

    // The tensor in it, as a tuple of one slot. The memory stays as it is as long as the tuple lives,
    // whatever is written into the variable meanwhile. StateError if it holds no tensor.
    Tuple tensor() const {
        detail::Call call;
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_var_get_tensor(handle(), &raw, call.err()));
        return Tuple(raw);
    }
    // Copies a tensor into it, in place of what it held.
    void set(const TensorView &tensor) const {
        detail::Call call;
        const pf_tensor raw = tensor.raw();
        call.check(pf_var_set_tensor(handle(), &raw, call.err()));
    }

    // The queue in it; StateError before init_once.
    Queue queue() const {
        detail::Call call;
        pf_handle id = 0;
        call.check(pf_queue_of(handle(), &id, call.err()));
        return Queue::adopt(id);
    }
    // The reader in it; StateError if it holds none.
    inline Reader reader() const;

    const std::string &name() const noexcept { return name_; }
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Scope;
    friend class Reader;
    Variable(Scope scope, std::string name, detail::Handle handle)
        : scope_(std::move(scope)), name_(std::move(name)), handle_(std::move(handle)) {}

    Scope scope_;
    std::string name_;
    detail::Handle handle_;
};

inline Variable Scope::var(const std::string &name) const {
    return {*this, name, detail::make([&](pf_handle *id, pf_error *err) {
                return pf_scope_var(handle(), name.c_str(), id, err);
            })};
}
inline Variable Scope::find(const std::string &name) const {
    return {*this, name, detail::make([&](pf_handle *id, pf_error *err) {
                return pf_scope_find(handle(), name.c_str(), id, err);
            })};
}
inline bool Scope::has(const std::string &name) const {
    detail::Call call;
    pf_handle id = 0;
    const bool found = call.unless(PF_NOT_FOUND, pf_scope_find(handle(), name.c_str(), &id, call.err()));
    const detail::Handle owned(id);
    return found;
}
inline void Scope::erase(const std::string &name) const {
    detail::Call call;
    call.check(pf_scope_erase(handle(), name.c_str(), call.err()));
}

// A variable that will hold a queue: made first, so that readers can be told its name; the queue itself is
// made by init_once, which a variable allows once.
class PyArrayFeedQueueHolder {
public:
    explicit PyArrayFeedQueueHolder(Variable variable) : variable_(std::move(variable)) {}

    // Makes the queue. StateError the second time.
    Queue init_once(const QueueOptions &options) const {
        std::vector<pf_slot_spec> slots;
        slots.reserve(options.slots.size());
        for (const SlotSpec &slot : options.slots) {
            pf_slot_spec spec = PF_SLOT_SPEC_INIT;
            spec.dtype = static_cast<pf_dtype>(slot.dtype);
            spec.rank = static_cast<int32_t>(slot.dims.rank());
            spec.lod_levels = slot.lod_levels;
            spec.dims = slot.dims.data();
            slots.push_back(spec);
        }
        pf_queue_options raw = PF_QUEUE_OPTIONS_INIT;
        raw.num_slots = static_cast<uint32_t>(slots.size());
        raw.slots = slots.data();
        raw.capacity = options.capacity;
        raw.bytes_limit = options.bytes_limit;
        raw.place = options.place;
        raw.restartable = options.restartable ? 1 : 0;
        detail::Call call;
        pf_handle id = 0;
        call.check(pf_queue_init_once(variable_.handle(), &raw, &id, call.err()));
        return Queue::adopt(id);
    }

    // The queue; StateError before init_once.
    Queue feeder() const { return variable_.queue(); }
    const Variable &variable() const noexcept { return variable_; }

private:
    Variable variable_;
};

using QueueHolder = PyArrayFeedQueueHolder;

// ---- Readers --------------------------------------------------------------------------------------

// What hands out tuples, pass by pass. Copies are the same reader.
class Reader {
public:
    // The next tuple; nothing at the end of the pass, until reset(). Blocks.
    std::optional<Tuple> next(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        if (!call.unless(PF_END, pf_reader_next(handle(), call.wait(), &raw, call.err())))
            return std::nullopt;
        return std::optional<Tuple>(std::in_place, raw);
    }

    // Whether there is a next tuple: reads one ahead and so may block.
    bool has_next(const Wait &wait = {}) const {
        detail::Call call(wait);
        uint8_t out = 0;
        call.check(pf_reader_has_next(handle(), call.wait(), &out, call.err()));
        return out != 0;
    }

    // Starts over, also while another thread is blocked in next(): that call is Cancelled. StateError where
    // there is nothing to start over from.
    void reset() const {
        detail::Call call;
        call.check(pf_reader_reset(handle(), call.err()));
    }

    // for (Tuple &tuple : reader): the rest of the pass; reader.tuples(wait) waits as told.
    detail::TupleIterator<Reader> begin() const { return {this, Wait()}; }
    detail::TupleIterator<Reader>::End end() const { return {}; }
    detail::TupleRange<Reader> tuples(const Wait &wait) const { return {*this, wait}; }

    // A reader of batches of this one's tuples, in a variable beside it: `out`, or a name made from this
    // one's. From then on read only the batches.
    inline Reader batch(uint64_t batch_size, bool drop_last = false, const std::string &out = {}) const;

    // The name of the variable it is in.
    const std::string &name() const noexcept { return variable_.name(); }
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Variable;
    Reader(Variable variable, detail::Handle handle)
        : variable_(std::move(variable)), handle_(std::move(handle)) {}

    Variable variable_;
    detail::Handle handle_;
};

inline Reader Variable::reader() const {
    return {*this,
            detail::make([&](pf_handle *id, pf_error *err) { return pf_reader_of(handle(), id, err); })};
}

// Puts a reader of the queue in the variable `feeder_name` into the variable `out`.
inline Reader create_py_array_reader(const Scope &scope, const std::string &out,
                                     const std::string &feeder_name) {
    detail::Call call;
    call.check(pf_create_py_array_reader(scope.handle(), out.c_str(), feeder_name.c_str(), call.err()));
    return scope.find(out).reader();
}

// Puts a reader into the variable `out` that joins `batch_size` tuples of the reader in the variable `in`:
// slots whose first dimension is -1 are concatenated along it and their level of detail merged, others are
// stacked. The last, smaller batch of a pass is delivered, unless drop_last.
inline Reader create_batch_reader(const Scope &scope, const std::string &out, const std::string &in,
                                  uint64_t batch_size, bool drop_last = false) {
    detail::Call call;
    call.check(pf_create_batch_reader(scope.handle(), out.c_str(), in.c_str(), batch_size, drop_last ? 1 : 0,
                                      call.err()));
    return scope.find(out).reader();
}

inline Reader Reader::batch(uint64_t batch_size, bool drop_last, const std::string &out) const {
    const Scope &scope = variable_.scope_;
    std::string name = out;
    if (name.empty()) {
        name = variable_.name() + ".batch";
        for (int i = 2; scope.has(name); i++) name = variable_.name() + ".batch" + std::to_string(i);
    }
    return create_batch_reader(scope, name, variable_.name(), batch_size, drop_last);
}

// The read op: the next tuple of the reader in the variable `reader`, slot by slot into the variables `outs`,
// made in `scope` if no scope has them. Moves, never copies. False at the end of the pass, which leaves the
// variables as they are; SlotCountError if the numbers differ: the tuple then stays with the reader. Blocks.
inline bool read(const Scope &scope, const std::string &reader, std::initializer_list<const char *> outs,
                 const Wait &wait = {}) {
    detail::Call call(wait);
    return call.unless(PF_END, pf_read(scope.handle(), reader.c_str(), outs.begin(),
                                       static_cast<uint32_t>(outs.size()), call.wait(), call.err()));
}
inline bool read(const Scope &scope, const std::string &reader, const std::vector<std::string> &outs,
                 const Wait &wait = {}) {
    std::vector<const char *> names;
    names.reserve(outs.size());
    for (const std::string &name : outs) names.push_back(name.c_str());
    detail::Call call(wait);
    return call.unless(PF_END, pf_read(scope.handle(), reader.c_str(), names.data(),
                                       static_cast<uint32_t>(names.size()), call.wait(), call.err()));
}

// ---- The library ----------------------------------------------------------------------------------

using MemoryStats = pf_memory_stats;

// What is alive: everything but idle_bytes goes back to 0 when all is closed and released.
inline MemoryStats memory_stats() {
    detail::check_abi();
    detail::Call call;
    pf_memory_stats stats = PF_MEMORY_STATS_INIT;
    call.check(pf_memory(&stats, call.err()));
    return stats;
}

// The release of the library that is loaded.
inline std::string version() { return pf_version(); }

// ---- DLPack ---------------------------------------------------------------------------------------

// The structures of the public DLPack ABI, for programs that have no dlpack.h at hand. The functions below
// take these or the ones of dlpack.h: to_dlpack<::DLManagedTensorVersioned>(...).
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

// An exported tensor, with what it points to.
template <class Managed>
struct Exported {
    Managed managed{};
    int64_t shape[PF_MAX_RANK];
    int64_t strides[PF_MAX_RANK];
    std::shared_ptr<const Tuple> owner;
};

}  // namespace detail

// Exports one slot of a tuple to another library, without copying. The tuple is given back when the last
// exported tensor is deleted and nobody else holds `tuple`. The level of detail stays behind: DLPack has
// none. A lent tensor is read-only, which only the versioned structure can say: StateError for the other.
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
    switch (view.place().kind) {
        case PF_CUDA:
            tensor.device.device_type = static_cast<DeviceType>(dlpack::kCUDA);
            break;
        case PF_CUDA_PINNED:
            tensor.device.device_type = static_cast<DeviceType>(dlpack::kCUDAHost);
            break;
        default:
            tensor.device.device_type = static_cast<DeviceType>(dlpack::kCPU);
    }
    tensor.device.device_id = view.place().device;
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

// The same for a tuple of which only that slot is wanted.
template <class Managed = dlpack::DLManagedTensorVersioned>
Managed *to_dlpack(Tuple &&tuple, size_t slot) {
    return to_dlpack<Managed>(std::make_shared<const Tuple>(std::move(tuple)), slot);
}

// A tensor of another library: a view to push, and the owner that keeps its memory for as long as any copy
// of this, or of owner(), lives. To lend it: queue.push_lent({t.view()}, t.owner()); the other library's
// deleter is then called on whichever thread is last, and must bear that.
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

// Takes a tensor over from another library, also when it throws: its deleter is called then.
template <class Managed>
DLPackTensor from_dlpack(Managed *managed) {
    if (managed == nullptr) throw InvalidArgument("from_dlpack: there is no tensor");
    std::shared_ptr<const void> owner(static_cast<const void *>(managed), [managed](const void *) {
        if (managed->deleter != nullptr) managed->deleter(managed);
    });
    uint64_t flags = 0;
    if constexpr (detail::is_versioned<Managed>) {
        // Another major version may have moved everything after the deleter.
        if (managed->version.major != 1) {
            throw Unsupported("from_dlpack: expected DLPack 1, found " +
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
        throw Unsupported("from_dlpack: no place is DLPack's device type " + std::to_string(device_type));
    }
    if (tensor.ndim < 0) {
        throw ShapeError("from_dlpack: a tensor of " + std::to_string(tensor.ndim) + " dimensions");
    }
    const auto rank = static_cast<size_t>(tensor.ndim);
    if (rank > 0 && tensor.shape == nullptr) throw InvalidArgument("from_dlpack: the tensor has no shape");
    const DType dtype = detail::from_dlpack_dtype(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
    const auto itemsize = static_cast<int64_t>(dtype_size(dtype));
    const Dims dims(tensor.shape, rank);

    char *data = static_cast<char *>(tensor.data);
    if (data != nullptr) data += tensor.byte_offset;
    TensorView view(dtype, dims, data);
    view.with_place(place).with_read_only((flags & dlpack::kReadOnly) != 0);

    // Strides that only say "contiguous" are left out: a lent tensor must not look strided.
    if (tensor.strides != nullptr) {
        Dims strides(tensor.strides, rank);
        bool contiguous = true;
        int64_t step = 1;
        for (size_t i = rank; i-- > 0;) {
            if (dims[i] != 1 && strides[i] != step) contiguous = false;
            step *= dims[i];
            strides[i] *= itemsize;
        }
        if (!contiguous && dims.numel() > 0) view.with_strides(strides);
    }
    return {view, std::move(owner)};
}

}  // namespace pyfeed

#endif  // PYFEED_HPP

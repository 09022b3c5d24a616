// pyfeed for C++17: pyfeed.h with owners, exceptions and iteration. Header only.
//
// What holds for every class, unless its comment says otherwise:
//
// - Ownership.  Scope, Variable, Queue, StagingBuffer, Reader and CancelToken are counted handles: a copy is one
//               count more, like a std::shared_ptr. Tuple, Slot, Writer, RegisteredFormat and Trace have one
//               owner and move. TensorView and Span own nothing: they are good as long as what they look at.
// - Errors.     A status other than PF_OK throws the class of that status, all of them under Error. The
//               end of the data is no error: next() and pop() answer an empty optional, a loop ends. A
//               program that reads on has failed: EndOfData.
// - Threads.    Handles may be used from any thread at the same time; so may two copies of one handle. A
//               single object must not be assigned to while another thread uses it.
// - Blocking.   Only what takes a Wait blocks. Without one it waits for ever.
// - Nothing thrown by a callback crosses the library: poll functions hand their exception to the call that
//               polled; what the function of a map reader or a format throws is its consumer's
//               ProducerFailed; release functions must not throw.
#ifndef PYFEED_HPP
#define PYFEED_HPP

#if __cplusplus < 201703L
#error "pyfeed.hpp needs C++17"
#endif

#include <cerrno>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <list>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
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

// The place in a file that an error is about.
struct FileLocation {
    std::string file{};
    int64_t offset = -1;
    int64_t record = -1;
    int os_errno = 0;
    bool approximate = false;  // record is not exact
};

// What the library refused, and why: what() is a sentence.
class Error : public std::runtime_error {
public:
    Error(pf_status status, const std::string &message, int slot = -1, FileLocation where = {},
          std::string op = {})
        : std::runtime_error(message),
          status_(status),
          slot_(slot),
          where_(std::move(where)),
          op_(std::move(op)) {}

    pf_status status() const noexcept { return status_; }
    // The slot of the tuple it is about, or -1.
    int slot() const noexcept { return slot_; }

    // The file it is about: of every CorruptRecord and FileError, of what a file's instances are refused for, and
    // of what a function of map failed at; else empty.
    const std::string &file() const noexcept { return where_.file; }
    // In the file, in bytes, decompressed ones if it is compressed; or -1.
    int64_t offset() const noexcept { return where_.offset; }
    // Number of the record in the file, from 0; or -1.
    int64_t record() const noexcept { return where_.record; }
    // Whether that is not exact, because damage before it was skipped, of which it is not known how many records it was.
    bool approximate() const noexcept { return where_.approximate; }
    // The operating system's number for it, or 0.
    int os_errno() const noexcept { return where_.os_errno; }

    // The operator of a program that it happened in, such as "block 1, op 3: read"; else empty.
    const std::string &op() const noexcept { return op_; }

private:
    pf_status status_;
    int slot_;
    FileLocation where_;
    std::string op_;
};

namespace detail {
template <pf_status S>
class ErrorOf : public Error {
public:
    explicit ErrorOf(const std::string &message, int slot = -1, FileLocation where = {}, std::string op = {})
        : Error(S, message, slot, std::move(where), std::move(op)) {}
};
}  // namespace detail

#define PYFEED_ERROR_CLASS(name, status)          \
    class name : public detail::ErrorOf<status> { \
    public:                                       \
        using ErrorOf::ErrorOf;                   \
    }

PYFEED_ERROR_CLASS(EndOfData, PF_END);  // only of a program's run: next() and pop() answer nothing
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
PYFEED_ERROR_CLASS(CorruptRecord, PF_CORRUPT);
PYFEED_ERROR_CLASS(FileError, PF_IO);

#undef PYFEED_ERROR_CLASS

// A producer failed, and this is its error, after every tuple it had pushed; or a kernel did.
class ProducerFailed : public Error {
public:
    explicit ProducerFailed(const std::string &what, std::string type = {}, std::string message = {},
                            std::string traceback = {}, uint64_t token = 0, std::string op = {},
                            FileLocation where = {})
        : Error(PF_FAILED, what, -1, std::move(where), std::move(op)),
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

// A worker process that fills the queue died, and this comes after every tuple it had committed.
class WorkerDied : public ProducerFailed {
public:
    explicit WorkerDied(const std::string &what, int64_t pid = 0, int exit_status = 0, std::string type = {},
                        std::string message = {}, std::string traceback = {}, uint64_t token = 0,
                        std::string op = {})
        : ProducerFailed(what, std::move(type), std::move(message), std::move(traceback), token,
                         std::move(op)),
          pid_(pid),
          exit_status_(exit_status) {}

    int64_t pid() const noexcept { return pid_; }
    // Minus the signal that ended it, if one did.
    int exit_status() const noexcept { return exit_status_; }

private:
    int64_t pid_;
    int exit_status_;
};

// The CUDA driver said no.
class CudaError : public Error {
public:
    explicit CudaError(const std::string &message, int code = 0, std::string name = {}, int slot = -1,
                       FileLocation where = {}, std::string op = {})
        : Error(PF_CUDA_ERROR, message, slot, std::move(where), std::move(op)),
          code_(code),
          name_(std::move(name)) {}

    // The driver's number, a CUresult,
    int code() const noexcept { return code_; }
    // and its name of it, such as "CUDA_ERROR_OUT_OF_MEMORY".
    const std::string &name() const noexcept { return name_; }

private:
    int code_;
    std::string name_;
};

namespace detail {

[[noreturn]] inline void raise(pf_status status, const pf_error &err) {
    auto text = [](const char *s) { return std::string(s != nullptr ? s : ""); };
    const std::string message = err.message != nullptr ? err.message : pf_status_name(status);
    const FileLocation where{text(err.file), err.offset, err.record, err.os_errno, err.approximate != 0};
    const std::string op = text(err.op);
    switch (status) {
        case PF_END:
            throw EndOfData(message, err.slot, where, op);
        case PF_TIMEOUT:
            throw Timeout(message, err.slot, where, op);
        case PF_CANCELLED:
            throw Cancelled(message, err.slot, where, op);
        case PF_CLOSED:
            throw Closed(message, err.slot, where, op);
        case PF_FAILED:
            if (err.worker != 0) {
                throw WorkerDied(message, err.worker, err.exit_status, text(err.cause_type),
                                 text(err.cause_message), text(err.cause_traceback), err.cause_token, op);
            }
            throw ProducerFailed(message, text(err.cause_type), text(err.cause_message),
                                 text(err.cause_traceback), err.cause_token, op, where);
        case PF_INVALID:
            throw InvalidArgument(message, err.slot, where, op);
        case PF_SHAPE:
            throw ShapeError(message, err.slot, where, op);
        case PF_DTYPE:
            throw DTypeError(message, err.slot, where, op);
        case PF_SLOTS:
            throw SlotCountError(message, err.slot, where, op);
        case PF_TOO_LARGE:
            throw TooLarge(message, err.slot, where, op);
        case PF_STALE_HANDLE:
            throw StaleHandle(message, err.slot, where, op);
        case PF_STATE:
            throw StateError(message, err.slot, where, op);
        case PF_NOT_FOUND:
            throw NotFound(message, err.slot, where, op);
        case PF_UNSUPPORTED:
            throw Unsupported(message, err.slot, where, op);
        case PF_NO_MEMORY:
            throw OutOfMemory(message, err.slot, where, op);
        case PF_FORKED:
            throw Forked(message, err.slot, where, op);
        case PF_POISONED:
            throw Poisoned(message, err.slot, where, op);
        case PF_CORRUPT:
            throw CorruptRecord(message, err.slot, where, op);
        case PF_IO:
            throw FileError(message, err.slot, where, op);
        case PF_CUDA_ERROR:
            throw CudaError(message, err.cuda_code, text(err.cuda_name), err.slot, where, op);
        default:  // a status of a later release
            throw Error(status, message, err.slot, where, op);
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

// One place, or several devices: {CUDAPlace(0), CUDAPlace(1)}.
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

// A stream of a device: a CUstream or cudaStream_t, or its number. 0 and 1 are the legacy default stream, 2 is
// the calling thread's own.
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

    // The number of elements of that shape; of one too large for that, some number.
    int64_t numel() const {
        uint64_t n = 1;
        for (const int64_t d : *this) n *= static_cast<uint64_t>(d);
        return static_cast<int64_t>(n);
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
    // Whether the host can touch the data: it can, but for that of a CUDAPlace.
    bool on_host() const { return place_.kind != PF_CUDA || (flags_ & PF_HOST_EMULATED) != 0; }
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
    // All elements in order. StateError if they are strided, or where the host cannot touch them.
    template <class T>
    Span<const T> values() const {
        if (!on_host()) {
            throw StateError("the tensor is at CUDAPlace(" + std::to_string(place_.device) +
                             "): download it to look at it");
        }
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

class Wait;

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

    // Of a tuple at a CUDAPlace; one of the host's is there already. The copy to the device may still be under
    // way, and streams of others may work with the tuple when it is given back. Nothing waits on the host but
    // synchronize() and download().
    //
    // Has a stream wait until the tuple is there. Its memory is not written to again before what is submitted
    // to the stream until the tuple is given back is done. A stream that is being captured: StateError.
    inline void use(Stream stream) const;
    // Gives the loan back, and says that what was submitted to the stream until now is the last there to touch
    // the tuple. After an error it is as it was.
    inline void release(Stream stream);
    // Waits on the host until the tuple is there.
    inline void synchronize() const;
    inline void synchronize(const Wait &wait) const;
    // Copies all elements of a slot, `nbytes`, to memory of the host's. Of a tuple of the host's too.
    inline void download(size_t slot, void *to, size_t nbytes) const;
    // The same, into a new vector. DTypeError if they are not of that type.
    template <class T>
    std::vector<T> download(size_t slot) const {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements: take uint8_t");
        const TensorView tensor = at(slot);
        if constexpr (std::is_same_v<T, uint8_t>) {
            if (tensor.dtype() != DType::bool_) tensor.data<T>();
        } else {
            tensor.data<T>();
        }
        std::vector<T> out(static_cast<size_t>(tensor.numel()));
        download(slot, out.data(), out.size() * sizeof(T));
        return out;
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

// A string that the library gave out.
inline std::string taken(char *text) {
    const std::unique_ptr<char, void (*)(char *)> owned(text, pf_string_release);
    return text != nullptr ? text : "";
}

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

inline void Tuple::use(Stream stream) const {
    detail::Call call;
    call.check(pf_tuple_use(&raw_, stream.number(), call.err()));
}
inline void Tuple::release(Stream stream) {
    detail::Call call;
    call.check(pf_tuple_release_on(&raw_, stream.number(), call.err()));
}
inline void Tuple::synchronize(const Wait &wait) const {
    detail::Call call(wait);
    call.check(pf_tuple_synchronize(&raw_, call.wait(), call.err()));
}
inline void Tuple::synchronize() const { synchronize(Wait()); }
inline void Tuple::download(size_t slot, void *to, size_t nbytes) const {
    detail::Call call;
    call.check(pf_tuple_download(&raw_, static_cast<uint32_t>(slot), to, nbytes, call.err()));
}

inline CancelToken::CancelToken()
    : handle_(detail::make([](pf_handle *id, pf_error *err) { return pf_cancel_token_create(id, err); })) {}

inline void CancelToken::cancel() const {
    detail::Call call;
    call.check(pf_cancel_token_cancel(handle(), call.err()));
}

// ---- The queue ------------------------------------------------------------------------------------

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

// A producer's error, on its way to the consumer.
struct Failure {
    std::string type, message, traceback;
    uint64_t token;

    // Points into this.
    pf_failure raw() const && = delete;
    pf_failure raw() const & {
        pf_failure out = PF_FAILURE_INIT;
        out.type = type.empty() ? nullptr : type.c_str();
        out.message = message.empty() ? nullptr : message.c_str();
        out.traceback = traceback.empty() ? nullptr : traceback.c_str();
        out.token = token;
        return out;
    }
};

inline Failure failure_of(const std::exception &error, uint64_t token = 0) {
    if (auto *failed = dynamic_cast<const ProducerFailed *>(&error)) {
        return {failed->type(), failed->message(), failed->traceback(), token != 0 ? token : failed->token()};
    }
    std::string traceback;
    if (dynamic_cast<const std::nested_exception *>(&error) != nullptr) describe(error, traceback);
    return {type_name(typeid(error)), error.what(), traceback, token};
}

inline Failure failure_of(const std::exception_ptr &error, uint64_t token = 0) {
    if (error == nullptr) throw InvalidArgument("fail: there is no exception");
    try {
        std::rethrow_exception(error);
    } catch (const std::exception &e) {
        return failure_of(e, token);
    } catch (...) {
        return {"unknown", "an exception that is no std::exception", {}, token};
    }
}

}  // namespace detail

// What one slot of every tuple must look like. -1 matches anything; a first dimension of -1 is the batch's.
struct SlotSpec {
    DType dtype = DType::any;
    Dims dims{};
    uint32_t lod_levels = 0;
    std::string name{};  // of a file's slot, such as a column; queues have none
};

struct QueueOptions {
    uint64_t capacity = 0;  // in tuples; at least 1
    std::vector<SlotSpec> slots;
    Place place{};             // where the tuples are consumed
    uint64_t bytes_limit = 0;  // in bytes of all tuples queued or being written; 0: no limit
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

class Producer;

namespace detail {

// What producers do with a queue, by either kind of handle.
class Feeding {
public:
    // Copies a tuple in, strided or not. Blocks while the queue is full.
    void push(const Tensors &tensors, const Wait &wait = {}, uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call(wait);
        call.check(pf_queue_push(handle(), tensors.data(), tensors.size(), pass, call.wait(), call.err()));
    }

    // Lends a tuple: nothing is copied, the tensors must be contiguous and stay as they are until
    // release(context) is called: once, on any thread, and only if this call returns. It must not block,
    // throw or call pyfeed. Blocks while the queue is full.
    void push_lent(const Tensors &tensors, void (*release)(void *context), void *context,
                   const Wait &wait = {}, uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call(wait);
        call.check(pf_queue_push_lent(handle(), tensors.data(), tensors.size(), pass, release, context,
                                      call.wait(), call.err()));
    }
    // The same with anything that can be called. If the push throws, it is destroyed without being called.
    template <class F, class = std::enable_if_t<std::is_invocable_v<std::decay_t<F> &>>>
    void push_lent(const Tensors &tensors, F &&release, const Wait &wait = {},
                   uint64_t pass = PF_PASS_CURRENT) const {
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
                   uint64_t pass = PF_PASS_CURRENT) const {
        push_lent(tensors, [owner = std::move(owner)] {}, wait, pass);
    }

    // Reserves a tuple of those dtypes, shapes and levels of detail in the queue's own memory. Blocks while
    // the queue is full.
    Slot reserve(const Tensors &tensors, const Wait &wait = {}, uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(
            pf_queue_reserve(handle(), tensors.data(), tensors.size(), pass, call.wait(), &raw, call.err()));
        return Slot(raw);
    }

    // Ends the pass: pushes are Closed from now on, what is queued is still delivered. Twice is fine.
    void close(uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call;
        call.check(pf_queue_close(handle(), pass, call.err()));
    }

    // Ends the pass with an error, which the consumer gets after the last tuple as ProducerFailed. `token` is
    // whatever the producer's side wants to find there. False, and no exception, for this is called where one
    // is being handled: the pass has ended already, and nobody will be told.
    bool fail(const std::string &type, const std::string &message, const std::string &traceback = {},
              uint64_t token = 0, uint64_t pass = PF_PASS_CURRENT) const {
        return fail(detail::Failure{type, message, traceback, token}, pass);
    }
    // The same with an exception: its type and text, and the chain of what is nested in it as traceback. A
    // ProducerFailed from another queue passes on what it brought.
    bool fail(const std::exception &error, uint64_t token = 0, uint64_t pass = PF_PASS_CURRENT) const {
        return fail(detail::failure_of(error, token), pass);
    }
    bool fail(std::exception_ptr error, uint64_t token = 0, uint64_t pass = PF_PASS_CURRENT) const {
        return fail(detail::failure_of(error, token), pass);
    }

    struct Reopened {
        uint64_t pass;     // the number of the new pass
        uint64_t dropped;  // tuples that were still queued
    };
    // Begins the next pass: closes, drops what is still queued, opens. Pushes and pops that began before
    // cannot see the new pass.
    Reopened reopen() const {
        detail::Call call;
        Reopened out{PF_PASS_NONE, 0};
        call.check(pf_queue_reopen(handle(), &out.pass, &out.dropped, call.err()));
        return out;
    }

    // For the producer of a restartable queue: waits for a pass with a number above `after`, and gives its
    // number. Closed once the queue is shut down.
    uint64_t wait_pass(uint64_t after, const Wait &wait = {}) const {
        detail::Call call(wait);
        uint64_t pass = PF_PASS_NONE;
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

    // A handle for one more producer.
    Producer producer() const;

protected:
    explicit Feeding(Handle handle) : handle_(std::move(handle)) {}
    Feeding(const Feeding &) = default;
    Feeding(Feeding &&) = default;
    Feeding &operator=(const Feeding &) = default;
    Feeding &operator=(Feeding &&) = default;
    ~Feeding() = default;

private:
    bool fail(const detail::Failure &failure, uint64_t pass) const {
        detail::Call call;
        const pf_failure raw = failure.raw();
        return call.unless(PF_CLOSED, pf_queue_fail(handle(), pass, &raw, call.err()));
    }

    Handle handle_;
};

}  // namespace detail

// A queue as a producer has it: with all of Queue but the pops. It does not keep the queue open: once no Queue, no reader
// and no variable is left by which a tuple could be popped, pushes are Closed, blocked ones too. Made by
// Queue::producer; give one to each thread that pushes.
class Producer : public detail::Feeding {
public:
    // Takes over one count of a handle of pf_producer_create.
    static Producer adopt(pf_handle handle) {
        detail::check_abi();
        return Producer(detail::Handle(handle));
    }

private:
    using Feeding::Feeding;
};

inline Producer detail::Feeding::producer() const {
    Call call;
    pf_handle out = 0;
    call.check(pf_producer_create(handle(), &out, call.err()));
    return Producer::adopt(out);
}

// A bounded queue of tuples, first in, first out, for any number of producers and consumers. Made by
// PyArrayFeedQueueHolder::init_once.
//
// `pass` is the number of the pass a push, close or failure belongs to: once the queue has moved on, it is
// Closed (close: ignored). PF_PASS_CURRENT is the pass that is current when the call begins.
class Queue : public detail::Feeding {
public:
    // Takes over one count of a handle.
    static Queue adopt(pf_handle handle) {
        detail::check_abi();
        return Queue(detail::Handle(handle));
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

private:
    using Feeding::Feeding;
};

// ---- Staging ----------------------------------------------------------------------------------------

using BufferInfo = pf_staging_info;

// The staging buffer of a place, where tuples lie ready that were copied there while what came before was
// computed with: first in, first out, for any number of threads. The process has one a place, for good. Made by
// get_buffer.
class StagingBuffer {
public:
    // Takes over one count of a handle.
    static StagingBuffer adopt(pf_handle handle) {
        detail::check_abi();
        return StagingBuffer(detail::Handle(handle));
    }

    // Copies a tuple, strided or not, to the place. Tuples need not look alike. Blocks while the buffer is full;
    // TooLarge if the tuple alone is more than bytes_limit.
    void put(const Tensors &tensors, const Wait &wait = {}) const {
        detail::Call call(wait);
        call.check(pf_staging_put(handle(), tensors.data(), tensors.size(), call.wait(), call.err()));
    }

    // The oldest tuple. Blocks while there is none.
    Tuple get(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_staging_get(handle(), call.wait(), &raw, call.err()));
        return Tuple(raw);
    }

    // Drops what is in it, gives its memory back to the system, and goes on: those that wait for room get it.
    // The number of tuples.
    uint64_t clear() const {
        detail::Call call;
        uint64_t dropped = 0;
        call.check(pf_staging_clear(handle(), &dropped, call.err()));
        return dropped;
    }

    BufferInfo stats() const {
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

// The staging buffer of a place. The first call makes it; StateError for a later one with other limits.
// `capacity` counts tuples, at least 1; `bytes_limit` bytes, 0: no limit.
inline StagingBuffer get_buffer(Place place, uint64_t capacity, uint64_t bytes_limit = 0) {
    detail::check_abi();
    detail::Call call;
    pf_handle handle = 0;
    call.check(pf_staging_create(place, capacity, bytes_limit, &handle, call.err()));
    return StagingBuffer::adopt(handle);
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
              [parent](pf_handle *id, pf_error *err) { return pf_scope_create(parent, id, err); })) {}
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
        call.check(pf_var_get_queue(handle(), &id, call.err()));
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

// ---- Attributes -----------------------------------------------------------------------------------

namespace detail {

// What is JSON already.
struct Json {
    std::string text;
};

inline std::string to_json(const Json &value) { return value.text; }
inline std::string to_json(bool value) { return value ? "true" : "false"; }
std::string to_json(const char *) = delete;  // which would be a bool
template <class I, class = std::enable_if_t<is_plain_integer<I>>>
std::string to_json(I value) {
    return std::to_string(value);
}
// With a point whatever the locale, and all of its digits.
inline std::string to_json(double value) {
    if (!std::isfinite(value))
        throw InvalidArgument("expected a finite number, found " + std::to_string(value));
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(std::numeric_limits<double>::max_digits10);
    out << value;
    return out.str();
}
// How many bytes a character of UTF-8 has that begins there; 0: none does.
inline size_t utf8_length(const std::string &text, size_t at) {
    const auto byte = [&](size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first = byte(0), second = byte(1);
    if (first < 0x80) return 1;
    const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
        return 0;
    return length;
}
// A byte that is not part of UTF-8 becomes \u0000 and two digits, as the library takes names of files.
inline std::string to_json(const std::string &text) {
    static const char digits[] = "0123456789abcdef";
    std::string out = "\"";
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        const auto byte = static_cast<unsigned char>(c);
        const size_t length = utf8_length(text, i);
        if (byte < 0x20 || length == 0) {
            out += length == 0 ? "\\u0000" : "\\u00";
            out += digits[byte >> 4];
            out += digits[byte & 15];
            continue;
        }
        if (length > 1) {
            out.append(text, i, length);
            i += length - 1;
            continue;
        }
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}
template <class T>
std::string to_json(const std::vector<T> &values) {
    std::string out = "[";
    for (size_t i = 0; i < values.size(); i++) out += (i > 0 ? ", " : "") + to_json(values[i]);
    return out + "]";
}

class Attributes;
inline std::string to_json(const Attributes &value);
inline std::string to_json(const Place &place);
inline std::string to_json(const Places &places);
inline std::string to_json(const std::vector<SlotSpec> &slots);

// A JSON object, member by member.
class Attributes {
public:
    template <class T>
    Attributes &set(const char *name, const T &value) {
        members_[name] = to_json(value);
        return *this;
    }
    bool empty() const { return members_.empty(); }
    bool has(const std::string &name) const { return members_.count(name) != 0; }
    std::string json() const {
        std::string out = "{";
        for (const auto &[name, value] : members_) {
            out += (out.size() > 1 ? ", " : "") + to_json(name) + ": " + value;
        }
        return out + "}";
    }

private:
    std::map<std::string, std::string> members_;
};

inline std::string to_json(const Attributes &value) { return value.json(); }
inline std::string to_json(const Place &place) {
    return Attributes().set("kind", place.kind).set("device", place.device).json();
}
inline std::string to_json(const Places &places) {
    if (places.list().size() == 1) return to_json(places.list()[0]);
    std::string out = "[";
    for (const Place place : places.list()) out += (out.size() > 1 ? ", " : "") + to_json(place);
    return out + "]";
}
inline std::string to_json(const SlotSpec &slot) {
    Attributes out;
    if (!slot.name.empty()) out.set("name", slot.name);
    out.set("dtype", dtype_name(slot.dtype));
    out.set("dims", std::vector<int64_t>(slot.dims.begin(), slot.dims.end()));
    return out.set("lod_levels", slot.lod_levels).json();
}
inline std::string to_json(const std::vector<SlotSpec> &slots) {
    std::string out = "[";
    for (const SlotSpec &slot : slots) out += (out.size() > 1 ? ", " : "") + to_json(slot);
    return out + "]";
}

// Options that are set one by one. What is not set is as pyfeed.h says.
template <class Self>
class Options {
public:
    const Attributes &attributes() const { return attributes_; }

protected:
    template <class T>
    Self &set(const char *name, const T &value) {
        attributes_.set(name, value);
        return static_cast<Self &>(*this);
    }

private:
    Attributes attributes_;
};

}  // namespace detail

// How open_files reads: OpenFiles().format("recordio").num_threads(4). What is not set is as pyfeed.h says.
class OpenFiles : public detail::Options<OpenFiles> {
public:
    // The format's tag, for files whose names do not tell.
    OpenFiles &format(const std::string &tag) { return set("format", tag); }
    // What an instance looks like; else the first file is asked.
    OpenFiles &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // Threads that read.
    OpenFiles &num_threads(int threads) { return set("num_threads", threads); }
    // Whether instances come in one order, whatever num_threads; else first come, first served.
    OpenFiles &ordered(bool ordered) { return set("ordered", ordered); }
    // Files that are read in turn when ordered.
    OpenFiles &interleave(int files) { return set("interleave", files); }
    // A seed, from 0: the files come in another order in each pass, which depends on that and the pass alone.
    OpenFiles &shuffle_files(int64_t seed) { return set("shuffle_files", seed); }
    // What damage is: "raise", a CorruptRecord; "skip", a line in Reader::stats.
    OpenFiles &on_corrupt(const std::string &what) { return set("on_corrupt", what); }
    // Whether each file is read twice, the first time to verify all of it before its first instance is delivered.
    OpenFiles &verify_first(bool verify) { return set("verify_first", verify); }
    // "auto", "none", "gzip", "zlib", "zstd", "snappy" or "snappy-skippable".
    OpenFiles &compression(const std::string &name) {
        return set("storage", storage_.set("compression", name));
    }
    // "auto", "map" or "read".
    OpenFiles &io(const std::string &way) { return set("storage", storage_.set("io", way)); }
    // The format's own options, a JSON object: see docs/formats.md.
    OpenFiles &options(const std::string &json) { return set("options", detail::Json{json}); }

private:
    detail::Attributes storage_;
};

// What create_random_data_generator makes: RandomOptions().low(-1).count(1000). What is not set is as pyfeed.h says.
class RandomOptions : public detail::Options<RandomOptions> {
public:
    // Numbers are from low to below high; of integers, high is included.
    RandomOptions &low(double low) { return set("low", low); }
    RandomOptions &high(double high) { return set("high", high); }
    RandomOptions &seed(uint64_t seed) { return set("seed", seed); }
    // Instances of a pass; -1: without end.
    RandomOptions &count(int64_t instances) { return set("count", instances); }
};

// How Reader::map delivers. What is not set is as pyfeed.h says.
class MapOptions : public detail::Options<MapOptions> {
public:
    // What the results look like; else as what they are made of.
    MapOptions &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // Tuples taken and not yet delivered, at most.
    MapOptions &capacity(uint64_t tuples) { return set("capacity", tuples); }
    // Whether results come in the order of what they are made of; else first come, first served.
    MapOptions &ordered(bool ordered) { return set("ordered", ordered); }
};

// ---- Readers --------------------------------------------------------------------------------------

namespace detail {
struct MapRun;
}

// What a function of Reader::map gives its result to. Good for that call of the function.
class Give {
public:
    // Copies the result in, strided or not. One that does not fit the reader's slots throws, and another may
    // be given. Once there is a result, later ones are forgotten.
    void operator()(const Tensors &tensors) const {
        detail::Call call;
        call.check(pf_map_workers_complete(workers_, ticket_, tensors.data(), tensors.size(), call.err()));
    }

private:
    friend struct detail::MapRun;
    Give(pf_handle workers, uint64_t ticket) : workers_(workers), ticket_(ticket) {}

    pf_handle workers_;
    uint64_t ticket_;
};

// Makes the result of one tuple, which is borrowed for the call: in.share() keeps it. It is called from many
// threads of the library at once. What it throws, or that it gives nothing, is the consumer's ProducerFailed,
// whose message, file() and record() say which tuple it was.
using MapFunction = std::function<void(const Tuple &in, const Give &give)>;

// What hands out tuples, pass by pass. Copies are the same reader.
//
// The methods that make another reader from this one put it into a variable beside it: `out`, or a name made
// from this one's. From then on read only the new one: what it takes is missing here. It keeps this one.
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

    // What this reader and those below it did since they were made, and what its tuples look like: a JSON
    // object, see pf_reader_stats.
    std::string stats() const {
        detail::Call call;
        char *json = nullptr;
        call.check(pf_reader_stats(handle(), &json, call.err()));
        return detail::taken(json);
    }

    // A reader of batches of this one's tuples: see create_batch_reader.
    inline Reader batch(uint64_t batch_size, bool drop_last = false, const std::string &out = {},
                        bool ragged = false) const;
    // Permutes blocks of buffer_size tuples. One order for one seed, on every machine, another each pass.
    inline Reader shuffle(uint64_t buffer_size, uint64_t seed = 0, const std::string &out = {}) const;
    // Goes on with the next pass by itself, pass_num of them in all; 0: without end.
    inline Reader multi_pass(uint64_t pass_num, const std::string &out = {}) const;
    // Has `depth` tuples ready ahead, read by a thread of the library.
    inline Reader double_buffer(uint64_t depth = 2, const Places &place = {},
                                const std::string &out = {}) const;
    // Every world-th tuple, from the rank-th on.
    inline Reader shard(uint64_t rank, uint64_t world, const std::string &out = {}) const;
    // Tuples of this one's slots and then the other's, which this one's scope must know by its name. The pass
    // ends with the shorter of the two; strict, it is a StateError if they do not end together.
    inline Reader zip(const Reader &other, bool strict = false, const std::string &out = {}) const;
    // What `function` makes of the tuples, one result of each, on num_threads threads of the library. They,
    // the function and what it holds go when nobody has the new reader any more, which the function must
    // therefore not hold; the last of them may go on for a moment after that.
    inline Reader map(MapFunction function, uint32_t num_threads, const MapOptions &options = {},
                      const std::string &out = {}) const;

    // The name of the variable it is in.
    const std::string &name() const noexcept { return variable_.name(); }
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Variable;
    Reader(Variable variable, detail::Handle handle)
        : variable_(std::move(variable)), handle_(std::move(handle)) {}

    // Runs an operator on this reader and, perhaps, another.
    inline Reader derive(const char *kind, const detail::Attributes &attributes, const std::string &out,
                         const Reader *other = nullptr) const;

    Variable variable_;
    detail::Handle handle_;
};

inline Reader Variable::reader() const {
    return {*this,
            detail::make([&](pf_handle *id, pf_error *err) { return pf_var_get_reader(handle(), id, err); })};
}

// Runs the operator `op`: makes a reader of the readers in the variables `ins` and puts it into the variable
// `out`, which is made if need be. pyfeed.h lists the operators and their attributes, a JSON object.
inline Reader create_reader(const Scope &scope, const std::string &op, const std::string &out,
                            const std::vector<std::string> &ins, const std::string &attributes = {}) {
    std::vector<const char *> names;
    names.reserve(ins.size());
    for (const std::string &name : ins) names.push_back(name.c_str());
    detail::Call call;
    call.check(pf_reader_create(scope.handle(), op.c_str(), out.c_str(), names.data(),
                                static_cast<uint32_t>(names.size()),
                                attributes.empty() ? nullptr : attributes.c_str(), nullptr, call.err()));
    return scope.find(out).reader();
}

// Puts a reader of the queue in the variable `feeder_name` into the variable `out`.
inline Reader create_py_array_reader(const Scope &scope, const std::string &out,
                                     const std::string &feeder_name) {
    return create_reader(scope, "create_py_array_reader", out, {},
                         detail::Attributes().set("feeder_name", feeder_name).json());
}

namespace detail {
inline Attributes batch_attributes(uint64_t batch_size, bool drop_last, bool ragged) {
    Attributes out;
    out.set("batch_size", batch_size).set("drop_last", drop_last);
    if (ragged) out.set("ragged", true);
    return out;
}
}  // namespace detail

// Puts a reader into the variable `out` that joins `batch_size` tuples of the reader in the variable `in`:
// slots whose first dimension is -1 are concatenated along it and their level of detail merged, others are
// stacked. The last, smaller batch of a pass is delivered, unless drop_last. A tuple whose slots add different numbers of
// rows to a batch is a ShapeError, unless ragged.
inline Reader create_batch_reader(const Scope &scope, const std::string &out, const std::string &in,
                                  uint64_t batch_size, bool drop_last = false, bool ragged = false) {
    return create_reader(scope, "create_batch_reader", out, {in},
                         detail::batch_attributes(batch_size, drop_last, ragged).json());
}

// Puts a reader of files into the variable `out`: paths, globs or directories, each with a format's tag and a
// colon before it where its suffix does not tell. Threads of the library read them, many at a time. They are
// opened when they are read; only the first is looked at here, and that only if options do not say the slots.
inline Reader open_files(const Scope &scope, const std::string &out,
                         const std::vector<std::string> &filenames, const OpenFiles &options = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "open_files", out, {}, attributes.set("filenames", filenames).json());
}

// The same of one file, which the calling threads read. num_threads, ordered, interleave and
// shuffle_files mean nothing here.
inline Reader create_file_reader(const Scope &scope, const std::string &out, const std::string &filename,
                                 const OpenFiles &options = {}) {
    detail::Attributes attributes = options.attributes();
    attributes.set("filenames", std::vector<std::string>{filename});
    return create_reader(scope, "create_file_reader", out, {}, attributes.json());
}

// Puts a reader into the variable `out` that makes numbers drawn evenly from a range, the same in every pass
// and on every machine. The slots must say dtype and all dimensions.
inline Reader create_random_data_generator(const Scope &scope, const std::string &out,
                                           const std::vector<SlotSpec> &slots,
                                           const RandomOptions &options = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "create_random_data_generator", out, {},
                         attributes.set("slots", slots).json());
}

inline Reader Reader::derive(const char *kind, const detail::Attributes &attributes, const std::string &out,
                             const Reader *other) const {
    const Scope &scope = variable_.scope_;
    std::string name = out;
    if (name.empty()) {
        const std::string base = this->name() + "." + kind;
        name = base;
        for (int i = 2; scope.has(name); i++) name = base + std::to_string(i);
    }
    std::vector<std::string> ins = {this->name()};
    if (other != nullptr) ins.push_back(other->name());
    return create_reader(scope, std::string("create_") + kind + "_reader", name, ins, attributes.json());
}

inline Reader Reader::batch(uint64_t batch_size, bool drop_last, const std::string &out, bool ragged) const {
    return derive("batch", detail::batch_attributes(batch_size, drop_last, ragged), out);
}
inline Reader Reader::shuffle(uint64_t buffer_size, uint64_t seed, const std::string &out) const {
    return derive("shuffle", detail::Attributes().set("buffer_size", buffer_size).set("seed", seed), out);
}
inline Reader Reader::multi_pass(uint64_t pass_num, const std::string &out) const {
    return derive("multi_pass", detail::Attributes().set("pass_num", pass_num), out);
}
inline Reader Reader::double_buffer(uint64_t depth, const Places &place, const std::string &out) const {
    return derive("double_buffer", detail::Attributes().set("depth", depth).set("place", place), out);
}
inline Reader Reader::shard(uint64_t rank, uint64_t world, const std::string &out) const {
    return derive("shard", detail::Attributes().set("rank", rank).set("world", world), out);
}
inline Reader Reader::zip(const Reader &other, bool strict, const std::string &out) const {
    if (other.name() == name()) {
        throw InvalidArgument("zip: expected readers in two variables, found " + name() + " and " + name());
    }
    return derive("zip", detail::Attributes().set("strict", strict), out, &other);
}

namespace detail {

// A function at work for a map reader, which the last thread deletes.
struct MapRun {
    MapFunction function;

    static int call(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in) noexcept {
        Tuple tuple(*in);
        try {
            static_cast<MapRun *>(context)->function(tuple, Give(workers, ticket));
        } catch (...) {
            const Failure failure = failure_of(std::current_exception());
            const pf_failure raw = failure.raw();
            pf_map_workers_fail(workers, ticket, &raw, nullptr);
        }
        tuple.detach();  // it was borrowed
        return 0;
    }
    static void finished(void *context) noexcept { delete static_cast<MapRun *>(context); }
};

}  // namespace detail

inline Reader Reader::map(MapFunction function, uint32_t num_threads, const MapOptions &options,
                          const std::string &out) const {
    if (!function) throw InvalidArgument("map: expected a function, found none");
    Reader mapped = derive("map", options.attributes(), out);
    const detail::Handle workers = detail::make(
        [&](pf_handle *id, pf_error *err) { return pf_map_workers_create(mapped.handle(), id, err); });
    auto run = std::make_unique<detail::MapRun>(detail::MapRun{std::move(function)});
    detail::Call call;
    const pf_status status = pf_map_workers_start(workers.get(), &detail::MapRun::call, run.get(),
                                                  num_threads, &detail::MapRun::finished, call.err());
    if (status != PF_OK) {
        variable_.scope_.erase(mapped.name());  // a map reader without threads would wait for ever
        call.check(status);
    }
    run.release();  // the library's now
    return mapped;
}

// The read op: the next tuple of the reader in the variable `reader`, slot by slot into the variables `outs`,
// made in `scope` if no scope has them. Moves, never copies. False at the end of the pass, which leaves the
// variables as they are; SlotCountError if the numbers differ: the tuple then stays with the reader. Blocks.
inline bool read(const Scope &scope, const std::string &reader, std::initializer_list<const char *> outs,
                 const Wait &wait = {}) {
    detail::Call call(wait);
    return call.unless(PF_END, pf_scope_read(scope.handle(), reader.c_str(), outs.begin(),
                                             static_cast<uint32_t>(outs.size()), call.wait(), call.err()));
}
inline bool read(const Scope &scope, const std::string &reader, const std::vector<std::string> &outs,
                 const Wait &wait = {}) {
    std::vector<const char *> names;
    names.reserve(outs.size());
    for (const std::string &name : outs) names.push_back(name.c_str());
    detail::Call call(wait);
    return call.unless(PF_END, pf_scope_read(scope.handle(), reader.c_str(), names.data(),
                                             static_cast<uint32_t>(names.size()), call.wait(), call.err()));
}

// ---- Formats and writers --------------------------------------------------------------------------

// The formats there are: a JSON list of {"tag", "suffixes", "writes"}.
inline std::string formats() {
    detail::check_abi();
    detail::Call call;
    char *json = nullptr;
    call.check(pf_format_list(&json, call.err()));
    return detail::taken(json);
}

// How a Writer writes. What is not set is as pyfeed.h says.
class WriterOptions : public detail::Options<WriterOptions> {
public:
    // The format's tag, for a file whose name does not tell.
    WriterOptions &format(const std::string &tag) {
        format_ = tag;
        return *this;
    }
    // What the tuples look like; else the first one decides.
    WriterOptions &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // The format's own options, a JSON object: see docs/formats.md.
    WriterOptions &options(const std::string &json) { return set("options", detail::Json{json}); }

private:
    friend class Writer;

    std::string format_;
};

// A file that is being written. Until close() there is none of its name, or the old one; a Writer destroyed
// before leaves nothing. It has one owner and moves. Any thread, one at a time: others wait.
class Writer {
public:
    // Begins to write, in the format that the name says, or options do.
    explicit Writer(const std::string &filename, const WriterOptions &options = {})
        : handle_(detail::make([&](pf_handle *id, pf_error *err) {
              const std::string attributes = options.attributes().json();
              return pf_writer_create(filename.c_str(),
                                      options.format_.empty() ? nullptr : options.format_.c_str(),
                                      attributes.c_str(), id, err);
          })) {}
    Writer(Writer &&) noexcept = default;
    Writer &operator=(Writer &&) noexcept = default;
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;

    // Adds a tuple, strided or not. After an error nothing more can be written. Waits for the disk.
    void write(const Tensors &tensors) const {
        detail::Call call;
        call.check(pf_writer_write(handle(), tensors.data(), tensors.size(), call.err()));
    }
    // Completes the file and sees its bytes to the disk. Nothing can be written after it.
    void close() const {
        detail::Call call;
        call.check(pf_writer_close(handle(), call.err()));
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    detail::Handle handle_;
};

// Reads a file of a registered format: pushes its instances into the queue, in order. `options` is a JSON
// object. When it returns, the file has ended; what it throws is the consumer's ProducerFailed. A push that is
// Closed says that nobody reads on: let it through. It is called from many threads at once.
using FormatFunction =
    std::function<void(const std::string &path, const std::string &options, const Queue &queue)>;

// The threads that read the files of a format, one for each that is open, and the function that they call. It
// has one owner and moves. When it is destroyed it waits for the calls of the function, whose queues have
// failed by then. The format stays, but its files can no longer be read.
class RegisteredFormat {
public:
    RegisteredFormat(RegisteredFormat &&) noexcept = default;
    RegisteredFormat &operator=(RegisteredFormat &&) noexcept = default;

    const std::string &tag() const noexcept { return state_->tag; }

private:
    friend RegisteredFormat register_format(const std::string &, const std::vector<std::string> &,
                                            FormatFunction, const std::vector<SlotSpec> &);

    // Shared with the threads, which end before it does.
    struct State {
        State(std::string tag_, FormatFunction function_, detail::Handle format_)
            : tag(std::move(tag_)), function(std::move(function_)), format(std::move(format_)) {
            threads.emplace_back([this] { run(); });
        }
        State(const State &) = delete;
        State &operator=(const State &) = delete;

        ~State() {
            if (pf_cancel_token_cancel(token.handle(), nullptr) ==
                PF_FORKED) {  // the threads are not in this process
                for (std::thread &thread : threads) thread.detach();
                return;
            }
            std::list<std::thread> all;
            {
                const std::lock_guard<std::mutex> lock(mutex);
                stopping = true;
                for (const Queue &queue : open) give_up(queue);
                all.swap(threads);
            }
            for (std::thread &thread : all) thread.join();
        }

        void run() {
            pf_wait wait = PF_WAIT_INIT;
            wait.cancel = token.handle();
            for (;;) {
                pf_handle id = 0;
                char *path = nullptr, *options = nullptr;
                if (pf_format_wait(format.get(), &wait, &id, &path, &options, nullptr) != PF_OK) return;
                read(detail::taken(path), detail::taken(options), Queue::adopt(id));
            }
        }

        void read(const std::string &path, const std::string &options, const Queue &queue) {
            std::list<Queue>::iterator mine;
            {
                const std::lock_guard<std::mutex> lock(mutex);
                if (stopping) return give_up(queue);
                mine = open.insert(open.end(), queue);
                // Somebody must be left to wait: files that are read in turn would wait for each other.
                if (open.size() == threads.size()) start();
            }
            try {
                function(path, options, queue);
                queue.close();
            } catch (...) {
                const detail::Failure failure = detail::failure_of(std::current_exception());
                const pf_failure raw = failure.raw();
                pf_queue_fail(queue.handle(), 0, &raw, nullptr);
            }
            const std::lock_guard<std::mutex> lock(mutex);
            open.erase(mine);
        }

        void start() {
            try {
                threads.emplace_back([this] { run(); });
            } catch (const std::system_error &) {  // no more threads: files wait until one is free
            }
        }

        void give_up(const Queue &queue) const {
            const std::string message = "the threads that read the files of format " + tag + " have ended";
            pf_failure raw = PF_FAILURE_INIT;
            raw.message = message.c_str();
            pf_queue_fail(queue.handle(), 0, &raw, nullptr);
        }

        const std::string tag;
        const FormatFunction function;
        const detail::Handle format;
        const CancelToken token;

        std::mutex mutex;  // guards what follows
        std::list<std::thread> threads;
        std::list<Queue> open;
        bool stopping = false;
    };

    explicit RegisteredFormat(std::unique_ptr<State> state) : state_(std::move(state)) {}

    std::unique_ptr<State> state_;
};

// Adds a format whose files `function` reads, on threads that the result owns. `suffixes` are those of its
// files, each with its dot. `slots` is what its instances look like where open_files is not told; without any,
// it has to be. StateError if the tag or a suffix is taken: a format stays for good.
inline RegisteredFormat register_format(const std::string &tag, const std::vector<std::string> &suffixes,
                                        FormatFunction function, const std::vector<SlotSpec> &slots = {}) {
    if (!function) throw InvalidArgument("register_format: expected a function, found none");
    std::vector<const char *> all;
    all.reserve(suffixes.size());
    for (const std::string &suffix : suffixes) all.push_back(suffix.c_str());
    const std::string instances = detail::to_json(slots);
    detail::Handle format = detail::make([&](pf_handle *id, pf_error *err) {
        return pf_format_register(tag.c_str(), all.data(), static_cast<uint32_t>(all.size()),
                                  slots.empty() ? nullptr : instances.c_str(), id, err);
    });
    return RegisteredFormat(
        std::make_unique<RegisteredFormat::State>(tag, std::move(function), std::move(format)));
}

// ---- The library ----------------------------------------------------------------------------------

using MemoryStats = pf_memory_info;

// What is alive: everything but idle_bytes goes back to 0 when all is closed and released.
inline MemoryStats memory_stats() {
    detail::check_abi();
    detail::Call call;
    pf_memory_info stats = PF_MEMORY_INFO_INIT;
    call.check(pf_memory_stats(&stats, call.err()));
    return stats;
}

// The release of the library that is loaded.
inline std::string version() { return pf_version(); }

// ---- GPUs -----------------------------------------------------------------------------------------

// The devices that the CUDA driver has, which is opened by the first call of these, or the first CUDAPlace that is fed.
namespace cuda {

// Why there is no device to feed, in the driver's words; empty if there is.
inline std::string reason() {
    detail::check_abi();
    detail::Call call;
    uint8_t available = 0;
    char *text = nullptr;
    call.check(pf_cuda_available(&available, &text, call.err()));
    return detail::taken(text);
}
inline bool available() { return reason().empty(); }

// Unsupported, with the reason, without a driver.
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
// Of a tuple at a CUDAPlace: have the stream that is to work with it wait, by tuple->use(stream), before.
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

// ---- Tracing --------------------------------------------------------------------------------------

// A recording of what runs, readers and queues of this process do, from its construction to stop() or its
// end. One at a time: StateError. It has one owner and moves. Any thread.
//
//   pyfeed::Trace trace;
//   ...
//   trace.stop();
//   std::cout << trace.table();   // says what limits the loop
//   trace.save("trace.json");     // a picture, for https://ui.perfetto.dev
class Trace {
public:
    // Of so many spans at most, 56 bytes each as they come, 0: a million. Further ones are counted.
    explicit Trace(uint64_t max_events = 0)
        : handle_(detail::make(
              [&](pf_handle *id, pf_error *err) { return pf_trace_start(max_events, id, err); })) {}
    Trace(Trace &&) noexcept = default;
    Trace &operator=(Trace &&) noexcept = default;
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    // Ends it. Twice is fine.
    void stop() const {
        detail::Call call;
        call.check(pf_trace_stop(handle(), call.err()));
    }

    // What was recorded; before stop() a StateError. A JSON object that says what limits the loop,
    std::string summary() const { return text("summary").get(); }
    // the same for people,
    std::string table() const { return text("table").get(); }
    // all of it, as JSON in the Trace Event Format,
    std::string chrome() const { return text("chrome").get(); }
    // and the same into a file, which is replaced. FileError if it cannot be written whole.
    void save(const std::string &path) const {
        const Text json = text("chrome");
        std::FILE *file = std::fopen(path.c_str(), "wb");
        bool failed = file == nullptr;
        int why = errno;
        if (!failed) {
            const size_t size = std::strlen(json.get());
            failed = std::fwrite(json.get(), 1, size, file) != size;
            if (failed) why = errno;
            if (std::fclose(file) != 0 && !failed) {
                failed = true;
                why = errno;
            }
        }
        if (failed) {
            throw FileError(path + ": cannot be written: " + std::generic_category().message(why), -1,
                            FileLocation{path, -1, -1, why});
        }
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    using Text = std::unique_ptr<char, void (*)(char *)>;

    // It may be too large for a copy of it.
    Text text(const char *form) const {
        detail::Call call;
        char *text = nullptr;
        call.check(pf_trace_export(handle(), form, &text, call.err()));
        return Text(text, pf_string_release);
    }

    detail::Handle handle_;
};

}  // namespace pyfeed

#endif  // PYFEED_HPP

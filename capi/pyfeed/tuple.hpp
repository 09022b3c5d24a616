// Tuples that the library lends, and tuples as arguments.
#ifndef PYFEED_PYFEED_TUPLE_HPP
#define PYFEED_PYFEED_TUPLE_HPP

#include <cassert>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor.hpp"
#include "wait.hpp"

namespace pyfeed {

// The slots of one instance or one batch, on loan from the library. The destructor releases the loan. Views
// of the tensors must not be used after that.
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
    // The slot must exist. `at` throws InvalidArgument if it does not.
    TensorView operator[](size_t slot) const {
        assert(slot < size());
        return TensorView(slot_raw(slot));
    }
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

    // The same memory as another tuple. The memory stays until both are released.
    Tuple share() const {
        detail::Call call;
        pf_tuple out = PF_TUPLE_INIT;
        call.check(pf_tuple_share(&raw_, &out, call.err()));
        return Tuple(out);
    }

    // Releases the loan now. Any thread. A second call does nothing.
    void release() noexcept {
        if (raw_.loan != 0) pf_tuple_release(&raw_);
        raw_ = pf_tuple PF_TUPLE_INIT;
    }

    // The next methods are for a tuple at a CUDAPlace. The copy to the device may still be in progress, and
    // streams may still use the tuple when it is released. Only synchronize() and download() wait on the
    // host. For a tuple in host memory, use() and synchronize() do nothing.
    //
    // Makes a stream wait until the tuple is on its device. The library overwrites the tuple's memory only
    // after the stream has finished the work that was submitted to it before the release. Throws StateError
    // for a stream that is being captured.
    void use(Stream stream) const {
        detail::Call call;
        call.check(pf_tuple_use(&raw_, stream.number(), call.err()));
    }
    // Releases the loan. The work submitted to the stream so far is its last work on the tuple. After an
    // error the tuple stays on loan.
    void release(Stream stream) {
        detail::Call call;
        call.check(pf_tuple_release_on(&raw_, stream.number(), call.err()));
    }
    // Waits on the host until the tuple is on its device.
    void synchronize(const Wait &wait = {}) const {
        detail::Call call(wait);
        call.check(pf_tuple_synchronize(&raw_, call.wait(), call.err()));
    }
    // Copies all elements of a slot, `nbytes` bytes, to host memory, and waits until that is done. Works for
    // tuples in host memory too.
    void download(size_t slot, void *to, size_t nbytes) const {
        detail::Call call;
        call.check(pf_tuple_download(&raw_, static_cast<uint32_t>(slot), to, nbytes, call.err()));
    }
    // The same, into a new vector. Throws DTypeError if the elements have another type.
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

    // Gives up the loan: the caller must call pf_tuple_release.
    pf_tuple detach() noexcept { return std::exchange(raw_, pf_tuple PF_TUPLE_INIT); }
    const pf_tuple &raw() const noexcept { return raw_; }

private:
    // Steps through the array by the size of its first tensor: a newer library has longer structs.
    const pf_tensor &slot_raw(size_t slot) const {
        const char *first = reinterpret_cast<const char *>(raw_.slots);
        return *reinterpret_cast<const pf_tensor *>(first + slot * raw_.slots->size);
    }

    pf_tuple raw_ = PF_TUPLE_INIT;
};

// The tensors of one tuple, as an argument: a list {view(x), view(y)}, a vector of views, one view, or a
// Tuple to pass on. Make it in the call: it borrows for that call. Up to eight slots need no heap memory.
class Tensors {
public:
    Tensors(std::initializer_list<TensorView> tensors) : Tensors(tensors.begin(), tensors.size()) {}
    Tensors(const std::vector<TensorView> &tensors) : Tensors(tensors.data(), tensors.size()) {}
    Tensors(const TensorView &tensor) : Tensors(&tensor, 1) {}
    Tensors(const Tuple &tuple) : data_(tuple.raw().slots), size_(tuple.raw().num_slots) {}
    Tensors(const TensorView *tensors, size_t size) : size_(static_cast<uint32_t>(size)) {
        pf_tensor *out = inline_;
        if (size > inline_slots) {
            heap_.resize(size);
            out = heap_.data();
        }
        for (size_t i = 0; i < size; i++) out[i] = tensors[i].raw();
        data_ = out;
    }
    Tensors(const Tensors &) = delete;
    Tensors &operator=(const Tensors &) = delete;

    const pf_tensor *data() const { return data_; }
    uint32_t size() const { return size_; }

private:
    static constexpr size_t inline_slots = 8;
    pf_tensor inline_[inline_slots];
    std::vector<pf_tensor> heap_;
    const pf_tensor *data_ = nullptr;
    uint32_t size_ = 0;
};

namespace detail {

// Iterates over the tuples of a queue or a reader until the end of the pass, for a range-based for. It
// releases a tuple before it waits for the next one.
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

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_TUPLE_HPP

// The queue.
#ifndef PYFEED_PYFEED_QUEUE_HPP
#define PYFEED_PYFEED_QUEUE_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "tuple.hpp"

namespace pyfeed {

struct QueueOptions {
    uint64_t capacity = 0;  // in tuples; at least 1
    std::vector<SlotSpec> slots;
    Place place{};             // where the consumer wants the tuples
    uint64_t bytes_limit = 0;  // for all tuples that are queued or reserved, in bytes; 0: no limit
    bool restartable = false;  // the producer can start over: see Queue::wait_pass
};

using QueueInfo = pf_queue_info;

// A tuple in memory of the queue, for the producer to write in place and then to commit. A Reservation that
// is destroyed without a commit drops its tuple.
class Reservation {
public:
    explicit Reservation(const pf_tuple &raw) noexcept : tuple_(raw) {}

    size_t size() const noexcept { return tuple_.size(); }
    TensorView operator[](size_t slot) const { return tuple_[slot]; }
    TensorView at(size_t slot) const { return tuple_.at(slot); }

    // The same memory as another tuple, which can be read after the commit.
    Tuple share() const { return tuple_.share(); }

    // Queues the tuple. Throws QueueClosed, and drops the tuple, if its pass is over. Never blocks.
    void commit() {
        pf_tuple raw = tuple_.detach();
        detail::Call call;
        const pf_status status = pf_queue_commit(&raw, call.err());
        tuple_ = Tuple(raw);
        call.check(status);
    }
    // Drops the tuple now.
    void drop() noexcept { tuple_.release(); }

private:
    Tuple tuple_;
};

class Producer;

namespace detail {

// The operations of a queue that Queue and Producer share.
class QueueBase {
public:
    // Pushes a copy of a tuple, strided or not. Blocks while the queue is full.
    void push(const Tensors &tensors, const Wait &wait = {}, uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call(wait);
        call.check(pf_queue_push(handle(), tensors.data(), tensors.size(), pass, call.wait(), call.err()));
    }

    // Pushes a tuple without copying it. The tensors must be contiguous, and their data and LoD offsets must
    // stay unchanged until the library calls release(context). It does so once, on any thread, and only if
    // this call returns. release must not block, throw or call pyfeed. Blocks while the queue is full.
    void push_lent(const Tensors &tensors, void (*release)(void *context), void *context,
                   const Wait &wait = {}, uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call(wait);
        call.check(pf_queue_push_lent(handle(), tensors.data(), tensors.size(), pass, release, context,
                                      call.wait(), call.err()));
    }
    // The same with any callable. If the push throws, the callable is destroyed without a call.
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
        owned.release();  // the library owns it now, and may have deleted it already
    }
    // The same with an owner of the memory: the library holds a copy of the pointer until it has released the
    // memory.
    template <class T>
    void push_lent(const Tensors &tensors, std::shared_ptr<T> owner, const Wait &wait = {},
                   uint64_t pass = PF_PASS_CURRENT) const {
        push_lent(tensors, [owner = std::move(owner)] {}, wait, pass);
    }

    // Reserves room for a tuple with these dtypes, shapes and ragged offsets (LoD, level of detail), in
    // memory of the queue. Blocks while the queue is full.
    Reservation reserve(const Tensors &tensors, const Wait &wait = {},
                        uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(
            pf_queue_reserve(handle(), tensors.data(), tensors.size(), pass, call.wait(), &raw, call.err()));
        return Reservation(raw);
    }

    // Ends the pass: pushes throw QueueClosed from now on. Tuples that are queued are still delivered. A
    // second call does nothing.
    void close(uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call;
        call.check(pf_queue_close(handle(), pass, call.err()));
    }

    // Ends the pass with an error: after the last tuple the consumer gets it as ProducerError. `token` is any
    // number; the consumer finds it in the error. Returns false if the pass has ended already; the error is
    // then dropped. It does not throw QueueClosed, because it is often called while an exception is handled.
    bool fail(const std::string &type, const std::string &message, const std::string &traceback = {},
              uint64_t token = 0, uint64_t pass = PF_PASS_CURRENT) const {
        return fail(detail::Failure{type, message, traceback, token}, pass);
    }
    // The same with an exception: its type, its text, and the chain of nested exceptions as the traceback. A
    // ProducerError from another queue passes on the type, text and traceback that it has.
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
    // Begins the next pass: closes the current one, drops the tuples that are still queued, and opens the
    // next. Pushes and pops that began before do not see the new pass.
    Reopened reopen() const {
        detail::Call call;
        Reopened out{PF_PASS_NONE, 0};
        call.check(pf_queue_reopen(handle(), &out.pass, &out.dropped, call.err()));
        return out;
    }

    // For the producer of a restartable queue: waits for a pass with a number above `after`, and returns its
    // number. Throws QueueClosed once the queue is shut down.
    uint64_t wait_pass(uint64_t after, const Wait &wait = {}) const {
        detail::Call call(wait);
        uint64_t pass = PF_PASS_NONE;
        call.check(pf_queue_wait_pass(handle(), after, call.wait(), &pass, call.err()));
        return pass;
    }

    // The number of tuples at the beginning of a pass that the consumer had before the interruption, if
    // Reader::load_state continues in the middle of the pass; else 0. The reader drops them when they are pushed
    // again. A producer that can begin after them calls set_start before its first push of the pass.
    uint64_t start(uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call;
        uint64_t out = 0;
        call.check(pf_queue_get_start(handle(), pass, &out, call.err()));
        return out;
    }
    // Says that the first `start` tuples of the pass will not be pushed.
    void set_start(uint64_t start, uint64_t pass = PF_PASS_CURRENT) const {
        detail::Call call;
        call.check(pf_queue_set_start(handle(), pass, start, call.err()));
    }

    // Closes the queue for good and drops the tuples that are queued.
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
    // Whether a push would have to wait. Reserved tuples count.
    bool is_full() const {
        const QueueInfo info = stats();
        return info.num_tuples + info.reserved_tuples >= info.capacity;
    }

    // What a slot must look like. The dtype is the one that the first tuple has decided.
    SlotSpec slot(uint32_t index) const {
        detail::Call call;
        pf_slot_spec spec = PF_SLOT_SPEC_INIT;
        int64_t dims[PF_MAX_RANK];
        call.check(pf_queue_slot(handle(), index, &spec, dims, call.err()));
        return {Shape(spec.dims, static_cast<size_t>(spec.rank)), static_cast<DType>(spec.dtype),
                spec.lod_levels, spec.name ? spec.name : ""};
    }

    pf_handle handle() const noexcept { return handle_.get(); }

    // A new handle for a producer.
    Producer producer() const;

protected:
    explicit QueueBase(Handle handle) : handle_(std::move(handle)) {}
    QueueBase(const QueueBase &) = default;
    QueueBase(QueueBase &&) = default;
    QueueBase &operator=(const QueueBase &) = default;
    QueueBase &operator=(QueueBase &&) = default;
    ~QueueBase() = default;

private:
    bool fail(const detail::Failure &failure, uint64_t pass) const {
        detail::Call call;
        const pf_failure raw = failure.raw();
        return call.check_unless(PF_CLOSED, pf_queue_fail(handle(), pass, &raw, call.err()));
    }

    Handle handle_;
};

}  // namespace detail

// A queue, for a producer: it has all methods of Queue except the pops. It does not keep the queue open. Once
// no Queue, no reader and no variable is left through which a tuple could be popped, pushes throw
// QueueClosed, blocked ones too. Made by Queue::producer. Give one to each thread that pushes.
class Producer : public detail::QueueBase {
public:
    // Takes over a reference to a handle of pf_producer_create.
    static Producer adopt(pf_handle handle) {
        detail::check_abi();
        return Producer(detail::Handle(handle));
    }

private:
    using QueueBase::QueueBase;
};

inline Producer detail::QueueBase::producer() const {
    Call call;
    pf_handle out = 0;
    call.check(pf_producer_create(handle(), &out, call.err()));
    return Producer::adopt(out);
}

// A bounded queue of tuples, first in, first out, for any number of producers and consumers. Made by
// PyArrayFeedQueueHolder::init_once.
//
// `pass` is the number of the pass that a push, close or failure is for. Once that pass is over, a push
// throws QueueClosed, fail() returns false, and close() does nothing. PF_PASS_CURRENT is the pass that is
// current when the call begins.
class Queue : public detail::QueueBase {
public:
    // Takes over a reference to a handle.
    static Queue adopt(pf_handle handle) {
        detail::check_abi();
        return Queue(detail::Handle(handle));
    }

    // Takes the oldest tuple; empty at the end of the pass. Throws ProducerError after the last tuple of a
    // pass that has failed. Blocks while the queue is empty.
    std::optional<Tuple> pop(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        if (!call.check_unless(PF_END, pf_queue_pop(handle(), call.wait(), &raw, call.err())))
            return std::nullopt;
        return std::optional<Tuple>(std::in_place, raw);
    }
    std::optional<Tuple> next(const Wait &wait = {}) const { return pop(wait); }

    // for (Tuple &tuple : queue) pops until the end of the pass. queue.tuples(wait) does the same with a
    // Wait. Neither continues with another pass.
    detail::TupleIterator<Queue> begin() const { return {this, Wait()}; }
    detail::TupleIterator<Queue>::End end() const { return {}; }
    detail::TupleRange<Queue> tuples(const Wait &wait) const { return {*this, wait}; }

private:
    using QueueBase::QueueBase;
};

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_QUEUE_HPP

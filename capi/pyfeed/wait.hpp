// Handles, cancel tokens and waits, which every call into the library needs.
#ifndef PYFEED_PYFEED_WAIT_HPP
#define PYFEED_PYFEED_WAIT_HPP

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "error.hpp"

namespace pyfeed {

namespace detail {

class Call;

// One reference to a handle.
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
    // A failed release is ignored: it always fails in a child of fork().
    ~Handle() {
        if (id_ != 0) pf_release(id_, nullptr);
    }

    pf_handle get() const noexcept { return id_; }

private:
    pf_handle id_ = 0;
};

}  // namespace detail

// Ends waits: give it to a Wait. cancel() cannot be undone. Copies are the same token. A signal handler MUST
// NOT call cancel().
class CancelToken {
public:
    inline CancelToken();

    inline void cancel() const;
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Wait;

    detail::Handle handle_;
};

// How long a call may wait. The default waits for ever. A duration is a Wait: queue.pop(100ms). A Wait can be
// used for many calls, and by several threads at once if its poll function allows that.
class Wait {
public:
    Wait() = default;
    template <class Rep, class Period>
    Wait(std::chrono::duration<Rep, Period> timeout) {
        this->timeout(timeout);
    }

    static Wait forever() { return {}; }
    // Does not wait: throws Timeout where the call would block.
    static Wait none() { return std::chrono::nanoseconds(0); }

    // Throws Timeout when this time has passed. A negative time, such as of a deadline that is over, counts
    // as 0.
    template <class Rep, class Period>
    Wait &timeout(std::chrono::duration<Rep, Period> timeout) {
        const auto seconds = std::chrono::duration<double>(timeout).count();
        if (!(seconds > 0)) {
            timeout_ns_ = 0;
        } else if (seconds >= 9e9) {  // 285 years do not fit in nanoseconds: wait for ever
            timeout_ns_ = -1;
        } else {
            timeout_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
        }
        return *this;
    }
    // Throws Cancelled when the token is cancelled.
    Wait &cancel(const CancelToken &token) {
        token_ = token.handle_;
        return *this;
    }
    // Calls `stop` on the waiting thread about every `interval`, and after each signal that this thread
    // receives. If it returns true, the call throws Cancelled. If it throws, the call throws the same
    // exception. A call that finds its data at once does not call `stop`, so a loop should also check its own
    // flag.
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

// The pf_error and the pf_wait of one call into the library.
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

    // Throws unless the status is PF_OK.
    void check(pf_status status) {
        if (status == PF_OK) return;
        failed_ = true;
        if (status == PF_CANCELLED && thrown_) std::rethrow_exception(thrown_);
        raise(status, err_);
    }
    // The same, but returns false for one status that is no error here.
    bool check_unless(pf_status expected, pf_status status) {
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

// Takes over a string that the library returned.
inline std::string take_string(char *text) {
    const std::unique_ptr<char, void (*)(char *)> owned(text, pf_string_release);
    return text != nullptr ? text : "";
}

inline Handle::Handle(const Handle &other) {
    if (other.id_ == 0) return;
    Call call;
    call.check(pf_retain(other.id_, call.err()));
    id_ = other.id_;
}

// Calls a function that makes a handle, and takes over that handle.
template <class F>
Handle make_handle(F &&f) {
    check_abi();
    Call call;
    pf_handle id = 0;
    call.check(f(&id, call.err()));
    return Handle(id);
}

}  // namespace detail

inline CancelToken::CancelToken()
    : handle_(
          detail::make_handle([](pf_handle *id, pf_error *err) { return pf_cancel_token_create(id, err); })) {
}

inline void CancelToken::cancel() const {
    detail::Call call;
    call.check(pf_cancel_token_cancel(handle(), call.err()));
}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_WAIT_HPP

// Errors: an exception class for each status of pyfeed.h.
#ifndef PYFEED_PYFEED_ERROR_HPP
#define PYFEED_PYFEED_ERROR_HPP

#if __cplusplus < 201703L
#error "pyfeed needs C++17"
#endif

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "../pyfeed.h"

namespace pyfeed {

// The place in a file that an error is about. offset and record are -1 if they are not known.
struct FileLocation {
    std::string file{};
    int64_t offset = -1;
    int64_t record = -1;
    int os_errno = 0;
    bool approximate = false;  // the record is not exact
};

// The base class of all errors. what() is one sentence: what was expected, what was found, where.
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
    // The slot of the tuple that the error is about, or -1.
    int slot() const noexcept { return slot_; }

    // The file that the error is about, or empty. It is set for every CorruptRecordError and FileError, for
    // an instance of a file that is refused, and for a tuple of a file that a function of map failed at.
    const std::string &file() const noexcept { return where_.file; }
    // The position in the file, in bytes of the decompressed data; or -1.
    int64_t offset() const noexcept { return where_.offset; }
    // The number of the record in the file, from 0; or -1.
    int64_t record() const noexcept { return where_.record; }
    // Whether record() is not exact: damage before this record was skipped, and the number of records in the
    // damaged part is not known.
    bool approximate() const noexcept { return where_.approximate; }
    // The errno of the operating system, or 0.
    int os_errno() const noexcept { return where_.os_errno; }

    // The operator of a program that failed, such as "block 1, op 3: read"; else empty.
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

PYFEED_ERROR_CLASS(EndOfData, PF_END);  // only from a run of a program: see next() and pop()
PYFEED_ERROR_CLASS(Timeout, PF_TIMEOUT);
PYFEED_ERROR_CLASS(Cancelled, PF_CANCELLED);
PYFEED_ERROR_CLASS(QueueClosed, PF_CLOSED);
PYFEED_ERROR_CLASS(InvalidArgument, PF_INVALID);
PYFEED_ERROR_CLASS(ShapeError, PF_SHAPE);
PYFEED_ERROR_CLASS(DTypeError, PF_DTYPE);
PYFEED_ERROR_CLASS(SlotCountError, PF_SLOTS);
PYFEED_ERROR_CLASS(TooLargeError, PF_TOO_LARGE);
PYFEED_ERROR_CLASS(StaleHandleError, PF_STALE_HANDLE);
PYFEED_ERROR_CLASS(StateError, PF_STATE);
PYFEED_ERROR_CLASS(NotFoundError, PF_NOT_FOUND);  // a missing file is a FileError
PYFEED_ERROR_CLASS(UnsupportedError, PF_UNSUPPORTED);
PYFEED_ERROR_CLASS(OutOfMemoryError, PF_NO_MEMORY);
PYFEED_ERROR_CLASS(ForkError, PF_FORKED);
PYFEED_ERROR_CLASS(PoisonedError, PF_POISONED);
PYFEED_ERROR_CLASS(CorruptRecordError, PF_CORRUPT);
PYFEED_ERROR_CLASS(FileError, PF_IO);

#undef PYFEED_ERROR_CLASS

// The error of a producer, of a function of a map reader or a format, or of a kernel. The consumer gets it
// after every tuple that the producer had pushed.
class ProducerError : public Error {
public:
    explicit ProducerError(const std::string &what, std::string type = {}, std::string message = {},
                           std::string traceback = {}, uint64_t token = 0, std::string op = {},
                           FileLocation where = {})
        : Error(PF_FAILED, what, -1, std::move(where), std::move(op)),
          type_(std::move(type)),
          message_(std::move(message)),
          traceback_(std::move(traceback)),
          token_(token) {}

    // Each of the three is empty if the producer did not give it.
    const std::string &type() const noexcept { return type_; }
    const std::string &message() const noexcept { return message_; }
    const std::string &traceback() const noexcept { return traceback_; }
    uint64_t token() const noexcept { return token_; }

private:
    std::string type_, message_, traceback_;
    uint64_t token_;
};

// A worker process that fills the queue died. The consumer gets this after every tuple that the worker had
// committed.
class WorkerError : public ProducerError {
public:
    explicit WorkerError(const std::string &what, int64_t pid = 0, int exit_status = 0, std::string type = {},
                         std::string message = {}, std::string traceback = {}, uint64_t token = 0,
                         std::string op = {})
        : ProducerError(what, std::move(type), std::move(message), std::move(traceback), token,
                        std::move(op)),
          pid_(pid),
          exit_status_(exit_status) {}

    int64_t pid() const noexcept { return pid_; }
    // The exit status, or the negated number of the signal that killed the process.
    int exit_status() const noexcept { return exit_status_; }

private:
    int64_t pid_;
    int exit_status_;
};

// The CUDA driver returned an error.
class CudaError : public Error {
public:
    explicit CudaError(const std::string &message, int code = 0, std::string name = {}, int slot = -1,
                       FileLocation where = {}, std::string op = {})
        : Error(PF_CUDA_ERROR, message, slot, std::move(where), std::move(op)),
          code_(code),
          name_(std::move(name)) {}

    // The CUresult of the driver.
    int code() const noexcept { return code_; }
    // The name of that CUresult, such as "CUDA_ERROR_OUT_OF_MEMORY".
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
            throw QueueClosed(message, err.slot, where, op);
        case PF_FAILED:
            if (err.worker != 0) {
                throw WorkerError(message, err.worker, err.exit_status, text(err.cause_type),
                                  text(err.cause_message), text(err.cause_traceback), err.cause_token, op);
            }
            throw ProducerError(message, text(err.cause_type), text(err.cause_message),
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
            throw TooLargeError(message, err.slot, where, op);
        case PF_STALE_HANDLE:
            throw StaleHandleError(message, err.slot, where, op);
        case PF_STATE:
            throw StateError(message, err.slot, where, op);
        case PF_NOT_FOUND:
            throw NotFoundError(message, err.slot, where, op);
        case PF_UNSUPPORTED:
            throw UnsupportedError(message, err.slot, where, op);
        case PF_NO_MEMORY:
            throw OutOfMemoryError(message, err.slot, where, op);
        case PF_FORKED:
            throw ForkError(message, err.slot, where, op);
        case PF_POISONED:
            throw PoisonedError(message, err.slot, where, op);
        case PF_CORRUPT:
            throw CorruptRecordError(message, err.slot, where, op);
        case PF_IO:
            throw FileError(message, err.slot, where, op);
        case PF_CUDA_ERROR:
            throw CudaError(message, err.cuda_code, text(err.cuda_name), err.slot, where, op);
        default:  // a status of a later release
            throw Error(status, message, err.slot, where, op);
    }
}

// Checks that the loaded library has the ABI that this program was compiled for. Throws UnsupportedError.
inline void check_abi() {
    static const bool checked = [] {
        const uint32_t found = pf_abi_version();
        if (found != PF_ABI_VERSION) {
            throw UnsupportedError("this program was compiled for pyfeed ABI " +
                                   std::to_string(PF_ABI_VERSION) +
                                   " (release " PF_VERSION "), but the library that is loaded has ABI " +
                                   std::to_string(found) + " (release " + pf_version() + ")");
        }
        return true;
    }();
    (void)checked;
}

}  // namespace detail

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_ERROR_HPP

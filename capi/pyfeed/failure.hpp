// Conversion of exceptions of producers and kernels to errors for the consumer.
#ifndef PYFEED_PYFEED_FAILURE_HPP
#define PYFEED_PYFEED_FAILURE_HPP

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#if defined(__GNUG__)
#include <cxxabi.h>
#endif

#include "error.hpp"

namespace pyfeed {

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

// Appends one line for each nested exception, the outermost first.
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

// The error of a producer, for the consumer.
struct Failure {
    std::string type, message, traceback;
    uint64_t token;

    // The result points into this object.
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
    if (auto *failed = dynamic_cast<const ProducerError *>(&error)) {
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

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_FAILURE_HPP

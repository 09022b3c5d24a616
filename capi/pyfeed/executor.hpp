// The executor, and the arguments of its runs.
#ifndef PYFEED_PYFEED_EXECUTOR_HPP
#define PYFEED_PYFEED_EXECUTOR_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "layers.hpp"
#include "scope.hpp"

namespace pyfeed {

// The name of a variable, as an argument: a string or a variable of a program. The string is borrowed.
class Name {
public:
    Name(const char *name) : text_(name) {}
    Name(const std::string &name) : text_(name.c_str()) {}
    Name(const layers::Var &var) : text_(var.name().c_str()) {}

    const char *text() const { return text_; }

private:
    const char *text_;
};

// The tensors that a run is fed, as an argument: {{"image", view(x)}, {label, view(y)}}, or a map. Make it in
// the call: it borrows the names and the data for that call. Up to eight feeds need no heap memory.
class Feeds {
public:
    struct Feed {
        Name name;
        TensorView tensor;
    };

    Feeds() = default;
    Feeds(std::initializer_list<Feed> feeds) : Feeds(feeds.begin(), feeds.end()) {}
    Feeds(const std::vector<Feed> &feeds) : Feeds(feeds.begin(), feeds.end()) {}
    Feeds(const std::map<std::string, TensorView> &feeds) : Feeds(feeds.begin(), feeds.end()) {}
    Feeds(const Feeds &) = delete;
    Feeds &operator=(const Feeds &) = delete;

    const char *const *names() const { return heap_names_.empty() ? names_ : heap_names_.data(); }
    const pf_tensor *tensors() const { return heap_tensors_.empty() ? tensors_ : heap_tensors_.data(); }
    uint32_t size() const { return size_; }

private:
    template <class I>
    Feeds(I begin, I end) : size_(static_cast<uint32_t>(std::distance(begin, end))) {
        const char **names = names_;
        pf_tensor *tensors = tensors_;
        if (size_ > inline_vars) {
            heap_names_.resize(size_);
            heap_tensors_.resize(size_);
            names = heap_names_.data();
            tensors = heap_tensors_.data();
        }
        for (; begin != end; ++begin) {
            const auto &[name, tensor] = *begin;
            *names++ = Name(name).text();
            *tensors++ = tensor.raw();
        }
    }

    static constexpr size_t inline_vars = 8;
    uint32_t size_ = 0;
    const char *names_[inline_vars];
    pf_tensor tensors_[inline_vars];
    std::vector<const char *> heap_names_;
    std::vector<pf_tensor> heap_tensors_;
};

// The variables to fetch from a run, as an argument: {"loss", rate}, a vector of names, or variables.
class Fetches {
public:
    Fetches() = default;
    Fetches(std::initializer_list<Name> names) : Fetches(names.begin(), names.end()) {}
    Fetches(const std::vector<std::string> &names) : Fetches(names.begin(), names.end()) {}
    Fetches(const std::vector<layers::Var> &vars) : Fetches(vars.begin(), vars.end()) {}
    template <size_t n>
    Fetches(const std::array<layers::Var, n> &vars) : Fetches(vars.begin(), vars.end()) {}
    Fetches(const Fetches &) = delete;
    Fetches &operator=(const Fetches &) = delete;

    const char *const *names() const { return heap_.empty() ? names_ : heap_.data(); }
    uint32_t size() const { return size_; }

private:
    template <class I>
    Fetches(I begin, I end) : size_(static_cast<uint32_t>(std::distance(begin, end))) {
        const char **names = names_;
        if (size_ > inline_vars) {
            heap_.resize(size_);
            names = heap_.data();
        }
        for (; begin != end; ++begin) *names++ = Name(*begin).text();
    }

    static constexpr size_t inline_vars = 8;
    uint32_t size_ = 0;
    const char *names_[inline_vars];
    std::vector<const char *> heap_;
};

// Runs programs at a place. Copies are the same executor. Any number of threads may run programs with it.
class Executor {
public:
    explicit Executor(Place place = {})
        : handle_(detail::make_handle(
              [place](pf_handle *id, pf_error *err) { return pf_executor_create(place, id, err); })) {}

    // Runs a program once, on this thread: copies `feeds` into variables of its first block, runs its
    // operators, and returns the tensors of `fetches`. Persistable variables are those of the scope and its
    // parents, and are made in the scope where there are none; all others belong to the run. Blocks where an
    // operator blocks; the Wait is also checked between operators. An error names the operator: see
    // Error::op. Throws EndOfData when a read operator comes to the end of the data.
    Tuple run(const Program &program, const Scope &scope, const Feeds &feeds = {},
              const Fetches &fetches = {}, const Wait &wait = {}) const {
        detail::finish_pending();
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_executor_run(handle(), program.handle(), scope.handle(), feeds.names(), feeds.tensors(),
                                   feeds.size(), fetches.names(), fetches.size(), call.wait(), &raw,
                                   call.err()));
        return Tuple(raw);
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    detail::Handle handle_;
};

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_EXECUTOR_HPP

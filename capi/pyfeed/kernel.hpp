// Kernels, and libraries of kernels.
#ifndef PYFEED_PYFEED_KERNEL_HPP
#define PYFEED_PYFEED_KERNEL_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "json_view.hpp"
#include "tuple.hpp"

namespace pyfeed {

// What a kernel is called with. Good for that call, on its thread.
class KernelContext {
public:
    explicit KernelContext(const pf_kernel_call *call) : call_(call) {}

    size_t num_ins() const noexcept { return call_->num_ins; }
    size_t num_outs() const noexcept { return call_->num_outs; }

    // An input, not to be written.
    TensorView in(size_t i) const {
        if (i >= num_ins()) refuse("input", i, num_ins());
        return TensorView(at(call_->ins, i)).with_read_only(true);
    }
    // What an output has by now: of one that is an input as well, its tensor, to be written in place; else
    // nothing, of DType::any, until output() or set().
    TensorView out(size_t i) const { return TensorView(raw_out(i)); }

    // The memory of an output of that shape, to be written: what it has if dtype and shape are the same, else
    // new memory, in which there may be anything.
    template <class T>
    T *output(size_t i, const Shape &shape) const {
        return static_cast<T *>(output(i, TensorView(dtype_of<T>(), shape)));
    }
    void *output(size_t i, const TensorView &like) const {
        const pf_tensor &has = raw_out(i);
        const pf_tensor wanted = like.raw();
        if (has.data != nullptr && has.dtype == wanted.dtype && has.strides == nullptr &&
            has.lod_levels == 0 && wanted.lod_levels == 0 && has.rank == wanted.rank &&
            (has.flags & PF_READ_ONLY) == 0 && std::equal(wanted.dims, wanted.dims + wanted.rank, has.dims)) {
            return has.data;
        }
        detail::Call call;
        void *data = nullptr;
        call.check(pf_kernel_output(call_, static_cast<uint32_t>(i), &wanted, &data, call.err()));
        return data;
    }
    // Copies a tensor, strided or not, to an output.
    void set(size_t i, const TensorView &tensor) const {
        detail::Call call;
        const pf_tensor raw = tensor.raw();
        call.check(pf_kernel_set(call_, static_cast<uint32_t>(i), &raw, call.err()));
    }
    // An input as a tuple of one slot, which may outlive the call.
    Tuple share_input(size_t i) const {
        detail::Call call;
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_kernel_share(call_, static_cast<uint32_t>(i), &raw, call.err()));
        return Tuple(raw);
    }

    // The attributes, a JSON object.
    const char *attributes() const noexcept {
        return call_->attributes != nullptr ? call_->attributes : "{}";
    }
    // One of them: a bool, a number, a std::string or a std::vector of those. NotFoundError if there is none of
    // that name, InvalidArgument if it is something else.
    template <class T>
    T attribute(const char *name) const {
        const detail::JsonView value = find(name);
        if (value.text().empty()) throw NotFoundError(about(name) + "expected one, found " + attributes());
        return as<T>(name, value);
    }
    // The same, or `otherwise` if there is none of that name.
    template <class T>
    T attribute(const char *name, T otherwise) const {
        const detail::JsonView value = find(name);
        return value.text().empty() ? otherwise : as<T>(name, value);
    }
    std::string attribute(const char *name, const char *otherwise) const {
        return attribute<std::string>(name, otherwise);
    }

    // Where the executor is, and the stream of a GPU to work on, or 0.
    Place place() const noexcept { return call_->place; }
    uint64_t stream() const noexcept { return call_->stream; }
    // The name that the kernel is called by.
    const char *kernel() const noexcept { return call_->kernel; }
    const pf_kernel_call &raw() const noexcept { return *call_; }

private:
    // A library newer than this header has longer tensors: the first one's size is the step.
    static const pf_tensor &at(const pf_tensor *first, size_t i) {
        return *reinterpret_cast<const pf_tensor *>(reinterpret_cast<const char *>(first) + i * first->size);
    }
    const pf_tensor &raw_out(size_t i) const {
        if (i >= num_outs()) refuse("output", i, num_outs());
        return at(call_->outs, i);
    }
    [[noreturn]] void refuse(const char *what, size_t i, size_t n) const {
        throw SlotCountError(std::string("no ") + what + " " + std::to_string(i) + ": the kernel " +
                             kernel() + " was given " + std::to_string(n));
    }
    std::string about(const char *name) const {
        return std::string("the kernel ") + kernel() + ": attribute " + name + ": ";
    }
    detail::JsonView find(const char *name) const { return detail::JsonView(attributes())[name]; }
    template <class T>
    T as(const char *name, detail::JsonView value) const {
        auto out = value.as<T>();
        if (!out) {
            std::string expected = "a list";
            if constexpr (detail::has_dtype<T>) expected = dtype_name(dtype_of<T>());
            if constexpr (std::is_same_v<T, std::string>) expected = "a string";
            throw InvalidArgument(about(name) + "expected " + expected + ", found " +
                                  std::string(value.text()));
        }
        return *std::move(out);
    }

    const pf_kernel_call *call_;
};

// Computes the outputs of a `call` operator from its inputs. It is called by the threads that run programs,
// by many at once, with no lock held. What it throws is the run's ProducerError.
using Kernel = std::function<void(KernelContext &)>;

// A kernel that is known by its name as long as this lives. It has one owner and moves. When it is destroyed,
// later runs do not find the kernel; those that have it keep it.
class RegisteredKernel {
public:
    RegisteredKernel(RegisteredKernel &&) noexcept = default;
    RegisteredKernel &operator=(RegisteredKernel &&) noexcept = default;
    RegisteredKernel(const RegisteredKernel &) = delete;
    RegisteredKernel &operator=(const RegisteredKernel &) = delete;

    const std::string &name() const noexcept { return name_; }

private:
    friend RegisteredKernel register_kernel(const std::string &, Kernel);
    RegisteredKernel(std::string name, detail::Handle handle)
        : name_(std::move(name)), handle_(std::move(handle)) {}

    std::string name_;
    detail::Handle handle_;
};

namespace detail {

inline int call_kernel(void *kernel, const pf_kernel_call *call) noexcept {
    try {
        KernelContext context(call);
        (*static_cast<const Kernel *>(kernel))(context);
        return 0;
    } catch (...) {
        const Failure failure = failure_of(std::current_exception());
        const pf_failure raw = failure.raw();
        pf_kernel_fail(call, &raw, nullptr);
        return 1;
    }
}
inline void finish_kernel(void *kernel) noexcept { delete static_cast<Kernel *>(kernel); }

}  // namespace detail

// Makes a kernel known to every program in the process. StateError if the name is taken.
inline RegisteredKernel register_kernel(const std::string &name, Kernel kernel) {
    if (!kernel) throw InvalidArgument("register_kernel: " + name + ": expected a function, found none");
    auto owned = std::make_unique<Kernel>(std::move(kernel));
    detail::Handle handle = detail::make_handle([&](pf_handle *id, pf_error *err) {
        return pf_kernel_register(name.c_str(), &detail::call_kernel, owned.get(), &detail::finish_kernel, id,
                                  err);
    });
    owned.release();  // the library's now
    return {name, std::move(handle)};
}

// The names there are: a JSON list.
inline std::string kernels() {
    detail::check_abi();
    detail::Call call;
    char *json = nullptr;
    call.check(pf_kernel_list(&json, call.err()));
    return detail::take_string(json);
}

// Loads a shared object that has PYFEED_KERNELS, for good. Twice is fine.
inline void load_kernels(const std::string &path) {
    detail::check_abi();
    detail::Call call;
    call.check(pf_kernel_load(path.c_str(), call.err()));
}

// What the kernels of a shared object are added to: see PYFEED_KERNELS.
class KernelRegistry {
public:
    void add(const std::string &name, Kernel kernel) {
        kernels_.push_back(register_kernel(name, std::move(kernel)));
    }

private:
    std::vector<RegisteredKernel> kernels_;
};

namespace detail {

// The strings of a pf_error are malloc's.
inline char *copied(const std::string &text) {
    auto *out = static_cast<char *>(std::malloc(text.size() + 1));
    if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + 1);
    return out;
}

// All kernels of a shared object; if one is refused, none.
inline int register_kernels(void (*add)(KernelRegistry &), pf_error *err) noexcept {
    pf_status status = PF_FAILED;
    Failure failure;
    try {
        auto registry = std::make_unique<KernelRegistry>();
        add(*registry);
        static KernelRegistry *const kept = registry.release();  // for good
        static_cast<void>(kept);
        return PF_OK;
    } catch (const Error &error) {
        status = error.status();
        failure.message = error.what();
    } catch (...) {
        failure = failure_of(std::current_exception());
    }
    if (err != nullptr && err->size >= PF_ERROR_SIZE_V1) {
        pf_error_release(err);
        err->status = status;
        err->message = copied(failure.type + (failure.type.empty() ? "" : ": ") + failure.message);
        if (!failure.type.empty()) {
            err->cause_type = copied(failure.type);
            err->cause_message = copied(failure.message);
        }
    }
    return status;
}

}  // namespace detail

// In a shared object for load_kernels, outside all namespaces, once:
//
//     PYFEED_KERNELS(registry) {
//         registry.add("learn", learn);
//         ...
//     }
#define PYFEED_KERNELS(registry)                                                         \
    static void pyfeed_add_kernels([[maybe_unused]] ::pyfeed::KernelRegistry &registry); \
    extern "C" PF_API int pyfeed_register_kernels(pf_error *err);                        \
    extern "C" PF_API int pyfeed_register_kernels(pf_error *err) {                       \
        return ::pyfeed::detail::register_kernels(&pyfeed_add_kernels, err);             \
    }                                                                                    \
    static void pyfeed_add_kernels([[maybe_unused]] ::pyfeed::KernelRegistry &registry)

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_KERNEL_HPP

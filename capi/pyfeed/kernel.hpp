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

// The arguments of a kernel. Valid for that call, on its thread.
class KernelContext {
public:
    explicit KernelContext(const pf_kernel_call *call) : call_(call) {}

    size_t num_ins() const noexcept { return call_->num_ins; }
    size_t num_outs() const noexcept { return call_->num_outs; }

    // An input. It must not be written.
    TensorView in(size_t i) const {
        if (i >= num_ins()) refuse("input", i, num_ins());
        return TensorView(at(call_->ins, i)).with_read_only(true);
    }
    // The tensor of an output. An output that is also an input has the tensor of that input, to be written in
    // place. Any other output is empty, with DType::any, until output() or set().
    TensorView out(size_t i) const { return TensorView(raw_out(i)); }

    // The memory of an output of that shape, to be written. If the output has a tensor of that dtype and
    // shape, its memory is kept, else new memory is allocated, which is not initialised.
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

    // The attributes of the operator, as a JSON object.
    const char *attributes() const noexcept {
        return call_->attributes != nullptr ? call_->attributes : "{}";
    }
    // An attribute: a bool, a number, a std::string or a std::vector of those. Throws NotFoundError if there
    // is none of that name, and InvalidArgument if it has another type.
    template <class T>
    T attribute(const char *name) const {
        const detail::JsonView value = find(name);
        if (value.text().empty()) throw NotFoundError(about(name) + "expected one, found " + attributes());
        return as<T>(name, value);
    }
    // The same; `otherwise` if there is none of that name.
    template <class T>
    T attribute(const char *name, T otherwise) const {
        const detail::JsonView value = find(name);
        return value.text().empty() ? otherwise : as<T>(name, value);
    }
    std::string attribute(const char *name, const char *otherwise) const {
        return attribute<std::string>(name, otherwise);
    }

    // The place of the executor, and the CUDA stream to compute on; 0 on the host.
    Place place() const noexcept { return call_->place; }
    uint64_t stream() const noexcept { return call_->stream; }
    // The name that the kernel is registered under.
    const char *kernel() const noexcept { return call_->kernel; }
    const pf_kernel_call &raw() const noexcept { return *call_; }

private:
    // Step through the array by the size of its first tensor: a newer library has longer structs.
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

// Computes the outputs of a `call` operator from its inputs. The threads that run programs call it, many at
// the same time, with no lock held. An exception is a ProducerError for the caller of the run.
using Kernel = std::function<void(KernelContext &)>;

// Keeps a kernel registered while this object lives. The object has one owner and can be moved. Once it is
// destroyed, later runs do not find the kernel; runs that already use the kernel keep it.
class [[nodiscard]] RegisteredKernel {
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

// Registers a kernel for every program of the process. Throws StateError if the name is taken.
inline RegisteredKernel register_kernel(const std::string &name, Kernel kernel) {
    if (!kernel) throw InvalidArgument("register_kernel: " + name + ": expected a function, found none");
    auto owned = std::make_unique<Kernel>(std::move(kernel));
    detail::Handle handle = detail::make_handle([&](pf_handle *id, pf_error *err) {
        return pf_kernel_register(name.c_str(), &detail::call_kernel, owned.get(), &detail::finish_kernel, id,
                                  err);
    });
    owned.release();  // the library owns it now
    return {name, std::move(handle)};
}

// The names of all registered kernels, as a JSON list.
inline std::string kernels() {
    detail::check_abi();
    detail::Call call;
    char *json = nullptr;
    call.check(pf_kernel_list(&json, call.err()));
    return detail::take_string(json);
}

// Loads a shared object with PYFEED_KERNELS, for good. Loading it again does nothing.
inline void load_kernels(const std::string &path) {
    detail::check_abi();
    detail::Call call;
    call.check(pf_kernel_load(path.c_str(), call.err()));
}

// Collects the kernels of a shared object: see PYFEED_KERNELS.
class KernelRegistry {
public:
    void add(const std::string &name, Kernel kernel) {
        kernels_.push_back(register_kernel(name, std::move(kernel)));
    }

private:
    std::vector<RegisteredKernel> kernels_;
};

namespace detail {

// Copies a string for a pf_error, which frees it with free().
inline char *copied(const std::string &text) {
    auto *out = static_cast<char *>(std::malloc(text.size() + 1));
    if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + 1);
    return out;
}

// Registers all kernels of a shared object. If one is refused, none is registered.
inline int register_kernels(void (*add)(KernelRegistry &), pf_error *err) noexcept {
    pf_status status = PF_FAILED;
    Failure failure;
    try {
        auto registry = std::make_unique<KernelRegistry>();
        add(*registry);
        static KernelRegistry *const kept = registry.release();  // never destroyed
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

// Defines the kernels of a shared object for load_kernels. Use it once, outside all namespaces:
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

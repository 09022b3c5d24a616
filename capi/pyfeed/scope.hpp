// Scopes, variables, and holders of queues.
#ifndef PYFEED_PYFEED_SCOPE_HPP
#define PYFEED_PYFEED_SCOPE_HPP

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "queue.hpp"

namespace pyfeed {

class Variable;
class Reader;

// Maps names to variables. Copies are the same scope.
class Scope {
public:
    Scope() : Scope(pf_handle{0}) {}
    // The global scope, which all of the process shares.
    static Scope global() {
        return Scope(
            detail::make_handle([](pf_handle *id, pf_error *err) { return pf_scope_global(id, err); }));
    }
    // The scope of a handle from C, or from scope.handle in Python. Adds a reference.
    static Scope retain(pf_handle number) {
        return Scope(detail::make_handle([number](pf_handle *id, pf_error *err) {
            *id = number;
            return pf_retain(number, err);
        }));
    }
    // A new scope with this one as its parent, which it keeps alive. A look-up that finds nothing in the new
    // scope goes on in this one.
    Scope child() const { return Scope(handle()); }

    // The variable of that name in this scope itself; an empty one is made if there is none.
    inline Variable var(const std::string &name) const;
    // The variable of that name in this scope or its nearest parent that has one; else throws NotFoundError.
    inline Variable find(const std::string &name) const;
    inline bool has(const std::string &name) const;
    // Removes the variable from this scope and drops its content. Throws NotFoundError if there is none.
    inline void erase(const std::string &name) const;

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    explicit Scope(pf_handle parent)
        : handle_(detail::make_handle(
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

// A variable of a scope: it contains a tensor, the holder of a queue or a reader, or is empty.
class Variable {
public:
    VarKind kind() const {
        detail::Call call;
        int32_t kind = 0;
        call.check(pf_var_kind(handle(), &kind, call.err()));
        return static_cast<VarKind>(kind);
    }

    // The tensor in the variable, as a tuple of one slot. Later writes to the variable do not change its
    // memory. Throws StateError if the variable contains no tensor.
    Tuple tensor() const {
        detail::Call call;
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_var_get_tensor(handle(), &raw, call.err()));
        return Tuple(raw);
    }
    // Copies a tensor into the variable and drops what it contained.
    void set(const TensorView &tensor) const {
        detail::Call call;
        const pf_tensor raw = tensor.raw();
        call.check(pf_var_set_tensor(handle(), &raw, call.err()));
    }

    // The queue of the variable. Throws StateError before init_once.
    Queue queue() const {
        detail::Call call;
        pf_handle id = 0;
        call.check(pf_var_get_queue(handle(), &id, call.err()));
        return Queue::adopt(id);
    }
    // The reader in the variable. Throws StateError if there is none.
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
    return {*this, name, detail::make_handle([&](pf_handle *id, pf_error *err) {
                return pf_scope_var(handle(), name.c_str(), id, err);
            })};
}
inline Variable Scope::find(const std::string &name) const {
    return {*this, name, detail::make_handle([&](pf_handle *id, pf_error *err) {
                return pf_scope_find(handle(), name.c_str(), id, err);
            })};
}
inline bool Scope::has(const std::string &name) const {
    detail::Call call;
    pf_handle id = 0;
    const bool found =
        call.check_unless(PF_NOT_FOUND, pf_scope_find(handle(), name.c_str(), &id, call.err()));
    const detail::Handle owned(id);
    return found;
}
inline void Scope::erase(const std::string &name) const {
    detail::Call call;
    call.check(pf_scope_erase(handle(), name.c_str(), call.err()));
}

// A variable for a queue. Readers can be given its name before the queue exists. init_once makes the queue,
// once for each variable.
class PyArrayFeedQueueHolder {
public:
    explicit PyArrayFeedQueueHolder(Variable variable) : variable_(std::move(variable)) {}

    // Makes the queue. A second call throws StateError.
    Queue init_once(const QueueOptions &options) const {
        std::vector<pf_slot_spec> slots;
        slots.reserve(options.slots.size());
        for (const SlotSpec &slot : options.slots) {
            pf_slot_spec spec = PF_SLOT_SPEC_INIT;
            spec.dtype = static_cast<pf_dtype>(slot.dtype);
            spec.rank = static_cast<int32_t>(slot.shape.rank());
            spec.lod_levels = slot.lod_levels;
            spec.dims = slot.shape.data();
            if (!slot.name.empty()) spec.name = slot.name.c_str();
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

    // The queue. Throws StateError before init_once.
    Queue feeder() const { return variable_.queue(); }
    const Variable &variable() const noexcept { return variable_; }

private:
    Variable variable_;
};

using QueueHolder = PyArrayFeedQueueHolder;

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_SCOPE_HPP

// Scopes, variables, and the variable of a queue.
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

// Names of variables. Copies are the same scope.
class Scope {
public:
    Scope() : Scope(pf_handle{0}) {}
    // The scope every part of the process shares.
    static Scope global() {
        return Scope(
            detail::make_handle([](pf_handle *id, pf_error *err) { return pf_scope_global(id, err); }));
    }
    // The scope of a number that C gave, or Python as scope.handle: with a count of its own.
    static Scope retain(pf_handle number) {
        return Scope(detail::make_handle([number](pf_handle *id, pf_error *err) {
            *id = number;
            return pf_retain(number, err);
        }));
    }
    // A new scope inside this one, which it keeps alive: look-ups that fail in it go on here.
    Scope child() const { return Scope(handle()); }

    // The variable of that name in this scope itself, made empty if there is none.
    inline Variable var(const std::string &name) const;
    // The variable of that name in this scope or the nearest parent that has it; else NotFoundError.
    inline Variable find(const std::string &name) const;
    inline bool has(const std::string &name) const;
    // Takes the variable out of this scope and drops what it holds; NotFoundError if there is none.
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
            spec.rank = static_cast<int32_t>(slot.shape.rank());
            spec.lod_levels = slot.lod_levels;
            spec.dims = slot.shape.data();
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

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_SCOPE_HPP

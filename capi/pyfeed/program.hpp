// Programs, and the programs that each thread is building.
#ifndef PYFEED_PYFEED_PROGRAM_HPP
#define PYFEED_PYFEED_PROGRAM_HPP

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "wait.hpp"

namespace pyfeed {

class Program;

namespace detail {

// Makes names from a prefix and a number, with one series of numbers for each prefix.
class Names {
public:
    std::string generate(const std::string &prefix) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return prefix + "_" + std::to_string(next_[prefix]++);
    }

private:
    std::mutex mutex_;
    std::map<std::string, uint64_t> next_;
};

// An operator that is complete, but may still get another part: an IfElse whose other block may follow. It is
// added before anything else is done with its program.
class PendingOp {
public:
    virtual void finish() = 0;

protected:
    ~PendingOp() = default;
};

// The state of building, one for each thread.
struct Building {
    const Program *main = nullptr;  // null: the default of the process; so for startup
    const Program *startup = nullptr;
    uint32_t block = 0;  // a block of main
    PendingOp *pending = nullptr;
    Names *names = nullptr;
};
inline Building &building() noexcept {
    thread_local Building state;
    return state;
}

// Adds the pending operator of this thread, if there is one.
inline void finish_pending() {
    if (building().pending != nullptr) building().pending->finish();
}

}  // namespace detail

// Blocks of operators over variables, for an Executor. A run executes the first block; each other block is
// the body of an operator. Copies are the same program. Build it with the functions of pyfeed::layers.
class Program {
public:
    // An empty program.
    Program()
        : handle_(
              detail::make_handle([](pf_handle *id, pf_error *err) { return pf_program_create(id, err); })) {}

    // Loads a file that save() wrote. Throws CorruptRecordError if it is damaged, UnsupportedError if it has
    // another version, and other errors if it is not a program that could run.
    static Program load(const std::string &path) {
        return Program(detail::make_handle(
            [&](pf_handle *id, pf_error *err) { return pf_program_load(path.c_str(), id, err); }));
    }
    // Parses the result of serialize() or to_json().
    static Program parse(const std::string &bytes) {
        return Program(detail::make_handle([&](pf_handle *id, pf_error *err) {
            return pf_program_parse(bytes.data(), bytes.size(), id, err);
        }));
    }
    // The program of a handle from C, or from program.handle in Python. Adds a reference.
    static Program retain(pf_handle number) {
        return Program(detail::make_handle([number](pf_handle *id, pf_error *err) {
            *id = number;
            return pf_retain(number, err);
        }));
    }

    // Writes the program to a file: as JSON if the name ends with .json, else as protobuf. Whole or not at
    // all.
    void save(const std::string &path) const {
        detail::finish_pending();
        detail::Call call;
        call.check(pf_program_save(handle(), path.c_str(), call.err()));
    }
    // The saved form, protobuf.
    std::string serialize() const { return form("protobuf"); }
    // The program as JSON, for people to read and edit.
    std::string to_json() const { return form("json"); }
    // A drawing of the program, as text.
    std::string mermaid() const { return form("mermaid"); }
    std::string graphviz() const { return form("graphviz"); }

    // A copy. Later changes to one do not affect the other.
    Program clone() const {
        detail::finish_pending();
        return Program(detail::make_handle(
            [this](pf_handle *id, pf_error *err) { return pf_program_clone(handle(), id, err); }));
    }

    // Adds a block inside block `parent`, for an operator that is added to `parent` later.
    uint32_t add_block(uint32_t parent) const {
        detail::finish_pending();
        detail::Call call;
        uint32_t block = 0;
        call.check(pf_program_add_block(handle(), parent, &block, call.err()));
        return block;
    }
    // Adds a variable or an operator to a block. It is a JSON object: see pyfeed.h.
    void add_variable(uint32_t block, const std::string &variable) const {
        detail::Call call;
        call.check(pf_program_add_variable(handle(), block, variable.c_str(), call.err()));
    }
    void add_op(uint32_t block, const std::string &op) const {
        detail::finish_pending();
        detail::Call call;
        call.check(pf_program_add_op(handle(), block, op.c_str(), call.err()));
    }
    // What is known about a variable in the block or those around it, as a JSON object. Throws NotFoundError
    // if there is none.
    std::string variable(uint32_t block, const std::string &name) const {
        detail::Call call;
        char *json = nullptr;
        call.check(pf_program_get_variable(handle(), block, name.c_str(), &json, call.err()));
        return detail::take_string(json);
    }
    bool has(uint32_t block, const std::string &name) const {
        detail::Call call;
        char *json = nullptr;
        const bool found = call.check_unless(
            PF_NOT_FOUND, pf_program_get_variable(handle(), block, name.c_str(), &json, call.err()));
        pf_string_release(json);
        return found;
    }

    pf_handle handle() const noexcept { return handle_.get(); }

    // Whether both are handles of the same program. Programs with equal content may differ.
    friend bool operator==(const Program &a, const Program &b) { return a.handle() == b.handle(); }
    friend bool operator!=(const Program &a, const Program &b) { return !(a == b); }

private:
    explicit Program(detail::Handle handle) : handle_(std::move(handle)) {}

    std::string form(const char *name) const {
        detail::finish_pending();
        detail::Call call;
        char *data = nullptr;
        uint64_t size = 0;
        call.check(pf_program_serialize(handle(), name, &data, &size, call.err()));
        const std::unique_ptr<char, void (*)(char *)> owned(data, pf_string_release);
        return std::string(data, size);
    }

    detail::Handle handle_;
};

namespace detail {

// The default programs of the process are never destroyed: other threads may go on after main() has returned.
inline const Program &current_main() {
    if (building().main != nullptr) return *building().main;
    static const Program *const program = new Program;
    return *program;
}
inline const Program &current_startup() {
    if (building().startup != nullptr) return *building().startup;
    static const Program *const program = new Program;
    return *program;
}
inline Names &current_names() {
    if (building().names != nullptr) return *building().names;
    static Names *const names = new Names;
    return *names;
}

}  // namespace detail

// The programs that the thread is building: those of its innermost ProgramGuard, else the defaults of the
// process.
inline Program default_main_program() { return detail::current_main(); }
inline Program default_startup_program() { return detail::current_startup(); }

// While this object lives, its thread builds these programs.
class [[nodiscard]] ProgramGuard {
public:
    explicit ProgramGuard(Program main) : ProgramGuard(std::move(main), detail::current_startup()) {}
    ProgramGuard(Program main, Program startup) : main_(std::move(main)), startup_(std::move(startup)) {
        detail::finish_pending();
        before_ =
            std::exchange(detail::building(), {&main_, &startup_, 0, nullptr, detail::building().names});
    }
    ProgramGuard(const ProgramGuard &) = delete;
    ProgramGuard &operator=(const ProgramGuard &) = delete;
    ~ProgramGuard() { detail::building() = before_; }

private:
    Program main_, startup_;
    detail::Building before_;
};

inline ProgramGuard program_guard(const Program &main) { return ProgramGuard(main); }
inline ProgramGuard program_guard(const Program &main, const Program &startup) { return {main, startup}; }
// The same while `build` runs.
template <class F, class = std::enable_if_t<std::is_invocable_v<F &>>>
void program_guard(const Program &main, const Program &startup, F &&build) {
    const ProgramGuard guard(main, startup);
    build();
}

namespace unique_name {

// Returns prefix_0, then prefix_1 and so on. Any thread.
inline std::string generate(const std::string &prefix) { return detail::current_names().generate(prefix); }

// While this object lives, the names of its thread begin again at 0. The same lines then build the same
// program.
class [[nodiscard]] Guard {
public:
    Guard() : before_(std::exchange(detail::building().names, &names_)) {}
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
    ~Guard() { detail::building().names = before_; }

private:
    detail::Names names_;
    detail::Names *before_;
};

inline Guard guard() { return {}; }

}  // namespace unique_name

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_PROGRAM_HPP

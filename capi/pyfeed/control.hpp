// Loops and branches of programs.
#ifndef PYFEED_PYFEED_CONTROL_HPP
#define PYFEED_PYFEED_CONTROL_HPP

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "layers.hpp"

namespace pyfeed {

namespace layers {

// While this object lives, its thread builds a block of a While or an IfElse. The operator is added when its
// last block ends, so the destructor may throw. A block that ends by an exception leaves no operator.
template <class Owner>
class [[nodiscard]] Block {
public:
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
    ~Block() noexcept(false) {
        const bool failed = std::uncaught_exceptions() > exceptions_;
        detail::building() = before_;
        owner_.end(index_, failed);
    }

private:
    friend Owner;
    Block(Owner &owner, const Program &program, uint32_t index)
        : owner_(owner),
          index_(index),
          exceptions_(std::uncaught_exceptions()),
          before_(std::exchange(detail::building(), {&program, detail::building().startup, index, nullptr,
                                                     detail::building().names})) {}

    Owner &owner_;
    const uint32_t index_;
    const int exceptions_;
    const detail::Building before_;
};

// A loop: runs its block as long as `condition`, a bool that the block sets anew, is true.
//
//     While loop(go_on);
//     {
//         auto block = loop.block();
//         ...
//     }
//
// or While(go_on, [&] { ... });
class While {
public:
    explicit While(Var condition, Where where = Where::here())
        : condition_(std::move(condition)),
          where_(where),
          program_(detail::current_main()),
          parent_(detail::building().block) {}
    template <class F, class = std::enable_if_t<std::is_invocable_v<F &>>>
    While(Var condition, F &&body, Where where = Where::here()) : While(std::move(condition), where) {
        const Block<While> guard = block();
        body();
    }
    While(const While &) = delete;
    While &operator=(const While &) = delete;

    Block<While> block() {
        if (begun_) throw StateError("While: the loop has its block already");
        detail::check_place("While", program_, parent_);
        const uint32_t index = program_.add_block(parent_);
        begun_ = true;
        return {*this, program_, index};
    }

private:
    friend Block<While>;
    void end(uint32_t index, bool failed) {
        if (failed) return;
        detail::append_to(program_, parent_, "while", condition_, {}, Attributes{{"block", index}}.json(),
                          where_);
    }

    const Var condition_;
    const Where where_;
    const Program program_;
    const uint32_t parent_;
    bool begun_ = false;
};

// A branch: runs the true block or the false block. Either block may be absent.
//
//     IfElse branch(has_next);
//     {
//         auto block = branch.true_block();
//         ...
//     }
//     {
//         auto block = branch.false_block();
//         ...
//     }
//
// or IfElse(has_next, [&] { ... }, [&] { ... });
//
// The operator is added when both blocks have ended. After one block it is added as soon as the thread adds
// another operator, uses the program, or destroys this object.
class IfElse : private detail::PendingOp {
public:
    explicit IfElse(Var condition, Where where = Where::here())
        : condition_(std::move(condition)),
          where_(where),
          program_(detail::current_main()),
          parent_(detail::building().block),
          exceptions_(std::uncaught_exceptions()) {}
    template <class T, class = std::enable_if_t<std::is_invocable_v<T &>>>
    IfElse(Var condition, T &&then, Where where = Where::here()) : IfElse(std::move(condition), where) {
        {
            const Block<IfElse> guard = true_block();
            then();
        }
        finish();
    }
    template <class T, class F,
              class = std::enable_if_t<std::is_invocable_v<T &> && std::is_invocable_v<F &>>>
    IfElse(Var condition, T &&then, F &&otherwise, Where where = Where::here())
        : IfElse(std::move(condition), where) {
        {
            const Block<IfElse> guard = true_block();
            then();
        }
        const Block<IfElse> guard = false_block();
        otherwise();
    }
    IfElse(const IfElse &) = delete;
    IfElse &operator=(const IfElse &) = delete;
    ~IfElse() noexcept(false) {
        if (std::uncaught_exceptions() > exceptions_) done_ = true;
        finish();
    }

    Block<IfElse> true_block() { return block(true_, "true_block"); }
    Block<IfElse> false_block() { return block(false_, "false_block"); }

private:
    friend Block<IfElse>;

    Block<IfElse> block(std::optional<uint32_t> &index, const char *name) {
        if (index) throw StateError(std::string("IfElse: the operator has its ") + name + " already");
        if (done_) {
            throw StateError(std::string("IfElse: expected ") + name +
                             " right after the other block, found something between them");
        }
        detail::check_place("IfElse", program_, parent_);
        if (detail::building().pending == this) detail::building().pending = nullptr;
        index = program_.add_block(parent_);
        return {*this, program_, *index};
    }
    void end(uint32_t, bool failed) {
        if (failed) done_ = true;
        if (failed || (true_ && false_)) return finish();
        detail::building().pending = this;
    }
    void finish() override {
        if (detail::building().pending == this) detail::building().pending = nullptr;
        if (std::exchange(done_, true) || (!true_ && !false_)) return;
        Attributes blocks;
        if (true_) blocks.set("true_block", *true_);
        if (false_) blocks.set("false_block", *false_);
        detail::append_to(program_, parent_, "if_else", condition_, {}, blocks.json(), where_);
    }

    const Var condition_;
    const Where where_;
    const Program program_;
    const uint32_t parent_;
    const int exceptions_;
    std::optional<uint32_t> true_, false_;
    bool done_ = false;
};

}  // namespace layers

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_CONTROL_HPP

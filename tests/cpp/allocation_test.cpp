// The C++ headers allocate nothing when a small tuple goes through a queue, a reader or a program.
#include <cstdlib>
#include <new>

#include "programs.hpp"

namespace {
thread_local uint64_t allocations = 0;
}

// Not inlined: if GCC inlines only one of new and delete, it warns that the two do not match.
#define OUT_OF_LINE __attribute__((noinline))
OUT_OF_LINE void *operator new(size_t size) {
    allocations++;
    void *p = std::malloc(size);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}
OUT_OF_LINE void operator delete(void *p) noexcept { std::free(p); }
OUT_OF_LINE void operator delete(void *p, size_t) noexcept { std::free(p); }

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class Allocations : public Feed {
protected:
    template <class F>
    void expect_none(F &&f) {
        f();  // the first call may allocate what is kept for later calls
        const uint64_t before = allocations;
        for (int i = 0; i < 100; i++) f();
        EXPECT_EQ(before, allocations);
    }

    Queue queue = make_queue({4, {{{-1, 3}, DType::float32, 1}, {{-1}, DType::int64}}});
    const Floats x = Floats(6);
    const Numbers y = Numbers(2);
    const LoD lod{{0, 1, 2}};
};

TEST_F(Allocations, PushAndPop) {
    const CancelToken token;
    const Wait wait = Wait(kStuck).cancel(token);
    expect_none([&] {
        queue.push({view(x, {2, 3}).with_lod(lod), view(y)});
        queue.push({view(x, {2, 3}).with_lod(lod), view(y)}, 10ms);
        queue.push({view(x, {2, 3}).with_lod(lod), view(y)}, wait);
        for (int i = 0; i < 3; i++) {
            auto tuple = queue.pop(wait);
            const Tuple moved = std::move(*tuple);
            EXPECT_EQ((Shape{2, 3}), moved[0].shape());
            for (const float value : moved[0].values<float>()) EXPECT_EQ(0, value);
        }
    });
}

TEST_F(Allocations, ReserveAndCommit) {
    expect_none([&] {
        Reservation slot =
            queue.reserve({tensor_spec<float>({2, 3}).with_lod(lod), tensor_spec<int64_t>({2})});
        slot[1].mutable_data<int64_t>()[0] = 1;
        slot.commit();
        queue.pop();
    });
}

TEST_F(Allocations, ReadersAndTheReadOp) {
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    const Variable variable = scope.var("x");
    expect_none([&] {
        for (int i = 0; i < 2; i++) queue.push({view(x, {2, 3}).with_lod(lod), view(y)});
        EXPECT_TRUE(reader.has_next());
        reader.next();
        EXPECT_TRUE(read(scope, "reader", {"x", "y"}));
        variable.tensor();
    });
}

// A run allocates nothing either, with feeds, fetches and kernels.
TEST_F(Allocations, RunsOfPrograms) {
    const Program main, startup;
    const Executor executor;
    const ProgramGuard guard(main, startup);
    const auto numbers_in = [](KernelContext &call) {
        const auto in = call.in(0).values<float>();
        float *out = call.output<float>(0, call.in(0).shape());
        for (const float value : in) *out++ = value * call.attribute<float>("rate", 1.f);
        call.out(1).mutable_data<int64_t>()[0] += call.attribute<int64_t>("step");
    };
    const RegisteredKernel kernel = register_kernel("busy", numbers_in);
    const layers::Var fed = layers::data("x", {-1, 3}), label = layers::data("y", {-1}, DType::int64);
    const layers::Var i = layers::fill_constant({1}, DType::int64, 0),
                      n = layers::fill_constant({1}, DType::int64, 5);
    const layers::Var go = layers::less_than(i, n), out = layers::variable("out");
    layers::While(go, [&] {
        layers::call("busy", {fed, i}, {out, i}, {{"rate", 0.5}, {"step", 1}});
        layers::less_than(i, n, go);
    });
    const CancelToken token;
    const Wait wait = Wait(kStuck).cancel(token);
    expect_none([&] {
        const Tuple got =
            executor.run(main, scope, {{fed, view(x, {2, 3})}, {"y", view(y)}}, {out, "x", label}, wait);
        EXPECT_EQ((Shape{2, 3}), got[0].shape());
    });
}

TEST_F(Allocations, StatsAndEnds) {
    queue.close();
    expect_none([&] {
        EXPECT_FALSE(queue.pop());
        EXPECT_TRUE(queue.is_empty());
    });
}

}  // namespace

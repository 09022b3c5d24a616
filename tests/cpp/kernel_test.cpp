// Kernels: inputs and outputs, exceptions, names, shared objects, threads.
#include "programs.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class Kernels : public Programs {
protected:
    // Runs a program that calls a kernel with one input, and returns the output.
    Tuple run_once(const std::string &kernel, const TensorView &x, const Attributes &attributes = {}) {
        const auto guard = program_guard(Program(), Program());
        const layers::Var in = layers::variable("x");
        const auto [out] = layers::call<1>(kernel, in, attributes);
        return executor.run(default_main_program(), scope, {{in, x}}, {out}, kStuck);
    }
    // As run_once, with the input as the output too.
    Tuple run_in_place(const std::string &kernel, const TensorView &x) {
        const auto guard = program_guard(Program(), Program());
        const layers::Var in = layers::variable("x");
        layers::call(kernel, in, in);
        return executor.run(default_main_program(), scope, {{in, x}}, {in}, kStuck);
    }
    // Calls `kernel` with a call that has one input, of two numbers, and one output.
    void look(Kernel kernel, const Attributes &attributes = {}) {
        bool called = false;
        const RegisteredKernel registered = register_kernel("look", [&](KernelContext &call) {
            called = true;
            kernel(call);
            call.set(0, call.in(0));
        });
        run_once("look", view(two), attributes);
        EXPECT_TRUE(called);
    }

    const Floats two{1.5f, 2.5f};
};

TEST_F(Kernels, WhatACallIs) {
    look(
        [](KernelContext &call) {
            EXPECT_STREQ("look", call.kernel());
            EXPECT_EQ(1u, call.num_ins());
            EXPECT_EQ(1u, call.num_outs());
            EXPECT_EQ(CPUPlace(), call.place());
            EXPECT_EQ(0u, call.stream());
            EXPECT_EQ(R"({"a":1})", dense(call.attributes()));
            EXPECT_EQ((Floats{1.5f, 2.5f}), values<float>(call.in(0)));
            EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(call.in(0).data()) % 64);
            EXPECT_ERROR(StateError, -1, call.in(0).mutable_data<float>(), "read-only");
            EXPECT_EQ(DType::any, call.out(0).dtype());
            EXPECT_EQ(nullptr, call.out(0).data());
            EXPECT_ERROR(SlotCountError, -1, call.in(1), "no input 1", "look", "given 1");
            EXPECT_ERROR(SlotCountError, -1, call.out(7), "no output 7");
            EXPECT_ERROR(SlotCountError, -1, call.output<float>(1, {2}), "no output 1");
            EXPECT_ERROR(SlotCountError, -1, call.set(1, call.in(0)), "\"look\"", "output", "found 1");
            EXPECT_ERROR(SlotCountError, -1, call.share_input(1), "\"look\"", "input", "found 1");
        },
        {{"a", 1}});
    look([](KernelContext &call) { EXPECT_EQ("{}", dense(call.attributes())); });
}

TEST_F(Kernels, Outputs) {
    const RegisteredKernel kernel = register_kernel("outputs", [](KernelContext &call) {
        float *first = call.output<float>(0, {2});
        ASSERT_NE(nullptr, first);
        EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(first) % 64);
        EXPECT_EQ(first, call.output<float>(0, {2}));
        EXPECT_EQ(first, call.out(0).data());
        EXPECT_EQ((Shape{2}), call.out(0).shape());
        first[0] = 7;
        double *other = call.output<double>(0, {3, 1});  // replaces the first output
        EXPECT_EQ(DType::float64, call.out(0).dtype());
        std::fill(other, other + 3, 0.25);
    });
    const Tuple out = run_once("outputs", view(two));
    EXPECT_EQ((Shape{3, 1}), out[0].shape());
    EXPECT_EQ((std::vector<double>{0.25, 0.25, 0.25}), values<double>(out[0]));
}

TEST_F(Kernels, OutputsOfAllShapes) {
    const RegisteredKernel kernel = register_kernel("shapes", [](KernelContext &call) {
        const auto shape = call.attribute<std::vector<int64_t>>("dims");
        const Shape dims(shape);
        int64_t *out = call.output<int64_t>(0, dims);
        for (int64_t i = 0; i < dims.numel(); i++) out[i] = i;
    });
    for (const Shape &dims :
         {Shape{}, Shape{0}, Shape{3}, Shape{2, 0, 3}, Shape{1, 1, 1, 1, 1, 1, 1, 2}, Shape{1 << 20}}) {
        const Tuple out =
            run_once("shapes", view(two), {{"dims", std::vector<int64_t>(dims.begin(), dims.end())}});
        EXPECT_EQ(dims, out[0].shape());
        EXPECT_EQ(range(0, dims.numel()), values<int64_t>(out[0]));
    }
    EXPECT_ERROR(ProducerError, -1, run_once("shapes", view(two), {{"dims", {-1}}}), "ShapeError", "-1");
    EXPECT_ERROR(ProducerError, -1,
                 run_once("shapes", view(two), {{"dims", {int64_t{1} << 40, int64_t{1} << 40}}}), "shapes");
}

TEST_F(Kernels, LevelsOfDetail) {
    const RegisteredKernel kernel = register_kernel("lod", [](KernelContext &call) {
        EXPECT_EQ((Numbers{0, 2, 3}), offsets(call.in(0), 0));
        const LoD lod{{0, 1, 4}};
        auto *out = static_cast<int64_t *>(call.output(0, tensor_spec<int64_t>({4}).with_lod(lod)));
        for (int64_t i = 0; i < 4; i++) out[i] = i;
    });
    const LoD lod{{0, 2, 3}};
    const Numbers three{1, 2, 3};
    const Tuple out = run_once("lod", view(three).with_lod(lod));
    EXPECT_EQ((Numbers{0, 1, 4}), offsets(out[0], 0));
    EXPECT_EQ(range(0, 4), values<int64_t>(out[0]));
}

TEST_F(Kernels, SetCopiesStridesToo) {
    const RegisteredKernel kernel = register_kernel("set", [](KernelContext &call) {
        const Numbers six = range(0, 6);
        call.set(0, call.in(0));
        call.set(0, view(six, {3, 2}).with_strides({8, 24}));
    });
    const Tuple out = run_once("set", view(two));
    EXPECT_EQ((Shape{3, 2}), out[0].shape());
    EXPECT_EQ((Numbers{0, 3, 1, 4, 2, 5}), values<int64_t>(out[0]));
}

// The tensor that is set may be a view of the output's current memory.
TEST_F(Kernels, SetFromItself) {
    const LoD lod{{0, 2, 6}};
    const RegisteredKernel kernel = register_kernel("set from itself", [&](KernelContext &call) {
        int64_t *x = call.output<int64_t>(0, {6});
        for (int64_t i = 0; i < 6; i++) x[i] = i;
        call.set(0, view(x + 5, {6}).with_strides({-8}));
        EXPECT_EQ((Numbers{5, 4, 3, 2, 1, 0}), values<int64_t>(call.out(0)));
        const auto *reversed = static_cast<const int64_t *>(call.out(0).data());
        call.set(0, view(reversed, {3, 2}).with_strides({8, 24}));
        EXPECT_EQ((Numbers{5, 2, 4, 1, 3, 0}), values<int64_t>(call.out(0)));
        call.set(0, view(range(0, 6)).with_lod(lod));
        for (int i = 0; i < 3; i++) {  // sets the output to itself, offsets included
            const TensorView again = call.out(0);
            if (i < 2) call.set(0, again);
            if (i == 2) std::fill_n(static_cast<int64_t *>(call.output(0, again)), 6, 7);
            EXPECT_EQ((Numbers{0, 2, 6}), offsets(call.out(0), 0));
        }
    });
    const Tuple out = run_once("set from itself", view(two));
    EXPECT_EQ((Numbers{0, 2, 6}), offsets(out[0], 0));
    EXPECT_EQ((Numbers{7, 7, 7, 7, 7, 7}), values<int64_t>(out[0]));
}

TEST_F(Kernels, SetReversedInPlace) {
    const RegisteredKernel kernel = register_kernel("reverse", [](KernelContext &call) {
        const TensorView x = call.in(0);
        call.set(0, TensorView(x.dtype(), x.shape(), const_cast<float *>(x.data<float>()) + x.numel() - 1)
                        .with_strides({-4}));
    });
    Program program;
    {
        const ProgramGuard guard = program_guard(program);
        const auto x = layers::data("x", {-1});
        layers::call("reverse", x, x);
    }
    const Floats six{0, 1, 2, 3, 4, 5};
    const Tuple out = executor.run(program, scope, {{"x", view(six)}}, {"x"});
    EXPECT_EQ((Floats{5, 4, 3, 2, 1, 0}), values<float>(out[0]));
}

TEST_F(Kernels, InPlace) {
    const RegisteredKernel kernel = register_kernel("in place", [](KernelContext &call) {
        EXPECT_EQ(call.in(0).data(), call.out(0).data());
        float *x = call.output<float>(0, call.in(0).shape());
        EXPECT_EQ(call.in(0).data(), x);
        for (int64_t i = 0; i < call.in(0).numel(); i++) x[i] *= 2;
    });
    EXPECT_EQ((Floats{3, 5}), values<float>(run_in_place("in place", view(two))[0]));
    EXPECT_EQ((Floats{1.5f, 2.5f}), two);
}

TEST_F(Kernels, InPlaceOfAnotherShape) {
    const RegisteredKernel kernel = register_kernel("grow", [](KernelContext &call) {
        float *out = call.output<float>(0, {3});
        std::copy_n(call.in(0).data<float>(), 2, out);  // the input is unchanged
        out[2] = 9;
    });
    EXPECT_EQ((Floats{1.5f, 2.5f, 9}), values<float>(run_in_place("grow", view(two))[0]));
}

// A kernel that writes in place does not change memory to which others hold references.
TEST_F(Kernels, InPlaceIsNobodyElses) {
    const RegisteredKernel kernel =
        register_kernel("count", [](KernelContext &call) { call.out(0).mutable_data<int64_t>()[0]++; });
    const layers::Var n = layers::create_global_var({1}, 0, DType::int64, "n");
    layers::call("count", n, n);
    const layers::Var before = layers::assign(n);
    layers::call("count", n, n);
    executor.run(startup, scope);
    const Tuple first = executor.run(main, scope, {}, {n, before});
    EXPECT_EQ(2, scalar<int64_t>(first, 0));
    EXPECT_EQ(1, scalar<int64_t>(first, 1));
    const Tuple held = scope.find("n").tensor();
    const Tuple second = executor.run(main, scope, {}, {n, before});
    EXPECT_EQ(4, scalar<int64_t>(second, 0));
    EXPECT_EQ(3, scalar<int64_t>(second, 1));
    EXPECT_EQ(2, scalar<int64_t>(first, 0));
    EXPECT_EQ(2, scalar<int64_t>(held));
}

TEST_F(Kernels, AnInputTwiceAndMany) {
    const RegisteredKernel kernel = register_kernel("sum", [](KernelContext &call) {
        int64_t sum = 0;
        for (size_t i = 0; i < call.num_ins(); i++) sum += call.in(i).values<int64_t>()[0];
        for (size_t i = 0; i < call.num_outs(); i++)
            *call.output<int64_t>(i, {}) = sum + static_cast<int64_t>(i);
    });
    const layers::Var one = layers::fill_constant({}, DType::int64, 1);
    std::vector<layers::Var> ins(40, one);
    const std::vector<layers::Var> outs = layers::call("sum", ins, 30);
    layers::call("sum", {one, outs[1], one, one}, {one, outs[1]});
    const Tuple got = run(outs);
    EXPECT_EQ(30u, got.size());
    EXPECT_EQ(69, scalar<int64_t>(got, 29));
    EXPECT_EQ(45, scalar<int64_t>(got, 1));
    EXPECT_EQ(44, scalar<int64_t>(executor.run(main, scope, {}, {one})));
}

// A kernel may keep an input after the run. Of an input that is written in place it gets a copy.
TEST_F(Kernels, SharedInputs) {
    Tuple kept;
    const RegisteredKernel kernel = register_kernel("keep", [&](KernelContext &call) {
        kept = call.share_input(0);
        const void *out = call.out(0).data();
        EXPECT_EQ(out != nullptr, call.in(0).data() != kept[0].data());
        call.output<float>(0, {2})[0] = 7;
    });
    run_once("keep", view(two));
    EXPECT_EQ(1u, kept.size());
    EXPECT_EQ((Floats{1.5f, 2.5f}), values<float>(kept[0]));
    run_in_place("keep", view(two));
    EXPECT_EQ((Floats{1.5f, 2.5f}), values<float>(kept[0]));
}

TEST_F(Kernels, AttributesByName) {
    look(
        [](KernelContext &call) {
            EXPECT_EQ(0.5, call.attribute<double>("rate"));
            EXPECT_EQ(0.5f, call.attribute<float>("rate", 1.f));
            EXPECT_EQ(3.0, call.attribute<double>("size"));
            EXPECT_EQ(3, call.attribute<int>("size"));
            EXPECT_EQ(3u, call.attribute<uint8_t>("size"));
            EXPECT_TRUE(call.attribute<bool>("on"));
            EXPECT_EQ("a\"b\n\xc3\xa9", call.attribute<std::string>("text"));
            EXPECT_EQ("a\"b\n\xc3\xa9", call.attribute("text", "none"));
            EXPECT_EQ((std::vector<double>{1, 2.5}), call.attribute<std::vector<double>>("list"));
            EXPECT_TRUE(std::isnan(call.attribute<float>("nan")));
            EXPECT_EQ(7, call.attribute("other", 7));
            EXPECT_EQ("none", call.attribute("other", "none"));
            EXPECT_ERROR(NotFoundError, -1, call.attribute<int>("other"), "look", "attribute other",
                         "\"rate\"");
            EXPECT_ERROR(InvalidArgument, -1, call.attribute<int>("rate"), "attribute rate", "expected int32",
                         "0.5");
            EXPECT_ERROR(InvalidArgument, -1, call.attribute<int8_t>("large"), "expected int8, found 300");
            EXPECT_ERROR(InvalidArgument, -1, call.attribute("text", 1.5), "expected float64");
            EXPECT_ERROR(InvalidArgument, -1, call.attribute("size", "none"), "expected a string, found 3");
            EXPECT_ERROR(InvalidArgument, -1, call.attribute<std::vector<int>>("list"), "expected a list",
                         "2.5");
            EXPECT_ERROR(InvalidArgument, -1, call.attribute<bool>("size"), "expected bool, found 3");
        },
        {{"rate", 0.5},
         {"size", 3},
         {"large", 300},
         {"on", true},
         {"text", "a\"b\n\xc3\xa9"},
         {"list", {1, 2.5}},
         {"nan", std::nan("")}});
}

// ---- Errors ----

TEST_F(Kernels, ExceptionsAreTheRunsError) {
    const RegisteredKernel kernel =
        register_kernel("thrower", [](KernelContext &) { throw std::out_of_range("there is no weight 7"); });
    try {
        run_once("thrower", view(two));
        FAIL() << "nothing was thrown";
    } catch (const ProducerError &e) {
        EXPECT_EQ("std::out_of_range", e.type());
        EXPECT_EQ("there is no weight 7", e.message());
        EXPECT_EQ("block 0, op 0: call", e.op());
        const std::string what = e.what();
        for (const char *word : {"block 0, op 0: call(x) -> thrower_0 at kernel_test.cpp:", "x float32 (2,)",
                                 "std::out_of_range", "there is no weight 7"}) {
            EXPECT_NE(std::string::npos, what.find(word)) << word << " in " << what;
        }
    }
    EXPECT_ERROR(ProducerError, -1, run_in_place("thrower", view(two)), "there is no weight 7");
}

TEST_F(Kernels, ExceptionsOfAllKinds) {
    {
        const RegisteredKernel kernel = register_kernel("thrower", [](KernelContext &) { throw 7; });
        EXPECT_ERROR(ProducerError, -1, run_once("thrower", view(two)), "unknown", "no std::exception");
    }
    {
        const RegisteredKernel kernel = register_kernel("thrower", [](KernelContext &) {
            try {
                throw std::runtime_error("inner");
            } catch (...) {
                std::throw_with_nested(std::runtime_error("outer"));
            }
        });
        try {
            run_once("thrower", view(two));
            FAIL() << "nothing was thrown";
        } catch (const ProducerError &e) {
            EXPECT_NE(std::string::npos, e.traceback().find("inner")) << e.traceback();
        }
    }
    {  // an exception of the library
        const RegisteredKernel kernel =
            register_kernel("thrower", [](KernelContext &call) { call.in(0).data<int>(); });
        EXPECT_ERROR(ProducerError, -1, run_once("thrower", view(two)), "pyfeed::DTypeError",
                     "holds float32");
    }
    {  // a ProducerError, whose parts are kept
        const RegisteredKernel kernel = register_kernel("thrower", [](KernelContext &) {
            throw ProducerError("what", "Type", "message", "line 1\n", 77);
        });
        try {
            run_once("thrower", view(two));
            FAIL() << "nothing was thrown";
        } catch (const ProducerError &e) {
            EXPECT_EQ("Type", e.type());
            EXPECT_EQ("message", e.message());
            EXPECT_EQ("line 1\n", e.traceback());
            EXPECT_EQ(77u, e.token());
        }
    }
}

// A kernel fails after it has written its outputs. The next run is not affected.
TEST_F(Kernels, AfterAFailure) {
    bool fails = true;
    const RegisteredKernel kernel = register_kernel("sometimes", [&](KernelContext &call) {
        call.out(0).mutable_data<int64_t>()[0]++;
        *call.output<float>(1, {}) = 1;
        if (fails) throw std::runtime_error("not now");
    });
    const layers::Var n = layers::create_global_var({1}, 0, DType::int64, "n");
    const layers::Var out = layers::variable("out");
    layers::call("sometimes", n, {n, out});
    executor.run(startup, scope);
    EXPECT_ERROR(ProducerError, -1, executor.run(main, scope), "not now");
    fails = false;
    executor.run(startup, scope);
    const Tuple got = executor.run(main, scope, {}, {n, out});
    EXPECT_EQ(1, scalar<int64_t>(got, 0));
    EXPECT_EQ(1, scalar<float>(got, 1));
}

TEST_F(Kernels, OutputsThatAreNotGiven) {
    const RegisteredKernel kernel = register_kernel("lazy", [](KernelContext &) {});
    EXPECT_ERROR(SlotCountError, 0, run_once("lazy", view(two)), "\"lazy\"", "no tensor", "lazy_0");
    EXPECT_EQ((Floats{1.5f, 2.5f}), values<float>(run_in_place("lazy", view(two))[0]));
}

TEST_F(Kernels, OutputsThatAreDeclaredOtherwise) {
    const RegisteredKernel kernel =
        register_kernel("float", [](KernelContext &call) { *call.output<float>(0, {1}) = 1; });
    layers::call("float", {}, layers::variable("x", Shape{1}, DType::int64));
    EXPECT_ERROR(DTypeError, 0, run(), "expected int64, found float32", "\"x\"", "block 0, op 0: call");
    const auto guard = program_guard(Program(), Program());
    layers::call("float", {}, layers::variable("x", Shape{2}, DType::float32));
    EXPECT_ERROR(ShapeError, 0, executor.run(default_main_program(), scope), "\"x\"", "op 0: call");
}

int no_reason(void *, const pf_kernel_call *) { return 3; }
int calls_back(void *context, const pf_kernel_call *call) {
    auto *statuses = static_cast<std::vector<pf_status> *>(context);
    const float x = 1;
    const TensorView one = view(&x, {1});
    const pf_tensor tensor = one.raw();
    pf_tensor bad = tensor;
    bad.rank = 9;
    pf_tuple tuple = PF_TUPLE_INIT;
    const pf_failure failure = PF_FAILURE_INIT;
    statuses->push_back(pf_kernel_output(call, 1, &tensor, nullptr, nullptr));
    statuses->push_back(pf_kernel_output(call, 0, nullptr, nullptr, nullptr));
    statuses->push_back(pf_kernel_output(call, 0, &bad, nullptr, nullptr));
    statuses->push_back(pf_kernel_set(call, 1, &tensor, nullptr));
    statuses->push_back(pf_kernel_set(call, 0, nullptr, nullptr));
    statuses->push_back(pf_kernel_share(call, 5, &tuple, nullptr));
    statuses->push_back(pf_kernel_share(call, 0, nullptr, nullptr));
    statuses->push_back(pf_kernel_fail(call, nullptr, nullptr));
    statuses->push_back(pf_kernel_fail(call, &failure, nullptr));
    statuses->push_back(pf_kernel_output(call, 0, &tensor, nullptr, nullptr));
    return 0;  // cancels the failure that pf_kernel_fail reported
}
int sets_its_own(void *, const pf_kernel_call *call) {
    if (pf_kernel_set(call, 0, &call->ins[0], nullptr)) return 1;
    // This call overwrites the description that it reads from.
    return pf_kernel_set(call, 0, &call->outs[0], nullptr);
}
void count_finished(void *context) { ++*static_cast<int *>(context); }

TEST_F(Kernels, OfC) {
    pf_handle handle = 0;
    CError err;
    ASSERT_EQ(PF_OK, pf_kernel_register("c", no_reason, nullptr, nullptr, &handle, &err)) << err.message();
    EXPECT_ERROR(ProducerError, -1, run_once("c", view(two)), "\"c\"", "3");
    ASSERT_EQ(PF_OK, pf_release(handle, &err)) << err.message();

    std::vector<pf_status> statuses;
    ASSERT_EQ(PF_OK, pf_kernel_register("c", calls_back, &statuses, nullptr, &handle, &err)) << err.message();
    EXPECT_EQ((Shape{1}), run_once("c", view(two))[0].shape());
    EXPECT_EQ((std::vector<pf_status>{PF_SLOTS, PF_INVALID, PF_SHAPE, PF_SLOTS, PF_INVALID, PF_SLOTS,
                                      PF_INVALID, PF_INVALID, PF_OK, PF_OK}),
              statuses);
    ASSERT_EQ(PF_OK, pf_release(handle, &err)) << err.message();

    ASSERT_EQ(PF_OK, pf_kernel_register("c", sets_its_own, nullptr, nullptr, &handle, &err)) << err.message();
    EXPECT_EQ(two, values<float>(run_once("c", view(two))[0]));
    EXPECT_EQ(two, values<float>(run_in_place("c", view(two))[0]));
    ASSERT_EQ(PF_OK, pf_release(handle, &err)) << err.message();

    int finished = 0;
    ASSERT_EQ(PF_OK, pf_kernel_register("c", no_reason, &finished, count_finished, &handle, &err))
        << err.message();
    pf_handle second = 77;
    EXPECT_STATUS(PF_STATE, pf_kernel_register("c", no_reason, &finished, count_finished, &second, &err));
    EXPECT_EQ(0u, second);
    EXPECT_EQ(0, finished);  // the finish function of neither kernel was called
    ASSERT_EQ(PF_OK, pf_retain(handle, &err));
    ASSERT_EQ(PF_OK, pf_release(handle, &err));
    EXPECT_EQ(0, finished);
    ASSERT_EQ(PF_OK, pf_release(handle, &err));
    EXPECT_EQ(1, finished);
}

// ---- Names ----

TEST_F(Kernels, NamesAreTakenOnce) {
    const auto held = std::make_shared<int>(7);
    {
        const RegisteredKernel kernel =
            register_kernel("name", [held](KernelContext &call) { *call.output<int>(0, {}) = *held; });
        EXPECT_EQ("name", kernel.name());
        EXPECT_EQ(2, held.use_count());
        EXPECT_NE(std::string::npos, kernels().find("\"name\""));
        EXPECT_ERROR(StateError, -1, register_kernel("name", [held](KernelContext &) {}), "\"name\"");
        EXPECT_EQ(2, held.use_count());
        EXPECT_EQ(7, scalar<int>(run_once("name", view(two))));
    }
    EXPECT_EQ(1, held.use_count());
    EXPECT_EQ(std::string::npos, kernels().find("\"name\""));
    EXPECT_ERROR(NotFoundError, -1, run_once("name", view(two)), "\"name\"", "not registered",
                 "block 0, op 0: call");
    EXPECT_ERROR(InvalidArgument, -1, register_kernel("", [](KernelContext &) {}), "name");
    EXPECT_ERROR(InvalidArgument, -1, register_kernel("name", Kernel()), "function");
    RegisteredKernel first = register_kernel("name", [](KernelContext &) {});
    RegisteredKernel moved = std::move(first);
    EXPECT_NE(std::string::npos, kernels().find("\"name\""));
}

// A kernel that is unregistered remains until the last run that uses it has ended.
TEST_F(Kernels, TakenBackWhileItRuns) {
    const auto held = std::make_shared<int>(0);
    std::promise<void> begun, go_on;
    std::optional<RegisteredKernel> kernel = register_kernel("long", [&, held](KernelContext &call) {
        if (*held == 0) {
            begun.set_value();
            go_on.get_future().wait();
        }
        *call.output<int>(0, {}) = ++*held;
    });
    const layers::Var out = layers::variable("out");
    layers::call("long", {}, out);
    layers::call("long", {}, out);
    auto running = in_thread([&] { return scalar<int>(executor.run(main, scope, {}, {out}, kStuck)); });
    begun.get_future().wait();
    kernel.reset();
    EXPECT_EQ(2, held.use_count());
    EXPECT_ERROR(NotFoundError, -1, executor.run(main, scope), "\"long\"");
    const RegisteredKernel other =
        register_kernel("long", [](KernelContext &call) { *call.output<int>(0, {}) = -1; });
    go_on.set_value();
    EXPECT_EQ(2, running.get());
    EXPECT_TRUE(eventually([&] { return held.use_count() == 1; }));
    EXPECT_EQ(-1, scalar<int>(executor.run(main, scope, {}, {out})));
}

// A kernel may unregister itself. Its captured objects remain until it returns.
TEST_F(Kernels, TakesItselfBack) {
    const auto held = std::make_shared<int>(5);
    std::optional<RegisteredKernel> kernel;
    kernel = register_kernel("once", [&kernel, held](KernelContext &call) {
        kernel.reset();
        *call.output<int>(0, {}) = *held;
    });
    EXPECT_EQ(5, scalar<int>(run_once("once", view(two))));
    EXPECT_EQ(1, held.use_count());
    EXPECT_ERROR(NotFoundError, -1, run_once("once", view(two)), "once");
}

// ---- Threads ----

TEST_F(Kernels, MayCallTheLibrary) {
    const Queue queue = numbers(4);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    Program inner;
    program_guard(inner, Program(), [&] {
        const layers::Var x = layers::data("x", {1}, DType::int64);
        layers::increment(x, 10);
    });
    const RegisteredKernel kernel = register_kernel("busy", [&](KernelContext &call) {
        const RegisteredKernel other = register_kernel("other", [](KernelContext &) {});
        queue.push({call.in(0)}, kStuck);
        const Tuple tuple = *reader.next(kStuck);
        const Tuple ran = executor.run(inner, scope, {{"x", tuple[0]}}, {"x"}, kStuck);
        EXPECT_ERROR(ProducerError, -1, run_once("thrower", call.in(0)), "inside");
        call.set(0, ran[0]);
        memory_stats();
    });
    const RegisteredKernel thrower =
        register_kernel("thrower", [](KernelContext &) { throw std::runtime_error("inside"); });
    const int64_t one = 1;
    EXPECT_EQ(11, number(run_once("busy", view(&one, {1}))));
}

// A kernel runs the program that calls it, recursively.
TEST_F(Kernels, Recursion) {
    const layers::Var depth = layers::data("depth", {1}, DType::int64);
    const layers::Var out = layers::call<1>("deeper", depth)[0];
    const RegisteredKernel kernel = register_kernel("deeper", [&](KernelContext &call) {
        int64_t n = call.in(0).values<int64_t>()[0];
        if (n-- == 0) return call.set(0, call.in(0));
        const Tuple below = executor.run(main, scope, {{depth, view(&n, {1})}}, {out}, kStuck);
        *call.output<int64_t>(0, {1}) = 1 + number(below);
    });
    const int64_t n = 50;
    EXPECT_EQ(50, number(executor.run(main, scope, {{depth, view(&n, {1})}}, {out}, kStuck)));
}

// Eight threads run one program. Each run has its own variables.
TEST_F(Kernels, ManyThreadsRunOneProgram) {
    const RegisteredKernel kernel = register_kernel("add", [](KernelContext &call) {
        *call.output<int64_t>(0, {1}) = call.in(0).values<int64_t>()[0] + call.in(1).values<int64_t>()[0];
    });
    const layers::Var step = layers::data("step", {1}, DType::int64);
    const layers::Var sum = layers::fill_constant({1}, DType::int64, 0),
                      i = layers::fill_constant({1}, DType::int64, 0);
    const layers::Var n = layers::fill_constant({1}, DType::int64, 20);
    const layers::Var go = layers::less_than(i, n);
    layers::While(go, [&] {
        layers::call("add", {sum, step}, sum);
        layers::increment(i);
        layers::less_than(i, n, go);
    });
    std::vector<std::future<void>> threads;
    for (int64_t t = 0; t < 8; t++) {
        threads.push_back(in_thread([&, t] {
            for (int64_t round = 0; round < 50; round++) {
                const int64_t by = 1000 * t + round;
                EXPECT_EQ(20 * by,
                          number(executor.run(main, scope, {{step, view(&by, {1})}}, {sum}, kStuck)));
            }
        }));
    }
    for (auto &thread : threads) thread.get();
}

// A kernel is registered and unregistered while programs that call it run. Each run finds it or fails with
// NotFoundError.
TEST_F(Kernels, ComeAndGoWhileProgramsRun) {
    const layers::Var out = layers::variable("out");
    layers::call("restless", {}, out);
    std::atomic<bool> over{false};
    std::vector<std::future<int>> threads;
    std::atomic<int> found{0};
    for (int t = 0; t < 4; t++) {
        threads.push_back(in_thread([&] {
            int missed = 0;
            while (!over) {
                try {
                    EXPECT_EQ(7, scalar<int>(executor.run(main, scope, {}, {out}, kStuck)));
                    ++found;
                } catch (const NotFoundError &) {
                    missed++;
                }
            }
            return missed;
        }));
    }
    for (int i = 0; i < 200; i++) {
        const auto held = std::make_shared<int>(7);
        const int before = found;
        const RegisteredKernel kernel =
            register_kernel("restless", [held](KernelContext &call) { *call.output<int>(0, {}) = *held; });
        EXPECT_TRUE(eventually([&] { return found > before; }));
    }
    over = true;
    for (auto &thread : threads) thread.get();
}

// ---- Shared objects ----

// The kernels of a shared object stay registered, so this test is not derived from Counted.
TEST(SharedObjects, HaveKernels) {
    load_kernels(PYFEED_TEST_GOOD_MODULE);
    const uint64_t handles = memory_stats().handles;
    load_kernels(PYFEED_TEST_GOOD_MODULE);
    load_kernels(std::filesystem::path(PYFEED_TEST_GOOD_MODULE).parent_path() / "." /
                 std::filesystem::path(PYFEED_TEST_GOOD_MODULE).filename());
    EXPECT_EQ(handles, memory_stats().handles);
    EXPECT_NE(std::string::npos, kernels().find("\"good_second\""));
    const Program main;
    const auto guard = program_guard(main, Program());
    const layers::Var x = layers::data("x", {-1}, DType::int64);
    const auto [out] = layers::call<1>("good_double", x);
    const Numbers numbers{1, 2, 3};
    EXPECT_EQ((Numbers{2, 4, 6}),
              values<int64_t>(Executor().run(main, Scope(), {{x, view(numbers)}}, {out}, kStuck)[0]));
}

TEST_F(Kernels, SharedObjectsThatAreNone) {
    EXPECT_ERROR(FileError, -1, load_kernels(path("none.so")), path("none.so"));
    EXPECT_ERROR(FileError, -1, load_kernels(store("text.so", "no shared object")), path("text.so"));
    EXPECT_ERROR(InvalidArgument, -1, load_kernels(PYFEED_TEST_LIBRARY), "pyfeed_register_kernels",
                 PYFEED_TEST_LIBRARY);
    EXPECT_ERROR(FileError, -1, load_kernels(""), "");
}

// Either all kernels of a shared object are registered, or none.
TEST_F(Kernels, SharedObjectsThatAreRefused) {
    {
        const RegisteredKernel taken = register_kernel("refused_second", [](KernelContext &) {});
        EXPECT_ERROR(StateError, -1, load_kernels(PYFEED_TEST_REFUSED_MODULE), "\"refused_second\"");
        EXPECT_EQ(std::string::npos, kernels().find("refused_double"));
    }
    EXPECT_ERROR(Error, -1, load_kernels(PYFEED_TEST_THROWING_MODULE), "std::runtime_error",
                 "there is no third one");
    EXPECT_EQ(std::string::npos, kernels().find("throwing_"));
}

}  // namespace

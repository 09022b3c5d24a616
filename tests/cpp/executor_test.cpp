// Runs of programs: loops and branches, complete training programs, feeds and fetches, and how waits end.
#include "programs.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class Runs : public Programs {
protected:
    // Registers a kernel that appends the dtype, the dims and the bytes of each input to `out`.
    RegisteredKernel recorder(std::string &out, const std::string &name = "record") {
        return register_kernel(name, [&out](KernelContext &call) {
            for (size_t i = 0; i < call.num_ins(); i++) {
                const TensorView in = call.in(i);
                out += dtype_name(in.dtype()) + in.shape().to_string();
                out.append(static_cast<const char *>(in.data()), in.nbytes());
            }
            out += ';';
        });
    }
};

// ---- Loops and branches ----

TEST_F(Runs, ALoopThatCounts) {
    const layers::Var i = layers::fill_constant({1}, DType::int64, 0),
                      n = layers::fill_constant({1}, DType::int64, 10);
    const layers::Var go = layers::less_than(i, n);
    layers::While(go, [&] {
        layers::increment(i);
        layers::less_than(i, n, go);
    });
    for (int round = 0; round < 3; round++) EXPECT_EQ(10, number(executor.run(main, scope, {}, {i})));
    EXPECT_FALSE(scope.has(i.name()));  // the variable belongs to the run, not to the scope
}

TEST_F(Runs, LoopsInLoops) {
    const auto zero = [] { return layers::fill_constant({}, DType::int64, 0); };
    const layers::Var total = zero(), i = zero(), n = layers::fill_constant({}, DType::int64, 5);
    const layers::Var outer = layers::less_than(i, n);
    layers::While(outer, [&] {
        const layers::Var j = zero();  // set to 0 in each iteration
        const layers::Var inner = layers::less_than(j, i);
        layers::While(inner, [&] {
            layers::IfElse(
                layers::equal(j, i), [&] { layers::increment(total, 1000); },
                [&] { layers::increment(total); });
            layers::increment(j);
            layers::less_than(j, i, inner);
        });
        layers::increment(i);
        layers::less_than(i, n, outer);
    });
    EXPECT_EQ(0 + 1 + 2 + 3 + 4, scalar<int64_t>(run({total})));
}

TEST_F(Runs, BothBranches) {
    const layers::Var which = layers::data("which", {1}, DType::bool_);
    const layers::Var x = layers::fill_constant({}, DType::int64, 0);
    layers::IfElse(which, [&] { layers::increment(x, 1); }, [&] { layers::increment(x, 2); });
    layers::IfElse(which, [&] { layers::increment(x, 10); });
    layers::IfElse branch(which);
    {
        auto block = branch.false_block();
        layers::increment(x, 20);
    }
    for (const bool yes : {true, false})
        EXPECT_EQ(yes ? 11 : 22, scalar<int64_t>(executor.run(main, scope, {{which, view(&yes, {1})}}, {x})));
}

// The body of the loop changes the loop's condition from within a branch.
TEST_F(Runs, ALongLoop) {
    const layers::Var i = layers::fill_constant({1}, DType::int64, 0),
                      go = layers::fill_constant({1}, DType::bool_, true);
    const layers::Var n = layers::fill_constant({1}, DType::int64, 100000);
    layers::While(go, [&] {
        layers::increment(i);
        const layers::Var less = layers::less_than(i, n);
        layers::IfElse(less, [] {}, [&] { layers::assign(less, go); });
    });
    EXPECT_EQ(100000, number(run({i})));
}

TEST_F(Runs, DeepNesting) {
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true),
                      x = layers::fill_constant({}, DType::int64, 0);
    std::function<void(int)> nest = [&](int depth) {
        if (depth == 0) {
            layers::increment(x);
        } else {
            layers::IfElse(yes, [&] { nest(depth - 1); });
        }
    };
    nest(99);  // the greatest depth that is allowed
    EXPECT_EQ(1, scalar<int64_t>(executor.run(Program::parse(main.serialize()), scope, {}, {x})));
    EXPECT_ERROR(TooLargeError, -1, nest(100), "nested at most 100 deep");
}

// ---- Training programs ----

// Programs that read small files of images and labels. They are compared with a reader that is used without a program.
class Listings : public Runs {
protected:
    Listings() {
        for (int file = 0; file < 3; file++) {
            files.push_back(path("part-" + std::to_string(file) + ".recordio"));
            const Writer writer(files.back(), WriterOptions().slots(slots()));
            for (int i = 0; i < 7 + file; i++) {
                const Floats image{static_cast<float>(file), static_cast<float>(i), 0.5f, -1};
                const int64_t label = 100 * file + i;
                writer.write({view(image), view(&label, {1})});
            }
            writer.close();
        }
    }

    static std::vector<SlotSpec> slots() {
        return {{{4}, DType::float32, 0, "image"}, {{1}, DType::int64, 0, "label"}};
    }
    // Reads passes of the same chain of readers without a program.
    std::string direct(int passes) const {
        const Scope elsewhere;
        const Reader reader = open_files(elsewhere, "files", files).shuffle(5, 3).batch(4).double_buffer();
        std::string out;
        for (int pass = 0; pass < passes; pass++) {
            if (pass > 0) reader.reset();
            for (Tuple &tuple : reader.tuples(kStuck)) append_bytes(tuple, out);
        }
        return out;
    }
    layers::Var chain() const {
        return layers::batch(layers::shuffle(layers::open_files(files, OpenFiles().slots(slots())), 5, 3), 4);
    }

    std::vector<std::string> files;
    std::string seen;
    RegisteredKernel record = recorder(seen);
};

TEST_F(Listings, HasNextAndReset) {
    const layers::Var reader = layers::double_buffer(chain());
    const layers::Var not_completed = layers::fill_constant({1}, DType::bool_, true);
    const layers::Var pass_count = layers::fill_constant({1}, DType::int64, 0);
    const layers::Var required = layers::fill_constant({1}, DType::int64, 3);
    layers::While loop(not_completed);
    {
        auto block = loop.block();
        const layers::Var has_next = layers::has_next(reader);
        layers::IfElse branch(has_next);
        {
            auto batch = branch.true_block();
            layers::call("record", layers::read_file(reader), {});
        }
        {
            auto end = branch.false_block();
            layers::reset(reader);
            layers::increment(pass_count);
            layers::less_than(pass_count, required, not_completed);
        }
    }
    EXPECT_EQ(3, number(run({pass_count})));
    EXPECT_EQ(direct(3), seen);
    // A second run continues with the reader, which is at the beginning of a pass.
    seen.clear();
    executor.run(main, scope, {}, {}, kStuck);
    EXPECT_EQ(direct(6).substr(direct(3).size()), seen);
}

// The slots are not given: they are read from the files.
TEST_F(Listings, MultiPass) {
    const layers::Var reader = layers::double_buffer(
        layers::multi_pass(layers::batch(layers::shuffle(layers::open_files(files), 5, 3), 4), 3));
    const layers::Var not_completed = layers::fill_constant({}, DType::bool_, true);
    layers::While(not_completed, [&] {
        layers::call("record", layers::read_file(reader), {});
        layers::has_next(reader, not_completed);
    });
    run();
    EXPECT_EQ(direct(3), seen);
}

// Programs that were saved and loaded give the same result.
TEST_F(Listings, SavedAndLoaded) {
    const layers::Var reader = layers::double_buffer(layers::multi_pass(chain(), 2));
    const layers::Var go = layers::fill_constant({}, DType::bool_, true);
    layers::While(go, [&] {
        layers::call("record", layers::read_file(reader), {});
        layers::has_next(reader, go);
    });
    for (const char *suffix : {".json", ".program"}) {
        startup.save(path(std::string("startup") + suffix));
        main.save(path(std::string("main") + suffix));
        seen.clear();
        const Scope fresh;
        executor.run(Program::load(path(std::string("startup") + suffix)), fresh, {}, {}, kStuck);
        executor.run(Program::load(path(std::string("main") + suffix)), fresh, {}, {}, kStuck);
        EXPECT_EQ(direct(2), seen);
    }
}

// The process has one staging buffer for each place, with the limits of its first use. So all tests here use the same
// limits. The capacity is the number of ready tuples plus one, since a run puts a tuple in before it takes one out.
constexpr uint64_t kReady = 2;

TEST_F(Listings, Staging) {
    const layers::Var image = layers::data("x", {4}), label = layers::data("y", {1}, DType::int64);
    const layers::Stage stage = layers::staging({image, label}, kReady + 1);
    const Program stage_program = main.clone();
    const auto [staged_image, staged_label] = layers::unstaging<2>(stage);
    layers::call("record", {staged_image, staged_label}, {});

    const Reader train_reader = pyfeed::open_files(scope, "train", files);
    std::string expected;
    const auto feed = [&](const Program &program, const Tuple &data) {
        append_bytes(data, expected);
        executor.run(program, scope, {{image, data[0]}, {label, data[1]}}, {}, kStuck);
    };
    for (uint64_t i = 0; i < kReady; i++) feed(stage_program, *train_reader.next());
    EXPECT_EQ("", seen);
    for (int pass = 0; pass < 2; pass++) {
        for (Tuple &data : train_reader.tuples(kStuck)) feed(main, data);
        train_reader.reset();
    }
    for (uint64_t i = 0; i < kReady; i++) executor.run(main, scope, {}, {}, kStuck);
    EXPECT_EQ(expected, seen);
    // No tuple is left, and a run without feeds has staged nothing.
    EXPECT_ERROR(Timeout, -1, executor.run(main, scope, {}, {}, Wait::none()),
                 "block 0, op 1: unstage(stage_0)");
    const Floats x(4);
    EXPECT_ERROR(StateError, -1, executor.run(stage_program, scope, {{image, view(x)}}),
                 "block 0, op 0: stage", "y without a tensor");
}

TEST_F(Runs, AFullStage) {
    const layers::Var x = layers::data("x", {1}, DType::int64);
    const layers::Stage stage = layers::staging(x, kReady + 1);
    const Program put = main.clone(), get;
    layers::Var out = x;
    program_guard(get, startup, [&] {
        get.add_variable(0, stage.json());
        out = layers::unstaging(stage).at(0);
    });
    const auto number_of = [&](const Wait &wait = kStuck) {
        return number(executor.run(get, scope, {}, {out}, wait));
    };
    const auto put_number = [&](int64_t n, const Wait &wait = kStuck) {
        executor.run(put, scope, {{x, view(&n, {1})}}, {}, wait);
    };
    for (const int64_t n : {1, 2, 3}) put_number(n);
    EXPECT_ERROR(Timeout, -1, put_number(4, 1ms), "block 0, op 0: stage(x) -> stage_0", "x int64 (1,)");
    auto waiting = in_thread([&] { put_number(5); });
    for (const int64_t n : {1, 2, 3, 5}) EXPECT_EQ(n, number_of());
    waiting.get();
    EXPECT_ERROR(Timeout, -1, number_of(1ms), "unstage");
}

// ---- Feeds and fetches ----

TEST_F(Runs, FeedsAndFetches) {
    const layers::Var x = layers::data("x", {-1, 2}), n = layers::data("n", {1}, DType::int64),
                      any = layers::variable("any");
    const layers::Var y = layers::assign(x);
    const Floats four{1, 2, 3, 4};
    const int64_t one = 1;
    const Tuple got =
        executor.run(main, scope, {{x, view(four, {2, 2})}, {"n", view(&one, {1})}}, {"x", y, "n", y});
    EXPECT_EQ(4u, got.size());
    EXPECT_EQ((Shape{2, 2}), got[0].shape());
    EXPECT_EQ(four, values<float>(got[1]));
    EXPECT_EQ(got[1].data(), got[3].data());
    EXPECT_NE(static_cast<const void *>(four.data()), got[0].data());  // a copy
    EXPECT_EQ(1, number(executor.run(
                     main, scope,
                     std::map<std::string, TensorView>{{"x", view(four, {2, 2})}, {"n", view(&one, {1})}},
                     std::vector<std::string>{"n"})));
    // Strides and ragged offsets (LoD, level of detail).
    const LoD lod{{0, 1, 2}};
    const Tuple strided = executor.run(
        main, scope, {{x, view(four, {2, 2}).with_strides({4, 8})}, {any, view(four).with_lod(LoD{{0, 4}})}},
        {y, any});
    EXPECT_EQ((Floats{1, 3, 2, 4}), values<float>(strided[0]));
    EXPECT_EQ((Numbers{0, 4}), offsets(strided[1], 0));
}

TEST_F(Runs, ManyFeedsAndFetches) {
    std::vector<layers::Var> vars;
    Numbers all = range(0, 30);
    std::vector<Feeds::Feed> feeds;
    for (size_t i = 0; i < all.size(); i++)
        vars.push_back(layers::data("x" + std::to_string(i), {1}, DType::int64));
    for (size_t i = 0; i < all.size(); i++) feeds.push_back({vars[i], view(&all[i], {1})});
    const Tuple got = executor.run(main, scope, feeds, vars);
    ASSERT_EQ(all.size(), got.size());
    for (size_t i = 0; i < all.size(); i++) EXPECT_EQ(all[i], scalar<int64_t>(got, i));
}

TEST_F(Runs, FeedsThatDoNotFit) {
    const layers::Var x = layers::data("x", {-1, 2}), reader = layers::random_data({{{1}, DType::int64}});
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true);
    layers::While(yes,
                  [&] { layers::fill_constant({}, DType::bool_, false, yes), layers::variable("inner"); });
    executor.run(startup, scope);
    const Floats four(4);
    const Numbers two(2);
    const auto feed = [&](const Name &name, const TensorView &tensor) {
        executor.run(main, scope, {{name, tensor}});
    };
    EXPECT_ERROR(NotFoundError, -1, feed("y", view(four)), "feed", "\"y\"");
    EXPECT_ERROR(NotFoundError, -1, feed("inner", view(four)), "feed", "first block");
    EXPECT_ERROR(InvalidArgument, -1, feed(reader, view(four)), "feed", "reader");
    EXPECT_ERROR(DTypeError, 0, feed(x, view(two, {1, 2})), "feed \"x\"", "expected float32, found int64");
    EXPECT_ERROR(ShapeError, 0, feed(x, view(four)), "feed \"x\"", "expected dims (-1, 2), found (4,)");
    EXPECT_ERROR(ShapeError, 0, feed(x, view(four, {2, 2}).with_lod(LoD{{0, 2}})),
                 "expected 0 levels, found 1");
    EXPECT_ERROR(
        InvalidArgument, 1,
        executor.run(main, scope, {{x, view(four, {2, 2})}, {x, TensorView(DType::float32, {1, 2})}}),
        "data");
    feed(x, view(four, {2, 2}));
    const auto fetch = [&](const Name &name) { executor.run(main, scope, {}, {name}); };
    EXPECT_ERROR(NotFoundError, -1, fetch("y"), "fetch", "\"y\"");
    EXPECT_ERROR(InvalidArgument, -1, fetch(reader), "fetch", "reader");
    EXPECT_ERROR(StateError, -1, fetch(x), "fetch", "\"x\"");  // the feed belonged to the earlier run
}

// ---- The scope ----

TEST_F(Runs, PersistableVariablesAreTheScopes) {
    const layers::Var n = layers::create_global_var({1}, 5, DType::int64, "n");
    const layers::Var fed = layers::variable("fed", Shape{1}, DType::int64, 0, true);
    layers::increment(n);
    executor.run(startup, scope);
    const Scope child = scope.child();
    EXPECT_EQ(6, number(executor.run(main, child, {}, {n})));  // found in the parent
    EXPECT_EQ(7, number(executor.run(main, scope, {}, {n})));
    EXPECT_EQ(7, number(scope.find("n").tensor()));
    const int64_t nine = 9;
    executor.run(main, scope, {{fed, view(&nine, {1})}});
    EXPECT_EQ(9, number(scope.find("fed").tensor()));
    EXPECT_EQ(9, number(executor.run(main, scope, {}, {fed})));
    scope.find("n").set(view(&nine, {1}));
    EXPECT_EQ(10, number(executor.run(main, scope, {}, {n})));
    // Another scope does not have the variable.
    EXPECT_ERROR(StateError, -1, executor.run(main, Scope()), "increment(n)", "n without a tensor");
}

TEST_F(Runs, WhatIsMissing) {
    const auto [reader, queue] = layers::py_array_reader({2, {{{1}, DType::int64}}}, "reader", scope);
    const layers::Var x = layers::read_file(reader).at(0);
    EXPECT_ERROR(StateError, -1, executor.run(main, scope, {}, {x}), "block 0, op 0: read(reader)");
    EXPECT_ERROR(NotFoundError, -1, executor.run(startup, Scope()), "create_py_array_reader",
                 "reader_feeder");
    executor.run(startup, scope);
    push_number(queue, 3);
    EXPECT_EQ(3, number(executor.run(main, scope, {}, {x})));
    EXPECT_ERROR(UnsupportedError, -1, Executor(Place(77, 0)), "77");
}

// ---- Errors of runs ----

TEST_F(Runs, TheEndOfTheData) {
    const layers::Var reader = layers::random_data({{{1}, DType::int64}}, RandomOptions().count(2));
    const layers::Var go = layers::fill_constant({}, DType::bool_, true),
                      n = layers::create_global_var({}, 0, DType::int64, "n");
    layers::While(go, [&] {
        layers::read_file(reader);
        layers::increment(n);
    });
    executor.run(startup, scope);
    for (const int64_t expected : {2, 2}) {
        try {
            executor.run(main, scope, {}, {}, kStuck);
            FAIL() << "nothing was thrown";
        } catch (const EndOfData &e) {
            EXPECT_EQ(PF_END, e.status());
            EXPECT_EQ("block 1, op 0: read", e.op());
            EXPECT_NE(std::string::npos, std::string(e.what()).find("read(layers.random_data_0)"))
                << e.what();
        }
        EXPECT_EQ(expected, scalar<int64_t>(scope.find("n").tensor()));
    }
    scope.find(reader.name()).reader().reset();
    EXPECT_ERROR(EndOfData, -1, executor.run(main, scope, {}, {}, kStuck), "read");
    EXPECT_EQ(4, scalar<int64_t>(scope.find("n").tensor()));
}

TEST_F(Runs, ErrorsOfProducersAndFiles) {
    const auto [reader, queue] = layers::py_array_reader({2, {{{1}, DType::int64}}}, {}, scope);
    layers::read_file(reader);
    executor.run(startup, scope);
    queue.fail("ValueError", "no more", "line 1\n", 77);
    try {
        executor.run(main, scope, {}, {}, kStuck);
        FAIL() << "nothing was thrown";
    } catch (const ProducerError &e) {
        EXPECT_EQ("ValueError", e.type());
        EXPECT_EQ("no more", e.message());
        EXPECT_EQ("line 1\n", e.traceback());
        EXPECT_EQ(77u, e.token());
        EXPECT_EQ("block 0, op 0: read", e.op());
    }

    const Program files_startup, files_main;
    const auto guard = program_guard(files_main, files_startup);
    const std::string name = store("cut.raw", std::string(12, 'x'));
    layers::read_file(layers::open_files({name}, raw()));
    layers::read_file(layers::open_files({name}, raw(), "again"));
    executor.run(files_startup, scope);
    try {
        for (int i = 0; i < 2; i++) executor.run(files_main, scope, {}, {}, kStuck);
        FAIL() << "nothing was thrown";
    } catch (const CorruptRecordError &e) {
        EXPECT_EQ(name, e.file());
        EXPECT_EQ(8, e.offset());
        EXPECT_EQ("block 0, op 0: read", e.op());
        EXPECT_NE(std::string::npos, std::string(e.what()).find("at executor_test.cpp:")) << e.what();
    }
}

TEST_F(Runs, ErrorsOfOperators) {
    const layers::Var x = layers::variable("x"), y = layers::variable("y");
    const Program program = main;
    layers::less_than(x, y);
    const Floats three(3), four(4);
    const Numbers numbers(3);
    const auto expect = [&](auto error, const TensorView &a, const TensorView &b, const char *word) {
        try {
            executor.run(main, scope, {{x, a}, {y, b}});
            ADD_FAILURE() << "nothing was thrown";
        } catch (const decltype(error) &e) {
            EXPECT_EQ("block 0, op 0: less_than", e.op());
            EXPECT_NE(std::string::npos, std::string(e.what()).find(word)) << e.what();
        }
    };
    expect(ShapeError(""), view(three), view(four), "(3,) and (4,)");
    expect(DTypeError(""), view(three), view(numbers), "x float32 (3,), y int64 (3,)");
    EXPECT_ERROR(StateError, -1, executor.run(main, scope, {{x, view(three)}}), "y without a tensor");
    layers::While(x, [] {});
    EXPECT_ERROR(DTypeError, -1, executor.run(main, scope, {{x, view(three)}, {y, view(three)}}),
                 "block 0, op 1: while", "expected bool, found float32");
    const std::array<bool, 2> many{};
    EXPECT_ERROR(ShapeError, -1, executor.run(main, scope, {{x, view(many)}, {y, view(many)}}),
                 "one element");
}

TEST_F(Runs, Printing) {
    const layers::Var x = layers::data("x", {-1}), i = layers::fill_constant({}, DType::int64, 0);
    const layers::Var go = layers::fill_constant({}, DType::bool_, true),
                      n = layers::fill_constant({}, DType::int64, 3);
    layers::While(go, [&] {
        layers::increment(i);
        layers::print({x, i}, "loop", 2, 2);
        layers::less_than(i, n, go);
    });
    const Floats values{0.5f, -1, 2};
    testing::internal::CaptureStderr();
    executor.run(main, scope, {{x, view(values)}});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(
        "loop x float32 (3,): [0.5, -1, ...]\nloop fill_constant_0 int64 (): [1]\n"
        "loop x float32 (3,): [0.5, -1, ...]\nloop fill_constant_0 int64 (): [2]\n",
        said);
}

// ---- How waits end ----

class Waits : public Runs {
protected:
    // Builds a main program that waits for a tuple, which is not pushed.
    Queue blocked_read() {
        const auto [reader, queue] = layers::py_array_reader({2, {{{1}, DType::int64}}}, {}, scope);
        layers::read_file(reader);
        executor.run(startup, scope);
        return queue;
    }
    void endless_loop() {
        const layers::Var go = layers::fill_constant({}, DType::bool_, true),
                          i = layers::fill_constant({}, DType::int64, 0);
        layers::While(go, [&] { layers::increment(i); });
    }
    void blocked_unstage() {
        const layers::Var x = layers::data("x", {1}, DType::int64);
        layers::unstaging(layers::staging(x, kReady + 1));
    }
    // Runs the main program in a thread, and cancels the run after a few calls of its poll function.
    void expect_cancelled(const std::string &op) {
        const CancelToken token;
        std::atomic<int> asked{0};
        Wait wait = kStuck;
        wait.cancel(token).poll([&] { return ++asked, false; }, 1ms);
        auto running = in_thread([&] { executor.run(main, scope, {}, {}, wait); });
        EXPECT_TRUE(eventually([&] { return asked >= 3; }));
        token.cancel();
        EXPECT_ERROR(Cancelled, -1, running.get(), op);
        // The token stays cancelled.
        EXPECT_ERROR(Cancelled, -1, executor.run(main, scope, {}, {}, wait), "block 0, op 0: ");
    }
};

struct Interrupted : std::exception {};

TEST_F(Waits, ABlockedRead) {
    const Queue queue = blocked_read();
    expect_cancelled("block 0, op 0: read");
    EXPECT_ERROR(Timeout, -1, executor.run(main, scope, {}, {}, 1ms), "block 0, op 0: read");
    EXPECT_ERROR(Timeout, -1, executor.run(main, scope, {}, {}, Wait::none()), "block 0, op 0: read");
    EXPECT_ERROR(Cancelled, -1, executor.run(main, scope, {}, {}, Wait().poll([] { return true; }, 1ms)),
                 "read");
    EXPECT_THROW(executor.run(main, scope, {}, {}, Wait().poll([]() -> bool { throw Interrupted(); }, 1ms)),
                 Interrupted);
    // The cancelled runs do not take a later tuple.
    auto running = in_thread([&] { executor.run(main, scope, {}, {}, kStuck); });
    EXPECT_TRUE(consumers_wait(queue, 1));
    push_number(queue, 1);
    running.get();
    EXPECT_EQ(0u, queue.size());
}

TEST_F(Waits, AnEndlessLoop) {
    endless_loop();
    expect_cancelled("block");
    EXPECT_ERROR(Timeout, -1, executor.run(main, scope, {}, {}, 1ms), "block");
    EXPECT_ERROR(Cancelled, -1, executor.run(main, scope, {}, {}, Wait().poll([] { return true; }, 1ms)),
                 "block");
    EXPECT_THROW(executor.run(main, scope, {}, {}, Wait().poll([]() -> bool { throw Interrupted(); }, 1ms)),
                 Interrupted);
}

TEST_F(Waits, ABlockedUnstage) {
    blocked_unstage();
    expect_cancelled("block 0, op 1: unstage");
    EXPECT_ERROR(Timeout, -1, executor.run(main, scope, {}, {}, 1ms), "block 0, op 1: unstage");
}

// A timeout of zero does not end a run whose operators never wait.
TEST_F(Waits, NoneGiven) {
    const layers::Var x = layers::fill_constant({1}, DType::int64, 0);
    layers::increment(x);
    EXPECT_EQ(1, number(executor.run(main, scope, {}, {x}, Wait::none())));
}

// A kernel cancels the token of its run. The run ends after the kernel has returned.
TEST_F(Waits, CancelledByAKernel) {
    const CancelToken token;
    int calls = 0;
    const RegisteredKernel kernel = register_kernel("stop", [&](KernelContext &) {
        if (++calls == 10) token.cancel();
    });
    const layers::Var go = layers::fill_constant({}, DType::bool_, true);
    layers::While(go, [&] { layers::call("stop", {}, {}); });
    EXPECT_ERROR(Cancelled, -1, executor.run(main, scope, {}, {}, Wait(kStuck).cancel(token)), "block");
    EXPECT_GE(calls, 10);
}

// Runs that are not cancelled continue when others are cancelled.
TEST_F(Waits, ManyThreadsCancelled) {
    const Queue queue = blocked_read();
    std::vector<CancelToken> tokens(8);
    std::vector<std::future<void>> runs;
    for (const CancelToken &token : tokens) {
        runs.push_back(in_thread([&] { executor.run(main, scope, {}, {}, Wait(kStuck).cancel(token)); }));
    }
    for (size_t i = 0; i < 4; i++) {
        tokens[i].cancel();
        EXPECT_ERROR(Cancelled, -1, runs[i].get(), "read");
    }
    for (int64_t n = 0; n < 4; n++) push_number(queue, n);
    for (size_t i = 4; i < 8; i++) runs[i].get();
    EXPECT_EQ(0u, queue.size());
}

// ---- Threads ----

// Threads that run one program over one reader get each tuple once.
TEST_F(Runs, ManyThreadsReadOneReader) {
    const layers::Var reader = layers::open_files({store("numbers.raw", range(0, 400))}, raw());
    const layers::Var x = layers::read_file<1>(reader)[0];
    executor.run(startup, scope);
    std::vector<std::future<Numbers>> threads;
    for (int t = 0; t < 8; t++) {
        threads.push_back(in_thread([&] {
            Numbers seen;
            for (;;) {
                try {
                    seen.push_back(number(executor.run(main, scope, {}, {x}, kStuck)));
                } catch (const EndOfData &) {
                    return seen;
                }
            }
        }));
    }
    Numbers all;
    for (auto &thread : threads)
        for (const int64_t n : thread.get()) all.push_back(n);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(range(0, 400), all);
}

// Several threads add operators to one program, and no operator is lost.
TEST_F(Runs, ManyThreadsBuildOneProgram) {
    const layers::Var sum = layers::fill_constant({}, DType::int64, 0),
                      yes = layers::fill_constant({}, DType::bool_, true);
    std::vector<std::future<void>> threads;
    for (int t = 0; t < 4; t++) {
        threads.push_back(in_thread([&] {
            const auto mine = program_guard(main, startup);
            for (int i = 0; i < 50; i++) layers::IfElse(yes, [&] { layers::increment(sum); });
        }));
    }
    for (auto &thread : threads) thread.get();
    EXPECT_EQ(200, scalar<int64_t>(run({sum})));
}

// A run executes the program as it was when the run began.
TEST_F(Runs, AProgramThatGrowsWhileItRuns) {
    const layers::Var n = layers::fill_constant({}, DType::int64, 0);
    const RegisteredKernel kernel = register_kernel("grow", [&](KernelContext &) {
        const auto same = program_guard(main, startup);
        layers::increment(n);
    });
    layers::call("grow", {}, {});
    for (int64_t round = 0; round < 5; round++)
        EXPECT_EQ(round, scalar<int64_t>(executor.run(main, scope, {}, {n})));
}

// A run keeps its program, scope and executor until it ends, even if their handles are dropped.
TEST_F(Runs, DroppedWhileTheyRun) {
    const Queue queue = numbers(1);
    std::optional<Program> program(std::in_place), first(std::in_place);
    std::optional<Scope> child = scope.child();
    std::optional<Executor> runner(std::in_place);
    program_guard(*program, *first, [&] {
        layers::read_file<1>(
            layers::create_reader("create_py_array_reader", {}, {{"feeder_name", "feeder"}}));
    });
    runner->run(*first, *child);
    auto running = in_thread([&] { runner->run(*program, *child, {}, {}, kStuck); });
    EXPECT_TRUE(consumers_wait(queue, 1));
    program.reset();
    first.reset();
    child.reset();
    runner.reset();
    push_number(queue, 1);
    running.get();
}

}  // namespace

// Layers: the operators and variables that each of them adds, and to which program; the blocks of While and IfElse;
// errors.
#include "programs.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class Layers : public Programs {
protected:
    static std::vector<SlotSpec> image_and_label() {
        return {{{4}, DType::float32, 0, "image"}, {{1}, DType::int64, 0, "label"}};
    }
    void expect_main(const std::string &expected) { EXPECT_EQ(expected, ops(main)); }
    void expect_startup(const std::string &expected) { EXPECT_EQ(expected, ops(startup)); }
};

TEST_F(Layers, Constants) {
    const layers::Var x = layers::fill_constant({2, 3}, DType::float32, 1.5);
    const layers::Var y = layers::fill_constant({}, DType::bool_, true);
    const layers::Var z = layers::variable("z");
    EXPECT_EQ(z.name(), layers::fill_constant({1}, DType::int64, 7, z).name());
    EXPECT_EQ("fill_constant_0", x.name());
    EXPECT_TRUE(x.program() == main);
    EXPECT_EQ(0u, x.block());
    EXPECT_EQ("tensor", x.kind());
    EXPECT_EQ(DType::float32, x.dtype());
    EXPECT_EQ((Shape{2, 3}), x.shape());
    EXPECT_EQ(0u, x.lod_levels());
    EXPECT_FALSE(x.persistable());
    EXPECT_EQ(Shape(), y.shape());
    EXPECT_EQ(DType::int64, z.dtype());
    expect_main(
        "0: fill_constant() -> fill_constant_0 {\"dims\":[2,3],\"dtype\":\"float32\",\"value\":1.5}\n"
        "0: fill_constant() -> fill_constant_1 {\"dims\":[],\"dtype\":\"bool\",\"value\":true}\n"
        "0: fill_constant() -> z {\"dims\":[1],\"dtype\":\"int64\",\"value\":7}\n");
    expect_startup("");
}

TEST_F(Layers, Variables) {
    const layers::Var image = layers::data("image", {-1, 784});
    const layers::Var words = layers::data("words", {-1}, DType::int64, 1);
    const layers::Var any = layers::variable("any");
    const layers::Var weight = layers::variable("weight", Shape{4}, DType::float32, 0, true);
    const layers::Var step = layers::create_global_var({1}, 3, DType::int64, "step");
    const layers::Var other = layers::create_global_var({1}, 4, DType::int64);
    EXPECT_EQ((Shape{-1, 784}), image.shape());
    EXPECT_EQ(DType::float32, image.dtype());
    EXPECT_EQ(1u, words.lod_levels());
    EXPECT_EQ(std::nullopt, any.shape());
    EXPECT_EQ(DType::any, any.dtype());
    EXPECT_EQ(std::nullopt, any.slots());
    EXPECT_TRUE(weight.persistable());
    EXPECT_TRUE(startup.has(0, "weight"));
    EXPECT_FALSE(startup.has(0, "image"));
    EXPECT_TRUE(step.persistable());
    EXPECT_EQ("global_var_0", other.name());
    expect_main("");
    expect_startup(
        "0: fill_constant() -> step {\"dims\":[1],\"dtype\":\"int64\",\"value\":3}\n"
        "0: fill_constant() -> global_var_0 {\"dims\":[1],\"dtype\":\"int64\",\"value\":4}\n");
    const Tuple got = run({step, "global_var_0"});
    EXPECT_EQ(3, scalar<int64_t>(got, 0));
    EXPECT_EQ(4, scalar<int64_t>(got, 1));
    EXPECT_EQ(3, scalar<int64_t>(scope.find("step").tensor()));
}

TEST_F(Layers, Arithmetic) {
    const layers::Var x = layers::fill_constant({1}, DType::int64, 1);
    const layers::Var y = layers::fill_constant({1}, DType::int64, 2);
    EXPECT_EQ(x.name(), layers::increment(x).name());
    const layers::Var more = layers::increment(x, 5, false);
    const layers::Var same = layers::assign(more);
    layers::assign(same, y);
    const layers::Var less = layers::less_than(x, y);
    layers::less_equal(x, y, less);
    layers::greater_than(x, y, less);
    layers::greater_equal(x, y, less);
    layers::equal(x, y, less);
    layers::not_equal(x, y, less);
    const layers::Var both = layers::logical_and(less, less);
    layers::logical_or(less, both, both);
    const layers::Var no = layers::logical_not(both);
    layers::print({x, y}, "numbers", 3, 2);
    layers::print(no);
    EXPECT_EQ(DType::bool_, less.dtype());
    EXPECT_EQ((Shape{1}), no.shape());
    EXPECT_EQ(DType::int64, more.dtype());
    expect_main(
        "0: fill_constant() -> fill_constant_0 {\"dims\":[1],\"dtype\":\"int64\",\"value\":1}\n"
        "0: fill_constant() -> fill_constant_1 {\"dims\":[1],\"dtype\":\"int64\",\"value\":2}\n"
        "0: increment(fill_constant_0) -> fill_constant_0 {\"step\":1}\n"
        "0: increment(fill_constant_0) -> increment_0 {\"step\":5}\n"
        "0: assign(increment_0) -> assign_0\n"
        "0: assign(assign_0) -> fill_constant_1\n"
        "0: less_than(fill_constant_0, fill_constant_1) -> less_than_0\n"
        "0: less_equal(fill_constant_0, fill_constant_1) -> less_than_0\n"
        "0: greater_than(fill_constant_0, fill_constant_1) -> less_than_0\n"
        "0: greater_equal(fill_constant_0, fill_constant_1) -> less_than_0\n"
        "0: equal(fill_constant_0, fill_constant_1) -> less_than_0\n"
        "0: not_equal(fill_constant_0, fill_constant_1) -> less_than_0\n"
        "0: logical_and(less_than_0, less_than_0) -> logical_and_0\n"
        "0: logical_or(less_than_0, logical_and_0) -> logical_and_0\n"
        "0: logical_not(logical_and_0) -> logical_not_0\n"
        "0: print(fill_constant_0, fill_constant_1) {\"first_n\":2,\"message\":\"numbers\",\"summarize\":3}\n"
        "0: print(logical_not_0) {\"first_n\":0,\"message\":\"\",\"summarize\":20}\n");
}

TEST_F(Layers, Calls) {
    const layers::Var x = layers::data("x", {-1});
    const layers::Var out = layers::variable("out");
    layers::call("f", {x}, {out});
    layers::call("f", x, x, {{"rate", 0.5}, {"sizes", {1, 2}}, {"nested", Attributes{{"a", "b"}}}});
    const std::vector<layers::Var> two = layers::call("g", {x, out}, 2);
    const auto [only] = layers::call<1>("g", {});
    layers::call("h", {}, {});
    EXPECT_EQ(2u, two.size());
    EXPECT_EQ("g_2", only.name());
    expect_main(
        "0: call(x) -> out {\"attributes\":{},\"kernel\":\"f\"}\n"
        "0: call(x) -> x "
        "{\"attributes\":{\"nested\":{\"a\":\"b\"},\"rate\":0.5,\"sizes\":[1,2]},\"kernel\":\"f\"}\n"
        "0: call(x, out) -> g_0, g_1 {\"attributes\":{},\"kernel\":\"g\"}\n"
        "0: call() -> g_2 {\"attributes\":{},\"kernel\":\"g\"}\n"
        "0: call() {\"attributes\":{},\"kernel\":\"h\"}\n");
}

TEST_F(Layers, ReadersGoToTheStartupProgram) {
    const layers::Var files =
        layers::open_files({"a.npy", "b.npy"}, OpenFiles().slots(image_and_label()).num_threads(3));
    const layers::Var random =
        layers::random_data(image_and_label(), RandomOptions().low(-1).count(10), "random");
    const layers::Var shuffled = layers::shuffle(files, 100, 7);
    const layers::Var batched = layers::batch(shuffled, 32, true);
    const layers::Var split = layers::split_batches(batched, 1, 4, Even::repeat);
    const layers::Var passes = layers::multi_pass(batched, 5);
    const layers::Var shard = layers::shard(random, 1, 3);
    const layers::Var zipped = layers::zip({passes, shard}, true);
    const layers::Var buffered = layers::double_buffer(zipped, {}, 4);
    const layers::Var numbers =
        layers::range(100, RangeOptions().shuffle(3).virtual_shards(12).rank(1).world(2).even("pad"));
    const layers::Var custom =
        layers::create_reader("create_batch_reader", random, {{"batch_size", 2}}, "custom");
    expect_startup(
        "0: open_files() -> layers.open_files_0 "
        "{\"filenames\":[\"a.npy\",\"b.npy\"],\"num_threads\":3,\"slots\":"
        "[{\"dims\":[4],\"dtype\":\"float32\",\"lod_levels\":0,\"name\":\"image\"},"
        "{\"dims\":[1],\"dtype\":\"int64\",\"lod_levels\":0,\"name\":\"label\"}]}\n"
        "0: create_random_data_generator() -> random {\"count\":10,\"low\":-1,\"slots\":"
        "[{\"dims\":[4],\"dtype\":\"float32\",\"lod_levels\":0,\"name\":\"image\"},"
        "{\"dims\":[1],\"dtype\":\"int64\",\"lod_levels\":0,\"name\":\"label\"}]}\n"
        "0: create_shuffle_reader(layers.open_files_0) -> layers.shuffle_0 {\"buffer_size\":100,\"seed\":7}\n"
        "0: create_batch_reader(layers.shuffle_0) -> layers.batch_0 {\"batch_size\":32,\"drop_last\":true}\n"
        "0: create_split_batches_reader(layers.batch_0) -> layers.split_batches_0 "
        "{\"even\":\"repeat\",\"rank\":1,\"world\":4}\n"
        "0: create_multi_pass_reader(layers.batch_0) -> layers.multi_pass_0 {\"pass_num\":5}\n"
        "0: create_shard_reader(random) -> layers.shard_0 {\"rank\":1,\"world\":3}\n"
        "0: create_zip_reader(layers.multi_pass_0, layers.shard_0) -> layers.zip_0 {\"strict\":true}\n"
        "0: create_double_buffer_reader(layers.zip_0) -> layers.double_buffer_0 "
        "{\"depth\":4,\"place\":{\"device\":0,\"kind\":0}}\n"
        "0: create_range_reader() -> layers.range_0 {\"count\":100,\"even\":\"pad\",\"rank\":1,\"shuffle\":3,"
        "\"virtual_shards\":12,\"world\":2}\n"
        "0: create_batch_reader(random) -> custom {\"batch_size\":2}\n");
    expect_main("");
    for (const layers::Var &reader :
         {files, random, shuffled, batched, split, passes, shard, zipped, buffered, numbers, custom}) {
        EXPECT_EQ("reader", reader.kind());
        EXPECT_TRUE(reader.persistable());
        EXPECT_TRUE(reader.program() == main);
        EXPECT_TRUE(startup.has(0, reader.name()));
        EXPECT_EQ(startup.variable(0, reader.name()), reader.json());
    }
    const auto slots = files.slots().value();
    ASSERT_EQ(2u, slots.size());
    EXPECT_EQ("label", slots[1].name);
    EXPECT_EQ(DType::int64, slots[1].dtype);
    EXPECT_EQ((Shape{1}), slots[1].shape);
}

TEST_F(Layers, ReadersOfQueues) {
    const auto [reader, queue] =
        layers::py_array_reader(4, {{{-1, 4}, DType::float32}, {{-1}, DType::any, 1}}, CPUPlace(), {}, scope);
    const auto [named, other] = layers::py_array_reader({2, {{{1}, DType::int64}}}, "numbers", scope);
    expect_startup(
        "0: create_py_array_reader() -> layers.py_array_reader_0 "
        "{\"feeder_name\":\"py_array_feed_queue_0\"}\n"
        "0: create_py_array_reader() -> numbers {\"feeder_name\":\"numbers_feeder\"}\n");
    EXPECT_EQ(4u, queue.capacity());
    EXPECT_EQ(VarKind::queue, scope.find("py_array_feed_queue_0").kind());
    const auto slots = reader.slots().value();
    ASSERT_EQ(2u, slots.size());
    EXPECT_EQ((Shape{-1, 4}), slots[0].shape);
    EXPECT_EQ(DType::float32, slots[0].dtype);
    EXPECT_EQ(1u, slots[1].lod_levels);

    const std::vector<layers::Var> outs = layers::read_file(named);
    push_number(other, 7);
    EXPECT_EQ(7, scalar<int64_t>(run({outs[0]})));
    // The scope has a feeder of that name already.
    EXPECT_ERROR(StateError, -1, layers::py_array_reader({2, {{{1}, DType::int64}}}, "numbers", scope),
                 "made already");
    EXPECT_EQ(VarKind::queue, scope.find("numbers_feeder").kind());
}

// If the reader is refused, its queue is removed again.
TEST_F(Layers, AQueueWithoutAReader) {
    layers::variable("taken", {}, DType::any, 0, true);
    EXPECT_ERROR(StateError, -1, layers::py_array_reader({2, {{{1}, DType::int64}}}, "taken", scope),
                 "taken");
    EXPECT_FALSE(scope.has("taken_feeder"));
    EXPECT_ERROR(InvalidArgument, -1, layers::py_array_reader({0, {{{1}, DType::int64}}}, "none", scope),
                 "capacity");
    EXPECT_FALSE(scope.has("none_feeder"));
}

TEST_F(Layers, Reading) {
    const layers::Var reader = layers::random_data(image_and_label());
    const std::vector<layers::Var> outs = layers::read_file(reader);
    ASSERT_EQ(2u, outs.size());
    EXPECT_EQ((Shape{4}), outs[0].shape());
    EXPECT_EQ(DType::int64, outs[1].dtype());
    const auto [image, label] = layers::read_file<2>(reader);
    EXPECT_EQ((Shape{4}), image.shape());
    layers::variable("first");
    layers::read_file(reader, {"first", "second"});
    layers::reset(reader);
    const layers::Var more = layers::has_next(reader);
    layers::has_next(reader, more);
    EXPECT_EQ(Shape(), more.shape());
    EXPECT_EQ(DType::bool_, more.dtype());
    expect_main(
        "0: read(layers.random_data_0) -> image_0, label_0\n"
        "0: read(layers.random_data_0) -> slot_0, slot_1\n"
        "0: read(layers.random_data_0) -> first, second\n"
        "0: reset(layers.random_data_0)\n"
        "0: has_next(layers.random_data_0) -> has_next_0\n"
        "0: has_next(layers.random_data_0) -> has_next_0\n");
    EXPECT_EQ((Shape{1}), run({label}).at(0).shape());
}

TEST_F(Layers, WhatAReaderDeliversMayNotBeKnown) {
    numbers(2);
    const layers::Var reader =
        layers::create_reader("create_py_array_reader", {}, {{"feeder_name", "feeder"}}, "later");
    EXPECT_EQ(std::nullopt, reader.slots());
    EXPECT_ERROR(StateError, -1, layers::read_file(reader), "later", "read_file<2>(reader)");
    expect_main("");
}

// Slots that are not given are read from the files when the program is built, and do not change afterwards.
TEST_F(Layers, FilesThatSayWhatIsInThem) {
    const std::string name = path("a.recordio");
    const auto write = [&](const TensorView &tensor) {
        const Writer writer(name, WriterOptions().slots({{tensor.shape(), tensor.dtype()}}));
        writer.write(tensor);
        writer.close();
    };
    const int64_t two[2] = {7, 8};
    write(view(two, {2}));
    const layers::Var reader = layers::open_files({path("*.recordio")});
    const std::vector<layers::Var> outs = layers::read_file(layers::batch(reader, 1));
    ASSERT_EQ(1u, outs.size());
    EXPECT_EQ("slot_0", outs[0].name());  // the format has no names
    EXPECT_EQ((Shape{-1, 2}), outs[0].shape());
    EXPECT_EQ(DType::int64, outs[0].dtype());
    EXPECT_EQ((Shape{1, 2}), run({outs[0]})[0].shape());
    const float one = 1;
    write(view(&one, {1}));
    EXPECT_ERROR(DTypeError, 0, run({outs[0]}), "block 0, op 0: read", "a.recordio",
                 "expected int64, found float32");

    const std::string before = ops(startup);
    EXPECT_ERROR(FileError, -1, layers::open_files({path("none.recordio")}), "none.recordio");
    EXPECT_ERROR(InvalidArgument, -1, layers::open_files({store("b.raw", "x")}), "slots");
    expect_startup(before);
}

TEST_F(Layers, Staging) {
    const layers::Var x = layers::data("x", {-1, 4}), y = layers::data("y", {-1}, DType::int64);
    const layers::Stage stage = layers::staging({x, y}, 3, 1 << 20);
    const auto [a, b] = layers::unstaging<2>(stage);
    EXPECT_EQ("stage", stage.kind());
    EXPECT_EQ(2u, stage.size());
    EXPECT_EQ((Shape{-1, 4}), a.shape());
    EXPECT_EQ(DType::int64, b.dtype());
    EXPECT_EQ(2u, layers::unstaging(stage).size());
    expect_main(
        "0: stage(x, y) -> stage_0 {\"bytes_limit\":1048576,\"capacity\":3}\n"
        "0: unstage(stage_0) -> x_0, y_0 {\"bytes_limit\":1048576,\"capacity\":3}\n"
        "0: unstage(stage_0) -> x_1, y_1 {\"bytes_limit\":1048576,\"capacity\":3}\n");
    EXPECT_ERROR(SlotCountError, -1, layers::unstaging<3>(stage), "expected 2", "found 3");
}

// ---- Blocks ----

TEST_F(Layers, AWhileInBothForms) {
    const layers::Var i = layers::fill_constant({1}, DType::int64, 0),
                      n = layers::fill_constant({1}, DType::int64, 3);
    const layers::Var go = layers::less_than(i, n);
    const std::string before = ops(main);
    layers::While loop(go);
    {
        auto block = loop.block();
        layers::increment(i);
        layers::less_than(i, n, go);
        EXPECT_EQ(1u, layers::has_next(layers::random_data(image_and_label())).block());
    }
    layers::While(go, [&] { layers::increment(i); });
    layers::assign(i);
    expect_main(before +
                "0: while(less_than_0) {\"block\":1}\n"
                "0: while(less_than_0) {\"block\":2}\n"
                "0: assign(fill_constant_0) -> assign_0\n"
                "1: increment(fill_constant_0) -> fill_constant_0 {\"step\":1}\n"
                "1: less_than(fill_constant_0, fill_constant_1) -> less_than_0\n"
                "1: has_next(layers.random_data_0) -> has_next_0\n"
                "2: increment(fill_constant_0) -> fill_constant_0 {\"step\":1}\n");
    EXPECT_ERROR(StateError, -1, loop.block(), "its block already");
}

TEST_F(Layers, AnIfElseInAllForms) {
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true);
    const layers::Var i = layers::fill_constant({}, DType::int64, 0);
    const std::string before = ops(main);
    layers::IfElse both(yes);
    {
        auto block = both.true_block();
        layers::increment(i, 1);
    }
    {
        auto block = both.false_block();
        layers::increment(i, 2);
    }
    layers::IfElse one(yes);
    {
        auto block = one.true_block();
        layers::increment(i, 3);
    }
    layers::assign(i);  // an operator after the IfElse
    layers::IfElse other(yes);
    {
        auto block = other.false_block();
        layers::increment(i, 4);
    }
    layers::IfElse(yes, [&] { layers::increment(i, 5); });
    layers::IfElse(yes, [&] { layers::increment(i, 6); }, [&] { layers::increment(i, 7); });
    {
        layers::IfElse last(yes);
        auto block = last.true_block();
        layers::increment(i, 8);
    }
    layers::IfElse unused(yes);
    const auto increment = [](int block, int step) {
        return std::to_string(block) +
               ": increment(fill_constant_1) -> fill_constant_1 {\"step\":" + std::to_string(step) + "}\n";
    };
    std::string expected = before +
                           "0: if_else(fill_constant_0) {\"false_block\":2,\"true_block\":1}\n"
                           "0: if_else(fill_constant_0) {\"true_block\":3}\n"
                           "0: assign(fill_constant_1) -> assign_0\n"
                           "0: if_else(fill_constant_0) {\"false_block\":4}\n"
                           "0: if_else(fill_constant_0) {\"true_block\":5}\n"
                           "0: if_else(fill_constant_0) {\"false_block\":7,\"true_block\":6}\n"
                           "0: if_else(fill_constant_0) {\"true_block\":8}\n";
    for (int step = 1; step <= 8; step++) expected += increment(step, step);
    expect_main(expected);
    EXPECT_ERROR(StateError, -1, both.true_block(), "true_block already");
    EXPECT_ERROR(StateError, -1, one.false_block(), "right after the other block");
    EXPECT_EQ(1 + 3 + 5 + 6 + 8, scalar<int64_t>(run({i})));
}

// An IfElse that may still get another block is added to the program before the program is used.
TEST_F(Layers, ProgramsHaveWhatIsBeforeTheirUse) {
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true);
    const layers::Var i = layers::fill_constant({}, DType::int64, 0);
    const auto add = [&](layers::IfElse &branch) {
        auto block = branch.true_block();
        layers::increment(i);
    };
    layers::IfElse a(yes), b(yes), c(yes), d(yes), e(yes);
    add(a);
    EXPECT_EQ(1, scalar<int64_t>(run({i})));
    add(b);
    EXPECT_EQ(2, scalar<int64_t>(executor.run(Program::parse(main.serialize()), scope, {}, {i})));
    add(c);
    EXPECT_EQ(3, scalar<int64_t>(executor.run(main.clone(), scope, {}, {i})));
    add(d);
    main.save(path("p.json"));
    EXPECT_EQ(4, scalar<int64_t>(executor.run(Program::load(path("p.json")), scope, {}, {i})));
    add(e);
    program_guard(startup, startup, [&] {});
    EXPECT_EQ(5, scalar<int64_t>(executor.run(main, scope, {}, {i})));
}

TEST_F(Layers, BlocksNest) {
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true);
    layers::While(yes, [&] {
        layers::IfElse(
            yes, [&] { layers::While(yes, [&] { EXPECT_EQ(3u, layers::assign(yes).block()); }); },
            [&] { EXPECT_EQ(4u, layers::assign(yes).block()); });
        layers::IfElse branch(yes);
        {
            auto block = branch.true_block();
            EXPECT_EQ(5u, layers::assign(yes).block());
        }
    });
    EXPECT_EQ(0u, layers::assign(yes).block());
    expect_main(
        "0: fill_constant() -> fill_constant_0 {\"dims\":[],\"dtype\":\"bool\",\"value\":true}\n"
        "0: while(fill_constant_0) {\"block\":1}\n"
        "0: assign(fill_constant_0) -> assign_3\n"
        "1: if_else(fill_constant_0) {\"false_block\":4,\"true_block\":2}\n"
        "1: if_else(fill_constant_0) {\"true_block\":5}\n"
        "2: while(fill_constant_0) {\"block\":3}\n"
        "3: assign(fill_constant_0) -> assign_0\n"
        "4: assign(fill_constant_0) -> assign_1\n"
        "5: assign(fill_constant_0) -> assign_2\n");
}

struct Stop : std::exception {};

// If the body of a While or IfElse throws, the caller gets the exception, the operator is not added, and later
// operators go to the outer block.
TEST_F(Layers, ExceptionsInBlocks) {
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true);
    const layers::Var i = layers::fill_constant({}, DType::int64, 0);
    const std::string before = ops(main);
    const auto thrower = [&] {
        layers::increment(i);
        throw Stop();
    };
    EXPECT_THROW(layers::While(yes, thrower), Stop);
    EXPECT_THROW(layers::IfElse(yes, thrower), Stop);
    EXPECT_THROW(layers::IfElse(yes, thrower, [] {}), Stop);
    EXPECT_THROW(layers::IfElse(yes, [] {}, thrower), Stop);
    EXPECT_THROW(layers::While(yes, [&] { layers::IfElse(yes, [&] { layers::While(yes, thrower); }); }),
                 Stop);
    layers::While loop(yes);
    EXPECT_THROW(
        {
            auto block = loop.block();
            thrower();
        },
        Stop);
    layers::IfElse branch(yes);
    EXPECT_THROW(
        {
            auto block = branch.true_block();
            thrower();
        },
        Stop);
    EXPECT_THROW(
        {
            layers::IfElse lost(yes);
            {
                auto block = lost.true_block();
            }
            throw Stop();
        },
        Stop);
    EXPECT_EQ(before, ops(main).substr(0, before.size()));
    EXPECT_EQ(std::string::npos, ops(main).find("while"));
    EXPECT_EQ(std::string::npos, ops(main).find("if_else"));
    EXPECT_EQ(0u, layers::assign(yes).block());
    // A destructor that runs during stack unwinding can build too.
    struct Builder {
        ~Builder() {
            layers::While(on, [] {});
        }
        layers::Var on;
    };
    EXPECT_THROW(
        {
            const Builder builder{yes};
            throw Stop();
        },
        Stop);
    EXPECT_NE(std::string::npos, ops(main).find("while"));
    // Blocks that belong to no operator do not matter.
    EXPECT_EQ(ops(main), ops(Program::parse(main.clone().serialize())));
}

// The operator of a block is checked, and refused, at the end of the block.
TEST_F(Layers, RefusedAtTheEndOfABlock) {
    const layers::Var number = layers::fill_constant({}, DType::int64, 0);
    bool reached = false;
    EXPECT_ERROR(DTypeError, -1, layers::While(number, [&] { reached = true; }), "expected bool, found int64",
                 "while");
    EXPECT_TRUE(reached);
    EXPECT_ERROR(DTypeError, -1, layers::IfElse(number, [] {}), "if_else");
    EXPECT_ERROR(DTypeError, -1, layers::IfElse(number, [] {}, [] {}), "if_else");
    EXPECT_EQ(0u, layers::assign(number).block());
}

TEST_F(Layers, BlocksInOtherPlaces) {
    const layers::Var yes = layers::fill_constant({}, DType::bool_, true);
    layers::While loop(yes);
    layers::IfElse branch(yes);
    layers::While(yes, [&] {
        EXPECT_ERROR(StateError, -1, loop.block(), "begin in block 0", "found block 1");
        EXPECT_ERROR(StateError, -1, branch.true_block(), "begin in block 0", "found block 1");
        program_guard(startup, startup,
                      [&] { EXPECT_ERROR(StateError, -1, loop.block(), "another program"); });
    });
    {
        auto block = loop.block();
    }
    expect_main(
        "0: fill_constant() -> fill_constant_0 {\"dims\":[],\"dtype\":\"bool\",\"value\":true}\n"
        "0: while(fill_constant_0) {\"block\":1}\n"
        "0: while(fill_constant_0) {\"block\":2}\n");
}

TEST_F(Layers, MistakesAreNotAdded) {
    const layers::Var x = layers::data("x", {2, 3}), y = layers::data("y", {4}),
                      n = layers::data("n", {1}, DType::int64);
    const layers::Var reader = layers::random_data(image_and_label());
    const layers::Var weight = layers::variable("weight", {}, DType::any, 0, true);
    const std::string before = ops(main);
    EXPECT_ERROR(StateError, -1, layers::data("x", {1}), "\"x\"", "block 0");
    EXPECT_ERROR(DTypeError, -1, layers::less_than(x, n), "float32", "int64", "layers_test.cpp:");
    EXPECT_ERROR(ShapeError, -1, layers::less_than(x, y), "(2, 3)", "(4,)");
    EXPECT_ERROR(DTypeError, -1, layers::logical_not(x), "bool");
    EXPECT_ERROR(InvalidArgument, -1, layers::increment(reader), "layers.random_data_0", "reader");
    EXPECT_ERROR(InvalidArgument, -1, layers::has_next(x), "expected a reader");
    EXPECT_ERROR(SlotCountError, -1, layers::read_file<3>(reader), "2", "3");
    EXPECT_ERROR(DTypeError, 0, layers::read_file(reader, {"n", "other"}), "\"n\"");
    EXPECT_ERROR(DTypeError, -1, layers::fill_constant({1}, DType::int8, 1000), "int8", "1000");
    EXPECT_ERROR(DTypeError, -1, layers::fill_constant({1}, DType::any, 1), "any");
    EXPECT_ERROR(ShapeError, -1, layers::fill_constant({-1}, DType::int8, 1), "-1");
    EXPECT_ERROR(InvalidArgument, -1, layers::print({x}, "", -1), "summarize");
    EXPECT_ERROR(InvalidArgument, -1, layers::call("", {x}, {}), "kernel");
    EXPECT_ERROR(InvalidArgument, -1, layers::staging({x}, 0), "capacity");
    EXPECT_ERROR(SlotCountError, -1, layers::staging({}), "1 or more");
    EXPECT_ERROR(InvalidArgument, -1, layers::batch(reader, 0), "batch_size");
    EXPECT_ERROR(InvalidArgument, -1, layers::batch(weight, 2), "expected a reader", "weight");
    EXPECT_ERROR(InvalidArgument, -1, layers::batch(x, 2), "\"x\"", "another program");
    EXPECT_ERROR(InvalidArgument, -1, layers::create_reader("create_batch_reader", reader, {{"size", 2}}),
                 "batch_size");
    EXPECT_ERROR(NotFoundError, -1, layers::create_reader("create_reader", reader), "create_reader");
    // Variables of another program.
    Program elsewhere;
    program_guard(elsewhere, startup, [&] {
        EXPECT_ERROR(InvalidArgument, -1, layers::increment(x), "\"x\"", "or a persistable one",
                     "another program");
        EXPECT_ERROR(InvalidArgument, -1, layers::assign(weight, x), "\"x\"");
        EXPECT_ERROR(InvalidArgument, -1, layers::While(x, [] {}), "\"x\"");
    });
    EXPECT_EQ(before, ops(main));
    EXPECT_EQ("", ops(elsewhere));
}

// A program uses a reader that is in the scope already. Its function could not be saved with a program.
TEST_F(Layers, ReadersThatAreThere) {
    const Reader numbers = read_numbers("numbers", range(0, 6));
    const Reader doubled = numbers.map(
        [](const Tuple &in, const Emit &emit) {
            const int64_t twice = 2 * number(in);
            emit({view(&twice, {1})});
        },
        2);
    const layers::Var reader = layers::reader(doubled);
    EXPECT_EQ(reader.name(), layers::reader(doubled).name());
    const std::vector<layers::Var> outs = layers::read_file(layers::batch(reader, 3));
    ASSERT_EQ(1u, outs.size());
    EXPECT_EQ((Shape{-1, 1}), outs[0].shape());
    executor.run(startup, scope);
    for (const Numbers &expected : {Numbers{0, 2, 4}, Numbers{6, 8, 10}})
        EXPECT_EQ(expected, values<int64_t>(executor.run(main, scope, {}, outs, kStuck)[0]));
    EXPECT_ERROR(EndOfData, -1, executor.run(main, scope, {}, {}, kStuck), "layers.batch_0");
}

// Readers and other persistable variables can be used by all programs that run in their scope.
TEST_F(Layers, VariablesOfAnotherProgram) {
    const layers::Var reader = layers::random_data({{{1}, DType::int64}}, RandomOptions().count(10));
    const layers::Var total = layers::create_global_var({1}, 5, DType::int64);
    const Program test, other_startup;
    {
        const auto inner = program_guard(test, other_startup);
        layers::increment(total);
        layers::read_file(layers::batch(reader, 4));
        EXPECT_TRUE(test.has(0, total.name()));
        EXPECT_TRUE(other_startup.has(0, reader.name()));
        EXPECT_EQ((Shape{1}), layers::Var(test, 0, total.name()).shape());
    }
    executor.run(startup, scope);
    executor.run(other_startup, scope);
    EXPECT_EQ(6, number(executor.run(test, scope, {}, {total}, kStuck)));
    EXPECT_EQ(7, number(executor.run(test, scope, {}, {total}, kStuck)));
    EXPECT_EQ(7, number(scope.find(total.name()).tensor()));
}

// Generated names differ from all names that the program has already, for instance because it was loaded.
TEST_F(Layers, NamesThatAreTaken) {
    layers::variable("assign_0");
    layers::variable("assign_2", {}, DType::any, 0, true);
    const layers::Var x = layers::data("x", {1});
    EXPECT_EQ("assign_1", layers::assign(x).name());
    EXPECT_EQ("assign_3", layers::assign(x).name());
}

TEST_F(Layers, OneProgramForBoth) {
    const Program only;
    const auto inner = program_guard(only, only);
    const layers::Var reader =
        layers::batch(layers::random_data({{{1}, DType::int64}}, RandomOptions().count(4)), 4);
    const layers::Var x = layers::create_global_var({1}, 1, DType::int64);
    const auto [numbers] = layers::read_file<1>(reader);
    const Tuple got = executor.run(only, scope, {}, {numbers, x}, kStuck);
    EXPECT_EQ((Shape{4, 1}), got[0].shape());
}

TEST_F(Layers, WhereAnOperatorWasBuilt) {
    const layers::Var x = layers::data("x", {1}, DType::int64);
    const int line = __LINE__ + 1;
    layers::call("no such kernel", {x}, {});
    EXPECT_NE(std::string::npos, main.to_json().find("layers_test.cpp:" + std::to_string(line) + "\""));
    const int64_t one = 1;
    EXPECT_ERROR(NotFoundError, -1, executor.run(main, scope, {{x, view(&one, {1})}}), "no such kernel",
                 "layers_test.cpp:" + std::to_string(line));
}

}  // namespace

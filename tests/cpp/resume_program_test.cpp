// Exact resume of programs: the operators save_reader and load_reader.
#include <algorithm>

#include "programs.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// A training program: reads batches until the data end, and calls the kernel "train" for each, with the position of the
// reader behind it. It begins at the position that it is fed.
class Resume : public Programs {
protected:
    Resume() {
        for (int file = 0; file < 4; file++) {
            files.push_back(path("part-" + std::to_string(file) + ".recordio"));
            const Writer writer(files.back(), WriterOptions().slots(number_slots()));
            for (int64_t n = 0; n < 11 + 6 * file; n++) {
                const int64_t number = 100 * file + n;
                writer.write({view(&number, {1})});
            }
            writer.close();
        }
    }
    layers::Var chain(uint64_t seed, int num_threads = 2) const {
        const OpenFiles options = OpenFiles().slots(number_slots()).interleave(2).num_threads(num_threads);
        const layers::Var shuffled = layers::shuffle(layers::open_files(files, options), 20, seed);
        return layers::double_buffer(layers::multi_pass(layers::batch(shuffled, 3), 2), {}, 2, "batches");
    }
    void build(uint64_t seed, int num_threads = 2) {
        const layers::Var batches = chain(seed, num_threads);
        layers::load_reader(layers::data("saved", {-1}, DType::uint8), batches);
        const layers::Var weight = layers::create_global_var({}, 0, DType::int64, "weight");
        const layers::Var go_on = layers::has_next(batches);
        layers::While(go_on, [&] {
            const auto [x] = layers::read_file<1>(batches);
            const layers::Var state = layers::save_reader(batches);
            layers::call("train", {x, weight, state}, {weight});
            layers::has_next(batches, go_on);
        });
    }
    struct Step {
        int64_t weight;
        std::string state;
    };
    // The kernel "train": its result depends on all numbers so far and on their order.
    RegisteredKernel recording(std::vector<Step> &steps, size_t stop_after = 1000000) const {
        return register_kernel("train", [&steps, stop_after](KernelContext &call) {
            if (steps.size() == stop_after) throw std::runtime_error("killed");
            int64_t *weight = call.out(0).mutable_data<int64_t>();
            for (const int64_t n : call.in(0).values<int64_t>()) *weight = (*weight * 31 + n) % 1000000007;
            const TensorView state = call.in(2);
            steps.push_back({*weight, {static_cast<const char *>(state.data()), state.nbytes()}});
        });
    }
    // Borrows the text.
    static TensorView bytes(const std::string &text) {
        return view(reinterpret_cast<const uint8_t *>(text.data()), {static_cast<int64_t>(text.size())});
    }

    std::vector<std::string> files;
};

TEST_F(Resume, ATrainingProgramAtEveryStep) {
    build(5);
    std::vector<Step> steps;
    {
        const RegisteredKernel kernel = recording(steps);
        executor.run(startup, scope);
        executor.run(main, scope, {{"saved", bytes("")}}, {}, kStuck);
    }
    ASSERT_EQ(54u, steps.size());  // two passes over 80 numbers
    // The programs of another process, which reads with other numbers of threads.
    Program other_main, other_startup;
    {
        const ProgramGuard guard(other_main, other_startup);
        const unique_name::Guard names;
        build(5, 4);
    }
    const Program first = Program::parse(other_startup.serialize()),
                  loop = Program::parse(other_main.serialize());
    for (size_t at = 0; at < steps.size(); at++) {
        EXPECT_GE(1024u, steps[at].state.size());
        const Scope in;
        executor.run(first, in);
        in.var("weight").set(view(&steps[at].weight, {}));
        std::vector<Step> resumed;
        const RegisteredKernel kernel = recording(resumed);
        executor.run(loop, in, {{"saved", bytes(steps[at].state)}}, {}, kStuck);
        ASSERT_EQ(steps.size() - at - 1, resumed.size());
        for (size_t i = 0; i < resumed.size(); i++)
            ASSERT_EQ(steps[at + 1 + i].weight, resumed[i].weight) << at;
        EXPECT_EQ(steps.back().weight, scalar<int64_t>(in.find("weight").tensor()));
    }
}

// A program that fails in the middle, whose next run goes on from the last state.
TEST_F(Resume, ARunThatFailed) {
    build(5);
    std::vector<Step> whole;
    {
        const RegisteredKernel kernel = recording(whole);
        executor.run(startup, scope);
        executor.run(main, scope, {{"saved", bytes("")}}, {}, kStuck);
    }
    const Scope in;
    executor.run(startup, in);
    Step last{0, ""};
    size_t done = 0;
    for (const size_t stop_after : {1u, 0u, 9u, 17u, 100u}) {
        std::vector<Step> steps;
        const RegisteredKernel kernel = recording(steps, stop_after);
        in.var("weight").set(view(&last.weight, {}));
        try {
            executor.run(main, in, {{"saved", bytes(last.state)}}, {}, kStuck);
        } catch (const ProducerError &e) {
            EXPECT_EQ("killed", e.message());
        }
        done += steps.size();
        if (!steps.empty()) last = steps.back();
    }
    EXPECT_EQ(whole.size(), done);
    EXPECT_EQ(whole.back().weight, last.weight);
}

TEST_F(Resume, TheTensorIsTheStateOfTheReader) {
    const layers::Var batches = chain(3);
    const auto [x] = layers::read_file<1>(batches);
    const layers::Var state = layers::save_reader(batches);
    EXPECT_EQ(DType::uint8, state.dtype());
    EXPECT_EQ((Shape{-1}), state.shape());
    EXPECT_EQ("0: read(batches) -> " + x.name() + "\n0: save_reader(batches) -> " + state.name() + "\n",
              ops(main));
    const Tuple got = run({state});
    const Reader reader = scope.find("batches").reader();
    EXPECT_EQ(reader.state(), std::string(static_cast<const char *>(got[0].data()), got[0].nbytes()));
    EXPECT_EQ("1", member(reader.state(), "n"));
}

// A state of Reader::state is loaded by a program, into a variable that outlives the run.
TEST_F(Resume, AStateOfTheHost) {
    const layers::Var batches = chain(3);
    const layers::Var state = layers::variable("state", Shape{-1}, DType::uint8, 0, true);
    layers::load_reader(state, batches);
    const auto [x] = layers::read_file<1>(batches);
    layers::save_reader(batches, state);
    executor.run(startup, scope);
    const Reader reader = scope.find("batches").reader();
    std::vector<Numbers> expected;
    std::string middle;
    for (Tuple &tuple : reader.tuples(kStuck)) {
        expected.push_back(values<int64_t>(tuple[0]));
        if (expected.size() == 30) middle = reader.state();
    }
    ASSERT_EQ(54u, expected.size());
    scope.var("state").set(bytes(middle));
    for (size_t i = 30; i < expected.size(); i++)
        ASSERT_EQ(expected[i], values<int64_t>(executor.run(main, scope, {}, {x}, kStuck)[0])) << i;
    EXPECT_ERROR(EndOfData, -1, executor.run(main, scope, {}, {x}, kStuck), "");
    EXPECT_ERROR(EndOfData, -1, executor.run(main, scope, {}, {x}, kStuck), "");
}

TEST_F(Resume, Refusals) {
    build(5);
    std::vector<Step> steps;
    const RegisteredKernel kernel = recording(steps);
    EXPECT_ERROR(StateError, -1, executor.run(main, scope, {{"saved", bytes("")}}), "load_reader",
                 "\"batches\"", "found none");
    executor.run(startup, scope);
    const auto refused = [&](const Program &program, const std::string &state) {
        std::pair<std::string, std::string> out;
        try {
            executor.run(program, scope, {{"saved", bytes(state)}}, {}, kStuck);
            ADD_FAILURE() << "nothing was thrown: " << state;
        } catch (const Error &e) {
            EXPECT_EQ(0u, e.op().rfind("block 0, op 0: load_reader", 0)) << e.op();
            out = {pf_status_name(e.status()), e.what()};
        }
        return out;
    };
    EXPECT_EQ("PF_INVALID", refused(main, "{}").first);
    EXPECT_EQ("PF_INVALID", refused(main, std::string(1, '\0')).first);
    EXPECT_EQ("PF_INVALID", refused(main, "{\"v\":2}").first);
    EXPECT_TRUE(steps.empty());
    const int64_t number = 7;
    EXPECT_ERROR(DTypeError, 0, executor.run(main, scope, {{"saved", view(&number, {1})}}), "uint8");

    executor.run(main, scope, {{"saved", bytes("")}}, {}, kStuck);
    const std::string state = steps[10].state;
    EXPECT_EQ("PF_INVALID", refused(main, state.substr(0, state.size() - 1)).first);
    EXPECT_EQ("PF_INVALID", refused(main, state + '\0').first);

    // Another seed is refused, unless the operator is not strict.
    Program other_main, other_startup;
    {
        const ProgramGuard guard(other_main, other_startup);
        const unique_name::Guard names;
        const layers::Var batches = chain(6);
        const layers::Var saved = layers::data("saved", {-1}, DType::uint8);
        layers::load_reader(saved, batches);
        executor.run(other_startup, scope);
        const auto [status, message] = refused(other_main, state);
        EXPECT_EQ("PF_STATE", status);
        EXPECT_NE(std::string::npos,
                  message.find("shuffle: seed: expected 5, as when it was saved, found 6"));
    }
    Program lax, none;
    {
        const ProgramGuard guard(lax, none);
        layers::load_reader(layers::data("saved", {-1}, DType::uint8),
                            layers::reader(scope.find("batches").reader()), false);
    }
    executor.run(lax, scope, {{"saved", bytes(state)}});
    EXPECT_EQ("11", member(scope.find("batches").reader().state(), "n"));
}

// Each operator saves the reader that it names, also if the program reads none of them or others.
TEST_F(Resume, SeveralReaders) {
    const layers::Var one = layers::open_files({files[0]}, OpenFiles().slots(number_slots()), "one"),
                      two = layers::open_files({files[1]}, OpenFiles().slots(number_slots()), "two");
    const layers::Var first = layers::save_reader(two), second = layers::save_reader(one);
    const auto [x] = layers::read_file<1>(one);
    const layers::Var third = layers::save_reader(two), fourth = layers::save_reader(one);
    layers::load_reader(third, two);
    layers::load_reader(second, one);
    const auto [y] = layers::read_file<1>(two);
    const auto [z] = layers::read_file<1>(one);
    const Tuple got = run({first, second, third, fourth, x, y, z});
    const auto state = [&](size_t slot) {
        return std::string(static_cast<const char *>(got[slot].data()), got[slot].nbytes());
    };
    EXPECT_EQ("0", member(state(0), "n"));
    EXPECT_EQ(state(0), state(2));
    EXPECT_NE(state(0), state(1));
    EXPECT_EQ("0", member(state(1), "n"));
    EXPECT_EQ("1", member(state(3), "n"));
    EXPECT_EQ(0, scalar<int64_t>(got, 4));
    EXPECT_EQ(100, scalar<int64_t>(got, 5));
    EXPECT_EQ(0, scalar<int64_t>(got, 6));
}

TEST_F(Resume, APositionThatIsNotKnown) {
    const layers::Var reader =
        layers::open_files(files, OpenFiles().slots(number_slots()).ordered(false), "files");
    layers::save_reader(reader);
    try {
        run();
        FAIL() << "nothing was thrown";
    } catch (const StateError &e) {
        EXPECT_NE(nullptr, std::strstr(e.what(), "expected ordered=True")) << e.what();
        EXPECT_EQ(0u, e.op().rfind("block 0, op 0: save_reader", 0)) << e.op();
        EXPECT_NE(nullptr, std::strstr(e.what(), "resume_program_test.cpp:")) << e.what();
    }
    const layers::Var tensor = layers::fill_constant({1}, DType::uint8, 1);
    EXPECT_ERROR(InvalidArgument, -1, layers::save_reader(tensor), "reader");
    EXPECT_ERROR(InvalidArgument, -1, layers::load_reader(tensor, tensor), "reader");
}

}  // namespace

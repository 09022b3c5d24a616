// Exact resume: Reader::state and Reader::load_state, and what they need of queues and of functions of map.
#include <mutex>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// The dims and the numbers of all slots of a tuple; empty for the end of a pass.
Numbers contents(const std::optional<Tuple> &tuple) {
    Numbers out;
    if (!tuple) return out;
    for (const TensorView slot : *tuple) {
        for (const int64_t dim : slot.shape()) out.push_back(dim);
        for (const int64_t n : slot.values<int64_t>()) out.push_back(n);
    }
    return out;
}

// Makes a chain of readers in a scope. The variants of a chain deliver the same tuples with other numbers of threads.
using Chain = std::function<Reader(const Scope &scope, int variant)>;

class ResumeTest : public Files {
protected:
    // Files of consecutive numbers, with their numbers of instances.
    std::vector<std::string> store_files(const std::string &suffix, const Numbers &lengths) {
        std::vector<std::string> paths;
        int64_t first = 0;
        for (const int64_t length : lengths) {
            paths.push_back(path(std::to_string(100 + paths.size()) + suffix));
            WriterOptions options = WriterOptions().slots(number_slots());
            if (suffix == ".recordio") options.options(R"({"records_per_chunk": 3})");
            const Writer writer(paths.back(), options);
            for (const int64_t n : range(first, first + length)) writer.write({view(&n, {1})});
            writer.close();
            first += length;
        }
        return paths;
    }
    Reader open(const Scope &in, const std::vector<std::string> &paths, int variant,
                const OpenFiles &options = OpenFiles().interleave(3)) const {
        return open_files(in, "files", paths,
                          OpenFiles(options).slots(number_slots()).num_threads(1 + variant % 4));
    }
    // Compares what a chain delivers with `events`, from number `from` on. An empty event is the end of a pass.
    static void expect_rest(const Reader &reader, const std::vector<Numbers> &events, size_t from,
                            size_t at_most = 1000000) {
        for (size_t i = from; i < events.size() && i - from < at_most; i++) {
            ASSERT_EQ(events[i], contents(reader.next(kStuck)))
                << "event " << i << " of a reader at " << from;
            if (events[i].empty()) reader.reset();
        }
    }
    // Saves the state of a chain before and behind each tuple of some passes. Each state is then loaded into another
    // chain, and all that follows is compared. Three steps later, that chain is saved and resumed once more.
    static void every_step(const Chain &chain, int passes) {
        std::vector<Numbers> events;
        std::vector<std::pair<std::string, size_t>> states;  // and the number of the event that follows
        {
            const Scope one;
            const Reader reader = chain(one, 0);
            while (passes > 0) {
                if (events.size() % 3 == 1) {
                    const std::string before = reader.state();
                    reader.has_next(kStuck);
                    ASSERT_EQ(member(before, "n"), member(reader.state(), "n"));
                }
                states.emplace_back(reader.state(), events.size());
                events.push_back(contents(reader.next(kStuck)));
                if (events.back().empty()) {
                    states.emplace_back(reader.state(), events.size() - 1);
                    reader.reset();
                    passes--;
                }
            }
        }
        ASSERT_LT(10u, events.size());
        int variant = 1;
        for (const auto &[state, at] : states) {
            SCOPED_TRACE(state);
            EXPECT_GE(1024u, state.size());
            const Scope other;
            const Reader resumed = chain(other, variant++);
            if (variant % 5 == 0) {
                EXPECT_EQ(events[0], contents(resumed.next(kStuck)));
            }
            resumed.load_state(state);
            expect_rest(resumed, events, at, 3);
            if (at + 3 < events.size()) {
                const Scope third;
                const Reader again = chain(third, variant++);
                again.load_state(resumed.state());
                expect_rest(again, events, at + 3);
            }
            expect_rest(resumed, events, at + 3);
            if (HasFatalFailure()) return;
        }
    }
};

// ---- What a resumed reader delivers ----

const Numbers lengths = {7, 0, 19, 1, 30, 5, 12};

TEST_F(ResumeTest, EveryStepOfATrainingChain) {
    for (const std::string suffix : {".recordio", ".raw"}) {
        const auto paths = store_files(suffix, lengths);
        every_step(
            [&](const Scope &in, int variant) {
                return open(in, paths, variant)
                    .shuffle(30, 3)
                    .batch(4)
                    .double_buffer({}, 1 + static_cast<uint64_t>(variant) % 3)
                    .multi_pass(2);
            },
            2);
    }
}

TEST_F(ResumeTest, EveryStepOfOtherChains) {
    const auto paths = store_files(".recordio", lengths);
    const auto depth = [](int variant) { return 1 + static_cast<uint64_t>(variant) % 3; };
    every_step(
        [&](const Scope &in, int v) { return open(in, paths, v).multi_pass(2).shuffle(16, 5).batch(7); }, 2);
    every_step(
        [&](const Scope &in, int v) {
            return open(in, paths, v).shuffle(11, 1).batch(5, true).multi_pass(3).double_buffer({}, depth(v));
        },
        2);
    every_step(
        [&](const Scope &in, int v) { return open(in, paths, v, OpenFiles().shuffle_files(9)).batch(3); }, 4);
    every_step(
        [&](const Scope &in, int v) {
            return create_file_reader(in, "files", paths[4], OpenFiles().slots(number_slots()))
                .double_buffer({}, depth(v))
                .shuffle(4)
                .shard(1, 3);
        },
        3);
    every_step(
        [&](const Scope &in, int v) {
            return open(in, paths, v)
                .batch(3)
                .shuffle(4, 8)
                .multi_pass(2)
                .shard(1, 2)
                .batch(2)
                .double_buffer();
        },
        2);
    every_step(
        [&](const Scope &in, int v) {
            const Reader random =
                create_random_data_generator(in, "random", {{{2}, DType::int64}}, RandomOptions().high(99));
            return open(in, paths, v).multi_pass(2).double_buffer({}, depth(v)).zip(random).batch(6);
        },
        2);
}

TEST_F(ResumeTest, PassesWithoutEnd) {
    const auto paths = store_files(".raw", {5, 8});
    const Chain chain = [&](const Scope &in, int v) {
        return open(in, paths, v).shuffle(6, 2).multi_pass(0);
    };
    const Scope one;
    const Reader reader = chain(one, 0);
    std::vector<std::string> states;
    std::vector<Numbers> events;
    for (int i = 0; i < 13 * 300; i++) {
        states.push_back(reader.state());
        events.push_back(contents(reader.next(kStuck)));
    }
    for (size_t at = 0; at < states.size(); at += 97) {
        const Scope other;
        const Reader resumed = chain(other, 1);
        resumed.load_state(states[at]);
        expect_rest(resumed, events, at, 40);
        EXPECT_EQ(member(reader.state(), "v"), member(resumed.state(), "v"));
    }
}

// Positions far behind a reader that has read ahead, in files that are longer than the distance between two anchors.
TEST_F(ResumeTest, LongFiles) {
    const auto paths = store_files(".recordio", {9000, 20, 7000, 8000});
    const Chain chain = [&](const Scope &in, int v) {
        return open(in, paths, v).shuffle(3000, 7).batch(50).double_buffer({}, 1 + 20 * uint64_t(v % 2));
    };
    std::vector<std::pair<std::string, size_t>> states;
    std::vector<Numbers> events;
    {
        const Scope one;
        const Reader reader = chain(one, 1);
        for (bool more = true; more;) {
            if (events.size() % 17 == 0) states.emplace_back(reader.state(), events.size());
            events.push_back(contents(reader.next(kStuck)));
            more = !events.back().empty();
        }
    }
    EXPECT_EQ(482u, events.size());
    int variant = 0;
    for (const auto &[state, at] : states) {
        EXPECT_GE(1024u, state.size());
        const Scope other;
        const Reader resumed = chain(other, variant++);
        resumed.load_state(state);
        expect_rest(resumed, events, at);
    }
}

TEST_F(ResumeTest, AReaderGoesBackAndForth) {
    const auto paths = store_files(".raw", lengths);
    const Reader reader = open(scope, paths, 3).shuffle(10, 1).batch(2).double_buffer();
    std::vector<std::string> states;
    std::vector<Numbers> events;
    for (bool more = true; more;) {
        states.push_back(reader.state());
        events.push_back(contents(reader.next(kStuck)));
        more = !events.back().empty();
    }
    for (size_t i = 0; i < 4 * states.size(); i++) {
        const size_t at = (i * 23) % states.size();
        reader.load_state(states[at]);
        EXPECT_EQ(std::to_string(at), member(reader.state(), "n"));
        EXPECT_EQ(events[at], contents(reader.next(kStuck)));
    }
}

TEST_F(ResumeTest, FilesThatWereMoved) {
    const auto paths = store_files(".recordio", lengths);
    const Reader reader = open(scope, paths, 1).batch(5);
    for (int i = 0; i < 6; i++) reader.next(kStuck);
    const std::string state = reader.state();
    std::vector<Numbers> expected;
    for (Tuple &tuple : reader.tuples(kStuck)) expected.push_back(contents(tuple.share()));
    EXPECT_EQ(9u, expected.size());
    std::vector<std::string> moved;
    std::filesystem::create_directory(path("elsewhere"));
    for (const std::string &file : paths) {
        moved.push_back(path("elsewhere/" + std::filesystem::path(file).filename().string()));
        std::filesystem::rename(file, moved.back());
    }
    const Scope other;
    const Reader resumed = open(other, moved, 2).batch(5);
    resumed.load_state(state);
    expect_rest(resumed, expected, 0);
    EXPECT_FALSE(resumed.next(kStuck));
}

// ---- The form of a state ----

// The text is that of state_dict() in Python, as JSON without spaces. It depends on the chain only.
TEST_F(ResumeTest, TheText) {
    const auto make = [](const Scope &in) {
        create_random_data_generator(in, "random", number_slots(),
                                     RandomOptions().seed(5).high(9).count(100));
        return in.find("random")
            .reader()
            .shuffle(8, 18446744073709551615u)
            .shard(1, 2)
            .batch(3, true)
            .double_buffer();
    };
    const Reader reader = make(scope);
    for (int i = 0; i < 4; i++) reader.next(kStuck);
    const std::string state = reader.state();
    EXPECT_EQ(
        R"({"check":910162089,"n":4,"pass":0,"readers":[{"kind":"double_buffer"},)"
        R"({"kind":"batch","options":{"batch_size":3,"drop_last":true}},)"
        R"({"kind":"shard","options":{"rank":1,"world":2}},)"
        R"({"kind":"shuffle","options":{"buffer_size":8,"seed":18446744073709551615}},)"
        R"({"kind":"random_data","options":{"count":100,"high":"9","low":"0","seed":5,"slots":"int64[1]"}}],)"
        R"("v":1})",
        state);
    // As another program may have stored it: with spaces, and another order of members.
    std::string spaced = "\n";
    for (const char c : state.substr(0, state.rfind(",\"v\""))) {
        spaced += c;
        if (c == ',' || c == ':') spaced += " \t";
    }
    spaced = "{ \"v\" : 1," + spaced.substr(2) + "}\n";
    std::vector<Numbers> expected;
    for (Tuple &tuple : reader.tuples(kStuck)) expected.push_back(contents(tuple.share()));
    EXPECT_EQ(12u, expected.size());
    for (const std::string &text : {state, spaced}) {
        const Scope other;
        const Reader resumed = make(other);
        resumed.load_state(text);
        EXPECT_EQ(state, resumed.state());
        expect_rest(resumed, expected, 0);
        EXPECT_FALSE(resumed.next(kStuck));
    }
}

// ---- What is refused ----

TEST_F(ResumeTest, AnotherChain) {
    const auto paths = store_files(".raw", lengths);
    const auto make = [&](uint64_t seed, uint64_t batch, const OpenFiles &options, const Scope &in) {
        return open(in, paths, 1, options).shuffle(10, seed).batch(batch);
    };
    const OpenFiles three = OpenFiles().interleave(3);
    const Reader reader = make(7, 4, three, scope);
    for (int i = 0; i < 5; i++) reader.next(kStuck);
    const std::string state = reader.state();
    const auto refused = [&](const Reader &other, const std::string &words) {
        EXPECT_ERROR(StateError, -1, other.load_state(state), "the state is of another chain", words);
    };
    {
        const Scope in;
        const Reader other = make(8, 4, three, in);
        refused(other, "shuffle: seed: expected 7, as when it was saved, found 8");
        EXPECT_EQ("0", member(other.state(), "n"));
        other.load_state(state, false);  // another seed is accepted if asked for
        EXPECT_EQ("5", member(other.state(), "n"));
        EXPECT_EQ((Shape{4, 1}), other.next(kStuck)->at(0).shape());
    }
    {
        const Scope in;
        const Reader other = make(7, 5, three, in);
        refused(other, "batch: batch_size: expected 4, as when it was saved, found 5");
        EXPECT_ERROR(StateError, -1, other.load_state(state, false), "batch_size");
    }
    {
        const Scope in;
        refused(make(7, 4, OpenFiles().interleave(2), in), "open_files: interleave: expected 3");
    }
    {
        const Scope in;
        const Reader other = make(7, 4, OpenFiles().interleave(3).shuffle_files(1), in);
        refused(other, "open_files: shuffle_files");
        refused(in.find("files").reader(), "expected a reader batch in its place, found open_files");
        refused(other.double_buffer(), "expected a reader batch in its place, found double_buffer");
    }
    {
        const Scope in;
        auto fewer = paths;
        fewer.pop_back();
        refused(open(in, fewer, 1).shuffle(10, 7).batch(4), "open_files: num_files: expected ");
    }
    const Scope in;
    const Reader shorter = open(in, paths, 1).shuffle(10, 7);
    const std::string other_state = shorter.state();
    EXPECT_ERROR(StateError, -1, reader.load_state(other_state), "another chain");
    EXPECT_EQ(state, reader.state());
}

TEST_F(ResumeTest, AChangedFile) {
    const auto paths = store_files(".raw", {50, 50});
    const Reader reader = open(scope, paths, 1).batch(4);
    for (int i = 0; i < 3; i++) reader.next(kStuck);
    const std::string state = reader.state();
    store("100.raw", range(1, 52));
    const Scope other;
    const Reader resumed = open(other, paths, 1).batch(4);
    try {
        resumed.load_state(state);
        FAIL() << "nothing was thrown";
    } catch (const StateError &e) {
        EXPECT_EQ(paths[0], e.file());
        EXPECT_NE(std::string::npos, std::string(e.what()).find("expected 400 bytes, found 408")) << e.what();
    }
    EXPECT_EQ("0", member(resumed.state(), "n"));
    resumed.load_state(state, false);
    EXPECT_TRUE(resumed.next(kStuck));
}

// A state that was changed in any byte or cut anywhere is refused, and leaves the reader as it was.
TEST_F(ResumeTest, DamagedStates) {
    const auto paths = store_files(".recordio", lengths);
    const Reader reader = open(scope, paths, 1).shuffle(8, 4).batch(4).double_buffer();
    for (int i = 0; i < 7; i++) reader.next(kStuck);
    const std::string state = reader.state();
    for (size_t i = 0; i < state.size(); i++) {
        EXPECT_ERROR(InvalidArgument, -1, reader.load_state(state.substr(0, i)), "state: expected");
        for (const int bit : {0, 3, 5}) {
            std::string changed = state;
            changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
            EXPECT_ERROR(InvalidArgument, -1, reader.load_state(changed), "state: expected");
        }
    }
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(""), "a JSON object");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state("null"), "a JSON object");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state("[]"), "a JSON object");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state("{}"), "version");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state("{}", false), "version");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(state + "}"), "behind it");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(state + state), "behind it");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(std::string("\xff\xfe\x01")), "a JSON object");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(std::string(1 << 20, '[')), "a JSON object");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(std::string(17 << 20, ' ')), "at most");
    std::string later = state;
    later.replace(later.rfind("\"v\":1"), 5, "\"v\":2");
    EXPECT_ERROR(InvalidArgument, -1, reader.load_state(later), "version 1 at most, found version 2");
    EXPECT_EQ(state, reader.state());
    const Scope other;
    const Reader resumed = open(other, paths, 1).shuffle(8, 4).batch(4).double_buffer();
    resumed.load_state(state);
    EXPECT_EQ(contents(resumed.next(kStuck)), contents(reader.next(kStuck)));
}

TEST_F(ResumeTest, ByCFunctions) {
    const auto paths = store_files(".raw", {20});
    const Reader reader = open(scope, paths, 1);
    for (int64_t n = 0; n < 6; n++) EXPECT_EQ(n, next_number(reader));
    CError err;
    char junk = 0, *state = &junk;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_get_state(reader.handle() + 1000, &state, &err));
    EXPECT_EQ(nullptr, state);
    EXPECT_STATUS(PF_INVALID, pf_reader_get_state(reader.handle(), nullptr, &err));
    ASSERT_EQ(PF_OK, pf_reader_get_state(reader.handle(), &state, nullptr));
    EXPECT_EQ(reader.state(), state);
    EXPECT_EQ(6, next_number(reader));
    EXPECT_STATUS(PF_INVALID, pf_reader_set_state(reader.handle(), nullptr, 1, &err));
    EXPECT_STATUS(PF_INVALID, pf_reader_set_state(reader.handle(), "", 1, nullptr));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_set_state(reader.handle() + 1000, state, 1, &err));
    EXPECT_EQ(7, next_number(reader));
    EXPECT_STATUS(PF_OK, pf_reader_set_state(reader.handle(), state, 1, &err));
    EXPECT_EQ(6, next_number(reader));
    EXPECT_STATUS(PF_OK, pf_reader_set_state(reader.handle(), state, 255, nullptr));
    EXPECT_EQ(range(6, 20), rest(reader));
    pf_string_release(state);
}

TEST_F(ResumeTest, AnOrderThatIsNotKnown) {
    const auto paths = store_files(".raw", {20, 20});
    const Reader unordered = open(scope, paths, 2, OpenFiles().ordered(false)).batch(2);
    EXPECT_TRUE(unordered.next(kStuck));
    EXPECT_ERROR(StateError, -1, unordered.state(), "open_files: expected ordered=True");
    const Reader mapped =
        read_numbers("numbers", range(0, 9))
            .map([](const Tuple &in, const Emit &emit) { emit(in); }, 2, MapOptions().ordered(false));
    EXPECT_ERROR(StateError, -1, mapped.state(), "map: expected ordered=True");
    const Reader below = read_numbers("below", range(0, 9));
    EXPECT_EQ(0, next_number(below));
    const Reader above = below.batch(2);
    EXPECT_TRUE(above.next(kStuck));
    EXPECT_ERROR(StateError, -1, above.state(), "\"below\"", "another consumer");
    EXPECT_ERROR(StateError, -1, below.state(), "expected the topmost reader of a chain");
    above.reset();
    EXPECT_EQ("0", member(above.state(), "n"));
}

// The order of a shuffle depends on its pass. A reader above that was made later counts its own passes, from 0.
TEST_F(ResumeTest, AChainAboveAReaderThatWasReset) {
    const auto paths = store_files(".raw", lengths);
    for (const bool reads_first : {false, true}) {
        for (const uint64_t passes : {1u, 2u}) {
            const Scope one, other;
            const auto make = [&](const Reader &below) {
                return below.batch(4).multi_pass(passes).double_buffer();
            };
            const Reader below = open(one, paths, 1).shuffle(16, 3);
            below.reset();
            const Reader reader = make(below);
            if (reads_first) reader.next(kStuck);
            EXPECT_ERROR(StateError, -1, reader.state(), "\"files.shuffle\"", "was reset alone");
            reader.reset();
            reader.next(kStuck);
            const std::string state = reader.state();
            std::vector<Numbers> expected;
            for (Tuple &tuple : reader.tuples(kStuck)) expected.push_back(contents(tuple.share()));
            EXPECT_EQ(19 * passes - 1, expected.size());
            const Reader resumed = make(open(other, paths, 1).shuffle(16, 3));
            resumed.load_state(state);
            expect_rest(resumed, expected, 0);
        }
    }
}

// A reader below that goes to another position cannot be read on from above.
TEST_F(ResumeTest, AStateOfAReaderBelow) {
    const Reader below = read_numbers("below", range(0, 90));
    const std::string state = below.state();
    const Reader above = below.batch(2);
    EXPECT_TRUE(above.next(kStuck));
    below.load_state(state);
    EXPECT_ERROR(StateError, -1, above.next(kStuck), "\"below\" was reset in the middle of a pass");
    above.reset();
    EXPECT_EQ(0, next_number(above));
}

// An error of the data comes at the same place after a resume.
TEST_F(ResumeTest, AnErrorAtThePosition) {
    store("numbers.raw", range(0, 30));
    store("numbers.raw", load("numbers.raw") + "rest");
    const Chain chain = [&](const Scope &in, int v) {
        return open(in, {path("numbers.raw")}, v).batch(4).double_buffer();
    };
    const Scope one;
    const Reader reader = chain(one, 0);
    std::vector<std::string> states;
    for (int i = 0; i < 8; i++) {
        states.push_back(reader.state());
        EXPECT_EQ(4 * i, next_number(reader));
    }
    states.push_back(reader.state());
    EXPECT_ERROR(CorruptRecordError, -1, reader.next(kStuck), "numbers.raw");
    EXPECT_EQ(states.back(), reader.state());
    for (size_t at = 0; at < states.size(); at++) {
        const Scope other;
        const Reader resumed = chain(other, 1);
        resumed.load_state(states[at]);
        for (size_t i = at; i < 8; i++) EXPECT_EQ(4 * static_cast<int64_t>(i), next_number(resumed));
        EXPECT_ERROR(CorruptRecordError, -1, resumed.next(kStuck), "numbers.raw");
    }
}

// The records of a format of the program are pushed again from the beginning of each file.
TEST_F(ResumeTest, AFormatOfTheProgram) {
    const std::string suffix = "." + new_tag();
    const RegisteredFormat format = register_format(
        new_tag(), {suffix},
        [](const std::string &path, const std::string &, const Queue &queue) {
            EXPECT_EQ(0u, queue.start());
            const auto length = static_cast<int64_t>(std::filesystem::file_size(path));
            for (int64_t n = 0; n < length; n++) push_number(queue, 100 * length + n);
        },
        number_slots());
    std::vector<std::string> paths;
    for (const size_t length : {7, 30, 1, 22}) {
        paths.push_back(store(std::to_string(100 + paths.size()) + suffix, std::string(length, 'x')));
    }
    every_step([&](const Scope &in, int v) { return open(in, paths, v).shuffle(9, 1).batch(4); }, 2);
}

// ---- Loops, as `for` in Python ----

TEST_F(ResumeTest, LoopsOverAResumedReader) {
    store("n.raw", range(0, 9));
    const auto make = [&](const Scope &in) { return open(in, {path("n.raw")}, 1).shuffle(5, 2); };
    CError err;
    const auto loop_over = [&](const Reader &reader) {
        uint64_t loop = 0;
        EXPECT_STATUS(PF_OK, pf_reader_begin_loop(reader.handle(), 0, &loop, &err));
        Numbers out;
        pf_tuple tuple = PF_TUPLE_INIT;
        while (pf_reader_next_in_loop(reader.handle(), loop, nullptr, &tuple, &err) == PF_OK)
            out.push_back(*static_cast<const int64_t *>(tuple.slots[0].data));
        EXPECT_EQ(PF_END, err.raw.status);
        pf_tuple_release(&tuple);
        return out;
    };
    const Reader reader = make(scope);
    EXPECT_LE(0, next_number(reader));
    const std::string middle = reader.state();
    const Numbers rest_of_first = loop_over(reader);
    const std::string ended = reader.state();
    const Numbers second = loop_over(reader);
    EXPECT_EQ(8u, rest_of_first.size());
    EXPECT_EQ(9u, second.size());
    EXPECT_NE(std::string::npos, ended.find("\"ended\":true"));

    const Scope other;
    const Reader resumed = make(other);
    resumed.load_state(middle);
    EXPECT_EQ(rest_of_first, loop_over(resumed));
    EXPECT_EQ(ended, resumed.state());
    EXPECT_EQ(second, loop_over(resumed));
    resumed.load_state(ended);
    EXPECT_EQ(second, loop_over(resumed));
    resumed.load_state(ended);
    EXPECT_EQ(ended, resumed.state());
    EXPECT_EQ(-1, next_number(resumed));

    // A loop that began before load_state does not go on.
    uint64_t loop = 0;
    EXPECT_STATUS(PF_OK, pf_reader_begin_loop(resumed.handle(), 0, &loop, &err));
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_OK, pf_reader_next_in_loop(resumed.handle(), loop, nullptr, &tuple, &err));
    resumed.load_state(middle);
    EXPECT_STATUS(PF_CANCELLED, pf_reader_next_in_loop(resumed.handle(), loop, nullptr, &tuple, &err));
    EXPECT_EQ(rest_of_first, loop_over(resumed));
}

// ---- Several threads ----

// Threads that read until they have a number of tuples together. The state then has that number.
TEST_F(ResumeTest, StatesOfAChainThatSeveralThreadsRead) {
    const auto paths = store_files(".recordio", {300, 20, 400, 111});
    const Chain chain = [&](const Scope &in, int v) {
        return open(in, paths, v).shuffle(100, 6).batch(2).double_buffer({}, 3);
    };
    const Scope one;
    const Reader whole = chain(one, 0);
    std::vector<Numbers> events;
    for (bool more = true; more;) {
        events.push_back(contents(whole.next(kStuck)));
        more = !events.back().empty();
    }
    const Scope shared_scope;
    const Reader reader = chain(shared_scope, 2);
    size_t delivered = 0;
    for (const size_t count : {1u, 5u, 48u, 100u, 150u, 112u}) {
        std::mutex mutex;
        std::vector<Numbers> seen;
        std::atomic<int64_t> left{static_cast<int64_t>(count)};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&] {
                while (left-- > 0) {
                    const Numbers numbers = contents(reader.next(kStuck));
                    const std::lock_guard<std::mutex> lock(mutex);
                    seen.push_back(numbers);
                }
            });
        }
        for (std::thread &thread : threads) thread.join();
        std::vector<Numbers> expected(events.begin() + static_cast<ptrdiff_t>(delivered),
                                      events.begin() + static_cast<ptrdiff_t>(delivered + count));
        delivered += count;
        std::sort(seen.begin(), seen.end());
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(expected, seen);
        const std::string state = reader.state();
        EXPECT_EQ(std::to_string(delivered), member(state, "n"));
        const Scope other;
        const Reader resumed = chain(other, 1);
        resumed.load_state(state);
        expect_rest(resumed, events, delivered);
    }
    EXPECT_EQ(events.size(), delivered + 1);  // the end of the pass
}

// A state that is saved while threads read is either refused, or exact.
TEST_F(ResumeTest, StatesAreSavedWhileThreadsRead) {
    const auto paths = store_files(".raw", {3000, 3000});
    const Chain chain = [&](const Scope &in, int v) {
        return open(in, paths, v).shuffle(50, 6).double_buffer();
    };
    const Scope one;
    const Reader whole = chain(one, 0);
    Numbers all = rest(whole);
    const Reader reader = chain(scope, 3);
    std::vector<std::thread> threads;
    std::atomic<int64_t> sum{0};
    std::atomic<int> running{3};
    for (int t = 0; t < 3; t++) {
        threads.emplace_back([&] {
            for (Tuple &tuple : reader.tuples(kStuck)) sum += number(tuple);
            running--;
        });
    }
    std::vector<std::string> states;
    while (running > 0) {
        try {
            states.push_back(reader.state());
        } catch (const StateError &e) {
            EXPECT_NE(nullptr, std::strstr(e.what(), "expected no consumer within a read")) << e.what();
        }
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(6000 * 5999 / 2, sum);
    states.push_back(reader.state());
    EXPECT_EQ("6000", member(states.back(), "n"));
    for (size_t i = 0; i < states.size(); i += 1 + states.size() / 20) {
        const Scope other;
        const Reader resumed = chain(other, 1);
        resumed.load_state(states[i]);
        EXPECT_EQ(Numbers(all.begin() + std::stoll(member(states[i], "n")), all.end()), rest(resumed));
    }
}

// Threads that read while another one goes from position to position. Each tuple is one of the pass, and the last
// position is exact.
TEST_F(ResumeTest, StatesAreLoadedWhileThreadsRead) {
    const auto paths = store_files(".raw", {3000, 100, 3000});
    const Reader reader = open(scope, paths, 3).shuffle(200, 6).batch(5).double_buffer({}, 3);
    std::vector<std::string> states;
    std::vector<Numbers> events;
    for (bool more = true; more;) {
        states.push_back(reader.state());
        events.push_back(contents(reader.next(kStuck)));
        more = !events.back().empty();
    }
    const std::vector<Numbers> sorted = [&] {
        auto copy = events;
        std::sort(copy.begin(), copy.end());
        return copy;
    }();
    std::atomic<bool> stop{false};
    std::atomic<int> reads{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++) {
        threads.emplace_back([&] {
            while (!stop) {
                try {
                    const Numbers batch = contents(reader.next(kStuck));
                    EXPECT_TRUE(std::binary_search(sorted.begin(), sorted.end(), batch));
                    reads++;
                } catch (const Cancelled &) {
                    // load_state came in between
                }
            }
        });
    }
    for (size_t i = 0; i < 300; i++) {
        const int before = reads;
        reader.load_state(states[(i * 211) % states.size()]);
        if (i % 3 == 0) {
            EXPECT_TRUE(eventually([&] { return reads > before; }));
        }
    }
    stop = true;
    for (std::thread &thread : threads) thread.join();
    reader.load_state(states[500]);
    expect_rest(reader, events, 500);
}

TEST_F(ResumeTest, AThreadThatWaitsInARead) {
    const Queue queue = numbers(10);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2);
    const std::string state = reader.state();
    auto reading = in_thread([&] { return reader.next(kStuck).has_value(); });
    EXPECT_TRUE(consumers_wait(queue, 1));
    EXPECT_ERROR(StateError, -1, reader.state(), "expected no consumer within a read", "reader.batch");
    push_number(queue, 0);
    push_number(queue, 1);
    EXPECT_TRUE(reading.get());
    EXPECT_EQ("1", member(reader.state(), "n"));

    // Calls that give up do not count.
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    EXPECT_ERROR(Timeout, -1, reader.has_next(1ms), "time");
    const CancelToken token;
    auto cancelled =
        in_thread([&] { EXPECT_ERROR(Cancelled, -1, reader.next(Wait(kStuck).cancel(token)), ""); });
    EXPECT_TRUE(consumers_wait(queue, 1));
    token.cancel();
    cancelled.get();
    EXPECT_EQ("1", member(reader.state(), "n"));
}

// load_state cancels the calls that wait in the reader, like a reset.
TEST_F(ResumeTest, LoadingCancelsCallsThatWait) {
    for (const bool restartable : {false, true}) {
        for (const bool buffered : {false, true}) {
            const std::string name = "feeder" + std::to_string(2 * restartable + buffered);
            const Queue queue = make_queue({10, number_slots(), CPUPlace(), 0, restartable}, name);
            Reader reader = create_py_array_reader(scope, name + ".reader", name);
            if (buffered) reader = reader.double_buffer();
            const std::string state = reader.state();
            auto reading = in_thread([&] { EXPECT_ERROR(Cancelled, -1, reader.next(kStuck), "was reset"); });
            EXPECT_TRUE(consumers_wait(queue, 1));
            if (buffered) {  // a thread that reads ahead waits in the queue
                EXPECT_TRUE(
                    eventually([&] { return std::stod(member(reader.stats(), "waited_seconds")) > 0; }));
            }
            reader.load_state(state);
            if (reading.wait_for(kStuck / 4) != std::future_status::ready) {
                ADD_FAILURE() << "the call still waits: " << name;
                queue.shutdown();
            }
            reading.get();
            const uint64_t pass = restartable ? queue.wait_pass(PF_PASS_NONE) : 0;
            push_number(queue, 1, kStuck, pass);
            EXPECT_EQ(1, next_number(reader, kStuck));
            EXPECT_EQ("1", member(reader.state(), "n"));
        }
    }
}

// ---- map ----

class MapResumeTest : public ResumeTest {
protected:
    // A number and two that depend on its position only, as a random augmentation does.
    static void augment(const Tuple &in, const Emit &emit) {
        const auto [pass, index] = emit.position();
        const Numbers out = {number(in), static_cast<int64_t>(1000 * pass + index),
                             static_cast<int64_t>((pass * 31 + index) * 2654435761u % 1009)};
        emit({view(out)});
    }
    static MapOptions of_three() { return MapOptions().slots({{{3}, DType::int64}}); }
};

TEST_F(MapResumeTest, ResultsThatDependOnThePosition) {
    const auto paths = store_files(".recordio", lengths);
    const auto threads = [](int variant) { return static_cast<uint32_t>(1 + variant % 3); };
    const auto options = [](int variant) {
        return of_three().capacity(1 + 5 * static_cast<uint64_t>(variant % 2));
    };
    every_step(
        [&](const Scope &in, int v) {
            return open(in, paths, v)
                .map(augment, threads(v), options(v))
                .shuffle(9, 1)
                .batch(4)
                .multi_pass(2);
        },
        2);
    every_step(
        [&](const Scope &in, int v) {
            return open(in, paths, v)
                .shuffle(9, 1)
                .multi_pass(2)
                .map(augment, threads(v), options(v))
                .batch(4);
        },
        2);
}

TEST_F(MapResumeTest, Positions) {
    const Reader reader = read_numbers("numbers", range(0, 5)).multi_pass(2).map(augment, 2, of_three());
    const auto positions = [&] {
        Numbers out;
        for (Tuple &tuple : reader.tuples(kStuck)) out.push_back(values<int64_t>(tuple[0])[1]);
        return out;
    };
    EXPECT_EQ((Numbers{0, 1, 2, 3, 4, 1000, 1001, 1002, 1003, 1004}), positions());
    const std::string state = reader.state();
    reader.reset();
    EXPECT_EQ((Numbers{2000, 2001, 2002, 2003, 2004, 3000, 3001, 3002, 3003, 3004}), positions());
    reader.load_state(state);
    EXPECT_EQ(Numbers(), positions());
    reader.reset();
    EXPECT_EQ((Numbers{2000, 2001, 2002, 2003, 2004, 3000, 3001, 3002, 3003, 3004}), positions());
}

TEST_F(MapResumeTest, ThereIsNoPositionAfterTheResult) {
    const Reader reader = read_numbers("numbers", range(0, 5))
                              .map(
                                  [](const Tuple &in, const Emit &emit) {
                                      EXPECT_EQ(static_cast<uint64_t>(number(in)), emit.position().index);
                                      emit(in);
                                      EXPECT_ERROR(StateError, -1, emit.position(), "ticket");
                                  },
                                  1);
    EXPECT_EQ(range(0, 5), rest(reader));
}

TEST_F(MapResumeTest, TuplesThatAreSkipped) {
    const auto paths = store_files(".recordio", lengths);  // 74 numbers
    const auto fails = [](int64_t n) { return n % 5 == 1 || (n >= 40 && n < 50) || n >= 70; };
    const auto skipping = [&](const Tuple &in, const Emit &emit) {
        if (fails(number(in))) throw std::range_error("no " + std::to_string(number(in)));
        augment(in, emit);
    };
    const Chain chain = [&](const Scope &in, int v) {
        return open(in, paths, v, OpenFiles().interleave(1))
            .map(skipping, static_cast<uint32_t>(1 + v % 3), of_three().skip_errors(true));
    };
    every_step([&](const Scope &in, int v) { return chain(in, v).batch(3).multi_pass(2); }, 2);
    every_step([&](const Scope &in, int v) { return chain(in, v).shuffle(7, 2); }, 2);
    every_step(chain, 2);

    int64_t failed = 0;
    for (int64_t n = 0; n < 74; n++) failed += fails(n);
    const Reader reader = chain(scope, 0);
    for (int i = 0; i < 74 - failed; i++) EXPECT_TRUE(reader.next(kStuck));
    EXPECT_FALSE(reader.next(kStuck));
    const std::string stats = reader.stats();
    EXPECT_EQ(std::to_string(failed), member(stats, "skipped"));
    EXPECT_NE(std::string::npos, stats.find(R"({"pass":0,"index":1,"file":")" + paths[0] +
                                            R"(","record":1,"reason":"std::range_error: no 1"})"))
        << stats;
}

// A result that does not fit is no error of the function that may be skipped, and neither is one of a reader below.
TEST_F(MapResumeTest, WhatIsNotSkipped) {
    const Reader numbers = read_numbers("numbers", range(0, 9));
    const auto same = [](const Tuple &in, const Emit &emit) { emit(in); };
    const Reader broken = numbers.map([](const Tuple &, const Emit &) { throw std::runtime_error("all"); }, 2)
                              .map(same, 2, MapOptions().skip_errors(true));
    EXPECT_ERROR(ProducerError, -1, broken.next(kStuck), "all");
    const Reader none = read_numbers("others", range(0, 9))
                            .map([](const Tuple &, const Emit &) {}, 2, MapOptions().skip_errors(true));
    EXPECT_ERROR(ProducerError, -1, none.next(kStuck), "gave no result");
}

// A function that fails for all tuples leaves nothing, and the reader can still be saved and resumed.
TEST_F(MapResumeTest, AllTuplesAreSkipped) {
    const auto make = [&](const Scope &in) {
        return open_files(in, "numbers", {store("numbers.raw", range(0, 3000))}, raw())
            .map([](const Tuple &, const Emit &) { throw std::runtime_error("no"); }, 3,
                 MapOptions().skip_errors(true));
    };
    const Reader reader = make(scope);
    const std::string before = reader.state();
    EXPECT_EQ(-1, next_number(reader));
    EXPECT_EQ("3000", member(reader.stats(), "skipped"));
    const std::string after = reader.state();
    reader.load_state(before);
    EXPECT_EQ(-1, next_number(reader));
    EXPECT_EQ("6000", member(reader.stats(), "skipped"));
    reader.load_state(after);
    EXPECT_EQ(-1, next_number(reader));
}

// ---- Queues ----

class QueueResumeTest : public ResumeTest {
protected:
    // A state of a reader of a queue that has delivered some numbers.
    static std::string state_after(int64_t delivered) {
        const Scope in;
        const Queue queue =
            QueueHolder(in.var("feeder")).init_once({100, number_slots(), CPUPlace(), 0, false});
        const Reader reader = create_py_array_reader(in, "reader", "feeder");
        for (int64_t n = 0; n < delivered; n++) {
            push_number(queue, n);
            EXPECT_EQ(n, next_number(reader));
        }
        return reader.state();
    }
};

TEST_F(QueueResumeTest, NumbersThatArePushedAgainAreDropped) {
    const Queue queue = numbers(100);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    EXPECT_EQ(0u, queue.start());
    reader.load_state(state_after(7));
    EXPECT_EQ(7u, queue.start());
    EXPECT_EQ(7u, queue.start(0));
    EXPECT_EQ(7u, queue.producer().start());
    for (int64_t n = 0; n < 20; n++) push_number(queue, n);
    queue.close();
    EXPECT_TRUE(reader.has_next(kStuck));
    EXPECT_EQ("7", member(reader.state(), "n"));
    EXPECT_EQ(range(7, 20), rest(reader));
    EXPECT_ERROR(QueueClosed, -1, queue.start(), "closed");
    EXPECT_ERROR(QueueClosed, -1, queue.set_start(1), "closed");
    EXPECT_ERROR(StateError, -1, reader.load_state(state_after(3)), "cannot start over");
    EXPECT_EQ("20", member(reader.state(), "n"));
}

TEST_F(QueueResumeTest, AProducerLeavesOutWhatWasDelivered) {
    for (const uint64_t left_out : {0u, 1u, 4u, 7u}) {
        const Scope in;
        const Queue queue =
            QueueHolder(in.var("feeder")).init_once({100, number_slots(), CPUPlace(), 0, false});
        const Reader reader = create_py_array_reader(in, "reader", "feeder");
        reader.load_state(state_after(7));
        EXPECT_ERROR(InvalidArgument, -1, queue.set_start(8), "expected 0 to 7 tuples", "found 8");
        EXPECT_ERROR(InvalidArgument, -1, queue.set_start(~uint64_t{0}), "expected 0 to 7 tuples");
        EXPECT_ERROR(QueueClosed, -1, queue.set_start(1, 5), "pass 5");
        EXPECT_ERROR(QueueClosed, -1, queue.start(5), "pass 5");
        queue.set_start(3);
        queue.producer().set_start(left_out, 0);
        for (auto n = static_cast<int64_t>(left_out); n < 20; n++) push_number(queue, n);
        queue.close();
        EXPECT_EQ(range(7, 20), rest(reader));
        EXPECT_EQ("20", member(reader.state(), "n"));
        const auto reopened = queue.reopen();
        EXPECT_EQ(0u, queue.start(reopened.pass));
        push_number(queue, 5);
        reader.reset();
        EXPECT_EQ(5, next_number(reader));
        EXPECT_EQ("1", member(reader.state(), "pass"));
    }
}

// A pass that ends before the position is an error: the producer has less data than when the position was saved.
TEST_F(QueueResumeTest, APassThatEndsBeforeThePosition) {
    const Queue queue = numbers(100);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    reader.load_state(state_after(7));
    for (int64_t n = 0; n < 3; n++) push_number(queue, n);
    queue.close();
    EXPECT_ERROR(StateError, -1, reader.next(kStuck),
                 "expected 4 more tuples before the position that was restored");
}

// A second state that is loaded after the producer has left out tuples.
TEST_F(QueueResumeTest, AnotherStateAfterSetStart) {
    const Queue queue = numbers(100);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    reader.load_state(state_after(5));
    queue.set_start(5);
    for (int64_t n = 5; n < 20; n++) push_number(queue, n);
    reader.load_state(state_after(7));
    EXPECT_EQ(7u, queue.start());
    EXPECT_EQ(7, next_number(reader));

    const Queue second = make_queue({100, number_slots(), CPUPlace(), 0, false}, "feeder2");
    const Reader other = create_py_array_reader(scope, "other", "feeder2");
    other.load_state(state_after(5));
    second.set_start(5);
    other.load_state(state_after(3));
    push_number(second, 5);
    for (int i = 0; i < 2; i++)
        EXPECT_ERROR(StateError, -1, other.next(kStuck), "left out the first 2 of them with set_start");
    other.load_state(state_after(5));
    EXPECT_EQ(5, next_number(other));
}

TEST_F(QueueResumeTest, ARestartableQueue) {
    const Queue queue = numbers(10, true);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2).double_buffer();
    std::mutex mutex;
    std::vector<std::pair<uint64_t, uint64_t>>
        starts;  // the passes and their starts, as the producer saw them
    std::thread producing([&, producer = queue.producer()] {
        uint64_t pass = PF_PASS_NONE;
        try {
            for (;;) {
                pass = producer.wait_pass(pass, kStuck);
                try {
                    const uint64_t start = producer.start(pass);
                    {
                        const std::lock_guard<std::mutex> lock(mutex);
                        starts.emplace_back(pass, start);
                    }
                    producer.set_start(start, pass);
                    for (auto n = static_cast<int64_t>(start); n < 40; n++)
                        producer.push({view(&n, {1})}, kStuck, pass);
                    producer.close(pass);
                } catch (const QueueClosed &) {
                    // the reader was reset in the middle of the pass
                }
            }
        } catch (const QueueClosed &) {
            // the queue was shut down
        }
    });
    std::vector<Numbers> events;
    std::vector<std::string> states;
    for (bool more = true; more;) {
        states.push_back(reader.state());
        events.push_back(contents(reader.next(kStuck)));
        more = !events.back().empty();
    }
    EXPECT_EQ(21u, events.size());
    for (size_t i = 0; i < 60; i++) {
        const size_t at = (i * 13) % states.size();
        reader.load_state(states[at]);
        expect_rest(reader, events, at, i % 4);
    }
    reader.load_state(states[11]);
    expect_rest(reader, events, 11);
    queue.shutdown();
    producing.join();
    ASSERT_LE(2u, starts.size());
    EXPECT_EQ(0u, starts[0].second);
    bool seen = false;
    for (const auto &[pass, start] : starts) seen = seen || start == 22;
    EXPECT_TRUE(seen);
}

}  // namespace

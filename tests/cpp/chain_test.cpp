// Chains of readers: the tuples that they deliver, the order, waits and resets.
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// ---- The order of a shuffle ----

// The generator and the permutation that readers/internal/permutation specifies, implemented again from the papers.
// The order must be the same on every machine and in every release.
class Shuffled {
public:
    static Numbers pass(const Numbers &in, uint64_t size, uint64_t seed, uint64_t number) {
        Numbers out;
        for (uint64_t block = 0; block * size < in.size(); block++) {
            const auto begin = in.begin() + static_cast<ptrdiff_t>(block * size);
            Numbers part(begin, std::min(begin + static_cast<ptrdiff_t>(size), in.end()));
            Shuffled(seed, mix(number) + block).permute(part);
            out.insert(out.end(), part.begin(), part.end());
        }
        return out;
    }

private:
    __extension__ typedef unsigned __int128 uint128;

    Shuffled(uint64_t high, uint64_t low) : state(uint128{high} << 64 | low) {}

    static uint64_t mix(uint64_t x) {
        x += 0x9e3779b97f4a7c15;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }
    uint64_t next() {
        state = state * (uint128{2549297995355413924} << 64 | 4865540595714422341) +
                (uint128{6364136223846793005} << 64 | 1442695040888963407);
        auto high = static_cast<uint64_t>(state >> 64);
        high = (high ^ (high >> 32)) * 0xda942042e4dd58b5;
        high ^= high >> 48;
        return high * (static_cast<uint64_t>(state) | 1);
    }
    void permute(Numbers &part) {
        for (uint64_t n = part.size(); n > 1; n--) {
            uint128 product = uint128{next()} * n;
            while (static_cast<uint64_t>(product) < -n % n) product = uint128{next()} * n;
            std::swap(part[n - 1], part[static_cast<size_t>(product >> 64)]);
        }
    }

    uint128 state;
};

class ShuffleTest : public Files {};

TEST_F(ShuffleTest, OneOrderForOneSeed) {
    const Reader reader = read_numbers("numbers", range(0, 20)).shuffle(8, 7);
    EXPECT_EQ((Numbers{0, 7, 2, 4, 1, 6, 3, 5, 9, 13, 8, 11, 14, 15, 12, 10, 16, 19, 18, 17}), rest(reader));
}

TEST_F(ShuffleTest, AsThePapersSay) {
    for (const int64_t count : {0, 1, 2, 5, 256, 300, 1000}) {
        for (const uint64_t size : {1u, 2u, 3u, 5u, 7u, 255u, 257u, 1000u, 5000u}) {
            const Reader numbers = read_numbers("numbers", range(0, count));
            const Reader reader = numbers.shuffle(size, count + size, "shuffled");
            for (uint64_t pass = 0; pass < 3; pass++) {
                ASSERT_EQ(Shuffled::pass(range(0, count), size, count + size, pass), rest(reader))
                    << count << " numbers in blocks of " << size << ", pass " << pass;
                EXPECT_FALSE(reader.has_next());
                reader.reset();
            }
        }
    }
}

// The order of a pass depends on its number, not on how far earlier passes were read.
TEST_F(ShuffleTest, ResetsAtAnyPoint) {
    const Reader reader = read_numbers("numbers", range(0, 50)).shuffle(16, 3);
    for (uint64_t pass = 0; pass < 40; pass++) {
        const Numbers all = Shuffled::pass(range(0, 50), 16, 3, pass);
        for (size_t i = 0; i < (pass * 7) % 52; i++) {
            if (i % 3 == 0) {
                EXPECT_EQ(i < all.size(), reader.has_next());
            }
            ASSERT_EQ(i < all.size() ? all[i] : -1, next_number(reader))
                << "pass " << pass << ", tuple " << i;
        }
        reader.reset();
    }
}

TEST_F(ShuffleTest, Refusals) {
    const Reader reader = read_numbers("numbers", {1});
    EXPECT_ERROR(InvalidArgument, -1, reader.shuffle(0), "buffer_size", "found 0");
    EXPECT_ERROR(InvalidArgument, -1, reader.shuffle(uint64_t{1} << 40), "buffer_size");
    EXPECT_EQ((Numbers{1}), rest(reader));
}

// ---- The other decorators ----

class ChainTest : public Files {};

TEST_F(ChainTest, MultiPass) {
    const Reader numbers = read_numbers("numbers", range(0, 5));
    const Reader reader = numbers.multi_pass(3);
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < 15; i++) {
            EXPECT_TRUE(reader.has_next());
            EXPECT_EQ(i % 5, next_number(reader));
            EXPECT_EQ(std::to_string(i / 5), member(reader.stats(), "pass_id"));
        }
        EXPECT_FALSE(reader.has_next());
        EXPECT_EQ(-1, next_number(reader));
        EXPECT_EQ(-1, next_number(reader));
        reader.reset();
    }
}

TEST_F(ChainTest, MultiPassOfAShuffleHasAnotherOrderEachPass) {
    const Reader reader = read_numbers("numbers", range(0, 30)).shuffle(100, 5).multi_pass(4);
    for (uint64_t round = 0; round < 3; round++) {
        Numbers want;
        for (uint64_t pass = 0; pass < 4; pass++) {
            const Numbers one = Shuffled::pass(range(0, 30), 100, 5, round * 4 + pass);
            want.insert(want.end(), one.begin(), one.end());
        }
        EXPECT_EQ(want, rest(reader));
        reader.reset();
    }
}

TEST_F(ChainTest, MultiPassWithoutEnd) {
    const Reader reader = read_numbers("numbers", range(0, 7)).multi_pass(0);
    for (int64_t i = 0; i < 1000; i++) ASSERT_EQ(i % 7, next_number(reader));
    reader.reset();
    EXPECT_EQ(0, next_number(reader));
}

TEST_F(ChainTest, MultiPassOfNothing) {
    const Reader reader = read_numbers("numbers", {}).multi_pass(0);
    EXPECT_ERROR(StateError, -1, reader.next(), "pass 0", "no tuples");
}

TEST_F(ChainTest, DoubleBuffer) {
    const Reader numbers = read_numbers("numbers", range(0, 1000));
    for (const uint64_t depth : {1u, 2u, 3u, 100u, 5000u}) {
        const Reader reader = numbers.double_buffer(CPUPlace(), depth, "buffered");
        for (int pass = 0; pass < 3; pass++) {
            EXPECT_EQ(range(0, 1000), rest(reader));
            reader.reset();
            EXPECT_EQ(0, next_number(reader));  // the reset drops the rest of the pass
            reader.reset();
        }
    }
}

TEST_F(ChainTest, DoubleBufferReadsAhead) {
    const Queue queue = numbers(100);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").double_buffer({}, 3);
    for (int64_t i = 0; i < 50; i++) push_number(queue, i);
    EXPECT_EQ(50u, queue.size());  // nothing is read before the first read
    EXPECT_EQ(0, next_number(reader));
    EXPECT_TRUE(eventually([&] { return queue.stats().popped >= 4; }));  // without another read
    queue.close();
    EXPECT_EQ(range(1, 50), rest(reader));
}

TEST_F(ChainTest, DoubleBufferRefusals) {
    const Reader reader = read_numbers("numbers", {1});
    EXPECT_ERROR(InvalidArgument, -1, reader.double_buffer({}, 0), "depth", "found 0");
    EXPECT_ERROR(InvalidArgument, -1, reader.double_buffer({CPUPlace(), CPUPlace()}, 2), "place", "several");
}

TEST_F(ChainTest, Zip) {
    const Reader one = read_numbers("one", range(0, 5)), two = read_numbers("two", range(10, 13));
    const Reader joined = one.zip(two);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < 3; i++) {
            const auto tuple = joined.next();
            ASSERT_EQ(2u, tuple->size());
            EXPECT_EQ(i, values<int64_t>(tuple->at(0))[0]);
            EXPECT_EQ(10 + i, values<int64_t>(tuple->at(1))[0]);
        }
        EXPECT_FALSE(joined.has_next());
        EXPECT_FALSE(joined.next());
        joined.reset();
    }
    EXPECT_EQ(3u, joined.zip(read_numbers("three", range(20, 30))).next()->size());
}

TEST_F(ChainTest, ZipStrictly) {
    const Reader one = read_numbers("one", range(0, 5)), two = read_numbers("two", range(10, 13));
    const Reader uneven = one.zip(two, true);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < 3; i++) EXPECT_EQ(i, next_number(uneven));
        for (int i = 0; i < 2; i++)
            EXPECT_ERROR(StateError, -1, uneven.next(), "zip", "end together", "[1]", "[0]");
        uneven.reset();
    }
    const Reader even = read_numbers("three", range(0, 300)).zip(read_numbers("four", range(1, 301)), true);
    EXPECT_EQ(range(0, 300), rest(even));
    even.reset();
    EXPECT_EQ(range(0, 300), rest(even));
}

TEST_F(ChainTest, ZipRefusals) {
    const Reader one = read_numbers("one", range(0, 5));
    EXPECT_ERROR(InvalidArgument, -1, one.zip(one), "zip", "one");
    EXPECT_ERROR(InvalidArgument, -1, create_reader(scope, "create_zip_reader", "z", {"one"}), "inputs");
    const Scope elsewhere;
    const Reader foreign = create_random_data_generator(elsewhere, "foreign", number_slots());
    EXPECT_ERROR(NotFoundError, -1, one.zip(foreign), "foreign");
    EXPECT_EQ(range(0, 5), rest(one));
}

TEST_F(ChainTest, Shard) {
    const Reader numbers = read_numbers("numbers", range(0, 1003));
    for (const uint64_t world : {1u, 2u, 3u, 7u, 1000u, 2000u}) {
        for (uint64_t rank = 0; rank < world; rank += 1 + world / 5) {
            const Reader reader = numbers.shard(rank, world, Even::none, "shard");
            Numbers want;
            for (auto n = static_cast<int64_t>(rank); n < 1003; n += static_cast<int64_t>(world))
                want.push_back(n);
            reader.reset();
            EXPECT_EQ(want, rest(reader));
            reader.reset();
            EXPECT_EQ(want, rest(reader));
        }
    }
    EXPECT_ERROR(InvalidArgument, -1, numbers.shard(3, 3), "rank", "3");
    EXPECT_ERROR(InvalidArgument, -1, numbers.shard(0, 0), "rank");
}

TEST_F(ChainTest, EvenShards) {
    const Reader numbers = read_numbers("numbers", range(0, 7));
    EXPECT_EQ((Numbers{1, 4}), rest(numbers.shard(1, 3)));
    numbers.reset();
    EXPECT_EQ((Numbers{0, 3}), rest(numbers.shard(0, 3, Even::drop)));
    numbers.reset();
    EXPECT_EQ((Numbers{1, 4, 6}), rest(numbers.shard(1, 3, Even::repeat)));
    numbers.reset();
    EXPECT_EQ((Numbers{1, 4, 0}), rest(numbers.shard(1, 3, Even::pad)));
}

TEST_F(ChainTest, SplitBatches) {
    const Reader numbers = read_numbers("numbers", range(0, 11));
    const Reader batches = numbers.batch(4);
    const auto all = [](const Reader &reader) {
        Numbers out;
        for (const Tuple &batch : reader.tuples(kStuck)) {
            for (int64_t n : values<int64_t>(batch.at(0))) out.push_back(n);
        }
        reader.reset();
        return out;
    };
    EXPECT_EQ((Numbers{2, 3, 6, 7, 9}), all(batches.split_batches(1, 2)));
    EXPECT_EQ((Numbers{2, 3, 6, 7, 10, 8}), all(batches.split_batches(1, 2, Even::repeat)));
    EXPECT_EQ((Numbers{2, 3, 6, 7, 10, 0}), all(batches.split_batches(1, 2, Even::pad)));
    EXPECT_ERROR(InvalidArgument, -1, batches.split_batches(0, 3), "world", "batch_size 4", "3");
    EXPECT_ERROR(InvalidArgument, -1, batches.split_batches(2, 2), "rank");
    EXPECT_ERROR(InvalidArgument, -1, batches.split_batches(0, 2, Even::none), "even");
    EXPECT_ERROR(InvalidArgument, -1, numbers.split_batches(0, 2), "batch");
}

// The state of any rank is loaded by all ranks of a job of another size.
TEST_F(ChainTest, JobsOfAnotherSize) {
    const std::string file = store("numbers", range(0, 48));
    const auto rank_of = [&](uint64_t rank, uint64_t world) {
        const std::string name = "rank" + std::to_string(rank) + " of " + std::to_string(world);
        const Reader files = create_file_reader(scope, name, file, raw());
        return files.shuffle(20, 3).batch(12).split_batches(rank, world).double_buffer();
    };
    const auto next = [](const Reader &reader) {
        const auto batch = reader.next(kStuck);
        return batch ? values<int64_t>(batch->at(0)) : Numbers{};
    };
    Numbers whole, parts;
    const Reader all = rank_of(0, 1);
    for (int i = 0; i < 4; ++i) {
        for (int64_t n : next(all)) whole.push_back(n);
    }
    std::string state;
    for (uint64_t world : {2u, 4u, 1u, 3u}) {
        std::string after;
        for (uint64_t rank = 0; rank < world; ++rank) {
            const Reader reader = rank_of(rank, world);
            if (!state.empty()) reader.load_state(state);
            for (int64_t n : next(reader)) parts.push_back(n);
            after = reader.state();
        }
        state = after;
    }
    EXPECT_EQ(whole, parts);
}

TEST_F(ChainTest, NamesAreMadeUp) {
    const Reader reader = read_numbers("numbers", {1});
    EXPECT_EQ("numbers.shuffle", reader.shuffle(2).name());
    EXPECT_EQ("numbers.shuffle2", reader.shuffle(2).name());
    EXPECT_EQ("numbers.shuffle3", reader.shuffle(2).name());
    EXPECT_EQ("numbers.multi_pass", reader.multi_pass(2).name());
    EXPECT_EQ("numbers.double_buffer", reader.double_buffer().name());
    EXPECT_EQ("numbers.shard", reader.shard(0, 2).name());
    EXPECT_EQ("numbers.zip", reader.zip(read_numbers("other", {1})).name());
    EXPECT_EQ("numbers.map", reader.map([](const Tuple &, const Emit &) {}, 1).name());
    EXPECT_EQ("numbers.batch", reader.batch(2).name());
    EXPECT_EQ("numbers.batch.shuffle", reader.batch(2, false, false, "numbers.batch").shuffle(2).name());
    EXPECT_EQ("numbers.batch.split_batches", scope.find("numbers.batch").reader().split_batches(0, 2).name());
    EXPECT_EQ("mine", reader.shuffle(2, 0, "mine").name());
    EXPECT_EQ(VarKind::reader, scope.find("numbers.shuffle3").kind());
}

TEST_F(ChainTest, CreateReader) {
    const std::string path = store("a.raw", range(0, 5));
    create_reader(scope, "open_files", "files", {},
                  R"({"filenames": [")" + path + R"("], "slots": [{"dtype": "int64", "dims": [1]}]})");
    EXPECT_EQ((Numbers{0, 1, 2, 3, 4}), rest(create_reader(scope, "create_shuffle_reader", "shuffled",
                                                           {"files"}, R"({"buffer_size": 1})")));
    EXPECT_ERROR(NotFoundError, -1, create_reader(scope, "create_sorted_reader", "x", {"files"}),
                 "create_shuffle_reader", "open_files", "create_sorted_reader");
    EXPECT_ERROR(InvalidArgument, -1,
                 create_reader(scope, "create_shuffle_reader", "x", {"files"}, R"({"buffer": 1})"), "buffer",
                 "buffer_size", "seed");
    EXPECT_ERROR(InvalidArgument, -1, create_reader(scope, "create_shuffle_reader", "x", {"files"}, "{"),
                 "attributes");
    EXPECT_ERROR(InvalidArgument, -1, create_reader(scope, "create_shuffle_reader", "x", {"files"}, "{} {}"),
                 "more");
    EXPECT_ERROR(InvalidArgument, -1, create_reader(scope, "create_shuffle_reader", "x", {}, "{}"), "inputs",
                 "found 0");
    EXPECT_ERROR(NotFoundError, -1,
                 create_reader(scope, "create_shuffle_reader", "x", {"nobody"}, R"({"buffer_size": 1})"),
                 "nobody");
    scope.var("empty");
    EXPECT_ERROR(StateError, -1,
                 create_reader(scope, "create_shuffle_reader", "x", {"empty"}, R"({"buffer_size": 1})"),
                 "empty");
}

TEST_F(ChainTest, Stats) {
    const Reader reader = read_numbers("numbers", range(0, 20)).shuffle(8, 7).batch(6);
    EXPECT_EQ((Shape{6, 1}), reader.next()->at(0).shape());
    EXPECT_TRUE(reader.next());
    reader.reset();
    EXPECT_TRUE(reader.next());
    const std::string stats = reader.stats();
    EXPECT_EQ("batch", member(stats, "reader"));
    EXPECT_EQ("3", member(stats, "tuples"));
    EXPECT_EQ("144", member(stats, "bytes"));
    EXPECT_EQ("2", member(stats, "passes"));
    EXPECT_NE(std::string::npos, stats.find(R"("slots":[{"dtype":"int64","dims":[-1,1]}])")) << stats;
    EXPECT_NE(std::string::npos, stats.find(R"("details":{"batch_size":6,"drop_last":false})")) << stats;
    const std::string below = stats.substr(stats.find("\"below\""));
    EXPECT_EQ("shuffle", member(below, "reader"));
    EXPECT_EQ("7", member(below, "seed"));
    const std::string files = below.substr(below.rfind("\"below\""));
    EXPECT_EQ("open_files", member(files, "reader"));
    EXPECT_EQ("1", member(files, "files"));
    EXPECT_EQ("0", member(files, "corrupt"));
}

// A reset in the middle of a pass does not change the later passes.
TEST_F(ChainTest, ResetsOfLongChainsAtAnyPoint) {
    auto chain = [&](const std::string &name) {
        std::vector<std::string> paths;
        for (int i = 0; i < 5; i++) {
            paths.push_back(store(name + std::to_string(i), range(100 * i, 100 * i + 20 + 10 * i)));
        }
        return open_files(scope, name, paths, raw().num_threads(3).interleave(2))
            .shuffle(64, 11)
            .map(
                [](const Tuple &in, const Emit &emit) {
                    const int64_t n = number(in) + 1000;
                    emit({view(&n, {1})});
                },
                3)
            .zip(create_random_data_generator(scope, name + "random", {{{3}, DType::float32}},
                                              RandomOptions().seed(1)))
            .shard(1, 2)
            .multi_pass(2)
            .double_buffer({}, 3);
    };
    const Reader reference = chain("reference");
    std::vector<Numbers> passes;
    for (int i = 0; i < 25; i++) {
        passes.push_back(rest(reference));
        ASSERT_EQ(200u, passes.back().size());
        Numbers sorted = passes.back();
        std::sort(sorted.begin(), sorted.end());
        EXPECT_LE(1000, sorted.front());
        EXPECT_GT(1460, sorted.back());
        reference.reset();
    }
    EXPECT_NE(passes[0], passes[1]);
    const Reader reader = chain("again");
    for (size_t pass = 0; pass < passes.size(); pass++) {
        for (size_t i = 0; i < (pass * 37) % 202; i++) {
            ASSERT_EQ(i < 200 ? passes[pass][i] : -1, next_number(reader))
                << "pass " << pass << ", tuple " << i;
        }
        reader.reset();
    }
}

TEST_F(ChainTest, ReadByManyThreads) {
    const Reader reader = read_numbers("numbers", range(1, 2001)).shuffle(100).double_buffer({}, 4);
    for (int pass = 0; pass < 3; pass++) {
        std::atomic<int64_t> sum{0};
        std::vector<std::future<void>> reading;
        for (int i = 0; i < 4; i++) {
            reading.push_back(in_thread([&] {
                for (Tuple &tuple : reader.tuples(kStuck)) sum += number(tuple);
            }));
        }
        for (auto &r : reading) r.get();
        EXPECT_EQ(2001000, sum);
        reader.reset();
    }
}

TEST_F(ChainTest, ResetWhileManyThreadsRead) {
    const Reader reader = read_numbers("numbers", range(0, 500))
                              .shuffle(64)
                              .map([](const Tuple &in, const Emit &emit) { emit(in); }, 2)
                              .multi_pass(0)
                              .double_buffer({}, 2);
    std::atomic<bool> over{false};
    std::atomic<int64_t> read{0};
    std::vector<std::future<void>> reading;
    for (int i = 0; i < 3; i++) {
        reading.push_back(in_thread([&] {
            while (!over) {
                try {
                    const auto tuple = reader.next(kStuck);
                    ASSERT_TRUE(tuple);
                    ASSERT_LT(number(*tuple), 500);
                    read++;
                } catch (const Cancelled &) {
                }
            }
        }));
    }
    for (int64_t i = 1; i <= 50; i++) {
        ASSERT_TRUE(eventually([&] { return read >= 20 * i; }));
        reader.reset();
    }
    over = true;
    for (auto &r : reading) r.get();
}

TEST_F(ChainTest, ViewsOutliveReadersAndFiles) {
    std::vector<Tuple> tuples;
    {
        const Reader reader =
            open_files(scope, "numbers", {store("numbers.raw", range(0, 100))}, raw().io("map"))
                .shuffle(10)
                .double_buffer();
        for (Tuple &tuple : reader) tuples.push_back(std::move(tuple));
        for (const char *name : {"numbers", "numbers.shuffle", "numbers.shuffle.double_buffer"})
            scope.erase(name);
    }
    std::filesystem::remove(path("numbers.raw"));
    EXPECT_EQ(800u, memory_stats().live_mapped_bytes);
    EXPECT_TRUE(tuples[0].at(0).read_only());
    Numbers got;
    for (const Tuple &tuple : tuples) got.push_back(number(tuple));
    EXPECT_EQ(Shuffled::pass(range(0, 100), 10, 0, 0), got);
    tuples.clear();
    EXPECT_EQ(0u, memory_stats().live_mapped_bytes);
}

TEST_F(ChainTest, AFailureComesThroughAfterWhatCameBefore) {
    const Queue queue = make_queue({100, {{{1}, DType::int64}}, CPUPlace(), 0, true});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder")
                              .shuffle(4)
                              .map([](const Tuple &in, const Emit &emit) { emit(in); }, 2)
                              .shard(0, 1)
                              .multi_pass(1)
                              .double_buffer();
    uint64_t pass = PF_PASS_NONE;
    for (int round = 0; round < 3; round++) {
        EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
        pass = queue.wait_pass(pass, kStuck);
        for (int64_t i = 0; i < 10; i++) push_number(queue, i, kStuck, pass);
        queue.fail("E", "boom", "back", 5, pass);
        Numbers got;
        for (int i = 0; i < 10; i++) got.push_back(next_number(reader));
        std::sort(got.begin(), got.end());
        EXPECT_EQ(range(0, 10), got);
        for (int i = 0; i < 2; i++) EXPECT_ERROR(ProducerError, -1, reader.next(kStuck), "E: boom");
        EXPECT_ERROR(ProducerError, -1, reader.has_next(kStuck), "E: boom");
        reader.reset();
    }
}

// ---- Waiting ----

// Tests that run with each kind of reader, above an empty queue.
class ChainWaiting : public Files {
protected:
    enum Ahead : bool { no, yes };
    struct Kind {
        Kind(const char *name_, std::function<Reader(const Reader &)> over_, Ahead ahead_ = no,
             size_t slots_ = 1)
            : name(name_), over(std::move(over_)), ahead(ahead_), slots(slots_) {}
        std::string name;
        std::function<Reader(const Reader &)> over;
        Ahead ahead;  // the reader's own thread reads from the queue, and the caller waits for that thread
        size_t slots;
    };
    // Kinds that need a second reader create it in the scope `inner`.
    std::vector<Kind> kinds(const Scope &inner) {
        const MapFunction same = [](const Tuple &in, const Emit &emit) { emit(in); };
        return {
            {"shuffle", [](const Reader &in) { return in.shuffle(3, 1); }, yes},
            {"multi_pass", [](const Reader &in) { return in.multi_pass(1); }},
            {"double_buffer", [](const Reader &in) { return in.double_buffer(); }, yes},
            {"shard", [](const Reader &in) { return in.shard(0, 1); }},
            {"even shard", [](const Reader &in) { return in.shard(0, 1, Even::drop); }},
            {"split_batches", [](const Reader &in) { return in.batch(1).split_batches(0, 1); }},
            {"zip",
             [inner](const Reader &in) {
                 return in.zip(create_random_data_generator(inner, in.name() + "2", number_slots()));
             },
             no, 2},
            {"zip, second",
             [inner, this](const Reader &in) {
                 const std::string name = in.name() + "1";
                 return create_file_reader(inner, name, store(name, range(1, 5)), raw()).zip(in);
             },
             no, 2},
            {"map", [same](const Reader &in) { return in.map(same, 2); }, yes},
            {"unordered map",
             [same](const Reader &in) { return in.map(same, 1, MapOptions().ordered(false)); }, yes},
            {"batch", [](const Reader &in) { return in.batch(1).batch(1); }},
            {"all",
             [same](const Reader &in) {
                 return in.shuffle(3).multi_pass(1).shard(0, 1).map(same, 2).double_buffer();
             },
             yes},
        };
    }

    // Calls f for each kind of reader, with the queue at the bottom of the chain.
    void each(const std::function<void(const Kind &, const Queue &, const Reader &)> &f) {
        int n = 0;
        for (const Kind &kind : kinds(scope)) {
            SCOPED_TRACE(kind.name);
            const std::string feeder = "feeder" + std::to_string(++n), name = "reader" + std::to_string(n);
            const Queue queue = make_queue({4, {{{1}, DType::int64}}, CPUPlace(), 0, true}, feeder);
            f(kind, queue, kind.over(create_py_array_reader(scope, name, feeder)));
        }
    }

    static double waited(const Reader &reader) { return std::stod(member(reader.stats(), "waited_seconds")); }
    // Waits until a thread is blocked in the reader. `before` is the reader's waited_seconds before that thread.
    static testing::AssertionResult blocked(const Kind &kind, const Queue &queue, const Reader &reader,
                                            double before = 0) {
        return eventually([&] {
            if (queue.stats().waiting_consumers == 0) return false;
            return !kind.ahead || waited(reader) > before;
        });
    }

    static Numbers sorted(Numbers numbers) {
        std::sort(numbers.begin(), numbers.end());
        return numbers;
    }
};

TEST_F(ChainWaiting, EndsAndNothingIsLost) {
    each([&](const Kind &kind, const Queue &queue, const Reader &reader) {
        EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
        const uint64_t pass = queue.wait_pass(PF_PASS_NONE, kStuck);
        push_number(queue, 1, kStuck, pass);
        if (kind.name == "shuffle") {
            EXPECT_ERROR(Timeout, -1, reader.next(10ms), "time");
        } else if (kind.name != "all") {
            EXPECT_EQ(1, next_number(reader));
        }
        const auto start = std::chrono::steady_clock::now();
        EXPECT_ERROR(Timeout, -1, reader.next(-5s), "time");
        EXPECT_ERROR(Timeout, -1, reader.next(20ms), "time");
        EXPECT_ERROR(Timeout, -1, reader.has_next(10ms), "time");
        EXPECT_ERROR(Timeout, -1, read(scope, reader.name(), std::vector<std::string>(kind.slots, "x"), 1ms),
                     "time");
        EXPECT_GE(std::chrono::steady_clock::now() - start, 31ms);
        const CancelToken token;
        double before = waited(reader);
        auto cancelled = in_thread([&] { reader.next(Wait().cancel(token)); });
        EXPECT_TRUE(blocked(kind, queue, reader, before));
        token.cancel();
        EXPECT_ERROR(Cancelled, -1, cancelled.get(), "cancel");
        int polls = 0;
        EXPECT_ERROR(Cancelled, -1, reader.next(Wait(kStuck).poll([&] { return ++polls == 3; }, 1ms)),
                     "cancel");
        before = waited(reader);
        auto popping = in_thread([&] { return rest(reader); });
        EXPECT_TRUE(blocked(kind, queue, reader, before));
        for (int64_t i = 2; i <= 4; i++) push_number(queue, i, kStuck, pass);
        queue.close(pass);
        const bool late = kind.name == "shuffle" || kind.name == "all";
        EXPECT_EQ(range(late ? 1 : 2, 5), sorted(popping.get()));
        EXPECT_EQ(-1, next_number(reader));
    });
}

TEST_F(ChainWaiting, AResetEndsIt) {
    each([&](const Kind &kind, const Queue &queue, const Reader &reader) {
        uint64_t pass = PF_PASS_NONE;
        for (int round = 0; round < 5; round++) {
            const double before = waited(reader);
            auto reading = in_thread([&] { reader.next(); });
            pass = queue.wait_pass(pass, kStuck);
            EXPECT_TRUE(blocked(kind, queue, reader, before));
            reader.reset();
            EXPECT_ERROR(Cancelled, -1, reading.get(), "reset");
            pass = queue.wait_pass(pass, kStuck);
            for (int64_t i = 1; i <= 4; i++) push_number(queue, i, kStuck, pass);
            queue.close(pass);
            EXPECT_EQ(range(1, 5), sorted(rest(reader)));
            reader.reset();
        }
    });
}

// A call that waits in a reader ends when the reader is destroyed, and leaves no waiter behind in the queue.
TEST_F(ChainWaiting, AReaderThatGoes) {
    const size_t all = kinds(scope).size();
    for (size_t i = 0; i < all; i++) {
        const std::string feeder = "feeder" + std::to_string(i), name = "reader" + std::to_string(i);
        const Queue queue = make_queue({4, {{{1}, DType::int64}}, CPUPlace(), 0, true}, feeder);
        std::future<pf_status> reading;
        {
            const Scope inner = scope.child();
            const Kind kind = kinds(inner)[i];
            SCOPED_TRACE(kind.name);
            const Reader reader = kind.over(create_py_array_reader(inner, name, feeder));
            const pf_handle handle = reader.handle();
            reading = in_thread([handle] {
                pf_wait wait = PF_WAIT_INIT;
                wait.timeout_ns = 1'000'000'000;
                pf_tuple tuple = PF_TUPLE_INIT;
                return pf_reader_next(handle, &wait, &tuple, nullptr);
            });
            EXPECT_TRUE(blocked(kind, queue, reader));
        }
        EXPECT_EQ("PF_STALE_HANDLE", status_name(reading.get()));
        EXPECT_TRUE(consumers_wait(queue, 0));
    }
}

}  // namespace

// The map reader: functions that run in threads of the library, and workers in the program's own threads.
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// Takes a varying time, so that threads overtake each other.
void dawdle(int64_t n) {
    for (volatile int64_t i = 0; i < n % 7 * 300;) i = i + 1;
}

class MapTest : public Files {
protected:
    static void same(const Tuple &in, const Emit &emit) { emit(in); }

    static Numbers sorted(Numbers numbers) {
        std::sort(numbers.begin(), numbers.end());
        return numbers;
    }
};

TEST_F(MapTest, MakesOneOfEach) {
    const Reader reader = read_numbers("numbers", range(0, 3000))
                              .map(
                                  [](const Tuple &in, const Emit &emit) {
                                      const auto n = number(in);
                                      dawdle(n);
                                      const Floats made = {float(n), float(2 * n), float(3 * n)};
                                      emit({view(made, {3, 1}), view(&n, {})});
                                  },
                                  4, MapOptions().slots({{{3, 1}, DType::float32}, {{}, DType::int64}}));
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 0; n < 3000; n++) {
            const auto tuple = reader.next(kStuck);
            ASSERT_TRUE(tuple);
            ASSERT_EQ(2u, tuple->size());
            EXPECT_EQ((Shape{3, 1}), tuple->at(0).shape());
            ASSERT_EQ((Floats{float(n), float(2 * n), float(3 * n)}), values<float>(tuple->at(0)));
            ASSERT_EQ((Numbers{n}), values<int64_t>(tuple->at(1)));
            EXPECT_FALSE(tuple->at(0).read_only());
        }
        EXPECT_FALSE(reader.has_next());
        reader.reset();
    }
}

TEST_F(MapTest, OrderIsThatOfTheData) {
    for (const uint64_t capacity : {1u, 2u, 5u, 1000u}) {
        for (const uint32_t threads : {1u, 3u, 8u}) {
            const Reader reader = read_numbers("numbers", range(0, 500))
                                      .map(
                                          [](const Tuple &in, const Emit &emit) {
                                              dawdle(number(in));
                                              emit(in);
                                          },
                                          threads, MapOptions().capacity(capacity), "mapped");
            ASSERT_EQ(range(0, 500), rest(reader)) << capacity << " tuples, " << threads << " threads";
            reader.reset();
            ASSERT_EQ(range(0, 500), rest(reader)) << capacity << " tuples, " << threads << " threads";
        }
    }
}

// Each result is delivered once, also if the consumer is faster than the threads.
TEST_F(MapTest, UnorderedIsEachOnce) {
    const Reader reader = read_numbers("numbers", range(0, 20000)).map(same, 4, MapOptions().ordered(false));
    for (int pass = 0; pass < 2; pass++) {
        EXPECT_EQ(range(0, 20000), sorted(rest(reader)));
        reader.reset();
    }
    EXPECT_EQ("false", member(reader.stats(), "ordered"));
    EXPECT_EQ("16", member(reader.stats(), "capacity"));
}

TEST_F(MapTest, UnorderedComesFirstWhatIsFirstDone) {
    std::promise<void> late;
    const auto waits = late.get_future().share();
    const Reader reader = read_numbers("numbers", range(0, 10))
                              .map(
                                  [waits](const Tuple &in, const Emit &emit) {
                                      if (number(in) == 0) waits.wait();
                                      emit(in);
                                  },
                                  2, MapOptions().ordered(false));
    for (int64_t n = 1; n < 10; n++) EXPECT_EQ(n, next_number(reader));
    EXPECT_ERROR(Timeout, -1, reader.next(1ms), "time");
    late.set_value();
    EXPECT_EQ(0, next_number(reader));
    EXPECT_EQ(-1, next_number(reader));
}

TEST_F(MapTest, WhatIsThrownComesInItsPlace) {
    const Reader reader = read_numbers("numbers", range(0, 100))
                              .map(
                                  [](const Tuple &in, const Emit &emit) {
                                      if (number(in) == 7) throw std::range_error("seven is too many");
                                      emit(in);
                                  },
                                  4);
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t n = 0; n < 7; n++) EXPECT_EQ(n, next_number(reader));
        for (int i = 0; i < 2; i++) {
            try {
                reader.next(kStuck);
                FAIL() << "nothing was thrown";
            } catch (const ProducerError &e) {
                EXPECT_EQ("std::range_error", e.type());
                EXPECT_EQ("seven is too many", e.message());
                EXPECT_EQ("", e.traceback());
                EXPECT_NE(nullptr, std::strstr(e.what(), "seven is too many"));
            }
        }
        reader.reset();
    }
}

// The error of a function in C or C++ names the file and the record of its tuple, or of the first record of its batch.
TEST_F(MapTest, WhatIsThrownNamesTheRecord) {
    const Reader reader = read_numbers("numbers", range(0, 100));
    const std::string file = path("numbers.raw");
    auto expect = [&](const Reader &mapped, int64_t record, const std::string &place,
                      const std::string &cause) {
        try {
            while (mapped.next(kStuck)) {
            }
            FAIL() << "nothing was thrown";
        } catch (const ProducerError &e) {
            EXPECT_EQ(file, e.file());
            EXPECT_EQ(record, e.record());
            EXPECT_EQ(-1, e.offset());
            EXPECT_FALSE(e.approximate());
            EXPECT_EQ("map: " + place + ": the function failed: " + cause, e.what());
        }
    };
    expect(reader.map(
               [](const Tuple &in, const Emit &emit) {
                   if (number(in) == 7) throw std::range_error("seven");
                   emit(in);
               },
               3),
           7, "tuple 7 of pass 0 (" + file + ", record 7)", "std::range_error: seven");
    reader.reset();
    expect(reader.batch(8).map(
               [](const Tuple &in, const Emit &emit) {
                   if (number(in) == 16) throw std::range_error("sixteen");
                   emit(in);
               },
               1),
           16, "tuple 2 of pass 0 (a batch of 8 that begins with " + file + ", record 16)",
           "std::range_error: sixteen");
    reader.reset();
    const Reader mapped = create_reader(scope, "create_map_reader", "of C", {reader.name()}, "");
    pf_handle workers = 0;
    ASSERT_EQ(PF_OK, pf_map_workers_create(mapped.handle(), &workers, nullptr));
    const auto refuse = [](void *, pf_handle, uint64_t, const pf_tuple *) { return 3; };
    ASSERT_EQ(PF_OK, pf_map_workers_start(workers, refuse, nullptr, 1, nullptr, nullptr));
    expect(mapped, 0, "tuple 0 of pass 0 (" + file + ", record 0)", "the function returned 3");
    EXPECT_EQ(PF_OK, pf_release(workers, nullptr));
}

TEST_F(MapTest, AllThatCanBeThrown) {
    auto failure = [&](void (*f)()) {
        const Reader reader =
            read_numbers("numbers", {1}).map([f](const Tuple &, const Emit &) { f(); }, 1, {}, "m");
        try {
            reader.next(kStuck);
        } catch (const ProducerError &e) {
            return std::make_tuple(e.type(), e.message(), e.traceback(), e.token());
        }
        return std::make_tuple(std::string(), std::string(), std::string(), uint64_t{0});
    };
    using Seen = std::tuple<std::string, std::string, std::string, uint64_t>;
    EXPECT_EQ(Seen("unknown", "an exception that is no std::exception", "", 0), failure([] { throw 5; }));
    EXPECT_EQ(Seen("T", "m", "back", 42), failure([] { throw ProducerError("what", "T", "m", "back", 42); }));
    const Seen nested = failure([] {
        try {
            throw std::logic_error("inner");
        } catch (...) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    });
    EXPECT_EQ("outer", std::get<1>(nested));
    EXPECT_NE(std::string::npos, std::get<2>(nested).find("caused by std::logic_error: inner"));
    EXPECT_EQ(Seen("", "the function gave no result", "", 0), failure([] {}));
}

TEST_F(MapTest, AResultThatDoesNotFit) {
    const Reader numbers = read_numbers("numbers", range(0, 3));
    const Reader reader = numbers.map(
        [](const Tuple &in, const Emit &emit) {
            const int64_t n = number(in);
            const Numbers two = {n, n};
            const float real = 1;
            EXPECT_ERROR(ShapeError, 0, emit({view(two)}), "slot 0", "expected 1", "found 2");
            EXPECT_ERROR(DTypeError, 0, emit({view(&real, {1})}), "int64", "float32");
            EXPECT_ERROR(SlotCountError, -1, emit({view(&n, {1}), view(&n, {1})}), "expected 1", "found 2");
            EXPECT_ERROR(ShapeError, 0, emit({view(&n, {1}).with_lod(LoD{{0, 1}})}), "LoD");
            EXPECT_ERROR(InvalidArgument, 0, emit({TensorView(DType::int64, {1})}), "NULL");
            if (n == 2) emit({view(&real, {1})});
            emit(in);  // a second call is allowed; the first result that fits counts
            emit({view(&n, {1})});
        },
        2);
    EXPECT_EQ(0, next_number(reader));
    EXPECT_EQ(1, next_number(reader));
    EXPECT_ERROR(ProducerError, -1, reader.next(kStuck), "DTypeError", "expected int64", "found float32");
}

TEST_F(MapTest, WhatIsThrownAfterAResultIsLost) {
    const Reader reader = read_numbers("numbers", range(0, 100))
                              .map(
                                  [](const Tuple &in, const Emit &emit) {
                                      emit(in);
                                      throw std::runtime_error("too late");
                                  },
                                  2, MapOptions().ordered(false));
    EXPECT_EQ(range(0, 100), sorted(rest(reader)));
}

TEST_F(MapTest, LevelsOfDetailAndStrides) {
    const Reader reader = read_numbers("numbers", range(0, 20))
                              .map(
                                  [](const Tuple &in, const Emit &emit) {
                                      const int64_t n = number(in);
                                      const Numbers sequence = range(0, n);
                                      const Floats matrix = {0, 1, 2, 3, 4, 5};
                                      emit({view(sequence).with_lod(LoD{{0, n / 2, n}}),
                                            view(&matrix[2], {2, 3}).with_strides({12, -4})});
                                  },
                                  2, MapOptions().slots({{{-1}, DType::int64, 1}, {{2, 3}, DType::float32}}));
    for (int64_t n = 0; n < 20; n++) {
        const auto tuple = reader.next(kStuck);
        EXPECT_EQ(range(0, n), values<int64_t>(tuple->at(0)));
        EXPECT_EQ((Numbers{0, n / 2, n}), offsets(tuple->at(0), 0));
        EXPECT_EQ((Floats{2, 1, 0, 5, 4, 3}), values<float>(tuple->at(1)));
    }
    EXPECT_FALSE(reader.next());
}

TEST_F(MapTest, TheInputIsBorrowed) {
    std::mutex mutex;
    std::vector<Tuple> kept;
    const Reader reader = read_numbers("numbers", range(0, 50))
                              .batch(5)
                              .map(
                                  [&](const Tuple &in, const Emit &emit) {
                                      const std::lock_guard<std::mutex> lock(mutex);
                                      kept.push_back(in.share());
                                      emit(in);
                                  },
                                  3);
    int64_t batches = 0;
    for (Tuple &tuple : reader.tuples(kStuck)) {
        EXPECT_EQ(range(5 * batches, 5 * batches + 5), values<int64_t>(tuple[0]));
        batches++;
    }
    EXPECT_EQ(10, batches);
    const std::lock_guard<std::mutex> lock(mutex);
    std::sort(kept.begin(), kept.end(), [](const Tuple &a, const Tuple &b) { return number(a) < number(b); });
    for (int64_t i = 0; i < 10; i++) EXPECT_EQ(range(5 * i, 5 * i + 5), values<int64_t>(kept[size_t(i)][0]));
}

TEST_F(MapTest, TheFunctionGoesWithTheReader) {
    auto held = std::make_shared<int>(5);
    const std::weak_ptr<int> watched = held;
    {
        const Reader reader =
            read_numbers("numbers", range(0, 10))
                .map([held = std::move(held)](const Tuple &in, const Emit &emit) { emit(in); }, 3);
        EXPECT_EQ(0, next_number(reader));
        EXPECT_FALSE(watched.expired());
        scope.erase("numbers.map");
        EXPECT_EQ(1, next_number(reader));
    }
    EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

TEST_F(MapTest, AReaderThatGoesWhileFunctionsWork) {
    std::promise<void> gone;
    const auto waits = gone.get_future().share();
    auto working = std::make_shared<std::atomic<int>>(0);
    auto ended = std::make_shared<std::atomic<int>>(0);
    {
        const Reader reader = read_numbers("numbers", range(0, 10))
                                  .map(
                                      [=](const Tuple &in, const Emit &emit) {
                                          (*working)++;
                                          waits.wait();
                                          EXPECT_LE(0, number(in));
                                          emit(in);  // the reader is gone, so the result is dropped
                                          (*ended)++;
                                      },
                                      3);
        EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
        EXPECT_TRUE(eventually([&] { return *working == 3; }));
        scope.erase("numbers.map");
        scope.erase("numbers");
    }
    gone.set_value();
    EXPECT_TRUE(eventually([&] { return *ended == 3; }));
    EXPECT_EQ(3, *working);
}

TEST_F(MapTest, CapacityBoundsWhatIsOut) {
    std::promise<void> enough;
    const auto waits = enough.get_future().share();
    std::atomic<int> working{0};
    const Reader reader = read_numbers("numbers", range(0, 100))
                              .map(
                                  [&working, waits](const Tuple &in, const Emit &emit) {
                                      working++;
                                      waits.wait();
                                      emit(in);
                                  },
                                  6, MapOptions().capacity(3));
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    EXPECT_TRUE(eventually([&] { return working == 3; }));
    EXPECT_ERROR(Timeout, -1, reader.next(20ms), "time");
    EXPECT_EQ(3, working);
    enough.set_value();
    EXPECT_EQ(range(0, 100), rest(reader));
}

// A reset discards the results of the pass before it, however late they arrive.
TEST_F(MapTest, ResetsWhileFunctionsWork) {
    for (const bool ordered : {true, false}) {
        std::atomic<int64_t> seen{0};
        const Reader reader = read_numbers("numbers", range(0, 200))
                                  .map(
                                      [&](const Tuple &in, const Emit &emit) {
                                          seen++;
                                          dawdle(number(in));
                                          emit(in);
                                      },
                                      4, MapOptions().capacity(10).ordered(ordered), "mapped");
        for (int64_t i = 0; i < 100; i++) {
            const int64_t before = seen;
            for (int64_t n = 0; n < i % 13; n++) {
                if (ordered) {
                    ASSERT_EQ(n, next_number(reader));
                } else {
                    ASSERT_LE(0, next_number(reader));
                }
            }
            if (i % 13 > 0) {
                EXPECT_TRUE(eventually([&] { return seen >= before + i % 13; }));
            }
            reader.reset();
        }
        EXPECT_EQ(range(0, 200), sorted(rest(reader)));
    }
}

TEST_F(MapTest, Refusals) {
    const Reader numbers = read_numbers("numbers", {1});
    EXPECT_ERROR(InvalidArgument, -1, numbers.map(same, 0), "num_threads", "found 0");
    EXPECT_ERROR(InvalidArgument, -1, numbers.map(same, 100000), "num_threads");
    EXPECT_ERROR(InvalidArgument, -1, numbers.map(nullptr, 1), "function");
    EXPECT_FALSE(scope.has("numbers.map"));
    EXPECT_ERROR(InvalidArgument, -1, numbers.map(same, 1, MapOptions().capacity(0)), "capacity", "found 0");
    EXPECT_ERROR(ShapeError, 0, numbers.map(same, 1, MapOptions().slots({{{-2}, DType::int64}})), "slot 0",
                 "-2");
    EXPECT_ERROR(SlotCountError, -1, numbers.map(same, 1, MapOptions().slots({})), "slots");
    EXPECT_ERROR(DTypeError, 0, numbers.map(same, 1, MapOptions().slots({{{1}, DType(77)}})), "dtype 77");
    EXPECT_EQ((Numbers{1}), rest(numbers));
}

// ---- By C functions ----

TEST_F(MapTest, ACFunction) {
    struct Context {
        std::atomic<int> calls{0};
        std::atomic<bool> finished{false};
    } context;
    {
        const Reader reader = create_reader(scope, "create_map_reader", "mapped",
                                            {read_numbers("numbers", range(0, 9)).name()});
        pf_handle workers = 0;
        CError err;
        EXPECT_STATUS(PF_OK, pf_map_workers_create(reader.handle(), &workers, &err));
        const pf_map_function function = [](void *c, pf_handle w, uint64_t ticket,
                                            const pf_tuple *in) -> int {
            static_cast<Context *>(c)->calls++;
            const int64_t n = *static_cast<const int64_t *>(in->slots[0].data);
            if (n == 5) return 3;
            if (n == 6) return 0;
            return pf_map_workers_complete(w, ticket, in->slots, in->num_slots, nullptr);
        };
        EXPECT_STATUS(PF_OK, pf_map_workers_start(
                                 workers, function, &context, 2,
                                 [](void *c) { static_cast<Context *>(c)->finished = true; }, &err));
        EXPECT_STATUS(PF_OK, pf_release(workers, &err));
        for (int64_t n = 0; n < 5; n++) EXPECT_EQ(n, next_number(reader));
        EXPECT_ERROR(ProducerError, -1, reader.next(kStuck), "the function returned 3");
        EXPECT_FALSE(context.finished);
        scope.erase("mapped");
    }
    EXPECT_TRUE(eventually([&] { return context.finished.load(); }));
    EXPECT_LE(6, context.calls);
}

// A dataset that is read by the numbers of its samples goes on where its state was saved, in a job of another size too.
TEST_F(Files, RecordsByNumber) {
    const auto dataset = [&](const std::string &name, int rank, int world) {
        return create_range_reader(
                   scope, name, 100,
                   RangeOptions().shuffle(5).virtual_shards(4).rank(rank).world(world).even("repeat"))
            .map(
                [](const Tuple &in, const Emit &emit) {
                    const int64_t n = number(in) + 1000;
                    emit({view(&n, {})});
                },
                2);
    };
    const Numbers job = rest(dataset("job", 0, 1));
    ASSERT_EQ(100u, job.size());
    Numbers sorted = job;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(range(1000, 1100), sorted);
    EXPECT_NE(sorted, job);
    const Reader half = dataset("half", 1, 2);
    EXPECT_EQ(50, std::stoi(member(half.stats(), "length")));
    for (int i = 0; i < 8; i++) half.next();
    const std::string state = half.state();
    for (int rank = 0; rank < 4; rank++) {
        const Reader quarter = dataset("quarter" + std::to_string(rank), rank, 4);
        quarter.load_state(state);
        Numbers expected;
        for (size_t i = 16 + static_cast<size_t>(rank); i < job.size(); i += 4) expected.push_back(job[i]);
        EXPECT_EQ(expected, rest(quarter));
    }
}

// ---- By the program's own threads ----

class WorkersTest : public Files {
protected:
    WorkersTest()
        : reader(
              create_reader(scope, "create_map_reader", "mapped", {numbers.name()}, R"({"capacity": 4})")) {
        EXPECT_STATUS(PF_OK, pf_map_workers_create(reader->handle(), &workers, &err));
    }
    ~WorkersTest() override {
        pf_tuple_release(&tuple);
        EXPECT_STATUS(PF_OK, pf_release(workers, &err));
    }
    // Takes a number with its ticket; returns -1 after an error.
    int64_t next(uint64_t *ticket, int64_t timeout_ns = 60'000'000'000) {
        pf_wait wait = PF_WAIT_INIT;
        wait.timeout_ns = timeout_ns;
        if (pf_map_workers_next(workers, &wait, &tuple, ticket, &err) != PF_OK) return -1;
        return *static_cast<const int64_t *>(tuple.slots[0].data);
    }
    pf_status complete(uint64_t ticket, int64_t n) {
        const TensorView one = view(&n, {1});
        const pf_tensor raw = one.raw();
        return pf_map_workers_complete(workers, ticket, &raw, 1, &err);
    }

    const Reader numbers = read_numbers("numbers", range(0, 10));
    std::optional<Reader> reader;
    pf_handle workers = 0;
    pf_tuple tuple = PF_TUPLE_INIT;
    CError err;
    uint64_t ticket = 0;
};

TEST_F(WorkersTest, NextAndComplete) {
    EXPECT_EQ(-1, next(&ticket, 1'000'000));  // no consumer reads yet
    EXPECT_EQ(PF_TIMEOUT, err.raw.status);
    auto reading = in_thread([&] { return next_number(*reader); });
    EXPECT_EQ(0, next(&ticket));
    uint64_t second = 0;
    EXPECT_EQ(1, next(&second));
    EXPECT_NE(ticket, second);
    EXPECT_STATUS(PF_OK, complete(second, 101));
    EXPECT_STATUS(PF_OK, complete(second, 102));  // a second result is discarded
    EXPECT_STATUS(PF_OK, complete(12345, 103));
    EXPECT_EQ(std::future_status::timeout, reading.wait_for(10ms));
    EXPECT_STATUS(PF_OK, complete(ticket, 100));
    EXPECT_EQ(100, reading.get());
    EXPECT_EQ(101, next_number(*reader));
    EXPECT_STATUS(PF_OK, complete(ticket, 104));  // discarded, since the ticket was delivered
    EXPECT_EQ(2, next(&ticket));
    EXPECT_STATUS(PF_OK, complete(ticket, 105));
    EXPECT_EQ(105, next_number(*reader));
}

TEST_F(WorkersTest, AResultThatIsRefusedLeavesTheTicketOpen) {
    EXPECT_ERROR(Timeout, -1, reader->next(Wait::none()), "time");
    EXPECT_EQ(0, next(&ticket));
    const Floats x = {1, 2};
    const TensorView two = view(x);
    const pf_tensor raw = two.raw();
    EXPECT_STATUS(PF_DTYPE, pf_map_workers_complete(workers, ticket, &raw, 1, &err));
    EXPECT_EQ(0, err.raw.slot);
    EXPECT_STATUS(PF_SLOTS, pf_map_workers_complete(workers, ticket, &raw, 0, &err));
    EXPECT_STATUS(PF_OK, complete(ticket, 7));
    EXPECT_EQ(7, next_number(*reader));
}

// A result is written in place. A reservation of a queue is none for a result, and the other way round.
TEST_F(WorkersTest, ReserveAndCommit) {
    EXPECT_ERROR(Timeout, -1, reader->next(Wait::none()), "time");
    EXPECT_EQ(0, next(&ticket));
    const auto reserve = [&](DType dtype, std::vector<int64_t> dims, pf_tuple *out) {
        pf_tensor raw = PF_TENSOR_INIT;
        raw.dtype = static_cast<pf_dtype>(dtype);
        raw.rank = static_cast<int32_t>(dims.size());
        raw.dims = dims.data();
        return pf_map_workers_reserve(workers, &raw, 1, out, &err);
    };
    pf_tuple dropped = PF_TUPLE_INIT, result = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_DTYPE, reserve(DType::float32, {1}, &result));
    EXPECT_EQ(0, err.raw.slot);
    EXPECT_STATUS(PF_SHAPE, reserve(DType::int64, {2}, &result));
    EXPECT_EQ(0u, result.loan);
    EXPECT_STATUS(PF_OK, reserve(DType::int64, {1}, &dropped));
    EXPECT_STATUS(PF_STATE, pf_queue_commit(&dropped, &err));
    pf_tuple_release(&dropped);
    EXPECT_STATUS(PF_STATE, pf_map_workers_commit(workers, ticket, &dropped, &err));
    EXPECT_STATUS(PF_STATE,
                  pf_map_workers_commit(workers, ticket, &tuple, &err));  // it was taken, not reserved

    EXPECT_STATUS(PF_OK, reserve(DType::int64, {1}, &result));
    ASSERT_EQ(1u, result.num_slots);
    *static_cast<int64_t *>(result.slots[0].data) = 42;
    EXPECT_STATUS(PF_OK, pf_map_workers_commit(workers, ticket, &result, &err));
    EXPECT_EQ(0u, result.loan);
    EXPECT_EQ(0u, result.num_slots);
    EXPECT_EQ(42, next_number(*reader));
    EXPECT_STATUS(PF_OK, reserve(DType::int64, {1}, &result));
    EXPECT_STATUS(PF_OK,
                  pf_map_workers_commit(workers, ticket, &result, &err));  // discarded: it was delivered
    EXPECT_EQ(0u, result.loan);
}

TEST_F(WorkersTest, Fail) {
    EXPECT_ERROR(Timeout, -1, reader->next(Wait::none()), "time");
    EXPECT_EQ(0, next(&ticket));
    pf_failure failure = PF_FAILURE_INIT;
    failure.type = "E";
    failure.message = "boom";
    failure.token = 9;
    EXPECT_STATUS(PF_OK, pf_map_workers_fail(workers, 12345, &failure, &err));
    EXPECT_STATUS(PF_OK, pf_map_workers_fail(workers, ticket, &failure, &err));
    EXPECT_STATUS(PF_OK, complete(ticket, 7));  // discarded, since the ticket has failed
    try {
        reader->next(kStuck);
        FAIL() << "nothing was thrown";
    } catch (const ProducerError &e) {
        EXPECT_EQ("E", e.type());
        EXPECT_EQ(9u, e.token());
    }
}

TEST_F(WorkersTest, AResetForgetsWhatIsOut) {
    EXPECT_ERROR(Timeout, -1, reader->next(Wait::none()), "time");
    uint64_t old[3];
    for (int64_t i = 0; i < 3; i++) EXPECT_EQ(i, next(&old[i]));
    EXPECT_STATUS(PF_OK, complete(old[1], 1));
    reader->reset();
    EXPECT_STATUS(PF_OK, complete(old[0], 500));
    EXPECT_EQ(-1, next(&ticket, 1'000'000));  // no consumer reads in this pass yet
    EXPECT_ERROR(Timeout, -1, reader->next(Wait::none()), "time");
    EXPECT_STATUS(PF_OK, complete(old[2], 501));
    EXPECT_EQ(0, next(&ticket));
    EXPECT_STATUS(PF_OK, complete(ticket, 10));
    EXPECT_EQ(10, next_number(*reader));
}

TEST_F(WorkersTest, CapacityAndEnd) {
    EXPECT_ERROR(Timeout, -1, reader->next(Wait::none()), "time");
    for (int64_t i = 0; i < 10; i++) {
        EXPECT_EQ(i, next(&ticket));
        EXPECT_STATUS(PF_OK, complete(ticket, i));
        if (i >= 3) {
            EXPECT_EQ(-1, next(&ticket, 0));
            EXPECT_EQ(i - 3, next_number(*reader));
        }
    }
    // The worker finds the end of the data, without which the reader would wait, and then waits for the next pass.
    auto taking = in_thread([&] { return next(&ticket); });
    EXPECT_EQ(range(7, 10), rest(*reader));
    EXPECT_EQ(std::future_status::timeout, taking.wait_for(10ms));
    reader->reset();
    auto reading = in_thread([&] { return next_number(*reader); });
    EXPECT_EQ(0, taking.get());
    EXPECT_STATUS(PF_OK, complete(ticket, 77));
    EXPECT_EQ(77, reading.get());
}

TEST_F(WorkersTest, TheReaderGoes) {
    auto taking = in_thread([&] { return next(&ticket); });
    EXPECT_TRUE(eventually([&] { return std::stod(member(reader->stats(), "workers_waited_seconds")) > 0; }));
    scope.erase("mapped");
    reader.reset();
    EXPECT_EQ(-1, taking.get());
    EXPECT_EQ(PF_CLOSED, err.raw.status);
    EXPECT_STATUS(PF_CLOSED, pf_map_workers_next(workers, nullptr, &tuple, &ticket, &err));
    EXPECT_STATUS(PF_OK, complete(0, 1));
}

TEST_F(WorkersTest, ATokenEndsAWait) {
    const CancelToken token;
    pf_wait wait = PF_WAIT_INIT;
    wait.cancel = token.handle();
    auto taking = in_thread([&] { return pf_map_workers_next(workers, &wait, &tuple, &ticket, &err); });
    EXPECT_TRUE(eventually([&] { return std::stod(member(reader->stats(), "workers_waited_seconds")) > 0; }));
    token.cancel();
    EXPECT_STATUS(PF_CANCELLED, taking.get());
}

TEST_F(WorkersTest, OtherReadersHaveNone) {
    pf_handle none = 77;
    EXPECT_STATUS(PF_STATE, pf_map_workers_create(numbers.handle(), &none, &err));
    EXPECT_EQ(0u, none);
    EXPECT_NE(std::string::npos, err.message().find("map reader")) << err.message();
}

}  // namespace

// The staging buffer: order, copies, limits, waits, shutdown. A process has one buffer for each place. Tests that need
// other limits, or that shut the buffer down, run in their own process.
#include <cstdlib>
#include <numeric>
#include <set>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// Runs a test in a new process, in which the library was not used yet.
void alone(void (*test)()) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            test();
            _Exit(::testing::Test::HasFailure() ? 1 : 0);
        },
        ::testing::ExitedWithCode(0), "");
}

void put_number(const StagingBuffer &buffer, int64_t n, const Wait &wait = kStuck) {
    buffer.put({view(&n, {1})}, wait);
}
int64_t got_number(const StagingBuffer &buffer, const Wait &wait = kStuck) {
    return number(buffer.get(wait));
}

::testing::AssertionResult producers_wait(const StagingBuffer &buffer, uint32_t n) {
    return eventually([&] { return buffer.stats().waiting_producers == n; });
}
::testing::AssertionResult consumers_wait(const StagingBuffer &buffer, uint32_t n) {
    return eventually([&] { return buffer.stats().waiting_consumers == n; });
}

// The buffer stays for the life of the process; its handles and its tuples must not.
class Staging : public Counted {
protected:
    ~Staging() override { buffer.clear(); }

    StagingBuffer buffer = get_buffer(CPUPlace(), 2);
};
using StagingAlone = Counted;

TEST_F(Staging, OneBufferAPlace) {
    EXPECT_EQ(2u, buffer.capacity());
    EXPECT_EQ(0u, buffer.bytes_limit());
    EXPECT_TRUE(buffer.place() == CPUPlace());
    put_number(buffer, 7);
    const StagingBuffer same = get_buffer(CPUPlace(), 2), copy = same;
    EXPECT_EQ(1u, same.size());
    EXPECT_EQ(7, got_number(copy));
    EXPECT_EQ(0u, buffer.size());
    EXPECT_ERROR(StateError, -1, get_buffer(CPUPlace(), 3), "capacity 2 and bytes_limit 0",
                 "found capacity 3 and bytes_limit 0");
    EXPECT_ERROR(StateError, -1, get_buffer(CPUPlace(), 2, 64), "found capacity 2 and bytes_limit 64");
}

TEST_F(Staging, FirstInFirstOut) {
    int64_t in = 0, out = 0;
    for (int round = 0; round < 50; round++) {
        while (buffer.size() < buffer.capacity()) put_number(buffer, in++);
        for (int k = 0; k < 1 + round % 2; k++) EXPECT_EQ(out++, got_number(buffer));
    }
}

TEST_F(Staging, PutCopies) {
    Numbers numbers = range(0, 6);
    buffer.put({view(numbers, {2, 3})});
    numbers.assign(6, -1);
    const Tuple tuple = buffer.get();
    ASSERT_EQ(1u, tuple.size());
    EXPECT_EQ((Shape{2, 3}), tuple[0].shape());
    EXPECT_EQ(range(0, 6), values<int64_t>(tuple[0]));
    EXPECT_NE(static_cast<const void *>(numbers.data()), tuple[0].data());
}

TEST_F(Staging, TuplesNeedNotLookAlike) {
    const Numbers numbers = range(0, 7);
    const Floats floats = {1, 2, 3, 4, 5};
    const int64_t n = 9;
    buffer.put({view(numbers).with_lod(LoD{{0, 1, 2}, {0, 2, 7}}), view(floats)});
    buffer.put({view(&n, {})});
    const Tuple first = buffer.get(), second = buffer.get();
    ASSERT_EQ(2u, first.size());
    ASSERT_EQ(2u, first[0].lod_levels());
    EXPECT_EQ((Numbers{0, 1, 2}), offsets(first[0], 0));
    EXPECT_EQ((Numbers{0, 2, 7}), offsets(first[0], 1));
    EXPECT_EQ(numbers, values<int64_t>(first[0]));
    EXPECT_EQ(floats, values<float>(first[1]));
    ASSERT_EQ(1u, second.size());
    EXPECT_EQ((Shape{}), second[0].shape());
    EXPECT_EQ(9, number(second));

    EXPECT_ERROR(SlotCountError, -1, buffer.put({}), "expected at least 1, found 0");
    EXPECT_ERROR(ShapeError, 1, buffer.put({view(floats), view(numbers).with_lod(LoD{{0, 5}})}),
                 "expected the last offset to be 7");
    EXPECT_EQ(0u, buffer.size());
}

// Large and strided tensors are copied outside Go.
TEST_F(Staging, LargeAndStrided) {
    Numbers large(1 << 18);
    std::iota(large.begin(), large.end(), 0);
    const Numbers numbers = range(0, 12);
    buffer.put({view(large), view(numbers.data(), {4, 3}).with_strides({8, 32})});
    large.assign(large.size(), -1);
    const Tuple tuple = buffer.get();
    const auto found = tuple[0].values<int64_t>();
    ASSERT_EQ(large.size(), found.size());
    for (size_t i = 0; i < found.size(); i++) ASSERT_EQ(static_cast<int64_t>(i), found[i]);
    EXPECT_EQ((Numbers{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}), values<int64_t>(tuple[1]));
}

TEST_F(Staging, PutWaitsForRoom) {
    put_number(buffer, 0);
    put_number(buffer, 1);
    auto producer = in_thread([&] { put_number(buffer, 2); });
    ASSERT_TRUE(producers_wait(buffer, 1));
    EXPECT_EQ(2u, buffer.size());
    for (int64_t n = 0; n < 3; n++) EXPECT_EQ(n, got_number(buffer));
    producer.get();
}

TEST_F(Staging, GetWaitsForAPut) {
    auto consumer = in_thread([&] { return got_number(buffer); });
    ASSERT_TRUE(consumers_wait(buffer, 1));
    put_number(buffer, 5);
    EXPECT_EQ(5, consumer.get());
}

TEST_F(Staging, WaitsEndAsTold) {
    EXPECT_ERROR(Timeout, -1, buffer.get(Wait::none()), "time");
    EXPECT_ERROR(Timeout, -1, buffer.get(1ms), "time");
    put_number(buffer, 0);
    put_number(buffer, 1);
    EXPECT_ERROR(Timeout, -1, put_number(buffer, 2, Wait::none()), "time");
    EXPECT_ERROR(Timeout, -1, put_number(buffer, 2, 1ms), "time");
    CancelToken token;
    auto producer = in_thread([&] { put_number(buffer, 2, Wait().cancel(token)); });
    ASSERT_TRUE(producers_wait(buffer, 1));
    token.cancel();
    EXPECT_ERROR(Cancelled, -1, producer.get(), "cancel");
    EXPECT_ERROR(Cancelled, -1, put_number(buffer, 2, Wait().poll([] { return true; }, 1ms)), "cancel");
    EXPECT_EQ(0, got_number(buffer));  // no tuple was lost, and no push that timed out took effect later
    EXPECT_EQ(1, got_number(buffer));
    EXPECT_EQ(0u, buffer.size());
    EXPECT_EQ(0u, buffer.stats().waiting_producers + buffer.stats().waiting_consumers);
}

TEST_F(Staging, ClearLetsThoseInThatWait) {
    put_number(buffer, 0);
    put_number(buffer, 1);
    auto producer = in_thread([&] { put_number(buffer, 2); });
    ASSERT_TRUE(producers_wait(buffer, 1));
    EXPECT_EQ(2u, buffer.clear());
    producer.get();
    EXPECT_EQ(2, got_number(buffer));
    EXPECT_EQ(0u, buffer.clear());
    EXPECT_STATUS(PF_OK, pf_staging_clear(buffer.handle(), nullptr, nullptr));
}

TEST_F(Staging, ClearLeavesGettersWaiting) {
    auto consumer = in_thread([&] { return got_number(buffer); });
    ASSERT_TRUE(consumers_wait(buffer, 1));
    EXPECT_EQ(0u, buffer.clear());
    EXPECT_EQ(1u, buffer.stats().waiting_consumers);
    put_number(buffer, 3);
    EXPECT_EQ(3, consumer.get());
}

TEST_F(Staging, Stats) {
    const StagingInfo before = buffer.stats();
    put_number(buffer, 1);
    put_number(buffer, 2);
    StagingInfo info = buffer.stats();
    EXPECT_EQ(2u, info.num_tuples);
    EXPECT_EQ(2u, info.capacity);
    EXPECT_EQ(16u, info.bytes);
    EXPECT_EQ(0u, info.bytes_limit);
    EXPECT_EQ(0u, info.reserved_tuples);
    EXPECT_EQ(before.put + 2, info.put);
    EXPECT_EQ(before.put_bytes + 16, info.put_bytes);
    buffer.get();
    buffer.clear();
    info = buffer.stats();
    EXPECT_EQ(0u, info.num_tuples);
    EXPECT_EQ(0u, info.bytes);
    EXPECT_EQ(before.got + 1, info.got);
    EXPECT_EQ(before.dropped + 1, info.dropped);
}

TEST_F(Staging, InC) {
    CError err;
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_INVALID, pf_staging_create({PF_CPU, 0}, 2, 0, nullptr, &err));
    EXPECT_STATUS(PF_INVALID, pf_staging_put(buffer.handle(), nullptr, 1, nullptr, &err));
    EXPECT_STATUS(PF_INVALID, pf_staging_get(buffer.handle(), nullptr, nullptr, &err));
    EXPECT_STATUS(PF_INVALID, pf_staging_stats(buffer.handle(), nullptr, &err));
    const Scope scope;
    uint64_t dropped = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_staging_clear(scope.handle(), &dropped, &err));
    EXPECT_EQ(0u, dropped);
    EXPECT_NE(std::string::npos, err.message().find("expected a staging buffer, found a scope"))
        << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(buffer.handle(), PF_PASS_CURRENT, &err));
    EXPECT_NE(std::string::npos, err.message().find("expected a queue, found a staging buffer"))
        << err.message();
    pf_handle handle = 77;
    EXPECT_STATUS(PF_STATE, pf_staging_create({PF_CPU, 0}, 9, 0, &handle, &err));
    EXPECT_EQ(0u, handle);

    // Each get releases the tuple that the struct still holds.
    for (int64_t n = 0; n < 3; n++) {
        put_number(buffer, n);
        EXPECT_STATUS(PF_OK, pf_staging_get(buffer.handle(), nullptr, &tuple, &err));
        EXPECT_EQ(n, *static_cast<const int64_t *>(tuple.slots[0].data));
        EXPECT_EQ(1, memory_stats().tuples_on_loan);
    }
    pf_tuple_release(&tuple);
}

// Each tuple that a thread puts is got once or dropped. The tuples of one producer stay in order.
TEST_F(Staging, NothingIsLostOrDoubled) {
    constexpr int64_t producers = 3, each = 2000;
    const StagingInfo before = buffer.stats();
    std::atomic<int64_t> got{0};
    std::vector<std::future<Numbers>> consumers;
    CancelToken stop;
    for (int c = 0; c < 2; c++) {
        consumers.push_back(in_thread([&] {
            Numbers numbers;
            try {
                for (;;) numbers.push_back(got_number(buffer, Wait().cancel(stop))), got++;
            } catch (const Cancelled &) {
            }
            return numbers;
        }));
    }
    std::vector<std::future<void>> threads;
    for (int64_t p = 0; p < producers; p++) {
        threads.push_back(in_thread([&, p] {
            for (int64_t i = 0; i < each; i++) put_number(buffer, p * each + i);
        }));
    }
    auto clearer = in_thread([&] {
        uint64_t dropped = 0;
        for (int i = 0; i < 200; i++) dropped += buffer.clear();
        return dropped;
    });
    for (auto &thread : threads) thread.get();
    const uint64_t dropped = clearer.get();
    EXPECT_TRUE(eventually([&] { return static_cast<uint64_t>(got) + dropped == producers * each; }));
    stop.cancel();
    std::set<int64_t> seen;
    for (auto &consumer : consumers) {
        Numbers last(producers, -1);
        for (const int64_t n : consumer.get()) {
            EXPECT_TRUE(seen.insert(n).second) << n << " was delivered twice";
            EXPECT_LT(last[n / each], n) << "out of order";
            last[n / each] = n;
        }
    }
    const StagingInfo info = buffer.stats();
    EXPECT_EQ(before.put + producers * each, info.put);
    EXPECT_EQ(before.dropped + dropped, info.dropped);
    EXPECT_EQ(before.got + seen.size(), info.got);
    EXPECT_EQ(0u, info.bytes);
}

// ---- In their own processes ----

TEST_F(StagingAlone, FirstCallMakesIt) {
    alone([] {
        EXPECT_ERROR(InvalidArgument, -1, get_buffer(CPUPlace(), 0),
                     "capacity: expected at least 1 tuple, found 0");
        std::vector<std::future<StagingBuffer>> threads;
        for (int i = 0; i < 8; i++)
            threads.push_back(in_thread([] { return get_buffer(CPUPlace(), 8, 64); }));
        put_number(threads[0].get(), 3);
        for (int i = 1; i < 8; i++) EXPECT_EQ(1u, threads[i].get().size());  // all got the same buffer
    });
}

TEST_F(StagingAlone, BytesLimit) {
    alone([] {
        const StagingBuffer buffer = get_buffer(CPUPlace(), 8, 64);
        const Numbers eight(8), nine(9);
        EXPECT_ERROR(TooLargeError, -1, buffer.put({view(nine)}),
                     "expected a tuple of at most 64 bytes, found 72");
        put_number(buffer, 0);
        auto large = in_thread([&] { buffer.put({view(eight)}, kStuck); });
        EXPECT_TRUE(producers_wait(buffer, 1));
        EXPECT_ERROR(Timeout, -1, put_number(buffer, 1, Wait::none()), "time");  // it must not overtake
        EXPECT_EQ(0, got_number(buffer));
        large.get();
        EXPECT_EQ(64u, buffer.stats().bytes);
        EXPECT_EQ(eight, values<int64_t>(buffer.get()[0]));
    });
}

TEST_F(StagingAlone, ShutdownEndsEveryWait) {
    alone([] {
        EXPECT_STATUS(PF_OK, pf_staging_shutdown(nullptr));  // no buffer exists yet
        const StagingBuffer buffer = get_buffer(CPUPlace(), 1);
        put_number(buffer, 0);
        auto producer = in_thread([&] { put_number(buffer, 1); });
        EXPECT_TRUE(producers_wait(buffer, 1));
        EXPECT_STATUS(PF_OK, pf_staging_shutdown(nullptr));
        EXPECT_ERROR(QueueClosed, -1, producer.get(), "the staging buffer is shut down");
        EXPECT_ERROR(QueueClosed, -1, buffer.get(), "the staging buffer is shut down");
        EXPECT_EQ(0u, buffer.size());
        EXPECT_EQ(1u, buffer.stats().dropped);
    });
}

}  // namespace

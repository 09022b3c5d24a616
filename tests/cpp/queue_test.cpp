// The queue: order, passes, ends, failures, limits.
#include <algorithm>
#include <mutex>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class QueueTest : public Feed {};

TEST_F(QueueTest, FirstInFirstOut) {
    const Queue queue = numbers(100);
    for (int64_t i = 0; i < 100; i++) push_number(queue, i);
    for (int64_t i = 0; i < 100; i++) EXPECT_EQ(i, next_number(queue));
    EXPECT_TRUE(queue.is_empty());
}

TEST_F(QueueTest, SlotsHaveNames) {
    QueueOptions options;
    options.capacity = 1;
    options.slots = {{{2}, DType::float32, 0, "image"}, {{}, DType::any}};
    const Queue queue = QueueHolder(scope.var("named")).init_once(options);
    EXPECT_EQ("image", queue.slot(0).name);
    EXPECT_EQ("", queue.slot(1).name);
    EXPECT_NE(std::string::npos,
              create_py_array_reader(scope, "named_reader", "named").stats().find("\"name\":\"image\""));
}

TEST_F(QueueTest, OrderHoldsWhileTheRingTurns) {
    const Queue queue = numbers(7);
    int64_t in = 0, out = 0;
    for (int round = 0; round < 50; round++) {
        while (!queue.is_full()) push_number(queue, in++);
        for (int k = 0; k < 1 + round % 7; k++) EXPECT_EQ(out++, next_number(queue));
    }
}

TEST_F(QueueTest, OrderHoldsBetweenAProducerAndAConsumer) {
    for (const uint64_t capacity : {1, 2, 10}) {
        const Queue queue = numbers(capacity, false), &q = queue;
        constexpr int64_t n = 2000;
        auto producer = in_thread([&q] {
            for (int64_t i = 0; i < n; i++) push_number(q, i);
            q.close();
        });
        const Numbers got = rest(queue);
        producer.get();
        ASSERT_EQ(static_cast<size_t>(n), got.size());
        EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
        scope.erase("feeder");
    }
}

TEST_F(QueueTest, SizeCapacityFullEmpty) {
    const Queue queue = numbers(2);
    EXPECT_EQ(2u, queue.capacity());
    EXPECT_EQ(0u, queue.size());
    EXPECT_TRUE(queue.is_empty());
    EXPECT_FALSE(queue.is_full());
    push_number(queue, 1);
    EXPECT_EQ(1u, queue.size());
    EXPECT_FALSE(queue.is_empty());
    EXPECT_FALSE(queue.is_full());
    push_number(queue, 2);
    EXPECT_TRUE(queue.is_full());
    next_number(queue);
    EXPECT_FALSE(queue.is_full());
}

TEST_F(QueueTest, Stats) {
    const Queue queue = make_queue({3, {{{-1}, DType::int64}}, {}, 1000});
    const Numbers five(5);
    queue.push({view(five)});
    queue.push({view(five)});
    Reservation slot = queue.reserve({tensor_spec<int64_t>({10})});
    QueueInfo info = queue.stats();
    EXPECT_EQ(1u, info.num_slots);
    EXPECT_EQ(2u, info.num_tuples);
    EXPECT_EQ(3u, info.capacity);
    EXPECT_EQ(1u, info.reserved_tuples);
    EXPECT_EQ(160u, info.bytes);
    EXPECT_EQ(1000u, info.bytes_limit);
    EXPECT_EQ(0u, info.pass);
    EXPECT_EQ(0, info.closed + info.failed + info.shut_down + info.restartable);
    EXPECT_EQ(0u, info.waiting_producers + info.waiting_consumers);
    EXPECT_EQ(2u, info.pushed);
    EXPECT_EQ(80u, info.pushed_bytes);
    EXPECT_EQ(0u, info.popped);

    slot.commit();
    queue.pop();
    const auto reopened = queue.reopen();
    EXPECT_EQ(1u, reopened.pass);
    EXPECT_EQ(2u, reopened.dropped);
    info = queue.stats();
    EXPECT_EQ(0u, info.num_tuples);
    EXPECT_EQ(0u, info.reserved_tuples);
    EXPECT_EQ(0u, info.bytes);
    EXPECT_EQ(1u, info.pass);
    EXPECT_EQ(3u, info.pushed);
    EXPECT_EQ(160u, info.pushed_bytes);
    EXPECT_EQ(1u, info.popped);
    EXPECT_EQ(2u, info.dropped);
    queue.fail("T", "m");
    EXPECT_EQ(1, queue.stats().failed);
    EXPECT_EQ(1, queue.stats().closed);
    queue.shutdown();
    EXPECT_EQ(1, queue.stats().shut_down);
}

// ---- Close ----

TEST_F(QueueTest, CloseDeliversExactlyWhatIsQueued) {
    const Queue queue = numbers(2);
    std::atomic<int> pushed{0};
    auto producer = in_thread([&] {
        for (int64_t i = 0; i < 5; i++) {
            push_number(queue, i);
            pushed++;
        }
    });
    ASSERT_TRUE(producers_wait(queue, 1));
    queue.close();
    EXPECT_ERROR(QueueClosed, -1, producer.get(), "closed");
    EXPECT_EQ(2, pushed);
    EXPECT_EQ((Numbers{0, 1}), rest(queue));
    EXPECT_EQ(-1, next_number(queue));  // the queue stays at its end
    EXPECT_EQ(-1, next_number(queue));
    EXPECT_EQ(2u, queue.stats().popped);
}

TEST_F(QueueTest, CloseTwiceIsFine) {
    const Queue queue = numbers(2);
    push_number(queue, 1);
    queue.close();
    queue.close();
    EXPECT_EQ(1, next_number(queue));
    EXPECT_EQ(-1, next_number(queue));
}

TEST_F(QueueTest, CloseWakesEveryConsumer) {
    const Queue queue = numbers(2);
    std::vector<std::future<int64_t>> consumers;
    for (int i = 0; i < 3; i++) consumers.push_back(in_thread([&] { return next_number(queue); }));
    ASSERT_TRUE(consumers_wait(queue, 3));
    queue.close();
    for (auto &c : consumers) EXPECT_EQ(-1, c.get());
    EXPECT_EQ(0u, queue.stats().waiting_consumers);
}

TEST_F(QueueTest, CloseOfAnotherPassIsLeftAlone) {
    const Queue queue = numbers(2);
    queue.reopen();
    queue.close(0);
    EXPECT_EQ(0, queue.stats().closed);
    push_number(queue, 5);
    queue.close(1);
    EXPECT_EQ(1, queue.stats().closed);
    EXPECT_EQ((Numbers{5}), rest(queue));
}

TEST_F(QueueTest, PushOfAnotherPassIsClosed) {
    const Queue queue = numbers(2);
    push_number(queue, 1, kStuck, 0);
    queue.reopen();
    EXPECT_ERROR(QueueClosed, -1, push_number(queue, 2, kStuck, 0), "pass 0", "pass 1");
    EXPECT_ERROR(QueueClosed, -1, push_number(queue, 2, kStuck, 2), "pass");
    push_number(queue, 3, kStuck, 1);
    queue.close();
    EXPECT_EQ((Numbers{3}), rest(queue));
}

// ---- Failure ----

TEST_F(QueueTest, FailureComesAfterWhatWasQueued) {
    const Queue queue = numbers(3);
    push_number(queue, 1);
    push_number(queue, 2);
    queue.fail("ValueError", "no such file: a.bin", "line 1\nline 2", 0xfeedfacecafe);
    EXPECT_ERROR(QueueClosed, -1, push_number(queue, 3), "failed");
    EXPECT_EQ(1, next_number(queue));
    EXPECT_EQ(2, next_number(queue));
    for (int i = 0; i < 2; i++) {  // all later pops fail too
        try {
            queue.pop();
            FAIL() << "nothing was thrown";
        } catch (const ProducerError &e) {
            EXPECT_EQ(PF_FAILED, e.status());
            EXPECT_EQ(-1, e.slot());
            EXPECT_EQ("ValueError", e.type());
            EXPECT_EQ("no such file: a.bin", e.message());
            EXPECT_EQ("line 1\nline 2", e.traceback());
            EXPECT_EQ(0xfeedfacecafeu, e.token());
            EXPECT_STREQ("the producer failed: ValueError: no such file: a.bin", e.what());
        }
    }
}

TEST_F(QueueTest, FailureWithoutWords) {
    const Queue queue = numbers(3);
    pf_failure failure = PF_FAILURE_INIT;
    failure.token = 5;
    CError err;
    EXPECT_STATUS(PF_OK, pf_queue_fail(queue.handle(), PF_PASS_CURRENT, &failure, &err));
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_FAILED, pf_queue_pop(queue.handle(), nullptr, &tuple, &err));
    EXPECT_FALSE(err.message().empty());
    EXPECT_EQ(nullptr, err.raw.cause_type);
    EXPECT_EQ(nullptr, err.raw.cause_message);
    EXPECT_EQ(nullptr, err.raw.cause_traceback);
    EXPECT_EQ(5u, err.raw.cause_token);
}

TEST_F(QueueTest, TheFirstFailureCounts) {
    const Queue queue = numbers(3);
    EXPECT_TRUE(queue.fail("First", "a"));
    EXPECT_FALSE(queue.fail("Second", "b"));
    queue.close();
    try {
        queue.pop();
        FAIL() << "nothing was thrown";
    } catch (const ProducerError &e) {
        EXPECT_EQ("First", e.type());
    }
}

TEST_F(QueueTest, FailureAfterCloseIsClosed) {
    const Queue queue = numbers(3);
    queue.close();
    EXPECT_FALSE(queue.fail("Late", "x"));
    EXPECT_EQ(-1, next_number(queue));
}

TEST_F(QueueTest, FailureOfAnotherPassIsClosed) {
    const Queue queue = numbers(3);
    queue.reopen();
    pf_failure failure = PF_FAILURE_INIT;
    CError err;
    EXPECT_STATUS(PF_CLOSED, pf_queue_fail(queue.handle(), 0, &failure, &err));
    EXPECT_NE(std::string::npos, err.message().find("pass 0")) << err.message();
    EXPECT_FALSE(queue.fail("Late", "x", {}, 0, 0));
    push_number(queue, 1);
    EXPECT_EQ(1, next_number(queue));
}

TEST_F(QueueTest, FailureWakesEverybody) {
    const Queue queue = numbers(1);
    auto consumer = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    queue.fail("E", "boom");
    EXPECT_ERROR(ProducerError, -1, consumer.get(), "boom");

    queue.reopen();
    push_number(queue, 1);
    auto producer = in_thread([&] { push_number(queue, 2); });
    ASSERT_TRUE(producers_wait(queue, 1));
    queue.fail("E", "bang");
    EXPECT_ERROR(QueueClosed, -1, producer.get(), "pass");
    EXPECT_EQ(1, next_number(queue));
    EXPECT_ERROR(ProducerError, -1, queue.pop(), "bang");
}

TEST_F(QueueTest, AFailureEndsWithItsPass) {
    const Queue queue = numbers(3);
    queue.fail("E", "x");
    queue.reopen();
    EXPECT_EQ(0, queue.stats().failed);
    push_number(queue, 4);
    queue.close();
    EXPECT_EQ((Numbers{4}), rest(queue));
}

// ---- Reopen ----

TEST_F(QueueTest, ReopenWithAProducerBlocked) {
    // Fluid's queue let the blocked push land in the next pass nearly every time.
    for (int round = 0; round < 200; round++) {
        const Queue queue = numbers(1);
        push_number(queue, 1);
        auto producer = in_thread([&] { push_number(queue, 2); });
        ASSERT_TRUE(producers_wait(queue, 1));
        if (round % 2 == 0) queue.close();
        const auto reopened = queue.reopen();
        EXPECT_EQ(1u, reopened.pass);
        EXPECT_EQ(1u, reopened.dropped);
        push_number(queue, 3);
        EXPECT_ERROR(QueueClosed, -1, producer.get(), "pass");
        queue.close();
        ASSERT_EQ((Numbers{3}), rest(queue));
        scope.erase("feeder");
    }
}

TEST_F(QueueTest, ReopenWithAConsumerBlocked) {
    const Queue queue = numbers(1);
    auto consumer = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    queue.reopen();
    push_number(queue, 3);
    EXPECT_EQ(-1, consumer.get());  // the pass in which this pop began is over
    EXPECT_EQ(3, next_number(queue));
}

TEST_F(QueueTest, ReopenDropsASlotThatIsBeingWritten) {
    const Queue queue = numbers(2);
    Reservation slot = queue.reserve({tensor_spec<int64_t>({1})});
    slot[0].mutable_data<int64_t>()[0] = 1;
    queue.reopen();
    EXPECT_ERROR(QueueClosed, -1, slot.commit(), "pass 0");
    push_number(queue, 2);
    queue.close();
    EXPECT_EQ((Numbers{2}), rest(queue));
    EXPECT_EQ(0u, queue.stats().reserved_tuples);
}

TEST_F(QueueTest, ManyPasses) {
    const Queue queue = numbers(4);
    for (uint64_t pass = 0; pass < 100; pass++) {
        EXPECT_EQ(pass, queue.stats().pass);
        push_number(queue, static_cast<int64_t>(pass));
        queue.close();
        EXPECT_EQ((Numbers{static_cast<int64_t>(pass)}), rest(queue));
        EXPECT_EQ(0u, queue.reopen().dropped);
    }
}

// ---- Shutdown ----

TEST_F(QueueTest, ShutdownWakesEverybodyAndDropsWhatIsQueued) {
    const Queue queue = numbers(1, true);
    auto consumer = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    const uint64_t pass = queue.wait_pass(PF_PASS_NONE, kStuck);
    auto waiter = in_thread([&] { return queue.wait_pass(pass, kStuck); });
    push_number(queue, 1);
    EXPECT_EQ(1, consumer.get());
    push_number(queue, 2);
    auto producer = in_thread([&] { push_number(queue, 3); });
    ASSERT_TRUE(producers_wait(queue, 1));
    queue.shutdown();
    EXPECT_ERROR(QueueClosed, -1, producer.get(), "shut down");
    EXPECT_ERROR(QueueClosed, -1, waiter.get(), "shut down");
    EXPECT_EQ(-1, next_number(queue));
    EXPECT_ERROR(QueueClosed, -1, queue.reopen(), "shut down");
    EXPECT_ERROR(QueueClosed, -1, push_number(queue, 4), "shut down");
    EXPECT_ERROR(QueueClosed, -1, queue.wait_pass(PF_PASS_NONE), "shut down");
    EXPECT_EQ(1u, queue.stats().dropped);
    queue.shutdown();
}

TEST_F(QueueTest, PopsOfAQueueThatWasShutDownEnd) {
    const Queue queue = numbers(1);
    auto consumer = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    queue.shutdown();
    EXPECT_EQ(-1, consumer.get());
}

TEST_F(QueueTest, PopsOfAFailedQueueThatWasShutDownEnd) {
    const Queue failed = make_queue({1, {{{1}, DType::int64}}}, "failed");
    failed.fail("E", "x");
    failed.shutdown();
    EXPECT_EQ(-1, next_number(failed));
}

// ---- Limits ----

TEST_F(QueueTest, BytesLimitHoldsAPushBack) {
    const Queue queue = make_queue({100, {{{-1}, DType::int64}}, {}, 80});
    const Numbers six(6), four(4);
    queue.push({view(six)});
    EXPECT_ERROR(Timeout, -1, queue.push({view(six)}, Wait::none()), "time");
    queue.push({view(four)});  // both together take exactly bytes_limit
    EXPECT_EQ(80u, queue.stats().bytes);
    auto producer = in_thread([&] { queue.push({view(six)}, kStuck); });
    ASSERT_TRUE(producers_wait(queue, 1));
    queue.pop();
    producer.get();
    EXPECT_EQ(80u, queue.stats().bytes);
}

TEST_F(QueueTest, BytesLimitCountsSlotsBeingWritten) {
    const Queue queue = make_queue({100, {{{-1}, DType::int64}}, {}, 80});
    const Numbers six(6);
    Reservation slot = queue.reserve({tensor_spec<int64_t>({6})});
    EXPECT_ERROR(Timeout, -1, queue.push({view(six)}, Wait::none()), "time");
    slot.drop();
    queue.push({view(six)}, Wait::none());
}

TEST_F(QueueTest, CapacityCountsSlotsBeingWritten) {
    const Queue queue = numbers(1);
    Reservation slot = queue.reserve({tensor_spec<int64_t>({1})});
    EXPECT_TRUE(queue.is_full());
    EXPECT_TRUE(queue.is_empty());
    EXPECT_ERROR(Timeout, -1, push_number(queue, 1, Wait::none()), "time");
    auto producer = in_thread([&] { push_number(queue, 2); });
    ASSERT_TRUE(producers_wait(queue, 1));
    slot.drop();
    producer.get();
    EXPECT_EQ(2, next_number(queue));
}

TEST_F(QueueTest, ATupleWithAConsumerTakesNoRoom) {
    const Queue queue = make_queue({1, {{{1}, DType::int64}}, {}, 8});
    push_number(queue, 1);
    const auto held = queue.pop();
    push_number(queue, 2, Wait::none());
    EXPECT_EQ(1, number(*held));
    EXPECT_EQ(2, next_number(queue));
}

// ---- Handles and lifetimes ----

TEST_F(QueueTest, TheVariableKeepsTheQueue) {
    push_number(numbers(2), 7);
    EXPECT_EQ(7, next_number(scope.find("feeder").queue()));
}

TEST_F(QueueTest, TheHandleKeepsTheQueue) {
    const Queue queue = numbers(2);
    scope.erase("feeder");
    push_number(queue, 7);
    EXPECT_EQ(7, next_number(queue));
    EXPECT_EQ(VarKind::empty, scope.var("feeder").kind());  // the name is free again
}

TEST_F(QueueTest, ATupleOutlivesItsQueue) {
    std::optional<Tuple> tuple;
    {
        const Queue queue = numbers(2);
        push_number(queue, 7);
        tuple = queue.pop();
        scope.erase("feeder");
    }
    EXPECT_EQ(7, number(*tuple));
}

TEST_F(QueueTest, ASlotOutlivesItsQueue) {
    std::optional<Reservation> slot;
    {
        const Queue queue = numbers(2);
        slot = queue.reserve({tensor_spec<int64_t>({1})});
        scope.erase("feeder");
    }
    slot->at(0).mutable_data<int64_t>()[0] = 7;
    EXPECT_ERROR(QueueClosed, -1, slot->commit(), "shut down");
}

TEST_F(QueueTest, ReleasingATupleTwiceIsHarmless) {
    const Queue queue = numbers(2);
    push_number(queue, 7);
    pf_tuple tuple = queue.pop()->detach();
    pf_tuple copy = tuple;
    pf_tuple_release(&tuple);
    EXPECT_EQ(0u, tuple.loan);
    EXPECT_EQ(0u, tuple.num_slots);
    EXPECT_EQ(nullptr, tuple.slots);
    pf_tuple_release(&tuple);
    pf_tuple_release(nullptr);
    // A second release through a copy of the struct is a mistake, but ids are not reused: no other tuple is released.
    push_number(queue, 8);
    const auto other = queue.pop();
    pf_tuple_release(&copy);
    EXPECT_EQ(8, number(*other));
}

TEST_F(QueueTest, SharesAreLoansOfTheirOwn) {
    const Queue queue = numbers(1);
    const int64_t n = 7;
    bool released = false;
    queue.push_lent({view(&n, {1})}, [&] { released = true; });
    std::optional<Tuple> tuple = queue.pop();
    std::optional<Tuple> share = tuple->share();
    EXPECT_EQ(2u, memory_stats().tuples_on_loan);
    EXPECT_EQ(&n, share->at(0).data());
    EXPECT_TRUE(share->at(0).read_only());
    tuple.reset();
    EXPECT_FALSE(released);
    tuple = share->share();
    share.reset();
    EXPECT_EQ(7, number(*tuple));
    tuple.reset();
    EXPECT_TRUE(released);
    EXPECT_ERROR(StateError, -1, Tuple().share(), "released");
}

// A pop releases the tuple that the struct still holds, so a loop in C needs one struct and one release.
TEST_F(QueueTest, PopsGiveBackWhatTheStructStillHolds) {
    const Queue queue = numbers(4);
    for (int64_t i = 0; i < 3; i++) push_number(queue, i);
    pf_tuple tuple = PF_TUPLE_INIT;
    for (int64_t i = 0; i < 3; i++) {
        ASSERT_EQ(PF_OK, pf_queue_pop(queue.handle(), nullptr, &tuple, nullptr));
        EXPECT_EQ(i, *static_cast<const int64_t *>(tuple.slots[0].data));
        EXPECT_EQ(1u, memory_stats().tuples_on_loan);
    }
    queue.close();
    EXPECT_STATUS(PF_END, pf_queue_pop(queue.handle(), nullptr, &tuple, nullptr));
    EXPECT_EQ(0u, tuple.loan);
    EXPECT_EQ(0u, memory_stats().tuples_on_loan);
    // A pop that is refused before it reaches the queue does not release the tuple.
    tuple.loan = 12345;
    pf_wait tiny = PF_WAIT_INIT;
    tiny.size = 1;
    EXPECT_STATUS(PF_INVALID, pf_queue_pop(queue.handle(), &tiny, &tuple, nullptr));
    EXPECT_EQ(12345u, tuple.loan);
}

TEST_F(QueueTest, CommitOfWhatIsNoSlot) {
    const Queue queue = numbers(2);
    pf_tuple nothing = PF_TUPLE_INIT;
    CError err;
    EXPECT_STATUS(PF_STATE, pf_queue_commit(&nothing, &err));
    EXPECT_NE(std::string::npos, err.message().find("commit")) << err.message();
    // A popped tuple cannot be committed, and is not lost by the attempt.
    push_number(queue, 7);
    pf_tuple popped = queue.pop()->detach();
    EXPECT_STATUS(PF_STATE, pf_queue_commit(&popped, &err));
    EXPECT_NE(std::string::npos, err.message().find("commit")) << err.message();
    pf_tuple_release(&popped);
    EXPECT_EQ(0u, queue.size());
}

// ---- Many of each ----

// The cases of the test of Fluid's queue: producers with different numbers of tuples, two capacities, few and many
// consumers.
TEST_F(QueueTest, EveryTupleOnceWithUnevenProducersAndConsumers) {
    const std::vector<Numbers> producers = {{2, 3, 4}, {9}, {0, 7, 15, 6}};
    for (const uint64_t capacity : {2, 10}) {
        for (const int num_consumers : {2, 20}) {
            const Queue queue = numbers(capacity);
            std::mutex mutex;
            Numbers got;
            std::vector<std::future<void>> consuming, producing;
            for (int i = 0; i < num_consumers; i++) {
                consuming.push_back(in_thread([&] {
                    for (Tuple &tuple : queue.tuples(kStuck)) {
                        const std::lock_guard<std::mutex> lock(mutex);
                        got.push_back(number(tuple));
                    }
                }));
            }
            for (const Numbers &mine : producers) {
                producing.push_back(in_thread([&] {
                    for (const int64_t n : mine) push_number(queue, n);
                }));
            }
            for (auto &p : producing) p.get();
            queue.close();
            for (auto &c : consuming) c.get();
            std::sort(got.begin(), got.end());
            EXPECT_EQ((Numbers{0, 2, 3, 4, 6, 7, 9, 15}), got);
            scope.erase("feeder");
        }
    }
}

// ---- Producers whose consumers are gone ----

class Abandoned : public Feed {
protected:
    // Starts a thread that pushes until a push is refused.
    static std::future<void> endless(Producer producer) {
        return in_thread([producer = std::move(producer)] {
            for (;;) {
                try {
                    const int64_t n = 7;
                    producer.push({view(&n, {1})}, kStuck);
                } catch (const QueueClosed &) {
                    return;
                }
            }
        });
    }
};

TEST_F(Abandoned, ProducersEndWithTheLastConsumer) {
    std::optional<Queue> queue = numbers(2);
    std::optional<Reader> reader = create_py_array_reader(scope, "reader", "feeder");
    auto first = endless(queue->producer()), second = endless(queue->producer().producer());
    EXPECT_EQ(7, next_number(*reader));
    scope.erase("feeder");
    scope.erase("reader");
    queue.reset();
    for (int i = 0; i < 10; i++) EXPECT_EQ(7, next_number(*reader));
    reader.reset();
    first.get();
    second.get();
}

TEST_F(Abandoned, AReaderInAVariableIsAConsumer) {
    std::optional<Queue> queue = numbers(2);
    create_py_array_reader(scope, "reader", "feeder");
    auto producing = endless(queue->producer());
    scope.erase("feeder");
    queue.reset();
    for (int i = 0; i < 10; i++) read(scope, "reader", {"x"});
    scope.erase("reader");
    producing.get();
}

TEST_F(Abandoned, SlotsAndWaitsForAPassEnd) {
    std::optional<Queue> queue = numbers(2, true);
    const Producer producer = queue->producer();
    auto waiting =
        in_thread([&] { EXPECT_ERROR(QueueClosed, -1, producer.wait_pass(0, kStuck), "no reader"); });
    EXPECT_ERROR(Timeout, -1, queue->pop(Wait::none()), "time");  // opens a pass
    const int64_t n = 0;
    Reservation slot = producer.reserve({view(&n, {1})});
    scope.erase("feeder");
    queue.reset();
    EXPECT_ERROR(QueueClosed, -1, slot.commit(), "no reader of it is left, nor any other consumer");
    waiting.get();
    EXPECT_EQ(1, producer.stats().shut_down);
}

TEST_F(Abandoned, AProducersHandleDoesNotPop) {
    const Queue queue = numbers(2);
    const Producer producer = queue.producer();
    push_number(queue, 1);
    pf_tuple out = PF_TUPLE_INIT;
    EXPECT_EQ(PF_STATE, pf_queue_pop(producer.handle(), nullptr, &out, nullptr));
    EXPECT_EQ(1u, producer.size());
}

// ---- A producer that can start over ----

class Restartable : public Feed {
protected:
    // Pushes `n` numbers in each pass, as pass * 100 + i, until the queue is shut down.
    std::future<void> produce(int64_t n) {
        return in_thread([this, n] {
            uint64_t pass = PF_PASS_NONE;
            for (;;) {
                try {
                    pass = queue.wait_pass(pass, kStuck);
                } catch (const QueueClosed &) {
                    return;
                }
                try {
                    for (int64_t i = 0; i < n; i++) {
                        push_number(queue, static_cast<int64_t>(pass) * 100 + i, kStuck, pass);
                    }
                    queue.close(pass);
                } catch (const QueueClosed &) {  // this pass is over; continue with the next one
                }
            }
        });
    }

    Queue queue = numbers(2, true);
    Reader reader = create_py_array_reader(scope, "reader", "feeder");
};

TEST_F(Restartable, BeginsWithoutAPass) {
    EXPECT_EQ(PF_PASS_NONE, queue.stats().pass);
    EXPECT_EQ(1, queue.stats().restartable);
    EXPECT_ERROR(QueueClosed, -1, push_number(queue, 1), "wait_pass");
    EXPECT_ERROR(Timeout, -1, queue.wait_pass(PF_PASS_NONE, Wait::none()), "time");
    EXPECT_EQ(PF_PASS_NONE, queue.stats().pass);
}

TEST_F(Restartable, TheFirstReadOpensAPass) {
    auto waiting = in_thread([&] { return queue.wait_pass(PF_PASS_NONE, kStuck); });
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    EXPECT_EQ(0u, waiting.get());
    EXPECT_EQ(0u, queue.stats().pass);
    push_number(queue, 5);
    EXPECT_EQ(5, next_number(reader));
    EXPECT_EQ(0u, queue.stats().pass);
}

TEST_F(Restartable, ResetOpensTheNextPass) {
    auto producer = produce(3);
    for (int64_t pass = 0; pass < 20; pass++) {
        EXPECT_EQ((Numbers{pass * 100, pass * 100 + 1, pass * 100 + 2}), rest(reader));
        EXPECT_EQ(-1, next_number(reader));
        reader.reset();
    }
    queue.shutdown();
    producer.get();
}

TEST_F(Restartable, ResetEarlyLosesAndRepeatsNothing) {
    auto producer = produce(5);
    for (int64_t pass = 0; pass < 100; pass++) {
        for (int64_t i = 0; i < pass % 6; i++) ASSERT_EQ(pass * 100 + i, next_number(reader));
        if (pass % 7 == 0) {
            EXPECT_EQ(pass % 6 < 5, reader.has_next(kStuck));
        }
        // The first pass is opened by the first read, or by the first reset if no read came before it.
        if (queue.stats().pass == PF_PASS_NONE) reader.has_next(kStuck);
        reader.reset();
    }
    EXPECT_EQ(100 * 100, next_number(reader));
    queue.shutdown();
    producer.get();
}

TEST_F(Restartable, ResetWhileAReadIsBlocked) {
    auto reading = in_thread([&] { return next_number(reader); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    reader.reset();
    EXPECT_ERROR(Cancelled, -1, reading.get(), "reset");
    EXPECT_EQ(1u, queue.wait_pass(0, kStuck));
    push_number(queue, 9);
    EXPECT_EQ(9, next_number(reader));
}

TEST_F(Restartable, ResetWhileHasNextIsBlockedInABatchReader) {
    const Reader batches = reader.batch(4);
    auto asking = in_thread([&] { return batches.has_next(kStuck); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    push_number(queue, 1);
    push_number(queue, 2);
    ASSERT_TRUE(eventually([&] { return queue.is_empty() && queue.stats().waiting_consumers == 1; }));
    batches.reset();  // drops the two gathered tuples, which belong to the old pass
    EXPECT_ERROR(Cancelled, -1, asking.get(), "reset");
    push_number(queue, 3);
    queue.close();
    const auto batch = batches.next(kStuck);
    ASSERT_TRUE(batch);
    EXPECT_EQ((Numbers{3}), values<int64_t>(batch->at(0)));
}

TEST_F(Restartable, AFailedPassCanBeStartedOver) {
    auto producer = in_thread([&] {
        uint64_t pass = queue.wait_pass(PF_PASS_NONE, kStuck);
        push_number(queue, 1, kStuck, pass);
        queue.fail("E", "flaky", {}, 0, pass);
        pass = queue.wait_pass(pass, kStuck);
        push_number(queue, 2, kStuck, pass);
        queue.close(pass);
    });
    EXPECT_EQ(1, next_number(reader));
    EXPECT_ERROR(ProducerError, -1, reader.next(kStuck), "flaky");
    reader.reset();
    EXPECT_EQ((Numbers{2}), rest(reader));
    producer.get();
}

TEST_F(Restartable, StaleEndsDoNotEndTheNextPass) {
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    reader.reset();
    queue.close(0);
    EXPECT_FALSE(queue.fail("E", "late", {}, 0, 0));
    EXPECT_ERROR(QueueClosed, -1, push_number(queue, 1, kStuck, 0), "pass");
    push_number(queue, 2, kStuck, 1);
    queue.close(1);
    EXPECT_EQ((Numbers{2}), rest(reader));
}

}  // namespace

// How calls wait, and what ends a wait: a timeout, a cancel token, a poll function, a signal.
#include <pthread.h>

#include <csignal>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

using Clock = std::chrono::steady_clock;

// A full and an empty queue, and all calls that block on them.
class Waiting : public Feed {
protected:
    Waiting() {
        push_number(full, 1);
        read_through = create_py_array_reader(scope, "reader", "empty");
        restartable = make_queue({1, {{{1}, DType::int64}}, CPUPlace(), 0, true}, "restartable");
    }

    struct Blocking {
        const char *name;
        std::function<void(const Wait &)> call;
    };
    std::vector<Blocking> all() {
        return {
            {"push", [&](const Wait &wait) { push_number(full, 2, wait); }},
            {"push_lent", [&](const Wait &wait) { full.push_lent({view(&lent, {1})}, [] {}, wait); }},
            {"reserve", [&](const Wait &wait) { full.reserve({tensor_spec<int64_t>({1})}, wait); }},
            {"pop", [&](const Wait &wait) { empty.pop(wait); }},
            {"next", [&](const Wait &wait) { read_through->next(wait); }},
            {"has_next", [&](const Wait &wait) { read_through->has_next(wait); }},
            {"batch next", [&](const Wait &wait) { read_through->batch(3).next(wait); }},
            {"read", [&](const Wait &wait) { read(scope, "reader", {"x"}, wait); }},
            {"wait_pass", [&](const Wait &wait) { restartable->wait_pass(7, wait); }},
        };
    }
    uint32_t waiting() const { return full.stats().waiting_producers + empty.stats().waiting_consumers; }

    Queue full = make_queue({1, {{{1}, DType::int64}}}, "full");
    Queue empty = make_queue({1, {{{1}, DType::int64}}}, "empty");
    std::optional<Reader> read_through;
    std::optional<Queue> restartable;
    int64_t lent = 0;
};

TEST_F(Waiting, NotAtAll) {
    for (auto &blocking : all()) {
        SCOPED_TRACE(blocking.name);
        EXPECT_ERROR(Timeout, -1, blocking.call(Wait::none()), "time");
        EXPECT_ERROR(Timeout, -1, blocking.call(-5s), "time");  // the rest of the time after a deadline
    }
    EXPECT_EQ(0u, waiting());
}

TEST_F(Waiting, NotAtAllTakesWhatIsThere) {
    EXPECT_EQ(1, next_number(full, Wait::none()));
    push_number(full, 2, Wait::none());
    full.close();
    EXPECT_EQ(2, next_number(full, Wait::none()));
    EXPECT_EQ(-1, next_number(full, Wait::none()));
}

TEST_F(Waiting, ForATime) {
    for (auto &blocking : all()) {
        SCOPED_TRACE(blocking.name);
        const auto start = Clock::now();
        EXPECT_ERROR(Timeout, -1, blocking.call(30ms), "time");
        EXPECT_GE(Clock::now() - start, 30ms);
        EXPECT_LT(Clock::now() - start, 10s);
    }
    EXPECT_EQ(0u, waiting());
    EXPECT_EQ(1u, full.size());
    EXPECT_EQ(1, next_number(full, Wait::none()));
    EXPECT_ERROR(Timeout, -1, full.pop(Wait::none()), "time");  // no push took effect after its timeout
}

TEST_F(Waiting, WhatComesInTimeIsTaken) {
    auto popping = in_thread([&] { return next_number(empty); });
    ASSERT_TRUE(consumers_wait(empty, 1));
    push_number(empty, 5);
    EXPECT_EQ(5, popping.get());

    auto pushing = in_thread([&] { push_number(full, 6); });
    ASSERT_TRUE(producers_wait(full, 1));
    EXPECT_EQ(1, next_number(full));
    pushing.get();
    EXPECT_EQ(6, next_number(full));
}

TEST_F(Waiting, EndsWhenTheTokenIsCancelled) {
    for (auto &blocking : all()) {
        SCOPED_TRACE(blocking.name);
        const CancelToken token;
        auto blocked = in_thread([&] { blocking.call(Wait().cancel(token)); });
        if (std::string(blocking.name) == "wait_pass") {
            EXPECT_EQ(std::future_status::timeout, blocked.wait_for(20ms));
        } else {
            ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
        }
        token.cancel();
        EXPECT_ERROR(Cancelled, -1, blocked.get(), "cancel");
        EXPECT_ERROR(Cancelled, -1, blocking.call(Wait().cancel(token)), "cancel");  // it stays cancelled
        token.cancel();
    }
    EXPECT_EQ(0u, waiting());
}

TEST_F(Waiting, OneTokenEndsMany) {
    const CancelToken token;
    const Wait wait = Wait().cancel(token);
    std::vector<std::future<void>> blocked;
    for (int i = 0; i < 4; i++) {
        blocked.push_back(in_thread([&] { empty.pop(wait); }));
        blocked.push_back(in_thread([&] { push_number(full, 2, wait); }));
    }
    ASSERT_TRUE(eventually([&] { return waiting() == 8; }));
    token.cancel();
    for (auto &b : blocked) EXPECT_ERROR(Cancelled, -1, b.get(), "cancel");
    EXPECT_EQ(0u, waiting());
}

TEST_F(Waiting, ATokenThatWasNotUsedChangesNothing) {
    const CancelToken token;
    const Wait wait = Wait(kStuck).cancel(token);
    auto popping = in_thread([&] { return next_number(empty, wait); });
    ASSERT_TRUE(consumers_wait(empty, 1));
    push_number(empty, 5);
    EXPECT_EQ(5, popping.get());
    EXPECT_ERROR(Timeout, -1, empty.pop(Wait(1ms).cancel(token)), "time");
}

TEST_F(Waiting, ACancelledCallLeavesItsTurnToTheNext) {
    const CancelToken token;
    auto first = in_thread([&] { return next_number(empty, Wait().cancel(token)); });
    ASSERT_TRUE(consumers_wait(empty, 1));
    auto second = in_thread([&] { return next_number(empty); });
    ASSERT_TRUE(consumers_wait(empty, 2));
    token.cancel();
    EXPECT_ERROR(Cancelled, -1, first.get(), "cancel");
    push_number(empty, 5);
    EXPECT_EQ(5, second.get());
}

TEST_F(Waiting, PollEndsAWait) {
    for (auto &blocking : all()) {
        SCOPED_TRACE(blocking.name);
        int polls = 0;
        const auto me = std::this_thread::get_id();
        const Wait wait = Wait(kStuck).poll(
            [&] {
                EXPECT_EQ(me, std::this_thread::get_id());
                EXPECT_EQ(1u, full.size());  // the poll function may call pyfeed
                return ++polls == 3;
            },
            1ms);
        EXPECT_ERROR(Cancelled, -1, blocking.call(wait), "cancel");
        EXPECT_EQ(3, polls);
    }
    EXPECT_EQ(0u, waiting());
}

TEST_F(Waiting, PollDoesNotMakeTheTimeLonger) {
    int polls = 0;
    EXPECT_ERROR(Timeout, -1, empty.pop(Wait(30ms).poll([&] { return ++polls, false; }, 1ms)), "time");
    EXPECT_GT(polls, 0);
}

TEST_F(Waiting, WhatPollThrowsComesOutOfTheCall) {
    struct Interrupted : std::exception {};
    EXPECT_THROW(empty.pop(Wait().poll([]() -> bool { throw Interrupted(); }, 1ms)), Interrupted);
    EXPECT_EQ(0u, waiting());
}

TEST_F(Waiting, NobodyPollsACallThatNeedNotWait) {
    full.pop(Wait().poll([]() -> bool { throw std::logic_error("polled"); }, 1ms));
}

struct PollCounts {
    std::atomic<int> polls{0};
    std::atomic<bool> stop{false};
};

extern "C" int poll_on_signals_only(void *counts_) {
    auto *counts = static_cast<PollCounts *>(counts_);
    ++counts->polls;
    return counts->stop ? 1 : PF_POLL_SIGNALS_ONLY;
}

TEST_F(Waiting, PollsWhenItIsToldTo) {
    PollCounts counts;
    pf_wait wait = PF_WAIT_INIT;
    wait.poll_interval_ms = 1;
    wait.poll = poll_on_signals_only;
    wait.poll_context = &counts;
    auto status = in_thread([&] {
        pf_tuple tuple = PF_TUPLE_INIT;
        return pf_queue_pop(empty.handle(), &wait, &tuple, nullptr);
    });
    // The first poll is periodic. After that, no call of pf_poll_now is missed, whatever the thread does at the time.
    for (int polls = 1; polls <= 1000; polls++) {
        ASSERT_TRUE(eventually([&] { return counts.polls >= polls; }));
        counts.stop = polls == 1000;
        ASSERT_EQ(PF_OK, pf_poll_now(nullptr));
    }
    EXPECT_EQ(PF_CANCELLED, status.get());
    EXPECT_EQ(0u, waiting());
}

// A wait does not count a call of pf_poll_now from before it began. Without an interval it therefore polls once before
// its first sleep.
TEST_F(Waiting, PollsBeforeItSleepsWithoutAnInterval) {
    PollCounts counts;
    counts.stop = true;
    ASSERT_EQ(PF_OK, pf_poll_now(nullptr));
    pf_wait wait = PF_WAIT_INIT;
    wait.timeout_ns = 10'000'000'000;
    wait.poll_interval_ms = UINT32_MAX;
    wait.poll = poll_on_signals_only;
    wait.poll_context = &counts;
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_EQ(PF_CANCELLED, pf_queue_pop(empty.handle(), &wait, &tuple, nullptr));
    EXPECT_EQ(1, counts.polls);
    EXPECT_EQ(0u, waiting());
}

TEST_F(Waiting, PollAfterASignal) {
    struct sigaction action{};
    struct sigaction before{};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_ONSTACK;
    ASSERT_EQ(0, sigaction(SIGUSR1, &action, &before));

    std::atomic<bool> polled{false};
    std::atomic<pthread_t> thread{pthread_self()};
    auto popping = in_thread([&] {
        thread = pthread_self();
        empty.pop(Wait(kStuck).poll([&] { return polled = true; }, std::chrono::hours(1)));
    });
    ASSERT_TRUE(consumers_wait(empty, 1));
    // A signal may arrive just before the thread sleeps. The next signal then finds the thread asleep.
    EXPECT_TRUE(eventually([&] {
        if (!polled) pthread_kill(thread, SIGUSR1);
        std::this_thread::sleep_for(1ms);
        return polled.load();
    }));
    EXPECT_ERROR(Cancelled, -1, popping.get(), "cancel");
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Waiting, SignalsDoNotEndAWaitWithoutPoll) {
    struct sigaction action{};
    struct sigaction before{};
    static std::atomic<int> handled;
    handled = 0;
    action.sa_handler = [](int) { handled++; };
    action.sa_flags = SA_ONSTACK;
    ASSERT_EQ(0, sigaction(SIGUSR1, &action, &before));

    std::atomic<pthread_t> thread{pthread_self()};
    auto popping = in_thread([&] {
        thread = pthread_self();
        return next_number(empty);
    });
    ASSERT_TRUE(consumers_wait(empty, 1));
    for (int i = 1; i <= 5; i++) {
        pthread_kill(thread, SIGUSR1);
        ASSERT_TRUE(eventually([&] { return handled >= i; }));
    }
    EXPECT_EQ(1u, empty.stats().waiting_consumers);
    push_number(empty, 5);
    EXPECT_EQ(5, popping.get());
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Waiting, CountsOfThoseWhoWait) {
    std::vector<std::future<int64_t>> popping;
    for (uint32_t i = 1; i <= 3; i++) {
        popping.push_back(in_thread([&] { return next_number(empty); }));
        ASSERT_TRUE(consumers_wait(empty, i));
    }
    auto pushing = in_thread([&] { push_number(full, 2); });
    ASSERT_TRUE(producers_wait(full, 1));
    EXPECT_EQ(0u, empty.stats().waiting_producers);
    EXPECT_EQ(0u, full.stats().waiting_consumers);
    // The statistics include waits that are still in progress.
    while (full.stats().producers_waited_ns < 5'000'000) std::this_thread::yield();
    full.pop();
    pushing.get();
    for (int64_t i = 0; i < 3; i++) push_number(empty, i);
    for (auto &p : popping) p.get();
    EXPECT_EQ(0u, waiting());
    EXPECT_GE(full.stats().producers_waited_ns, 5'000'000u);
    EXPECT_GE(empty.stats().consumers_waited_ns, 15'000'000u);
}

TEST_F(Waiting, DurationsTooLongToCountAreForEver) {
    for (const Wait &wait : {Wait(std::chrono::hours::max()), Wait(std::chrono::duration<double>(1e300))}) {
        auto popping = in_thread([&] { return next_number(empty, wait); });
        ASSERT_TRUE(consumers_wait(empty, 1));
        push_number(empty, 5);
        EXPECT_EQ(5, popping.get());
    }
}

TEST_F(Waiting, MoreNanosecondsThanTheClockHasAreForEver) {
    auto popping = in_thread([&] {
        pf_wait wait = PF_WAIT_INIT;
        wait.timeout_ns = INT64_MAX;
        pf_tuple tuple = PF_TUPLE_INIT;
        const pf_status status = pf_queue_pop(empty.handle(), &wait, &tuple, nullptr);
        pf_tuple_release(&tuple);
        return status;
    });
    EXPECT_TRUE(consumers_wait(empty, 1));
    push_number(empty, 5);
    EXPECT_EQ(PF_OK, popping.get());
}

// A handle is released while a call waits with it. The call may fail, but must not leave its waiter in the queue: a
// later wake-up would write to the stack of a thread that has ended.
TEST_F(Waiting, AHandleReleasedMeanwhile) {
    for (const bool of_token : {false, true}) {
        pf_handle own = 0, token = 0;
        ASSERT_EQ(PF_OK, pf_var_get_queue(scope.find("empty").handle(), &own, nullptr));
        ASSERT_EQ(PF_OK, pf_cancel_token_create(&token, nullptr));
        pf_wait wait = PF_WAIT_INIT;
        wait.cancel = token;
        wait.timeout_ns = 1'000'000'000;
        auto popping = in_thread([&] {
            pf_tuple tuple = PF_TUPLE_INIT;
            return pf_queue_pop(own, &wait, &tuple, nullptr);
        });
        ASSERT_TRUE(consumers_wait(empty, 1));
        ASSERT_EQ(PF_OK, pf_release(of_token ? token : own, nullptr));
        EXPECT_EQ(of_token ? PF_TIMEOUT : PF_STALE_HANDLE, popping.get());
        EXPECT_EQ(0u, empty.stats().waiting_consumers);
        push_number(empty, 7);
        EXPECT_EQ(7, next_number(empty));
        ASSERT_EQ(PF_OK, pf_release(of_token ? own : token, nullptr));
    }
}

// A longer struct, as of a program that was built with a later header. The library does not read the fields that it
// does not know.
TEST_F(Waiting, ALongerStruct) {
    struct {
        pf_wait wait;
        uint64_t later;
    } longer = {PF_WAIT_INIT, ~uint64_t{0}};
    longer.wait.size = sizeof longer;
    longer.wait.timeout_ns = 0;
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_TIMEOUT, pf_queue_pop(empty.handle(), &longer.wait, &tuple, nullptr));
}

TEST_F(Waiting, AStructThatIsTooShortIsRefused) {
    pf_wait wait = PF_WAIT_INIT;
    wait.size = PF_WAIT_SIZE_V1 - 1;
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_INVALID, pf_queue_pop(empty.handle(), &wait, &tuple, nullptr));
}

}  // namespace

// Queues that other processes fill: the C functions, and workers in C that are forked from this process and call no Go.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "pyfeed_worker.h"
#include "support.hpp"

using namespace pyfeed_test;

namespace {

class Shared : public Counted {
protected:
    Shared() {
        pf_scope_create(0, &scope, nullptr);
        pf_scope_var(scope, "queue", &var, nullptr);
        int64_t any = -1;
        pf_slot_spec slots[2] = {PF_SLOT_SPEC_INIT, PF_SLOT_SPEC_INIT};
        slots[0].dtype = PF_INT64;
        slots[1].dtype = PF_FLOAT32;
        slots[1].rank = 1;
        slots[1].dims = &any;
        pf_shared_queue_options options = PF_SHARED_QUEUE_OPTIONS_INIT;
        options.num_slots = 2;
        options.slots = slots;
        options.ring_cells = 4;
        options.cell_bytes = 4096;
        CError err;
        EXPECT_STATUS(PF_OK, pf_shared_queue_init_once(var, &options, &fd, &queue, &err)) << err.message();
        EXPECT_GE(fd, 0);
    }
    ~Shared() override {
        for (pid_t child : children) {
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        pf_tuple_release(&tuple);
        pf_release(queue, nullptr);
        pf_release(var, nullptr);
        pf_release(scope, nullptr);
        EXPECT_TRUE(eventually([] { return pyfeed::memory_stats().shared_bytes == 0; }));
    }

    // Runs a worker in its own process. The worker's result is the exit status of the process.
    template <class F>
    pid_t worker(F &&function) {
        const pid_t child = fork();
        if (child == 0) {
            pfw_producer *producer = nullptr;
            _exit(pfw_open(fd, &producer, nullptr) ? 100 : function(producer));
        }
        children.push_back(child);
        return child;
    }

    pf_status pop(pf_error *err) {
        pf_wait wait = PF_WAIT_INIT;
        wait.timeout_ns = std::chrono::nanoseconds(kStuck).count();
        return pf_queue_pop(queue, &wait, &tuple, err);
    }

    void expect_numbers(int64_t from, int64_t to) {
        for (int64_t i = from; i < to; i++) {
            CError err;
            ASSERT_STATUS(PF_OK, pop(&err), err);
            ASSERT_EQ(2u, tuple.num_slots);
            EXPECT_EQ(i, *static_cast<int64_t *>(tuple.slots[0].data));
            ASSERT_EQ(i % 9, tuple.slots[1].dims[0]);
            for (int64_t j = 0; j < i % 9; j++) {
                EXPECT_EQ(static_cast<float>(i + j), static_cast<float *>(tuple.slots[1].data)[j]);
            }
        }
    }

    static void ASSERT_STATUS(pf_status expected, pf_status found, const CError &err) {
        ASSERT_EQ(status_name(expected), status_name(found)) << err.message();
    }

    void expect_death(pid_t child, int32_t exit_status) {
        CError err;
        EXPECT_STATUS(PF_FAILED, pop(&err));
        EXPECT_EQ(child, err.raw.worker) << err.message();
        EXPECT_EQ(exit_status, err.raw.exit_status) << err.message();
    }

    pf_handle scope = 0, var = 0, queue = 0;
    pf_tuple tuple = PF_TUPLE_INIT;
    std::vector<pid_t> children;
    int fd = -1;
};

pf_status push_number(pfw_producer *producer, int64_t n) {
    std::vector<float> data(static_cast<size_t>(n % 9));
    std::iota(data.begin(), data.end(), static_cast<float>(n));
    int64_t dim = n % 9;
    pf_tensor t[2] = {PF_TENSOR_INIT, PF_TENSOR_INIT};
    t[0].dtype = PF_INT64;
    t[0].data = &n;
    t[1].dtype = PF_FLOAT32;
    t[1].rank = 1;
    t[1].dims = &dim;
    t[1].data = data.data();
    return pfw_push(producer, t, 2, nullptr, nullptr);
}

TEST_F(Shared, ATupleIsCopiedOnceAndNotByTheConsumer) {
    EXPECT_STATUS(PF_OK, pf_shared_queue_expect(queue, 1, nullptr));
    worker([](pfw_producer *p) {
        int failed = pfw_attach(p, 0, nullptr);
        for (int64_t i = 0; i < 100; i++) failed |= push_number(p, i);
        return failed | pfw_end(p, nullptr);
    });
    expect_numbers(0, 100);
    EXPECT_STATUS(PF_END, pop(nullptr));
    EXPECT_GT(pyfeed::memory_stats().shared_bytes, 4 * 4096u);
    EXPECT_EQ(0u, pyfeed::memory_stats().live_queue_bytes);
}

TEST_F(Shared, InPlace) {
    worker([](pfw_producer *p) {
        int64_t dim = 1;
        pf_tensor t[2] = {PF_TENSOR_INIT, PF_TENSOR_INIT};
        t[0].dtype = PF_INT64;
        t[1].dtype = PF_FLOAT32;
        t[1].rank = 1;
        t[1].dims = &dim;
        void *data[2];
        pfw_reservation slot;
        if (pfw_attach(p, 0, nullptr) || pfw_reserve(p, t, 2, nullptr, &slot, data, nullptr)) return 1;
        pfw_abandon(p, &slot);
        if (pfw_reserve(p, t, 2, nullptr, &slot, data, nullptr)) return 1;
        *static_cast<int64_t *>(data[0]) = 1;
        *static_cast<float *>(data[1]) = 1;
        return pfw_commit(p, &slot, nullptr) | pfw_end(p, nullptr);
    });
    expect_numbers(1, 2);
}

TEST_F(Shared, AKilledWorkerIsNamed) {
    const pid_t child = worker([](pfw_producer *p) {
        if (pfw_attach(p, 0, nullptr) || push_number(p, 0)) return 1;
        for (;;) pause();
    });
    expect_numbers(0, 1);
    kill(child, SIGKILL);
    expect_death(child, -SIGKILL);
}

TEST_F(Shared, ADeathIsAnExceptionOfItsOwn) {
    const pid_t child = worker([](pfw_producer *p) { return pfw_attach(p, 0, nullptr) ? 1 : 5; });
    ASSERT_EQ(PF_OK, pf_retain(queue, nullptr));
    const auto consumer = pyfeed::Queue::adopt(queue);
    try {
        consumer.pop(kStuck);
        FAIL() << "expected a WorkerError, found a tuple or the end of the pass";
    } catch (const pyfeed::WorkerError &e) {
        EXPECT_EQ(child, e.pid());
        EXPECT_EQ(5, e.exit_status());
        EXPECT_EQ(PF_FAILED, e.status());
    }
}

TEST_F(Shared, AnExitStatusIsTold) {
    expect_death(worker([](pfw_producer *p) { return pfw_attach(p, 0, nullptr) ? 1 : 3; }), 3);
}

TEST_F(Shared, WhoeverKnowsTells) {
    EXPECT_STATUS(PF_OK, pf_shared_queue_report_exit(queue, 999999, 7, nullptr));
    expect_death(999999, 7);
}

TEST_F(Shared, WorkersAreAtWorkWhileTheyMayPush) {
    uint8_t at_work = 7;
    auto found = [&](std::vector<int64_t> coming) {
        CError err;
        EXPECT_STATUS(PF_OK, pf_shared_queue_at_work(queue, coming.data(),
                                                     static_cast<uint32_t>(coming.size()), &at_work, &err))
            << err.message();
        return at_work == 1;
    };
    EXPECT_FALSE(found({}));
    int begins[2];
    ASSERT_EQ(0, pipe(begins));
    const pid_t child = worker([&](pfw_producer *p) {
        char byte;
        if (read(begins[0], &byte, 1) != 1 || pfw_attach(p, 0, nullptr) || read(begins[0], &byte, 1) != 1)
            return 1;
        for (int64_t i = 0; i < 5; i++)
            if (push_number(p, i)) return 2;
        return pfw_end(p, nullptr) ? 3 : 0;
    });
    EXPECT_TRUE(found({child}));  // it has not attached
    EXPECT_FALSE(found({}));
    ASSERT_EQ(1, write(begins[1], "a", 1));
    EXPECT_TRUE(eventually([&] { return found({}); }));  // it has
    ASSERT_EQ(1, write(begins[1], "p", 1));
    EXPECT_TRUE(eventually([&] { return !found({}); }));  // it waits for room
    EXPECT_FALSE(found({child}));
    expect_numbers(0, 2);
    pf_tuple_release(&tuple);
    EXPECT_TRUE(
        eventually([&] { return waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT) == 0; }));
    EXPECT_TRUE(eventually([&] { return !found({child}); }));  // it has ended its part
    EXPECT_TRUE(found({child + 1}));                           // a worker that is yet to attach has room
    EXPECT_STATUS(PF_OK, pf_queue_close(queue, PF_PASS_CURRENT, nullptr));
    EXPECT_FALSE(found({child + 1}));
    expect_numbers(2, 5);
    close(begins[0]);
    close(begins[1]);
}

TEST_F(Shared, AFailureIsTold) {
    worker([](pfw_producer *p) {
        return pfw_attach(p, 0, nullptr) | pfw_fail(p, "std::logic_error", "no", "main", nullptr);
    });
    CError err;
    EXPECT_STATUS(PF_FAILED, pop(&err));
    EXPECT_STREQ("std::logic_error", err.raw.cause_type);
    EXPECT_STREQ("no", err.raw.cause_message);
    EXPECT_STREQ("main", err.raw.cause_traceback);
    EXPECT_EQ(0, err.raw.worker);
}

TEST_F(Shared, WhatIsRefused) {
    CError err;
    int64_t n = 0;
    pf_tensor t[2] = {PF_TENSOR_INIT, PF_TENSOR_INIT};
    t[0].dtype = PF_INT64;
    t[0].data = &n;
    t[1].dtype = PF_FLOAT32;
    t[1].rank = 1;
    t[1].dims = &n;
    EXPECT_STATUS(PF_STATE, pf_queue_push(queue, t, 2, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_STATUS(PF_INVALID, pf_shared_queue_report_exit(queue, 0, 0, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_shared_queue_expect(scope, 1, &err));
    uint8_t at_work = 7;
    EXPECT_STATUS(PF_INVALID, pf_shared_queue_at_work(queue, nullptr, 1, &at_work, &err));
    EXPECT_EQ(0, at_work);
    EXPECT_STATUS(PF_INVALID, pf_shared_queue_at_work(queue, nullptr, 0, nullptr, &err));
    pf_slot_spec slot = PF_SLOT_SPEC_INIT;
    slot.dtype = PF_INT64;
    pf_shared_queue_options options = PF_SHARED_QUEUE_OPTIONS_INIT;
    options.num_slots = 1;
    options.slots = &slot;
    options.cell_bytes = 8;
    pf_handle other = 77;
    int none = 77;
    EXPECT_STATUS(PF_INVALID, pf_shared_queue_init_once(var, &options, &none, &other, &err));
    EXPECT_EQ("ring_cells: expected 1 to 4096, found 0", err.message());
    options.ring_cells = 1;
    EXPECT_STATUS(PF_STATE, pf_shared_queue_init_once(var, &options, &none, &other, &err));
    EXPECT_EQ(-1, none);
    EXPECT_EQ(0u, other);
    options.place = {PF_CUDA_PINNED, 7};
    EXPECT_STATUS(PF_UNSUPPORTED, pf_shared_queue_init_once(var, &options, &none, &other, &err));
    pfw_producer *producer = nullptr;
    pfw_error refused;
    EXPECT_STATUS(PF_CORRUPT, pfw_open(fileno(tmpfile()), &producer, &refused));
}

}  // namespace

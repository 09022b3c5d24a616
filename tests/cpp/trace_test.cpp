// Recordings, from C and C++.
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

class Tracing : public Files {
protected:
    Queue queue = numbers(4);
};

TEST_F(Tracing, PushesAndPops) {
    const Trace trace;
    const Queue large = make_queue({1, {{DType::float32, {-1, 1000}}}}, "large");
    const Floats x(100 * 1000);

    auto popping = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));  // for the producer
    push_number(queue, 7);
    EXPECT_EQ(7, popping.get());
    large.push({view(x, {100, 1000})});  // copied by C
    auto pushing = in_thread([&] { large.push({view(x, {100, 1000})}); });
    ASSERT_TRUE(producers_wait(large, 1));  // for room
    EXPECT_TRUE(large.pop());
    pushing.get();

    trace.stop();
    push_number(queue, 8);  // which nobody records
    const std::string chrome = trace.chrome(), summary = trace.summary(), table = trace.table();
    EXPECT_TRUE(contains(chrome, R"("name":"waits for a push","cat":"producer","ts":)")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("name":"waits for room in a queue","cat":"full","ts":)")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("name":"push","cat":"copy","ts":)")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("args":{"bytes":8})")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("args":{"bytes":400000})")) << chrome;
    EXPECT_TRUE(contains(summary, R"("limited_by":"","runs":0,)")) << summary;
    EXPECT_TRUE(contains(summary, R"("copies":{"count":3,"bytes":800008,)")) << summary;
    EXPECT_EQ(0u, table.find("no run of an executor was recorded: ")) << table;

    const std::string file = path("trace.json");
    trace.save(file);
    trace.save(file);  // replaces it
    std::ifstream in(file, std::ios::binary);
    EXPECT_EQ(chrome, std::string(std::istreambuf_iterator<char>(in), {}));
    EXPECT_ERROR(FileError, -1, trace.save(path("none/trace.json")), "none/trace.json", "cannot be written");
    EXPECT_ERROR(FileError, -1, trace.save("/dev/full"), "/dev/full", "cannot be written");
}

TEST_F(Tracing, OneAtATime) {
    std::optional<Trace> trace(std::in_place);
    EXPECT_ERROR(StateError, -1, Trace(), "stop it first");
    for (const char *form : {"chrome", "summary", "table"}) {
        char *text = reinterpret_cast<char *>(1);
        CError err;
        EXPECT_STATUS(PF_STATE, pf_trace_text(trace->handle(), form, &text, &err));
        EXPECT_TRUE(contains(err.message(), "has not ended")) << err.message();
        EXPECT_EQ(nullptr, text);
    }
    trace->stop();
    trace->stop();
    const Trace second;
    trace->stop();  // is not the second's
    EXPECT_ERROR(StateError, -1, Trace(), "stop it first");
    trace.reset();
    EXPECT_ERROR(StateError, -1, Trace(), "stop it first");
}

TEST_F(Tracing, EndsWithItsLastHandle) {
    pf_handle trace = 0;
    ASSERT_EQ(PF_OK, pf_trace_start(10, &trace, nullptr));
    ASSERT_EQ(PF_OK, pf_retain(trace, nullptr));
    ASSERT_EQ(PF_OK, pf_release(trace, nullptr));
    pf_handle second = 77;
    EXPECT_STATUS(PF_STATE, pf_trace_start(10, &second, nullptr));
    EXPECT_EQ(0u, second);
    ASSERT_EQ(PF_OK, pf_release(trace, nullptr));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_trace_stop(trace, nullptr));
    ASSERT_EQ(PF_OK, pf_trace_start(10, &second, nullptr));
    ASSERT_EQ(PF_OK, pf_release(second, nullptr));
}

TEST_F(Tracing, WhatDoesNotFitIsCounted) {
    const Trace trace(2);
    for (int64_t i = 0; i < 4; i++) push_number(queue, i);
    trace.stop();
    EXPECT_TRUE(contains(trace.summary(), R"("spans":2,"dropped_spans":2,)")) << trace.summary();
    EXPECT_TRUE(contains(trace.table(), "2 spans had no room")) << trace.table();
}

TEST_F(Tracing, BadArguments) {
    EXPECT_ERROR(InvalidArgument, -1, Trace(uint64_t{1} << 40), "max_events", "1099511627776");
    EXPECT_ERROR(InvalidArgument, -1, Trace(~uint64_t{0}), "max_events");
    CError err;
    char *text = nullptr;
    pf_handle handle = 77;
    EXPECT_STATUS(PF_INVALID, pf_trace_start(0, nullptr, &err));
    EXPECT_TRUE(contains(err.message(), "trace: expected a pointer, found NULL")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_trace_stop(queue.handle(), &err));
    EXPECT_TRUE(contains(err.message(), "expected a trace, found a queue")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_trace_text(handle, "table", &text, &err));

    const Trace trace;
    trace.stop();
    EXPECT_STATUS(PF_INVALID, pf_trace_text(trace.handle(), nullptr, &text, &err));
    EXPECT_TRUE(contains(err.message(), "form: expected a pointer, found NULL")) << err.message();
    EXPECT_STATUS(PF_INVALID, pf_trace_text(trace.handle(), "table", nullptr, &err));
    EXPECT_TRUE(contains(err.message(), "text: expected a pointer, found NULL")) << err.message();
    EXPECT_STATUS(PF_INVALID, pf_trace_text(trace.handle(), "svg", &text, &err));
    EXPECT_TRUE(contains(err.message(), "form: expected chrome, summary or table, found \"svg\""))
        << err.message();
}

// Threads at work while recordings come and go.
TEST_F(Tracing, WhileThreadsWork) {
    std::atomic<bool> stop{false};
    auto producing = in_thread([&] {
        for (int64_t i = 0; !stop; i++) push_number(queue, i);
        queue.close();
    });
    auto consuming = in_thread([&] { return rest(queue).size(); });
    for (int i = 0; i < 50; i++) {
        const Trace trace(1000);
        const uint64_t before = queue.stats().popped;
        ASSERT_TRUE(eventually([&] { return queue.stats().popped > before + 100; }));
        trace.stop();
        EXPECT_FALSE(contains(trace.summary(), R"("spans":0,)")) << trace.summary();
    }
    stop = true;
    producing.get();
    const size_t consumed = consuming.get();
    EXPECT_EQ(consumed, queue.stats().popped);
}

}  // namespace

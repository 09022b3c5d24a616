// Traces, through C and C++.
#include <sys/stat.h>

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
    const Queue large = make_queue({1, {{{-1, 1000}, DType::float32}}}, "large");
    const Floats x(100 * 1000);

    auto popping = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));  // the pop waits for the producer
    push_number(queue, 7);
    EXPECT_EQ(7, popping.get());
    large.push({view(x, {100, 1000})});  // large enough to be copied in C
    auto pushing = in_thread([&] { large.push({view(x, {100, 1000})}); });
    ASSERT_TRUE(producers_wait(large, 1));  // the push waits for room
    EXPECT_TRUE(large.pop());
    pushing.get();

    trace.stop();
    push_number(queue, 8);  // not recorded, since the trace has stopped
    const std::string chrome = trace.chrome(), summary = trace.summary(), table = trace.table();
    EXPECT_TRUE(contains(chrome, R"("name":"waits for a push","cat":"producer","ts":)")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("name":"waits for room in a queue","cat":"full","ts":)")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("name":"push","cat":"copy","ts":)")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("args":{"bytes":8})")) << chrome;
    EXPECT_TRUE(contains(chrome, R"("args":{"bytes":400000})")) << chrome;
    EXPECT_TRUE(contains(summary, R"("limited_by":"","runs":0,)")) << summary;
    EXPECT_TRUE(contains(summary, R"("copies":{"count":3,"bytes":800008,)")) << summary;
    // Neither thread read twice.
    EXPECT_EQ(0u, table.find("cannot tell what limits the loop: no thread read twice")) << table;

    const std::string file = path("trace.json");
    trace.save(file);
    trace.save(file);  // replaces the file
    std::ifstream in(file, std::ios::binary);
    EXPECT_EQ(chrome, std::string(std::istreambuf_iterator<char>(in), {}));
    EXPECT_ERROR(FileError, -1, trace.save(path("none/trace.json")), "none/trace.json", "cannot be written");
    EXPECT_ERROR(FileError, -1, trace.save("/dev/full"), "/dev/full", "cannot be written");
}

// Sleeps until its sleeps together are at least four fifths of the time since its construction, however busy the
// machine is. Each sleep takes at least 100 ms, which outweighs the time after the last sleep.
class Most {
    using Clock = std::chrono::steady_clock;

public:
    void take() {
        const auto begun = Clock::now();
        const auto others = std::max<Clock::duration>(begun - start_ - taken_, 25ms);
        while (taken_ + (Clock::now() - begun) < 4 * others) std::this_thread::sleep_for(100us);
        taken_ += Clock::now() - begun;
    }

private:
    Clock::time_point start_ = Clock::now();
    Clock::duration taken_{0};
};

// Returns whether a thread sleeps in the reader now, because it has no data.
bool someone_sleeps(const Reader &reader) {
    const auto slept = [&] { return std::stod(member(reader.stats(), "waited_seconds")); };
    const double before = slept();
    return slept() > before;
}

// A loop that does not run a program, over a queue or a file, with or without a thread that reads ahead.
class TracedLoop : public Tracing, public ::testing::WithParamInterface<std::tuple<bool, bool>> {
protected:
    bool of_file() const { return std::get<0>(GetParam()); }
    Reader ahead(const Reader &reader) const {
        return std::get<1>(GetParam()) ? reader.double_buffer({}, 1) : reader;
    }

    // Reads the pass, stops the trace, and returns what limited the loop.
    std::string limit(const Trace &trace, const Reader &reader, const std::function<void()> &consume, int n) {
        for (int read = 0;; read++) {
            const auto tuple = reader.next(kStuck);
            if (!tuple) {
                EXPECT_EQ(n, read);
                break;
            }
            consume();
        }
        trace.stop();
        const std::string summary = trace.summary();
        EXPECT_EQ(std::to_string(n + 1), member(summary, "reads")) << summary;
        EXPECT_EQ("0", member(summary, "runs")) << summary;
        EXPECT_TRUE(contains(summary, " limits the loop: ") || contains(summary, " computation limits it: "))
            << summary;
        EXPECT_TRUE(contains(summary, " of the time of " + std::to_string(n + 1) + " reads; ")) << summary;
        return member(summary, "limited_by");
    }
};

TEST_P(TracedLoop, IsLimitedByWhatItComputes) {
    Reader reader =
        of_file() ? read_numbers("x", range(0, 10)) : create_py_array_reader(scope, "reader", "feeder");
    for (int64_t i = 0; i < (of_file() ? 0 : 4); i++) push_number(queue, i);
    queue.close();
    const Reader last = ahead(reader);
    const Trace trace;
    Most most;
    EXPECT_EQ("compute", limit(trace, last, [&] { most.take(); }, of_file() ? 10 : 4));
}

TEST_P(TracedLoop, IsLimitedByWhatItWaitsFor) {
    const std::string pipe = path("x.raw");
    ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
    const Reader reader = of_file() ? open_files(scope, "files", {pipe}, raw())
                                    : create_py_array_reader(scope, "reader", "feeder");
    const Reader last = ahead(reader);
    const Trace trace;
    auto feeding = in_thread([&] {
        Most most;
        std::ofstream out;
        if (of_file()) out.open(pipe, std::ios::binary);
        for (int64_t i = 0; i < 10; i++) {
            EXPECT_TRUE(eventually([&] { return someone_sleeps(last); }));
            most.take();
            if (of_file())
                out.write(reinterpret_cast<const char *>(&i), sizeof i).flush();
            else
                push_number(queue, i);
        }
        queue.close();
    });
    EXPECT_EQ(of_file() ? "reader" : "producer", limit(trace, last, [] {}, 10));
    feeding.get();
}

// A copy cannot be slowed down on purpose. So the loop is repeated until its copies take most of the time.
TEST_P(TracedLoop, IsLimitedByItsCopies) {
    constexpr int64_t kRow = 1 << 20, kRows = 16;
    store("x.raw", std::string(kRow * kRows, 'x'));
    const std::vector<SlotSpec> slots = {{{kRow}, DType::uint8}};
    const std::vector<uint8_t> row(kRow);
    EXPECT_TRUE(eventually([&] {
        Scope local;
        if (!of_file()) {
            const Queue rows = QueueHolder(local.var("rows")).init_once({kRows, slots});
            for (int64_t i = 0; i < kRows; i++) rows.push({view(row, {kRow})});
            rows.close();
        }
        const Reader reader =
            of_file() ? open_files(local, "reader", {path("x.raw")}, OpenFiles().format("raw").slots(slots))
                      : create_py_array_reader(local, "reader", "rows");
        const Reader last = ahead(reader.batch(8));
        const Trace trace;
        return limit(trace, last, [] {}, 2) == "copy";
    }));
    queue.close();
}

INSTANTIATE_TEST_SUITE_P(Loops, TracedLoop, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto &info) {
                             return std::string(std::get<0>(info.param) ? "Files" : "Queue") +
                                    (std::get<1>(info.param) ? "Ahead" : "");
                         });

// read() into the variables of a scope and pops count as reads.
TEST_F(Tracing, ReadsIntoVariablesAndPops) {
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    for (int64_t i = 0; i < 3; i++) push_number(queue, i);
    const Trace trace;
    EXPECT_TRUE(read(scope, "reader", {"x"}));
    EXPECT_TRUE(reader.has_next());
    EXPECT_TRUE(queue.pop() || reader.next());
    trace.stop();
    const std::string summary = trace.summary();
    EXPECT_EQ("3", member(summary, "reads")) << summary;
}

TEST_F(Tracing, OneAtATime) {
    std::optional<Trace> trace(std::in_place);
    EXPECT_ERROR(StateError, -1, Trace(), "stop it first");
    for (const char *form : {"chrome", "summary", "table"}) {
        char *text = reinterpret_cast<char *>(1);
        CError err;
        EXPECT_STATUS(PF_STATE, pf_trace_export(trace->handle(), form, &text, &err));
        EXPECT_TRUE(contains(err.message(), "has not ended")) << err.message();
        EXPECT_EQ(nullptr, text);
    }
    trace->stop();
    trace->stop();
    const Trace second;
    trace->stop();  // does not stop the second trace
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
    EXPECT_STATUS(PF_STALE_HANDLE, pf_trace_export(handle, "table", &text, &err));

    const Trace trace;
    trace.stop();
    EXPECT_STATUS(PF_INVALID, pf_trace_export(trace.handle(), nullptr, &text, &err));
    EXPECT_TRUE(contains(err.message(), "form: expected a pointer, found NULL")) << err.message();
    EXPECT_STATUS(PF_INVALID, pf_trace_export(trace.handle(), "table", nullptr, &err));
    EXPECT_TRUE(contains(err.message(), "text: expected a pointer, found NULL")) << err.message();
    EXPECT_STATUS(PF_INVALID, pf_trace_export(trace.handle(), "svg", &text, &err));
    EXPECT_TRUE(contains(err.message(), "form: expected chrome, summary or table, found \"svg\""))
        << err.message();
}

// Recordings start and stop while threads push and pop.
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

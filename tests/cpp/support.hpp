// Shared code of the tests: fixtures that find leaks, comparison of errors, waits for events, files.
#ifndef PYFEED_TESTS_SUPPORT_HPP
#define PYFEED_TESTS_SUPPORT_HPP

#include <gtest/gtest.h>
#include <stdlib.h>
#include <pyfeed.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <string_view>
#include <thread>

namespace pyfeed_test {

using namespace std::chrono_literals;

// A time limit for calls that must not block for ever: longer than any such call takes.
constexpr auto kStuck = 60s;

// Waits for an event that another thread causes.
template <class F>
::testing::AssertionResult eventually(F &&happened) {
    const auto deadline = std::chrono::steady_clock::now() + kStuck;
    while (!happened()) {
        if (std::chrono::steady_clock::now() > deadline) {
            return ::testing::AssertionFailure() << "the condition did not become true in time";
        }
        std::this_thread::yield();
    }
    return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult producers_wait(const pyfeed::Queue &queue, uint32_t n) {
    return eventually([&] { return queue.stats().waiting_producers == n; });
}
inline ::testing::AssertionResult consumers_wait(const pyfeed::Queue &queue, uint32_t n) {
    return eventually([&] { return queue.stats().waiting_consumers == n; });
}

// Runs a function that may block in a new thread. get() of the result returns its value or throws its exception.
template <class F>
auto in_thread(F &&f) {
    return std::async(std::launch::async, std::forward<F>(f));
}

// One function for each class of error keeps the tests small: EXPECT_ERROR is used in hundreds of places.
template <class E>
[[gnu::noinline]] void expect_error(const char *file, int line, const std::function<void()> &statement,
                                    int slot, std::initializer_list<std::string_view> words) {
    try {
        statement();
    } catch (const E &e) {
        if (e.slot() != slot) {
            ADD_FAILURE_AT(file, line)
                << "expected slot " << slot << ", found " << e.slot() << ": " << e.what();
        }
        for (const std::string_view word : words) {
            if (std::string_view(e.what()).find(word) == std::string_view::npos) {
                ADD_FAILURE_AT(file, line) << "expected \"" << word << "\" in: " << e.what();
            }
        }
        return;
    } catch (const std::exception &e) {
        ADD_FAILURE_AT(file, line) << "expected another class of error, found "
                                   << pyfeed::detail::type_name(typeid(e)) << ": " << e.what();
        return;
    }
    ADD_FAILURE_AT(file, line) << "nothing was thrown";
}

// Expects the statement to throw an error of this class, for this slot, with all these words in its message.
#define EXPECT_ERROR(Class, slot, statement, ...)                                                           \
    ::pyfeed_test::expect_error<::pyfeed::Class>(__FILE__, __LINE__, [&] { static_cast<void>(statement); }, \
                                                 slot, {__VA_ARGS__})

inline std::string status_name(pf_status status) { return pf_status_name(status); }
#define EXPECT_STATUS(expected, call) \
    EXPECT_EQ(::pyfeed_test::status_name(expected), ::pyfeed_test::status_name(call))

// The error of a C call.
class CError {
public:
    ~CError() { pf_error_release(&raw); }
    pf_error *operator&() {
        pf_error_release(&raw);
        return &raw;
    }
    std::string message() const { return raw.message != nullptr ? raw.message : ""; }
    pf_error raw = PF_ERROR_INIT;
};

// Expects no memory counter to be higher after a test than before it. A counter may be lower, because the opening that an
// earlier test has ended frees its buffer in the background. This is a base class, so that its destructor runs after those
// of the test's own members.
class Counted : public ::testing::Test {
protected:
    Counted() : before_(pyfeed::memory_stats()) {}
    ~Counted() override {
        // A cancelled call may still be returning in another thread, and an opening that was ended may still read into
        // a buffer. The library may keep descriptors of loans for later loans, but no tuples.
        pyfeed::MemoryInfo now = pyfeed::memory_stats();
        const uint64_t most_idle = before_.idle_bytes + 16 * 1024;
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while ((now.handles > before_.handles || now.live_buffers > before_.live_buffers ||
                now.idle_bytes > most_idle) &&
               std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
            now = pyfeed::memory_stats();
        }
        EXPECT_LE(now.handles, before_.handles);
        EXPECT_LE(now.tuples_on_loan, before_.tuples_on_loan);
        EXPECT_LE(now.live_queue_bytes, before_.live_queue_bytes);
        EXPECT_LE(now.live_lent_bytes, before_.live_lent_bytes);
        EXPECT_LE(now.live_batch_bytes, before_.live_batch_bytes);
        EXPECT_LE(now.live_view_bytes, before_.live_view_bytes);
        EXPECT_LE(now.live_file_bytes, before_.live_file_bytes);
        EXPECT_LE(now.live_mapped_bytes, before_.live_mapped_bytes);
        EXPECT_LE(now.pinned_bytes, before_.pinned_bytes);
        EXPECT_LE(now.device_bytes, before_.device_bytes);
        EXPECT_LE(now.shared_bytes, before_.shared_bytes);
        EXPECT_LE(now.idle_bytes, most_idle);
        EXPECT_LE(now.live_buffers, before_.live_buffers);
    }

private:
    pyfeed::MemoryInfo before_;
};

// A scope, and queues in it under the names "feeder", "feeder2" and so on.
class Feed : public Counted {
protected:
    pyfeed::Queue make_queue(const pyfeed::QueueOptions &options, const std::string &name = "feeder") {
        return pyfeed::QueueHolder(scope.var(name)).init_once(options);
    }
    // Creates a queue whose tuples have one number each.
    pyfeed::Queue numbers(uint64_t capacity, bool restartable = false) {
        return make_queue({capacity, {{{1}, pyfeed::DType::int64}}, pyfeed::CPUPlace(), 0, restartable});
    }

    pyfeed::Scope scope;
};

inline void push_number(const pyfeed::Queue &queue, int64_t n, const pyfeed::Wait &wait = kStuck,
                        uint64_t pass = PF_PASS_CURRENT) {
    queue.push({pyfeed::view(&n, {1})}, wait, pass);
}
inline int64_t number(const pyfeed::Tuple &tuple) { return tuple.at(0).values<int64_t>()[0]; }

// Returns the next number, or -1 at the end.
template <class Source>
int64_t next_number(const Source &source, const pyfeed::Wait &wait = kStuck) {
    const auto tuple = source.next(wait);
    return tuple ? number(*tuple) : -1;
}
// Returns all numbers up to the end.
template <class Source>
std::vector<int64_t> rest(const Source &source) {
    std::vector<int64_t> out;
    for (pyfeed::Tuple &tuple : source.tuples(kStuck)) out.push_back(number(tuple));
    return out;
}

template <class T>
std::vector<T> values(const pyfeed::TensorView &tensor) {
    const auto span = tensor.values<T>();
    return std::vector<T>(span.begin(), span.end());
}
inline std::vector<int64_t> offsets(const pyfeed::TensorView &tensor, size_t level) {
    const auto span = tensor.lod(level);
    return std::vector<int64_t>(span.begin(), span.end());
}

using Numbers = std::vector<int64_t>;
using Floats = std::vector<float>;

// Returns begin, begin + 1, ..., end - 1.
inline Numbers range(int64_t begin, int64_t end) {
    Numbers out;
    for (int64_t n = begin; n < end; n++) out.push_back(n);
    return out;
}

// A new directory for each test, and readers of files in it.
class Files : public Feed {
protected:
    Files() {
        std::string pattern = testing::TempDir() + "pyfeed_XXXXXX";
        folder = mkdtemp(pattern.data());
    }
    ~Files() override { std::filesystem::remove_all(folder); }

    std::string path(const std::string &name) const { return folder + "/" + name; }
    // Returns the names of the files in the directory, sorted.
    std::vector<std::string> listing() const {
        std::vector<std::string> names;
        for (const auto &entry : std::filesystem::directory_iterator(folder))
            names.push_back(entry.path().filename());
        std::sort(names.begin(), names.end());
        return names;
    }

    std::string store(const std::string &name, const std::string &bytes) const {
        std::ofstream(path(name), std::ios::binary) << bytes;
        return path(name);
    }
    std::string load(const std::string &name) const {
        std::ifstream in(path(name), std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    }
    // Writes a file of numbers in the raw format, and returns its path.
    std::string store(const std::string &name, const Numbers &numbers) const {
        return store(name, std::string(reinterpret_cast<const char *>(numbers.data()), 8 * numbers.size()));
    }

    // Each instance is one number.
    static std::vector<pyfeed::SlotSpec> number_slots() { return {{{1}, pyfeed::DType::int64}}; }
    static pyfeed::OpenFiles raw() { return pyfeed::OpenFiles().format("raw").slots(number_slots()); }
    pyfeed::Reader read_numbers(const std::string &name, const Numbers &numbers) {
        return pyfeed::open_files(scope, name, {store(name + ".raw", numbers)}, raw());
    }

    std::string folder;
};

// Returns a new tag for a format. Formats stay registered, and tests may be repeated in one process.
inline std::string new_tag() {
    static std::atomic<int> made{0};
    return "format" + std::to_string(++made);
}

// Returns the text of the first member of that name in JSON. The member must be a number, string, boolean or null.
inline std::string member(const std::string &json, const std::string &name) {
    const std::string key = "\"" + name + "\":";
    size_t at = json.find(key);
    if (at == std::string::npos) return "no " + name + " in " + json;
    at += key.size();
    const bool quoted = json[at] == '"';
    const size_t end = json.find_first_of(quoted ? "\"" : ",}]", at + 1);
    return json.substr(at + quoted, end - at - quoted);
}

}  // namespace pyfeed_test

namespace pyfeed {
inline void PrintTo(const Shape &dims, std::ostream *out) { *out << dims.to_string(); }
inline void PrintTo(DType dtype, std::ostream *out) { *out << dtype_name(dtype); }
}  // namespace pyfeed

#endif  // PYFEED_TESTS_SUPPORT_HPP

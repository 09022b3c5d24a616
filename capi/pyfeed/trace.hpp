// Recordings of what a process does.
#ifndef PYFEED_PYFEED_TRACE_HPP
#define PYFEED_PYFEED_TRACE_HPP

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "wait.hpp"

namespace pyfeed {

// A recording of what runs, readers and queues of this process do, from its construction to stop() or its
// end. One at a time: StateError. It has one owner and moves. Any thread.
//
//   pyfeed::Trace trace;
//   ...
//   trace.stop();
//   std::cout << trace.table();   // says what limits the loop
//   trace.save("trace.json");     // a picture, for https://ui.perfetto.dev
class Trace {
public:
    // Of so many spans at most, 56 bytes each as they come, 0: a million. Further ones are counted.
    explicit Trace(uint64_t max_events = 0)
        : handle_(detail::make_handle(
              [&](pf_handle *id, pf_error *err) { return pf_trace_start(max_events, id, err); })) {}
    Trace(Trace &&) noexcept = default;
    Trace &operator=(Trace &&) noexcept = default;
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    // Ends it. Twice is fine.
    void stop() const {
        detail::Call call;
        call.check(pf_trace_stop(handle(), call.err()));
    }

    // What was recorded; before stop() a StateError. A JSON object that says what limits the loop,
    std::string summary() const { return text("summary").get(); }
    // the same for people,
    std::string table() const { return text("table").get(); }
    // all of it, as JSON in the Trace Event Format,
    std::string chrome() const { return text("chrome").get(); }
    // and the same into a file, which is replaced. FileError if it cannot be written whole.
    void save(const std::string &path) const {
        const Text json = text("chrome");
        std::FILE *file = std::fopen(path.c_str(), "wb");
        bool failed = file == nullptr;
        int why = errno;
        if (!failed) {
            const size_t size = std::strlen(json.get());
            failed = std::fwrite(json.get(), 1, size, file) != size;
            if (failed) why = errno;
            if (std::fclose(file) != 0 && !failed) {
                failed = true;
                why = errno;
            }
        }
        if (failed) {
            throw FileError(path + ": cannot be written: " + std::generic_category().message(why), -1,
                            FileLocation{path, -1, -1, why});
        }
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    using Text = std::unique_ptr<char, void (*)(char *)>;

    // It may be too large for a copy of it.
    Text text(const char *form) const {
        detail::Call call;
        char *text = nullptr;
        call.check(pf_trace_export(handle(), form, &text, call.err()));
        return Text(text, pf_string_release);
    }

    detail::Handle handle_;
};

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_TRACE_HPP

// Recordings of what a process does, for finding what limits a loop.
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

// A recording of what the programs, readers and queues of this process do, from its construction to stop() or
// its destruction. There is one at a time; a second one throws StateError. It has one owner and can
// be moved. Any thread may use it.
//
//   pyfeed::Trace trace;
//   ...
//   trace.stop();
//   std::cout << trace.table();   // says what limits the loop
//   trace.save("trace.json");     // a picture, for https://ui.perfetto.dev
class Trace {
public:
    // Records up to max_events spans (operations), of 56 bytes each; 0: a million. Further spans are only
    // counted.
    explicit Trace(uint64_t max_events = 0)
        : handle_(detail::make_handle(
              [&](pf_handle *id, pf_error *err) { return pf_trace_start(max_events, id, err); })) {}
    Trace(Trace &&) noexcept = default;
    Trace &operator=(Trace &&) noexcept = default;
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    // Ends the recording. A second call does nothing.
    void stop() const {
        detail::Call call;
        call.check(pf_trace_stop(handle(), call.err()));
    }

    // The next four methods throw StateError before stop(). The summary: a JSON object that says what limits
    // the loop.
    std::string summary() const { return text("summary").get(); }
    // The summary as a table, for people to read.
    std::string table() const { return text("table").get(); }
    // The whole recording, as JSON in the Trace Event Format.
    std::string chrome() const { return text("chrome").get(); }
    // Writes the JSON of chrome() to a file, which is replaced. Throws FileError if the file cannot be
    // written completely.
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

    // Returns the C string itself: the text may be too large to copy.
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

// Formats of files, and writers.
#ifndef PYFEED_PYFEED_FORMAT_HPP
#define PYFEED_PYFEED_FORMAT_HPP

#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "json.hpp"
#include "queue.hpp"

namespace pyfeed {

// The formats there are: a JSON list of {"tag", "suffixes", "writes"}.
inline std::string formats() {
    detail::check_abi();
    detail::Call call;
    char *json = nullptr;
    call.check(pf_format_list(&json, call.err()));
    return detail::take_string(json);
}

// How a Writer writes. What is not set is as pyfeed.h says.
class WriterOptions : public detail::Options<WriterOptions> {
public:
    // The format's tag, for a file whose name does not tell.
    WriterOptions &format(const std::string &tag) {
        format_ = tag;
        return *this;
    }
    // What the tuples look like; else the first one decides.
    WriterOptions &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // The format's own options, a JSON object: see docs/formats.md.
    WriterOptions &options(const std::string &json) { return set("options", detail::Json{json}); }

private:
    friend class Writer;

    std::string format_;
};

// A file that is being written. Until close() there is none of its name, or the old one; a Writer destroyed
// before leaves nothing. It has one owner and moves. Any thread, one at a time: others wait.
class Writer {
public:
    // Begins to write, in the format that the name says, or options do.
    explicit Writer(const std::string &filename, const WriterOptions &options = {})
        : handle_(detail::make_handle([&](pf_handle *id, pf_error *err) {
              const std::string attributes = options.attributes().json();
              return pf_writer_create(filename.c_str(),
                                      options.format_.empty() ? nullptr : options.format_.c_str(),
                                      attributes.c_str(), id, err);
          })) {}
    Writer(Writer &&) noexcept = default;
    Writer &operator=(Writer &&) noexcept = default;
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;

    // Adds a tuple, strided or not. After an error nothing more can be written. Waits for the disk.
    void write(const Tensors &tensors) const {
        detail::Call call;
        call.check(pf_writer_write(handle(), tensors.data(), tensors.size(), call.err()));
    }
    // Completes the file and sees its bytes to the disk. Nothing can be written after it.
    void close() const {
        detail::Call call;
        call.check(pf_writer_close(handle(), call.err()));
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    detail::Handle handle_;
};

// Reads a file of a registered format: pushes its instances into the queue, in order. `options` is a JSON
// object. When it returns, the file has ended; what it throws is the consumer's ProducerError. A push that is
// QueueClosed says that the reader is gone: let it through. It is called from many threads at once.
using FormatFunction =
    std::function<void(const std::string &path, const std::string &options, const Queue &queue)>;

// The threads that read the files of a format, one for each that is open, and the function that they call. It
// has one owner and moves. When it is destroyed it waits for the calls of the function, whose queues have
// failed by then. The format stays, but its files can no longer be read.
class RegisteredFormat {
public:
    RegisteredFormat(RegisteredFormat &&) noexcept = default;
    RegisteredFormat &operator=(RegisteredFormat &&) noexcept = default;

    const std::string &tag() const noexcept { return state_->tag; }

private:
    friend RegisteredFormat register_format(const std::string &, const std::vector<std::string> &,
                                            FormatFunction, const std::vector<SlotSpec> &);

    // Shared with the threads, which end before it does.
    struct State {
        State(std::string tag_, FormatFunction function_, detail::Handle format_)
            : tag(std::move(tag_)), function(std::move(function_)), format(std::move(format_)) {
            threads.emplace_back([this] { run(); });
        }
        State(const State &) = delete;
        State &operator=(const State &) = delete;

        ~State() {
            if (pf_cancel_token_cancel(token.handle(), nullptr) ==
                PF_FORKED) {  // the threads are not in this process
                for (std::thread &thread : threads) thread.detach();
                return;
            }
            std::list<std::thread> all;
            {
                const std::lock_guard<std::mutex> lock(mutex);
                stopping = true;
                for (const Queue &queue : open) give_up(queue);
                all.swap(threads);
            }
            for (std::thread &thread : all) thread.join();
        }

        void run() {
            pf_wait wait = PF_WAIT_INIT;
            wait.cancel = token.handle();
            for (;;) {
                pf_handle id = 0;
                char *path = nullptr, *options = nullptr;
                if (pf_format_wait(format.get(), &wait, &id, &path, &options, nullptr) != PF_OK) return;
                read(detail::take_string(path), detail::take_string(options), Queue::adopt(id));
            }
        }

        void read(const std::string &path, const std::string &options, const Queue &queue) {
            std::list<Queue>::iterator mine;
            {
                const std::lock_guard<std::mutex> lock(mutex);
                if (stopping) return give_up(queue);
                mine = open.insert(open.end(), queue);
                // One thread must be left to wait for files: those that are read in turn would wait for each other.
                if (open.size() == threads.size()) start();
            }
            try {
                function(path, options, queue);
                queue.close();
            } catch (...) {
                const detail::Failure failure = detail::failure_of(std::current_exception());
                const pf_failure raw = failure.raw();
                pf_queue_fail(queue.handle(), 0, &raw, nullptr);
            }
            const std::lock_guard<std::mutex> lock(mutex);
            open.erase(mine);
        }

        void start() {
            try {
                threads.emplace_back([this] { run(); });
            } catch (const std::system_error &) {  // no more threads: files wait until one is free
            }
        }

        void give_up(const Queue &queue) const {
            const std::string message = "the threads that read the files of format " + tag + " have ended";
            pf_failure raw = PF_FAILURE_INIT;
            raw.message = message.c_str();
            pf_queue_fail(queue.handle(), 0, &raw, nullptr);
        }

        const std::string tag;
        const FormatFunction function;
        const detail::Handle format;
        const CancelToken token;

        std::mutex mutex;  // guards what follows
        std::list<std::thread> threads;
        std::list<Queue> open;
        bool stopping = false;
    };

    explicit RegisteredFormat(std::unique_ptr<State> state) : state_(std::move(state)) {}

    std::unique_ptr<State> state_;
};

// Adds a format whose files `function` reads, on threads that the result owns. `suffixes` are those of its
// files, each with its dot. `slots` is what its instances look like where open_files is not told; without any,
// it has to be. StateError if the tag or a suffix is taken: a format stays for good.
inline RegisteredFormat register_format(const std::string &tag, const std::vector<std::string> &suffixes,
                                        FormatFunction function, const std::vector<SlotSpec> &slots = {}) {
    if (!function) throw InvalidArgument("register_format: expected a function, found none");
    std::vector<const char *> all;
    all.reserve(suffixes.size());
    for (const std::string &suffix : suffixes) all.push_back(suffix.c_str());
    const std::string instances = detail::to_json(slots);
    detail::Handle format = detail::make_handle([&](pf_handle *id, pf_error *err) {
        return pf_format_register(tag.c_str(), all.data(), static_cast<uint32_t>(all.size()),
                                  slots.empty() ? nullptr : instances.c_str(), id, err);
    });
    return RegisteredFormat(
        std::make_unique<RegisteredFormat::State>(tag, std::move(function), std::move(format)));
}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_FORMAT_HPP

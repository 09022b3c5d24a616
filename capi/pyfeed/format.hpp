// File formats, and writers.
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

// All formats, as a JSON list of {"tag", "suffixes", "writes"}.
inline std::string formats() {
    detail::check_abi();
    detail::Call call;
    char *json = nullptr;
    call.check(pf_format_list(&json, call.err()));
    return detail::take_string(json);
}

// The options of a Writer. pyfeed.h has the defaults.
class WriterOptions : public detail::Options<WriterOptions> {
public:
    // The tag of the format, for a file whose name does not determine it.
    WriterOptions &format(const std::string &tag) {
        format_ = tag;
        return *this;
    }
    // The slots of the tuples. Without it, the first tuple decides.
    WriterOptions &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // The options of the format, as a JSON object: see docs/formats.md.
    WriterOptions &options(const std::string &json) { return set("options", detail::Json{json}); }

private:
    friend class Writer;

    std::string format_;
};

// A file that is being written. Until close(), no file of that name appears, and an old one stays as it is. A
// Writer that is destroyed without close() leaves no file. It has one owner and can be moved. Any thread may
// use it; one writes at a time, and the others wait.
class Writer {
public:
    // Begins to write, in the format that the options or else the name determine.
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

    // Gives the slots names, before the first tuple. A format that stores no names ignores them. Throws
    // StateError after a tuple was written, and if the options have slots or names.
    void set_names(const std::vector<std::string> &names) const {
        std::vector<const char *> texts;
        texts.reserve(names.size());
        for (const std::string &name : names) texts.push_back(name.c_str());
        detail::Call call;
        call.check(
            pf_writer_set_names(handle(), texts.data(), static_cast<uint32_t>(texts.size()), call.err()));
    }
    // Adds a tuple of tensors, strided or not. After an error nothing more can be written. Waits for the
    // disk.
    void write(const Tensors &tensors) const {
        detail::Call call;
        call.check(pf_writer_write(handle(), tensors.data(), tensors.size(), call.err()));
    }
    // Completes the file and syncs it to the disk. Nothing can be written afterwards.
    void close() const {
        detail::Call call;
        call.check(pf_writer_close(handle(), call.err()));
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    detail::Handle handle_;
};

// Reads a file of a registered format: pushes its instances into the queue, in order. `options` is a JSON
// object. The file has ended when the function returns. An exception is a ProducerError for the consumer. A
// push that throws QueueClosed means that the reader is gone: do not catch it. Many threads call the function
// at the same time.
using FormatFunction =
    std::function<void(const std::string &path, const std::string &options, const Queue &queue)>;

// A registered format: the function that reads its files, and the threads that call it, one for each open
// file. It has one owner and can be moved. The destructor makes the open queues fail, and waits until the
// calls of the function have returned. The format stays registered, but its files can no longer be read.
class [[nodiscard]] RegisteredFormat {
public:
    RegisteredFormat(RegisteredFormat &&) noexcept = default;
    RegisteredFormat &operator=(RegisteredFormat &&) noexcept = default;

    const std::string &tag() const noexcept { return state_->tag; }

private:
    friend RegisteredFormat register_format(const std::string &, const std::vector<std::string> &,
                                            FormatFunction, const std::vector<SlotSpec> &);

    // The threads use this object. They end before it is destroyed.
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
                // One thread must stay free to wait for files: files that are read in turn would otherwise
                // wait for each other.
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
            } catch (const std::system_error &) {  // no more threads: files wait for a free one
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

// Registers a format whose files `function` reads, on threads that the result owns. `suffixes` are those of
// its files, each with its dot. `slots` are the slots of an instance if open_files is not given any; without
// `slots` open_files must be given them. Throws StateError if the tag or a suffix is taken: a format stays
// registered for good.
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

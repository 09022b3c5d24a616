// What instructions.py counts: see there. Run under callgrind with --instr-atstart=no, it has those instructions
// counted that COUNT of one operation take, once WARM of them have been done.
//
//     instructions OPERATION WARM COUNT FILE
//
// FILE holds records of 64 bytes. Both numbers are multiples of 1000.
#include <valgrind/callgrind.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <pyfeed.hpp>
#include <stdexcept>
#include <string>

namespace {

constexpr int64_t kBlock =
    1000;  // operations between two switches of the counter; the queue has room for as many
constexpr int64_t kWords = 8;  // of 8 bytes: 64 bytes

// Calls of the C functions: what an operation costs is the library's, not that of exceptions and owners.
struct Calls {
    pf_error error = PF_ERROR_INIT;
    pf_tuple tuple = PF_TUPLE_INIT;

    ~Calls() {
        pf_tuple_release(&tuple);
        pf_error_release(&error);
    }
    void check(pf_status status) const {
        if (status != PF_OK) throw std::runtime_error(error.message != nullptr ? error.message : "failed");
    }
};

// Blocks of an operation, the first of which are not counted. What is `between` them never is.
void count(
    int64_t warm, int64_t counted, const std::function<void()> &block,
    const std::function<void()> &between = [] {}) {
    for (int64_t done = 0; done < warm + counted; done += kBlock) {
        if (done >= warm) CALLGRIND_START_INSTRUMENTATION;
        block();
        if (done >= warm) CALLGRIND_STOP_INSTRUMENTATION;
        between();
    }
}

void released(void *) {}

void count_queue(const std::string &operation, int64_t warm, int64_t counted) {
    const pyfeed::Scope scope;
    const pyfeed::Queue queue =
        pyfeed::PyArrayFeedQueueHolder(scope.var("feeder"))
            .init_once({static_cast<uint64_t>(kBlock), {{{kWords}, pyfeed::DType::int64}}});
    const pf_handle handle = queue.handle();
    int64_t words[kWords] = {}, dims[] = {kWords};
    pf_tensor tensor = PF_TENSOR_INIT;
    tensor.dtype = PF_INT64;
    tensor.rank = 1;
    tensor.dims = dims;
    tensor.data = words;
    Calls calls;

    const auto push = [&] {
        for (int64_t i = 0; i < kBlock; i++)
            calls.check(pf_queue_push(handle, &tensor, 1, PF_PASS_CURRENT, nullptr, &calls.error));
    };
    const auto push_lent = [&] {
        for (int64_t i = 0; i < kBlock; i++)
            calls.check(pf_queue_push_lent(handle, &tensor, 1, PF_PASS_CURRENT, released, nullptr, nullptr,
                                           &calls.error));
    };
    const auto slot = [&] {
        for (int64_t i = 0; i < kBlock; i++) {
            pf_tuple reserved = PF_TUPLE_INIT;
            calls.check(
                pf_queue_reserve(handle, &tensor, 1, PF_PASS_CURRENT, nullptr, &reserved, &calls.error));
            calls.check(pf_queue_commit(&reserved, &calls.error));
        }
    };
    const auto pop = [&] {
        for (int64_t i = 0; i < kBlock; i++)
            calls.check(pf_queue_pop(handle, nullptr, &calls.tuple, &calls.error));
    };

    if (operation == "push") return count(warm, counted, push, pop);
    if (operation == "push_lent") return count(warm, counted, push_lent, pop);
    if (operation == "slot") return count(warm, counted, slot, pop);
    push();
    count(warm, counted, pop, push);
}

void count_reader(const std::string &operation, int64_t warm, int64_t counted, const std::string &file) {
    const pyfeed::Scope scope;
    const auto options = pyfeed::OpenFiles().format("raw").slots({{{kWords}, pyfeed::DType::int64}});
    pyfeed::Reader reader = pyfeed::create_file_reader(scope, "file", file, options);
    int64_t records = 1;  // of a tuple
    if (operation == "shuffle" || operation == "shuffle_batch") reader = reader.shuffle(kBlock);
    if (operation == "batch" || operation == "shuffle_batch") reader = reader.batch(records = 50);
    Calls calls;
    count(warm, counted, [&] {
        for (int64_t i = 0; i < kBlock; i += records)
            calls.check(pf_reader_next(reader.handle(), nullptr, &calls.tuple, &calls.error));
    });
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: instructions OPERATION WARM COUNT FILE\n");
        return 2;
    }
    const std::string operation = argv[1];
    const int64_t warm = std::atoll(argv[2]), counted = std::atoll(argv[3]);
    try {
        if (operation == "push" || operation == "push_lent" || operation == "slot" || operation == "pop") {
            count_queue(operation, warm, counted);
        } else if (operation == "next" || operation == "shuffle" || operation == "batch" ||
                   operation == "shuffle_batch") {
            count_reader(operation, warm, counted, argv[4]);
        } else {
            throw std::invalid_argument("there is no operation " + operation);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "instructions: %s\n", error.what());
        return 1;
    }
    return 0;
}

// What program_overhead.py measures: see there. Prints JSON.
//
//     program_overhead FILE TUPLES RUNS LOOPS
//
// FILE holds so many tuples of 4 KiB, as raw records.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <pyfeed_program.hpp>
#include <string>
#include <vector>

namespace {

namespace layers = pyfeed::layers;
using pyfeed::DType;
using pyfeed::layers::Var;
using pyfeed::layers::Vars;

double seconds(const std::function<void()> &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const char *name, const std::vector<double> &values, const char *behind = ", ") {
    std::printf("\"%s\": [", name);
    for (size_t i = 0; i < values.size(); i++) std::printf("%s%.9g", i > 0 ? ", " : "", values[i]);
    std::printf("]%s", behind);
}

// ---- An operator ------------------------------------------------------------------------------------

using Body = std::function<void(const Var &x, const Var &flag)>;

// A loop that counts to `loops`, with so many copies of a body.
pyfeed::Program counting(int64_t loops, int copies, const Body &body) {
    const pyfeed::Program main;
    const pyfeed::ProgramGuard guard(main, main);
    const Var count = layers::fill_constant({}, DType::int64, 0);
    const Var enough = layers::fill_constant({}, DType::int64, loops);
    const Var x = layers::fill_constant({}, DType::int64, 0);
    const Var flag = layers::fill_constant({}, DType::bool_, true);
    const Var go_on = layers::less_than(count, enough);
    layers::While(go_on, [&] {
        for (int i = 0; i < copies; i++) body(x, flag);
        layers::increment(count);
        layers::less_than(count, enough, go_on);
    });
    return main;
}

int nothing(void *, const pf_kernel_call *) { return 0; }

struct Operator {
    const char *name;
    Body body;
};

const Operator kOperators[] = {
    {"call", [](const Var &, const Var &) { layers::call("nothing", {}, Vars()); }},
    {"call, an input", [](const Var &x, const Var &) { layers::call("nothing", x, Vars()); }},
    {"call, in place", [](const Var &x, const Var &) { layers::call("nothing", x, Vars(x)); }},
    {"increment", [](const Var &x, const Var &) { layers::increment(x); }},
    {"less_than", [](const Var &x, const Var &flag) { layers::less_than(x, x, flag); }},
    {"if_else", [](const Var &, const Var &flag) { layers::IfElse(flag, [] {}); }},
};

// The loop with ten of the operator and the loop without, in turns.
void measure_operator(const pyfeed::Executor &executor, const Operator &op, int64_t loops, int runs) {
    constexpr int copies = 10;
    const pyfeed::Scope scope;
    const pyfeed::Program with = counting(loops, copies, op.body), without = counting(loops, 0, op.body);
    std::vector<double> cost, around;
    for (int run = -1; run < runs; run++) {
        const double bare = seconds([&] { executor.run(without, scope); });
        const double full = seconds([&] { executor.run(with, scope); });
        if (run < 0) continue;  // the first is to warm up
        cost.push_back((full - bare) / static_cast<double>(loops * copies));
        around.push_back(bare / static_cast<double>(loops));
    }
    std::printf("{\"operator\": \"%s\", ", op.name);
    print("seconds", cost);
    print("loop_seconds", around, "}");
}

// A run of a program that does nothing, and of one that is fed 16 bytes which are fetched.
void measure_run(const pyfeed::Executor &executor, bool feeds, int64_t loops, int runs) {
    const pyfeed::Scope scope;
    const pyfeed::Program program;
    const pyfeed::ProgramGuard guard(program, program);
    if (feeds) layers::data("x", {2}, DType::int64);
    const int64_t x[2] = {};
    std::vector<double> cost;
    for (int run = -1; run < runs; run++) {
        const double took = seconds([&] {
            for (int64_t i = 0; i < loops; i++) {
                if (feeds) {
                    executor.run(program, scope, {{"x", pyfeed::view(x, {2})}}, {"x"});
                } else {
                    executor.run(program, scope);
                }
            }
        });
        if (run >= 0) cost.push_back(took / static_cast<double>(loops));
    }
    std::printf("{\"run\": \"%s\", ", feeds ? "fed and fetched" : "empty");
    print("seconds", cost, "}");
}

// ---- Reading ----------------------------------------------------------------------------------------

constexpr int64_t kWords = 512;  // of 8 bytes: 4 KiB

// What every loop does with a tuple: look at all of it.
uint64_t sum = 0;
void consume(const pyfeed::TensorView &tensor) {
    for (const uint64_t word : tensor.values<uint64_t>()) sum += word;
}

struct Source {
    const char *name;
    std::function<pyfeed::Reader(const pyfeed::Scope &)> open;
};

// A loop of read and call: to the end of the data, which ends the run, or with has_next before each turn.
pyfeed::Program reading(const pyfeed::Reader &reader, bool asks) {
    const pyfeed::Program main;
    const pyfeed::ProgramGuard guard(main, main);
    const Var source = layers::reader(reader);
    const Var not_completed = layers::fill_constant({}, DType::bool_, true);
    layers::While(not_completed, [&] {
        const auto [words] = layers::read_file<1>(source);
        layers::call("consume", words, Vars());
        if (asks) layers::has_next(source, not_completed);
    });
    return main;
}

// The same by C++.
void read_in_cpp(const pyfeed::Reader &reader, bool asks) {
    if (asks) {
        do consume((*reader.next())[0]);
        while (reader.has_next());
    } else {
        while (const auto tuple = reader.next()) consume((*tuple)[0]);
    }
}

// The same by the C functions, each call of which gives the last tuple back.
void read_in_c(const pyfeed::Reader &reader, bool asks) {
    pyfeed::detail::Call call;
    pf_tuple tuple = PF_TUPLE_INIT;
    for (uint8_t more = 1; more;) {
        if (!call.unless(PF_END, pf_reader_next(reader.handle(), nullptr, &tuple, call.err()))) break;
        consume(pyfeed::TensorView(tuple.slots[0]));
        if (asks) call.check(pf_reader_has_next(reader.handle(), nullptr, &more, call.err()));
    }
    pf_tuple_release(&tuple);
}

// The program, C++ and C, in turns.
void measure_reading(const pyfeed::Executor &executor, const Source &source, bool asks, int64_t tuples,
                     int runs) {
    const pyfeed::Scope scope;
    const pyfeed::Reader reader = source.open(scope);
    const pyfeed::Program program = reading(reader, asks);
    struct {
        const char *name;
        std::function<void()> read;
        std::vector<double> rates;
    } loops[] = {
        {"program",
         [&] {
             try {
                 executor.run(program, scope);
             } catch (const pyfeed::EndOfData &) {
             }
         },
         {}},
        {"C++", [&] { read_in_cpp(reader, asks); }, {}},
        {"C", [&] { read_in_c(reader, asks); }, {}},
    };
    uint64_t expected = 0;
    for (int run = -1; run < runs; run++) {
        for (auto &loop : loops) {
            sum = 0;
            const double took = seconds(loop.read);
            reader.reset();
            if (expected == 0) expected = sum;
            if (sum != expected) throw std::runtime_error("the loops have not read the same");
            if (run >= 0) loop.rates.push_back(static_cast<double>(tuples) / took);  // the first warms up
        }
    }
    std::printf("{\"source\": \"%s\", \"loop\": \"%s\", \"tuples_per_second\": {", source.name,
                asks ? "has_next" : "to the end");
    for (const auto &loop : loops) print(loop.name, loop.rates, &loop == &loops[2] ? "}}" : ", ");
}

}  // namespace

int main(int argc, char **argv) try {
    if (argc != 5) {
        std::fprintf(stderr, "usage: %s FILE TUPLES RUNS LOOPS\n", argv[0]);
        return 2;
    }
    const std::string file = argv[1];
    const int64_t tuples = std::atoll(argv[2]), loops = std::atoll(argv[4]);
    const int runs = std::atoi(argv[3]);

    const std::vector<pyfeed::SlotSpec> slots = {{{kWords}, DType::uint64}};
    const auto described = pyfeed::OpenFiles().format("raw").slots(slots);
    const Source sources[] = {
        {"create_file_reader",
         [&](const pyfeed::Scope &scope) {
             return pyfeed::create_file_reader(scope, "reader", file, described);
         }},
        {"open_files",
         [&](const pyfeed::Scope &scope) { return pyfeed::open_files(scope, "reader", {file}, described); }},
    };

    pf_handle empty = 0;
    pyfeed::detail::Call call;
    call.check(pf_kernel_register("nothing", nothing, nullptr, nullptr, &empty, call.err()));
    const auto consuming =
        pyfeed::register_kernel("consume", [](pyfeed::KernelContext &context) { consume(context.in(0)); });

    const pyfeed::Executor executor;
    const char *separator = "";
    std::printf("{\"operators\": [");
    for (const Operator &op : kOperators) {
        std::printf("%s", std::exchange(separator, ",\n"));
        measure_operator(executor, op, loops, runs);
    }
    std::printf("],\n\"runs\": [");
    measure_run(executor, false, loops, runs);
    std::printf(",\n");
    measure_run(executor, true, loops, runs);
    std::printf("],\n\"reading\": [");
    separator = "";
    for (const Source &source : sources) {
        for (const bool asks : {false, true}) {
            std::printf("%s", std::exchange(separator, ",\n"));
            measure_reading(executor, source, asks, tuples, runs);
        }
    }
    std::printf("]}\n");
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}

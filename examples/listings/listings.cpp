// The three example programs from the data feeding design of PaddlePaddle Fluid. listings.py has the same programs in
// Python, and writes the same output.
//
//     listings has_next_reset|multi_pass|staging FOLDER OUT
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <pyfeed_program.hpp>
#include <string>

namespace {

namespace layers = pyfeed::layers;
using pyfeed::DType;

constexpr int64_t kPasses = 2;

// A loop that detects the end of each pass with has_next, and counts the passes itself.
void has_next_reset(const std::string &files) {
    const pyfeed::Program startup_program, main_program;
    {
        const pyfeed::ProgramGuard guard(main_program, startup_program);
        const auto multiple_reader = layers::open_files({files});
        const auto batch_reader = layers::batch(multiple_reader, 32);
        const auto double_buffer_reader = layers::double_buffer(batch_reader);

        const auto required_pass_num = layers::fill_constant({}, DType::int64, kPasses);
        const auto not_completed = layers::fill_constant({}, DType::bool_, true);
        const auto pass_count = layers::fill_constant({}, DType::int64, 0);
        layers::While(not_completed, [&] {
            const auto has_next = layers::has_next(double_buffer_reader);
            layers::IfElse(
                has_next,
                [&] {
                    const auto batch_data = layers::read_file<2>(double_buffer_reader);
                    layers::call("train", batch_data, layers::Vars());
                },
                [&] {
                    layers::reset(double_buffer_reader);
                    layers::increment(pass_count);
                    layers::less_than(pass_count, required_pass_num, not_completed);
                });
        });
    }

    const pyfeed::Executor executor;
    const pyfeed::Scope scope;
    executor.run(startup_program, scope);
    executor.run(main_program, scope);
}

// A loop over a multi_pass reader, which begins the next pass itself.
void multi_pass(const std::string &files) {
    const pyfeed::Program startup_program, main_program;
    {
        const pyfeed::ProgramGuard guard(main_program, startup_program);
        const auto multiple_reader = layers::open_files({files});
        const auto batch_reader = layers::batch(multiple_reader, 32);
        const auto multi_pass_reader = layers::multi_pass(batch_reader, kPasses);
        const auto double_buffer_reader = layers::double_buffer(multi_pass_reader);

        const auto not_completed = layers::fill_constant({}, DType::bool_, true);
        layers::While(not_completed, [&] {
            const auto batch_data = layers::read_file<2>(double_buffer_reader);
            layers::call("train", batch_data, layers::Vars());
            layers::has_next(double_buffer_reader, not_completed);
        });
    }

    const pyfeed::Executor executor;
    const pyfeed::Scope scope;
    executor.run(startup_program, scope);
    executor.run(main_program, scope);
}

// A loop that feeds and stages batches: two batches are in the staging buffer while one is used for training.
void staging(const std::string &files) {
    constexpr int buffer_size = 2;

    pyfeed::Program main_program, stage_program;
    {
        const pyfeed::ProgramGuard guard(main_program);
        const auto image = layers::data("image", {-1, 64});
        const auto label = layers::data("label", {-1}, DType::int64);

        // One more than the warm-up stages, since the main program stages a batch before it takes one out.
        const auto stage = layers::staging({image, label}, buffer_size + 1);
        stage_program = main_program.clone();

        const auto unstaged = layers::unstaging<2>(stage);
        layers::call("train", unstaged, layers::Vars());
    }

    const pyfeed::Executor executor;
    const pyfeed::Scope scope;
    const pyfeed::Reader train_reader = pyfeed::open_files(scope, "files", {files}).batch(32);

    const auto run = [&](const pyfeed::Program &program, const pyfeed::Tuple &batch) {
        executor.run(program, scope, {{"image", batch[0]}, {"label", batch[1]}});
    };

    // Warm-up: fills the staging buffer. The first pass below continues with the next batch.
    for (int i = 0; i < buffer_size; i++) run(stage_program, train_reader.next().value());

    for (int64_t pass = 0; pass < kPasses; pass++) {
        for (const pyfeed::Tuple &batch : train_reader) run(main_program, batch);
        train_reader.reset();
    }

    for (int i = 0; i < buffer_size; i++)
        executor.run(main_program, scope);  // take out the last staged batches
}

}  // namespace

int main(int argc, char **argv) try {
    const std::map<std::string, std::function<void(const std::string &)>> listings = {
        {"has_next_reset", has_next_reset}, {"multi_pass", multi_pass}, {"staging", staging}};
    const auto listing = argc == 4 ? listings.find(argv[1]) : listings.end();
    if (listing == listings.end()) {
        std::fprintf(stderr, "usage: %s has_next_reset|multi_pass|staging FOLDER OUT\n", argv[0]);
        return 2;
    }

    std::ofstream out(argv[3], std::ios::binary);
    out.exceptions(std::ios::failbit | std::ios::badbit);
    const auto train = pyfeed::register_kernel("train", [&out](pyfeed::KernelContext &call) {
        const int64_t images = call.in(1).dim(0);
        out.write(reinterpret_cast<const char *>(&images), sizeof images);
        for (size_t i = 0; i < call.num_ins(); i++) {
            const pyfeed::TensorView tensor = call.in(i);
            out.write(static_cast<const char *>(tensor.data()),
                      static_cast<std::streamsize>(tensor.nbytes()));
        }
    });
    listing->second(std::string(argv[2]) + "/train-*.recordio");
    out.close();
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}

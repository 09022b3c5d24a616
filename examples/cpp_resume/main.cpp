// Training that can be killed at any moment, in a process without Python. The training loop is a program that the
// executor of pyfeed runs. Its kernels save the weights and the position of the reader in one file, the checkpoint, and
// load it at the start. However often the process is killed and started again, the weights are those of a process that
// was never killed, to the last bit.
//
//     cpp_resume FOLDER [SEED]    goes on where FOLDER/checkpoint says, or begins; SEED decides the order of the data
//
// The first start writes the training data into the folder.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <pyfeed_program.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace layers = pyfeed::layers;
using pyfeed::DType;
using pyfeed::KernelContext;

constexpr int kFiles = 8;
constexpr int kPointsEach = 1000;
constexpr uint64_t kBatchSize = 32, kPasses = 5;
constexpr int64_t kSaveEvery = 10;  // steps

// ---- The data: two overlapping clouds of points ----

int64_t draw(std::mt19937 &random, std::array<float, 2> &x) {
    std::normal_distribution<float> noise;
    const int64_t label = random() % 2;
    for (float &v : x) v = (label == 1 ? 1.0f : -1.0f) + noise(random);
    return label;
}

std::vector<pyfeed::SlotSpec> slots() {
    return {{{2}, DType::float32, 0, "x"}, {{}, DType::int64, 0, "label"}};
}

// Writes the files that do not exist yet. A file appears when it is complete, so this can be killed, too.
std::vector<std::string> write_points(const std::string &folder) {
    std::filesystem::create_directories(folder);
    std::vector<std::string> files;
    for (int i = 0; i < kFiles; i++) {
        files.push_back(folder + "/points-" + std::to_string(i) + ".recordio");
        if (std::filesystem::exists(files.back())) continue;
        const pyfeed::Writer writer(files.back(), pyfeed::WriterOptions().slots(slots()));
        std::mt19937 random(static_cast<unsigned>(i));
        std::array<float, 2> x;
        for (int k = 0; k < kPointsEach; k++) {
            const int64_t label = draw(random, x);
            writer.write({pyfeed::view(x), pyfeed::view(&label, {})});
        }
        writer.close();
    }
    return files;
}

// ---- The model: a logistic regression of two weights and a bias ----

float probability(const float *weights, const float *x) {
    return 1 / (1 + std::exp(-(weights[0] * x[0] + weights[1] * x[1] + weights[2])));
}

// One step of gradient descent. Inputs: x, label, weights. Output: weights, in place. Attribute: rate.
void learn(KernelContext &call) {
    const float *x = call.in(0).data<float>();
    const auto labels = call.in(1).values<int64_t>();
    float *weights = call.out(0).mutable_data<float>();
    std::array<float, 3> gradient{};
    for (const int64_t label : labels) {
        const float error = probability(weights, x) - static_cast<float>(label);
        gradient[0] += error * x[0];
        gradient[1] += error * x[1];
        gradient[2] += error;
        x += 2;
    }
    const float scale = call.attribute<float>("rate") / static_cast<float>(labels.size());
    for (size_t i = 0; i < gradient.size(); i++) weights[i] -= scale * gradient[i];
}

float accuracy(const float *weights) {
    constexpr int n = 10000;
    std::mt19937 random(4711);
    std::array<float, 2> x;
    int right = 0;
    for (int i = 0; i < n; i++) {
        const int64_t label = draw(random, x);
        right += (probability(weights, x.data()) > 0.5f) == (label == 1);
    }
    return static_cast<float>(right) / n;
}

// ---- The checkpoint: the number of steps, the weights, and the state of the reader ----

struct Checkpoint {
    int64_t step;
    std::array<float, 3> weights;
    uint32_t state_bytes;  // of the text that follows
};

[[noreturn]] void fail(const std::string &path) {
    throw std::system_error(errno, std::generic_category(), path);
}

// Replaces a file, and syncs it to the disk. A process that is killed, or a machine that stops, leaves the old file or
// the new one, never a part.
void replace(const std::string &path, const std::string &bytes) {
    const std::string partial = path + ".partial";
    const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) fail(partial);
    size_t written = 0;
    while (written < bytes.size()) {
        const ssize_t n = write(file, bytes.data() + written, bytes.size() - written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        written += static_cast<size_t>(n);
    }
    const bool complete = written == bytes.size() && fsync(file) == 0;
    if (close(file) != 0 || !complete || std::rename(partial.c_str(), path.c_str()) != 0) fail(partial);
    const int folder = open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_CLOEXEC);
    if (folder < 0) fail(path);
    fsync(folder);  // so that the new name is on the disk, too
    close(folder);
}

// Inputs: weights, step, state of the reader. Attributes: file; every: how many steps there are from one to the next.
void save_checkpoint(KernelContext &call) {
    const pyfeed::TensorView state = call.in(2);
    Checkpoint head{*call.in(1).data<int64_t>(), {}, static_cast<uint32_t>(state.nbytes())};
    if (head.step % call.attribute<int64_t>("every") != 0) return;
    std::memcpy(head.weights.data(), call.in(0).data<float>(), sizeof head.weights);
    std::string bytes(reinterpret_cast<const char *>(&head), sizeof head);
    bytes.append(static_cast<const char *>(state.data()), state.nbytes());
    replace(call.attribute<std::string>("file"), bytes);
    std::printf("step %lld\n", static_cast<long long>(head.step));
    std::fflush(stdout);
}

// Inputs: weights, step. Outputs: weights and step, in place, and the state of the reader. Without a file, the state is
// empty, and the others stay as they are. Attribute: file.
void load_checkpoint(KernelContext &call) {
    const std::string path = call.attribute<std::string>("file");
    Checkpoint head{};
    std::string state;
    if (std::filesystem::exists(path)) {
        std::ifstream file(path, std::ios::binary);
        file.read(reinterpret_cast<char *>(&head), sizeof head);
        state.assign(std::istreambuf_iterator<char>(file), {});
        if (state.empty() || state.size() != head.state_bytes)
            throw std::runtime_error(path + " is not a checkpoint");
        std::memcpy(call.out(0).mutable_data<float>(), head.weights.data(), sizeof head.weights);
        *call.out(1).mutable_data<int64_t>() = head.step;
    }
    std::memcpy(call.output<uint8_t>(2, {static_cast<int64_t>(state.size())}), state.data(), state.size());
    std::printf("begin at step %lld\n", static_cast<long long>(head.step));
    std::fflush(stdout);
}

// ---- The programs ----

// Adds the operators of the training to the current programs: the readers and the weights to the startup program, and
// the loop to the main program.
void build(const std::vector<std::string> &files, uint64_t seed, const std::string &checkpoint) {
    const layers::Var points = layers::open_files(files, pyfeed::OpenFiles().slots(slots()).num_threads(2));
    const layers::Var shuffled = layers::batch(layers::shuffle(points, 2000, seed), kBatchSize);
    const layers::Var batches = layers::double_buffer(layers::multi_pass(shuffled, kPasses));
    const layers::Var weights = layers::create_global_var({3}, 0.0f, DType::float32, "weights");
    const layers::Var step = layers::create_global_var({}, 0, DType::int64, "step");

    const layers::Var state = layers::variable("state", pyfeed::Shape{-1}, DType::uint8);
    const pyfeed::Attributes file{{"file", checkpoint}};
    layers::call("load_checkpoint", {weights, step}, {weights, step, state}, file);
    layers::load_reader(state, batches);
    const layers::Var more = layers::has_next(batches);
    layers::While(more, [&] {
        const auto [x, label] = layers::read_file<2>(batches);
        layers::call("learn", {x, label, weights}, weights, {{"rate", 0.1f}});
        layers::increment(step);
        layers::save_reader(batches, state);
        layers::call("save_checkpoint", {weights, step, state}, {},
                     {{"file", checkpoint}, {"every", kSaveEvery}});
        layers::has_next(batches, more);
    });
}

}  // namespace

int main(int argc, char **argv) try {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: %s FOLDER [SEED]\n", argv[0]);
        return 2;
    }
    const std::string folder = argv[1];
    const uint64_t seed = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 1;
    const pyfeed::RegisteredKernel kernels[] = {pyfeed::register_kernel("learn", learn),
                                                pyfeed::register_kernel("save_checkpoint", save_checkpoint),
                                                pyfeed::register_kernel("load_checkpoint", load_checkpoint)};

    pyfeed::Program loop, startup;
    {
        const pyfeed::ProgramGuard guard(loop, startup);
        build(write_points(folder), seed, folder + "/checkpoint");
    }
    const pyfeed::Executor executor;
    const pyfeed::Scope scope;
    executor.run(startup, scope);
    const pyfeed::Tuple result = executor.run(loop, scope, {}, {"weights", "step"});

    const float *weights = result[0].data<float>();
    std::printf("end at step %lld\n", static_cast<long long>(*result[1].data<int64_t>()));
    std::printf("weights: %a %a %a\n", weights[0], weights[1], weights[2]);  // all bits
    std::printf("accuracy: %.2f\n", accuracy(weights));
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());  // names the operator and the line that built it
    return 1;
}

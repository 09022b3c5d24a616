// Learns to recognize handwritten digits in a process without Python. Threads of the library read, shuffle and batch
// the files of write_files.py for several passes, while the main thread trains.
//
//     train FOLDER [PASSES]
//
// The exit status is 1 if the accuracy on the test images is less than 0.95. The result depends only on the seed, not
// on the number of threads that read.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <pyfeed.hpp>
#include <random>
#include <string>

#include "network.hpp"

namespace {

constexpr float kGoal = 0.95f;
constexpr uint64_t kSeed = 1;

// Tests on all images of the files, in one batch: the test set is small.
float test_accuracy(digits::Network &network, const pyfeed::Scope &scope, const std::string &files) {
    const pyfeed::Reader all = pyfeed::open_files(scope, "test", {files}).batch(1 << 20);
    const pyfeed::Tuple tuple = all.next().value();
    return network.accuracy(digits::Batch(tuple[0], tuple[1]));
}

}  // namespace

int main(int argc, char **argv) try {
    const std::string folder = argc > 1 ? argv[1] : "";
    const long passes = argc > 2 ? std::atol(argv[2]) : 40;
    if (folder.empty() || argc > 3 || passes < 1) {
        std::fprintf(stderr, "usage: %s FOLDER [PASSES]\n", argv[0]);
        return 2;
    }

    const pyfeed::Scope scope;
    const pyfeed::Reader batches = pyfeed::open_files(scope, "train", {folder + "/train-*.recordio"})
                                       .shuffle(1000, kSeed)
                                       .batch(32)
                                       .multi_pass(static_cast<uint64_t>(passes))
                                       .double_buffer();

    const auto image = scope.var("image"), label = scope.var("label");
    const digits::Memory memory{std::mt19937(kSeed)};
    digits::Trainer network(memory.state());
    float loss = std::log(float{digits::kDigits});  // the loss of random guesses
    uint64_t seen = 0;
    for (int step = 1; pyfeed::read(scope, batches.name(), {"image", "label"}); step++) {
        const pyfeed::Tuple images = image.tensor(), labels = label.tensor();
        const digits::Batch batch(images[0], labels[0]);
        // The rate decreases so that the last batches add little noise.
        loss +=
            0.02f * (network.learn(batch, digits::kRate / (1 + 0.002f * static_cast<float>(step))) - loss);
        seen += batch.rows();
        if (step % 300 == 0) std::printf("step %5d: loss %.4f\n", step, loss);
    }
    std::printf("%llu images in %ld passes\n", static_cast<unsigned long long>(seen), passes);

    const float accuracy = test_accuracy(network, scope, folder + "/test.npz");
    std::printf("test accuracy: %.2f\n", accuracy);
    if (accuracy < kGoal) {
        std::fprintf(stderr, "expected an accuracy of at least %.2f, found %.4f\n", kGoal, accuracy);
        return 1;
    }
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());  // for a damaged file, names the place of the damage
    return 1;
}

// Trains a small network on the batches of a reader, which this file finds by its name in a scope. The producers are
// Python threads, but this code does not depend on that.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <pyfeed.hpp>
#include <random>

#include "network.hpp"

extern "C" {

// The caller may read this while the training runs. train.py declares the same struct.
struct Progress {
    uint64_t total;                    // images of the whole training, set by the caller
    std::atomic<uint64_t> images;      // used for training so far
    std::atomic<float> loss;           // moving average
    std::atomic<float> test_accuracy;  // after the training
};
static_assert(sizeof(Progress) == 24 && std::atomic<uint64_t>::is_always_lock_free);

// Trains on all batches of `reader`, then tests on the tensors in the variables `test_image` and `test_label`.
// Returns 0, or 1 and a message in `error`: an exception must not leave a C function.
int train_digits(pf_handle scope_handle, const char *reader, const char *test_image, const char *test_label,
                 uint32_t seed, Progress *progress, char *error, size_t error_size) try {
    const auto caller = pyfeed::Scope::retain(scope_handle);
    const auto scope = caller.child();  // keeps the variables of this function out of the caller's scope
    const auto image = scope.var("image"), label = scope.var("label");

    const digits::Memory memory{std::mt19937(seed)};
    digits::Trainer network(memory.state());
    float loss = std::log(float{digits::kDigits});  // the loss of random guesses
    while (pyfeed::read(scope, reader, {"image", "label"})) {
        const pyfeed::Tuple images = image.tensor(), labels = label.tensor();
        const digits::Batch batch(images[0], labels[0]);
        // The rate decreases so that the last batches add little noise.
        const float done = static_cast<float>(progress->images) / static_cast<float>(progress->total);
        loss += 0.02f * (network.learn(batch, digits::kRate * std::max(1 - done, 0.0f)) - loss);
        progress->images += batch.rows();
        progress->loss = loss;
    }
    const pyfeed::Tuple images = scope.find(test_image).tensor(), labels = scope.find(test_label).tensor();
    progress->test_accuracy = network.accuracy(digits::Batch(images[0], labels[0]));
    return 0;
} catch (const pyfeed::ProducerError &e) {
    std::snprintf(error, error_size, "%s\n\n%s", e.what(), e.traceback().c_str());
    return 1;
} catch (const std::exception &e) {
    std::snprintf(error, error_size, "%s", e.what());
    return 1;
}

}  // extern "C"

// Trains a small network on batches that somebody else pushes. All that this file knows of the producers
// is the name of a reader in a scope: that they are Python threads it neither sees nor needs.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <pyfeed.hpp>
#include <random>

#include "network.hpp"

extern "C" {

// What the caller may look at while training goes on. train.py has the same struct.
struct Progress {
    uint64_t total;                    // how many images there will be, as the caller says
    std::atomic<uint64_t> images;      // trained on so far
    std::atomic<float> loss;           // of late
    std::atomic<float> test_accuracy;  // once it is over
};
static_assert(sizeof(Progress) == 24 && std::atomic<uint64_t>::is_always_lock_free);

// Trains on all that `reader` delivers, then tests on the tensors in the variables `test_image` and
// `test_label`. 0, or 1 with a sentence in `error`: no exception leaves a C function.
int train_digits(pf_handle scope_handle, const char *reader, const char *test_image, const char *test_label,
                 uint32_t seed, Progress *progress, char *error, size_t error_size) try {
    const auto caller = pyfeed::Scope::retain(scope_handle);
    const auto scope = caller.child();  // our own variables do not get into the caller's way
    const auto image = scope.var("image"), label = scope.var("label");

    const digits::Memory memory{std::mt19937(seed)};
    digits::Trainer network(memory.state());
    float loss = std::log(float{digits::kDigits});  // that of guessing
    while (pyfeed::read(scope, reader, {"image", "label"})) {
        const pyfeed::Tuple images = image.tensor(), labels = label.tensor();
        const digits::Batch batch(images[0], labels[0]);
        // Smaller and smaller steps: what is left at the end is not the noise of the last batches.
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

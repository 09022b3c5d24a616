// Trains a perceptron on the batches of a reader, which this file finds by its name in a scope. The code does not
// know whether the batches are from files or from Python. The weights are integers, so the results are exact.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <pyfeed.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr size_t kDigits = 10;
using Weights = std::vector<int64_t>;  // a row of `features` weights for each digit

// Images and their labels, in borrowed memory.
struct Batch {
    Batch(const pyfeed::TensorView &images, const pyfeed::TensorView &labels) {
        if (images.rank() != 2 || labels.shape() != pyfeed::Shape{images.dim(0)}) {
            throw std::runtime_error("expected images (n, features) and labels (n,), found " +
                                     images.shape().to_string() + " and " + labels.shape().to_string());
        }
        features = static_cast<size_t>(images.dim(1));
        pixels = images.data<uint8_t>();
        digits = labels.values<int64_t>();
        for (const int64_t digit : digits) {
            if (digit < 0 || digit >= int64_t{kDigits}) {
                throw std::runtime_error("expected labels from 0 to 9, found " + std::to_string(digit));
            }
        }
    }
    const uint8_t *image(size_t row) const { return pixels + row * features; }

    size_t features;
    const uint8_t *pixels;
    pyfeed::Span<const int64_t> digits;
};

// Returns the digit with the highest score.
size_t recognize(const Weights &weights, const uint8_t *image, size_t features) {
    int64_t scores[kDigits] = {};
    for (size_t digit = 0; digit < kDigits; digit++) {
        for (size_t i = 0; i < features; i++) scores[digit] += weights[digit * features + i] * image[i];
    }
    return static_cast<size_t>(std::max_element(scores, scores + kDigits) - scores);
}

// Adds each image that is not recognized to the weights of its digit, and subtracts it from those of the guess.
void learn(Weights &weights, const Batch &batch) {
    if (weights.size() != kDigits * batch.features) {
        throw std::runtime_error("expected " + std::to_string(weights.size() / kDigits) +
                                 " features, found " + std::to_string(batch.features));
    }
    const Weights before = weights;
    for (size_t row = 0; row < batch.digits.size(); row++) {
        const size_t guess = recognize(before, batch.image(row), batch.features);
        const auto digit = static_cast<size_t>(batch.digits[row]);
        if (guess == digit) continue;
        for (size_t i = 0; i < batch.features; i++) {
            weights[digit * batch.features + i] += batch.image(row)[i];
            weights[guess * batch.features + i] -= batch.image(row)[i];
        }
    }
}

}  // namespace

// Trains for some passes, and stores the number of test images that are recognized after each pass in `right`. The test
// images are in the variables `test_image` and `test_label`. `total`, 10 rows of zeros, becomes the sum of the weights
// of all batches. Returns 0, or 1 and a message in `error`: an exception must not leave a C function.
extern "C" int train(pf_handle scope_handle, const char *name, uint32_t passes, int64_t *total,
                     uint32_t *right, char *error, size_t error_size) try {
    const auto scope = pyfeed::Scope::retain(scope_handle);
    const pyfeed::Reader reader = scope.find(name).reader();
    const pyfeed::Tuple test_image = scope.find("test_image").tensor(),
                        test_label = scope.find("test_label").tensor();
    const Batch test(test_image[0], test_label[0]);

    Weights weights(kDigits * test.features), sum(weights.size());
    for (uint32_t pass = 0; pass < passes; pass++) {
        if (pass > 0) reader.reset();
        for (const pyfeed::Tuple &tuple : reader) {
            learn(weights, Batch(tuple[0], tuple[1]));
            for (size_t i = 0; i < sum.size(); i++) sum[i] += weights[i];
        }
        right[pass] = 0;
        for (size_t row = 0; row < test.digits.size(); row++) {
            right[pass] +=
                recognize(sum, test.image(row), test.features) == static_cast<size_t>(test.digits[row]);
        }
    }
    std::copy(sum.begin(), sum.end(), total);
    return 0;
} catch (const std::exception &e) {
    std::snprintf(error, error_size, "%s", e.what());
    return 1;
}

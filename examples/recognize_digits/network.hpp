// A small network that recognizes handwritten digits, and the batches it learns from. Where they come from it does not
// know: executor.cpp reads what Python threads push, recognize_digits_files/train.cpp reads files.
#ifndef PYFEED_EXAMPLES_NETWORK_HPP
#define PYFEED_EXAMPLES_NETWORK_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <pyfeed.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

constexpr size_t kPixels = 64, kHidden = 128, kDigits = 10;
constexpr float kRate = 0.01f;  // to begin with

// Row after row of a batch.
using Matrix = std::vector<float>;

// What is learned, by Adam (Kingma and Ba, 2014) with its authors' constants.
struct Parameter {
    std::vector<float> value, gradient, mean, square;
    int steps = 0;

    explicit Parameter(size_t size) : value(size), gradient(size), mean(size), square(size) {}

    void step(float rate) {
        steps++;
        rate *= std::sqrt(1 - std::pow(0.999f, steps)) / (1 - std::pow(0.9f, steps));
        for (size_t i = 0; i < value.size(); i++) {
            mean[i] += 0.1f * (gradient[i] - mean[i]);
            square[i] += 0.001f * (gradient[i] * gradient[i] - square[i]);
            value[i] -= rate * mean[i] / (std::sqrt(square[i]) + 1e-8f);
            gradient[i] = 0;
        }
    }
};

// y = x W + b. The sizes are constants and the inner loops run along a row of W, so that compilers vectorise
// them.
template <size_t In, size_t Out>
class Dense {
public:
    explicit Dense(std::mt19937 &random) : weight_(In * Out), bias_(Out) {
        std::normal_distribution<float> normal(0, std::sqrt(2.0f / In));
        for (float &w : weight_.value) w = normal(random);
    }

    void forward(const float *x, size_t rows, Matrix &y) const {
        y.resize(rows * Out);
        for (size_t row = 0; row < rows; row++, x += In) {
            std::array<float, Out> sum;
            std::copy_n(bias_.value.data(), Out, sum.data());
            for (size_t i = 0; i < In; i++) {
                const float *w = &weight_.value[i * Out];
                for (size_t j = 0; j < Out; j++) sum[j] += x[i] * w[j];
            }
            std::copy_n(sum.data(), Out, &y[row * Out]);
        }
    }

    // Adds to the gradients of W and b, given x and the loss's gradient in y.
    void backward(const float *x, size_t rows, const Matrix &dy) {
        for (size_t row = 0; row < rows; row++, x += In) {
            const float *d = &dy[row * Out];
            for (size_t i = 0; i < In; i++) {
                float *dw = &weight_.gradient[i * Out];
                for (size_t j = 0; j < Out; j++) dw[j] += x[i] * d[j];
            }
            for (size_t j = 0; j < Out; j++) bias_.gradient[j] += d[j];
        }
    }

    // The loss's gradient in x, given that in y.
    void input_gradient(size_t rows, const Matrix &dy, Matrix &dx) const {
        dx.resize(rows * In);
        for (size_t row = 0; row < rows; row++) {
            const float *d = &dy[row * Out];
            for (size_t i = 0; i < In; i++) {
                const float *w = &weight_.value[i * Out];
                float sum = 0;
                for (size_t j = 0; j < Out; j++) sum += w[j] * d[j];
                dx[row * In + i] = sum;
            }
        }
    }

    void step(float rate) {
        weight_.step(rate);
        bias_.step(rate);
    }

private:
    Parameter weight_, bias_;
};

// Images and their labels, as two variables of the scope hold them: on loan for as long as this lives.
class Batch {
public:
    Batch(const pyfeed::Variable &images, const pyfeed::Variable &labels)
        : images_(images.tensor()), labels_(labels.tensor()) {
        const pyfeed::TensorView image = images_[0], label = labels_[0];
        if (image.rank() != 2 || image.dim(0) == 0 || image.dim(1) != int64_t{kPixels} ||
            label.dims() != pyfeed::Dims{image.dim(0)}) {
            throw std::runtime_error("expected images (n, 64) and labels (n,), n > 0, found " +
                                     image.dims().to_string() + " and " + label.dims().to_string());
        }
        pixels = image.data<float>();
        digits = label.values<int64_t>();
        for (const int64_t digit : digits) {
            if (digit < 0 || digit >= int64_t{kDigits}) {
                throw std::runtime_error("expected labels from 0 to 9, found " + std::to_string(digit));
            }
        }
    }

    size_t rows() const { return digits.size(); }

    const float *pixels;
    pyfeed::Span<const int64_t> digits;

private:
    pyfeed::Tuple images_, labels_;
};

// 64 -> 128 -> 10, with a ReLU between and a softmax at the end.
class Network {
public:
    explicit Network(std::mt19937 random) : lower_(random), upper_(random) {}

    // One step of training. The mean loss before it.
    float learn(const Batch &batch, float rate) {
        forward(batch);

        // Logits become the gradient of the mean cross-entropy in them: probability minus truth.
        float loss = 0;
        const float share = 1.0f / static_cast<float>(batch.rows());
        for (size_t row = 0; row < batch.rows(); row++) {
            float *logit = &logits_[row * kDigits];
            const auto digit = static_cast<size_t>(batch.digits[row]);
            const float top = *std::max_element(logit, logit + kDigits);
            float sum = 0;
            for (size_t j = 0; j < kDigits; j++) sum += std::exp(logit[j] - top);
            loss += std::log(sum) - (logit[digit] - top);
            for (size_t j = 0; j < kDigits; j++) logit[j] = share * std::exp(logit[j] - top) / sum;
            logit[digit] -= share;
        }

        upper_.backward(hidden_.data(), batch.rows(), logits_);
        upper_.input_gradient(batch.rows(), logits_, hidden_gradient_);
        for (size_t i = 0; i < hidden_.size(); i++) {
            if (hidden_[i] == 0) hidden_gradient_[i] = 0;
        }
        lower_.backward(batch.pixels, batch.rows(), hidden_gradient_);

        lower_.step(rate);
        upper_.step(rate);
        return loss * share;
    }

    // The share of images that are recognized.
    float accuracy(const Batch &batch) {
        forward(batch);
        size_t right = 0;
        for (size_t row = 0; row < batch.rows(); row++) {
            const float *logit = &logits_[row * kDigits];
            const auto guess = std::max_element(logit, logit + kDigits) - logit;
            if (guess == batch.digits[row]) right++;
        }
        return static_cast<float>(right) / static_cast<float>(batch.rows());
    }

private:
    void forward(const Batch &batch) {
        lower_.forward(batch.pixels, batch.rows(), hidden_);
        for (float &h : hidden_) h = std::max(h, 0.0f);
        upper_.forward(hidden_.data(), batch.rows(), logits_);
    }

    Dense<kPixels, kHidden> lower_;
    Dense<kHidden, kDigits> upper_;
    Matrix hidden_, hidden_gradient_, logits_;
};

}  // namespace digits

#endif

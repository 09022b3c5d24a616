// A small network that recognizes handwritten digits. It does not depend on the source of its batches: executor.cpp
// reads what Python threads push, and recognize_digits_files/train.cpp reads files. It does not own the memory of its
// parameters either: in recognize_digits_program/kernels.cpp they are tensors of a program.
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
constexpr float kRate = 0.01f;  // the initial learning rate

// A matrix in row-major order, with one row for each image of a batch.
using Matrix = std::vector<float>;

// The values of a parameter, and the moments of its gradient that Adam (Kingma and Ba, 2014) keeps. Borrowed memory.
struct Parameter {
    float *value, *mean, *square;
};

// Updates a parameter by Adam, with the constants of its authors and the learning rate of this step.
inline void adam(const Parameter &parameter, const Matrix &gradient, float rate) {
    const auto [value, mean, square] = parameter;
    for (size_t i = 0; i < gradient.size(); i++) {
        mean[i] += 0.1f * (gradient[i] - mean[i]);
        square[i] += 0.001f * (gradient[i] * gradient[i] - square[i]);
        value[i] -= rate * mean[i] / (std::sqrt(square[i]) + 1e-8f);
    }
}

// A dense layer: y = x W + b. The sizes are constants and the inner loops run along a row of W, so that compilers
// vectorise them.
template <size_t In, size_t Out>
class Dense {
public:
    Dense(const float *weight, const float *bias) : weight_(weight), bias_(bias) {}

    // Initializes W at random. The caller sets b to zeros.
    static void begin(float *weight, std::mt19937 &random) {
        std::normal_distribution<float> normal(0, std::sqrt(2.0f / In));
        std::generate_n(weight, In * Out, [&] { return normal(random); });
    }

    void forward(const float *x, size_t rows, Matrix &y) const {
        y.resize(rows * Out);
        for (size_t row = 0; row < rows; row++, x += In) {
            std::array<float, Out> sum;
            std::copy_n(bias_, Out, sum.data());
            for (size_t i = 0; i < In; i++) {
                const float *w = &weight_[i * Out];
                for (size_t j = 0; j < Out; j++) sum[j] += x[i] * w[j];
            }
            std::copy_n(sum.data(), Out, &y[row * Out]);
        }
    }

    // Computes the gradients of the loss with respect to W and b from x and the gradient with respect to y.
    static void gradients(const float *x, size_t rows, const Matrix &dy, Matrix &weight, Matrix &bias) {
        weight.assign(In * Out, 0);
        bias.assign(Out, 0);
        for (size_t row = 0; row < rows; row++, x += In) {
            const float *d = &dy[row * Out];
            for (size_t i = 0; i < In; i++) {
                float *dw = &weight[i * Out];
                for (size_t j = 0; j < Out; j++) dw[j] += x[i] * d[j];
            }
            for (size_t j = 0; j < Out; j++) bias[j] += d[j];
        }
    }

    // Computes the gradient of the loss with respect to x from the gradient with respect to y.
    void input_gradient(size_t rows, const Matrix &dy, Matrix &dx) const {
        dx.resize(rows * In);
        for (size_t row = 0; row < rows; row++) {
            const float *d = &dy[row * Out];
            for (size_t i = 0; i < In; i++) {
                const float *w = &weight_[i * Out];
                float sum = 0;
                for (size_t j = 0; j < Out; j++) sum += w[j] * d[j];
                dx[row * In + i] = sum;
            }
        }
    }

private:
    const float *weight_, *bias_;
};

// Images and their labels, in borrowed memory.
class Batch {
public:
    Batch(const pyfeed::TensorView &image, const pyfeed::TensorView &label) {
        if (image.rank() != 2 || image.dim(0) == 0 || image.dim(1) != int64_t{kPixels} ||
            label.shape() != pyfeed::Shape{image.dim(0)}) {
            throw std::runtime_error("expected images (n, 64) and labels (n,), n > 0, found " +
                                     image.shape().to_string() + " and " + label.shape().to_string());
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
};

// A network of two dense layers, 64 -> 128 -> 10, with a ReLU between them and a softmax at the end.
class Network {
public:
    // The number of elements of each parameter: W and b of the lower layer, W and b of the upper layer.
    static constexpr std::array<size_t, 4> sizes = {kPixels * kHidden, kHidden, kHidden * kDigits, kDigits};

    // The network borrows the values of its parameters.
    explicit Network(const std::array<const float *, sizes.size()> &values)
        : lower_(values[0], values[1]), upper_(values[2], values[3]) {}

    // Returns the share of images whose digit is recognized.
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

protected:
    using Lower = Dense<kPixels, kHidden>;
    using Upper = Dense<kHidden, kDigits>;

    void forward(const Batch &batch) {
        lower_.forward(batch.pixels, batch.rows(), hidden_);
        for (float &h : hidden_) h = std::max(h, 0.0f);
        upper_.forward(hidden_.data(), batch.rows(), logits_);
    }

    Lower lower_;
    Upper upper_;
    Matrix hidden_, logits_;
};

// A network that can be trained.
class Trainer : public Network {
public:
    // The training state, in borrowed memory.
    struct State {
        std::array<Parameter, sizes.size()> parameters;
        int64_t *steps;  // number of steps so far

        // Initializes the weights. All memory of the state must be zeros before.
        void begin(std::mt19937 random) const {
            Lower::begin(parameters[0].value, random);
            Upper::begin(parameters[2].value, random);
        }
    };

    explicit Trainer(const State &state)
        : Network({state.parameters[0].value, state.parameters[1].value, state.parameters[2].value,
                   state.parameters[3].value}),
          state_(state) {}

    // Makes one training step, and returns the mean loss before the step.
    float learn(const Batch &batch, float rate) {
        forward(batch);

        // Replaces the logits by the gradient of the mean cross-entropy: predicted probability minus true probability.
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

        Upper::gradients(hidden_.data(), batch.rows(), logits_, gradients_[2], gradients_[3]);
        upper_.input_gradient(batch.rows(), logits_, hidden_gradient_);
        for (size_t i = 0; i < hidden_.size(); i++) {
            if (hidden_[i] == 0) hidden_gradient_[i] = 0;
        }
        Lower::gradients(batch.pixels, batch.rows(), hidden_gradient_, gradients_[0], gradients_[1]);

        const auto step = static_cast<float>(++*state_.steps);
        rate *= std::sqrt(1 - std::pow(0.999f, step)) / (1 - std::pow(0.9f, step));
        for (size_t i = 0; i < sizes.size(); i++) adam(state_.parameters[i], gradients_[i], rate);
        return loss * share;
    }

private:
    State state_;
    std::array<Matrix, sizes.size()> gradients_;
    Matrix hidden_gradient_;
};

// Owns the memory of a training state.
class Memory {
public:
    explicit Memory(std::mt19937 random) {
        for (size_t i = 0; i < Network::sizes.size(); i++) {
            for (Matrix &numbers : numbers_[i]) numbers.resize(Network::sizes[i]);
            auto &[value, mean, square] = numbers_[i];
            state_.parameters[i] = {value.data(), mean.data(), square.data()};
        }
        state_.steps = &steps_;
        state_.begin(random);
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    const Trainer::State &state() const { return state_; }

private:
    std::array<std::array<Matrix, 3>, Network::sizes.size()> numbers_;
    int64_t steps_ = 0;
    Trainer::State state_;
};

}  // namespace digits

#endif

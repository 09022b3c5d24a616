// A small network that recognizes handwritten digits, and the batches it learns from. Where they come from it does not
// know: executor.cpp reads what Python threads push, recognize_digits_files/train.cpp reads files. Nor does it know whose
// memory it learns in: the tensors of a program, in recognize_digits_program/kernels.cpp.
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

// What is learned, and what Adam (Kingma and Ba, 2014) keeps of its gradients. The memory is somebody else's.
struct Parameter {
    float *value, *mean, *square;
};

// By Adam with its authors' constants; `rate` is that of the step.
inline void adam(const Parameter &parameter, const Matrix &gradient, float rate) {
    const auto [value, mean, square] = parameter;
    for (size_t i = 0; i < gradient.size(); i++) {
        mean[i] += 0.1f * (gradient[i] - mean[i]);
        square[i] += 0.001f * (gradient[i] * gradient[i] - square[i]);
        value[i] -= rate * mean[i] / (std::sqrt(square[i]) + 1e-8f);
    }
}

// y = x W + b. The sizes are constants and the inner loops run along a row of W, so that compilers vectorise
// them.
template <size_t In, size_t Out>
class Dense {
public:
    Dense(const float *weight, const float *bias) : weight_(weight), bias_(bias) {}

    // W before anything is learned; b begins as zeros.
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

    // The loss's gradients in W and b, given x and that in y.
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

    // The loss's gradient in x, given that in y.
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

// Images and their labels. They are borrowed.
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

// 64 -> 128 -> 10, with a ReLU between and a softmax at the end.
class Network {
public:
    // How many numbers there are of W and b of the lower layer, and of the upper.
    static constexpr std::array<size_t, 4> sizes = {kPixels * kHidden, kHidden, kHidden * kDigits, kDigits};

    // Of numbers that are borrowed.
    explicit Network(const std::array<const float *, sizes.size()> &values)
        : lower_(values[0], values[1]), upper_(values[2], values[3]) {}

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

// A network that learns.
class Trainer : public Network {
public:
    // What it has learned, and where. The memory is somebody else's.
    struct State {
        std::array<Parameter, sizes.size()> parameters;
        int64_t *steps;  // so far

        // From all zeros.
        void begin(std::mt19937 random) const {
            Lower::begin(parameters[0].value, random);
            Upper::begin(parameters[2].value, random);
        }
    };

    explicit Trainer(const State &state)
        : Network({state.parameters[0].value, state.parameters[1].value, state.parameters[2].value,
                   state.parameters[3].value}),
          state_(state) {}

    // One step. The mean loss before it.
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

// Memory for what a Trainer learns.
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

// The three kernels of the programs that build_program.py builds, in a shared object that train.cpp loads. Operators of
// the library do the rest of the training, from reading the files to running the loop.
#include <algorithm>
#include <array>
#include <pyfeed_program.hpp>
#include <random>
#include <stdexcept>
#include <string>

#include "network.hpp"

namespace {

using digits::Network;
using digits::Trainer;
using pyfeed::KernelContext;

// The number of tensors in the training state: the values and the two Adam moments of each parameter, followed by the
// number of steps (an int64).
constexpr size_t kState = 3 * Network::sizes.size() + 1;

// Returns the tensor if it has the shape of parameter i, and throws otherwise.
const pyfeed::TensorView &checked(size_t i, const pyfeed::TensorView &tensor) {
    const pyfeed::Shape expected{Network::sizes[i]};
    if (tensor.shape() != expected) {
        throw std::runtime_error("parameter " + std::to_string(i) + ": expected " + expected.to_string() +
                                 ", found " + tensor.shape().to_string());
    }
    return tensor;
}

// The outputs from `first` on, as a training state, which the kernel writes in place.
Trainer::State state_of(const KernelContext &call, size_t first) {
    Trainer::State state;
    for (size_t i = 0; i < Network::sizes.size(); i++) {
        digits::Parameter &parameter = state.parameters[i];
        for (float **part : {&parameter.value, &parameter.mean, &parameter.square}) {
            *part = checked(i, call.out(first++)).mutable_data<float>();
        }
    }
    state.steps = call.out(first).mutable_data<int64_t>();
    return state;
}

void expect(const KernelContext &call, size_t ins, size_t outs) {
    if (call.num_ins() != ins || call.num_outs() != outs) {
        throw std::runtime_error("expected " + std::to_string(ins) + " inputs and " + std::to_string(outs) +
                                 " outputs, found " + std::to_string(call.num_ins()) + " and " +
                                 std::to_string(call.num_outs()));
    }
}

// Outputs: state. Attribute: seed.
void init(KernelContext &call) {
    expect(call, 0, kState);
    size_t out = 0;
    for (const size_t size : Network::sizes)
        for (int part = 0; part < 3; part++) std::fill_n(call.output<float>(out++, {size}), size, 0.0f);
    *call.output<int64_t>(out, {}) = 0;
    state_of(call, 0).begin(std::mt19937(call.attribute<uint32_t>("seed")));
}

// One training step. Inputs: image, label, loss, state. Outputs: loss, state. The loss is a moving average over about
// fifty steps. Attributes: rate, and decay, which reduces the rate so that the last batches add little noise.
void learn(KernelContext &call) {
    expect(call, 3 + kState, 1 + kState);
    const Trainer::State state = state_of(call, 1);
    const float steps = static_cast<float>(*state.steps);
    const float rate = call.attribute<float>("rate") / (1 + call.attribute<float>("decay") * steps);
    float &loss = *call.out(0).mutable_data<float>();
    loss += 0.02f * (Trainer(state).learn(digits::Batch(call.in(0), call.in(1)), rate) - loss);
}

// Inputs: image, label and the values of all parameters. Output: accuracy.
void accuracy(KernelContext &call) {
    constexpr size_t parameters = Network::sizes.size();
    expect(call, 2 + parameters, 1);
    std::array<const float *, parameters> values;
    for (size_t i = 0; i < parameters; i++) values[i] = checked(i, call.in(2 + i)).data<float>();
    *call.output<float>(0, {}) = Network(values).accuracy(digits::Batch(call.in(0), call.in(1)));
}

}  // namespace

PYFEED_KERNELS(kernels) {
    kernels.add("digits_init", init);
    kernels.add("digits_learn", learn);
    kernels.add("digits_accuracy", accuracy);
}

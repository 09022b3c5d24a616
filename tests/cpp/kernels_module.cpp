// A shared object with kernels, for load_kernels. It is compiled several times, each time with other names.
#include <pyfeed_program.hpp>

PYFEED_KERNELS(registry) {
    registry.add(PYFEED_TEST_MODULE "_double", [](pyfeed::KernelContext &call) {
        const pyfeed::TensorView in = call.in(0);
        int64_t *out = call.output<int64_t>(0, in.shape());
        for (const int64_t value : in.values<int64_t>()) *out++ = 2 * value;
    });
    registry.add(PYFEED_TEST_MODULE "_second", [](pyfeed::KernelContext &) {});
#if defined(PYFEED_TEST_THROWING)
    throw std::runtime_error("there is no third one");
#endif
}

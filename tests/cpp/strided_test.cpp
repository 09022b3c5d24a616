// A push gathers strided tensors. The result is compared with that of a simple loop.
#include <algorithm>
#include <numeric>
#include <random>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// Copies element by element.
std::vector<uint8_t> reference(const TensorView &tensor) {
    const size_t size = dtype_size(tensor.dtype());
    const Shape dims = tensor.shape(), strides = *tensor.strides();
    const int64_t n = tensor.numel();
    std::vector<uint8_t> out(static_cast<size_t>(n) * size);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, offset = 0;
        for (size_t d = dims.rank(); d-- > 0;) {
            offset += left % dims[d] * strides[d];
            left /= dims[d];
        }
        std::memcpy(&out[static_cast<size_t>(i) * size], static_cast<const char *>(tensor.data()) + offset,
                    size);
    }
    return out;
}

class Strided : public Feed {
protected:
    template <class T>
    std::vector<T> through(const TensorView &tensor) {
        std::vector<int64_t> any(tensor.rank(), -1);
        const Queue queue = make_queue({1, {{Shape(any), tensor.dtype()}}});
        queue.push({tensor});
        const auto tuple = queue.pop();
        EXPECT_EQ(tensor.shape(), tuple->at(0).shape());
        EXPECT_FALSE(tuple->at(0).strides());
        const std::vector<T> got = values<T>(tuple->at(0));
        const std::vector<uint8_t> want = reference(tensor);
        EXPECT_EQ(want.size(), got.size() * sizeof(T));
        EXPECT_EQ(0, std::memcmp(want.data(), got.data(), want.size()));
        scope.erase("feeder");
        return got;
    }

    Numbers n = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
};

TEST_F(Strided, Transposed) {
    EXPECT_EQ((Numbers{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}),
              through<int64_t>(view(n.data(), {4, 3}).with_strides({8, 32})));
}

TEST_F(Strided, Backwards) {
    EXPECT_EQ((Numbers{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}),
              through<int64_t>(view(n.data() + 11, {12}).with_strides({-8})));
    EXPECT_EQ((Numbers{8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3}),
              through<int64_t>(view(n.data() + 8, {3, 4}).with_strides({-32, 8})));
    EXPECT_EQ((Numbers{3, 2, 1, 0, 7, 6, 5, 4}),
              through<int64_t>(view(n.data() + 3, {2, 4}).with_strides({32, -8})));
}

TEST_F(Strided, Repeated) {
    EXPECT_EQ((Numbers{5, 5, 5}), through<int64_t>(view(n.data() + 5, {3}).with_strides({0})));
    EXPECT_EQ((Numbers{0, 1, 0, 1, 0, 1}), through<int64_t>(view(n.data(), {3, 2}).with_strides({0, 8})));
    EXPECT_EQ((Numbers{0, 0, 0, 1, 1, 1}), through<int64_t>(view(n.data(), {2, 3}).with_strides({8, 0})));
    EXPECT_EQ((Numbers{7, 7, 7, 7}), through<int64_t>(view(n.data() + 7, {2, 2}).with_strides({0, 0})));
}

TEST_F(Strided, PartOfALargerOne) {
    EXPECT_EQ((Numbers{5, 6, 9, 10}), through<int64_t>(view(n.data() + 5, {2, 2}).with_strides({32, 8})));
    EXPECT_EQ((Numbers{0, 3, 6, 9}), through<int64_t>(view(n.data(), {4}).with_strides({24})));
    EXPECT_EQ((Numbers{1, 3, 9, 11}), through<int64_t>(view(n.data() + 1, {2, 2}).with_strides({64, 16})));
}

TEST_F(Strided, Overlapping) {  // a sliding window
    EXPECT_EQ((Numbers{0, 1, 2, 1, 2, 3, 2, 3, 4}),
              through<int64_t>(view(n.data(), {3, 3}).with_strides({8, 8})));
}

TEST_F(Strided, SingleDimensionsMayHaveAnyStride) {
    EXPECT_EQ((Numbers{0, 1, 2}), through<int64_t>(view(n.data(), {1, 3, 1}).with_strides({-999, 8, 12345})));
}

TEST_F(Strided, UnalignedElements) {
    std::vector<char> bytes(100);
    std::iota(bytes.begin(), bytes.end(), static_cast<char>(0));
    through<double>(TensorView(DType::float64, {4}, bytes.data() + 1).with_strides({13}));
    through<int16_t>(TensorView(DType::int16, {3, 4}, bytes.data() + 3).with_strides({1, 7}));
}

TEST_F(Strided, Empty) {
    EXPECT_EQ((Numbers{}), through<int64_t>(view(n.data(), {0, 3}).with_strides({-8, 0})));
    EXPECT_EQ((Numbers{}), through<int64_t>(TensorView(DType::int64, {3, 0}).with_strides({1, 1})));
}

TEST_F(Strided, StridesOfWhatIsContiguous) {
    EXPECT_EQ(n, through<int64_t>(view(n, {3, 4}).with_strides({32, 8})));
    EXPECT_EQ((Numbers{3}), through<int64_t>(view(n.data() + 3, {}).with_strides({})));
}

// Random layouts, with elements of all sizes.
TEST_F(Strided, Random) {
    std::mt19937 random(20240229);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    const DType dtypes[] = {DType::int8, DType::float16, DType::float32, DType::int64, DType::complex128};
    std::vector<uint8_t> bytes(1 << 16);
    for (uint8_t &b : bytes) b = static_cast<uint8_t>(random());

    for (const DType dtype : dtypes) {
        const auto size = static_cast<int64_t>(dtype_size(dtype));
        for (size_t rank = 1; rank <= 5; rank++) {
            const Queue queue = make_queue({1, {{Shape(std::vector<int64_t>(rank, -1)), dtype}}});
            for (int round = 0; round < 60; round++) {
                std::vector<int64_t> dims(rank), strides(rank);
                std::vector<size_t> order(rank);
                std::iota(order.begin(), order.end(), 0u);
                std::shuffle(order.begin(), order.end(), random);
                int64_t step = size, low = 0, high = 0;
                for (const size_t d : order) {
                    dims[d] = 1 + below(5);
                    strides[d] = step;
                    step *= dims[d];
                    switch (below(6)) {
                        case 0:
                            strides[d] = 0;
                            break;
                        case 1:
                            strides[d] = -strides[d];
                            break;
                        case 2:
                            step += size * below(3);  // a gap, as in a part of a larger tensor
                            break;
                        case 3:
                            strides[d] += below(3);  // may make the elements unaligned
                            break;
                    }
                    const int64_t reach = strides[d] * (dims[d] - 1);
                    (reach < 0 ? low : high) += reach;
                }
                ASSERT_LT(high - low + size, static_cast<int64_t>(bytes.size()) - 8);
                TensorView tensor(dtype, Shape(dims), bytes.data() + below(8) - low);
                tensor.with_strides(Shape(strides));
                queue.push({tensor});
                const auto tuple = queue.pop();
                const std::vector<uint8_t> want = reference(tensor);
                ASSERT_EQ(want.size(), tuple->at(0).nbytes());
                ASSERT_EQ(0, std::memcmp(want.data(), tuple->at(0).data(), want.size()))
                    << dtype_name(dtype) << " " << Shape(dims).to_string() << " strides "
                    << Shape(strides).to_string();
            }
            scope.erase("feeder");
        }
    }
}

TEST_F(Strided, Large) {
    constexpr int64_t rows = 700, columns = 900;
    std::vector<int32_t> values_in(rows * columns);
    std::iota(values_in.begin(), values_in.end(), 0);
    through<int32_t>(view(values_in.data(), {columns, rows}).with_strides({4, columns * 4}));
    through<int32_t>(view(values_in.data() + 10, {rows, columns - 20}).with_strides({columns * 4, 4}));
}

// Setting a variable gathers in the same way.
TEST_F(Strided, IntoAVariable) {
    const Variable variable = scope.var("x");
    variable.set(view(n.data() + 11, {2, 3}).with_strides({-16, -8}));
    EXPECT_EQ((Numbers{11, 10, 9, 9, 8, 7}), values<int64_t>(variable.tensor().at(0)));
}

}  // namespace

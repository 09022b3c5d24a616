// Tensors that are exported to other libraries, and imported from them, by DLPack.
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;

namespace {

template <class Managed>
class DLPackTest : public Feed {
protected:
    // A tensor of another library, which counts its deletions.
    struct Foreign {
        Managed managed{};
        int64_t shape[2] = {2, 3};
        int64_t strides[2] = {3, 1};
        Floats values = {1, 2, 3, 4, 5, 6};
        int deleted = 0;

        Foreign() {
            managed.dl_tensor.data = values.data();
            managed.dl_tensor.device = {dlpack::kCPU, 0};
            managed.dl_tensor.ndim = 2;
            managed.dl_tensor.dtype = {dlpack::kFloat, 32, 1};
            managed.dl_tensor.shape = shape;
            managed.dl_tensor.strides = strides;
            managed.manager_ctx = this;
            managed.deleter = [](Managed *self) { static_cast<Foreign *>(self->manager_ctx)->deleted++; };
            if constexpr (detail::is_versioned<Managed>) managed.version = {1, 0};
        }
    };
};

using Both = ::testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
struct BothNames {
    template <class T>
    static std::string GetName(int) {
        return detail::is_versioned<T> ? "Versioned" : "Unversioned";
    }
};
TYPED_TEST_SUITE(DLPackTest, Both, BothNames);

TYPED_TEST(DLPackTest, Export) {
    const Queue queue = this->make_queue({1, {{{-1, 3}, DType::float32}, {{}, DType::complex128}}});
    const Floats x = {1, 2, 3, 4, 5, 6};
    const std::complex<double> c(1, 2);
    queue.push({view(x, {2, 3}), view(&c, {})});
    auto tuple = std::make_shared<const Tuple>(std::move(*queue.pop()));
    const void *data = tuple->at(0).data();

    TypeParam *first = to_dlpack<TypeParam>(tuple, 0), *second = to_dlpack<TypeParam>(tuple, 1);
    tuple.reset();
    EXPECT_EQ(data, first->dl_tensor.data);
    EXPECT_EQ(dlpack::kCPU, first->dl_tensor.device.device_type);
    EXPECT_EQ(0, first->dl_tensor.device.device_id);
    EXPECT_EQ(2, first->dl_tensor.ndim);
    EXPECT_EQ(dlpack::kFloat, first->dl_tensor.dtype.code);
    EXPECT_EQ(32, first->dl_tensor.dtype.bits);
    EXPECT_EQ(1, first->dl_tensor.dtype.lanes);
    EXPECT_EQ(2, first->dl_tensor.shape[0]);
    EXPECT_EQ(3, first->dl_tensor.shape[1]);
    EXPECT_EQ(3, first->dl_tensor.strides[0]);  // in elements
    EXPECT_EQ(1, first->dl_tensor.strides[1]);
    EXPECT_EQ(0u, first->dl_tensor.byte_offset);
    if constexpr (detail::is_versioned<TypeParam>) {
        EXPECT_EQ(1u, first->version.major);
        EXPECT_EQ(0u, first->flags);
    }
    EXPECT_EQ(0, second->dl_tensor.ndim);
    EXPECT_EQ(dlpack::kComplex, second->dl_tensor.dtype.code);
    EXPECT_EQ(128, second->dl_tensor.dtype.bits);

    // The tuple is released with the last of the exported tensors, in any order.
    EXPECT_EQ(1u, memory_stats().tuples_on_loan);
    first->deleter(first);
    EXPECT_EQ(1u, memory_stats().tuples_on_loan);
    EXPECT_EQ(c, *static_cast<std::complex<double> *>(second->dl_tensor.data));
    second->deleter(second);
    EXPECT_EQ(0u, memory_stats().tuples_on_loan);
}

TYPED_TEST(DLPackTest, ExportOfATupleThatIsNotKept) {
    const Queue queue = this->numbers(1);
    push_number(queue, 9);
    TypeParam *managed = to_dlpack<TypeParam>(std::move(*queue.pop()), 0);
    EXPECT_EQ(9, *static_cast<int64_t *>(managed->dl_tensor.data));
    EXPECT_EQ(1u, memory_stats().tuples_on_loan);
    managed->deleter(managed);
    EXPECT_EQ(0u, memory_stats().tuples_on_loan);
}

TYPED_TEST(DLPackTest, ExportRefused) {
    const Queue queue = this->numbers(1);
    push_number(queue, 9);
    const auto tuple = std::make_shared<const Tuple>(std::move(*queue.pop()));
    EXPECT_ERROR(InvalidArgument, -1, to_dlpack<TypeParam>(tuple, 1), "slot 1", "has 1");
    EXPECT_ERROR(InvalidArgument, -1, to_dlpack<TypeParam>(std::shared_ptr<const Tuple>(), 0), "tuple");
    EXPECT_EQ(1, tuple.use_count());
}

TYPED_TEST(DLPackTest, ExportOfLentMemory) {
    const Queue queue = this->numbers(1);
    const int64_t n = 9;
    bool released = false;
    queue.push_lent({view(&n, {1})}, [&] { released = true; });
    if constexpr (detail::is_versioned<TypeParam>) {
        TypeParam *managed = to_dlpack<TypeParam>(std::move(*queue.pop()), 0);
        EXPECT_EQ(dlpack::kReadOnly, managed->flags);
        EXPECT_EQ(&n, managed->dl_tensor.data);
        EXPECT_FALSE(released);
        managed->deleter(managed);
    } else {
        EXPECT_ERROR(StateError, 0, to_dlpack<TypeParam>(std::move(*queue.pop()), 0), "read-only");
    }
    EXPECT_TRUE(released);
}

TYPED_TEST(DLPackTest, EveryDTypeThereAndBack) {
    for (pf_dtype d = PF_BOOL; d <= PF_COMPLEX128; d++) {
        const auto dtype = DType(d);
        SCOPED_TRACE(dtype_name(dtype));
        const std::string name = "feeder" + std::to_string(d);
        const Queue queue = this->make_queue({1, {{{2}, dtype}}}, name);
        std::vector<uint8_t> bytes(2 * dtype_size(dtype));
        queue.push(TensorView(dtype, {2}, bytes.data()));
        const DLPackTensor back = from_dlpack(to_dlpack<TypeParam>(std::move(*queue.pop()), 0));
        EXPECT_EQ(dtype, back.view().dtype());
        EXPECT_EQ((Shape{2}), back.view().shape());
        EXPECT_EQ(bytes.size(), back.view().nbytes());
        this->scope.erase(name);
    }
}

TYPED_TEST(DLPackTest, Import) {
    typename TestFixture::Foreign foreign;
    {
        const DLPackTensor tensor = from_dlpack(&foreign.managed);
        EXPECT_EQ(DType::float32, tensor.view().dtype());
        EXPECT_EQ((Shape{2, 3}), tensor.view().shape());
        EXPECT_EQ(foreign.values.data(), tensor.view().data());
        EXPECT_FALSE(tensor.view().strides());
        EXPECT_FALSE(tensor.view().read_only());
        const DLPackTensor copy = tensor;
        EXPECT_EQ(0, foreign.deleted);
    }
    EXPECT_EQ(1, foreign.deleted);
}

TYPED_TEST(DLPackTest, ImportAndPush) {
    const Queue queue = this->make_queue({1, {{{-1, -1}, DType::float32}}});
    typename TestFixture::Foreign foreign;
    // Transposed, with data that begins after the start of the memory.
    foreign.shape[0] = 2;
    foreign.shape[1] = 2;
    foreign.strides[0] = 1;
    foreign.strides[1] = 3;
    foreign.managed.dl_tensor.byte_offset = 4;
    queue.push(from_dlpack(&foreign.managed).view());
    EXPECT_EQ(1, foreign.deleted);
    EXPECT_EQ((Floats{2, 5, 3, 6}), values<float>(queue.pop()->at(0)));
}

TYPED_TEST(DLPackTest, ImportAndLend) {
    const Queue queue = this->make_queue({1, {{{-1, 3}, DType::float32}}});
    typename TestFixture::Foreign foreign;
    {
        const DLPackTensor tensor = from_dlpack(&foreign.managed);
        queue.push_lent(tensor.view(), tensor.owner());
    }
    {
        const auto tuple = queue.pop();
        EXPECT_EQ(foreign.values.data(), tuple->at(0).data());
        EXPECT_EQ(0, foreign.deleted);
    }
    EXPECT_EQ(1, foreign.deleted);
}

TYPED_TEST(DLPackTest, ImportWithoutStrides) {
    typename TestFixture::Foreign foreign;
    foreign.managed.dl_tensor.strides = nullptr;
    EXPECT_FALSE(from_dlpack(&foreign.managed).view().strides());
}

TYPED_TEST(DLPackTest, ImportFromOtherPlaces) {
    typename TestFixture::Foreign foreign;
    foreign.managed.dl_tensor.device = {dlpack::kCUDA, 3};
    EXPECT_EQ(CUDAPlace(3), from_dlpack(&foreign.managed).view().place());
    foreign.managed.dl_tensor.device = {dlpack::kCUDAHost, 0};
    EXPECT_EQ(CUDAPinnedPlace(), from_dlpack(&foreign.managed).view().place());
    foreign.managed.dl_tensor.device = {10, 0};  // ROCm
    EXPECT_ERROR(UnsupportedError, -1, from_dlpack(&foreign.managed), "device type 10");
    EXPECT_EQ(3, foreign.deleted);
}

// A refused tensor is deleted too, since the call takes ownership of it.
TYPED_TEST(DLPackTest, ImportRefused) {
    EXPECT_ERROR(InvalidArgument, -1, from_dlpack(static_cast<TypeParam *>(nullptr)), "no tensor");
    int deleted = 0;
    const auto refused = [&](auto &&change, auto error, const char *word) {
        typename TestFixture::Foreign foreign;
        change(foreign.managed);
        using Class = decltype(error);
        expect_error<Class>(__FILE__, __LINE__, [&] { from_dlpack(&foreign.managed); }, -1, {word});
        deleted += foreign.deleted;
    };
    refused([](TypeParam &m) { m.dl_tensor.dtype.lanes = 4; }, DTypeError(""), "4 lanes");
    refused([](TypeParam &m) { m.dl_tensor.dtype.bits = 80; }, DTypeError(""), "80 bits");
    refused([](TypeParam &m) { m.dl_tensor.dtype.code = 3; }, DTypeError(""), "code 3");
    refused([](TypeParam &m) { m.dl_tensor.ndim = -1; }, ShapeError(""), "-1");
    refused([](TypeParam &m) { m.dl_tensor.ndim = 9; }, ShapeError(""), "found 9");
    refused([](TypeParam &m) { m.dl_tensor.shape = nullptr; }, InvalidArgument(""), "shape");
    EXPECT_EQ(6, deleted);
    if constexpr (detail::is_versioned<TypeParam>) {
        refused([](TypeParam &m) { m.version.major = 2; }, UnsupportedError(""), "found 2.0");
        EXPECT_EQ(7, deleted);
    }
}

TYPED_TEST(DLPackTest, ImportWithoutDeleter) {
    typename TestFixture::Foreign foreign;
    foreign.managed.deleter = nullptr;
    from_dlpack(&foreign.managed);
}

TYPED_TEST(DLPackTest, ImportReadOnly) {
    if constexpr (detail::is_versioned<TypeParam>) {
        typename TestFixture::Foreign foreign;
        foreign.managed.flags = dlpack::kReadOnly;
        const DLPackTensor tensor = from_dlpack(&foreign.managed);
        EXPECT_TRUE(tensor.view().read_only());
        EXPECT_ERROR(StateError, -1, tensor.view().template mutable_data<float>(), "read-only");
    }
}

// The structures of the caller's own dlpack.h can be used too: only the names of the fields matter.
namespace theirs {
enum DLDeviceType { kDLCPU = 1, kDLCUDA = 2 };
struct DLDevice {
    DLDeviceType device_type;
    int32_t device_id;
};
struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    dlpack::DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};
struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(DLManagedTensor *self);
};
}  // namespace theirs

class DLPackOfOthers : public Feed {};

TEST_F(DLPackOfOthers, ThereAndBack) {
    const Queue queue = numbers(1);
    push_number(queue, 5);
    theirs::DLManagedTensor *managed = to_dlpack<theirs::DLManagedTensor>(std::move(*queue.pop()), 0);
    EXPECT_EQ(theirs::kDLCPU, managed->dl_tensor.device.device_type);
    EXPECT_EQ((Numbers{5}), values<int64_t>(from_dlpack(managed).view()));
}

}  // namespace

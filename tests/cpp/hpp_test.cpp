// The parts of pyfeed.hpp that are not in the C library.
#include <array>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

TEST(Library, Version) {
    EXPECT_EQ(PF_ABI_VERSION, pf_abi_version());
    EXPECT_EQ(PF_VERSION, version());
}

TEST(Library, Names) {
    EXPECT_STREQ("PF_OK", pf_status_name(PF_OK));
    EXPECT_STREQ("PF_POISONED", pf_status_name(PF_POISONED));
    EXPECT_NE(nullptr, pf_status_name(255));
    const char *names[] = {"bool",     "int8",    "int16",   "int32",     "int64",
                           "uint8",    "uint16",  "uint32",  "uint64",    "float16",
                           "bfloat16", "float32", "float64", "complex64", "complex128"};
    const size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
    for (pf_dtype d = PF_BOOL; d <= PF_COMPLEX128; d++) {
        EXPECT_EQ(names[d - 1], dtype_name(DType(d)));
        EXPECT_EQ(sizes[d - 1], dtype_size(DType(d)));
    }
    for (const pf_dtype d : {PF_DTYPE_ANY + 0, PF_COMPLEX128 + 1, -1}) {
        EXPECT_EQ(nullptr, pf_dtype_name(d));
        EXPECT_EQ(0u, pf_dtype_size(d));
    }
    EXPECT_EQ("any", dtype_name(DType::any));
    EXPECT_EQ("dtype 99", dtype_name(DType(99)));
}

TEST(Library, DTypesOfTypes) {
    EXPECT_EQ(DType::bool_, dtype_of<bool>());
    EXPECT_EQ(DType::int8, dtype_of<int8_t>());
    EXPECT_EQ(DType::uint8, dtype_of<uint8_t>());
    EXPECT_EQ(DType::int64, dtype_of<long long>());
    EXPECT_EQ(DType::int64, dtype_of<long>());
    EXPECT_EQ(DType::uint16, dtype_of<const unsigned short>());
    EXPECT_EQ(DType::float16, dtype_of<Float16>());
    EXPECT_EQ(DType::bfloat16, dtype_of<BFloat16>());
    EXPECT_EQ(DType::complex64, dtype_of<std::complex<float>>());
    static_assert(!detail::has_dtype<char> && !detail::has_dtype<wchar_t> && !detail::has_dtype<void *>);
    static_assert(!detail::has_dtype<long double> && !detail::has_dtype<std::string>);
}

TEST(Library, Shape) {
    const Shape scalar, vector = {3}, matrix = {size_t{4}, 5};
    EXPECT_EQ(0u, scalar.rank());
    EXPECT_EQ(1, scalar.numel());
    EXPECT_EQ("()", scalar.to_string());
    EXPECT_EQ("(3,)", vector.to_string());
    EXPECT_EQ("(4, 5)", matrix.to_string());
    EXPECT_EQ(20, matrix.numel());
    EXPECT_EQ(matrix, Shape(std::vector<int64_t>{4, 5}));
    EXPECT_NE(matrix, vector);
    EXPECT_NE(matrix, (Shape{4, 6}));
    EXPECT_EQ(5, matrix[1]);
}

TEST(Library, LoDCopiesStandAlone) {
    std::optional<LoD> first(LoD{{0, 1}, {0, 2}});
    const LoD copy = *first;
    LoD assigned;
    assigned = copy;
    const LoD moved = std::move(*first);
    first.reset();
    for (const LoD *lod : {&copy, const_cast<const LoD *>(&assigned), &moved}) {
        ASSERT_EQ(2u, lod->size());
        EXPECT_EQ(2, lod->raw()[1].offsets[1]);
        EXPECT_EQ((*lod)[1].data(), lod->raw()[1].offsets);
    }
}

TEST(Library, Views) {
    const Floats x(6);
    const TensorView tensor = view(x, {2, 3});
    EXPECT_EQ(24u, tensor.nbytes());
    EXPECT_EQ(6, tensor.numel());
    EXPECT_TRUE(tensor.read_only());  // the vector is const
    EXPECT_EQ(x.data(), tensor.data<float>());
    EXPECT_ERROR(DTypeError, -1, tensor.data<double>(), "expected float64", "holds float32");
    EXPECT_ERROR(DTypeError, -1, tensor.values<int>(), "expected int32", "holds float32");
    EXPECT_ERROR(StateError, -1, tensor.mutable_data<float>(), "read-only");
    EXPECT_ERROR(ShapeError, -1, view(x, {2, 4}), "6 elements", "(2, 4)");
    const TensorView strided = view(x.data(), {3, 2}).with_strides({4, 12});
    EXPECT_ERROR(StateError, -1, strided.values<float>(), "strided");
    Floats writable(2);
    EXPECT_EQ(writable.data(), view(writable).mutable_data<float>());
    const std::array<int8_t, 3> array = {1, 2, 3};
    EXPECT_EQ((Shape{3}), view(array).shape());
    EXPECT_EQ(array.data(), view(Span<const int8_t>(array.data(), 2)).data());
}

TEST(Library, PlacesCompare) {
    EXPECT_EQ(CPUPlace(), Place());
    EXPECT_NE(CUDAPlace(0), CUDAPlace(1));
    EXPECT_NE(CUDAPinnedPlace(), CPUPlace());
}

class Hpp : public Feed {
protected:
    // Returns the error that a consumer of the queue gets.
    ProducerError told(const Queue &queue) {
        try {
            queue.pop(kStuck);
        } catch (const ProducerError &e) {
            return e;
        }
        return ProducerError("nothing was thrown");
    }
};

TEST_F(Hpp, TuplesMove) {
    const Queue queue = numbers(4);
    for (int64_t i = 0; i < 4; i++) push_number(queue, i);
    std::vector<Tuple> tuples;
    for (int i = 0; i < 4; i++) tuples.push_back(std::move(*queue.pop()));
    EXPECT_EQ(4u, memory_stats().tuples_on_loan);
    tuples.erase(tuples.begin() + 1);
    EXPECT_EQ(3u, memory_stats().tuples_on_loan);
    EXPECT_EQ(2, number(tuples[1]));
    Tuple moved = std::move(tuples[0]);
    EXPECT_TRUE(tuples[0].empty());
    moved = std::move(tuples[1]);
    EXPECT_EQ(2, number(moved));
    EXPECT_EQ(2u, memory_stats().tuples_on_loan);
    moved.release();
    moved.release();
    EXPECT_TRUE(moved.empty());
    EXPECT_ERROR(InvalidArgument, -1, moved.at(0), "slot 0", "has 0");
}

TEST_F(Hpp, ATupleIsATupleOfTensors) {
    const Queue queue = make_queue({1, {{{1}, DType::int64}, {{1}, DType::int64}}});
    const int64_t a = 1, b = 2;
    queue.push({view(&a, {1}), view(&b, {1})});
    const auto tuple = queue.pop();
    int64_t sum = 0;
    for (const TensorView tensor : *tuple) sum += tensor.values<int64_t>()[0];
    EXPECT_EQ(3, sum);
    EXPECT_ERROR(InvalidArgument, -1, tuple->at(2), "slot 2", "has 2");
}

TEST_F(Hpp, FailWithAnException) {
    const Queue queue = numbers(1);
    queue.fail(std::out_of_range("too far"), 7);
    const ProducerError e = told(queue);
    EXPECT_EQ("std::out_of_range", e.type());
    EXPECT_EQ("too far", e.message());
    EXPECT_EQ("", e.traceback());
    EXPECT_EQ(7u, e.token());
    EXPECT_STREQ("the producer failed: std::out_of_range: too far", e.what());
}

TEST_F(Hpp, FailWithNestedExceptions) {
    const Queue queue = numbers(1);
    try {
        try {
            throw std::out_of_range("index 5");
        } catch (const std::exception &) {
            std::throw_with_nested(std::runtime_error("record 3"));
        }
    } catch (const std::exception &e) {
        queue.fail(e);
    }
    const ProducerError e = told(queue);
    EXPECT_EQ("record 3", e.message());
    EXPECT_NE(std::string::npos, e.traceback().find("record 3\ncaused by std::out_of_range: index 5\n"))
        << e.traceback();
}

TEST_F(Hpp, FailWithACaughtException) {
    const Queue queue = numbers(1);
    try {
        throw std::bad_alloc();
    } catch (...) {
        queue.fail(std::current_exception());
    }
    EXPECT_EQ("std::bad_alloc", told(queue).type());
    queue.reopen();
    try {
        throw 5;
    } catch (...) {
        queue.fail(std::current_exception());
    }
    EXPECT_EQ("unknown", told(queue).type());
    EXPECT_ERROR(InvalidArgument, -1, queue.fail(std::exception_ptr()), "no exception");
}

// A consumer passes the failure of one queue's producer on to another queue.
TEST_F(Hpp, FailPassesAFailureOn) {
    const Queue first = numbers(1), second = make_queue({1, {{{1}, DType::int64}}}, "second");
    first.fail("KeyError", "'x'", "line 1", 42);
    try {
        first.pop();
    } catch (const std::exception &e) {
        second.fail(e);
    }
    const ProducerError e = told(second);
    EXPECT_EQ("KeyError", e.type());
    EXPECT_EQ("'x'", e.message());
    EXPECT_EQ("line 1", e.traceback());
    EXPECT_EQ(42u, e.token());
}

TEST_F(Hpp, FailWithTextOfAnyKind) {
    const Queue queue = numbers(1);
    const std::string message = "größer als erlaubt: 你好 " + std::string(100000, '!');
    queue.fail("", message);
    EXPECT_EQ(message, told(queue).message());
    EXPECT_EQ("", told(queue).type());
}

TEST_F(Hpp, HandlesAreAdopted) {
    const Queue queue = numbers(1);
    pf_handle handle = 0;
    ASSERT_EQ(PF_OK, pf_var_get_queue(scope.find("feeder").handle(), &handle, nullptr));
    const Queue adopted = Queue::adopt(handle);
    push_number(adopted, 3);
    EXPECT_EQ(3, next_number(queue));
}

TEST_F(Hpp, DetachedTuplesAreTheCallers) {
    const Queue queue = numbers(1);
    push_number(queue, 3);
    pf_tuple raw = queue.pop()->detach();
    EXPECT_EQ(1u, memory_stats().tuples_on_loan);
    EXPECT_EQ(3, number(Tuple(raw)));
    EXPECT_EQ(0u, memory_stats().tuples_on_loan);
}

// The idle memory that a queue keeps for its next tuple is freed with the queue.
TEST_F(Hpp, IdleMemoryGoesWithItsOwner) {
    const uint64_t before = memory_stats().idle_bytes;
    {
        const Queue queue = make_queue({4, {{{-1}, DType::int64}}});
        const Numbers n(100000);
        queue.push({view(n)});
        queue.pop();
        EXPECT_GE(memory_stats().idle_bytes, before + 800000);
        scope.erase("feeder");
    }
    EXPECT_EQ(before, memory_stats().idle_bytes);
}

TEST_F(Hpp, MemoryInfo) {
    const MemoryInfo before = memory_stats();
    {
        const Queue queue = make_queue({4, {{{-1}, DType::int64}}});
        const Numbers n(100);
        queue.push({view(n)});
        queue.push_lent({view(n)}, [] {});
        const auto tuple = queue.pop();
        const MemoryInfo now = memory_stats();
        EXPECT_GT(now.handles, before.handles);
        EXPECT_EQ(before.tuples_on_loan + 1, now.tuples_on_loan);
        EXPECT_GE(now.live_queue_bytes, before.live_queue_bytes + 800);
        EXPECT_EQ(before.live_lent_bytes + 800, now.live_lent_bytes);
        EXPECT_GT(now.live_view_bytes, before.live_view_bytes);
        EXPECT_GE(now.live_buffers, before.live_buffers + 3);
        scope.var("x").set(view(n));
        EXPECT_GE(memory_stats().live_batch_bytes, before.live_batch_bytes + 800);
        scope.erase("x");
        scope.erase("feeder");
    }
}

}  // namespace

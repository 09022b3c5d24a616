// Refused calls: the class of the error, its slot, and the expected and found values in its message.
#include <cstddef>
#include <cstring>
#include <limits>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// Slot 0: float32 (-1, 3); slot 1: int64 (-1,).
class Refusals : public Feed {
protected:
    // A refused call must leave nothing behind in the queue.
    ~Refusals() override {
        const QueueInfo info = queue.stats();
        EXPECT_EQ(0u, info.num_tuples);
        EXPECT_EQ(0u, info.reserved_tuples);
        EXPECT_EQ(0u, info.bytes);
        EXPECT_EQ(0u, info.pushed);
    }

    Queue queue = make_queue({4, {{{-1, 3}, DType::float32}, {{-1}, DType::int64}}});
    Floats x = Floats(12);
    Numbers y = Numbers(4);
};

TEST_F(Refusals, WrongRank) {
    EXPECT_ERROR(ShapeError, 0, queue.push({view(x), view(y)}), "slot 0: shape: expected [-1 3], found [12]");
    EXPECT_ERROR(ShapeError, 1, queue.push({view(x, {4, 3}), view(y, {4, 1})}),
                 "slot 1: shape: expected [-1], found [4 1]");
    EXPECT_ERROR(ShapeError, 1, queue.push({view(x, {4, 3}), view(y.data(), {})}),
                 "slot 1: shape: expected [-1], found []");
}

TEST_F(Refusals, WrongDimension) {
    EXPECT_ERROR(ShapeError, 0, queue.push({view(x, {3, 4}), view(y)}), "slot 0", "dimension 1", "expected 3",
                 "found 4");
}

TEST_F(Refusals, WrongDType) {
    std::vector<double> doubles(12);
    EXPECT_ERROR(DTypeError, 0, queue.push({view(doubles, {4, 3}), view(y)}), "slot 0", "expected float32",
                 "found float64");
    std::vector<uint64_t> unsigned_ones(4);
    EXPECT_ERROR(DTypeError, 1, queue.push({view(x, {4, 3}), view(unsigned_ones)}), "slot 1",
                 "expected int64", "found uint64");
}

TEST_F(Refusals, NoDType) {
    EXPECT_ERROR(DTypeError, 1, queue.push({view(x, {4, 3}), TensorView(DType(16), {4}, y.data())}), "slot 1",
                 "16");
    EXPECT_ERROR(DTypeError, 1, queue.push({view(x, {4, 3}), TensorView(DType::any, {4}, y.data())}),
                 "slot 1", "0");
    EXPECT_ERROR(DTypeError, 0, queue.reserve({TensorView(DType(-1), {4, 3}), tensor_spec<int64_t>({4})}),
                 "slot 0", "-1");
}

TEST_F(Refusals, WrongNumberOfSlots) {
    EXPECT_ERROR(SlotCountError, -1, queue.push({view(x, {4, 3})}), "expected 2", "found 1");
    EXPECT_ERROR(SlotCountError, -1, queue.push({view(x, {4, 3}), view(y), view(y)}), "expected 2",
                 "found 3");
    EXPECT_ERROR(SlotCountError, -1, queue.push({}), "expected 2", "found 0");
}

TEST_F(Refusals, UnequalBatchDimensions) {
    EXPECT_ERROR(ShapeError, 1, queue.push({view(x, {4, 3}), view(y.data(), {3})}), "slot 1", "expected 4",
                 "slot 0", "found 3");
}

TEST_F(Refusals, TheOtherPushModesCheckTheSame) {
    auto released = std::make_shared<int>(0);
    auto release = [released] { ++*released; };
    EXPECT_ERROR(ShapeError, 0, queue.push_lent({view(x, {3, 4}), view(y)}, release), "expected 3",
                 "found 4");
    EXPECT_ERROR(SlotCountError, -1, queue.push_lent({view(x, {4, 3})}, release), "expected 2", "found 1");
    EXPECT_ERROR(ShapeError, 1, queue.push_lent({view(x, {4, 3}), view(y.data(), {3})}, release),
                 "expected 4", "found 3");
    EXPECT_EQ(0, *released);
    EXPECT_EQ(2, released.use_count());  // the callables of refused pushes are destroyed

    EXPECT_ERROR(ShapeError, 0, queue.reserve({tensor_spec<float>({4, 4}), tensor_spec<int64_t>({4})}),
                 "expected 3", "found 4");
    EXPECT_ERROR(DTypeError, 0, queue.reserve({tensor_spec<int>({4, 3}), tensor_spec<int64_t>({4})}),
                 "expected float32", "found int32");
    EXPECT_ERROR(SlotCountError, -1, queue.reserve({tensor_spec<float>({4, 3})}), "expected 2", "found 1");
    EXPECT_ERROR(ShapeError, 1, queue.reserve({tensor_spec<float>({4, 3}), tensor_spec<int64_t>({3})}),
                 "expected 4", "found 3");
}

TEST_F(Refusals, NullData) {
    const TensorView nothing(static_cast<int64_t *>(nullptr), {4});
    EXPECT_ERROR(InvalidArgument, 1, queue.push({view(x, {4, 3}), nothing}), "slot 1", "data", "NULL");
    EXPECT_ERROR(InvalidArgument, 1, queue.push_lent({view(x, {4, 3}), nothing}, [] {}), "slot 1", "data");
}

TEST_F(Refusals, NegativeDimension) {
    EXPECT_ERROR(ShapeError, 0, queue.push({view(x.data(), {-1, 3}), view(y)}), "slot 0", "-1");
    EXPECT_ERROR(ShapeError, 1, queue.reserve({tensor_spec<float>({4, 3}), tensor_spec<int64_t>({-2})}),
                 "slot 1", "-2");
}

TEST_F(Refusals, MoreBytesThanThereAre) {
    const int64_t huge = std::numeric_limits<int64_t>::max() / 2;
    EXPECT_ERROR(ShapeError, 0, queue.push({view(x.data(), {huge, 3}), view(y.data(), {huge})}), "slot 0");
    EXPECT_ERROR(ShapeError, 0, queue.reserve({tensor_spec<float>({huge, 3}), tensor_spec<int64_t>({huge})}),
                 "slot 0");
    // A size that fits into 64 bits, but is larger than any machine's memory.
    const int64_t large = int64_t{1} << 50;
    EXPECT_ERROR(OutOfMemoryError, -1,
                 queue.reserve({tensor_spec<float>({large, 3}), tensor_spec<int64_t>({large})}), "memory");
}

TEST_F(Refusals, LentMemoryThatIsNotContiguous) {
    const auto transposed = view(x.data(), {4, 3}).with_strides({4, 16});
    EXPECT_ERROR(InvalidArgument, 0, queue.push_lent({transposed, view(y)}, [] {}), "slot 0", "contiguous");
    const auto backwards = view(y.data() + 3, {4}).with_strides({-8});
    EXPECT_ERROR(InvalidArgument, 1, queue.push_lent({view(x, {4, 3}), backwards}, [] {}), "slot 1",
                 "contiguous");
}

TEST_F(Refusals, MemoryElsewhere) {
    EXPECT_ERROR(UnsupportedError, 1, queue.push({view(x, {4, 3}), view(y).with_place(CUDAPlace(3))}),
                 "slot 1", "place", "CUDAPlace(3)");
    EXPECT_ERROR(UnsupportedError, 0, queue.push({view(x, {4, 3}).with_place({77, 0}), view(y)}), "slot 0",
                 "77");
}

TEST_F(Refusals, RankNine) {
    // C++ refuses to construct such a shape.
    EXPECT_ERROR(ShapeError, -1, Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), "at most 8", "found 9");

    const int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const TensorView first = view(x.data(), {4, 3}), second = view(y);
    pf_tensor tensors[2] = {first.raw(), second.raw()};
    tensors[1].rank = 9;
    tensors[1].dims = dims;
    CError err;
    EXPECT_STATUS(PF_SHAPE, pf_queue_push(queue.handle(), tensors, 2, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_EQ(PF_SHAPE, err.raw.status);
    EXPECT_EQ(1, err.raw.slot);
    EXPECT_EQ("slot 1: rank: expected at most 8 dimensions, found 9", err.message());

    tensors[1].rank = -1;
    EXPECT_STATUS(PF_SHAPE, pf_queue_push(queue.handle(), tensors, 2, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_EQ(1, err.raw.slot);

    pf_slot_spec slot = PF_SLOT_SPEC_INIT;
    slot.rank = 9;
    slot.dims = dims;
    pf_queue_options options = PF_QUEUE_OPTIONS_INIT;
    options.capacity = 1;
    options.num_slots = 1;
    options.slots = &slot;
    pf_handle handle = 77;
    EXPECT_STATUS(PF_SHAPE, pf_queue_init_once(scope.var("other").handle(), &options, &handle, &err));
    EXPECT_EQ(0u, handle);
    EXPECT_EQ(0, err.raw.slot);
}

TEST_F(Refusals, ClosedQueue) {
    queue.close();
    EXPECT_ERROR(QueueClosed, -1, queue.push({view(x, {4, 3}), view(y)}), "closed");
    EXPECT_ERROR(QueueClosed, -1, queue.push_lent({view(x, {4, 3}), view(y)}, [] {}), "closed");
    EXPECT_ERROR(QueueClosed, -1, queue.reserve({tensor_spec<float>({4, 3}), tensor_spec<int64_t>({4})}),
                 "closed");
}

TEST_F(Refusals, ErrorsCarryTheirStatus) {
    try {
        queue.push({view(x, {3, 4}), view(y)});
        FAIL() << "nothing was thrown";
    } catch (const Error &e) {
        EXPECT_EQ(PF_SHAPE, e.status());
        EXPECT_EQ(0, e.slot());
        EXPECT_NE(nullptr, dynamic_cast<const ShapeError *>(&e));
        EXPECT_NE(nullptr, dynamic_cast<const std::runtime_error *>(&e));
    }
}

TEST_F(Refusals, NoErrorWanted) {
    const TensorView one = view(x);
    const pf_tensor tensor = one.raw();
    EXPECT_STATUS(PF_SLOTS, pf_queue_push(queue.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, nullptr));
}

TEST_F(Refusals, AnErrorIsUsedAgain) {
    const TensorView one = view(x);
    const pf_tensor tensor = one.raw();
    pf_error err = PF_ERROR_INIT;
    for (int i = 0; i < 3; i++) {  // a leak checker finds replaced messages that are not freed
        EXPECT_STATUS(PF_SLOTS, pf_queue_push(queue.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
        EXPECT_NE(nullptr, err.message);
    }
    pf_error_release(&err);
    const pf_error fresh = PF_ERROR_INIT;
    EXPECT_EQ(0, std::memcmp(&fresh, &err, sizeof err));
    pf_error_release(&err);
    pf_error_release(nullptr);
}

// ---- Ragged offsets (LoD, level of detail) ----

// One slot: int64 (-1,) with one level; "two" has two.
class LoDRefusals : public Feed {
protected:
    void refused(const Queue &queue, const LoD &lod, std::initializer_list<std::string_view> words) {
        expect_error<ShapeError>(__FILE__, __LINE__, [&] { queue.push({view(y).with_lod(lod)}); }, 0, words);
        expect_error<ShapeError>(
            __FILE__, __LINE__, [&] { queue.reserve({tensor_spec<int64_t>({5}).with_lod(lod)}); }, 0, words);
        EXPECT_EQ(0u, queue.stats().num_tuples + queue.stats().reserved_tuples);
    }

    Queue one = make_queue({4, {{{-1}, DType::int64, 1}}}, "one");
    Queue two = make_queue({4, {{{-1}, DType::int64, 2}}}, "two");
    Numbers y = Numbers(5);
};

TEST_F(LoDRefusals, WrongNumberOfLevels) {
    refused(one, LoD{{0, 2}, {0, 2, 5}}, {"slot 0", "expected 1 level", "found 2"});
    refused(two, LoD{{0, 2, 5}}, {"slot 0", "expected 2 level", "found 1"});
    refused(one, LoD{}, {"slot 0", "expected 1 level", "found 0"});
    const Queue none = make_queue({4, {{{-1}, DType::int64}}}, "none");
    refused(none, LoD{{0, 2, 5}}, {"slot 0", "expected 0 level", "found 1"});
}

TEST_F(LoDRefusals, FirstOffsetIsNotZero) {
    refused(one, LoD{{1, 2, 5}}, {"slot 0", "level 0", "first offset", "found 1"});
    refused(two, LoD{{0, 2}, {-1, 2, 5}}, {"slot 0", "level 1", "first offset", "found -1"});
}

TEST_F(LoDRefusals, OffsetsDecrease) {
    refused(one, LoD{{0, 3, 2, 5}}, {"slot 0", "level 0", "offset 2", "from 3 to 2"});
}

TEST_F(LoDRefusals, LastOffsetIsNotTheFirstDimension) {
    refused(one, LoD{{0, 2, 4}}, {"slot 0", "level 0", "expected the last offset to be 5", "found 4"});
    refused(one, LoD{{0, 2, 6}}, {"slot 0", "level 0", "expected the last offset to be 5", "found 6"});
}

TEST_F(LoDRefusals, LastOffsetIsNotTheNextLevelsLength) {
    refused(two, LoD{{0, 1, 3}, {0, 2, 5}},
            {"slot 0", "level 0", "expected the last offset to be 2", "found 3"});
}

TEST_F(LoDRefusals, TooFewOffsets) {
    refused(one, LoD{{0}}, {"slot 0", "level 0", "found 1"});
    const int64_t offset = 0;
    const pf_lod_level level = {&offset, 0};
    const TensorView five = view(y);
    pf_tensor tensor = five.raw();
    tensor.lod_levels = 1;
    tensor.lod = &level;
    CError err;
    EXPECT_STATUS(PF_SHAPE, pf_queue_push(one.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_EQ(0, err.raw.slot);
    EXPECT_NE(std::string::npos, err.message().find("found 0")) << err.message();
}

TEST_F(LoDRefusals, NullOffsets) {
    const TensorView five = view(y);
    pf_tensor tensor = five.raw();
    tensor.lod_levels = 1;
    CError err;
    EXPECT_STATUS(PF_INVALID, pf_queue_push(one.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_EQ(0, err.raw.slot);
    const pf_lod_level level = {nullptr, 3};
    tensor.lod = &level;
    EXPECT_STATUS(PF_INVALID, pf_queue_push(one.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_EQ(0, err.raw.slot);
    EXPECT_NE(std::string::npos, err.message().find("level 0")) << err.message();
}

TEST_F(LoDRefusals, NineLevels) {
    const LoD nine(std::vector<std::vector<int64_t>>(9, {0, 1}));
    refused(one, nine, {"slot 0", "at most 8", "found 9"});
}

// ---- Creation of a queue ----

class Making : public Feed {
protected:
    QueueHolder holder{scope.var("feeder")};
    const std::vector<SlotSpec> slots = {{{1}, DType::int64}};
};

TEST_F(Making, SecondInitOnce) {
    const Queue queue = holder.init_once({3, slots});
    EXPECT_ERROR(StateError, -1, holder.init_once({3, slots}), "init_once");
    EXPECT_ERROR(StateError, -1, QueueHolder(scope.find("feeder")).init_once({4, slots}), "init_once");
    EXPECT_EQ(3u, queue.capacity());
}

TEST_F(Making, QueueBeforeInitOnce) {
    EXPECT_ERROR(StateError, -1, holder.feeder(), "feeder");
    EXPECT_ERROR(StateError, -1, create_py_array_reader(scope, "reader", "feeder"), "feeder");
    EXPECT_FALSE(scope.has("reader"));
}

TEST_F(Making, ARefusedInitOnceIsNone) {
    EXPECT_ERROR(InvalidArgument, -1, holder.init_once({0, slots}), "capacity");
    EXPECT_ERROR(StateError, -1, holder.feeder(), "init_once");
    EXPECT_EQ(2u, holder.init_once({2, slots}).capacity());
}

TEST_F(Making, CapacityZero) {
    EXPECT_ERROR(InvalidArgument, -1, holder.init_once({0, slots}), "capacity", "at least 1", "found 0");
}

TEST_F(Making, NoSlots) {
    EXPECT_ERROR(SlotCountError, -1, holder.init_once({1, {}}), "at least 1", "found 0");
}

TEST_F(Making, WrongSlots) {
    EXPECT_ERROR(DTypeError, 1, holder.init_once({1, {{{1}, DType::int8}, {{1}, DType(99)}}}), "slot 1",
                 "99");
    EXPECT_ERROR(ShapeError, 0, holder.init_once({1, {{{2, -3}, DType::int8}}}), "slot 0", "dimension 1",
                 "-3");
    EXPECT_ERROR(ShapeError, 0, holder.init_once({1, {{{-1}, DType::int8, 9}}}), "slot 0", "found 9");
}

TEST_F(Making, TupleOverTheBytesLimit) {
    const Queue queue = holder.init_once({4, {{{-1}, DType::int64}}, {}, 64});
    const Numbers eight(8), nine(9);
    EXPECT_ERROR(TooLargeError, -1, queue.push({view(nine)}), "64", "72");
    EXPECT_ERROR(TooLargeError, -1, queue.push_lent({view(nine)}, [] {}), "64", "72");
    EXPECT_ERROR(TooLargeError, -1, queue.reserve({tensor_spec<int64_t>({9})}), "64", "72");
    EXPECT_EQ(0u, queue.stats().bytes);
    queue.push({view(eight)});
    EXPECT_EQ(1u, queue.size());
}

TEST_F(Making, SlotOutOfRange) {
    const Queue queue = holder.init_once({1, slots});
    EXPECT_EQ((Shape{1}), queue.slot(0).shape);
    EXPECT_ERROR(SlotCountError, -1, queue.slot(1), "slot", "expected 0 to 0", "found 1");
}

// ---- Names and handles ----

class Names : public Feed {};

TEST_F(Names, NoVariableOfThatName) {
    EXPECT_ERROR(NotFoundError, -1, scope.find("nobody"), "nobody");
    EXPECT_ERROR(NotFoundError, -1, scope.erase("nobody"), "nobody");
    EXPECT_ERROR(NotFoundError, -1, create_py_array_reader(scope, "reader", "nobody"), "nobody");
    EXPECT_ERROR(NotFoundError, -1, create_batch_reader(scope, "batches", "nobody", 2), "nobody");
    EXPECT_ERROR(NotFoundError, -1, read(scope, "nobody", {"x"}), "nobody");
    EXPECT_FALSE(scope.has("reader"));
}

TEST_F(Names, EmptyName) { EXPECT_ERROR(InvalidArgument, -1, scope.var(""), "name"); }

TEST_F(Names, VariableHoldsSomethingElse) {
    const Queue queue = numbers(1);
    scope.var("empty");
    EXPECT_ERROR(StateError, -1, scope.find("feeder").tensor(), "feeder", "tensor");
    EXPECT_ERROR(StateError, -1, scope.find("feeder").reader(), "feeder", "reader");
    EXPECT_ERROR(StateError, -1, scope.find("empty").tensor(), "empty", "tensor");
    EXPECT_ERROR(StateError, -1, scope.find("empty").queue(), "empty", "queue");
    EXPECT_ERROR(StateError, -1, read(scope, "feeder", {"x"}), "feeder", "reader");
    EXPECT_ERROR(StateError, -1, create_batch_reader(scope, "batches", "feeder", 2), "feeder", "reader");
    const int64_t n = 1;
    scope.var("tensor").set(view(&n, {1}));
    EXPECT_ERROR(StateError, -1, QueueHolder(scope.find("tensor")).init_once({1, {{{1}, DType::int8}}}),
                 "tensor", "queue");
}

TEST_F(Names, StaleHandleError) {
    pf_handle handle = 0;
    {
        const Queue queue = numbers(1);
        handle = queue.handle();
    }
    const int64_t n = 1;
    const TensorView one = view(&n, {1});
    const pf_tensor tensor = one.raw();
    pf_tuple tuple = PF_TUPLE_INIT;
    CError err;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_push(handle, &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_EQ(PF_STALE_HANDLE, err.raw.status);
    EXPECT_EQ(-1, err.raw.slot);
    EXPECT_NE(std::string::npos, err.message().find(std::to_string(handle))) << err.message();
    EXPECT_NE(std::string::npos, err.message().find("expected a queue")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_pop(handle, nullptr, &tuple, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(handle, PF_PASS_CURRENT, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_retain(handle, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_release(handle, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(0, PF_PASS_CURRENT, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(UINT64_MAX, PF_PASS_CURRENT, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_release(0, &err));
}

TEST_F(Names, WrongKindOfHandle) {
    const Queue queue = numbers(1);
    const CancelToken token;
    CError err;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(scope.handle(), PF_PASS_CURRENT, &err));
    EXPECT_NE(std::string::npos, err.message().find("expected a queue")) << err.message();
    EXPECT_NE(std::string::npos, err.message().find("found a scope")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_reset(queue.handle(), &err));
    uint64_t loop;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_begin_loop(queue.handle(), 0, &loop, &err));
    EXPECT_NE(std::string::npos, err.message().find("expected a reader")) << err.message();
    EXPECT_NE(std::string::npos, err.message().find("found a queue")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_cancel_token_cancel(queue.handle(), &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(token.handle(), PF_PASS_CURRENT, &err));
    pf_handle out = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_scope_var(queue.handle(), "x", &out, &err));
    EXPECT_EQ(0u, out);
    EXPECT_STATUS(PF_STALE_HANDLE, pf_scope_create(queue.handle(), &out, &err));
    int32_t kind = 0;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_var_kind(queue.handle(), &kind, &err));

    pf_wait wait = PF_WAIT_INIT;
    wait.cancel = queue.handle();
    pf_tuple tuple = PF_TUPLE_INIT;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_pop(queue.handle(), &wait, &tuple, &err));
    EXPECT_NE(std::string::npos, err.message().find("cancel token")) << err.message();
}

TEST_F(Names, HandlesAreCounted) {
    const Queue queue = numbers(1);
    {
        Queue copy = queue;  // NOLINT: the copy is the point
        push_number(copy, 7);
        const Queue moved = std::move(copy);
        EXPECT_EQ(0u, copy.handle());
        EXPECT_ERROR(StaleHandleError, -1, copy.close(), "handle 0");
    }
    EXPECT_EQ(7, next_number(queue));
}

TEST_F(Names, ResetOfAQueueThatCannotStartOver) {
    const Queue queue = numbers(3);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    push_number(queue, 1);
    EXPECT_ERROR(StateError, -1, reader.reset(), "start over", "reopen");
    EXPECT_ERROR(StateError, -1, reader.batch(2).reset(), "start over", "reopen");
    EXPECT_EQ(1u, queue.size());  // the refused reset drops nothing
}

TEST_F(Names, BatchSizeZero) {
    const Queue queue = numbers(3);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    EXPECT_ERROR(InvalidArgument, -1, reader.batch(0), "batch_size", "found 0");
}

TEST_F(Names, AFullRankCannotBeStacked) {
    const Queue queue = make_queue({1, {{{1, 1, 1, 1, 1, 1, 1, 1}, DType::int8}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    EXPECT_ERROR(ShapeError, 0, reader.batch(2), "slot 0", "8");
}

// The library must not write beyond a pf_error that has the size of release 0.1. tests/abi runs such callers with a
// library whose structs have grown.
TEST(CallersOf01, GetTheirErrorAndNothingBeyondIt) {
    struct {
        pf_error err;
        char canary[16];
    } callers = {PF_ERROR_INIT, {}};
    std::memset(reinterpret_cast<char *>(&callers) + PF_ERROR_SIZE_V1, 0x5a,
                sizeof callers - PF_ERROR_SIZE_V1);
    callers.err.size = PF_ERROR_SIZE_V1;
    pf_handle var = 0;
    for (int i = 0; i < 2; i++) {  // the second call finds the strings of the first call in the struct
        EXPECT_EQ(PF_STALE_HANDLE, pf_scope_find(12345, "x", &var, &callers.err));
        EXPECT_STREQ("handle 12345: expected a scope, found none: it is not valid, or no longer",
                     callers.err.message);
    }
    pf_error_release(&callers.err);
    EXPECT_EQ(nullptr, callers.err.message);
    EXPECT_EQ(uint32_t{PF_ERROR_SIZE_V1}, callers.err.size);
    for (size_t i = PF_ERROR_SIZE_V1; i < sizeof callers; i++) {
        EXPECT_EQ(0x5a, reinterpret_cast<const unsigned char *>(&callers)[i]) << "byte " << i;
    }
}

// The library does not touch a pf_error whose size is too small, as that of an uninitialised one may be.
TEST(CallersOf01, AnErrorThatIsTooShortIsLeftAlone) {
    pf_error err;
    std::memset(&err, 0x5a, sizeof err);
    err.size = PF_ERROR_SIZE_V1 - 1;
    const pf_error before = err;
    pf_handle var = 0;
    EXPECT_EQ(PF_STALE_HANDLE, pf_scope_find(12345, "x", &var, &err));
    pf_error_release(&err);
    EXPECT_EQ(0, std::memcmp(&before, &err, sizeof err));
}

TEST(CallersOf01, StructsThatAreTooShortAreRefused) {
    pf_memory_info memory = PF_MEMORY_INFO_INIT;
    memory.size = PF_MEMORY_INFO_SIZE_V1 - 1;
    CError err;
    EXPECT_EQ(PF_INVALID, pf_memory_stats(&memory, &err));
    EXPECT_EQ("out: expected a size of at least " + std::to_string(PF_MEMORY_INFO_SIZE_V1) + ", found " +
                  std::to_string(memory.size),
              err.message());
}

}  // namespace

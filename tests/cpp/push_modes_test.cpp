// The three push modes of a queue: copied, lent, written in place. The popped tuples equal the pushed ones.
#include <functional>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class PushModes : public Feed {};

// ---- Copied ----

TEST_F(PushModes, APushedTupleIsTheQueuesOwn) {
    const Queue queue = make_queue({2, {{{-1, 3}, DType::float32}, {{-1}, DType::int64}}});
    Floats x = {1, 2, 3, 4, 5, 6};
    Numbers y = {7, 8};
    queue.push({view(x, {2, 3}), view(y)});
    x.assign(6, 0);
    y.assign(2, 0);

    const auto tuple = queue.pop();
    ASSERT_EQ(2u, tuple->size());
    const TensorView first = tuple->at(0), second = tuple->at(1);
    EXPECT_EQ(DType::float32, first.dtype());
    EXPECT_EQ((Shape{2, 3}), first.shape());
    EXPECT_EQ(24u, first.nbytes());
    EXPECT_EQ(CPUPlace(), first.place());
    EXPECT_EQ(0u, first.lod_levels());
    EXPECT_FALSE(first.read_only());
    EXPECT_FALSE(first.strides());
    EXPECT_EQ((Floats{1, 2, 3, 4, 5, 6}), values<float>(first));
    EXPECT_EQ(DType::int64, second.dtype());
    EXPECT_EQ((Shape{2}), second.shape());
    EXPECT_EQ((Numbers{7, 8}), values<int64_t>(second));
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(first.data()) % 64);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(second.data()) % 64);
    first.mutable_data<float>()[0] = 100;  // the consumer owns the memory and may write to it
}

// Every dtype goes through unchanged, bit by bit: a NaN keeps its payload.
TEST_F(PushModes, EveryDTypeExactly) {
    for (pf_dtype d = PF_BOOL; d <= PF_COMPLEX128; d++) {
        const auto dtype = DType(d);
        SCOPED_TRACE(dtype_name(dtype));
        const std::string name = "feeder" + std::to_string(d);
        const Queue queue = make_queue({1, {{{-1, 2}, dtype}}}, name);
        std::vector<uint8_t> bytes(6 * dtype_size(dtype));
        for (size_t i = 0; i < bytes.size(); i++) {
            bytes[i] = static_cast<uint8_t>(dtype == DType::bool_ ? i % 2 : 255 - 7 * i);
        }
        queue.push(TensorView(dtype, {3, 2}, bytes.data()));
        const auto tuple = queue.pop();
        const TensorView out = tuple->at(0);
        EXPECT_EQ(dtype, out.dtype());
        EXPECT_EQ((Shape{3, 2}), out.shape());
        ASSERT_EQ(bytes.size(), out.nbytes());
        EXPECT_EQ(0, std::memcmp(bytes.data(), out.data(), bytes.size()));
        scope.erase(name);
    }
}

TEST_F(PushModes, TheFirstTupleSettlesAnOpenDType) {
    const Queue queue = make_queue({4, {{{-1}, DType::any}}});
    EXPECT_EQ(DType::any, queue.slot(0).dtype);
    const Floats f(2);
    const Numbers n(2);
    queue.push({view(f)});
    EXPECT_EQ(DType::float32, queue.slot(0).dtype);
    EXPECT_ERROR(DTypeError, 0, queue.push({view(n)}), "slot 0", "expected float32", "found int64");
    queue.push({view(f)});
    EXPECT_EQ(2u, queue.size());
}

// A refused tuple does not set the dtype.
TEST_F(PushModes, ARefusedTupleSettlesNoDType) {
    const Queue queue = make_queue({4, {{{-1}, DType::any}, {{-1}, DType::int64}}});
    const Floats f(2);
    EXPECT_ERROR(DTypeError, 1, queue.push({view(f), view(f)}), "slot 1");
    EXPECT_EQ(DType::any, queue.slot(0).dtype);
}

TEST_F(PushModes, SlotsAsTheyWereMade) {
    const Queue queue =
        make_queue({4, {{{-1, 3, -1}, DType::float16}, {{}, DType::any}, {{-1}, DType::int8, 2}}});
    EXPECT_EQ(DType::float16, queue.slot(0).dtype);
    EXPECT_EQ((Shape{-1, 3, -1}), queue.slot(0).shape);
    EXPECT_EQ(0u, queue.slot(0).lod_levels);
    EXPECT_EQ(Shape(), queue.slot(1).shape);
    EXPECT_EQ(2u, queue.slot(2).lod_levels);
}

TEST_F(PushModes, ScalarsAndEmptyTensors) {
    const Queue queue = make_queue({4, {{{}, DType::float64}, {{-1, 5}, DType::int32}}});
    const double pi = 3.14159;
    queue.push({view(&pi, {}), TensorView(DType::int32, {0, 5})});  // an empty tensor needs no data
    const auto tuple = queue.pop();
    EXPECT_EQ(0u, tuple->at(0).rank());
    EXPECT_EQ(1, tuple->at(0).numel());
    EXPECT_EQ(pi, *tuple->at(0).data<double>());
    EXPECT_EQ((Shape{0, 5}), tuple->at(1).shape());
    EXPECT_EQ(0u, tuple->at(1).nbytes());
    EXPECT_TRUE(tuple->at(1).values<int32_t>().empty());
}

TEST_F(PushModes, EightDimensions) {
    const Queue queue = make_queue({4, {{{-1, 1, 2, 1, 2, 1, 1, 3}, DType::int64}}});
    Numbers n(12);
    for (size_t i = 0; i < n.size(); i++) n[i] = static_cast<int64_t>(i);
    queue.push({view(n, {1, 1, 2, 1, 2, 1, 1, 3})});
    const auto tuple = queue.pop();
    EXPECT_EQ((Shape{1, 1, 2, 1, 2, 1, 1, 3}), tuple->at(0).shape());
    EXPECT_EQ(n, values<int64_t>(tuple->at(0)));
}

TEST_F(PushModes, ManySlots) {
    const Queue queue = make_queue({2, std::vector<SlotSpec>(20, {{1}, DType::int64})});
    Numbers n(20);
    std::vector<TensorView> tensors;
    for (size_t i = 0; i < n.size(); i++) {
        n[i] = static_cast<int64_t>(i * i);
        tensors.push_back(view(&n[i], {1}));
    }
    queue.push(tensors);
    const auto tuple = queue.pop();
    ASSERT_EQ(20u, tuple->size());
    size_t i = 0;
    for (const TensorView tensor : *tuple) EXPECT_EQ(n[i++], tensor.values<int64_t>()[0]);
    EXPECT_EQ(20u, i);
}

// Small and large tuples are copied by different code: in Go up to 64 KiB, in C above that.
TEST_F(PushModes, EverySize) {
    const Queue queue = make_queue({1, {{{-1}, DType::uint8}}});
    for (size_t size :
         {1, 63, 64, 65, 1000, 4095, 4096, 4097, 65536, 100000, 1 << 20, (1 << 20) + 1, 5000000}) {
        std::vector<uint8_t> bytes(size);
        for (size_t i = 0; i < size; i++) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
        queue.push({view(bytes)});
        const auto tuple = queue.pop();
        ASSERT_EQ(size, tuple->at(0).nbytes());
        ASSERT_EQ(0, std::memcmp(bytes.data(), tuple->at(0).data(), size)) << size;
    }
}

TEST_F(PushModes, ATuplePassesOnToAnotherQueue) {
    const std::vector<SlotSpec> slots = {{{-1}, DType::int64, 1}};
    const Queue first = make_queue({1, slots}), second = make_queue({1, slots}, "second");
    const Numbers n = {1, 2, 3};
    const LoD lod{{0, 1, 3}};
    first.push({view(n).with_lod(lod)});
    second.push(*first.pop());
    const auto tuple = second.pop();
    EXPECT_EQ(n, values<int64_t>(tuple->at(0)));
    EXPECT_EQ((Numbers{0, 1, 3}), offsets(tuple->at(0), 0));
}

// The structs of an array lie as far apart as the size of the first one says, which may be larger than the library's.
TEST_F(PushModes, LongerStructs) {
    struct Longer {
        pf_tensor tensor = PF_TENSOR_INIT;
        uint64_t of_the_future[3] = {~0ull, ~0ull, ~0ull};
    };
    const Queue queue = make_queue({1, {{{-1}, DType::int64}, {{-1}, DType::float32}}});
    const Numbers n = {1, 2};
    const Floats f = {3, 4};
    const TensorView views[2] = {view(n), view(f)};
    Longer tensors[2];
    for (int i = 0; i < 2; i++) {
        tensors[i].tensor = views[i].raw();
        tensors[i].tensor.size = sizeof(Longer);
    }
    CError err;
    EXPECT_STATUS(PF_OK, pf_queue_push(queue.handle(), &tensors[0].tensor, 2, PF_PASS_CURRENT, nullptr, &err))
        << err.message();
    const auto tuple = queue.pop();
    EXPECT_EQ(n, values<int64_t>(tuple->at(0)));
    EXPECT_EQ(f, values<float>(tuple->at(1)));

    struct LongerSpec {
        pf_slot_spec spec = PF_SLOT_SPEC_INIT;
        uint64_t of_the_future = ~0ull;
    } specs[2];
    const int64_t any = -1;
    for (LongerSpec &spec : specs) {
        spec.spec.size = sizeof spec;
        spec.spec.rank = 1;
        spec.spec.dims = &any;
    }
    specs[1].spec.dtype = PF_FLOAT32;
    pf_queue_options options = PF_QUEUE_OPTIONS_INIT;
    options.capacity = 1;
    options.num_slots = 2;
    options.slots = &specs[0].spec;
    pf_handle made = 0;
    EXPECT_STATUS(PF_OK, pf_queue_init_once(scope.var("longer").handle(), &options, &made, &err))
        << err.message();
    EXPECT_EQ(DType::float32, Queue::adopt(made).slot(1).dtype);

    // The library zeroes those fields of an output struct that it does not know.
    struct LongerInfo {
        pf_queue_info info = PF_QUEUE_INFO_INIT;
        uint64_t of_the_future = ~0ull;
    } info;
    info.info.size = sizeof info;
    EXPECT_STATUS(PF_OK, pf_queue_stats(queue.handle(), &info.info, &err)) << err.message();
    EXPECT_EQ(1u, info.info.capacity);
    EXPECT_EQ(0u, info.of_the_future);
    EXPECT_EQ(sizeof info, info.info.size);
}

TEST_F(PushModes, UninitialisedStructsAreRefused) {
    const Queue queue = numbers(1);
    const int64_t n = 1;
    const TensorView one = view(&n, {1});
    pf_tensor tensor = one.raw();
    tensor.size = 0;
    CError err;
    EXPECT_STATUS(PF_INVALID, pf_queue_push(queue.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
    EXPECT_NE(std::string::npos, err.message().find("size")) << err.message();
    pf_queue_info info = PF_QUEUE_INFO_INIT;
    info.size = 8;
    EXPECT_STATUS(PF_INVALID, pf_queue_stats(queue.handle(), &info, &err));
    pf_tuple tuple = PF_TUPLE_INIT;
    tuple.size = 0;
    EXPECT_STATUS(PF_INVALID, pf_queue_pop(queue.handle(), nullptr, &tuple, &err));
    // An error struct with size 0 is not written.
    pf_error garbage;
    std::memset(&garbage, 0xff, sizeof garbage);
    garbage.size = 0;
    EXPECT_STATUS(PF_INVALID, pf_queue_push(queue.handle(), &tensor, 1, PF_PASS_CURRENT, nullptr, &garbage));
    EXPECT_EQ(0xff, garbage.status);
}

// ---- Ragged offsets (LoD, level of detail) ----

TEST_F(PushModes, LevelsOfDetailComeThrough) {
    const Queue queue = make_queue({3, {{{-1, 2}, DType::float32, 2}, {{-1}, DType::int64}}});
    Floats x(20);
    for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i);
    const Numbers labels = {0, 1};
    const LoD lod{{0, 2, 3}, {0, 4, 5, 10}};

    const auto check = [&] {
        const auto tuple = queue.pop();
        const TensorView out = tuple->at(0);
        ASSERT_EQ(2u, out.lod_levels());
        EXPECT_EQ((Numbers{0, 2, 3}), offsets(out, 0));
        EXPECT_EQ((Numbers{0, 4, 5, 10}), offsets(out, 1));
        EXPECT_EQ(x, values<float>(out));
        EXPECT_ERROR(InvalidArgument, -1, out.lod(2), "2");
    };
    queue.push({view(x, {10, 2}).with_lod(lod), view(labels)});
    check();
    queue.push_lent({view(x, {10, 2}).with_lod(lod), view(labels)}, [] {});
    check();
    Reservation slot = queue.reserve({tensor_spec<float>({10, 2}).with_lod(lod), tensor_spec<int64_t>({2})});
    EXPECT_EQ((Numbers{0, 4, 5, 10}), offsets(slot[0], 1));
    std::copy(x.begin(), x.end(), slot[0].mutable_data<float>());
    slot.commit();
    check();
}

TEST_F(PushModes, EmptySequences) {
    const Queue queue = make_queue({3, {{{-1}, DType::int64, 1}}});
    const Numbers n = {1, 2};
    queue.push({view(n).with_lod(LoD{{0, 0, 2, 2}})});
    EXPECT_EQ((Numbers{0, 0, 2, 2}), offsets(queue.pop()->at(0), 0));
    queue.push({TensorView(DType::int64, {0}).with_lod(LoD{{0, 0}})});
    EXPECT_EQ((Numbers{0, 0}), offsets(queue.pop()->at(0), 0));
}

// The batch dimension of a tensor with LoD is the number of its sequences.
TEST_F(PushModes, SequencesCountAsInstances) {
    const Queue queue = make_queue({3, {{{-1}, DType::int64, 1}, {{-1}, DType::int64}}});
    const Numbers words = {1, 2, 3, 4, 5}, two = {0, 1}, five(5);
    queue.push({view(words).with_lod(LoD{{0, 3, 5}}), view(two)});
    EXPECT_ERROR(ShapeError, 1, queue.push({view(words).with_lod(LoD{{0, 3, 5}}), view(five)}), "expected 2",
                 "found 5");
}

// ---- Lent ----

// Counts the releases of lent memory; the count can be read at any time.
struct Lender {
    std::shared_ptr<std::atomic<int>> released = std::make_shared<std::atomic<int>>(0);
    std::function<void()> release() const {
        return [released = released] { ++*released; };
    }
    int count() const { return *released; }
};

TEST_F(PushModes, LentMemoryIsNotCopied) {
    const Queue queue = make_queue({2, {{{-1}, DType::int64}, {{-1}, DType::float32}}});
    const Numbers n = {1, 2, 3};
    const Floats f = {4, 5, 6};
    const Lender lender;
    queue.push_lent({view(n), view(f)}, lender.release());
    EXPECT_EQ(36u, memory_stats().live_lent_bytes);
    EXPECT_EQ(0u, memory_stats().live_queue_bytes);
    auto tuple = queue.pop();
    EXPECT_EQ(n.data(), tuple->at(0).data());
    EXPECT_EQ(f.data(), tuple->at(1).data());
    EXPECT_TRUE(tuple->at(0).read_only());
    EXPECT_ERROR(StateError, -1, tuple->at(0).mutable_data<int64_t>(), "read-only");
    EXPECT_EQ(0, lender.count());
    tuple.reset();
    EXPECT_EQ(1, lender.count());
    EXPECT_EQ(0u, memory_stats().live_lent_bytes);
}

TEST_F(PushModes, LentMemoryNeedsNoAlignment) {
    const Queue queue = make_queue({2, {{{-1}, DType::int64}}});
    alignas(64) char bytes[64] = {};
    queue.push_lent({TensorView(DType::int64, {4}, bytes + 3)}, [] {});
    EXPECT_EQ(bytes + 3, queue.pop()->at(0).data());
}

TEST_F(PushModes, StridesThatSayContiguousAreFine) {
    const Queue queue = make_queue({2, {{{-1, 3}, DType::int64}}});
    const Numbers n(6);
    queue.push_lent({view(n, {2, 3}).with_strides({24, 8})}, [] {});
    // The stride of a dimension of length 1 does not matter.
    queue.push_lent({view(n.data(), {1, 3}).with_strides({999, 8})}, [] {});
    EXPECT_EQ(n.data(), queue.pop()->at(0).data());
    EXPECT_FALSE(queue.pop()->at(0).strides());
}

TEST_F(PushModes, AnOwnerIsKept) {
    const Queue queue = make_queue({2, {{{-1}, DType::int64}}});
    auto owner = std::make_shared<Numbers>(Numbers{1, 2});
    const std::weak_ptr<Numbers> watch = owner;
    queue.push_lent({view(*owner)}, owner);
    owner.reset();
    {
        const auto tuple = queue.pop();
        EXPECT_EQ((Numbers{1, 2}), values<int64_t>(tuple->at(0)));
        EXPECT_FALSE(watch.expired());
    }
    EXPECT_TRUE(watch.expired());
}

TEST_F(PushModes, AFunctionAndItsContext) {
    const Queue queue = numbers(2);
    const int64_t n = 1;
    int released = 0;
    queue.push_lent({view(&n, {1})}, [](void *context) { ++*static_cast<int *>(context); }, &released);
    queue.pop();
    EXPECT_EQ(1, released);
}

// The release function of a lent tuple is called exactly once, and never if the push failed.
TEST_F(PushModes, LentMemoryIsReleasedExactlyOnce) {
    const Queue queue = make_queue({2, {{{1}, DType::int64}}, CPUPlace(), 0, false});
    const int64_t n = 1;
    const auto push = [&](const Lender &lender, const Wait &wait = kStuck) {
        queue.push_lent({view(&n, {1})}, lender.release(), wait);
    };
    const Lender popped, dropped, refused, timed_out, blocked, after_close, committed, read_into, shut_down;

    push(popped);
    queue.pop();
    EXPECT_EQ(1, popped.count());

    push(dropped);
    queue.reopen();
    EXPECT_EQ(1, dropped.count());

    const Numbers two(2);
    EXPECT_ERROR(ShapeError, 0, queue.push_lent({view(two)}, refused.release()), "slot 0");

    push(committed);
    push(committed);
    EXPECT_ERROR(Timeout, -1, push(timed_out, 1ms), "time");
    EXPECT_ERROR(Timeout, -1, push(timed_out, Wait::none()), "time");
    auto producer = in_thread([&] { push(blocked); });
    ASSERT_TRUE(producers_wait(queue, 1));
    queue.close();
    EXPECT_ERROR(QueueClosed, -1, producer.get(), "closed");
    EXPECT_ERROR(QueueClosed, -1, push(after_close), "closed");
    queue.pop();
    EXPECT_EQ(1, committed.count());
    queue.pop();
    EXPECT_EQ(2, committed.count());
    queue.reopen();

    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    push(read_into);
    push(read_into);
    read(scope, "reader", {"x"});
    EXPECT_EQ(0, read_into.count());
    std::optional<Tuple> held = scope.find("x").tensor();
    EXPECT_EQ(&n, held->at(0).data());
    read(scope, "reader", {"x"});
    EXPECT_EQ(0, read_into.count());  // the variable is overwritten, but `held` keeps the first tuple
    held.reset();
    EXPECT_EQ(1, read_into.count());
    scope.erase("x");
    EXPECT_EQ(2, read_into.count());

    push(shut_down);
    queue.shutdown();
    EXPECT_EQ(1, shut_down.count());
    EXPECT_ERROR(QueueClosed, -1, push(after_close), "shut down");

    for (const Lender *never : {&refused, &timed_out, &blocked, &after_close}) {
        EXPECT_EQ(0, never->count());
        EXPECT_EQ(1, never->released.use_count());
    }
    for (const Lender *done : {&popped, &dropped, &committed, &read_into, &shut_down}) {
        EXPECT_EQ(1, done->released.use_count());
    }
}

TEST_F(PushModes, LentMemoryIsReleasedWithTheQueue) {
    const int64_t n = 1;
    const Lender lender;
    {
        const Queue queue = numbers(2);
        queue.push_lent({view(&n, {1})}, lender.release());
        scope.erase("feeder");
        EXPECT_EQ(0, lender.count());
    }
    EXPECT_EQ(1, lender.count());
}

TEST_F(PushModes, ALentTupleWithoutBytesIsReleasedToo) {
    const Queue queue = make_queue({2, {{{-1}, DType::int64}}});
    const Lender lender;
    queue.push_lent({TensorView(DType::int64, {0})}, lender.release());
    queue.pop();
    EXPECT_EQ(1, lender.count());
}

// ---- Written in place ----

TEST_F(PushModes, ASlotIsTheQueuesMemory) {
    const Queue queue = make_queue({2, {{{-1, 3}, DType::float32}, {{-1}, DType::int64}}});
    Reservation slot = queue.reserve({tensor_spec<float>({2, 3}), tensor_spec<int64_t>({2})});
    ASSERT_EQ(2u, slot.size());
    EXPECT_EQ((Shape{2, 3}), slot[0].shape());
    EXPECT_EQ(24u, slot[0].nbytes());
    EXPECT_EQ(DType::int64, slot.at(1).dtype());
    EXPECT_FALSE(slot[0].read_only());
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(slot[0].data()) % 64);
    const void *memory = slot[0].data();
    for (int i = 0; i < 6; i++) slot[0].mutable_data<float>()[i] = static_cast<float>(i);
    slot[1].mutable_data<int64_t>()[0] = 7;
    slot[1].mutable_data<int64_t>()[1] = 8;
    EXPECT_EQ(0u, queue.size());
    slot.commit();
    EXPECT_EQ(0u, slot.size());
    EXPECT_EQ(1u, queue.size());

    const auto tuple = queue.pop();
    EXPECT_EQ(memory, tuple->at(0).data());
    EXPECT_EQ((Floats{0, 1, 2, 3, 4, 5}), values<float>(tuple->at(0)));
    EXPECT_EQ((Numbers{7, 8}), values<int64_t>(tuple->at(1)));
}

TEST_F(PushModes, ASlotThatIsNotCommittedIsDropped) {
    const Queue queue = numbers(1);
    {
        const Reservation slot = queue.reserve({tensor_spec<int64_t>({1})});
    }
    try {
        const Reservation slot = queue.reserve({tensor_spec<int64_t>({1})}, Wait::none());
        throw std::runtime_error("while it is written");
    } catch (const std::runtime_error &) {
    }
    EXPECT_EQ(0u, queue.stats().reserved_tuples);
    EXPECT_EQ(0u, queue.stats().pushed);
    push_number(queue, 1, Wait::none());
}

TEST_F(PushModes, CommitTwice) {
    const Queue queue = numbers(2);
    Reservation slot = queue.reserve({tensor_spec<int64_t>({1})});
    slot.commit();
    EXPECT_ERROR(StateError, -1, slot.commit(), "expected a reservation");
    EXPECT_EQ(1u, queue.size());
}

TEST_F(PushModes, ASlotCanBeLookedAtAfterItsCommit) {
    const Queue queue = numbers(1);
    Reservation slot = queue.reserve({tensor_spec<int64_t>({1})});
    slot[0].mutable_data<int64_t>()[0] = 7;
    const Tuple look = slot.share();
    slot.commit();
    {
        const auto tuple = queue.pop();
        EXPECT_EQ(look[0].data(), tuple->at(0).data());
    }
    EXPECT_EQ(7, number(look));
}

TEST_F(PushModes, AShareOfADroppedSlotStays) {
    const Queue queue = numbers(1);
    std::optional<Reservation> slot = queue.reserve({tensor_spec<int64_t>({1})});
    slot->at(0).mutable_data<int64_t>()[0] = 7;
    const Tuple look = slot->share();
    slot.reset();
    EXPECT_EQ(0u, queue.stats().reserved_tuples);
    push_number(queue, 8);
    EXPECT_EQ(7, number(look));
    Reservation none = queue.reserve({tensor_spec<int64_t>({1})},
                                     Wait(kStuck).poll([&] { return queue.pop(), false; }, 1ms));
    none.drop();
    EXPECT_ERROR(StateError, -1, none.share(), "released");
}

TEST_F(PushModes, CommitZeroesTheStruct) {
    const Queue queue = numbers(2);
    const TensorView one = tensor_spec<int64_t>({1});
    const pf_tensor wanted = one.raw();
    for (const bool closed : {false, true}) {
        pf_tuple slot = PF_TUPLE_INIT;
        CError err;
        ASSERT_EQ(PF_OK, pf_queue_reserve(queue.handle(), &wanted, 1, PF_PASS_CURRENT, nullptr, &slot, &err));
        if (closed) queue.close();
        EXPECT_STATUS(closed ? PF_CLOSED : PF_OK, pf_queue_commit(&slot, &err));
        EXPECT_EQ(sizeof slot, slot.size);
        EXPECT_EQ(0u, slot.num_slots);
        EXPECT_EQ(nullptr, slot.slots);
        EXPECT_EQ(0u, slot.loan);
    }
}

TEST_F(PushModes, SlotsOfManyThreadsAtOnce) {
    const Queue queue = make_queue({4, {{{-1}, DType::int64}}});
    std::vector<std::future<void>> writers;
    for (int64_t w = 0; w < 4; w++) {
        writers.push_back(in_thread([&, w] {
            for (int64_t i = 0; i < 200; i++) {
                Reservation slot = queue.reserve({tensor_spec<int64_t>({100})}, kStuck);
                int64_t *out = slot[0].mutable_data<int64_t>();
                for (int k = 0; k < 100; k++) out[k] = w * 1000 + i;
                slot.commit();
            }
        }));
    }
    Numbers next(4);
    for (int n = 0; n < 800; n++) {
        const auto tuple = queue.pop(kStuck);
        const auto got = tuple->at(0).values<int64_t>();
        for (const int64_t value : got) ASSERT_EQ(got[0], value);
        ASSERT_EQ(next[static_cast<size_t>(got[0] / 1000)]++, got[0] % 1000);
    }
    for (auto &w : writers) w.get();
}

}  // namespace

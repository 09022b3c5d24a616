// Tuples at devices. CMakeLists.txt runs Device.* on the host emulation and on the fake driver, and NoDriver.* with an
// empty file in place of libcuda.so.1.
#include <pyfeed_program.hpp>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// ---- Without a driver -----------------------------------------------------------------------------

class NoDriver : public Feed {};

constexpr const char *kReason = "libcuda.so.1: file too short";

TEST_F(NoDriver, EverythingSaysWhy) {
    EXPECT_FALSE(cuda::available());
    EXPECT_NE(std::string::npos, cuda::reason().find(kReason)) << cuda::reason();
    EXPECT_ERROR(UnsupportedError, -1, cuda::device_count(), kReason);
    EXPECT_ERROR(UnsupportedError, -1, cuda::memory_info(0), kReason);
    EXPECT_ERROR(UnsupportedError, -1, cuda::device_name(3), kReason);
    uint8_t available = 77;
    EXPECT_STATUS(PF_OK, pf_cuda_available(&available, nullptr, nullptr));
    EXPECT_EQ(0, available);
}

TEST_F(NoDriver, PlacesAreRefused) {
    for (const Place place : {CUDAPlace(0), CUDAPlace(3), CUDAPinnedPlace()}) {
        for (int i = 0; i < 2; i++) {
            QueueHolder holder{scope.var("feeder")};
            EXPECT_ERROR(UnsupportedError, -1, holder.init_once({1, {{{1}, DType::int64}}, place}), kReason);
            EXPECT_ERROR(StateError, -1, holder.feeder(), "init_once");
            EXPECT_ERROR(UnsupportedError, -1, get_buffer(place, 2), kReason);
            EXPECT_ERROR(UnsupportedError, -1, Executor{place}, kReason);
        }
    }
    const Queue queue = numbers(1);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    EXPECT_ERROR(UnsupportedError, -1, reader.double_buffer(CUDAPlace(1), 2), kReason);
    EXPECT_ERROR(UnsupportedError, -1, reader.double_buffer({CUDAPlace(0), CUDAPlace(1)}, 2), kReason);
    push_number(queue, 7);  // the reader is unchanged
    EXPECT_EQ(7, next_number(reader));
}

// ---- Tuples in host memory ------------------------------------------------------------------------

TEST_F(NoDriver, TuplesOfTheHostNeedNone) {
    const Queue queue = numbers(2);
    push_number(queue, 7);
    push_number(queue, 8);
    Tuple tuple = std::move(*queue.pop());
    tuple.use(5);
    tuple.synchronize();
    EXPECT_EQ(Numbers{7}, tuple.download<int64_t>(0));
    EXPECT_ERROR(DTypeError, -1, tuple.download<float>(0), "float32", "int64");
    EXPECT_ERROR(InvalidArgument, -1, tuple.download<int64_t>(1), "no slot 1");
    int64_t room[2];
    EXPECT_ERROR(SlotCountError, -1, tuple.download(1, room, 8), "0 to 0", "found 1");
    EXPECT_ERROR(InvalidArgument, 0, tuple.download(0, room, 16), "expected 8", "found 16");

    pf_tuple copy = tuple.raw();
    tuple.release(5);
    EXPECT_EQ(0u, tuple.size());
    tuple.release(5);  // a second release does nothing
    CError err;
    EXPECT_STATUS(PF_STATE, pf_tuple_release_on(&copy, 5, &err));
    EXPECT_NE(0u, copy.loan);  // unchanged by the refused call
    EXPECT_STATUS(PF_STATE, pf_tuple_use(&copy, 5, &err));
    EXPECT_STATUS(PF_STATE, pf_tuple_synchronize(&copy, nullptr, &err));
    EXPECT_STATUS(PF_STATE, pf_tuple_download(&copy, 0, room, 8, &err));
    EXPECT_NE(std::string::npos, err.message().find("released already")) << err.message();
    copy.size--;
    EXPECT_STATUS(PF_INVALID, pf_tuple_use(&copy, 5, &err));
    EXPECT_EQ(8, number(*queue.pop()));
}

TEST_F(NoDriver, PinnedMemoryIsPushedAsTheHosts) {
    const Queue queue = numbers(1);
    const int64_t n = 9;
    queue.push({view(&n, {1}).with_place(CUDAPinnedPlace())}, Wait::none());
    EXPECT_EQ(9, number(*queue.pop()));
}

// ---- At a device ----------------------------------------------------------------------------------

class Device : public Feed {
protected:
    Queue numbers_at(Place place, uint64_t capacity) {
        return make_queue({capacity, {{{1}, DType::int64}}, place});
    }
    static int64_t downloaded(const Tuple &tuple) { return tuple.download<int64_t>(0).at(0); }
};

class NoMemory : public Device {};

TEST_F(Device, WhatThereIs) {
    EXPECT_TRUE(cuda::available());
    EXPECT_EQ("", cuda::reason());
    const uint32_t devices = cuda::device_count();
    EXPECT_LE(1u, devices);
    const cuda::MemoryInfo memory = cuda::memory_info();
    EXPECT_LT(0u, memory.total);
    EXPECT_LE(memory.free, memory.total);
    EXPECT_NE("", cuda::device_name(devices - 1));
    const std::string found = "CUDAPlace(" + std::to_string(devices) + ")";
    EXPECT_ERROR(InvalidArgument, -1, cuda::memory_info(devices), found,
                 "0 to " + std::to_string(devices - 1));
    EXPECT_ERROR(InvalidArgument, -1, cuda::device_name(0xffffffff), "expected a device");
    EXPECT_ERROR(InvalidArgument, -1, numbers_at(CUDAPlace(static_cast<int32_t>(devices)), 1), found);
    EXPECT_ERROR(InvalidArgument, -1, numbers_at(CUDAPlace(-1), 1), "CUDAPlace(-1)");
}

TEST_F(Device, ATupleIsThereWhenItWasWaitedFor) {
    const Queue queue = make_queue(
        {2, {{{-1, 3}, DType::float32}, {{-1}, DType::int32, 1}, {{}, DType::bool_}}, CUDAPlace(0)});
    const Floats x = {1, 2, 3, 4, 5, 6};
    const std::vector<int32_t> y = {7, 8, 9};
    const bool z = true;
    queue.push({view(x, {2, 3}), view(y).with_lod(LoD{{0, 1, 3}}), view(&z, {})});
    Tuple tuple = std::move(*queue.pop());
    ASSERT_EQ(3u, tuple.size());
    for (const TensorView slot : tuple) EXPECT_EQ(CUDAPlace(0), slot.place());
    EXPECT_EQ((Shape{2, 3}), tuple[0].shape());
    EXPECT_EQ((Numbers{0, 1, 3}), offsets(tuple[1], 0));  // the offsets are in host memory

    tuple.use(1);
    tuple.use(uint64_t{1});
    tuple.use(static_cast<void *>(nullptr));
    tuple.synchronize(kStuck);
    EXPECT_EQ(x, tuple.download<float>(0));
    EXPECT_EQ(y, tuple.download<int32_t>(1));
    EXPECT_EQ(std::vector<uint8_t>{1}, tuple.download<uint8_t>(2));

    Tuple shared = tuple.share();
    tuple.release(1);
    EXPECT_EQ(x, shared.download<float>(0));
    shared.release();
    EXPECT_EQ(0u, memory_stats().tuples_on_loan);
}

TEST_F(Device, TheHostIsKeptOutOfIt) {
    const Queue queue = numbers_at(CUDAPlace(0), 1);
    const Queue host = make_queue({1, {{{1}, DType::int64}}}, "host");
    push_number(queue, 7);
    const Tuple tuple = std::move(*queue.pop());
    if (tuple[0].on_host()) {
        EXPECT_EQ(Numbers{7}, values<int64_t>(tuple[0]));
    } else {
        EXPECT_ERROR(StateError, -1, tuple[0].values<int64_t>(), "CUDAPlace(0)", "download");
    }
    EXPECT_ERROR(UnsupportedError, 0, host.push(tuple), "slot 0", "CUDAPlace(0)", "download");
    EXPECT_ERROR(UnsupportedError, 0, queue.push(tuple), "slot 0", "CUDAPlace(0)");
    EXPECT_ERROR(UnsupportedError, 0, host.push_lent(tuple, [] {}), "slot 0", "CUDAPlace(0)");
    EXPECT_ERROR(UnsupportedError, 0, scope.var("x").set(tuple[0]), "CUDAPlace(0)");
    EXPECT_EQ(7, downloaded(tuple));
}

TEST_F(Device, DLPack) {
    const Queue queue = numbers_at(CUDAPlace(1), 1);
    push_number(queue, 7);
    auto tuple = std::make_shared<const Tuple>(std::move(*queue.pop()));
    tuple->use(1);
    dlpack::DLManagedTensorVersioned *managed = to_dlpack(tuple, 0);
    const bool on_host = tuple->at(0).on_host();
    EXPECT_EQ(on_host ? dlpack::kCPU : dlpack::kCUDA, managed->dl_tensor.device.device_type);
    EXPECT_EQ(on_host ? 0 : 1, managed->dl_tensor.device.device_id);
    EXPECT_EQ(tuple->at(0).data(), managed->dl_tensor.data);
    EXPECT_EQ(0u, managed->flags);
    tuple.reset();
    EXPECT_EQ(1u, memory_stats().tuples_on_loan);
    managed->deleter(managed);
    EXPECT_EQ(0u, memory_stats().tuples_on_loan);
}

TEST_F(Device, AllTuplesInOrderAtSeveralDevicesInTurn) {
    const Queue queue = this->numbers(4);
    const Reader reader =
        create_py_array_reader(scope, "reader", "feeder").double_buffer({CUDAPlace(0), CUDAPlace(1)}, 2);
    auto producer = in_thread([&] {
        for (int64_t n = 0; n < 101; n++) push_number(queue, n);
        queue.close();
    });
    for (int64_t n = 0; n < 101; n++) {
        auto tuple = reader.next(kStuck);
        ASSERT_TRUE(tuple);
        EXPECT_EQ(CUDAPlace(static_cast<int32_t>(n % 2)), tuple->at(0).place());
        EXPECT_EQ(n, downloaded(*tuple));
        tuple->release(1);
    }
    EXPECT_FALSE(reader.next(kStuck));
    producer.get();
}

// A position does not depend on the places. Where tuples go to several devices in turn, a resumed reader goes on with
// the device whose turn it is.
TEST_F(Device, ResumedReaders) {
    const std::vector<Places> all = {{}, CUDAPlace(0), CUDAPinnedPlace(), {CUDAPlace(0), CUDAPlace(1)}};
    const auto make = [](const Scope &in) {
        create_random_data_generator(in, "random", {{{1}, DType::int64}},
                                     RandomOptions().high(1000).count(40));
        return in.find("random").reader();
    };
    for (size_t from = 0; from < all.size(); from++) {
        for (size_t to = 0; to < all.size(); to++) {
            const Scope one;
            const Reader reader = make(one).shuffle(16, 3).double_buffer(all[from], 3);
            std::vector<std::string> states;
            Numbers numbers;
            for (;;) {
                states.push_back(reader.state());
                auto tuple = reader.next(kStuck);
                if (!tuple) break;
                numbers.push_back(downloaded(*tuple));
                tuple->release(1);
            }
            EXPECT_EQ(40u, numbers.size());
            for (size_t at = 0; at < states.size(); at += 7) {
                const Scope other;
                const Reader resumed = make(other).shuffle(16, 3).double_buffer(all[to], 2);
                resumed.load_state(states[at]);
                for (size_t n = at; n < numbers.size(); n++) {
                    auto tuple = resumed.next(kStuck);
                    ASSERT_TRUE(tuple);
                    EXPECT_EQ(numbers[n], downloaded(*tuple));
                    if (to == 3) {
                        EXPECT_EQ(CUDAPlace(static_cast<int32_t>(n % 2)), tuple->at(0).place());
                    }
                    tuple->release(1);
                }
                EXPECT_FALSE(resumed.next(kStuck));
            }
        }
    }
}

// The position of a reader of a queue at a device, which copies tuples ahead of its consumer.
TEST_F(Device, AResumedQueue) {
    const Queue queue = numbers_at(CUDAPlace(0), 30);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    for (int64_t n = 0; n < 20; n++) push_number(queue, n);
    queue.close();
    for (int64_t n = 0; n < 7; n++) EXPECT_EQ(n, downloaded(*reader.next(kStuck)));
    EXPECT_TRUE(reader.has_next(kStuck));
    const std::string state = reader.state();
    EXPECT_EQ("7", member(state, "n"));
    const Queue again = make_queue({30, {{{1}, DType::int64}}, CUDAPlace(0)}, "again");
    const Reader resumed = create_py_array_reader(scope, "resumed", "again");
    resumed.load_state(state);
    again.set_start(5);
    for (int64_t n = 5; n < 20; n++) push_number(again, n);
    again.close();
    for (int64_t n = 7; n < 20; n++) EXPECT_EQ(n, downloaded(*resumed.next(kStuck)));
    EXPECT_FALSE(resumed.next(kStuck));
}

// A tuple is not overwritten while a consumer holds it, however many tuples the consumers hold and however they
// release them.
TEST_F(Device, ManyThreadsHoldTuples) {
    const Queue queue = numbers_at(CUDAPlace(0), 3);
    auto producer = in_thread([&] {
        for (int64_t n = 0; n < 3000; n++) push_number(queue, n);
        queue.close();
    });
    std::vector<std::future<int64_t>> consumers;
    for (int c = 0; c < 4; c++) {
        consumers.push_back(in_thread([&, c] {
            int64_t sum = 0;
            std::vector<std::pair<Tuple, int64_t>> held;
            for (Tuple &tuple : queue.tuples(kStuck)) {
                tuple.use(c % 3);
                const int64_t n = downloaded(tuple);
                sum += n;
                held.emplace_back(std::move(tuple), n);
                if (held.size() == 3) {
                    auto &[oldest, was] = held.front();
                    EXPECT_EQ(was, downloaded(oldest));
                    if (n % 2 == 0) oldest.release(c % 3);
                    held.erase(held.begin());
                }
            }
            return sum;
        }));
    }
    int64_t sum = 0;
    for (auto &consumer : consumers) sum += consumer.get();
    EXPECT_EQ(3000 * 2999 / 2, sum);
    producer.get();
}

TEST_F(Device, PinnedMemoryIsTheHosts) {
    const Queue queue = numbers_at(CUDAPinnedPlace(), 1);
    push_number(queue, 7);
    const Tuple tuple = std::move(*queue.pop());
    EXPECT_EQ(CUDAPinnedPlace(), tuple[0].place());
    EXPECT_EQ(7, number(tuple));
    EXPECT_LT(0u, memory_stats().pinned_bytes);
    EXPECT_EQ(0u, memory_stats().device_bytes);
    push_number(queue, 8);
    const Tuple again = std::move(*queue.pop());
    queue.push(again);  // pinned memory may be pushed
    EXPECT_EQ(8, number(*queue.pop()));
}

// ---- A device without memory ----------------------------------------------------------------------

// FAKECUDA_FAIL makes the first allocation fail.
TEST_F(NoMemory, IsTheDriversErrorOnce) {
    const Queue queue = numbers_at(CUDAPlace(0), 2);
    push_number(queue, 1);
    push_number(queue, 2);
    try {
        queue.pop(kStuck);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const CudaError &e) {
        EXPECT_EQ(PF_CUDA_ERROR, e.status());
        EXPECT_EQ(2, e.code());
        EXPECT_EQ("CUDA_ERROR_OUT_OF_MEMORY", e.name());
        EXPECT_NE(std::string::npos, std::string(e.what()).find("CUDAPlace(0)")) << e.what();
    }
    EXPECT_EQ(2, downloaded(*queue.pop(kStuck)));
}

}  // namespace

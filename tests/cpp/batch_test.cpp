// The batch reader: it concatenates slots whose first dimension is -1, stacks the others, and merges ragged offsets
// (LoD, level of detail).
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class BatchTest : public Feed {
protected:
    // Returns the sizes of all batches of `n` numbers, and expects the numbers to be 0, 1, 2 and so on.
    Numbers batches(int64_t n, uint64_t size, bool drop_last) {
        const Queue queue = numbers(static_cast<uint64_t>(n + 1));
        const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(size, drop_last);
        for (int64_t i = 0; i < n; i++) push_number(queue, i);
        queue.close();
        Numbers sizes;
        int64_t next = 0;
        for (Tuple &batch : reader) {
            EXPECT_EQ((Shape{batch.at(0).dim(0), 1}), batch.at(0).shape());
            sizes.push_back(batch.at(0).dim(0));
            for (const int64_t value : batch.at(0).values<int64_t>()) EXPECT_EQ(next++, value);
        }
        for (const char *name : {"feeder", "reader", "reader.batch"}) scope.erase(name);
        return sizes;
    }
};

TEST_F(BatchTest, StacksWhatDoesNotGrow) {
    const Queue queue = make_queue({10, {{{2, 3}, DType::float32}, {{}, DType::int64}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2);
    const Floats a = {1, 2, 3, 4, 5, 6}, b = {7, 8, 9, 10, 11, 12};
    const int64_t one = 1, two = 2;
    queue.push({view(a, {2, 3}), view(&one, {})});
    queue.push({view(b, {2, 3}), view(&two, {})});
    const auto batch = reader.next();
    EXPECT_EQ((Shape{2, 2, 3}), batch->at(0).shape());
    EXPECT_EQ((Floats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), values<float>(batch->at(0)));
    EXPECT_EQ((Shape{2}), batch->at(1).shape());
    EXPECT_EQ((Numbers{1, 2}), values<int64_t>(batch->at(1)));
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(batch->at(1).data()) % 64);
}

TEST_F(BatchTest, ConcatenatesWhatGrows) {
    const Queue queue = make_queue({10, {{{-1, 2}, DType::float32}, {{-1}, DType::int64}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(3);
    const Floats a = {1, 2, 3, 4}, b = {5, 6}, none;
    const Numbers la = {1, 2}, lb = {3}, lnone;
    queue.push({view(a, {2, 2}), view(la)});
    queue.push({view(none, {0, 2}), view(lnone)});
    queue.push({view(b, {1, 2}), view(lb)});
    const auto batch = reader.next();
    EXPECT_EQ((Shape{3, 2}), batch->at(0).shape());
    EXPECT_EQ((Floats{1, 2, 3, 4, 5, 6}), values<float>(batch->at(0)));
    EXPECT_EQ((Numbers{1, 2, 3}), values<int64_t>(batch->at(1)));
}

TEST_F(BatchTest, MergesLevelsOfDetail) {
    const Queue queue = make_queue({10, {{{-1}, DType::int64, 1}, {{-1}, DType::int64}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(3);
    const Numbers a = {1, 2, 3, 4, 5}, b = {6}, c = {7, 8}, two = {0, 1}, one = {2};
    queue.push({view(a).with_lod(LoD{{0, 3, 5}}), view(two)});
    queue.push({view(b).with_lod(LoD{{0, 1}}), view(one)});
    queue.push({view(c).with_lod(LoD{{0, 0, 2}}), view(two)});
    const auto batch = reader.next();
    EXPECT_EQ((Numbers{1, 2, 3, 4, 5, 6, 7, 8}), values<int64_t>(batch->at(0)));
    ASSERT_EQ(1u, batch->at(0).lod_levels());
    EXPECT_EQ((Numbers{0, 3, 5, 6, 6, 8}), offsets(batch->at(0), 0));
    EXPECT_EQ((Numbers{0, 1, 2, 0, 1}), values<int64_t>(batch->at(1)));
    EXPECT_EQ(0u, batch->at(1).lod_levels());
}

// The offsets {0,2,4,5,6}/{0,1,6,8,13,15,20} are split into two tuples, and must be the same after the merge.
TEST_F(BatchTest, MergesTwoLevelsOfDetail) {
    const Queue queue = make_queue({10, {{{-1}, DType::int64, 2}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2);
    Numbers a(13), b(7);
    for (size_t i = 0; i < a.size(); i++) a[i] = static_cast<int64_t>(i);
    for (size_t i = 0; i < b.size(); i++) b[i] = static_cast<int64_t>(13 + i);
    queue.push({view(a).with_lod(LoD{{0, 2, 4}, {0, 1, 6, 8, 13}})});
    queue.push({view(b).with_lod(LoD{{0, 1, 2}, {0, 2, 7}})});
    const auto batch = reader.next();
    EXPECT_EQ((Numbers{0, 2, 4, 5, 6}), offsets(batch->at(0), 0));
    EXPECT_EQ((Numbers{0, 1, 6, 8, 13, 15, 20}), offsets(batch->at(0), 1));
    EXPECT_EQ(20, batch->at(0).dim(0));
    for (int64_t i = 0; i < 20; i++) EXPECT_EQ(i, batch->at(0).values<int64_t>()[static_cast<size_t>(i)]);
}

TEST_F(BatchTest, TheLastBatch) {
    EXPECT_EQ((Numbers{2, 2, 1}), batches(5, 2, false));
    EXPECT_EQ((Numbers{2, 2}), batches(5, 2, true));
    EXPECT_EQ((Numbers{2, 2}), batches(4, 2, false));
    EXPECT_EQ((Numbers{2, 2}), batches(4, 2, true));
    EXPECT_EQ((Numbers{3}), batches(3, 100, false));
    EXPECT_EQ((Numbers{}), batches(3, 100, true));
    EXPECT_EQ((Numbers{}), batches(0, 2, false));
    EXPECT_EQ((Numbers{1, 1, 1}), batches(3, 1, true));
    for (const int64_t n : {159, 160, 165, 200}) {
        EXPECT_EQ(static_cast<size_t>((n + 31) / 32), batches(n, 32, false).size());
        EXPECT_EQ(static_cast<size_t>(n / 32), batches(n, 32, true).size());
    }
}

TEST_F(BatchTest, AfterTheEndComesTheNextPass) {
    const Queue queue = numbers(10);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2, true);
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t i = 0; i < 3; i++) push_number(queue, i);
        queue.close();
        EXPECT_EQ((Numbers{0, 1}), values<int64_t>(reader.next()->at(0)));
        EXPECT_FALSE(reader.has_next());
        EXPECT_FALSE(reader.next());
        queue.reopen();
    }
}

TEST_F(BatchTest, ATimeoutLosesNothing) {
    const Queue queue = numbers(10);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(3);
    push_number(queue, 1);
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    push_number(queue, 2);
    EXPECT_ERROR(Timeout, -1, reader.next(1ms), "time");
    EXPECT_ERROR(Timeout, -1, reader.has_next(1ms), "time");
    push_number(queue, 3);
    EXPECT_EQ((Numbers{1, 2, 3}), values<int64_t>(reader.next()->at(0)));
}

TEST_F(BatchTest, AFailureComesAfterTheTuplesBeforeIt) {
    const Queue queue = numbers(10);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2);
    for (int64_t i = 0; i < 3; i++) push_number(queue, i);
    queue.fail("E", "boom");
    EXPECT_EQ((Numbers{0, 1}), values<int64_t>(reader.next()->at(0)));
    EXPECT_EQ((Numbers{2}), values<int64_t>(reader.next()->at(0)));
    EXPECT_ERROR(ProducerError, -1, reader.next(), "boom");
    EXPECT_ERROR(ProducerError, -1, reader.next(), "boom");
}

TEST_F(BatchTest, DimensionsThatDifferWithinABatch) {
    // A later dimension of -1 may differ from tuple to tuple, but not within a batch.
    const Queue queue = make_queue({10, {{{1}, DType::int8}, {{-1, -1}, DType::int64}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2);
    const int8_t k = 0;
    const Numbers n(4);
    queue.push({view(&k, {1}), view(n.data(), {1, 2})});
    queue.push({view(&k, {1}), view(n, {1, 4})});
    EXPECT_ERROR(ShapeError, 1, reader.next(), "slot 1", "expected", "found", "4");
    queue.push({view(&k, {1}), view(n, {1, 4})});
    queue.push({view(&k, {1}), view(n, {1, 4})});
    EXPECT_EQ((Shape{2, 4}), reader.next()->at(1).shape());  // the reader continues after the error
}

TEST_F(BatchTest, BatchesOfBatches) {
    const Queue queue = numbers(10);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2).batch(2);
    for (int64_t i = 0; i < 7; i++) push_number(queue, i);
    queue.close();
    const auto first = reader.next(), second = reader.next();
    EXPECT_EQ((Shape{4, 1}), first->at(0).shape());  // batches are concatenated
    EXPECT_EQ((Numbers{0, 1, 2, 3}), values<int64_t>(first->at(0)));
    EXPECT_EQ((Numbers{4, 5, 6}), values<int64_t>(second->at(0)));
    EXPECT_FALSE(reader.next());
}

TEST_F(BatchTest, TheNameIsTheCallers) {
    const Queue queue = numbers(10);
    const Reader reader = create_py_array_reader(scope, "reader", "feeder");
    EXPECT_EQ("reader.batch", reader.batch(2).name());
    EXPECT_EQ("reader.batch2", reader.batch(3).name());
    EXPECT_EQ("mine", reader.batch(4, false, false, "mine").name());
    EXPECT_EQ("other", create_batch_reader(scope, "other", "reader", 5).name());
    EXPECT_EQ(VarKind::reader, scope.find("reader.batch2").kind());
}

TEST_F(BatchTest, ByTheReadOp) {
    const Queue queue = numbers(10);
    create_py_array_reader(scope, "reader", "feeder");
    create_batch_reader(scope, "batches", "reader", 2, true);
    for (int64_t i = 0; i < 5; i++) push_number(queue, i);
    queue.close();
    EXPECT_TRUE(read(scope, "batches", {"x"}));
    EXPECT_TRUE(read(scope, "batches", {"x"}));
    EXPECT_FALSE(read(scope, "batches", {"x"}));
    EXPECT_EQ((Numbers{2, 3}), values<int64_t>(scope.find("x").tensor()[0]));
}

TEST_F(BatchTest, OfLentTuples) {
    const Queue queue = make_queue({10, {{{-1}, DType::int64}}});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(2);
    const Numbers a = {1, 2}, b = {3};
    int released = 0;
    queue.push_lent({view(a)}, [&] { released++; });
    queue.push_lent({view(b)}, [&] { released++; });
    const auto batch = reader.next();
    EXPECT_EQ(2, released);  // the batch is a copy
    EXPECT_FALSE(batch->at(0).read_only());
    EXPECT_EQ((Numbers{1, 2, 3}), values<int64_t>(batch->at(0)));
}

}  // namespace

// Readers, scopes, variables and the read op.
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class ReaderTest : public Feed {
protected:
    Queue queue = numbers(100);
    Reader reader = create_py_array_reader(scope, "reader", "feeder");

    void push(std::initializer_list<int64_t> all) {
        for (const int64_t n : all) push_number(queue, n);
    }
    int64_t variable(const std::string &name) { return number(scope.find(name).tensor()); }
};

TEST_F(ReaderTest, ReadsTheQueue) {
    push({1, 2, 3});
    queue.close();
    EXPECT_EQ((Numbers{1, 2, 3}), rest(reader));
    EXPECT_EQ(-1, next_number(reader));
    EXPECT_EQ(-1, next_number(reader));
}

TEST_F(ReaderTest, RangeFor) {
    push({1, 2, 3});
    queue.close();
    Numbers got;
    for (Tuple &tuple : reader) got.push_back(number(tuple));
    EXPECT_EQ((Numbers{1, 2, 3}), got);
    queue.reopen();
    push({4, 5});
    queue.close();
    got.clear();
    for (Tuple &tuple : queue) {
        got.push_back(number(tuple));
        EXPECT_EQ(1u, memory_stats().tuples_on_loan);  // the loop has released the previous tuple
    }
    EXPECT_EQ((Numbers{4, 5}), got);
}

TEST_F(ReaderTest, ANewPassGoesOn) {
    push({1});
    queue.close();
    EXPECT_EQ((Numbers{1}), rest(reader));
    queue.reopen();
    push({2});
    queue.close();
    EXPECT_EQ((Numbers{2}), rest(reader));
}

TEST_F(ReaderTest, HasNext) {
    push({1, 2});
    EXPECT_TRUE(reader.has_next());
    EXPECT_TRUE(reader.has_next());
    EXPECT_EQ(1u, queue.size());  // has_next has read one tuple ahead
    EXPECT_EQ(1, next_number(reader));
    EXPECT_TRUE(reader.has_next());
    EXPECT_EQ(2, next_number(reader));
    EXPECT_ERROR(Timeout, -1, reader.has_next(Wait::none()), "time");
    queue.close();
    EXPECT_FALSE(reader.has_next());
    EXPECT_FALSE(reader.has_next());
    EXPECT_EQ(-1, next_number(reader));
}

TEST_F(ReaderTest, HasNextWaits) {
    auto asking = in_thread([&] { return reader.has_next(kStuck); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    push({4});
    EXPECT_TRUE(asking.get());
    EXPECT_EQ(4, next_number(reader));
    auto again = in_thread([&] { return reader.has_next(kStuck); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    queue.close();
    EXPECT_FALSE(again.get());
}

TEST_F(ReaderTest, HasNextOfAFailedPass) {
    push({1});
    queue.fail("E", "boom");
    EXPECT_TRUE(reader.has_next());
    EXPECT_EQ(1, next_number(reader));
    EXPECT_ERROR(ProducerError, -1, reader.has_next(), "boom");
    EXPECT_ERROR(ProducerError, -1, reader.next(), "boom");
}

TEST_F(ReaderTest, FailureComesThroughWithAllItSays) {
    push({1});
    queue.fail("MyError", "text", "trace\nback", 42);
    EXPECT_EQ(1, next_number(reader));
    try {
        reader.next();
        FAIL() << "nothing was thrown";
    } catch (const ProducerError &e) {
        EXPECT_EQ("MyError", e.type());
        EXPECT_EQ("text", e.message());
        EXPECT_EQ("trace\nback", e.traceback());
        EXPECT_EQ(42u, e.token());
    }
}

TEST_F(ReaderTest, ReadByManyThreads) {
    std::atomic<int64_t> sum{0};
    std::vector<std::future<void>> reading;
    for (int i = 0; i < 4; i++) {
        reading.push_back(in_thread([&] {
            for (Tuple &tuple : reader.tuples(kStuck)) sum += number(tuple);
        }));
    }
    for (int64_t i = 1; i <= 1000; i++) push_number(queue, i);
    queue.close();
    for (auto &r : reading) r.get();
    EXPECT_EQ(500500, sum);
}

TEST_F(ReaderTest, ABlockedReadDoesNotKeepOthersOut) {
    auto blocked = in_thread([&] { return next_number(reader); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    EXPECT_ERROR(Timeout, -1, reader.has_next(1ms), "time");
    push({1});
    EXPECT_EQ(1, blocked.get());
}

TEST_F(ReaderTest, ATupleOutlivesItsReader) {
    push({6});
    std::optional<Tuple> tuple;
    {
        const Scope inner = scope.child();
        const Reader other = create_py_array_reader(inner, "other", "feeder");
        tuple = other.next();
    }
    EXPECT_EQ(6, number(*tuple));
}

TEST_F(ReaderTest, AReaderKeepsItsQueue) {
    push({6});
    queue.close();
    scope.erase("feeder");
    queue = numbers(1, false);
    EXPECT_EQ((Numbers{6}), rest(reader));
}

TEST_F(ReaderTest, AReaderIsMadeAnewInItsVariable) {
    const Reader second = create_py_array_reader(scope, "reader", "feeder");
    push({1});
    EXPECT_EQ(1, next_number(scope.find("reader").reader()));
    push({2});
    EXPECT_EQ(2, next_number(reader));  // the first reader is no longer in the variable, but still works
}

// ---- The read op ----

TEST_F(ReaderTest, ReadIntoVariables) {
    const Queue pairs = make_queue({4, {{{-1, 2}, DType::float32}, {{-1}, DType::int64, 1}}}, "pairs");
    create_py_array_reader(scope, "pairs_reader", "pairs");
    const Floats x = {1, 2, 3, 4, 5, 6};
    const Numbers y = {7, 8, 9, 10};
    const LoD lod{{0, 1, 1, 4}};
    pairs.push({view(x, {3, 2}), view(y).with_lod(lod)});
    EXPECT_TRUE(read(scope, "pairs_reader", {"x", "y"}));
    EXPECT_EQ(VarKind::tensor, scope.find("x").kind());
    const Tuple tx = scope.find("x").tensor(), ty = scope.find("y").tensor();
    ASSERT_EQ(1u, tx.size());
    EXPECT_EQ((Shape{3, 2}), tx[0].shape());
    EXPECT_EQ(x, values<float>(tx[0]));
    EXPECT_EQ(y, values<int64_t>(ty[0]));
    EXPECT_EQ((Numbers{0, 1, 1, 4}), offsets(ty[0], 0));
}

TEST_F(ReaderTest, ReadMoves) {
    const int64_t n = 5;
    bool released = false;
    queue.push_lent({view(&n, {1})}, [&] { released = true; });
    read(scope, "reader", {"x"});
    EXPECT_EQ(&n, scope.find("x").tensor()[0].data());
    EXPECT_TRUE(scope.find("x").tensor()[0].read_only());
    EXPECT_FALSE(released);
    scope.var("x").set(view(&n, {1}));
    EXPECT_TRUE(released);
}

TEST_F(ReaderTest, ReadAtTheEndLeavesTheVariables) {
    push({3});
    queue.close();
    EXPECT_TRUE(read(scope, "reader", {"x"}));
    EXPECT_FALSE(read(scope, "reader", {"x"}));
    EXPECT_FALSE(read(scope, "reader", {"x"}));
    EXPECT_EQ(3, variable("x"));
}

TEST_F(ReaderTest, ReadIntoTheWrongNumberOfVariablesKeepsTheTuple) {
    push({3});
    EXPECT_ERROR(SlotCountError, -1, read(scope, "reader", {"x", "y"}), "reader", "1", "2");
    EXPECT_ERROR(SlotCountError, -1, read(scope, "reader", std::vector<std::string>{}), "1", "0");
    EXPECT_TRUE(read(scope, "reader", {"x"}));
    EXPECT_EQ(3, variable("x"));
}

TEST_F(ReaderTest, ReadFailureLeavesTheVariables) {
    push({3});
    EXPECT_TRUE(read(scope, "reader", {"x"}));
    queue.fail("E", "boom");
    EXPECT_ERROR(ProducerError, -1, read(scope, "reader", {"x"}), "boom");
    EXPECT_EQ(3, variable("x"));
}

TEST_F(ReaderTest, ReadMakesVariablesInTheScopeItself) {
    push({3, 4});
    scope.var("outer");
    const Scope inner = scope.child();
    EXPECT_TRUE(read(inner, "reader", {"outer"}));
    EXPECT_EQ(3, variable("outer"));  // the variable of the outer scope is used
    EXPECT_TRUE(read(inner, "reader", {"inner"}));
    EXPECT_FALSE(scope.has("inner"));
    EXPECT_TRUE(inner.has("inner"));
}

TEST_F(ReaderTest, ReadWaits) {
    auto reading = in_thread([&] { return read(scope, "reader", {"x"}, kStuck); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    push({8});
    EXPECT_TRUE(reading.get());
    EXPECT_EQ(8, variable("x"));
}

TEST_F(ReaderTest, ReadManyVariables) {
    const Queue wide = make_queue({2, std::vector<SlotSpec>(20, {{1}, DType::int64})}, "wide");
    create_py_array_reader(scope, "wide_reader", "wide");
    Numbers n(20);
    std::vector<TensorView> tensors;
    std::vector<std::string> names;
    for (size_t i = 0; i < 20; i++) {
        n[i] = static_cast<int64_t>(i);
        tensors.push_back(view(&n[i], {1}));
        names.push_back("out" + std::to_string(i));
    }
    wide.push(tensors);
    EXPECT_TRUE(read(scope, "wide_reader", names));
    for (size_t i = 0; i < 20; i++) EXPECT_EQ(n[i], variable(names[i]));
}

TEST_F(ReaderTest, AVariablesTensorStaysWhileItIsLookedAt) {
    push({1, 2, 3});
    read(scope, "reader", {"x"});
    const Tuple first = scope.find("x").tensor();
    const Tuple same = scope.find("x").tensor();
    EXPECT_EQ(first[0].data(), same[0].data());
    read(scope, "reader", {"x"});
    const Tuple second = scope.find("x").tensor();
    const int64_t n = 10;
    scope.var("x").set(view(&n, {1}));
    EXPECT_EQ(1, number(first));
    EXPECT_EQ(2, number(second));
    EXPECT_EQ(10, variable("x"));
    read(scope, "reader", {"x"});
    EXPECT_EQ(3, variable("x"));
    scope.erase("x");
    EXPECT_EQ(1, number(first));
    EXPECT_EQ(1, number(same));
    EXPECT_EQ(2, number(second));
}

// ---- Variables and scopes ----

class ScopeTest : public Feed {};

TEST_F(ScopeTest, VariablesOfANameAreOne) {
    const int64_t n = 4;
    scope.var("x").set(view(&n, {1}));
    EXPECT_EQ(4, number(scope.var("x").tensor()));
    EXPECT_EQ(4, number(scope.find("x").tensor()));
    EXPECT_EQ("x", scope.find("x").name());
    EXPECT_TRUE(scope.has("x"));
    scope.erase("x");
    EXPECT_FALSE(scope.has("x"));
}

TEST_F(ScopeTest, Kinds) {
    EXPECT_EQ(VarKind::empty, scope.var("feeder").kind());
    const Queue queue = numbers(1);
    EXPECT_EQ(VarKind::queue, scope.var("feeder").kind());
    create_py_array_reader(scope, "reader", "feeder");
    EXPECT_EQ(VarKind::reader, scope.var("reader").kind());
    const int64_t n = 4;
    scope.var("tensor").set(view(&n, {1}));
    EXPECT_EQ(VarKind::tensor, scope.var("tensor").kind());
}

TEST_F(ScopeTest, Parents) {
    const Scope inner = scope.child(), innermost = inner.child();
    const int64_t one = 1, two = 2;
    scope.var("x").set(view(&one, {1}));
    EXPECT_EQ(1, number(innermost.find("x").tensor()));
    EXPECT_TRUE(innermost.has("x"));
    inner.var("x").set(view(&two, {1}));
    EXPECT_EQ(2, number(innermost.find("x").tensor()));
    EXPECT_EQ(1, number(scope.find("x").tensor()));
    EXPECT_ERROR(NotFoundError, -1, innermost.erase("x"), "x");  // x belongs to an outer scope
    inner.erase("x");
    EXPECT_EQ(1, number(innermost.find("x").tensor()));
}

TEST_F(ScopeTest, AScopeKeepsItsParent) {
    std::optional<Scope> parent(std::in_place);
    const int64_t one = 1;
    parent->var("x").set(view(&one, {1}));
    const Scope child = parent->child();
    parent.reset();
    EXPECT_EQ(1, number(child.find("x").tensor()));
}

TEST_F(ScopeTest, TheGlobalScopeIsOne) {
    const int64_t n = 4;
    Scope::global().var("scope_test").set(view(&n, {1}));
    EXPECT_EQ(4, number(Scope::global().find("scope_test").tensor()));
    EXPECT_FALSE(scope.has("scope_test"));
    Scope::global().erase("scope_test");
}

TEST_F(ScopeTest, SetCopiesEverything) {
    Floats x = {1, 2, 3, 4, 5, 6};
    const Variable variable = scope.var("x");
    variable.set(view(x, {3, 2}).with_lod(LoD{{0, 1, 2}, {0, 2, 3}}));
    x.assign(6, 0);
    const Tuple tensor = variable.tensor();
    EXPECT_EQ((Shape{3, 2}), tensor[0].shape());
    EXPECT_EQ((Floats{1, 2, 3, 4, 5, 6}), values<float>(tensor[0]));
    ASSERT_EQ(2u, tensor[0].lod_levels());
    EXPECT_EQ((Numbers{0, 2, 3}), offsets(tensor[0], 1));
}

TEST_F(ScopeTest, SetReplacesWhatWasThere) {
    const Queue queue = numbers(1);
    const int64_t n = 4;
    scope.find("feeder").set(view(&n, {1}));
    EXPECT_EQ(4, number(scope.find("feeder").tensor()));
    push_number(queue, 1);  // the handle keeps the queue
}

TEST_F(ScopeTest, ARefusedSetChangesNothing) {
    const int64_t n = 4;
    const Variable variable = scope.var("x");
    variable.set(view(&n, {1}));
    EXPECT_ERROR(InvalidArgument, 0, variable.set(TensorView(DType::int64, {1})), "NULL");
    EXPECT_ERROR(DTypeError, 0, variable.set(TensorView(DType(77), {1}, const_cast<int64_t *>(&n))), "77");
    EXPECT_ERROR(ShapeError, 0, variable.set(view(&n, {1}).with_lod(LoD{{0, 2}})), "level 0");
    EXPECT_EQ(4, number(variable.tensor()));
}

TEST_F(ScopeTest, NamesOfAnyKind) {
    for (const std::string &name : {std::string("größe"), std::string("a b/c"), std::string(10000, 'n')}) {
        scope.var(name);
        EXPECT_TRUE(scope.has(name));
    }
}

}  // namespace

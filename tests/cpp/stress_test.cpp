// Stress tests: many producers and consumers, all push modes, sizes from 8 B to 64 KiB, and random ends, failures and
// timeouts. PYFEED_STRESS_TUPLES in the environment sets the number of tuples.
#include <cstdlib>
#include <mutex>
#include <random>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

uint64_t total_tuples() {
    const char *wanted = std::getenv("PYFEED_STRESS_TUPLES");
    const uint64_t n = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 0;
    return n > 0 ? n : 200000;
}

constexpr uint64_t kProducers = 8;
constexpr int kConsumers = 4;
constexpr size_t kMostWords = 64 * 1024 / 8;

// The words of a tuple are computed from its producer and its sequence number.
uint64_t word(uint64_t head, size_t i) { return head + i * 0x9e3779b97f4a7c15u; }
uint64_t head_of(uint64_t producer, uint64_t sequence) { return producer << 56 | sequence; }

void fill(uint64_t *out, size_t n, uint64_t head) {
    for (size_t i = 0; i < n; i++) out[i] = word(head, i);
}

// From 1 to 8192 words (8 B to 64 KiB), each power of two with the same probability.
size_t random_size(std::mt19937_64 &random) {
    const size_t bits = random() % 14;
    return std::max<size_t>(1, (size_t{1} << bits) - random() % (1 + (size_t{1} << bits) / 2));
}

class Stress : public Feed {
protected:
    struct Totals {
        std::atomic<uint64_t> pushed{0}, lent{0}, released{0}, timeouts{0}, refused{0}, dropped_slots{0};
        std::atomic<uint64_t> popped{0}, ends{0}, failures{0}, cancelled{0};
    };

    // Tries once to push a tuple, with a random push mode. Returns false if the tuple was not queued.
    bool push(const Queue &queue, std::mt19937_64 &random, std::vector<uint64_t> &buffer, size_t n,
              uint64_t head) {
        const uint64_t choice = random() % 8;
        const Wait wait = random() % 4 == 0 ? Wait(std::chrono::microseconds(random() % 300)) : Wait(kStuck);
        try {
            if (choice < 3) {
                fill(buffer.data(), n, head);
                queue.push({view(buffer.data(), {n})}, wait);
            } else if (choice < 4) {  // with a negative stride
                for (size_t i = 0; i < n; i++) buffer[n - 1 - i] = word(head, i);
                queue.push({view(buffer.data() + n - 1, {n}).with_strides({-8})}, wait);
            } else if (choice < 6) {
                auto owner = std::make_unique<std::vector<uint64_t>>(n);
                fill(owner->data(), n, head);
                const TensorView tensor = view(*owner);
                queue.push_lent(
                    {tensor},
                    [this, owner = owner.get()] {
                        delete owner;
                        totals.released++;
                    },
                    wait);
                owner.release();  // the callable owns the memory now
                totals.lent++;
            } else {
                Reservation slot = queue.reserve({tensor_spec<uint64_t>({n})}, wait);
                if (random() % 32 == 0) {
                    totals.dropped_slots++;
                    return false;
                }
                fill(slot[0].mutable_data<uint64_t>(), n, head);
                slot.commit();
            }
        } catch (const Timeout &) {
            totals.timeouts++;
            return false;
        } catch (const QueueClosed &) {
            totals.refused++;
            return false;
        }
        totals.pushed++;
        return true;
    }

    // Tries once to pop a tuple.
    std::optional<Tuple> pop(const Queue &queue, std::mt19937_64 &random) {
        try {
            if (random() % 64 == 0) {
                const CancelToken token;
                token.cancel();
                return queue.pop(Wait().cancel(token));
            }
            const bool short_wait = random() % 4 == 0;
            auto tuple = queue.pop(short_wait ? Wait(std::chrono::microseconds(random() % 300)) : Wait(20ms));
            if (!tuple) totals.ends++;
            return tuple;
        } catch (const Timeout &) {
            totals.timeouts++;
        } catch (const Cancelled &) {
            totals.cancelled++;
        } catch (const ProducerError &e) {
            EXPECT_EQ("chaos", e.type());
            totals.failures++;
        }
        return std::nullopt;
    }

    // Expects all words of a tuple to be right; returns the producer and the number of the tuple.
    static uint64_t check(const Tuple &tuple) {
        const auto words = tuple.at(0).values<uint64_t>();
        const uint64_t head = words[0];
        bool whole = true;
        for (size_t i = 0; i < words.size(); i++) whole &= words[i] == word(head, i);
        EXPECT_TRUE(whole) << "tuple " << (head & ~(uint64_t{0xff} << 56)) << " of producer " << (head >> 56)
                           << " has " << words.size() << " words, some of them wrong";
        return head;
    }

    Totals totals;
};

// Each pass ends by a close or a failure. The next pass begins when the queue is empty, so no tuple may be dropped.
TEST_F(Stress, EachTupleExactlyOnceInOrder) {
    const uint64_t per_producer = (total_tuples() + kProducers - 1) / kProducers;
    const Queue queue = make_queue({16, {{{-1}, DType::uint64}}, {}, 400 * 1024});
    std::atomic<uint64_t> producing{kProducers};
    std::atomic<bool> done{false};

    std::vector<std::future<void>> threads;
    for (uint64_t p = 0; p < kProducers; p++) {
        threads.push_back(in_thread([&, p] {
            std::mt19937_64 random(p);
            std::vector<uint64_t> buffer(kMostWords);
            for (uint64_t sequence = 0; sequence < per_producer;) {
                const size_t n = random_size(random);
                if (push(queue, random, buffer, n, head_of(p, sequence))) {
                    sequence++;
                } else if (queue.stats().closed) {
                    std::this_thread::yield();
                }
            }
            producing--;
        }));
    }

    // How often each tuple was popped. Each consumer also checks the order of each producer's tuples.
    std::vector<std::vector<std::atomic<uint8_t>>> seen(kProducers);
    for (auto &s : seen) s = std::vector<std::atomic<uint8_t>>(per_producer);
    for (int c = 0; c < kConsumers; c++) {
        threads.push_back(in_thread([&, c] {
            std::mt19937_64 random(100 + static_cast<uint64_t>(c));
            std::vector<int64_t> last(kProducers, -1);
            std::vector<Tuple> held;  // tuples that the consumer keeps for a while
            while (!done) {
                auto tuple = pop(queue, random);
                if (!tuple) continue;
                totals.popped++;
                const uint64_t head = check(*tuple), p = head >> 56;
                const auto sequence = static_cast<int64_t>(head & ~(uint64_t{0xff} << 56));
                ASSERT_LT(p, kProducers);
                ASSERT_LT(static_cast<uint64_t>(sequence), per_producer);
                EXPECT_GT(sequence, last[p]) << "out of order, producer " << p;
                last[p] = sequence;
                EXPECT_EQ(0, seen[p][static_cast<size_t>(sequence)].fetch_add(1)) << "delivered twice";
                if (random() % 8 == 0) held.push_back(std::move(*tuple));
                if (held.size() > 3) held.erase(held.begin());
            }
        }));
    }

    auto chaos = in_thread([&] {
        std::mt19937_64 random(4711);
        const auto drained = [&] {
            const QueueInfo info = queue.stats();
            return info.num_tuples == 0;
        };
        while (producing > 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
            if (random() % 2 == 0) {
                queue.close();
            } else {
                queue.fail("chaos", "on purpose");
            }
            EXPECT_TRUE(eventually(drained));
            EXPECT_EQ(0u, queue.reopen().dropped);
        }
    });
    chaos.get();
    const uint64_t all = kProducers * per_producer;
    EXPECT_TRUE(eventually([&] { return totals.popped >= all; }));
    done = true;
    for (auto &t : threads) t.get();

    EXPECT_EQ(all, totals.popped);
    for (uint64_t p = 0; p < kProducers; p++) {
        for (uint64_t s = 0; s < per_producer; s++)
            ASSERT_EQ(1, seen[p][s]) << "producer " << p << " tuple " << s;
    }
    EXPECT_EQ(totals.lent, totals.released);
    const QueueInfo info = queue.stats();
    EXPECT_EQ(all, info.pushed);
    EXPECT_EQ(all, info.popped);
    EXPECT_EQ(0u, info.dropped);
    EXPECT_EQ(0u, info.num_tuples + info.reserved_tuples + info.bytes);
    EXPECT_EQ(0u, info.waiting_producers + info.waiting_consumers);
    EXPECT_EQ(0u, memory_stats().live_queue_bytes);
    EXPECT_EQ(0u, memory_stats().live_lent_bytes);
    std::printf(
        "  %llu tuples in %llu passes: %llu refused, %llu timeouts, %llu ends, %llu failures\n",
        static_cast<unsigned long long>(all), static_cast<unsigned long long>(info.pass + 1),
        static_cast<unsigned long long>(totals.refused), static_cast<unsigned long long>(totals.timeouts),
        static_cast<unsigned long long>(totals.ends), static_cast<unsigned long long>(totals.failures));
}

// Passes are reopened while tuples are queued. Each pushed tuple is popped or counted as dropped, and no consumer gets
// a tuple of a pass that has not begun.
TEST_F(Stress, ReopenedAtAnyTime) {
    const uint64_t wanted = std::max<uint64_t>(total_tuples() / 10, 1000);
    const Queue queue = make_queue({8, {{{-1}, DType::uint64}}, {}, 200 * 1024});
    std::atomic<bool> done{false}, drained{false};

    std::vector<std::future<void>> producers, consumers;
    for (uint64_t p = 0; p < kProducers; p++) {
        producers.push_back(in_thread([&, p] {
            std::mt19937_64 random(p);
            std::vector<uint64_t> buffer(kMostWords);
            // The tuple holds the pass as read before the push, so the push belongs to this pass or a later one.
            while (!done) push(queue, random, buffer, random_size(random), head_of(p, queue.stats().pass));
        }));
    }
    for (int c = 0; c < kConsumers; c++) {
        consumers.push_back(in_thread([&, c] {
            std::mt19937_64 random(100 + static_cast<uint64_t>(c));
            while (!drained) {
                const uint64_t before = queue.stats().pass;
                const auto tuple = pop(queue, random);
                if (!tuple) continue;
                totals.popped++;
                const uint64_t pass = check(*tuple) & ~(uint64_t{0xff} << 56);
                EXPECT_LE(pass, queue.stats().pass);
                (void)before;
            }
        }));
    }
    uint64_t dropped = 0;
    std::mt19937_64 random(4711);
    while (totals.pushed < wanted) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        if (random() % 4 == 0) queue.close();
        dropped += queue.reopen().dropped;
    }
    done = true;
    for (auto &p : producers) p.get();
    EXPECT_TRUE(eventually([&] { return queue.is_empty(); }));
    drained = true;
    for (auto &c : consumers) c.get();

    const QueueInfo info = queue.stats();
    EXPECT_EQ(totals.pushed, totals.popped + dropped);
    EXPECT_EQ(totals.pushed, info.pushed);
    EXPECT_EQ(totals.popped, info.popped);
    EXPECT_EQ(dropped, info.dropped);
    EXPECT_EQ(totals.lent, totals.released);
    EXPECT_EQ(0u, info.num_tuples + info.reserved_tuples + info.bytes);
    EXPECT_EQ(0u, memory_stats().live_queue_bytes + memory_stats().live_lent_bytes);
}

// A batch reader is reset by several threads while they read from it.
TEST_F(Stress, ReadersResetAtAnyTime) {
    const uint64_t wanted = std::max<uint64_t>(total_tuples() / 10, 1000);
    const Queue queue = make_queue({8, {{{1}, DType::int64}}, CPUPlace(), 0, true});
    const Reader reader = create_py_array_reader(scope, "reader", "feeder").batch(4);

    // Each pass has 37 consecutive numbers.
    auto producer = in_thread([&] {
        uint64_t pass = PF_PASS_NONE;
        try {
            for (;;) {
                pass = queue.wait_pass(pass, kStuck);
                try {
                    for (int64_t i = 0; i < 37; i++) {
                        push_number(queue, static_cast<int64_t>(pass) * 100 + i, kStuck, pass);
                    }
                    queue.close(pass);
                } catch (const QueueClosed &) {
                }
            }
        } catch (const QueueClosed &) {
        }
    });
    std::atomic<uint64_t> got{0}, passes{0};
    std::atomic<bool> done{false};
    std::vector<std::future<void>> threads;
    for (int c = 0; c < 3; c++) {
        threads.push_back(in_thread([&, c] {
            std::mt19937_64 random(static_cast<uint64_t>(c));
            while (!done) {
                try {
                    if (random() % 4 == 0) reader.has_next(5ms);
                    const auto batch = reader.next(20ms);
                    if (!batch) {
                        passes++;
                        reader.reset();
                        continue;
                    }
                    const auto numbers = batch->at(0).values<int64_t>();
                    got += numbers.size();
                    for (size_t i = 1; i < numbers.size(); i++)
                        EXPECT_EQ(numbers[0] + static_cast<int64_t>(i), numbers[i]);
                    EXPECT_EQ(0, numbers[0] % 100 % 4);
                    if (random() % 50 == 0) reader.reset();
                } catch (const Cancelled &) {
                } catch (const Timeout &) {
                }
            }
        }));
    }
    EXPECT_TRUE(eventually([&] { return got >= wanted; }));
    done = true;
    for (auto &t : threads) t.get();
    EXPECT_GT(passes, 0u);
    queue.shutdown();
    producer.get();
}

class StressFiles : public Files {};

// Several threads read and reset chains of readers at any time. The functions in the chains sometimes fail.
TEST_F(StressFiles, ChainsResetAtAnyTime) {
    const std::string tag = new_tag();
    const RegisteredFormat format = register_format(
        tag, {},
        [](const std::string &, const std::string &, const Queue &to) {
            for (int64_t n = 0; n < 300; n++) push_number(to, n);
            if (to.stats().popped % 3 == 0) throw std::runtime_error("at random");
        },
        number_slots());
    std::vector<std::string> raws, others;
    for (int64_t i = 0; i < 5; i++) {
        raws.push_back(store(std::to_string(i) + ".raw", range(0, 50 * i)));
        others.push_back(tag + ":" + store(std::to_string(i), std::string()));
    }
    std::atomic<uint64_t> calls{0};
    const MapFunction function = [&](const Tuple &in, const Emit &emit) {
        const uint64_t call = calls++;
        if (call % 700 == 699) throw std::runtime_error("at random");
        if (call % 5 == 0) std::this_thread::yield();
        emit(in);
    };
    const std::vector<Reader> readers = {
        open_files(scope, "a", raws, raw().num_threads(3).ordered(false))
            .shuffle(50, 1)
            .map(function, 3, MapOptions().ordered(false))
            .batch(3)
            .double_buffer(),
        open_files(scope, "b", others)
            .multi_pass(0)
            .zip(create_random_data_generator(scope, "random", number_slots()))
            .map(function, 2, MapOptions().capacity(5)),
        create_file_reader(scope, "c", others[0]).shard(1, 2).shuffle(16).multi_pass(2).batch(2, true),
        open_files(scope, "d", raws, raw().io("map")).double_buffer({}, 5).map(function, 2).multi_pass(3),
    };
    const uint64_t wanted = total_tuples() / 20;
    std::atomic<uint64_t> got{0};
    std::vector<std::future<void>> threads;
    for (uint64_t t = 0; t < 5; t++) {
        threads.push_back(in_thread([&, t] {
            std::mt19937_64 random(t);
            while (got < wanted) {
                const Reader &reader = readers[random() % readers.size()];
                try {
                    const CancelToken token;
                    if (random() % 50 == 0) token.cancel();
                    const Wait wait = random() % 3 > 0
                                          ? Wait(kStuck)
                                          : Wait(std::chrono::microseconds(random() % 500)).cancel(token);
                    if (random() % 5 == 0) reader.has_next(wait);
                    if (random() % 100 == 0) {
                        EXPECT_EQ('{', reader.stats().front());
                    }
                    const auto tuple = reader.next(wait);
                    if (!tuple || random() % 40 == 0) reader.reset();
                    if (!tuple) continue;
                    for (const int64_t n : tuple->at(0).values<int64_t>()) {
                        EXPECT_LE(0, n);
                        EXPECT_GT(300, n);
                        got++;
                    }
                } catch (const Timeout &) {
                } catch (const Cancelled &) {
                } catch (const ProducerError &e) {
                    EXPECT_EQ("at random", e.message());
                    reader.reset();
                }
            }
        }));
    }
    for (auto &t : threads) t.get();
}

// Several threads create and drop handles, tokens and scopes at the same time.
TEST_F(Stress, HandlesOfManyThreads) {
    const Queue queue = numbers(4);
    std::vector<std::future<void>> threads;
    for (int t = 0; t < 8; t++) {
        threads.push_back(in_thread([&, t] {
            for (int i = 0; i < 500; i++) {
                const Scope inner = scope.child();
                const std::string name = "x" + std::to_string(i % 3);
                const int64_t n = t;
                scope.var(name).set(view(&n, {1}));
                const Queue copy = inner.find("feeder").queue();
                const CancelToken token;
                if (i % 2 == 0) token.cancel();
                try {
                    copy.pop(Wait(std::chrono::microseconds(10)).cancel(token));
                } catch (const Timeout &) {
                } catch (const Cancelled &) {
                }
                EXPECT_LT(number(inner.find(name).tensor()), 8);
            }
        }));
    }
    for (auto &t : threads) t.get();
}

}  // namespace

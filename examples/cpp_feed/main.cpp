// Training in C++, in a process without Python. Threads generate labelled points and push them into a queue. The
// training loop reads them in batches and fits a logistic regression.
//
//     cpp_feed          trains, and prints the accuracy on new points
//     cpp_feed --fail   makes a producer fail, to show the error that the training loop gets
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <pyfeed.hpp>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

constexpr int kProducers = 3;
constexpr int kPointsEach = 20000;
constexpr int kBatchSize = 64;

using Point = std::array<float, 2>;

// Two overlapping clouds of points. The best straight line classifies about 92 % of them correctly.
struct Clouds {
    std::mt19937 random;
    std::normal_distribution<float> noise;

    explicit Clouds(unsigned seed) : random(seed) {}
    int64_t draw(Point &x) {
        const int64_t label = random() % 2;
        for (float &v : x) v = (label == 1 ? 1.0f : -1.0f) + noise(random);
        return label;
    }
};

struct Model {
    Point weights{};
    float bias = 0;

    float probability(const float *x) const {
        return 1 / (1 + std::exp(-(weights[0] * x[0] + weights[1] * x[1] + bias)));
    }
    // Makes one step of gradient descent, and returns the mean loss before the step.
    float learn(const pyfeed::TensorView &xs, const pyfeed::TensorView &labels, float rate) {
        const float *x = xs.data<float>();
        Point gradient{};
        float bias_gradient = 0, loss = 0;
        for (const int64_t label : labels.values<int64_t>()) {
            const float p = probability(x), error = p - static_cast<float>(label);
            gradient[0] += error * x[0];
            gradient[1] += error * x[1];
            bias_gradient += error;
            loss -= std::log(std::max(label == 1 ? p : 1 - p, 1e-7f));
            x += 2;
        }
        const auto n = static_cast<float>(labels.numel());
        for (int i = 0; i < 2; i++) weights[i] -= rate * gradient[i] / n;
        bias -= rate * bias_gradient / n;
        return loss / n;
    }
};

// Threads that fill a queue. The destructor ends and joins them, also if the training fails.
class Producers {
public:
    Producers(pyfeed::Queue queue, bool fail) : queue_(std::move(queue)) {
        for (int i = 0; i < kProducers; i++) {
            threads_.emplace_back([this, i, fail] { run(static_cast<unsigned>(i), fail && i == 1); });
        }
    }
    ~Producers() {
        queue_.shutdown();
        for (std::thread &thread : threads_) thread.join();
    }

private:
    void run(unsigned seed, bool fail) try {
        Clouds clouds(seed);
        Point x;
        for (int i = 0; i < kPointsEach; i++) {
            if (fail && i == 10000) throw std::runtime_error("record 10000 is damaged");
            const int64_t label = clouds.draw(x);
            queue_.push({pyfeed::view(x), pyfeed::view(&label, {})});
        }
        if (--running_ == 0) queue_.close();  // the last producer ends the data
    } catch (const pyfeed::QueueClosed &) {
        // The queue was shut down, or another producer failed it.
    } catch (...) {
        queue_.fail(std::current_exception());  // the training loop gets this exception
    }

    pyfeed::Queue queue_;
    std::atomic<int> running_{kProducers};
    std::vector<std::thread> threads_;
};

float test_accuracy(const Model &model) {
    constexpr int n = 10000;
    Clouds unseen(4711);
    Point x;
    int right = 0;
    for (int i = 0; i < n; i++) {
        const int64_t label = unseen.draw(x);
        right += (model.probability(x.data()) > 0.5f) == (label == 1);
    }
    return static_cast<float>(right) / n;
}

int main(int argc, char **argv) try {
    const bool fail = argc > 1 && std::strcmp(argv[1], "--fail") == 0;

    pyfeed::Scope scope;
    const pyfeed::QueueHolder holder(scope.var("feeder"));
    const pyfeed::Queue queue =
        holder.init_once({256, {{{2}, pyfeed::DType::float32}, {{}, pyfeed::DType::int64}}});
    pyfeed::create_py_array_reader(scope, "points", "feeder");
    pyfeed::create_batch_reader(scope, "batches", "points", kBatchSize);

    Model model;
    const Producers producers(queue, fail);
    float loss = 0;
    for (int step = 1; pyfeed::read(scope, "batches", {"x", "label"}); step++) {
        const pyfeed::Tuple x = scope.find("x").tensor(), label = scope.find("label").tensor();
        loss += model.learn(x[0], label[0], 0.1f);
        if (step % 100 == 0) {
            std::printf("step %4d: loss %.4f, %3zu tuples queued\n", step, loss / 100, queue.size());
            loss = 0;
        }
    }
    std::printf("test accuracy: %.2f\n", test_accuracy(model));
    return 0;
} catch (const pyfeed::ProducerError &e) {
    std::fprintf(stderr, "%s\n", e.what());  // comes after all batches pushed before the failure
    return 1;
} catch (const pyfeed::Error &e) {
    std::fprintf(stderr, "%s: %s\n", pf_status_name(e.status()), e.what());
    return 1;
}

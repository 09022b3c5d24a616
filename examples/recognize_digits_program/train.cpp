// Loads and runs the two programs that build_program.py has written, with the kernels that they call, and checks the
// accuracy. The process needs no Python, and this file contains no code of the training itself.
//
//     train FOLDER [--trace FILE]
//
// With --trace, the program writes a trace to FILE, for https://ui.perfetto.dev, and prints its summary. The trace
// shows what each thread did and waited for. The exit status is 1 if the accuracy on the test images is less than 0.95.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <pyfeed_program.hpp>
#include <stdexcept>
#include <string>

namespace {

constexpr float kGoal = 0.95f;

float train(const std::string &folder) {
    const auto startup = pyfeed::Program::load(folder + "/startup.pb");
    const auto main = pyfeed::Program::load(folder + "/main.pb");

    const pyfeed::Executor executor;
    const pyfeed::Scope scope;
    executor.run(startup, scope);
    const pyfeed::Tuple fetched = executor.run(main, scope, {}, {"accuracy"});
    return fetched[0].values<float>()[0];
}

}  // namespace

int main(int argc, char **argv) try {
    const std::string folder = argc > 1 ? argv[1] : "", option = argc > 2 ? argv[2] : "";
    if (folder.empty() || (argc != 2 && !(argc == 4 && option == "--trace"))) {
        std::fprintf(stderr, "usage: %s FOLDER [--trace FILE]\n", argv[0]);
        return 2;
    }
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    pyfeed::load_kernels((here / "kernels.so").string());

    std::optional<pyfeed::Trace> trace;
    if (argc == 4) {
        // A file that cannot be written should fail before the training, not after it.
        if (!std::ofstream(argv[3], std::ios::app))
            throw std::runtime_error("cannot write to " + std::string(argv[3]));
        trace.emplace();
    }
    const float accuracy = train(folder);
    if (trace) {
        trace->stop();
        trace->save(argv[3]);
        std::printf("%s", trace->table().c_str());
    }
    std::printf("test accuracy: %.2f\n", accuracy);
    if (accuracy < kGoal) {
        std::fprintf(stderr, "expected an accuracy of at least %.2f, found %.4f\n", kGoal, accuracy);
        return 1;
    }
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());  // names the operator and the line that built it
    return 1;
}

// Runs the training that build_program.py has described: loads its two programs and the kernels they call, runs them,
// and looks at the accuracy. There is no Python in the process, and none of the training in this file.
//
//     train FOLDER [--trace FILE]
//
// With --trace, what the threads did and waited for is written to FILE, for https://ui.perfetto.dev, and a table of it
// printed. The exit status is 1 if the network recognizes less than 0.95 of images that it was not trained on.
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
        // To hear before the training, not after it, that the file cannot be written.
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
    std::fprintf(stderr, "%s\n", e.what());  // which operator it was, and where it was built, for one
    return 1;
}

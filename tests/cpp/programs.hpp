// Shared code of the tests of programs: a pair of programs to build and run, and functions that list their operators.
#ifndef PYFEED_TESTS_PROGRAMS_HPP
#define PYFEED_TESTS_PROGRAMS_HPP

#include <pyfeed_program.hpp>

#include "support.hpp"

namespace pyfeed_test {

namespace layers = pyfeed::layers;

// The current main and startup programs, an executor, and a scope to run them in.
class Programs : public Files {
protected:
    pyfeed::Tuple run(const pyfeed::Fetches &fetches = {}, const pyfeed::Wait &wait = kStuck) {
        executor.run(startup, scope, {}, {}, wait);
        return executor.run(main, scope, {}, fetches, wait);
    }

    pyfeed::Program main, startup;
    pyfeed::ProgramGuard guard{main, startup};
    pyfeed::unique_name::Guard names;
    pyfeed::Executor executor;
};

// Returns JSON without the white space between its tokens.
inline std::string dense(std::string_view json) {
    std::string out;
    bool quoted = false;
    for (size_t i = 0; i < json.size(); i++) {
        if (quoted && json[i] == '\\') out += json[i++];
        if (json[i] == '"') quoted = !quoted;
        if (quoted || std::string_view(" \t\r\n").find(json[i]) == std::string_view::npos) out += json[i];
    }
    return out;
}

// Lists the operators of a program, each in a line with its block: 0: less_than(x, y) -> z {"attribute":1}
inline std::string ops(const pyfeed::Program &program) {
    using pyfeed::detail::JsonView;
    const auto names = [](JsonView list) {
        std::string out;
        for (const auto &name : list.as<std::vector<std::string>>().value_or(std::vector<std::string>()))
            out += (out.empty() ? "" : ", ") + name;
        return out;
    };
    const std::string json = program.to_json();
    std::string out;
    int block = 0;
    JsonView(json)["blocks"].any([&](JsonView, JsonView b) {
        b["ops"].any([&](JsonView, JsonView op) {
            out += std::to_string(block) + ": " + op["type"].string() + "(" + names(op["inputs"]) + ")";
            const std::string outputs = names(op["outputs"]), attributes = dense(op["attributes"].text());
            if (!outputs.empty()) out += " -> " + outputs;
            if (!attributes.empty() && attributes != "{}") out += " " + attributes;
            out += '\n';
            return false;
        });
        block++;
        return false;
    });
    return out;
}

template <class T>
T scalar(const pyfeed::Tuple &tuple, size_t slot = 0) {
    return tuple.at(slot).values<T>()[0];
}

// Appends the dtype, the dims and the bytes of each slot of a tuple.
inline void append_bytes(const pyfeed::Tuple &tuple, std::string &out) {
    for (const pyfeed::TensorView tensor : tuple) {
        out += pyfeed::dtype_name(tensor.dtype()) + tensor.shape().to_string();
        out.append(static_cast<const char *>(tensor.data()), tensor.nbytes());
    }
    out += ';';
}

}  // namespace pyfeed_test

#endif  // PYFEED_TESTS_PROGRAMS_HPP

// Programs for C++17: a whole training loop as operators over variables, built here or in Python, saved, and
// run with no Python. Header only. What holds for the classes of pyfeed.hpp holds for these, and:
//
// - Ownership.  Program and Executor are counted handles. RegisteredKernel has one owner and moves. What
//               lasts for a scope (ProgramGuard, unique_name::Guard, While, IfElse and their blocks) stays
//               where it was made, on the thread that made it.
// - Building.   The functions of pyfeed::layers add operators to the current block of the thread's main
//               program. Those that make readers, and the initial values of what persists, go to its startup
//               program; what they make is known in both. One that is refused throws, and is not there.
// - Kernels.    They run on the thread that runs the program. What one throws is ProducerFailed to whoever
//               runs it, in whatever language that is.
#ifndef PYFEED_PROGRAM_HPP
#define PYFEED_PROGRAM_HPP

#include <algorithm>
#include <array>
#include <charconv>
#include <clocale>
#include <cstring>
#include <string_view>
#include <system_error>

#include "pyfeed.hpp"

namespace pyfeed {

// ---- Attributes -----------------------------------------------------------------------------------

class Attributes;

// The value of an attribute: true or false, a number, a string, a list or a map of the same. An integer is no
// float: 1 and 1.0 are two values.
class AttributeValue {
public:
    template <class T, class = std::enable_if_t<detail::is_plain_integer<T> || std::is_same_v<T, bool> ||
                                                std::is_floating_point_v<T>>>
    AttributeValue(T value) {
        if constexpr (std::is_floating_point_v<T>) {
            json_ = number(static_cast<double>(value));
        } else {
            json_ = detail::to_json(value);
        }
    }
    AttributeValue(const char *text) : json_(detail::to_json(std::string(text))) {}
    AttributeValue(const std::string &text) : json_(detail::to_json(text)) {}
    inline AttributeValue(const Attributes &members);
    AttributeValue(std::initializer_list<AttributeValue> values)
        : AttributeValue(values.begin(), values.end()) {}
    template <class T>
    AttributeValue(const std::vector<T> &values) : AttributeValue(values.begin(), values.end()) {}

    const std::string &json() const noexcept { return json_; }

private:
    template <class I>
    AttributeValue(I begin, I end) : json_("[") {
        for (I i = begin; i != end; ++i) json_ += (i != begin ? ", " : "") + AttributeValue(*i).json_;
        json_ += ']';
    }

    // JSON has no numbers but finite ones, and says of none that it is a float.
    static std::string number(double value) {
        if (std::isnan(value)) return R"({"$float": "nan"})";
        if (std::isinf(value)) return value > 0 ? R"({"$float": "inf"})" : R"({"$float": "-inf"})";
        std::string out = detail::to_json(value);
        if (out.find_first_of(".e") == std::string::npos) out += ".0";
        return out;
    }

    std::string json_;
};

// The attributes of an operator or kernel: Attributes{{"rate", 0.1}, {"dims", {3, 4}}}. A map within them has
// to be named, Attributes{...}, else it is a list.
class Attributes {
public:
    Attributes() = default;
    Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> members) {
        for (const auto &[name, value] : members) set(name, value);
    }

    Attributes &set(const std::string &name, AttributeValue value) {
        members_.insert_or_assign(name, std::move(value));
        return *this;
    }
    bool empty() const noexcept { return members_.empty(); }
    // A JSON object.
    std::string json() const {
        std::string out = "{";
        for (const auto &[name, value] : members_) {
            out += (out.size() > 1 ? ", " : "") + detail::to_json(name) + ": " + value.json();
        }
        return out + "}";
    }

private:
    std::map<std::string, AttributeValue> members_;
};

inline AttributeValue::AttributeValue(const Attributes &members) : json_(members.json()) {}

namespace detail {

// A value in JSON text, which is borrowed. The library wrote it: no more is checked than it takes to stay
// within the text.
class JsonView {
public:
    JsonView() = default;
    explicit JsonView(std::string_view text) {
        size_t at = skip(text, 0);
        text_ = take(text, at);
    }

    std::string_view text() const { return text_; }
    bool is(char first) const { return !text_.empty() && text_.front() == first; }
    bool is_string(std::string_view value) const {
        if (text_.find('\\') != std::string_view::npos) return string() == value;
        return is('"') && text_.substr(1, text_.size() - 2) == value;
    }

    // Calls f(name, value) for each member of an object, or element of a list, which has no name, until one
    // answers true; then it does.
    template <class F>
    bool any(F &&f) const {
        if (!is('{') && !is('[')) return false;
        for (size_t at = skip(text_, 1); at + 1 < text_.size();) {
            JsonView name, value;
            if (is('{')) {
                name.text_ = take(text_, at);
                at = skip(text_, at);  // and the colon
            }
            const size_t begin = at;
            value.text_ = take(text_, at);
            if (at == begin) return false;
            if (f(name, value)) return true;
            at = skip(text_, at);  // and the comma
        }
        return false;
    }
    // The member of that name, or nothing.
    JsonView operator[](std::string_view name) const {
        JsonView found;
        any([&](JsonView key, JsonView value) {
            const bool it = key.is_string(name);
            if (it) found = value;
            return it;
        });
        return found;
    }

    std::string string() const {
        std::string out;
        for (size_t i = 1; is('"') && i + 1 < text_.size(); i++) {
            if (text_[i] != '\\') {
                out += text_[i];
                continue;
            }
            switch (const char c = text_[++i]) {
                case 'b':
                    out += '\b';
                    break;
                case 'f':
                    out += '\f';
                    break;
                case 'n':
                    out += '\n';
                    break;
                case 'r':
                    out += '\r';
                    break;
                case 't':
                    out += '\t';
                    break;
                case 'u': {
                    uint32_t code = hex(i + 1);
                    i += 4;
                    if (code >= 0xd800 && code < 0xdc00 && text_.substr(i + 1, 2) == "\\u") {
                        code = 0x10000 + ((code - 0xd800) << 10) + ((hex(i + 3) - 0xdc00) & 0x3ff);
                        i += 6;
                    }
                    append_utf8(code, out);
                    break;
                }
                default:
                    out += c;
            }
        }
        return out;
    }

    // What the value is as a T; nothing if it is none.
    template <class T>
    std::optional<T> as() const {
        if constexpr (std::is_same_v<T, bool>) {
            if (text_ == "true") return true;
            if (text_ == "false") return false;
            return std::nullopt;
        } else if constexpr (std::is_same_v<T, std::string>) {
            return is('"') ? std::optional<T>(string()) : std::nullopt;
        } else if constexpr (std::is_integral_v<T>) {
            T value{};
            const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
            if (error != std::errc() || end != text_.data() + text_.size()) return std::nullopt;
            return value;
        } else if constexpr (std::is_floating_point_v<T>) {
            return number<T>();
        } else {
            return list<T>();
        }
    }

private:
    template <class T>
    std::optional<T> number() const {
        if (is('{')) {
            const JsonView word = (*this)["$float"];
            if (word.is_string("nan")) return std::numeric_limits<T>::quiet_NaN();
            if (word.is_string("inf")) return std::numeric_limits<T>::infinity();
            if (word.is_string("-inf")) return -std::numeric_limits<T>::infinity();
            return std::nullopt;
        }
        if (text_.find_first_not_of("+-.0123456789eE") != std::string_view::npos) return std::nullopt;
        double value = 0;
#if defined(__cpp_lib_to_chars)
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
        if (error != std::errc() || end != text_.data() + text_.size()) return std::nullopt;
#else  // a standard library that knows only integers: C's function, with the point of its locale
        std::string text(text_);
        const size_t point = text.find('.');
        if (point != std::string::npos) text.replace(point, 1, std::localeconv()->decimal_point);
        char *end = nullptr;
        value = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0') return std::nullopt;
#endif
        // What is too small for a float is 0; what is too large is none.
        if (std::fabs(value) > static_cast<double>(std::numeric_limits<T>::max())) return std::nullopt;
        return static_cast<T>(value);
    }
    template <class T>
    std::optional<T> list() const {
        if (!is('[')) return std::nullopt;
        T out;
        const bool wrong = any([&](JsonView, JsonView value) {
            auto element = value.as<typename T::value_type>();
            if (element) out.push_back(std::move(*element));
            return !element;
        });
        return wrong ? std::nullopt : std::optional<T>(std::move(out));
    }

    static size_t skip(std::string_view text, size_t at) {
        return std::min(text.find_first_not_of(" \t\r\n,:", at), text.size());
    }
    // The value at `at`, which moves behind it.
    static std::string_view take(std::string_view text, size_t &at) {
        const size_t begin = at;
        for (int depth = 0; at < text.size(); at++) {
            const char c = text[at];
            if (depth == 0 && at > begin && std::strchr(",:]} \t\r\n", c) != nullptr) break;
            if (c == '{' || c == '[') depth++;
            if (c == '}' || c == ']') {
                if (--depth < 0) break;
            }
            if (c == '"') {
                for (at++; at < text.size() && text[at] != '"'; at++) at += text[at] == '\\';
            }
        }
        at = std::min(at, text.size());
        return text.substr(begin, at - begin);
    }
    uint32_t hex(size_t at) const {
        uint32_t code = 0;
        if (at + 4 <= text_.size()) std::from_chars(text_.data() + at, text_.data() + at + 4, code, 16);
        return code;
    }
    static void append_utf8(uint32_t code, std::string &out) {
        const auto add = [&out](uint32_t byte) {
            out += static_cast<char>(static_cast<unsigned char>(byte));
        };
        if (code < 0x80) return add(code);
        if (code < 0x800) {
            add(0xc0 | code >> 6);
        } else {
            if (code < 0x10000) {
                add(0xe0 | code >> 12);
            } else {
                add(0xf0 | code >> 18);
                add(0x80 | (code >> 12 & 0x3f));
            }
            add(0x80 | (code >> 6 & 0x3f));
        }
        add(0x80 | (code & 0x3f));
    }

    std::string_view text_;
};

inline DType dtype_of_name(JsonView name) {
    for (pf_dtype i = PF_BOOL; i <= PF_COMPLEX128; i++)
        if (name.is_string(pf_dtype_name(i))) return static_cast<DType>(i);
    return DType::any;
}
inline Dims dims_of(JsonView list) {
    return Dims(list.as<std::vector<int64_t>>().value_or(std::vector<int64_t>()));
}

// An IfElse whose other block may yet come is put into its program before anything else is done with that.
inline void finish_pending();

}  // namespace detail

// ---- Programs -------------------------------------------------------------------------------------

// Blocks of operators over variables, for an Executor. The first block is what runs; each other one is the
// body of an operator. Copies are the same program. The functions of pyfeed::layers are the way to fill it.
class Program {
public:
    // An empty one.
    Program()
        : handle_(detail::make([](pf_handle *id, pf_error *err) { return pf_program_create(id, err); })) {}

    // What save() wrote. CorruptRecord if it is damaged, Unsupported if it is of another version, others if
    // it is no program that could run.
    static Program load(const std::string &path) {
        return Program(detail::make(
            [&](pf_handle *id, pf_error *err) { return pf_program_load(path.c_str(), id, err); }));
    }
    // What serialize() or to_json() gave.
    static Program parse(const std::string &bytes) {
        return Program(detail::make([&](pf_handle *id, pf_error *err) {
            return pf_program_parse(bytes.data(), bytes.size(), id, err);
        }));
    }
    // The program of a number that C gave, or Python as program.handle: with a count of its own.
    static Program retain(pf_handle number) {
        return Program(detail::make([number](pf_handle *id, pf_error *err) {
            *id = number;
            return pf_retain(number, err);
        }));
    }

    // Writes it to a file: as JSON if the name ends with .json, else as protobuf. Whole or not at all.
    void save(const std::string &path) const {
        detail::finish_pending();
        detail::Call call;
        call.check(pf_program_save(handle(), path.c_str(), call.err()));
    }
    // Its saved form, protobuf.
    std::string serialize() const { return form("protobuf"); }
    // The same for people to read and edit.
    std::string to_json() const { return form("json"); }
    // A picture of it, as text.
    std::string mermaid() const { return form("mermaid"); }
    std::string graphviz() const { return form("graphviz"); }

    // A copy, to be changed apart from this one.
    Program clone() const {
        detail::finish_pending();
        return Program(detail::make(
            [this](pf_handle *id, pf_error *err) { return pf_program_clone(handle(), id, err); }));
    }

    // Adds a block within block `parent`, for an operator that is added there later.
    uint32_t add_block(uint32_t parent) const {
        detail::finish_pending();
        detail::Call call;
        uint32_t block = 0;
        call.check(pf_program_add_block(handle(), parent, &block, call.err()));
        return block;
    }
    // Adds a variable or an operator to a block: a JSON object, see pyfeed.h.
    void add_variable(uint32_t block, const std::string &variable) const {
        detail::Call call;
        call.check(pf_program_add_variable(handle(), block, variable.c_str(), call.err()));
    }
    void add_op(uint32_t block, const std::string &op) const {
        detail::finish_pending();
        detail::Call call;
        call.check(pf_program_add_op(handle(), block, op.c_str(), call.err()));
    }
    // What is known of a variable in the block or those around it: a JSON object. NotFound if there is none.
    std::string variable(uint32_t block, const std::string &name) const {
        detail::Call call;
        char *json = nullptr;
        call.check(pf_program_get_variable(handle(), block, name.c_str(), &json, call.err()));
        return detail::taken(json);
    }
    bool has(uint32_t block, const std::string &name) const {
        detail::Call call;
        char *json = nullptr;
        const bool found = call.unless(
            PF_NOT_FOUND, pf_program_get_variable(handle(), block, name.c_str(), &json, call.err()));
        pf_string_release(json);
        return found;
    }

    pf_handle handle() const noexcept { return handle_.get(); }

    // Whether they are the same program, not two that look the same.
    friend bool operator==(const Program &a, const Program &b) { return a.handle() == b.handle(); }
    friend bool operator!=(const Program &a, const Program &b) { return !(a == b); }

private:
    explicit Program(detail::Handle handle) : handle_(std::move(handle)) {}

    std::string form(const char *name) const {
        detail::finish_pending();
        detail::Call call;
        char *data = nullptr;
        uint64_t size = 0;
        call.check(pf_program_serialize(handle(), name, &data, &size, call.err()));
        const std::unique_ptr<char, void (*)(char *)> owned(data, pf_string_release);
        return std::string(data, size);
    }

    detail::Handle handle_;
};

namespace layers {
class IfElse;
}

namespace detail {

// Numbers for names, one series for each prefix.
class Names {
public:
    std::string generate(const std::string &prefix) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return prefix + "_" + std::to_string(next_[prefix]++);
    }

private:
    std::mutex mutex_;
    std::map<std::string, uint64_t> next_;
};

// What a thread is building.
struct Building {
    const Program *main = nullptr;  // as the next: null is the process's
    const Program *startup = nullptr;
    uint32_t block = 0;  // of main
    layers::IfElse *pending = nullptr;
    Names *names = nullptr;
};
inline Building &building() noexcept {
    thread_local Building state;
    return state;
}

// The process's are never destroyed: other threads may go on after main() has returned.
inline const Program &current_main() {
    if (building().main != nullptr) return *building().main;
    static const Program *const program = new Program;
    return *program;
}
inline const Program &current_startup() {
    if (building().startup != nullptr) return *building().startup;
    static const Program *const program = new Program;
    return *program;
}
inline Names &current_names() {
    if (building().names != nullptr) return *building().names;
    static Names *const names = new Names;
    return *names;
}

}  // namespace detail

// What the thread is building: the programs of its innermost ProgramGuard, else two that the process has.
inline Program default_main_program() { return detail::current_main(); }
inline Program default_startup_program() { return detail::current_startup(); }

// As long as it lives, its thread builds these programs.
class [[nodiscard]] ProgramGuard {
public:
    explicit ProgramGuard(Program main) : ProgramGuard(std::move(main), detail::current_startup()) {}
    ProgramGuard(Program main, Program startup) : main_(std::move(main)), startup_(std::move(startup)) {
        detail::finish_pending();
        before_ =
            std::exchange(detail::building(), {&main_, &startup_, 0, nullptr, detail::building().names});
    }
    ProgramGuard(const ProgramGuard &) = delete;
    ProgramGuard &operator=(const ProgramGuard &) = delete;
    ~ProgramGuard() { detail::building() = before_; }

private:
    Program main_, startup_;
    detail::Building before_;
};

inline ProgramGuard program_guard(const Program &main) { return ProgramGuard(main); }
inline ProgramGuard program_guard(const Program &main, const Program &startup) { return {main, startup}; }
// The same for as long as `build` runs.
template <class F, class = std::enable_if_t<std::is_invocable_v<F &>>>
void program_guard(const Program &main, const Program &startup, F &&build) {
    const ProgramGuard guard(main, startup);
    build();
}

namespace unique_name {

// prefix_0, prefix_1 and so on. Any thread.
inline std::string generate(const std::string &prefix) { return detail::current_names().generate(prefix); }

// As long as it lives, names of its thread begin anew: the same lines build the same program.
class [[nodiscard]] Guard {
public:
    Guard() : before_(std::exchange(detail::building().names, &names_)) {}
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
    ~Guard() { detail::building().names = before_; }

private:
    detail::Names names_;
    detail::Names *before_;
};

inline Guard guard() { return {}; }

}  // namespace unique_name

// ---- Layers ---------------------------------------------------------------------------------------

namespace layers {

// The line that builds an operator, which errors of its runs name. Nobody has to give it.
class Where {
public:
    static constexpr Where here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
    // "train.cpp:12", wherever that is.
    std::string to_string() const {
        const std::string_view path(file_);
        return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line_);
    }

private:
    constexpr Where(const char *file, int line) : file_(file), line_(line) {}

    const char *file_;
    int line_;
};

// A variable of a program that is being built. What it says of itself is what the program knows by now.
class Var {
public:
    // The variable of that name in the block or those around it.
    Var(Program program, uint32_t block, std::string name)
        : program_(std::move(program)), block_(block), name_(std::move(name)) {}

    const std::string &name() const noexcept { return name_; }
    const Program &program() const noexcept { return program_; }
    uint32_t block() const noexcept { return block_; }

    // "tensor", "reader" or "stage".
    std::string kind() const {
        const std::string text = json();
        const detail::JsonView kind = detail::JsonView(text)["kind"];
        return kind.text().empty() ? "tensor" : kind.string();
    }
    bool persistable() const {
        const std::string text = json();
        return detail::JsonView(text)["persistable"].as<bool>().value_or(false);
    }
    // DType::any if it is not known.
    DType dtype() const {
        const std::string text = json();
        return detail::dtype_of_name(detail::JsonView(text)["dtype"]);
    }
    // Nothing if they are not known; -1 for one that is not.
    std::optional<Dims> dims() const {
        const std::string text = json();
        const detail::JsonView dims = detail::JsonView(text)["dims"];
        return dims.is('[') ? std::optional<Dims>(detail::dims_of(dims)) : std::nullopt;
    }
    uint32_t lod_levels() const {
        const std::string text = json();
        return detail::JsonView(text)["lod_levels"].as<uint32_t>().value_or(0);
    }
    // What a reader delivers or a stage holds; nothing if it is not known.
    std::optional<std::vector<SlotSpec>> slots() const {
        const std::string text = json();
        const detail::JsonView list = detail::JsonView(text)["slots"];
        if (!list.is('[')) return std::nullopt;
        std::vector<SlotSpec> slots;
        list.any([&](detail::JsonView, detail::JsonView slot) {
            slots.push_back({detail::dtype_of_name(slot["dtype"]), detail::dims_of(slot["dims"]),
                             slot["lod_levels"].as<uint32_t>().value_or(0), slot["name"].string()});
            return false;
        });
        return slots;
    }
    std::string json() const { return program_.variable(block_, name_); }

private:
    Program program_;
    uint32_t block_;
    std::string name_;
};

// Variables as an argument: {x, y}, a vector or array of them, or one.
class Vars {
public:
    Vars() = default;
    Vars(const Var &var) : vars_{var} {}
    Vars(std::initializer_list<Var> vars) : vars_(vars) {}
    Vars(std::vector<Var> vars) : vars_(std::move(vars)) {}
    template <size_t n>
    Vars(const std::array<Var, n> &vars) : vars_(vars.begin(), vars.end()) {}

    size_t size() const { return vars_.size(); }
    const Var &operator[](size_t i) const { return vars_[i]; }
    auto begin() const { return vars_.begin(); }
    auto end() const { return vars_.end(); }

    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const Var &var : vars_) names.push_back(var.name());
        return names;
    }

private:
    std::vector<Var> vars_;
};

}  // namespace layers

namespace detail {

using layers::Var;
using layers::Vars;
using layers::Where;

// A name that neither of the programs has, where the thread builds them.
inline std::string fresh(const std::string &prefix) {
    for (;;) {
        std::string name = unique_name::generate(prefix);
        if (!current_main().has(building().block, name) && !current_startup().has(0, name)) return name;
    }
}

inline std::string tensor_json(const std::string &name, const std::optional<Dims> &dims, DType dtype,
                               uint32_t lod_levels, bool persistable) {
    Attributes variable;
    variable.set("name", name).set("lod_levels", lod_levels).set("persistable", persistable);
    if (dtype != DType::any) variable.set("dtype", dtype_name(dtype));
    if (dims) variable.set("dims", std::vector<int64_t>(dims->begin(), dims->end()));
    return variable.json();
}

// The names of variables for an operator of a block, whose program gets to know those of others that persist.
inline std::vector<std::string> names_in(const Program &program, uint32_t block, const Vars &vars) {
    for (const Var &var : vars) {
        if (var.program() == program || program.has(block, var.name())) continue;
        const std::string json = var.json();
        if (!JsonView(json)["persistable"].as<bool>().value_or(false)) {
            throw InvalidArgument(
                "variable \"" + var.name() +
                "\": expected one of the program that is built, or a persistable one, found "
                "one of another program");
        }
        program.add_variable(0, json);
    }
    return vars.names();
}

inline void append_to(const Program &program, uint32_t block, const std::string &type, const Vars &ins,
                      const Vars &outs, const std::string &attributes, const Where &where) {
    program.add_op(block, Attributes()
                              .set("type", type)
                              .set("inputs", names_in(program, block, ins))
                              .set("outputs", names_in(program, block, outs))
                              .set("attributes", Json{attributes})
                              .set("where", where.to_string())
                              .json());
}
// Adds an operator to the current block.
inline void append(const std::string &type, const Vars &ins, const Vars &outs, const std::string &attributes,
                   const Where &where) {
    append_to(current_main(), building().block, type, ins, outs, attributes, where);
}

// A tensor of the current block, of which nothing is known yet.
inline Var temporary(const std::string &prefix) {
    const std::string name = fresh(prefix);
    current_main().add_variable(building().block, Attributes().set("name", name).json());
    return {current_main(), building().block, name};
}
inline std::vector<Var> temporaries(const std::string &prefix, size_t n) {
    std::vector<Var> vars;
    for (size_t i = 0; i < n; i++) vars.push_back(temporary(prefix));
    return vars;
}

// An operator of one output: `out`, or a new variable.
inline Var append_one(const char *type, const Vars &ins, std::optional<Var> out,
                      const std::string &attributes, const Where &where) {
    const Var result = out ? std::move(*out) : temporary(type);
    append(type, ins, result, attributes, where);
    return result;
}

// The attributes of fill_constant.
inline std::string filling(const Dims &dims, DType dtype, const AttributeValue &value) {
    return pyfeed::Attributes{{"dims", std::vector<int64_t>(dims.begin(), dims.end())},
                              {"dtype", dtype_name(dtype)},
                              {"value", value}}
        .json();
}

// What a reader delivers, as it says itself.
inline Json slots_of(const Reader &reader) {
    const std::string stats = reader.stats();
    const JsonView all(stats);
    return {std::string(all["slots"].text())};
}

// Makes a reader in the startup program, and makes it known to the main one.
inline Var append_reader(const std::string &prefix, const std::string &op, const Vars &ins,
                         const std::string &attributes, std::string name, const Where &where,
                         const std::vector<SlotSpec> &slots = {}) {
    // No reader that was made in a scope otherwise has such a name.
    if (name.empty()) name = fresh("layers." + prefix);
    const Program &main = current_main(), &startup = current_startup();
    Attributes variable;
    variable.set("name", name).set("kind", std::string("reader")).set("persistable", true);
    if (!slots.empty()) variable.set("slots", slots);
    startup.add_variable(0, variable.json());
    append_to(startup, 0, op, ins, Var(startup, 0, name), attributes, where);
    // What the operator says of its slots is known there only.
    if (main != startup) main.add_variable(0, startup.variable(0, name));
    return {main, 0, name};
}

// The block of a While or an IfElse is where that was made.
inline void check_place(const char *what, const Program &program, uint32_t parent) {
    if (current_main() == program && building().block == parent) return;
    throw StateError(
        std::string(what) + ": expected its block to begin in block " + std::to_string(parent) +
        ", where it was made, found " +
        (current_main() == program ? "block " + std::to_string(building().block) : "another program"));
}

template <size_t... i>
std::array<Var, sizeof...(i)> as_array(const std::vector<Var> &vars, std::index_sequence<i...>) {
    return {vars[i]...};
}
template <size_t n>
std::array<Var, n> as_array(const std::vector<Var> &vars) {
    return as_array(vars, std::make_index_sequence<n>());
}

}  // namespace detail

// The same names as in Python. An `out` that is not given is a new variable of the current block.
namespace layers {

// A tensor of the current block. A persistable one is the first block's, in both programs, and the scope's:
// it outlives the run. Nothing needs to be known of it; -1 among its dims matches anything.
inline Var variable(const std::string &name, const std::optional<Dims> &dims = {}, DType dtype = DType::any,
                    uint32_t lod_levels = 0, bool persistable = false) {
    const Program &main = detail::current_main(), &startup = detail::current_startup();
    const uint32_t block = persistable ? 0 : detail::building().block;
    const std::string json = detail::tensor_json(name, dims, dtype, lod_levels, persistable);
    main.add_variable(block, json);
    if (persistable && main != startup) startup.add_variable(0, json);
    return {main, block, name};
}

// A tensor of the first block, which is to be fed. -1 among its dims matches anything.
inline Var data(const std::string &name, const Dims &dims, DType dtype = DType::float32,
                uint32_t lod_levels = 0) {
    const Program &main = detail::current_main();
    main.add_variable(0, detail::tensor_json(name, dims, dtype, lod_levels, false));
    return {main, 0, name};
}

// A persistable tensor that is full of `value` once the startup program has run.
inline Var create_global_var(const Dims &dims, const AttributeValue &value, DType dtype,
                             std::string name = {}, Where where = Where::here()) {
    if (name.empty()) name = detail::fresh("global_var");
    const Var var = variable(name, dims, dtype, 0, true);
    detail::append_to(detail::current_startup(), 0, "fill_constant", {}, var,
                      detail::filling(dims, dtype, value), where);
    return var;
}

// A tensor full of `value`: true or false, or a number of the dtype's.
inline Var fill_constant(const Dims &dims, DType dtype, const AttributeValue &value,
                         std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("fill_constant", {}, std::move(out), detail::filling(dims, dtype, value),
                              where);
}

// Adds `step` to each element of x: to x itself, or to a new tensor.
inline Var increment(const Var &x, const AttributeValue &step = 1, bool in_place = true,
                     Where where = Where::here()) {
    return detail::append_one("increment", x, in_place ? std::optional<Var>(x) : std::nullopt,
                              Attributes{{"step", step}}.json(), where);
}

// Has `out` be what x is now, without a copy: one of them is copied when it is written.
inline Var assign(const Var &x, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("assign", x, std::move(out), "{}", where);
}

// Element by element, of tensors of one dtype and of the same dims, or one of them has one element: a tensor
// of bool.
#define PYFEED_LAYER(name)                                                                                  \
    inline Var name(const Var &x, const Var &y, std::optional<Var> out = {}, Where where = Where::here()) { \
        return detail::append_one(#name, {x, y}, std::move(out), "{}", where);                              \
    }
PYFEED_LAYER(less_than)
PYFEED_LAYER(less_equal)
PYFEED_LAYER(greater_than)
PYFEED_LAYER(greater_equal)
PYFEED_LAYER(equal)
PYFEED_LAYER(not_equal)
// Of tensors of bool.
PYFEED_LAYER(logical_and)
PYFEED_LAYER(logical_or)
#undef PYFEED_LAYER
inline Var logical_not(const Var &x, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("logical_not", x, std::move(out), "{}", where);
}

// Writes a line for each tensor to standard error, with `summarize` of its elements; the first `first_n`
// times of a run, or each time if that is 0.
inline void print(const Vars &tensors, const std::string &message = {}, int64_t summarize = 20,
                  int64_t first_n = 0, Where where = Where::here()) {
    const Attributes attributes{{"message", message}, {"summarize", summarize}, {"first_n", first_n}};
    detail::append("print", tensors, {}, attributes.json(), where);
}

// Calls a kernel, which is looked up by its name when the program runs. One that is among `ins` and `outs` is
// given to it to be written in place.
inline void call(const std::string &kernel, const Vars &ins, const Vars &outs,
                 const Attributes &attributes = {}, Where where = Where::here()) {
    const Attributes all{{"kernel", kernel}, {"attributes", attributes}};
    detail::append("call", ins, outs, all.json(), where);
}
// The same with new variables, as many as the kernel gives: auto [loss, rate] = call<2>("learn", {x, y}).
inline std::vector<Var> call(const std::string &kernel, const Vars &ins, size_t num_outs,
                             const Attributes &attributes = {}, Where where = Where::here()) {
    std::vector<Var> outs = detail::temporaries(kernel, num_outs);
    call(kernel, ins, Vars(outs), attributes, where);
    return outs;
}
template <size_t n>
std::array<Var, n> call(const std::string &kernel, const Vars &ins, const Attributes &attributes = {},
                        Where where = Where::here()) {
    return detail::as_array<n>(call(kernel, ins, n, attributes, where));
}

// ---- Layers of readers ----------------------------------------------------------------------------

// Any operator that makes a reader, of those that pyfeed.h lists. `name` is that of its variable in the
// scope, made up if it is empty; so below.
inline Var create_reader(const std::string &op, const Vars &readers, const Attributes &attributes = {},
                         const std::string &name = {}, Where where = Where::here()) {
    return detail::append_reader("reader", op, readers, attributes.json(), name, where);
}

// A reader that is there already, in the scope that the program will run in: one of Reader::map, say.
inline Var reader(const Reader &made) {
    const Program &main = detail::current_main();
    if (!main.has(0, made.name())) {
        detail::Attributes variable;
        variable.set("name", made.name()).set("kind", std::string("reader")).set("persistable", true);
        variable.set("slots", detail::slots_of(made));
        main.add_variable(0, variable.json());
    }
    return {main, 0, made.name()};
}

// A reader of files: paths, globs or directories. See pyfeed::open_files. If options do not say what an
// instance looks like, the first file is looked into now, and what it says is noted in the program.
inline Var open_files(const std::vector<std::string> &filenames, const OpenFiles &options = {},
                      const std::string &name = {}, Where where = Where::here()) {
    detail::Attributes attributes = options.attributes();
    attributes.set("filenames", filenames);
    if (!attributes.has("slots")) {
        attributes.set("slots", detail::slots_of(pyfeed::open_files(Scope(), "files", filenames, options)));
    }
    return detail::append_reader("open_files", "open_files", {}, attributes.json(), name, where);
}
// A reader of random numbers. See pyfeed::create_random_data_generator.
inline Var random_data(const std::vector<SlotSpec> &slots, const RandomOptions &options = {},
                       const std::string &name = {}, Where where = Where::here()) {
    detail::Attributes attributes = options.attributes();
    attributes.set("slots", slots);
    return detail::append_reader("random_data", "create_random_data_generator", {}, attributes.json(), name,
                                 where);
}
// Readers of another reader's tuples. See the methods of pyfeed::Reader.
inline Var shuffle(const Var &reader, uint64_t buffer_size, uint64_t seed = 0, const std::string &name = {},
                   Where where = Where::here()) {
    const Attributes attributes{{"buffer_size", buffer_size}, {"seed", seed}};
    return detail::append_reader("shuffle", "create_shuffle_reader", reader, attributes.json(), name, where);
}
inline Var batch(const Var &reader, uint64_t batch_size, bool drop_last = false, const std::string &name = {},
                 bool ragged = false, Where where = Where::here()) {
    Attributes attributes{{"batch_size", batch_size}, {"drop_last", drop_last}};
    if (ragged) attributes.set("ragged", true);
    return detail::append_reader("batch", "create_batch_reader", reader, attributes.json(), name, where);
}
inline Var multi_pass(const Var &reader, uint64_t pass_num, const std::string &name = {},
                      Where where = Where::here()) {
    return detail::append_reader("multi_pass", "create_multi_pass_reader", reader,
                                 Attributes{{"pass_num", pass_num}}.json(), name, where);
}
inline Var double_buffer(const Var &reader, uint64_t depth = 2, const Places &place = {},
                         const std::string &name = {}, Where where = Where::here()) {
    const detail::Attributes attributes = detail::Attributes().set("depth", depth).set("place", place);
    return detail::append_reader("double_buffer", "create_double_buffer_reader", reader, attributes.json(),
                                 name, where);
}
inline Var shard(const Var &reader, uint64_t rank, uint64_t world, const std::string &name = {},
                 Where where = Where::here()) {
    const Attributes attributes{{"rank", rank}, {"world", world}};
    return detail::append_reader("shard", "create_shard_reader", reader, attributes.json(), name, where);
}
inline Var zip(const Vars &readers, bool strict = false, const std::string &name = {},
               Where where = Where::here()) {
    return detail::append_reader("zip", "create_zip_reader", readers, Attributes{{"strict", strict}}.json(),
                                 name, where);
}

// A reader, and the queue that it reads.
struct PyArrayReader {
    Var reader;
    Queue queue;
};

// Makes a queue in `scope`, which is to be given to both runs, and a reader of what is pushed into it.
inline PyArrayReader py_array_reader(const QueueOptions &options, const Scope &scope = Scope::global(),
                                     const std::string &name = {}, Where where = Where::here()) {
    std::string feeder = name + "_feeder";
    while (name.empty()) {
        feeder = unique_name::generate("py_array_feed_queue");
        if (!scope.has(feeder)) break;
    }
    const bool is_new = !scope.has(feeder);
    try {
        Queue queue = QueueHolder(scope.var(feeder)).init_once(options);
        const Attributes attributes{{"feeder_name", feeder}};
        return {detail::append_reader("py_array_reader", "create_py_array_reader", {}, attributes.json(),
                                      name, where, options.slots),
                std::move(queue)};
    } catch (...) {
        if (is_new && scope.has(feeder)) scope.erase(feeder);
        throw;
    }
}
inline PyArrayReader py_array_reader(uint64_t capacity, const std::vector<SlotSpec> &slots, Place place = {},
                                     const Scope &scope = Scope::global(), const std::string &name = {},
                                     Where where = Where::here()) {
    QueueOptions options;
    options.capacity = capacity;
    options.slots = slots;
    options.place = place;
    return py_array_reader(options, scope, name, where);
}

// The next tuple of a reader, a tensor for each slot. EndOfData where there is none.
inline std::vector<Var> read_file(const Var &reader, Where where = Where::here()) {
    const auto slots = reader.slots();
    if (!slots) {
        throw StateError(
            "read_file: what the reader " + reader.name() +
            " delivers is not known yet: say how many tensors, as in read_file<2>(reader), or their "
            "names");
    }
    std::vector<Var> outs;
    for (const SlotSpec &slot : *slots)
        outs.push_back(detail::temporary(slot.name.empty() ? "slot" : slot.name));
    detail::append("read", reader, outs, "{}", where);
    return outs;
}
// Of so many slots: auto [image, label] = read_file<2>(reader).
template <size_t n>
std::array<Var, n> read_file(const Var &reader, Where where = Where::here()) {
    const std::vector<Var> outs = detail::temporaries("slot", n);
    detail::append("read", reader, outs, "{}", where);
    return detail::as_array<n>(outs);
}
// Into the variables of these names, made in the current block where there are none.
inline std::vector<Var> read_file(const Var &reader, const std::vector<std::string> &names,
                                  Where where = Where::here()) {
    std::vector<Var> outs;
    for (const std::string &name : names) {
        if (!detail::current_main().has(detail::building().block, name)) variable(name);
        outs.emplace_back(detail::current_main(), detail::building().block, name);
    }
    detail::append("read", reader, outs, "{}", where);
    return outs;
}

// Whether a reader has a next tuple: a bool.
inline Var has_next(const Var &reader, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("has_next", reader, std::move(out), "{}", where);
}
// Has a reader start over.
inline void reset(const Var &reader, Where where = Where::here()) {
    detail::append("reset", reader, {}, "{}", where);
}

// What staging() put aside, with what unstaging() has to know.
class Stage : public Var {
public:
    // The number of tensors.
    size_t size() const noexcept { return staged_.size(); }

private:
    friend Stage staging(const Vars &, uint64_t, uint64_t, Where);
    friend std::vector<Var> unstaging(const Stage &, Where);

    Stage(Var var, std::vector<std::string> staged, const Attributes &limits)
        : Var(std::move(var)), staged_(std::move(staged)), limits_(limits.json()) {}

    std::vector<std::string> staged_;
    std::string limits_;
};

// Copies tensors to the staging buffer of the executor's place, behind those that are there; nothing if none
// of them was fed. Waits while it is full: of `capacity` tuples, which is to be at least one more than are
// there when the program begins, as after a warm-up.
inline Stage staging(const Vars &inputs, uint64_t capacity = 3, uint64_t bytes_limit = 0,
                     Where where = Where::here()) {
    const std::string name = detail::fresh("stage");
    const Program &main = detail::current_main();
    const uint32_t block = detail::building().block;
    main.add_variable(block, detail::Attributes().set("name", name).set("kind", std::string("stage")).json());
    Stage stage({main, block, name}, inputs.names(), {{"capacity", capacity}, {"bytes_limit", bytes_limit}});
    detail::append("stage", inputs, stage, stage.limits_, where);
    return stage;
}
// Takes the oldest tensors out of it. Waits while there are none.
inline std::vector<Var> unstaging(const Stage &stage, Where where = Where::here()) {
    std::vector<Var> outs;
    for (const std::string &name : stage.staged_) outs.push_back(detail::temporary(name));
    detail::append("unstage", stage, outs, stage.limits_, where);
    return outs;
}
// As many as were put in: auto [image, label] = unstaging<2>(stage).
template <size_t n>
std::array<Var, n> unstaging(const Stage &stage, Where where = Where::here()) {
    if (n != stage.size()) {
        throw SlotCountError("unstaging: expected " + std::to_string(stage.size()) +
                             " tensors, as in the stage " + stage.name() + ", found " + std::to_string(n));
    }
    return detail::as_array<n>(unstaging(stage, where));
}

// ---- Control --------------------------------------------------------------------------------------

// As long as it lives, the thread builds a block of a While or an IfElse. The operator is added when its last
// block ends: so this destructor may throw. A block that ends by an exception leaves no operator.
template <class Owner>
class [[nodiscard]] Block {
public:
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
    ~Block() noexcept(false) {
        const bool failed = std::uncaught_exceptions() > exceptions_;
        detail::building() = before_;
        owner_.end(index_, failed);
    }

private:
    friend Owner;
    Block(Owner &owner, const Program &program, uint32_t index)
        : owner_(owner),
          index_(index),
          exceptions_(std::uncaught_exceptions()),
          before_(std::exchange(detail::building(), {&program, detail::building().startup, index, nullptr,
                                                     detail::building().names})) {}

    Owner &owner_;
    const uint32_t index_;
    const int exceptions_;
    const detail::Building before_;
};

// The loop: as long as `condition`, a bool that its block sets anew, is true.
//
//     While loop(go_on);
//     {
//         auto block = loop.block();
//         ...
//     }
//
// or While(go_on, [&] { ... });
class While {
public:
    explicit While(Var condition, Where where = Where::here())
        : condition_(std::move(condition)),
          where_(where),
          program_(detail::current_main()),
          parent_(detail::building().block) {}
    template <class F, class = std::enable_if_t<std::is_invocable_v<F &>>>
    While(Var condition, F &&body, Where where = Where::here()) : While(std::move(condition), where) {
        const Block<While> guard = block();
        body();
    }
    While(const While &) = delete;
    While &operator=(const While &) = delete;

    Block<While> block() {
        if (begun_) throw StateError("While: the loop has its block already");
        detail::check_place("While", program_, parent_);
        const uint32_t index = program_.add_block(parent_);
        begun_ = true;
        return {*this, program_, index};
    }

private:
    friend Block<While>;
    void end(uint32_t index, bool failed) {
        if (failed) return;
        detail::append_to(program_, parent_, "while", condition_, {}, Attributes{{"block", index}}.json(),
                          where_);
    }

    const Var condition_;
    const Where where_;
    const Program program_;
    const uint32_t parent_;
    bool begun_ = false;
};

// One of two blocks, or one or none.
//
//     IfElse branch(has_next);
//     {
//         auto block = branch.true_block();
//         ...
//     }
//     {
//         auto block = branch.false_block();  // it may be left out, as may the other
//         ...
//     }
//
// or IfElse(has_next, [&] { ... }, [&] { ... });
//
// The operator is added when both blocks have ended, or something else comes after the first: another
// operator, a use of the program, the end of this.
class IfElse {
public:
    explicit IfElse(Var condition, Where where = Where::here())
        : condition_(std::move(condition)),
          where_(where),
          program_(detail::current_main()),
          parent_(detail::building().block),
          exceptions_(std::uncaught_exceptions()) {}
    template <class T, class = std::enable_if_t<std::is_invocable_v<T &>>>
    IfElse(Var condition, T &&then, Where where = Where::here()) : IfElse(std::move(condition), where) {
        {
            const Block<IfElse> guard = true_block();
            then();
        }
        finish();
    }
    template <class T, class F,
              class = std::enable_if_t<std::is_invocable_v<T &> && std::is_invocable_v<F &>>>
    IfElse(Var condition, T &&then, F &&otherwise, Where where = Where::here())
        : IfElse(std::move(condition), where) {
        {
            const Block<IfElse> guard = true_block();
            then();
        }
        const Block<IfElse> guard = false_block();
        otherwise();
    }
    IfElse(const IfElse &) = delete;
    IfElse &operator=(const IfElse &) = delete;
    ~IfElse() noexcept(false) {
        if (std::uncaught_exceptions() > exceptions_) done_ = true;
        finish();
    }

    Block<IfElse> true_block() { return block(true_, "true_block"); }
    Block<IfElse> false_block() { return block(false_, "false_block"); }

private:
    friend Block<IfElse>;
    friend void detail::finish_pending();

    Block<IfElse> block(std::optional<uint32_t> &index, const char *name) {
        if (index) throw StateError(std::string("IfElse: the operator has its ") + name + " already");
        if (done_) {
            throw StateError(std::string("IfElse: expected ") + name +
                             " right after the other block, found something between them");
        }
        detail::check_place("IfElse", program_, parent_);
        if (detail::building().pending == this) detail::building().pending = nullptr;
        index = program_.add_block(parent_);
        return {*this, program_, *index};
    }
    void end(uint32_t, bool failed) {
        if (failed) done_ = true;
        if (failed || (true_ && false_)) return finish();
        detail::building().pending = this;
    }
    void finish() {
        if (detail::building().pending == this) detail::building().pending = nullptr;
        if (std::exchange(done_, true) || (!true_ && !false_)) return;
        Attributes blocks;
        if (true_) blocks.set("true_block", *true_);
        if (false_) blocks.set("false_block", *false_);
        detail::append_to(program_, parent_, "if_else", condition_, {}, blocks.json(), where_);
    }

    const Var condition_;
    const Where where_;
    const Program program_;
    const uint32_t parent_;
    const int exceptions_;
    std::optional<uint32_t> true_, false_;
    bool done_ = false;
};

}  // namespace layers

namespace detail {
inline void finish_pending() {
    if (building().pending != nullptr) building().pending->finish();
}
}  // namespace detail

// ---- Kernels --------------------------------------------------------------------------------------

// What a kernel is called with. Good for that call, on its thread.
class KernelContext {
public:
    explicit KernelContext(const pf_kernel_call *call) : call_(call) {}

    size_t num_ins() const noexcept { return call_->num_ins; }
    size_t num_outs() const noexcept { return call_->num_outs; }

    // An input, not to be written.
    TensorView in(size_t i) const {
        if (i >= num_ins()) refuse("input", i, num_ins());
        return TensorView(at(call_->ins, i)).with_read_only(true);
    }
    // What an output has by now: of one that is an input as well, its tensor, to be written in place; else
    // nothing, of DType::any, until output() or set().
    TensorView out(size_t i) const { return TensorView(raw_out(i)); }

    // The memory of an output of that shape, to be written: what it has if dtype and dims are the same, else
    // new memory, in which there may be anything.
    template <class T>
    T *output(size_t i, const Dims &dims) const {
        return static_cast<T *>(output(i, TensorView(dtype_of<T>(), dims)));
    }
    void *output(size_t i, const TensorView &like) const {
        const pf_tensor &has = raw_out(i);
        const pf_tensor wanted = like.raw();
        if (has.data != nullptr && has.dtype == wanted.dtype && has.strides == nullptr &&
            has.lod_levels == 0 && wanted.lod_levels == 0 && has.rank == wanted.rank &&
            (has.flags & PF_READ_ONLY) == 0 && std::equal(wanted.dims, wanted.dims + wanted.rank, has.dims)) {
            return has.data;
        }
        detail::Call call;
        void *data = nullptr;
        call.check(pf_kernel_output(call_, static_cast<uint32_t>(i), &wanted, &data, call.err()));
        return data;
    }
    // Copies a tensor, strided or not, to an output.
    void set(size_t i, const TensorView &tensor) const {
        detail::Call call;
        const pf_tensor raw = tensor.raw();
        call.check(pf_kernel_set(call_, static_cast<uint32_t>(i), &raw, call.err()));
    }
    // An input as a tuple of one slot, which may outlive the call.
    Tuple share_input(size_t i) const {
        detail::Call call;
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_kernel_share(call_, static_cast<uint32_t>(i), &raw, call.err()));
        return Tuple(raw);
    }

    // The attributes, a JSON object.
    const char *attributes() const noexcept {
        return call_->attributes != nullptr ? call_->attributes : "{}";
    }
    // One of them: a bool, a number, a std::string or a std::vector of those. NotFound if there is none of
    // that name, InvalidArgument if it is something else.
    template <class T>
    T attribute(const char *name) const {
        const detail::JsonView value = find(name);
        if (value.text().empty()) throw NotFound(about(name) + "expected one, found " + attributes());
        return as<T>(name, value);
    }
    // The same, or `otherwise` if there is none of that name.
    template <class T>
    T attribute(const char *name, T otherwise) const {
        const detail::JsonView value = find(name);
        return value.text().empty() ? otherwise : as<T>(name, value);
    }
    std::string attribute(const char *name, const char *otherwise) const {
        return attribute<std::string>(name, otherwise);
    }

    // Where the executor is, and the stream of a GPU to work on, or 0.
    Place place() const noexcept { return call_->place; }
    uint64_t stream() const noexcept { return call_->stream; }
    // The name that the kernel is called by.
    const char *kernel() const noexcept { return call_->kernel; }
    const pf_kernel_call &raw() const noexcept { return *call_; }

private:
    // A library newer than this header has longer tensors: the first one's size is the step.
    static const pf_tensor &at(const pf_tensor *first, size_t i) {
        return *reinterpret_cast<const pf_tensor *>(reinterpret_cast<const char *>(first) + i * first->size);
    }
    const pf_tensor &raw_out(size_t i) const {
        if (i >= num_outs()) refuse("output", i, num_outs());
        return at(call_->outs, i);
    }
    [[noreturn]] void refuse(const char *what, size_t i, size_t n) const {
        throw SlotCountError(std::string("no ") + what + " " + std::to_string(i) + ": the kernel " +
                             kernel() + " was given " + std::to_string(n));
    }
    std::string about(const char *name) const {
        return std::string("the kernel ") + kernel() + ": attribute " + name + ": ";
    }
    detail::JsonView find(const char *name) const { return detail::JsonView(attributes())[name]; }
    template <class T>
    T as(const char *name, detail::JsonView value) const {
        auto out = value.as<T>();
        if (!out) {
            std::string expected = "a list";
            if constexpr (detail::has_dtype<T>) expected = dtype_name(dtype_of<T>());
            if constexpr (std::is_same_v<T, std::string>) expected = "a string";
            throw InvalidArgument(about(name) + "expected " + expected + ", found " +
                                  std::string(value.text()));
        }
        return *std::move(out);
    }

    const pf_kernel_call *call_;
};

// Computes the outputs of a `call` operator from its inputs. It is called by the threads that run programs,
// by many at once, with no lock held. What it throws is the run's ProducerFailed.
using Kernel = std::function<void(KernelContext &)>;

// A kernel that is known by its name as long as this lives. It has one owner and moves. When it is destroyed,
// later runs do not find the kernel; those that have it keep it.
class RegisteredKernel {
public:
    RegisteredKernel(RegisteredKernel &&) noexcept = default;
    RegisteredKernel &operator=(RegisteredKernel &&) noexcept = default;
    RegisteredKernel(const RegisteredKernel &) = delete;
    RegisteredKernel &operator=(const RegisteredKernel &) = delete;

    const std::string &name() const noexcept { return name_; }

private:
    friend RegisteredKernel register_kernel(const std::string &, Kernel);
    RegisteredKernel(std::string name, detail::Handle handle)
        : name_(std::move(name)), handle_(std::move(handle)) {}

    std::string name_;
    detail::Handle handle_;
};

namespace detail {

inline int call_kernel(void *kernel, const pf_kernel_call *call) noexcept {
    try {
        KernelContext context(call);
        (*static_cast<const Kernel *>(kernel))(context);
        return 0;
    } catch (...) {
        const Failure failure = failure_of(std::current_exception());
        const pf_failure raw = failure.raw();
        pf_kernel_fail(call, &raw, nullptr);
        return 1;
    }
}
inline void finish_kernel(void *kernel) noexcept { delete static_cast<Kernel *>(kernel); }

}  // namespace detail

// Makes a kernel known to every program in the process. StateError if the name is taken.
inline RegisteredKernel register_kernel(const std::string &name, Kernel kernel) {
    if (!kernel) throw InvalidArgument("register_kernel: " + name + ": expected a function, found none");
    auto owned = std::make_unique<Kernel>(std::move(kernel));
    detail::Handle handle = detail::make([&](pf_handle *id, pf_error *err) {
        return pf_kernel_register(name.c_str(), &detail::call_kernel, owned.get(), &detail::finish_kernel, id,
                                  err);
    });
    owned.release();  // the library's now
    return {name, std::move(handle)};
}

// The names there are: a JSON list.
inline std::string kernels() {
    detail::check_abi();
    detail::Call call;
    char *json = nullptr;
    call.check(pf_kernel_list(&json, call.err()));
    return detail::taken(json);
}

// Loads a shared object that has PYFEED_KERNELS, for good. Twice is fine.
inline void load_kernels(const std::string &path) {
    detail::check_abi();
    detail::Call call;
    call.check(pf_kernel_load(path.c_str(), call.err()));
}

// What the kernels of a shared object are added to: see PYFEED_KERNELS.
class KernelRegistry {
public:
    void add(const std::string &name, Kernel kernel) {
        kernels_.push_back(register_kernel(name, std::move(kernel)));
    }

private:
    std::vector<RegisteredKernel> kernels_;
};

namespace detail {

// The strings of a pf_error are malloc's.
inline char *copied(const std::string &text) {
    auto *out = static_cast<char *>(std::malloc(text.size() + 1));
    if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + 1);
    return out;
}

// All kernels of a shared object; if one is refused, none.
inline int register_kernels(void (*add)(KernelRegistry &), pf_error *err) noexcept {
    pf_status status = PF_FAILED;
    Failure failure;
    try {
        auto registry = std::make_unique<KernelRegistry>();
        add(*registry);
        static KernelRegistry *const kept = registry.release();  // for good
        static_cast<void>(kept);
        return PF_OK;
    } catch (const Error &error) {
        status = error.status();
        failure.message = error.what();
    } catch (...) {
        failure = failure_of(std::current_exception());
    }
    if (err != nullptr && err->size >= PF_ERROR_SIZE_V1) {
        pf_error_release(err);
        err->status = status;
        err->message = copied(failure.type + (failure.type.empty() ? "" : ": ") + failure.message);
        if (!failure.type.empty()) {
            err->cause_type = copied(failure.type);
            err->cause_message = copied(failure.message);
        }
    }
    return status;
}

}  // namespace detail

// In a shared object for load_kernels, outside all namespaces, once:
//
//     PYFEED_KERNELS(registry) {
//         registry.add("learn", learn);
//         ...
//     }
#define PYFEED_KERNELS(registry)                                                         \
    static void pyfeed_add_kernels([[maybe_unused]] ::pyfeed::KernelRegistry &registry); \
    extern "C" PF_API int pyfeed_register_kernels(pf_error *err);                        \
    extern "C" PF_API int pyfeed_register_kernels(pf_error *err) {                       \
        return ::pyfeed::detail::register_kernels(&pyfeed_add_kernels, err);             \
    }                                                                                    \
    static void pyfeed_add_kernels([[maybe_unused]] ::pyfeed::KernelRegistry &registry)

// ---- The executor ---------------------------------------------------------------------------------

// The name of a variable as an argument: text, or a variable of a program. It is borrowed.
class Name {
public:
    Name(const char *name) : text_(name) {}
    Name(const std::string &name) : text_(name.c_str()) {}
    Name(const layers::Var &var) : text_(var.name().c_str()) {}

    const char *text() const { return text_; }

private:
    const char *text_;
};

// What a run is fed, as an argument: {{"image", view(x)}, {label, view(y)}}, or a map. Built in the call and
// good for that call. No heap up to eight.
class Feeds {
public:
    struct Feed {
        Name name;
        TensorView tensor;
    };

    Feeds() = default;
    Feeds(std::initializer_list<Feed> feeds) : Feeds(feeds.begin(), feeds.end()) {}
    Feeds(const std::vector<Feed> &feeds) : Feeds(feeds.begin(), feeds.end()) {}
    Feeds(const std::map<std::string, TensorView> &feeds) : Feeds(feeds.begin(), feeds.end()) {}
    Feeds(const Feeds &) = delete;
    Feeds &operator=(const Feeds &) = delete;

    const char *const *names() const { return many_names_.empty() ? names_ : many_names_.data(); }
    const pf_tensor *tensors() const { return many_tensors_.empty() ? tensors_ : many_tensors_.data(); }
    uint32_t size() const { return size_; }

private:
    template <class I>
    Feeds(I begin, I end) : size_(static_cast<uint32_t>(std::distance(begin, end))) {
        const char **names = names_;
        pf_tensor *tensors = tensors_;
        if (size_ > few) {
            many_names_.resize(size_);
            many_tensors_.resize(size_);
            names = many_names_.data();
            tensors = many_tensors_.data();
        }
        for (; begin != end; ++begin) {
            const auto &[name, tensor] = *begin;
            *names++ = Name(name).text();
            *tensors++ = tensor.raw();
        }
    }

    static constexpr size_t few = 8;
    uint32_t size_ = 0;
    const char *names_[few];
    pf_tensor tensors_[few];
    std::vector<const char *> many_names_;
    std::vector<pf_tensor> many_tensors_;
};

// What is wanted of a run, as an argument: {"loss", rate}, a vector of names, or variables.
class Fetches {
public:
    Fetches() = default;
    Fetches(std::initializer_list<Name> names) : Fetches(names.begin(), names.end()) {}
    Fetches(const std::vector<std::string> &names) : Fetches(names.begin(), names.end()) {}
    Fetches(const std::vector<layers::Var> &vars) : Fetches(vars.begin(), vars.end()) {}
    template <size_t n>
    Fetches(const std::array<layers::Var, n> &vars) : Fetches(vars.begin(), vars.end()) {}
    Fetches(const Fetches &) = delete;
    Fetches &operator=(const Fetches &) = delete;

    const char *const *names() const { return many_.empty() ? names_ : many_.data(); }
    uint32_t size() const { return size_; }

private:
    template <class I>
    Fetches(I begin, I end) : size_(static_cast<uint32_t>(std::distance(begin, end))) {
        const char **names = names_;
        if (size_ > few) {
            many_.resize(size_);
            names = many_.data();
        }
        for (; begin != end; ++begin) *names++ = Name(*begin).text();
    }

    static constexpr size_t few = 8;
    uint32_t size_ = 0;
    const char *names_[few];
    std::vector<const char *> many_;
};

// Runs programs at a place. Copies are the same executor; any number of threads may run programs by it.
class Executor {
public:
    explicit Executor(Place place = {})
        : handle_(detail::make(
              [place](pf_handle *id, pf_error *err) { return pf_executor_create(place, id, err); })) {}

    // Runs a program once through, on this thread: copies `feeds` into variables of its first block, runs its
    // operators, and gives the tensors of `fetches`. Persistable variables are those of the scope and its
    // parents, made in it where there are none; the others are the run's own. Blocks as its operators do; the
    // Wait is looked at between them too. An error names the operator: see Error::op. EndOfData where a
    // reader that is read has come to its end.
    Tuple run(const Program &program, const Scope &scope, const Feeds &feeds = {},
              const Fetches &fetches = {}, const Wait &wait = {}) const {
        detail::finish_pending();
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_executor_run(handle(), program.handle(), scope.handle(), feeds.names(), feeds.tensors(),
                                   feeds.size(), fetches.names(), fetches.size(), call.wait(), &raw,
                                   call.err()));
        return Tuple(raw);
    }

    pf_handle handle() const noexcept { return handle_.get(); }

private:
    detail::Handle handle_;
};

}  // namespace pyfeed

#endif  // PYFEED_PROGRAM_HPP

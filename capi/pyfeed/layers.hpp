// Functions that build programs: each adds an operator to the program that the thread is building.
#ifndef PYFEED_PYFEED_LAYERS_HPP
#define PYFEED_PYFEED_LAYERS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attributes.hpp"
#include "json_view.hpp"
#include "program.hpp"
#include "reader.hpp"

namespace pyfeed {

namespace layers {

// The source line that builds an operator, for the errors of its runs. The default argument is the line of
// the call.
class Where {
public:
    static constexpr Where here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
    // Such as "train.cpp:12", without the folder.
    std::string to_string() const {
        const std::string_view path(file_);
        return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line_);
    }

private:
    constexpr Where(const char *file, int line) : file_(file), line_(line) {}

    const char *file_;
    int line_;
};

// A variable of a program that is being built. Its methods return what the program knows about it so far.
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
    // The dtype; DType::any if it is not known.
    DType dtype() const {
        const std::string text = json();
        return detail::dtype_of_name(detail::JsonView(text)["dtype"]);
    }
    // The shape, or nothing if it is not known. -1 is a dimension that is not known.
    std::optional<Shape> shape() const {
        const std::string text = json();
        const detail::JsonView dims = detail::JsonView(text)["dims"];
        return dims.is('[') ? std::optional<Shape>(detail::shape_of(dims)) : std::nullopt;
    }
    uint32_t lod_levels() const {
        const std::string text = json();
        return detail::JsonView(text)["lod_levels"].as<uint32_t>().value_or(0);
    }
    // The slots that a reader delivers or a stage stores; nothing if they are not known.
    std::optional<std::vector<SlotSpec>> slots() const {
        const std::string text = json();
        const detail::JsonView list = detail::JsonView(text)["slots"];
        if (!list.is('[')) return std::nullopt;
        std::vector<SlotSpec> slots;
        list.any([&](detail::JsonView, detail::JsonView slot) {
            slots.push_back({detail::shape_of(slot["dims"]), detail::dtype_of_name(slot["dtype"]),
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

// Variables, as an argument: one, a list {x, y}, or a vector or array of them.
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

// A name that neither program of the thread uses.
inline std::string unused_name(const std::string &prefix) {
    for (;;) {
        std::string name = unique_name::generate(prefix);
        if (!current_main().has(building().block, name) && !current_startup().has(0, name)) return name;
    }
}

inline std::string tensor_json(const std::string &name, const std::optional<Shape> &shape, DType dtype,
                               uint32_t lod_levels, bool persistable) {
    Attributes variable;
    variable.set("name", name).set("lod_levels", lod_levels).set("persistable", persistable);
    if (dtype != DType::any) variable.set("dtype", dtype_name(dtype));
    if (shape) variable.set("dims", std::vector<int64_t>(shape->begin(), shape->end()));
    return variable.json();
}

// The names of variables for an operator of a block. A persistable variable of another program is added to
// this program.
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

// Makes a tensor of the current block. Nothing is known about it yet.
inline Var temporary(const std::string &prefix) {
    const std::string name = unused_name(prefix);
    current_main().add_variable(building().block, Attributes().set("name", name).json());
    return {current_main(), building().block, name};
}
inline std::vector<Var> temporaries(const std::string &prefix, size_t n) {
    std::vector<Var> vars;
    for (size_t i = 0; i < n; i++) vars.push_back(temporary(prefix));
    return vars;
}

// Adds an operator with one output: `out`, or a new variable.
inline Var append_one(const char *type, const Vars &ins, std::optional<Var> out,
                      const std::string &attributes, const Where &where) {
    const Var result = out ? std::move(*out) : temporary(type);
    append(type, ins, result, attributes, where);
    return result;
}

// The attributes of fill_constant.
inline std::string fill_attributes(const Shape &shape, DType dtype, const AttributeValue &value) {
    return pyfeed::Attributes{{"dims", std::vector<int64_t>(shape.begin(), shape.end())},
                              {"dtype", dtype_name(dtype)},
                              {"value", value}}
        .json();
}

// The slots that a reader delivers, from its statistics.
inline Json slots_of(const Reader &reader) {
    const std::string stats = reader.stats();
    const JsonView all(stats);
    return {std::string(all["slots"].text())};
}

// Adds an operator that makes a reader to the startup program, and the reader's variable to both programs.
inline Var append_reader(const std::string &prefix, const std::string &op, const Vars &ins,
                         const std::string &attributes, std::string name, const Where &where,
                         const std::vector<SlotSpec> &slots = {}) {
    // A reader that is made in a scope without a program has no such name.
    if (name.empty()) name = unused_name("layers." + prefix);
    const Program &main = current_main(), &startup = current_startup();
    Attributes variable;
    variable.set("name", name).set("kind", std::string("reader")).set("persistable", true);
    if (!slots.empty()) variable.set("slots", slots);
    startup.add_variable(0, variable.json());
    append_to(startup, 0, op, ins, Var(startup, 0, name), attributes, where);
    // Only the startup program knows the slots that the operator has determined.
    if (main != startup) main.add_variable(0, startup.variable(0, name));
    return {main, 0, name};
}

// Checks that the thread is in the block in which the While or the IfElse was made.
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

// The names are those of Python. If `out` is not given, a new variable of the current block is made.
namespace layers {

// A tensor of the current block. A persistable tensor belongs to the first block of both programs and is
// stored in the scope: it outlives the run. Its shape and its dtype need not be known. -1 in the shape
// matches any size.
inline Var variable(const std::string &name, const std::optional<Shape> &shape = {}, DType dtype = DType::any,
                    uint32_t lod_levels = 0, bool persistable = false) {
    const Program &main = detail::current_main(), &startup = detail::current_startup();
    const uint32_t block = persistable ? 0 : detail::building().block;
    const std::string json = detail::tensor_json(name, shape, dtype, lod_levels, persistable);
    main.add_variable(block, json);
    if (persistable && main != startup) startup.add_variable(0, json);
    return {main, block, name};
}

// A tensor of the first block, for a feed of Executor::run. -1 in its shape matches any size.
inline Var data(const std::string &name, const Shape &shape, DType dtype = DType::float32,
                uint32_t lod_levels = 0) {
    const Program &main = detail::current_main();
    main.add_variable(0, detail::tensor_json(name, shape, dtype, lod_levels, false));
    return {main, 0, name};
}

// A persistable tensor. The startup program sets all of its elements to `value`.
inline Var create_global_var(const Shape &shape, const AttributeValue &value, DType dtype,
                             std::string name = {}, Where where = Where::here()) {
    if (name.empty()) name = detail::unused_name("global_var");
    const Var var = variable(name, shape, dtype, 0, true);
    detail::append_to(detail::current_startup(), 0, "fill_constant", {}, var,
                      detail::fill_attributes(shape, dtype, value), where);
    return var;
}

// A tensor with all elements set to `value`: a bool, or a number of the dtype.
inline Var fill_constant(const Shape &shape, DType dtype, const AttributeValue &value,
                         std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("fill_constant", {}, std::move(out),
                              detail::fill_attributes(shape, dtype, value), where);
}

// Adds `step` to each element of x, in place or in a new tensor.
inline Var increment(const Var &x, const AttributeValue &step = 1, bool in_place = true,
                     Where where = Where::here()) {
    return detail::append_one("increment", x, in_place ? std::optional<Var>(x) : std::nullopt,
                              Attributes{{"step", step}}.json(), where);
}

// Assigns x to `out` without a copy. A later write to one of the two copies its tensor first.
inline Var assign(const Var &x, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("assign", x, std::move(out), "{}", where);
}

// Comparison, element by element. x and y have the same dtype and the same shape, or one of them has one
// element. The result is a tensor of bool.
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
// For tensors of bool.
PYFEED_LAYER(logical_and)
PYFEED_LAYER(logical_or)
#undef PYFEED_LAYER
inline Var logical_not(const Var &x, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("logical_not", x, std::move(out), "{}", where);
}

// Writes a line for each tensor to standard error, with up to `summarize` of its elements. It does so the
// first `first_n` times of a run, or each time if first_n is 0.
inline void print(const Vars &tensors, const std::string &message = {}, int64_t summarize = 20,
                  int64_t first_n = 0, Where where = Where::here()) {
    const Attributes attributes{{"message", message}, {"summarize", summarize}, {"first_n", first_n}};
    detail::append("print", tensors, {}, attributes.json(), where);
}

// Calls a kernel. The run looks the kernel up by its name. A variable that is in both `ins` and `outs` is
// written in place.
inline void call(const std::string &kernel, const Vars &ins, const Vars &outs,
                 const Attributes &attributes = {}, Where where = Where::here()) {
    const Attributes all{{"kernel", kernel}, {"attributes", attributes}};
    detail::append("call", ins, outs, all.json(), where);
}
// The same with num_outs new variables: auto [loss, rate] = call<2>("learn", {x, y}).
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

// ---- Readers --------------------------------------------------------------------------------------

// Adds any operator that makes a reader; pyfeed.h has a list of them. `name` is the name of its variable in
// the scope; if it is empty, a new name is made. This holds for the functions below too.
inline Var create_reader(const std::string &op, const Vars &readers, const Attributes &attributes = {},
                         const std::string &name = {}, Where where = Where::here()) {
    return detail::append_reader("reader", op, readers, attributes.json(), name, where);
}

// A reader that exists already in the scope that the program will run in, such as one of Reader::map.
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

// A reader of files: paths, globs or directories. See pyfeed::open_files. If the options have no slots, this
// call reads the beginning of the first file, and the program stores the slots that it finds.
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
// A reader of numbers. See pyfeed::create_range_reader.
inline Var range(int64_t count, const RangeOptions &options = {}, const std::string &name = {},
                 Where where = Where::here()) {
    detail::Attributes attributes = options.attributes();
    attributes.set("count", count);
    return detail::append_reader("range", "create_range_reader", {}, attributes.json(), name, where);
}
// Readers of the tuples of another reader. See the methods of pyfeed::Reader.
inline Var shuffle(const Var &reader, uint64_t buffer_size, uint64_t seed = 0, const std::string &name = {},
                   Where where = Where::here()) {
    const Attributes attributes{{"buffer_size", buffer_size}, {"seed", seed}};
    return detail::append_reader("shuffle", "create_shuffle_reader", reader, attributes.json(), name, where);
}
Var batch(const Var &, uint64_t, bool, const char *,
          Where = Where::here()) = delete;  // a string would be converted to `ragged`
inline Var batch(const Var &reader, uint64_t batch_size, bool drop_last = false, bool ragged = false,
                 const std::string &name = {}, Where where = Where::here()) {
    Attributes attributes{{"batch_size", batch_size}, {"drop_last", drop_last}};
    if (ragged) attributes.set("ragged", true);
    return detail::append_reader("batch", "create_batch_reader", reader, attributes.json(), name, where);
}
inline Var multi_pass(const Var &reader, uint64_t pass_num, const std::string &name = {},
                      Where where = Where::here()) {
    return detail::append_reader("multi_pass", "create_multi_pass_reader", reader,
                                 Attributes{{"pass_num", pass_num}}.json(), name, where);
}
inline Var double_buffer(const Var &reader, const Places &place = {}, uint64_t depth = 2,
                         const std::string &name = {}, Where where = Where::here()) {
    const detail::Attributes attributes = detail::Attributes().set("place", place).set("depth", depth);
    return detail::append_reader("double_buffer", "create_double_buffer_reader", reader, attributes.json(),
                                 name, where);
}
inline Var shard(const Var &reader, uint64_t rank, uint64_t world, Even even = Even::none,
                 const std::string &name = {}, Where where = Where::here()) {
    const detail::Attributes attributes = detail::part_attributes(rank, world, even, Even::none);
    return detail::append_reader("shard", "create_shard_reader", reader, attributes.json(), name, where);
}
inline Var split_batches(const Var &reader, uint64_t rank, uint64_t world, Even even = Even::drop,
                         const std::string &name = {}, Where where = Where::here()) {
    const detail::Attributes attributes = detail::part_attributes(rank, world, even, Even::drop);
    return detail::append_reader("split_batches", "create_split_batches_reader", reader, attributes.json(),
                                 name, where);
}
inline Var zip(const Vars &readers, bool strict = false, const std::string &name = {},
               Where where = Where::here()) {
    return detail::append_reader("zip", "create_zip_reader", readers, Attributes{{"strict", strict}}.json(),
                                 name, where);
}

// A reader, and the queue that it reads from.
struct PyArrayReader {
    Var reader;
    Queue queue;
};

// Makes a queue in `scope`, and a reader of the tuples that are pushed into it. Run both programs in that
// scope.
inline PyArrayReader py_array_reader(const QueueOptions &options, const std::string &name = {},
                                     const Scope &scope = Scope::global(), Where where = Where::here()) {
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
                                     const std::string &name = {}, const Scope &scope = Scope::global(),
                                     Where where = Where::here()) {
    QueueOptions options;
    options.capacity = capacity;
    options.slots = slots;
    options.place = place;
    return py_array_reader(options, name, scope, where);
}

// Reads the next tuple of a reader: a tensor for each slot. The run throws EndOfData at the end of the data.
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
// The same for n slots: auto [image, label] = read_file<2>(reader).
template <size_t n>
std::array<Var, n> read_file(const Var &reader, Where where = Where::here()) {
    const std::vector<Var> outs = detail::temporaries("slot", n);
    detail::append("read", reader, outs, "{}", where);
    return detail::as_array<n>(outs);
}
// The same, into the variables of these names. A variable that does not exist is made in the current block.
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

// Whether a reader has a next tuple, as a tensor of bool.
inline Var has_next(const Var &reader, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("has_next", reader, std::move(out), "{}", where);
}
// Makes a reader start over.
inline void reset(const Var &reader, Where where = Where::here()) {
    detail::append("reset", reader, {}, "{}", where);
}

// The position of a reader, as a tensor of uint8: see Reader::state.
inline Var save_reader(const Var &reader, std::optional<Var> out = {}, Where where = Where::here()) {
    return detail::append_one("save_reader", reader, std::move(out), "{}", where);
}
// Makes a reader go on at a position that save_reader has returned: see Reader::load_state. An empty tensor
// changes nothing.
inline void load_reader(const Var &state, const Var &reader, bool strict = true,
                        Where where = Where::here()) {
    detail::append("load_reader", state, {reader}, detail::Attributes().set("strict", strict).json(), where);
}

// The stage that staging() makes, for unstaging().
class Stage : public Var {
public:
    // The number of tensors that were staged.
    size_t size() const noexcept { return staged_.size(); }

private:
    friend Stage staging(const Vars &, uint64_t, uint64_t, Where);
    friend std::vector<Var> unstaging(const Stage &, Where);

    Stage(Var var, std::vector<std::string> staged, const Attributes &limits)
        : Var(std::move(var)), staged_(std::move(staged)), limits_(limits.json()) {}

    std::vector<std::string> staged_;
    std::string limits_;
};

// Copies tensors to the staging buffer of the executor's place, as its newest tuple. If none of them was fed,
// it copies nothing. Blocks while the buffer is full. `capacity` is in tuples; it must be at least one more
// than the number of tuples in the buffer when the program begins, such as after a warm-up.
inline Stage staging(const Vars &inputs, uint64_t capacity = 3, uint64_t bytes_limit = 0,
                     Where where = Where::here()) {
    const std::string name = detail::unused_name("stage");
    const Program &main = detail::current_main();
    const uint32_t block = detail::building().block;
    main.add_variable(block, detail::Attributes().set("name", name).set("kind", std::string("stage")).json());
    Stage stage({main, block, name}, inputs.names(), {{"capacity", capacity}, {"bytes_limit", bytes_limit}});
    detail::append("stage", inputs, stage, stage.limits_, where);
    return stage;
}
// Takes the oldest tuple out of the staging buffer. Blocks while there is none.
inline std::vector<Var> unstaging(const Stage &stage, Where where = Where::here()) {
    std::vector<Var> outs;
    for (const std::string &name : stage.staged_) outs.push_back(detail::temporary(name));
    detail::append("unstage", stage, outs, stage.limits_, where);
    return outs;
}
// The same for n tensors, the number that was staged: auto [image, label] = unstaging<2>(stage).
template <size_t n>
std::array<Var, n> unstaging(const Stage &stage, Where where = Where::here()) {
    if (n != stage.size()) {
        throw SlotCountError("unstaging: expected " + std::to_string(stage.size()) +
                             " tensors, as in the stage " + stage.name() + ", found " + std::to_string(n));
    }
    return detail::as_array<n>(unstaging(stage, where));
}

}  // namespace layers

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_LAYERS_HPP

// Readers: functions that make, read and decorate them.
#ifndef PYFEED_PYFEED_READER_HPP
#define PYFEED_PYFEED_READER_HPP

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "json.hpp"
#include "scope.hpp"

namespace pyfeed {

// The options of open_files: OpenFiles().format("recordio").num_threads(4). pyfeed.h has the defaults.
class OpenFiles : public detail::Options<OpenFiles> {
public:
    // The tag of the format, for files whose names do not determine it.
    OpenFiles &format(const std::string &tag) { return set("format", tag); }
    // The slots of an instance. Without it, the first file determines them.
    OpenFiles &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // The number of threads that read.
    OpenFiles &num_threads(int threads) { return set("num_threads", threads); }
    // Whether the order of instances is independent of num_threads. If false, instances come as they are
    // read.
    OpenFiles &ordered(bool ordered) { return set("ordered", ordered); }
    // The number of files that are read in turn when ordered.
    OpenFiles &interleave(int files) { return set("interleave", files); }
    // A seed, 0 or more: each pass has another order of files, which depends on the seed and the pass only.
    OpenFiles &shuffle_files(int64_t seed) { return set("shuffle_files", seed); }
    // A seed, 0 or more: in each pass, all records of all files come in another order, which depends on the seed
    // and the pass only. It implies index.
    OpenFiles &shuffle_records(int64_t seed) { return set("shuffle_records", seed); }
    // Whether each file gets an index, a file beside it. Then Reader::at reads any record.
    OpenFiles &index(bool index) { return set("index", index); }
    // The directory of the indexes. It implies index.
    OpenFiles &index_dir(const std::string &directory) { return set("index_dir", directory); }
    // The number of equal parts that all records are divided into, the same in all processes of a job: a number
    // that every number of processes divides. Each process reads the records of its own parts. It implies index.
    OpenFiles &virtual_shards(int parts) { return set("virtual_shards", parts); }
    // This process, from 0, and the number of processes, of which virtual_shards is a multiple.
    OpenFiles &rank(int rank) { return set("rank", rank); }
    OpenFiles &world(int processes) { return set("world", processes); }
    // How all parts get the same number of tuples if virtual_shards does not divide the number of records:
    // "drop", "repeat" or "pad".
    OpenFiles &even(const std::string &what) { return set("even", what); }
    // What to do about damage: "raise" throws CorruptRecordError, "skip" records it in Reader::stats.
    OpenFiles &on_corrupt(const std::string &what) { return set("on_corrupt", what); }
    // Whether each file is read twice, the first time to verify all of it before its first instance is
    // delivered.
    OpenFiles &verify_first(bool verify) { return set("verify_first", verify); }
    // "auto", "none", "gzip", "zlib", "zstd", "snappy" or "snappy-skippable".
    OpenFiles &compression(const std::string &name) {
        return set("storage", storage_.set("compression", name));
    }
    // "auto", "map" or "read".
    OpenFiles &io(const std::string &way) { return set("storage", storage_.set("io", way)); }
    // The options of the format, as a JSON object: see docs/formats.md.
    OpenFiles &options(const std::string &json) { return set("options", detail::Json{json}); }

private:
    detail::Attributes storage_;
};

// The options of create_random_data_generator: RandomOptions().low(-1).count(1000). pyfeed.h has the
// defaults.
class RandomOptions : public detail::Options<RandomOptions> {
public:
    // Numbers are at least low and less than high. Integers may also be equal to high.
    RandomOptions &low(double low) { return set("low", low); }
    RandomOptions &high(double high) { return set("high", high); }
    RandomOptions &seed(uint64_t seed) { return set("seed", seed); }
    // The number of instances in a pass; -1: a pass has no end.
    RandomOptions &count(int64_t instances) { return set("count", instances); }
};

// The options of create_range_reader. pyfeed.h has the defaults.
class RangeOptions : public detail::Options<RangeOptions> {
public:
    // A seed, 0 or more: in each pass, the numbers come in another order, which depends on the seed and the pass only.
    RangeOptions &shuffle(int64_t seed) { return set("shuffle", seed); }
    // The number of equal parts that the numbers are divided into, the same in all processes of a job, and a multiple of
    // world. By default it is world. Each process gets the numbers of its own parts.
    RangeOptions &virtual_shards(int parts) { return set("virtual_shards", parts); }
    // This process, from 0, and the number of processes.
    RangeOptions &rank(int rank) { return set("rank", rank); }
    RangeOptions &world(int processes) { return set("world", processes); }
    // How all parts get the same number of tuples if virtual_shards does not divide the count: "drop", "repeat" or
    // "pad", which adds the number -1.
    RangeOptions &even(const std::string &what) { return set("even", what); }
};

// The options of Reader::map. pyfeed.h has the defaults.
class MapOptions : public detail::Options<MapOptions> {
public:
    // The slots of the results. Without it, they are those of the input.
    MapOptions &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // The largest number of tuples that are taken and not yet delivered.
    MapOptions &capacity(uint64_t tuples) { return set("capacity", tuples); }
    // Whether results have the order of their inputs. If false, they come as they are finished.
    MapOptions &ordered(bool ordered) { return set("ordered", ordered); }
    // The seed of the function's random numbers, if it has any. Reader::load_state refuses another one.
    MapOptions &seed(uint64_t seed) { return set("seed", seed); }
    // Whether a tuple for which the function throws is left out, and listed in Reader::stats. If false, the
    // consumer gets a ProducerError.
    MapOptions &skip_errors(bool skip) {
        skip_errors_ = skip;
        return *this;
    }
    bool skips_errors() const noexcept { return skip_errors_; }

private:
    bool skip_errors_ = false;
};

namespace detail {
struct MapRun;
}

// Takes the result of a function of Reader::map. Valid for that call of the function.
class Emit {
public:
    // Copies the result, strided or not. If it does not fit the slots of the reader, this throws, and the
    // function may emit another result. After a result, further ones are ignored.
    void operator()(const Tensors &tensors) const {
        detail::Call call;
        call.check(pf_map_workers_complete(workers_, ticket_, tensors.data(), tensors.size(), call.err()));
    }

    // The number of the tuple in its pass, and the number of the pass, both from 0. Reader::load_state
    // restores both, so random numbers that are seeded by them are the same as without the interruption.
    // Throws StateError after the result.
    struct Position {
        uint64_t pass;
        uint64_t index;
    };
    Position position() const {
        detail::Call call;
        Position out{0, 0};
        call.check(pf_map_workers_position(workers_, ticket_, &out.pass, &out.index, call.err()));
        return out;
    }

private:
    friend struct detail::MapRun;
    Emit(pf_handle workers, uint64_t ticket) : workers_(workers), ticket_(ticket) {}

    pf_handle workers_;
    uint64_t ticket_;
};

// Computes the result of one tuple and emits it. `in` is borrowed for the call; in.share() keeps it. Threads
// of the library call it, many at the same time. An exception, or a call that emits nothing, is a
// ProducerError for the consumer. Its message, file() and record() name the tuple.
using MapFunction = std::function<void(const Tuple &in, const Emit &emit)>;

// How shard and split_batches give all parts the same number of tuples, if the number of parts does not divide
// the number of tuples.
enum class Even {
    none,    // they may differ by one tuple; not for split_batches
    drop,    // the last tuples are left out
    repeat,  // the first of the tuples that are divided are delivered again
    pad,     // tuples of zeros are added
};

// Delivers tuples, pass by pass. Copies are the same reader. Any number of threads may read.
//
// The methods that make another reader from this one put it into a variable of the same scope. The name is
// `out`, or, if that is empty, derived from the name of this reader. From then on read only the new reader: a
// tuple that is taken from this reader is missing in the new one. The new reader keeps this one alive.
class Reader {
public:
    // The next tuple; empty at the end of the pass, until reset(). Blocks.
    std::optional<Tuple> next(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        if (!call.check_unless(PF_END, pf_reader_next(handle(), call.wait(), &raw, call.err())))
            return std::nullopt;
        return std::optional<Tuple>(std::in_place, raw);
    }

    // Whether there is a next tuple. Reads one tuple ahead, so it may block.
    bool has_next(const Wait &wait = {}) const {
        detail::Call call(wait);
        uint8_t out = 0;
        call.check(pf_reader_has_next(handle(), call.wait(), &out, call.err()));
        return out != 0;
    }

    // The record of that number, from 0, of a reader that was opened with OpenFiles().index(true). Records are
    // numbered through all files, in the order of the list. What next() returns does not change.
    Tuple at(int64_t index) const {
        detail::Call call;
        pf_tuple raw = PF_TUPLE_INIT;
        call.check(pf_reader_at(handle(), index, &raw, call.err()));
        return Tuple(raw);
    }

    // Starts over with the next pass. A call of another thread that is blocked in next() throws Cancelled.
    // Throws StateError if the data cannot start over.
    void reset() const {
        detail::Call call;
        call.check(pf_reader_reset(handle(), call.err()));
    }

    // The position of the reader, behind the last tuple that next() has returned: a JSON object of some hundred
    // bytes. load_state goes on there, in another process too. Throws StateError if the position cannot be known
    // exactly; see pf_reader_get_state.
    std::string state() const {
        detail::Call call;
        char *json = nullptr;
        call.check(pf_reader_get_state(handle(), &json, call.err()));
        return detail::take_string(json);
    }
    // Goes to a position of a reader that was made in the same way. Throws StateError, with a message that names
    // the difference, if the chain or the files are others. If `strict` is false, other seeds and changed files
    // are accepted; see pf_reader_set_state.
    void load_state(const std::string &state, bool strict = true) const {
        detail::Call call;
        call.check(pf_reader_set_state(handle(), state.c_str(), strict, call.err()));
    }

    // for (Tuple &tuple : reader) reads the rest of the pass. reader.tuples(wait) does the same with a Wait.
    // Unlike `for` in Python, neither begins a pass: call reset() for that.
    detail::TupleIterator<Reader> begin() const { return {this, Wait()}; }
    detail::TupleIterator<Reader>::End end() const { return {}; }
    detail::TupleRange<Reader> tuples(const Wait &wait) const { return {*this, wait}; }

    // Statistics of this reader and those below it, and its slots, as a JSON object: see pf_reader_stats.
    std::string stats() const {
        detail::Call call;
        char *json = nullptr;
        call.check(pf_reader_stats(handle(), &json, call.err()));
        return detail::take_string(json);
    }

    // Joins batch_size tuples to one: see create_batch_reader.
    inline Reader batch(uint64_t batch_size, bool drop_last = false, bool ragged = false,
                        const std::string &out = {}) const;
    Reader batch(uint64_t, bool, const char *) const = delete;  // a string would be converted to `ragged`
    // Shuffles blocks of buffer_size tuples. The order of a pass depends on the seed and the pass only, on
    // every machine.
    inline Reader shuffle(uint64_t buffer_size, uint64_t seed = 0, const std::string &out = {}) const;
    // Goes on with the next pass by itself, pass_num passes in all; 0: without end.
    inline Reader multi_pass(uint64_t pass_num, const std::string &out = {}) const;
    // Reads ahead in a thread of the library: `depth` tuples are ready at each place.
    inline Reader double_buffer(const Places &place = {}, uint64_t depth = 2,
                                const std::string &out = {}) const;
    // Delivers every world-th tuple, beginning with number `rank`.
    inline Reader shard(uint64_t rank, uint64_t world, Even even = Even::none,
                        const std::string &out = {}) const;
    // Delivers the rank-th of `world` equal parts of each batch. This reader was made by batch, and `world`
    // divides its batch_size. The state of any process can be loaded by all processes, also if `world` is
    // another number.
    inline Reader split_batches(uint64_t rank, uint64_t world, Even even = Even::drop,
                                const std::string &out = {}) const;
    // Joins the slots of this reader and the other one. The scope of this reader must find the other reader
    // by name. The pass ends with the shorter of the two. If `strict` is true, two readers that do not
    // end together are a StateError.
    inline Reader zip(const Reader &other, bool strict = false, const std::string &out = {}) const;
    // Delivers one result of `function` for each tuple. num_threads threads of the library call it. After the
    // last reference to the new reader is gone, the threads end and the function is destroyed; a call that is
    // in progress may end a moment later. So the function must not hold a reference to the new reader.
    inline Reader map(MapFunction function, uint32_t num_threads, const MapOptions &options = {},
                      const std::string &out = {}) const;

    // The name of the variable that the reader is in.
    const std::string &name() const noexcept { return variable_.name(); }
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Variable;
    Reader(Variable variable, detail::Handle handle)
        : variable_(std::move(variable)), handle_(std::move(handle)) {}

    // Runs an operator on this reader and, for zip, on another one.
    inline Reader derive(const char *kind, const detail::Attributes &attributes, const std::string &out,
                         const Reader *other = nullptr) const;

    Variable variable_;
    detail::Handle handle_;
};

inline Reader Variable::reader() const {
    return {*this, detail::make_handle(
                       [&](pf_handle *id, pf_error *err) { return pf_var_get_reader(handle(), id, err); })};
}

// Runs the operator `op`: makes a reader from the readers in the variables `ins`, and puts it into the
// variable `out`, which is made if it does not exist. pyfeed.h has a list of the operators and their
// attributes, a JSON object. Waits only for files: see open_files.
inline Reader create_reader(const Scope &scope, const std::string &op, const std::string &out,
                            const std::vector<std::string> &ins, const std::string &attributes = {},
                            const Wait &wait = {}) {
    std::vector<const char *> names;
    names.reserve(ins.size());
    for (const std::string &name : ins) names.push_back(name.c_str());
    detail::Call call(wait);
    call.check(pf_reader_create(scope.handle(), op.c_str(), out.c_str(), names.data(),
                                static_cast<uint32_t>(names.size()),
                                attributes.empty() ? nullptr : attributes.c_str(), call.wait(), call.err()));
    return scope.find(out).reader();
}

// Puts a reader of the queue in the variable `feeder_name` into the variable `out`.
inline Reader create_py_array_reader(const Scope &scope, const std::string &out,
                                     const std::string &feeder_name) {
    return create_reader(scope, "create_py_array_reader", out, {},
                         detail::Attributes().set("feeder_name", feeder_name).json());
}

namespace detail {
inline Attributes part_attributes(uint64_t rank, uint64_t world, Even even, Even usual) {
    const std::string names[] = {"", "drop", "repeat", "pad"};
    Attributes out;
    out.set("rank", rank).set("world", world);
    if (even != usual) out.set("even", names[static_cast<int>(even)]);
    return out;
}
inline Attributes batch_attributes(uint64_t batch_size, bool drop_last, bool ragged) {
    Attributes out;
    out.set("batch_size", batch_size).set("drop_last", drop_last);
    if (ragged) out.set("ragged", true);
    return out;
}
}  // namespace detail

// Puts a reader into the variable `out` that joins `batch_size` tuples of the reader in the variable `in`.
// Slots whose first dimension is -1 are concatenated along it, and their ragged offsets (LoD, level of
// detail) are merged. Other slots are stacked. The last, smaller batch of a pass is delivered, unless
// drop_last is true. A tuple whose slots add different numbers of rows to a batch is a ShapeError, unless
// `ragged` is true.
inline Reader create_batch_reader(const Scope &scope, const std::string &out, const std::string &in,
                                  uint64_t batch_size, bool drop_last = false, bool ragged = false) {
    return create_reader(scope, "create_batch_reader", out, {in},
                         detail::batch_attributes(batch_size, drop_last, ragged).json());
}

// Puts a reader of files into the variable `out`: paths, globs or directories, each with the tag of a format
// and a colon before it if its suffix does not determine the format. Threads of the library read many files
// at a time. A file is opened when it is read. This call reads the first file only if the options have no
// slots: it then waits for the data of that file if it is a FIFO. The search for files may take long, too.
inline Reader open_files(const Scope &scope, const std::string &out,
                         const std::vector<std::string> &filenames, const OpenFiles &options = {},
                         const Wait &wait = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "open_files", out, {}, attributes.set("filenames", filenames).json(), wait);
}

// Like open_files, for one file, which the calling threads read. num_threads, ordered, interleave and shuffle_files
// have no effect here.
inline Reader create_file_reader(const Scope &scope, const std::string &out, const std::string &filename,
                                 const OpenFiles &options = {}, const Wait &wait = {}) {
    detail::Attributes attributes = options.attributes();
    attributes.set("filenames", std::vector<std::string>{filename});
    return create_reader(scope, "create_file_reader", out, {}, attributes.json(), wait);
}

// Puts a reader into the variable `out` that makes uniformly distributed random numbers. They are the same in
// every pass and on every machine. The slots must have a dtype and all dimensions.
inline Reader create_random_data_generator(const Scope &scope, const std::string &out,
                                           const std::vector<SlotSpec> &slots,
                                           const RandomOptions &options = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "create_random_data_generator", out, {},
                         attributes.set("slots", slots).json());
}

// Puts a reader into the variable `out` of the numbers from 0 to below count, as int64 without dimensions. Above it,
// batch and map read the samples of a dataset by their numbers.
inline Reader create_range_reader(const Scope &scope, const std::string &out, int64_t count,
                                  const RangeOptions &options = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "create_range_reader", out, {}, attributes.set("count", count).json());
}

inline Reader Reader::derive(const char *kind, const detail::Attributes &attributes, const std::string &out,
                             const Reader *other) const {
    const Scope &scope = variable_.scope_;
    std::string name = out;
    if (name.empty()) {
        const std::string base = this->name() + "." + kind;
        name = base;
        for (int i = 2; scope.has(name); i++) name = base + std::to_string(i);
    }
    std::vector<std::string> ins = {this->name()};
    if (other != nullptr) ins.push_back(other->name());
    return create_reader(scope, std::string("create_") + kind + "_reader", name, ins, attributes.json());
}

inline Reader Reader::batch(uint64_t batch_size, bool drop_last, bool ragged, const std::string &out) const {
    return derive("batch", detail::batch_attributes(batch_size, drop_last, ragged), out);
}
inline Reader Reader::shuffle(uint64_t buffer_size, uint64_t seed, const std::string &out) const {
    return derive("shuffle", detail::Attributes().set("buffer_size", buffer_size).set("seed", seed), out);
}
inline Reader Reader::multi_pass(uint64_t pass_num, const std::string &out) const {
    return derive("multi_pass", detail::Attributes().set("pass_num", pass_num), out);
}
inline Reader Reader::double_buffer(const Places &place, uint64_t depth, const std::string &out) const {
    return derive("double_buffer", detail::Attributes().set("place", place).set("depth", depth), out);
}
inline Reader Reader::shard(uint64_t rank, uint64_t world, Even even, const std::string &out) const {
    return derive("shard", detail::part_attributes(rank, world, even, Even::none), out);
}
inline Reader Reader::split_batches(uint64_t rank, uint64_t world, Even even, const std::string &out) const {
    return derive("split_batches", detail::part_attributes(rank, world, even, Even::drop), out);
}
inline Reader Reader::zip(const Reader &other, bool strict, const std::string &out) const {
    if (other.name() == name()) {
        throw InvalidArgument("zip: expected readers in two variables, found " + name() + " and " + name());
    }
    return derive("zip", detail::Attributes().set("strict", strict), out, &other);
}

namespace detail {

// The function of a map reader. The last thread that calls it deletes it.
struct MapRun {
    MapFunction function;
    bool skip_errors;

    static int call(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in) noexcept {
        Tuple tuple(*in);
        const MapRun *run = static_cast<MapRun *>(context);
        try {
            run->function(tuple, Emit(workers, ticket));
        } catch (...) {
            const Failure failure = failure_of(std::current_exception());
            const pf_failure raw = failure.raw();
            (run->skip_errors ? pf_map_workers_skip : pf_map_workers_fail)(workers, ticket, &raw, nullptr);
        }
        tuple.detach();  // the tuple was borrowed
        return 0;
    }
    static void finished(void *context) noexcept { delete static_cast<MapRun *>(context); }
};

}  // namespace detail

inline Reader Reader::map(MapFunction function, uint32_t num_threads, const MapOptions &options,
                          const std::string &out) const {
    if (!function) throw InvalidArgument("map: expected a function, found none");
    Reader mapped = derive("map", options.attributes(), out);
    const detail::Handle workers = detail::make_handle(
        [&](pf_handle *id, pf_error *err) { return pf_map_workers_create(mapped.handle(), id, err); });
    auto run = std::make_unique<detail::MapRun>(detail::MapRun{std::move(function), options.skips_errors()});
    detail::Call call;
    const pf_status status = pf_map_workers_start(workers.get(), &detail::MapRun::call, run.get(),
                                                  num_threads, &detail::MapRun::finished, call.err());
    if (status != PF_OK) {
        variable_.scope_.erase(mapped.name());  // a map reader without threads would block for ever
        call.check(status);
    }
    run.release();  // the library owns it now
    return mapped;
}

// The read operator: takes the next tuple of the reader in the variable `reader`, and moves its slots into
// the variables `outs` without a copy. A variable that no scope has is made in `scope`. Returns false at the
// end of the pass, which leaves the variables as they are. Throws SlotCountError if the numbers differ; the
// tuple then stays with the reader. Blocks.
inline bool read(const Scope &scope, const std::string &reader, std::initializer_list<const char *> outs,
                 const Wait &wait = {}) {
    detail::Call call(wait);
    return call.check_unless(PF_END,
                             pf_scope_read(scope.handle(), reader.c_str(), outs.begin(),
                                           static_cast<uint32_t>(outs.size()), call.wait(), call.err()));
}
inline bool read(const Scope &scope, const std::string &reader, const std::vector<std::string> &outs,
                 const Wait &wait = {}) {
    std::vector<const char *> names;
    names.reserve(outs.size());
    for (const std::string &name : outs) names.push_back(name.c_str());
    detail::Call call(wait);
    return call.check_unless(PF_END,
                             pf_scope_read(scope.handle(), reader.c_str(), names.data(),
                                           static_cast<uint32_t>(names.size()), call.wait(), call.err()));
}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_READER_HPP

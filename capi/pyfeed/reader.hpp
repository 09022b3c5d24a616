// Readers: how they are made, read and decorated.
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

// How open_files reads: OpenFiles().format("recordio").num_threads(4). What is not set is as pyfeed.h says.
class OpenFiles : public detail::Options<OpenFiles> {
public:
    // The format's tag, for files whose names do not tell.
    OpenFiles &format(const std::string &tag) { return set("format", tag); }
    // What an instance looks like; else the first file is asked.
    OpenFiles &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // Threads that read.
    OpenFiles &num_threads(int threads) { return set("num_threads", threads); }
    // Whether instances come in one order, whatever num_threads; else first come, first served.
    OpenFiles &ordered(bool ordered) { return set("ordered", ordered); }
    // Files that are read in turn when ordered.
    OpenFiles &interleave(int files) { return set("interleave", files); }
    // A seed, from 0: the files come in another order in each pass, which depends on that and the pass alone.
    OpenFiles &shuffle_files(int64_t seed) { return set("shuffle_files", seed); }
    // What damage is: "raise", a CorruptRecordError; "skip", a line in Reader::stats.
    OpenFiles &on_corrupt(const std::string &what) { return set("on_corrupt", what); }
    // Whether each file is read twice, the first time to verify all of it before its first instance is delivered.
    OpenFiles &verify_first(bool verify) { return set("verify_first", verify); }
    // "auto", "none", "gzip", "zlib", "zstd", "snappy" or "snappy-skippable".
    OpenFiles &compression(const std::string &name) {
        return set("storage", storage_.set("compression", name));
    }
    // "auto", "map" or "read".
    OpenFiles &io(const std::string &way) { return set("storage", storage_.set("io", way)); }
    // The format's own options, a JSON object: see docs/formats.md.
    OpenFiles &options(const std::string &json) { return set("options", detail::Json{json}); }

private:
    detail::Attributes storage_;
};

// What create_random_data_generator makes: RandomOptions().low(-1).count(1000). What is not set is as pyfeed.h says.
class RandomOptions : public detail::Options<RandomOptions> {
public:
    // Numbers are from low to below high; of integers, high is included.
    RandomOptions &low(double low) { return set("low", low); }
    RandomOptions &high(double high) { return set("high", high); }
    RandomOptions &seed(uint64_t seed) { return set("seed", seed); }
    // Instances of a pass; -1: without end.
    RandomOptions &count(int64_t instances) { return set("count", instances); }
};

// How Reader::map delivers. What is not set is as pyfeed.h says.
class MapOptions : public detail::Options<MapOptions> {
public:
    // What the results look like; else as what they are made of.
    MapOptions &slots(const std::vector<SlotSpec> &slots) { return set("slots", slots); }
    // Tuples taken and not yet delivered, at most.
    MapOptions &capacity(uint64_t tuples) { return set("capacity", tuples); }
    // Whether results come in the order of what they are made of; else first come, first served.
    MapOptions &ordered(bool ordered) { return set("ordered", ordered); }
};

namespace detail {
struct MapRun;
}

// Takes the result of a function of Reader::map. Good for that call of the function.
class Emit {
public:
    // Copies the result in, strided or not. One that does not fit the reader's slots throws, and another may
    // be emitted. Once there is a result, later ones are ignored.
    void operator()(const Tensors &tensors) const {
        detail::Call call;
        call.check(pf_map_workers_complete(workers_, ticket_, tensors.data(), tensors.size(), call.err()));
    }

private:
    friend struct detail::MapRun;
    Emit(pf_handle workers, uint64_t ticket) : workers_(workers), ticket_(ticket) {}

    pf_handle workers_;
    uint64_t ticket_;
};

// Makes the result of one tuple, which is borrowed for the call: in.share() keeps it. It is called from many
// threads of the library at once. What it throws, or that it emits nothing, is the consumer's ProducerError,
// whose message, file() and record() say which tuple it was.
using MapFunction = std::function<void(const Tuple &in, const Emit &emit)>;

// What hands out tuples, pass by pass. Copies are the same reader.
//
// The methods that make another reader from this one put it into a variable beside it: `out`, or a name made
// from this one's. From then on read only the new one: what it takes is missing here. It keeps this one.
class Reader {
public:
    // The next tuple; nothing at the end of the pass, until reset(). Blocks.
    std::optional<Tuple> next(const Wait &wait = {}) const {
        detail::Call call(wait);
        pf_tuple raw = PF_TUPLE_INIT;
        if (!call.check_unless(PF_END, pf_reader_next(handle(), call.wait(), &raw, call.err())))
            return std::nullopt;
        return std::optional<Tuple>(std::in_place, raw);
    }

    // Whether there is a next tuple: reads one ahead and so may block.
    bool has_next(const Wait &wait = {}) const {
        detail::Call call(wait);
        uint8_t out = 0;
        call.check(pf_reader_has_next(handle(), call.wait(), &out, call.err()));
        return out != 0;
    }

    // Starts over, also while another thread is blocked in next(): that call is Cancelled. StateError where
    // there is nothing to start over from.
    void reset() const {
        detail::Call call;
        call.check(pf_reader_reset(handle(), call.err()));
    }

    // for (Tuple &tuple : reader): the rest of the pass; reader.tuples(wait) waits as told.
    detail::TupleIterator<Reader> begin() const { return {this, Wait()}; }
    detail::TupleIterator<Reader>::End end() const { return {}; }
    detail::TupleRange<Reader> tuples(const Wait &wait) const { return {*this, wait}; }

    // What this reader and those below it did since they were made, and what its tuples look like: a JSON
    // object, see pf_reader_stats.
    std::string stats() const {
        detail::Call call;
        char *json = nullptr;
        call.check(pf_reader_stats(handle(), &json, call.err()));
        return detail::take_string(json);
    }

    // A reader of batches of this one's tuples: see create_batch_reader.
    inline Reader batch(uint64_t batch_size, bool drop_last = false, bool ragged = false,
                        const std::string &out = {}) const;
    Reader batch(uint64_t, bool, const char *) const = delete;  // which would be ragged
    // Permutes blocks of buffer_size tuples. One order for one seed, on every machine, another each pass.
    inline Reader shuffle(uint64_t buffer_size, uint64_t seed = 0, const std::string &out = {}) const;
    // Goes on with the next pass by itself, pass_num of them in all; 0: without end.
    inline Reader multi_pass(uint64_t pass_num, const std::string &out = {}) const;
    // Has `depth` tuples ready ahead at each place, read by a thread of the library.
    inline Reader double_buffer(const Places &place = {}, uint64_t depth = 2,
                                const std::string &out = {}) const;
    // Every world-th tuple, from the rank-th on.
    inline Reader shard(uint64_t rank, uint64_t world, const std::string &out = {}) const;
    // Tuples of this one's slots and then the other's, which this one's scope must know by its name. The pass
    // ends with the shorter of the two; strict, it is a StateError if they do not end together.
    inline Reader zip(const Reader &other, bool strict = false, const std::string &out = {}) const;
    // What `function` makes of the tuples, one result of each, on num_threads threads of the library. They,
    // the function and what it holds go with the last reference to the new reader, which the function must
    // therefore not hold; the last of them may go on for a moment after that.
    inline Reader map(MapFunction function, uint32_t num_threads, const MapOptions &options = {},
                      const std::string &out = {}) const;

    // The name of the variable it is in.
    const std::string &name() const noexcept { return variable_.name(); }
    pf_handle handle() const noexcept { return handle_.get(); }

private:
    friend class Variable;
    Reader(Variable variable, detail::Handle handle)
        : variable_(std::move(variable)), handle_(std::move(handle)) {}

    // Runs an operator on this reader and, perhaps, another.
    inline Reader derive(const char *kind, const detail::Attributes &attributes, const std::string &out,
                         const Reader *other = nullptr) const;

    Variable variable_;
    detail::Handle handle_;
};

inline Reader Variable::reader() const {
    return {*this, detail::make_handle(
                       [&](pf_handle *id, pf_error *err) { return pf_var_get_reader(handle(), id, err); })};
}

// Runs the operator `op`: makes a reader of the readers in the variables `ins` and puts it into the variable
// `out`, which is made if need be. pyfeed.h lists the operators and their attributes, a JSON object.
inline Reader create_reader(const Scope &scope, const std::string &op, const std::string &out,
                            const std::vector<std::string> &ins, const std::string &attributes = {}) {
    std::vector<const char *> names;
    names.reserve(ins.size());
    for (const std::string &name : ins) names.push_back(name.c_str());
    detail::Call call;
    call.check(pf_reader_create(scope.handle(), op.c_str(), out.c_str(), names.data(),
                                static_cast<uint32_t>(names.size()),
                                attributes.empty() ? nullptr : attributes.c_str(), nullptr, call.err()));
    return scope.find(out).reader();
}

// Puts a reader of the queue in the variable `feeder_name` into the variable `out`.
inline Reader create_py_array_reader(const Scope &scope, const std::string &out,
                                     const std::string &feeder_name) {
    return create_reader(scope, "create_py_array_reader", out, {},
                         detail::Attributes().set("feeder_name", feeder_name).json());
}

namespace detail {
inline Attributes batch_attributes(uint64_t batch_size, bool drop_last, bool ragged) {
    Attributes out;
    out.set("batch_size", batch_size).set("drop_last", drop_last);
    if (ragged) out.set("ragged", true);
    return out;
}
}  // namespace detail

// Puts a reader into the variable `out` that joins `batch_size` tuples of the reader in the variable `in`:
// slots whose first dimension is -1 are concatenated along it and their level of detail merged, others are
// stacked. The last, smaller batch of a pass is delivered, unless drop_last. A tuple whose slots add different numbers of
// rows to a batch is a ShapeError, unless ragged.
inline Reader create_batch_reader(const Scope &scope, const std::string &out, const std::string &in,
                                  uint64_t batch_size, bool drop_last = false, bool ragged = false) {
    return create_reader(scope, "create_batch_reader", out, {in},
                         detail::batch_attributes(batch_size, drop_last, ragged).json());
}

// Puts a reader of files into the variable `out`: paths, globs or directories, each with a format's tag and a
// colon before it where its suffix does not tell. Threads of the library read them, many at a time. They are
// opened when they are read; only the first is looked at here, and that only if options do not say the slots.
inline Reader open_files(const Scope &scope, const std::string &out,
                         const std::vector<std::string> &filenames, const OpenFiles &options = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "open_files", out, {}, attributes.set("filenames", filenames).json());
}

// The same of one file, which the calling threads read. num_threads, ordered, interleave and
// shuffle_files mean nothing here.
inline Reader create_file_reader(const Scope &scope, const std::string &out, const std::string &filename,
                                 const OpenFiles &options = {}) {
    detail::Attributes attributes = options.attributes();
    attributes.set("filenames", std::vector<std::string>{filename});
    return create_reader(scope, "create_file_reader", out, {}, attributes.json());
}

// Puts a reader into the variable `out` that makes numbers drawn evenly from a range, the same in every pass
// and on every machine. The slots must say dtype and all dimensions.
inline Reader create_random_data_generator(const Scope &scope, const std::string &out,
                                           const std::vector<SlotSpec> &slots,
                                           const RandomOptions &options = {}) {
    detail::Attributes attributes = options.attributes();
    return create_reader(scope, "create_random_data_generator", out, {},
                         attributes.set("slots", slots).json());
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
inline Reader Reader::shard(uint64_t rank, uint64_t world, const std::string &out) const {
    return derive("shard", detail::Attributes().set("rank", rank).set("world", world), out);
}
inline Reader Reader::zip(const Reader &other, bool strict, const std::string &out) const {
    if (other.name() == name()) {
        throw InvalidArgument("zip: expected readers in two variables, found " + name() + " and " + name());
    }
    return derive("zip", detail::Attributes().set("strict", strict), out, &other);
}

namespace detail {

// A function at work for a map reader, which the last thread deletes.
struct MapRun {
    MapFunction function;

    static int call(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in) noexcept {
        Tuple tuple(*in);
        try {
            static_cast<MapRun *>(context)->function(tuple, Emit(workers, ticket));
        } catch (...) {
            const Failure failure = failure_of(std::current_exception());
            const pf_failure raw = failure.raw();
            pf_map_workers_fail(workers, ticket, &raw, nullptr);
        }
        tuple.detach();  // it was borrowed
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
    auto run = std::make_unique<detail::MapRun>(detail::MapRun{std::move(function)});
    detail::Call call;
    const pf_status status = pf_map_workers_start(workers.get(), &detail::MapRun::call, run.get(),
                                                  num_threads, &detail::MapRun::finished, call.err());
    if (status != PF_OK) {
        variable_.scope_.erase(mapped.name());  // a map reader without threads would wait for ever
        call.check(status);
    }
    run.release();  // the library's now
    return mapped;
}

// The read op: the next tuple of the reader in the variable `reader`, slot by slot into the variables `outs`,
// made in `scope` if no scope has them. Moves, never copies. False at the end of the pass, which leaves the
// variables as they are; SlotCountError if the numbers differ: the tuple then stays with the reader. Blocks.
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

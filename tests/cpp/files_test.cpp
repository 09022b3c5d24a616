// Files: readers, writers, damaged files, and formats whose files the program itself reads.
#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <locale>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class FilesTest : public Files {
protected:
    // Stores three files with the numbers 0 1 2, 10 11, and 20.
    std::vector<std::string> three() {
        return {store("a.raw", range(0, 3)), store("b.raw", range(10, 12)), store("c.raw", range(20, 21))};
    }
    Numbers all(const std::vector<std::string> &names, const OpenFiles &options = raw()) {
        return rest(open_files(scope, "files", names, options));
    }
};

// ---- Opening ----

TEST_F(FilesTest, RecordsByNumber) {
    const auto names = three();
    const Reader files = open_files(scope, "files", names, raw().index(true).interleave(2));
    const auto at = [&](int64_t i) { return files.at(i).at(0).data<int64_t>()[0]; };
    EXPECT_EQ(20, at(5));
    EXPECT_EQ((Numbers{0, 10, 1, 11, 2, 20}), rest(files));
    EXPECT_EQ(10, at(3));
    EXPECT_THROW(files.at(6), InvalidArgument);
    EXPECT_THROW(files.at(-1), InvalidArgument);
    const Reader without = open_files(scope, "without", names, raw());
    EXPECT_THROW(without.at(0), UnsupportedError);
}

TEST_F(FilesTest, AllRecordsInOneOrderWhateverTheNumberOfThreads) {
    const auto names = three();
    const Numbers first = all(names, raw().shuffle_records(4).num_threads(1));
    for (const int threads : {2, 8})
        EXPECT_EQ(first, all(names, raw().shuffle_records(4).num_threads(threads)));
    Numbers sorted = first;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20}), sorted);
    EXPECT_NE(sorted, first);
}

// Two processes together read each record once, and a tuple of zeros at the end.
TEST_F(FilesTest, VirtualShards) {
    const auto names = three();
    const auto part = [&](int rank, int world, const char *even) {
        return all(names, raw().virtual_shards(4).rank(rank).world(world).even(even));
    };
    EXPECT_EQ((Numbers{0, 2, 11, 20, 1, 10, 0, 0}), part(0, 1, "pad"));
    EXPECT_EQ((Numbers{0, 11, 1, 0}), part(0, 2, "pad"));
    EXPECT_EQ((Numbers{2, 20, 10, 20}), part(1, 2, "repeat"));
    EXPECT_EQ((Numbers{20}), part(3, 4, "drop"));
    EXPECT_THROW(part(0, 3, "drop"), InvalidArgument);
    EXPECT_THROW(part(0, 1, "none"), InvalidArgument);
}

TEST_F(FilesTest, OneOrderWhateverTheNumberOfThreads) {
    const auto names = three();
    for (const int threads : {1, 2, 3, 8}) {
        EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20}), all(names, raw().num_threads(threads).interleave(1)));
        EXPECT_EQ((Numbers{0, 10, 1, 11, 2, 20}), all(names, raw().num_threads(threads).interleave(2)));
        const Numbers shuffled = all(names, raw().num_threads(threads).interleave(1).shuffle_files(2));
        EXPECT_EQ((Numbers{10, 11, 0, 1, 2, 20}), shuffled);
        EXPECT_EQ((Numbers{0, 10, 20, 1, 11, 2}), all(names, raw().num_threads(threads)));
        Numbers unordered = all(names, raw().num_threads(threads).ordered(false));
        std::sort(unordered.begin(), unordered.end());
        EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20}), unordered);
    }
}

// Without slots, the first file is read at once: a FIFO without a writer then has no data.
TEST_F(FilesTest, OpeningCanBeEnded) {
    const std::string pipe = path("x.npy");
    ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
    const CancelToken token;
    token.cancel();
    const Wait cancelled = Wait().cancel(token), none = Wait::none();
    EXPECT_ERROR(Timeout, -1, open_files(scope, "files", {pipe}, {}, none), "time");
    EXPECT_ERROR(Cancelled, -1, open_files(scope, "files", {pipe}, {}, cancelled), "cancel");
    EXPECT_ERROR(Timeout, -1, create_file_reader(scope, "file", pipe, {}, none), "time");
    EXPECT_ERROR(Cancelled, -1, create_file_reader(scope, "file", pipe, {}, cancelled), "cancel");
    const std::string attributes =
        detail::Attributes().set("filenames", std::vector<std::string>{pipe}).json();
    EXPECT_ERROR(Timeout, -1, create_reader(scope, "open_files", "files", {}, attributes, none), "time");
}

TEST_F(FilesTest, NamesOfAnyBytes) {
    for (const std::string &name :
         {std::string("\xff.raw"), std::string("a\x80\xc3\xbc\xc3.raw"), std::string("\xed\xb2\x80.raw"),
          std::string("\xf0\x9f\x98\x80.raw"), std::string("\\u0000ff\"\xf4\x90\x80\x80.raw")}) {
        const std::string stored = store(name, range(3, 5));
        EXPECT_EQ((Numbers{3, 4}), all({stored}));
        const char *names[] = {stored.c_str()};
        char *json = nullptr;
        EXPECT_STATUS(PF_OK, pf_file_list(names, 1, nullptr, nullptr, &json, nullptr));
        EXPECT_EQ("[" + detail::to_json("raw:" + stored) + "]", detail::take_string(json));
        const std::string missing = stored + "\xfe.raw";
        pf_error err = PF_ERROR_INIT;
        const std::string attributes =
            detail::Attributes().set("filenames", std::vector<std::string>{missing}).json();
        EXPECT_STATUS(PF_IO, pf_reader_create(scope.handle(), "open_files", "x", nullptr, 0,
                                              attributes.c_str(), nullptr, &err));
        EXPECT_EQ(missing, err.file);
        pf_error_release(&err);
    }
    EXPECT_EQ("\"\\u0000ff\"", detail::to_json(std::string("\xff")));
}

TEST_F(FilesTest, APatternOfAllFoldersBelow) {
    const auto names = three();
    EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20}), all({path("**/*.raw")}, raw().interleave(1)));
    EXPECT_EQ((Numbers{20, 0, 1, 2}), all({path("{c,a}.raw")}, raw().interleave(1)));
}

TEST_F(FilesTest, ManyFilesAndPasses) {
    std::vector<std::string> names;
    for (int64_t i = 0; i < 100; i++) {
        names.push_back(store(std::to_string(i) + ".raw", range(1000 * i, 1000 * i + (i * 37) % 600)));
    }
    const Reader ordered = open_files(scope, "ordered", names, raw().num_threads(4));
    const Reader unordered = open_files(scope, "unordered", names, raw().num_threads(4).ordered(false));
    const Numbers first = rest(ordered);
    Numbers sorted = rest(unordered);
    std::sort(sorted.begin(), sorted.end());
    for (size_t pass = 1; pass < 4; pass++) {
        ordered.reset();
        EXPECT_EQ(first, rest(ordered));
        ordered.reset();
        for (size_t i = 0; i < 777 * pass; i++) ASSERT_EQ(first[i], next_number(ordered));
        unordered.reset();
        for (size_t i = 0; i < 777 * pass; i++) ASSERT_LE(0, next_number(unordered));
        unordered.reset();
        Numbers again = rest(unordered);
        std::sort(again.begin(), again.end());
        EXPECT_EQ(sorted, again);
    }
    Numbers all = first;
    std::sort(all.begin(), all.end());
    EXPECT_EQ(sorted, all);
    Numbers want;
    for (int64_t i = 0; i < 100; i++) {
        for (const int64_t n : range(1000 * i, 1000 * i + (i * 37) % 600)) want.push_back(n);
    }
    EXPECT_EQ(want, all);
}

TEST_F(FilesTest, GlobsFoldersAndPrefixes) {
    three();
    store(".hidden.raw", range(90, 91));
    store("d.other", range(30, 32));
    const OpenFiles in_turn = OpenFiles().slots(number_slots()).interleave(1);
    EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20}), all({path("*.raw")}, in_turn));
    EXPECT_EQ((Numbers{10, 11, 20}), all({path("[bc].raw")}, in_turn));
    EXPECT_EQ((Numbers{30, 31}), all({"raw:" + path("d.other")}, in_turn));
    EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20, 30, 31}), all({"raw:" + folder}, in_turn));
    EXPECT_EQ((Numbers{20, 0, 1, 2}), all({path("c.raw"), path("a.raw")}, in_turn));
    EXPECT_EQ((Numbers{30, 31}), all({path("d.other")}, raw()));
    EXPECT_ERROR(InvalidArgument, -1, all({path("d.other")}, in_turn), "d.other", "raw", "recordio",
                 "such as \"tfrecord:");
    EXPECT_ERROR(InvalidArgument, -1, all({folder}, in_turn), "d.other");
    EXPECT_ERROR(InvalidArgument, -1, all({path("*.none")}, in_turn), "found none");
    EXPECT_ERROR(InvalidArgument, -1, all({}, in_turn), "filenames", "found 0");
}

// A large record is verified when it is copied into a batch, or handed out: after the records before it in the delivered
// order.
TEST_F(FilesTest, DamageOfALargeRecord) {
    constexpr int64_t kCount = 20, kSize = 30'000, kDamaged = 13;
    std::vector<uint8_t> record(kSize);
    const LoD whole{{0, kSize}};
    const Writer writer(path("a.tfrecord"));
    for (int64_t n = 0; n < kCount; n++) {
        std::fill(record.begin(), record.end(), uint8_t(n));
        writer.write({view(record, {kSize}).with_lod(whole)});
    }
    writer.close();
    const auto read_all = [&](const Reader &reader, Numbers &found) {
        while (const auto tuple = reader.next(kStuck)) {
            const auto data = tuple->at(0).values<uint8_t>();
            for (size_t at = 0; at < data.size(); at += kSize) found.push_back(data[at + kSize / 2]);
        }
    };
    const std::vector<std::function<Reader(Reader)>> chains = {
        [](const Reader &reader) { return reader; },
        [](const Reader &reader) { return reader.shuffle(9, 3); },
        [](const Reader &reader) { return reader.shuffle(9, 3).batch(4).double_buffer({}, 2); },
        [](const Reader &reader) {
            return reader.map([](const Tuple &in, const Emit &emit) { emit(in); }, 2);
        },
    };
    std::vector<Numbers> orders(chains.size());
    for (size_t i = 0; i < chains.size(); i++)
        read_all(chains[i](open_files(scope, "intact", {path("a.tfrecord")})), orders[i]);
    std::string bytes = load("a.tfrecord");
    bytes[(kSize + 16) * kDamaged + 12 + kSize / 2] ^= 64;
    store("a.tfrecord", bytes);
    for (size_t i = 0; i < chains.size(); i++) {
        SCOPED_TRACE(i);
        const Reader reader = chains[i](open_files(scope, "damaged", {path("a.tfrecord")}));
        Numbers found;
        for (int again = 0; again < 2; again++) {
            try {
                read_all(reader, found);
                FAIL() << "nothing was thrown";
            } catch (const CorruptRecordError &e) {
                EXPECT_EQ(path("a.tfrecord"), e.file());
                EXPECT_EQ(kDamaged, e.record());
                EXPECT_EQ((kSize + 16) * kDamaged + 12, e.offset());
            }
        }
        const auto end = std::find(orders[i].begin(), orders[i].end(), kDamaged);
        EXPECT_EQ(Numbers(orders[i].begin(), end), found);
    }
}

TEST_F(FilesTest, SeveralFormats) {
    const Writer writer(path("d.npy"));
    for (const int64_t n : range(30, 32)) writer.write({view(&n, {1})});
    writer.close();
    three();
    const OpenFiles in_turn = OpenFiles().slots(number_slots()).interleave(1);
    EXPECT_EQ((Numbers{0, 1, 2, 10, 11, 20, 30, 31}), all({folder}, in_turn));
    OpenFiles by_format = in_turn;
    by_format.options(R"({"raw": {"header_bytes": 8}, "npy": {"instances": "rows"}})");
    EXPECT_EQ((Numbers{1, 2, 11, 30, 31}), all({folder}, by_format));
    EXPECT_ERROR(InvalidArgument, -1, all({folder}, by_format.options(R"({"csv": {}})")), "csv", "raw",
                 "npy");
}

TEST_F(FilesTest, Refusals) {
    const auto names = three();
    EXPECT_ERROR(InvalidArgument, -1, all(names, OpenFiles()), "slots");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().format("nothing")), "format", "raw", "nothing");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().num_threads(0)), "num_threads", "found 0");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().interleave(0)), "interleave", "found 0");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().on_corrupt("ignore")), "raise", "skip", "ignore");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().compression("rar")), "gzip", "rar");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().io("write")), "map", "read", "write");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().options(R"({"order": 1})")), "order", "byte_order");
    EXPECT_ERROR(InvalidArgument, -1, all(names, raw().options("{")), "attributes");
    EXPECT_ERROR(InvalidArgument, 0, all(names, raw().slots({{{-1}, DType::int64}})), "-1");
    EXPECT_ERROR(InvalidArgument, -1, create_file_reader(scope, "one", folder, raw()), "create_file_reader",
                 "found 3");
    EXPECT_FALSE(scope.has("one"));
    EXPECT_EQ(6u, all(names).size());
}

TEST_F(FilesTest, AMissingFile) {
    try {
        open_files(scope, "files", {path("none.raw")}, raw());
        FAIL() << "nothing was thrown";
    } catch (const FileError &e) {
        EXPECT_EQ(PF_IO, e.status());
        EXPECT_EQ(path("none.raw"), e.file());
        EXPECT_EQ(ENOENT, e.os_errno());
        EXPECT_EQ(-1, e.offset());
        EXPECT_EQ(-1, e.record());
        EXPECT_NE(nullptr, std::strstr(e.what(), "none.raw"));
        EXPECT_NE(nullptr, std::strstr(e.what(), "no such file"));
    }
    // A file that is removed after the reader was created causes an error when it is read.
    const Reader reader = open_files(
        scope, "files", {store("a.raw", range(0, 3)), store("b.raw", range(3, 5))}, raw().interleave(1));
    std::filesystem::remove(path("b.raw"));
    for (int64_t i = 0; i < 3; i++) EXPECT_EQ(i, next_number(reader));
    for (int i = 0; i < 2; i++) {
        try {
            reader.next(kStuck);
            FAIL() << "nothing was thrown";
        } catch (const FileError &e) {
            EXPECT_EQ(path("b.raw"), e.file());
            EXPECT_EQ(ENOENT, e.os_errno());
        }
    }
    store("b.raw", range(3, 5));
    reader.reset();
    EXPECT_EQ(range(0, 5), rest(reader));
}

TEST_F(FilesTest, NamesOfAnyKind) {
    int64_t n = 0;
    for (const std::string name : {"a \"quoted\" one", "back\\slash", "line\nbreak", "tab\tand \x01\x1f",
                                   "größe € 𝄞", "{\"filenames\": []}", "a:b", "<b>&", "50%", "'"}) {
        SCOPED_TRACE(name);
        EXPECT_EQ((Numbers{n}), all({store(name, Numbers{n})}));
        EXPECT_EQ((Numbers{n}), rest(create_file_reader(scope, "one", path(name), raw())));
        n++;
    }
    EXPECT_EQ(10u, all({folder}).size());
}

TEST_F(FilesTest, OptionsOfFormatAndStorage) {
    const std::string big("head\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02", 20);
    store("big.raw", big);
    const std::string options = R"({"header_bytes": 4, "byte_order": "big"})";
    for (const char *io : {"auto", "map", "read"}) {
        EXPECT_EQ((Numbers{1, 2}), all({path("big.raw")}, raw().options(options).compression("none").io(io)));
    }
    // If an option is set twice, the last value counts.
    EXPECT_EQ((Numbers{1, 2}),
              all({path("big.raw")}, raw().io("nonsense").io("read").options("{}").options(options)));
    EXPECT_ERROR(CorruptRecordError, -1, all({path("big.raw")}, raw().options(options).compression("gzip")),
                 "decompress", "big.raw");
}

TEST_F(FilesTest, MappedFilesAreCounted) {
    const std::string name = store("a.raw", range(0, 1000));
    const Reader mapped = create_file_reader(scope, "mapped", name, raw().io("map"));
    const Reader read = create_file_reader(scope, "read", name, raw().io("read"));
    EXPECT_EQ(0u, memory_stats().live_mapped_bytes);  // no file is open before the first read
    auto view = mapped.next();
    EXPECT_EQ(8000u, memory_stats().live_mapped_bytes);
    EXPECT_EQ(0u, memory_stats().live_file_bytes);
    EXPECT_TRUE(view->at(0).read_only());
    auto block = read.next();
    EXPECT_LE(8000u, memory_stats().live_file_bytes);
    EXPECT_EQ(8000u, memory_stats().live_mapped_bytes);
    EXPECT_EQ(0, number(*view) + number(*block));
    EXPECT_EQ(range(1, 1000), rest(mapped));
    EXPECT_EQ(range(1, 1000), rest(read));
}

TEST_F(FilesTest, EmptyFiles) {
    const std::string empty = store("a.raw", Numbers{});
    EXPECT_EQ((Numbers{}), all({empty}));
    EXPECT_EQ((Numbers{}), rest(create_file_reader(scope, "one", empty, raw())));
    EXPECT_EQ((Numbers{5}), all({empty, store("b.raw", Numbers{5}), store("c.raw", Numbers{})}));
}

TEST_F(FilesTest, ReadByManyThreads) {
    std::vector<std::string> names;
    for (int64_t i = 0; i < 8; i++)
        names.push_back(store(std::to_string(i) + ".raw", range(1000 * i, 1000 * i + 1000)));
    for (const bool ordered : {true, false}) {
        const Reader reader = open_files(scope, "files", names, raw().num_threads(3).ordered(ordered));
        std::atomic<int64_t> sum{0};
        std::vector<std::future<void>> reading;
        for (int i = 0; i < 4; i++) {
            reading.push_back(in_thread([&] {
                for (Tuple &tuple : reader.tuples(kStuck)) sum += number(tuple);
            }));
        }
        for (auto &r : reading) r.get();
        EXPECT_EQ(7999 * 8000 / 2, sum);
    }
}

// ---- Damage ----

TEST_F(FilesTest, DamageIsRaisedInItsPlace) {
    std::string bytes(20, '\0');
    bytes[8] = 1;
    for (const char *io : {"auto", "map", "read"}) {
        const auto names = {store("a.raw", bytes)};
        for (const Reader &reader : {open_files(scope, "files", names, raw().io(io)),
                                     create_file_reader(scope, "file", path("a.raw"), raw().io(io))}) {
            for (int pass = 0; pass < 2; pass++) {
                EXPECT_EQ(0, next_number(reader));
                EXPECT_EQ(1, next_number(reader));
                for (int i = 0; i < 2; i++) {
                    try {
                        reader.next(kStuck);
                        FAIL() << "nothing was thrown";
                    } catch (const CorruptRecordError &e) {
                        EXPECT_EQ(PF_CORRUPT, e.status());
                        EXPECT_EQ(path("a.raw"), e.file());
                        EXPECT_EQ(16, e.offset());
                        EXPECT_EQ(2, e.record());
                        EXPECT_FALSE(e.approximate());
                        EXPECT_EQ(0, e.os_errno());
                        for (const char *word : {"a.raw", "expected 8 bytes", "found 4", "16", "2"}) {
                            EXPECT_NE(nullptr, std::strstr(e.what(), word)) << e.what();
                        }
                    }
                }
                EXPECT_ERROR(CorruptRecordError, -1, reader.has_next(kStuck), "expected 8 bytes");
                EXPECT_ERROR(CorruptRecordError, -1, read(scope, reader.name(), {"x"}, kStuck),
                             "expected 8 bytes");
                reader.reset();
            }
        }
    }
}

TEST_F(FilesTest, DamageIsSkippedAndNoted) {
    const auto names = {store("a.raw", std::string(20, '\0')), store("b.raw", range(5, 7))};
    const Reader reader = open_files(scope, "files", names, raw().on_corrupt("skip").interleave(1));
    EXPECT_EQ((Numbers{0, 0, 5, 6}), rest(reader));
    const std::string stats = reader.stats();
    EXPECT_EQ("1", member(stats, "corrupt"));
    EXPECT_EQ(path("a.raw"), member(stats, "file"));
    EXPECT_EQ("16", member(stats, "offset"));
    EXPECT_EQ("2", member(stats, "record"));
    EXPECT_EQ("false", member(stats, "approximate"));
    EXPECT_EQ("expected 8 bytes, a record, found 4 and the end of the file", member(stats, "reason"));
}

TEST_F(FilesTest, DamageBelowOtherReaders) {
    const auto names = {store("a.raw", std::string(20, '\0'))};
    const MapFunction same = [](const Tuple &in, const Emit &emit) { emit(in); };
    const Reader reader =
        open_files(scope, "files", names, raw()).shuffle(10).map(same, 2).batch(10).double_buffer();
    for (int pass = 0; pass < 2; pass++) {
        EXPECT_EQ((Shape{2, 1}), reader.next(kStuck)->at(0).shape());  // the tuples before the damage
        EXPECT_ERROR(CorruptRecordError, -1, reader.next(kStuck), "a.raw", "expected 8 bytes");
        reader.reset();
    }
}

// The error for an instance that does not fit the slots names the file and the record.
TEST_F(FilesTest, InstancesThatDoNotFitAreLocated) {
    const Writer writer(path("a.recordio"), WriterOptions().slots({{{-1}, DType::float32}}));
    const Floats x = {1, 2, 3};
    for (const int64_t n : {3, 3, 2}) writer.write({view(x.data(), {n})});
    writer.close();
    const Reader reader =
        open_files(scope, "files", {path("a.recordio")}, OpenFiles().slots({{{3}, DType::float32}}));
    for (int i = 0; i < 2; i++) EXPECT_EQ(x, values<float>(reader.next(kStuck)->at(0)));
    try {
        reader.next(kStuck);
        FAIL() << "nothing was thrown";
    } catch (const ShapeError &e) {
        EXPECT_EQ(0, e.slot());
        EXPECT_EQ(path("a.recordio"), e.file());
        EXPECT_EQ(2, e.record());
        EXPECT_NE(nullptr, std::strstr(e.what(), "expected 3, found 2")) << e.what();
    }
}

TEST_F(FilesTest, AFileIsVerifiedFirst) {
    std::string bytes(20, '\0');
    bytes[8] = 1;
    const auto names = {store("a.raw", bytes)};
    EXPECT_EQ(0, next_number(open_files(scope, "files", names, raw())));
    try {
        open_files(scope, "first", names, raw().verify_first(true)).next(kStuck);
        FAIL() << "nothing was thrown";
    } catch (const CorruptRecordError &e) {
        EXPECT_EQ(16, e.offset());
        EXPECT_EQ(0, e.record());
        EXPECT_NE(nullptr, std::strstr(e.what(), "verify_first found it at record 2")) << e.what();
    }
    store("a.raw", range(0, 5));
    EXPECT_EQ(range(0, 5), all({path("a.raw")}, raw().verify_first(true)));
}

// After skipped damage, record numbers are approximate.
TEST_F(FilesTest, RecordsBehindSkippedDamageAreNumberedAbout) {
    const Writer writer(
        path("a.recordio"),
        WriterOptions().slots({{{-1}, DType::float32}}).options(R"({"records_per_chunk": 1})"));
    const Floats x = {1, 2, 3};
    for (const int64_t n : {3, 3, 3, 2}) writer.write({view(x.data(), {n})});
    writer.close();
    std::string bytes = load("a.recordio");
    bytes[bytes.size() / 4 + 30] ^= 1;
    store("a.recordio", bytes);
    const Reader reader = open_files(scope, "files", {path("a.recordio")},
                                     OpenFiles().slots({{{3}, DType::float32}}).on_corrupt("skip"));
    for (int i = 0; i < 2; i++) EXPECT_EQ(x, values<float>(reader.next(kStuck)->at(0)));
    try {
        reader.next(kStuck);
        FAIL() << "nothing was thrown";
    } catch (const ShapeError &e) {
        EXPECT_EQ(2, e.record());
        EXPECT_TRUE(e.approximate());
        EXPECT_NE(nullptr, std::strstr(e.what(), "about record 2")) << e.what();
    }
}

// ---- A file that shrinks ----

class Shrinking : public Files {
protected:
    static constexpr int64_t kPages = 2048;
    // Each instance is a page of ones.
    void fill() { store("a.raw", Numbers(512 * kPages, 1)); }
    void truncate(int64_t pages) { ASSERT_EQ(0, ::truncate(path("a.raw").c_str(), 4096 * pages)); }
    static OpenFiles pages() { return OpenFiles().slots({{{512}, DType::int64}}); }
    static int64_t sum(const Tuple &tuple) {
        int64_t sum = 0;
        for (const int64_t n : tuple.at(0).values<int64_t>()) sum += n;
        return sum;
    }
};

TEST_F(Shrinking, ViewsReadAsZerosAndReadingOnIsAnError) {
    for (const bool threads : {false, true}) {
        fill();
        const Reader reader = threads ? open_files(scope, "files", {path("a.raw")}, pages())
                                      : create_file_reader(scope, "file", path("a.raw"), pages());
        const auto first = reader.next(kStuck), second = reader.next(kStuck);
        EXPECT_TRUE(first->at(0).read_only());
        EXPECT_EQ(512, sum(*first));
        truncate(0);
        std::vector<std::future<int64_t>> sums;
        for (int i = 0; i < 4; i++)
            sums.push_back(in_thread([&, i] { return sum(i % 2 == 0 ? *first : *second); }));
        for (auto &s : sums) EXPECT_EQ(0, s.get());
        for (int i = 0; i < 3; i++) {
            try {
                reader.next(kStuck);
                FAIL() << "nothing was thrown";
            } catch (const CorruptRecordError &e) {
                EXPECT_EQ(path("a.raw"), e.file());
                EXPECT_NE(nullptr, std::strstr(e.what(), "shrank")) << e.what();
            }
        }
        fill();
        reader.reset();
        for (int64_t n = 0; n < kPages; n++) ASSERT_EQ(512, sum(*reader.next(kStuck)));
        EXPECT_FALSE(reader.next(kStuck));
        EXPECT_EQ(0, sum(*first));
    }
}

// Batches are copied, and so are tuples that lie unaligned in the file. A copy has the right bytes, or the read fails.
TEST_F(Shrinking, WhatIsCopiedIsNeverZeros) {
    for (const bool batches : {false, true}) {
        SCOPED_TRACE(batches);
        const Numbers ones(512 * kPages, 1);
        store("a.raw",
              std::string(4, '\0').append(reinterpret_cast<const char *>(ones.data()), 4096 * kPages));
        Reader reader =
            open_files(scope, "files", {path("a.raw")}, pages().options(R"({"header_bytes": 4})"));
        if (batches) reader = reader.batch(16);
        const int64_t whole = batches ? 16 * 512 : 512;
        for (int i = 0; i < 3; i++) EXPECT_EQ(whole, sum(*reader.next(kStuck)));
        truncate(4);
        try {
            while (const auto tuple = reader.next(kStuck)) ASSERT_EQ(whole, sum(*tuple));
            FAIL() << "nothing was thrown";
        } catch (const CorruptRecordError &e) {
            EXPECT_EQ(path("a.raw"), e.file());
        }
    }
}

TEST_F(Shrinking, AtAnyTimeInALongChain) {
    for (int64_t i = 1; i < 20; i++) {
        fill();
        const Reader reader = open_files(scope, "files", {path("a.raw")}, pages().num_threads(2))
                                  .shuffle(100)
                                  .batch(7)
                                  .double_buffer({}, 3);
        for (int64_t n = 0; n < i; n++) EXPECT_EQ(512 * 7, sum(*reader.next(kStuck)));
        truncate(i * 50);
        try {
            while (reader.next(kStuck)) {
            }
            FAIL() << "nothing was thrown";
        } catch (const CorruptRecordError &) {
        }
    }
}

// The program maps a file of its own, which shrinks. Its SIGBUS handler is called for that file, while pyfeed continues
// to handle the files that pyfeed maps.
sigjmp_buf other_fault;
void on_other_fault(int, siginfo_t *, void *) { siglongjmp(other_fault, 1); }

TEST_F(Shrinking, OtherHandlersOfTheSignalAreAsked) {
    const auto theirs = [&] {
        fill();
        const int file = open(path("a.raw").c_str(), O_RDONLY);
        void *at = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        truncate(0);
        const bool faulted = sigsetjmp(other_fault, 1) != 0 || *static_cast<volatile char *>(at) != 0;
        munmap(at, 4096);
        return faulted;
    };
    const auto ours = [&](const std::string &name) {
        fill();
        const Reader reader = create_file_reader(scope, name, path("a.raw"), pages());
        const auto first = reader.next();
        truncate(0);
        return sum(*first);
    };
    struct sigaction action{}, before{};
    action.sa_sigaction = on_other_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    EXPECT_EQ(0, ours("first"));
    ASSERT_EQ(0, sigaction(SIGBUS, &action, &before));  // the program installs its handler after pyfeed's
    EXPECT_TRUE(theirs());
    EXPECT_EQ(0, ours("second"));  // pyfeed installs its handler again, before the program's
    EXPECT_TRUE(theirs());
    EXPECT_EQ(0, ours("third"));
    ASSERT_EQ(0, sigaction(SIGBUS, &before, nullptr));
    EXPECT_EQ(0, ours("fourth"));
}

// ---- Files of other programs ----

class FormatsTest : public FilesTest {
protected:
    // Returns the path of a file in the testdata of a format.
    static std::string fixture(const std::string &name) { return PYFEED_TEST_READERS "/" + name; }
    // Opens a file or folder, with the options of its format as JSON, and joins the first records to one tuple.
    Tuple first(size_t count, const std::string &name, const std::string &options, OpenFiles files = {}) {
        const Reader reader = open_files(scope, "files", {name}, files.interleave(1).options(options));
        return std::move(*reader.batch(count).next(kStuck));
    }
    // Returns the byte strings of a slot.
    static std::vector<std::string> texts(const TensorView &tensor) {
        const auto bytes = values<uint8_t>(tensor);
        const auto ends = offsets(tensor, tensor.lod_levels() - 1);
        std::vector<std::string> out;
        for (size_t i = 1; i < ends.size(); i++)
            out.emplace_back(bytes.begin() + ends[i - 1], bytes.begin() + ends[i]);
        return out;
    }
    using Texts = std::vector<std::string>;
};

TEST_F(FormatsTest, Parquet) {
    for (const char *program : {"pyarrow_zstd", "pyarrow_v2", "polars", "duckdb", "spark"}) {
        SCOPED_TRACE(program);
        const auto tuple = first(6, fixture(std::string("parquet/testdata/") + program + ".parquet"), R"({
            "columns": [{"name": "text", "columns": "s"}, {"columns": "n", "dtype": "int64", "default": -1}, "l"]})");
        ASSERT_EQ(3u, tuple.size());
        EXPECT_EQ((Texts{"", "row 1", "row 2row 2", "", "row 4", "row 5row 5"}), texts(tuple.at(0)));
        EXPECT_EQ((Numbers{-1, 1, 2, 3, 4, -1}), values<int64_t>(tuple.at(1)));
        EXPECT_EQ((std::vector<int32_t>{0, 0, 1, 0, 1, 2, 0}), values<int32_t>(tuple.at(2)));
        EXPECT_EQ((Numbers{0, 0, 1, 3, 6, 6, 7}), offsets(tuple.at(2), 0));
    }
    const std::string file = fixture("parquet/testdata/pyarrow_none.parquet");
    const Reader rows = open_files(scope, "rows", {file}, OpenFiles().options(R"({"columns": ["i"],
        "where": [["i", ">=", 2000]]})"));  // row groups of 25 rows: those from row 25 on have such a row
    EXPECT_EQ(25 * 25 - 50, rest(rows).front());
    EXPECT_ERROR(InvalidArgument, 0, first(6, file, R"({"columns": ["n"]})"), "null", "default");
    EXPECT_ERROR(InvalidArgument, 0, first(6, file, R"({"columns": ["none"]})"), "columns", "\"i\"", "none");
}

TEST_F(FormatsTest, Arrow) {
    const std::string folder = fixture("arrow/testdata/");
    for (const char *name : {"zstd.arrow", "lz4.arrow"}) {
        SCOPED_TRACE(name);
        const auto tuple = first(2, folder + name, R"({"columns": [1, {"name": "number", "columns": 0}]})");
        EXPECT_EQ((Texts{"word 0 of many that repeat", "word 1 of many that repeat"}), texts(tuple.at(0)));
        EXPECT_EQ((std::vector<int32_t>{0, 1}), values<int32_t>(tuple.at(1)));
    }
    EXPECT_EQ((Texts{"a", "a text of more than twelve bytes", ""}),
              texts(first(3, folder + "polars.ipc", "{}").at(1)));
    // A stream, and the folder of a dataset of Hugging Face, whose state.json has the order of its files.
    EXPECT_EQ((Texts{"a", "", "bcd"}), texts(first(3, folder + "texts.arrows", R"({"columns": [0]})").at(0)));
    const auto images = first(4, folder + "dataset", R"({"columns": [4, 1]})");
    EXPECT_EQ((Texts{"png0", "png1", "png2", "png3"}), texts(images.at(0)));
    EXPECT_EQ((Numbers{0, 1, 1, 0}), values<int64_t>(images.at(1)));
}

TEST_F(FormatsTest, JsonLines) {
    const std::string lines = store("a.jsonl", R"({"text": "a cat", "meta": {"stars": 4.5}, "tokens": [17, 3]}
{"text": "dogs", "meta": {"stars": null}, "tokens": []}
)");
    const auto tuple = first(2, lines, R"({"columns": ["text",
        {"columns": "meta.stars", "dtype": "float32", "default": 0}, {"columns": "tokens", "dtype": "int32"}]})");
    EXPECT_EQ((Texts{"a cat", "dogs"}), texts(tuple.at(0)));
    EXPECT_EQ((Floats{4.5, 0}), values<float>(tuple.at(1)));
    EXPECT_EQ((std::vector<int32_t>{17, 3}), values<int32_t>(tuple.at(2)));
    EXPECT_EQ((Numbers{0, 2, 2}), offsets(tuple.at(2), 0));
    EXPECT_ERROR(InvalidArgument, 1, first(2, lines, "{}"), "object", "meta");
}

TEST_F(FormatsTest, Mds) {
    for (const char *compression : {"plain", "gz", "zstd", "snappy"}) {
        SCOPED_TRACE(compression);
        const auto tuple = first(3, fixture(std::string("mds/testdata/") + compression),
                                 R"({"columns": ["s", {"columns": "u8"}]})");
        EXPECT_EQ((Texts{"", "łąka ", "łąka łąka "}), texts(tuple.at(0)));
        EXPECT_EQ((std::vector<uint8_t>{255, 254, 253}), values<uint8_t>(tuple.at(1)));
    }
    EXPECT_ERROR(UnsupportedError, -1, first(1, fixture("mds/testdata/pkl"), "{}"), "pkl", "columns");
}

TEST_F(FormatsTest, Tokens) {
    store("train.bin", std::string("\0\0\1\0\2\0\3\0\4\0\5\0\6\0", 14));
    const auto tuple =
        first(3, path("train.bin"), R"({"length": 3, "targets": true, "output_dtype": "int64"})",
              OpenFiles().format("tokens"));
    EXPECT_EQ((Numbers{0, 1, 2, 3, 4, 5}), values<int64_t>(tuple.at(0)));
    EXPECT_EQ((Numbers{1, 2, 3, 4, 5, 6}), values<int64_t>(tuple.at(1)));

    // Both files of Megatron-LM; each document is a record.
    const Writer writer(path("docs.idx"), WriterOptions().format("tokens"));
    const std::vector<uint16_t> tokens = {1, 2, 3, 4, 5};
    writer.write({view(&tokens[0], {2})});
    writer.write({view(&tokens[2], {3})});
    writer.close();
    const auto docs = first(2, path("docs.idx"), R"({"documents": "whole"})", OpenFiles().format("tokens"));
    EXPECT_EQ(tokens, values<uint16_t>(docs.at(0)));
    EXPECT_EQ((Numbers{0, 2, 5}), offsets(docs.at(0), 0));
}

TEST_F(FormatsTest, SequenceExamples) {
    const std::string features = R"({"features": [{"name": "id", "dtype": "int64"},
        {"name": "frames", "dtype": "float32", "shape": [2], "part": "feature_lists"}]})";
    const Writer writer(path("a.tfrecord"), WriterOptions().options(features));
    const Floats frames = {1, 2, 3, 4};
    for (const int64_t steps : {2, 1}) {
        const LoD lod = {{0, steps}};
        writer.write({view(&steps, {}), view(&frames[0], {steps, 2}).with_lod(lod)});
    }
    writer.close();
    const auto tuple = first(2, path("a.tfrecord"), features);
    EXPECT_EQ((Numbers{2, 1}), values<int64_t>(tuple.at(0)));
    EXPECT_EQ((Floats{1, 2, 3, 4, 1, 2}), values<float>(tuple.at(1)));
    EXPECT_EQ((Numbers{0, 2, 3}), offsets(tuple.at(1), 0));
}

// ---- Writing ----

class WriterTest : public FilesTest {};

TEST_F(WriterTest, WhatIsWrittenIsRead) {
    for (const char *name : {"a.raw", "a.npy", "a.npz", "a.recordio", "a.csv", "a.csv.gz"}) {
        SCOPED_TRACE(name);
        const std::vector<SlotSpec> slots = {{{}, DType::int64, 0, "number"}};
        const Writer writer(path(name), WriterOptions().slots(slots));
        for (int64_t n = 0; n < 1000; n++) writer.write({view(&n, {})});
        EXPECT_FALSE(std::filesystem::exists(path(name)));
        writer.close();
        EXPECT_EQ(range(0, 1000),
                  all({path(name)}, std::string(name) == "a.raw" ? OpenFiles().slots(slots) : OpenFiles()));
    }
    EXPECT_EQ("\x1f\x8b", load("a.csv.gz").substr(0, 2));
}

TEST_F(WriterTest, LevelsOfDetailAndManySlots) {
    const Writer writer(path("a.recordio"));
    const Floats x = {1, 2, 3, 4, 5, 6};
    const int64_t label = 7;
    writer.write({view(x, {3, 2}).with_lod(LoD{{0, 1, 2}, {0, 2, 3}}), view(&label, {1})});
    writer.write({view(&x[2], {1, 2}).with_lod(LoD{{0, 1}, {0, 1}}), view(&label, {1})});
    writer.close();
    const Reader reader = open_files(scope, "files", {path("a.recordio")},
                                     OpenFiles().slots({{{-1, 2}, DType::float32, 2}, {{1}, DType::int64}}));
    const auto first = reader.next(kStuck), second = reader.next(kStuck);
    EXPECT_EQ(x, values<float>(first->at(0)));
    EXPECT_EQ((Numbers{0, 2, 3}), offsets(first->at(0), 1));
    EXPECT_EQ((Numbers{7}), values<int64_t>(first->at(1)));
    EXPECT_EQ((Floats{3, 4}), values<float>(second->at(0)));
    EXPECT_FALSE(reader.next(kStuck));
}

TEST_F(WriterTest, Strides) {
    const Writer writer(path("a.raw"));
    const Numbers n = {0, 1, 2, 3, 4, 5};
    writer.write({view(n, {2, 3})});
    writer.write({view(&n[2], {2, 3}).with_strides({24, -8})});
    writer.write({view(n, {2, 3}).with_strides({8, 16})});
    writer.write({view(n, {2, 3}).with_strides({0, 0})});
    writer.close();
    const Reader reader =
        open_files(scope, "files", {path("a.raw")}, OpenFiles().slots({{{2, 3}, DType::int64}}));
    for (const Numbers &want : {n, Numbers{2, 1, 0, 5, 4, 3}, Numbers{0, 2, 4, 1, 3, 5}, Numbers(6, 0)}) {
        EXPECT_EQ(want, values<int64_t>(reader.next(kStuck)->at(0)));
    }
}

TEST_F(WriterTest, ATupleOfAReaderPassesOn) {
    const Reader reader = read_numbers("numbers", range(0, 100));
    const Writer writer(path("b.raw"));
    for (Tuple &tuple : reader) writer.write(tuple);
    writer.close();
    EXPECT_EQ(load("numbers.raw"), load("b.raw"));
}

TEST_F(WriterTest, TheFormatIsTheNamesOrTheOptions) {
    const int64_t n = 5;
    const Writer other(path("a.other"), WriterOptions().format("raw"));
    other.write({view(&n, {1})});
    other.close();
    const Writer tagged("raw:" + path("b.other"));
    tagged.write({view(&n, {1})});
    tagged.close();
    const Writer big(path("c.raw"), WriterOptions().options(R"({"byte_order": "big", "header_bytes": 2})"));
    big.write({view(&n, {1})});
    big.close();
    EXPECT_EQ(load("a.other"), load("b.other"));
    EXPECT_EQ(std::string("\0\0\0\0\0\0\0\0\0\x05", 10), load("c.raw"));
    EXPECT_ERROR(InvalidArgument, -1, Writer(path("d.other")), "d.other", "raw", "npy");
    EXPECT_ERROR(InvalidArgument, -1, Writer(path("d.raw"), WriterOptions().format("none")), "none", "npy");
    EXPECT_ERROR(InvalidArgument, -1, Writer(path("d.raw"), WriterOptions().options(R"({"header": 2})")),
                 "header_bytes");
    EXPECT_ERROR(InvalidArgument, -1, Writer(path("d.raw"), WriterOptions().options("[")), "attributes");
    EXPECT_EQ((std::vector<std::string>{"a.other", "b.other", "c.raw"}), listing());
}

TEST_F(WriterTest, OneThatIsNotClosedLeavesNothing) {
    const int64_t n = 5;
    for (const char *name : {"a.raw", "a.npy", "a.npz", "a.recordio", "a.csv", "a.csv.gz"}) {
        SCOPED_TRACE(name);
        {
            const Writer writer(path(name), WriterOptions().slots({{{1}, DType::int64, 0, "n"}}));
            for (int i = 0; i < 100000; i++) writer.write({view(&n, {1})});
            EXPECT_FALSE(std::filesystem::exists(path(name)));
        }
        EXPECT_EQ((std::vector<std::string>{}), listing());
    }
    store("a.raw", range(0, 3));
    {
        const Writer writer(path("a.raw"));
        writer.write({view(&n, {1})});
    }
    EXPECT_EQ((std::vector<std::string>{"a.raw"}), listing());
    EXPECT_EQ(range(0, 3), all({path("a.raw")}));
}

TEST_F(WriterTest, NamesCanBeGivenBeforeTheFirstTuple) {
    const int64_t n = 5;
    {
        const Writer writer(path("a.csv"));
        writer.set_names({"x", "y"});
        EXPECT_ERROR(StateError, -1, writer.set_names({"z"}), "names: expected a writer without");
        writer.write({view(&n, {}), view(&n, {})});
        writer.close();
    }
    std::ifstream file(path("a.csv"));
    EXPECT_EQ("x,y\n5,5\n", std::string(std::istreambuf_iterator<char>(file), {}));
    const Writer named(path("b.csv"), WriterOptions().slots({{{}, DType::int64, 0, "n"}}));
    EXPECT_ERROR(StateError, -1, named.set_names({"z"}), "names");
    const Writer written(path("c.csv"));
    written.write({view(&n, {})});
    EXPECT_ERROR(StateError, -1, written.set_names({"z"}), "names");
    const Writer array(path("d.npy")); /* a format that stores no names */
    array.set_names({"x"});
    array.write({view(&n, {})});
    array.close();
    EXPECT_TRUE(std::filesystem::exists(path("d.npy")));
}

TEST_F(WriterTest, AnOldFileStaysUntilTheNewOneIsWhole) {
    const Reader old = read_numbers("a", range(0, 3));
    EXPECT_EQ(0, next_number(old));
    const Writer writer(path("a.raw"));
    const int64_t n = 5;
    writer.write({view(&n, {1})});
    EXPECT_EQ(range(0, 3), all({path("a.raw")}));
    writer.close();
    EXPECT_EQ((Numbers{5}), all({path("a.raw")}));
    EXPECT_EQ((Numbers{1, 2}), rest(old));  // a reader of the old file continues
    old.reset();
    EXPECT_EQ((Numbers{5}), rest(old));
    EXPECT_EQ((std::vector<std::string>{"a.raw"}), listing());
}

TEST_F(WriterTest, AfterTheEnd) {
    const int64_t n = 5;
    Writer writer(path("a.raw"));
    writer.write({view(&n, {1})});
    writer.close();
    EXPECT_ERROR(StateError, -1, writer.write({view(&n, {1})}), "closed", "a.raw");
    EXPECT_ERROR(StateError, -1, writer.close(), "closed");
    Writer moved = std::move(writer);
    EXPECT_ERROR(StaleHandleError, -1, writer.close(), "handle 0");
    moved = Writer(path("b.raw"));
    moved.write({view(&n, {1})});
    moved = Writer(path("c.raw"));  // drops b.raw, which was not closed
    moved.write({view(&n, {1})});
    moved.close();
    EXPECT_EQ((std::vector<std::string>{"a.raw", "c.raw"}), listing());
}

TEST_F(WriterTest, WhatDoesNotFitLeavesNothing) {
    const Numbers two = {1, 2};
    const Floats x = {1};
    for (const char *name : {"a.raw", "a.npy", "a.csv"}) {
        SCOPED_TRACE(name);
        Writer writer(path(name), WriterOptions().slots({{{1}, DType::int64, 0, "n"}}));
        writer.write({view(&two[0], {1})});
        EXPECT_ERROR(ShapeError, 0, writer.write({view(two)}), "expected 1", "found 2");
        EXPECT_THROW(writer.write({view(&two[0], {1})}), Error);
        EXPECT_THROW(writer.close(), Error);
        writer = Writer(path(name), WriterOptions().slots({{{1}, DType::int64, 0, "n"}}));
        EXPECT_ERROR(DTypeError, 0, writer.write({view(x)}), "int64", "float32");
        writer = Writer(path(name));  // the first tuple sets the slots
        writer.write({view(x)});
        EXPECT_ERROR(DTypeError, 0, writer.write({view(&two[0], {1})}), "float32", "int64");
        EXPECT_ERROR(InvalidArgument, 0, writer.write({TensorView(DType::float32, {1})}), "NULL");
    }
    EXPECT_EQ((std::vector<std::string>{}), listing());
}

TEST_F(WriterTest, PlacesThatCannotBeWritten) {
    try {
        const Writer writer(path("none/a.raw"));
        FAIL() << "nothing was thrown";
    } catch (const FileError &e) {
        EXPECT_EQ(path("none/a.raw"), e.file());
        EXPECT_EQ(ENOENT, e.os_errno());
    }
    std::filesystem::create_directory(path("folder.raw"));
    try {
        const Writer writer(path("folder.raw"));
        FAIL() << "nothing was thrown";
    } catch (const FileError &e) {
        EXPECT_EQ(path("folder.raw"), e.file());
        EXPECT_EQ(EISDIR, e.os_errno());
    }
    EXPECT_EQ((std::vector<std::string>{"folder.raw"}), listing());
}

TEST_F(WriterTest, ByManyThreads) {
    const Writer writer(path("a.raw"));
    std::vector<std::future<void>> writing;
    for (int64_t i = 0; i < 4; i++) {
        writing.push_back(in_thread([&, i] {
            for (const int64_t n : range(1000 * i, 1000 * i + 1000)) writer.write({view(&n, {1})});
        }));
    }
    for (auto &w : writing) w.get();
    writer.close();
    Numbers got = all({path("a.raw")});
    std::sort(got.begin(), got.end());
    EXPECT_EQ(range(0, 4000), got);
}

// While a Limit exists, no file of the process can grow beyond the limit, as on a full disk.
class Limit {
public:
    explicit Limit(rlim_t bytes) {
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        struct rlimit limit = before_;
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~Limit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

private:
    struct rlimit before_;
    void (*handler_)(int);
};

TEST_F(WriterTest, AFullDisk) {
    const Numbers block(1024);
    for (const char *name : {"a.raw", "a.npy", "a.npz", "a.recordio", "a.csv"}) {
        SCOPED_TRACE(name);
        store(name, "old");
        const auto full = [&](const Writer &writer, int blocks) {
            try {
                for (int i = 0; i < blocks; i++) writer.write({view(block)});
                writer.close();
                ADD_FAILURE() << "nothing was thrown";
            } catch (const FileError &e) {
                EXPECT_EQ(path(name), e.file());
                EXPECT_EQ(EFBIG, e.os_errno());
                EXPECT_NE(nullptr, std::strstr(e.what(), "file too large")) << e.what();
            }
            EXPECT_THROW(writer.write({view(block)}), Error);
            EXPECT_THROW(writer.close(), Error);
        };
        const Limit limit(256 * 1024);
        full(Writer(path(name)), 10000);
        full(Writer(path(name)), 200);  // a buffer may hide the error until the file is closed
    }
    for (const char *name : {"a.raw", "a.npy", "a.npz", "a.recordio", "a.csv"}) EXPECT_EQ("old", load(name));
    EXPECT_EQ(5u, listing().size());
}

// ---- Random data ----

class RandomData : public Feed {};

TEST_F(RandomData, TheSameEverywhere) {
    const std::vector<SlotSpec> slots = {{{4}, DType::int64}, {{}, DType::float64}};
    const Reader reader = create_random_data_generator(scope, "random", slots,
                                                       RandomOptions().low(-100).high(100).seed(7).count(5));
    std::vector<Numbers> first;
    for (Tuple &tuple : reader) first.push_back(values<int64_t>(tuple[0]));
    ASSERT_EQ(5u, first.size());
    EXPECT_EQ((Numbers{45, 0, 26, -24}), first[0]);
    EXPECT_EQ((Numbers{81, 71, 16, -71}), first[4]);
    reader.reset();
    for (size_t i = 0; i < 5; i++) EXPECT_EQ(first[i], values<int64_t>(reader.next()->at(0)));
    EXPECT_FALSE(reader.next());
}

TEST_F(RandomData, Ranges) {
    const Reader reader =
        create_random_data_generator(scope, "random", {{{1000}, DType::float32}, {{3}, DType::float16}},
                                     RandomOptions().low(-0.5).high(0.25));
    float least = 1, most = -1;
    for (int i = 0; i < 100; i++) {  // the generator has no end
        const auto tuple = reader.next();
        for (const float x : tuple->at(0).values<float>()) {
            least = std::min(least, x);
            most = std::max(most, x);
        }
    }
    EXPECT_LE(-0.5f, least);
    EXPECT_GT(-0.49f, least);
    EXPECT_GE(0.25f, most);
    EXPECT_LT(0.24f, most);
}

TEST_F(RandomData, Refusals) {
    const auto make = [&](const std::vector<SlotSpec> &slots, const RandomOptions &options = {}) {
        create_random_data_generator(scope, "random", slots, options);
    };
    EXPECT_ERROR(SlotCountError, -1, make({}), "slots");
    EXPECT_ERROR(DTypeError, 0, make({{{1}, DType::any}}), "any");
    EXPECT_ERROR(ShapeError, 0, make({{{-1}, DType::int8}}), "found -1");
    EXPECT_ERROR(InvalidArgument, 0, make({{{1}, DType::int8}}, RandomOptions().high(128)), "127", "128");
    EXPECT_ERROR(InvalidArgument, -1, make({{{1}, DType::float32}}, RandomOptions().low(2)), "low");
    EXPECT_ERROR(InvalidArgument, -1, make({{{1}, DType::float32}}, RandomOptions().low(NAN)), "finite");
    EXPECT_ERROR(InvalidArgument, -1, make({{{1}, DType::float32}}, RandomOptions().high(INFINITY)),
                 "finite");
}

// Numbers are written as JSON in every locale.
TEST_F(RandomData, OptionsInOtherLocales) {
    struct Comma : std::numpunct<char> {
        char do_decimal_point() const override { return ','; }
        char do_thousands_sep() const override { return '.'; }
        std::string do_grouping() const override { return "\3"; }
    };
    const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
    EXPECT_EQ(
        R"({"count": 1234567, "high": 1234567.5, "low": 0.10000000000000001, "seed": 18446744073709551615})",
        RandomOptions().low(0.1).high(1234567.5).count(1234567).seed(~uint64_t{0}).attributes().json());
    std::locale::global(before);
}

TEST(Options, Json) {
    EXPECT_EQ("{}", OpenFiles().attributes().json());
    EXPECT_EQ(R"({"slots": [{"dims": [-1, 3], "dtype": "float32", "lod_levels": 1, "name": "x\"y"}, )"
              R"({"dims": [], "dtype": "any", "lod_levels": 0}]})",
              MapOptions().slots({{{-1, 3}, DType::float32, 1, "x\"y"}, {}}).attributes().json());
    EXPECT_EQ(R"({"storage": {"compression": "a\\b\u0000\u001f", "io": "\u000a"}})",
              OpenFiles().io("x").compression(std::string("a\\b\0\x1f", 5)).io("\n").attributes().json());
}

// ---- Formats of the program ----

class FormatTest : public FilesTest {
protected:
    std::string file(const std::string &name) { return store(name + suffix, std::string()); }

    const std::string tag = new_tag(), suffix = "." + tag;
};

TEST_F(FormatTest, AFunctionReadsItsFiles) {
    std::mutex mutex;
    std::multimap<std::string, std::string> calls;
    const auto count = [&](const std::string &path, const std::string &options, const Queue &queue) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            calls.emplace(path, options);
        }
        for (const int64_t n : range(0, 200)) push_number(queue, n);
    };
    const RegisteredFormat format = register_format(tag, {suffix}, count, number_slots());
    EXPECT_EQ(tag, format.tag());
    const Reader reader =
        open_files(scope, "files", {file("a"), file("b")}, OpenFiles().options(R"({"x": [1, 2]})"));
    EXPECT_TRUE(calls.empty());  // the function is not called before the first read
    Numbers want;
    for (const int64_t n : range(0, 200)) want.insert(want.end(), {n, n});
    for (size_t pass = 1; pass < 4; pass++) {
        EXPECT_EQ(want, rest(reader));
        EXPECT_EQ(pass, calls.count(path("a" + suffix)));
        EXPECT_EQ(pass, calls.count(path("b" + suffix)));
        reader.reset();
    }
    EXPECT_EQ(R"({"x": [1, 2]})", calls.find(path("b" + suffix))->second);
    EXPECT_EQ(range(0, 200),
              rest(create_file_reader(scope, "one", tag + ":" + store("c", std::string("?")))));
    EXPECT_EQ("{}", calls.find(path("c"))->second);
    EXPECT_EQ((Shape{64, 1}),
              open_files(scope, "more", {path("a" + suffix)}).batch(64).next(kStuck)->at(0).shape());

    const std::string known = formats();
    EXPECT_NE(std::string::npos,
              known.find(R"({"tag":")" + tag + R"(","suffixes":[")" + suffix + R"("],"writes":false})"))
        << known;
    EXPECT_NE(std::string::npos, known.find(R"({"tag":"raw","suffixes":[".raw",".bin"],"writes":true})"))
        << known;
    EXPECT_ERROR(UnsupportedError, -1, Writer(path("d" + suffix)), tag, "only read");
}

TEST_F(FormatTest, SlotsOfTheCaller) {
    const RegisteredFormat format =
        register_format(tag, {}, [](const std::string &, const std::string &, const Queue &queue) {
            EXPECT_EQ(DType::float32, queue.slot(0).dtype);
            const Floats x = {1, 2};
            queue.push({view(x)});
        });
    const std::string name = tag + ":" + store("a", std::string());
    EXPECT_ERROR(InvalidArgument, -1, open_files(scope, "files", {name}), tag, "give slots");
    const Reader reader = open_files(scope, "files", {name}, OpenFiles().slots({{{2}, DType::float32}}));
    EXPECT_EQ((Floats{1, 2}), values<float>(reader.next(kStuck)->at(0)));
    EXPECT_FALSE(reader.next(kStuck));
    // The push of a tuple that does not fit fails, and the consumer gets that error.
    const Reader other = open_files(scope, "files", {name}, OpenFiles().slots({{{3}, DType::float32}}));
    EXPECT_ERROR(ProducerError, -1, other.next(kStuck), "ShapeError", "expected 3", "found 2");
}

TEST_F(FormatTest, WhatIsThrownComesAfterWhatWasPushed) {
    const RegisteredFormat format = register_format(
        tag, {suffix},
        [](const std::string &path, const std::string &, const Queue &queue) {
            push_number(queue, 1);
            if (path.find("fails") != std::string::npos) throw std::range_error("no more");
            if (path.find("int") != std::string::npos) throw 5;
            if (path.find("token") != std::string::npos) queue.fail("T", "m", "t", 42);
        },
        number_slots());
    for (const char *name : {"fails", "int", "token"}) {
        const Reader reader = open_files(scope, "files", {file(name)});
        for (int pass = 0; pass < 2; pass++) {
            EXPECT_EQ(1, next_number(reader));
            for (int i = 0; i < 2; i++) {
                try {
                    reader.next(kStuck);
                    FAIL() << "nothing was thrown";
                } catch (const ProducerError &e) {
                    const std::string type = e.type();
                    EXPECT_EQ(std::string(name) == "fails" ? "std::range_error"
                              : std::string(name) == "int" ? "unknown"
                                                           : "T",
                              type);
                    EXPECT_EQ(type == "T" ? 42u : 0u, e.token());
                }
            }
            reader.reset();
        }
    }
    EXPECT_EQ((Numbers{1}), all({file("good")}, {}));
}

TEST_F(FormatTest, Names) {
    const auto nothing = [](const std::string &, const std::string &, const Queue &) {};
    const RegisteredFormat format = register_format(tag, {suffix}, nothing);
    EXPECT_ERROR(StateError, -1, register_format(tag, {}, nothing), tag, "already");
    EXPECT_ERROR(StateError, -1, register_format(tag + "x", {".xyz", suffix}, nothing), suffix, tag);
    EXPECT_ERROR(StateError, -1, register_format("raw", {}, nothing), "raw");
    EXPECT_ERROR(InvalidArgument, -1, register_format("", {}, nothing), "tag");
    EXPECT_ERROR(InvalidArgument, -1, register_format("a:b", {}, nothing), "a:b");
    EXPECT_ERROR(InvalidArgument, -1, register_format(tag + "x", {"xyz"}, nothing), "suffixes", "xyz");
    EXPECT_ERROR(ShapeError, 0, register_format(tag + "x", {}, nothing, {{{-2}, DType::int8}}), "-2");
    EXPECT_ERROR(InvalidArgument, -1, register_format(tag + "x", {}, nullptr), "function");
}

// When the reader is reset or destroyed, the function's next push fails with QueueClosed.
TEST_F(FormatTest, AReaderThatGoes) {
    std::atomic<int> started{0}, closed{0};
    const auto endless = [&](const std::string &, const std::string &, const Queue &queue) {
        started++;
        try {
            for (int64_t n = 0;; n++) push_number(queue, n);
        } catch (const QueueClosed &) {
            closed++;
            throw;
        }
    };
    const RegisteredFormat format = register_format(tag, {suffix}, endless, number_slots());
    const std::string name = file("a");
    for (int i = 1; i <= 10; i++) {
        const Reader reader =
            i % 2 == 0 ? open_files(scope, "files", {name}) : create_file_reader(scope, "files", name);
        for (int64_t n = 0; n < 10 * i; n++) EXPECT_EQ(n, next_number(reader));
        reader.reset();
        EXPECT_TRUE(eventually([&] { return closed == 2 * i - 1; }));
        EXPECT_EQ(0, next_number(reader));
        scope.erase("files");
        EXPECT_EQ(1, next_number(reader));
    }
    EXPECT_TRUE(eventually([&] { return closed == 20; }));
    EXPECT_EQ(20, started);
}

// Waits for the function of a format end like all other waits.
TEST_F(FormatTest, Waiting) {
    std::promise<void> go;
    const auto waits = go.get_future().share();
    const RegisteredFormat format = register_format(
        tag, {suffix},
        [waits](const std::string &, const std::string &, const Queue &queue) {
            waits.wait();
            push_number(queue, 1);
        },
        number_slots());
    const std::string name = file("a");
    const std::vector<Reader> readers = {create_file_reader(scope, "file", name),
                                         open_files(scope, "files", {name})};
    for (const Reader &reader : readers) {
        SCOPED_TRACE(reader.name());
        EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
        EXPECT_ERROR(Timeout, -1, reader.next(20ms), "time");
        EXPECT_ERROR(Timeout, -1, reader.has_next(1ms), "time");
        const CancelToken token;
        auto cancelled = in_thread([&] { reader.next(Wait().cancel(token)); });
        token.cancel();
        EXPECT_ERROR(Cancelled, -1, cancelled.get(), "cancel");
        int polls = 0;
        EXPECT_ERROR(Cancelled, -1, reader.next(Wait(kStuck).poll([&] { return ++polls == 3; }, 1ms)),
                     "cancel");
        const double before = std::stod(member(reader.stats(), "waited_seconds"));
        auto reset = in_thread([&] { reader.next(); });
        EXPECT_TRUE(eventually([&] { return std::stod(member(reader.stats(), "waited_seconds")) > before; }));
        reader.reset();
        EXPECT_ERROR(Cancelled, -1, reset.get(), "reset");
    }
    go.set_value();
    for (const Reader &reader : readers) EXPECT_EQ((Numbers{1}), rest(reader));
}

// Files that are interleaved, or that are read by readers of one zip, are all read at the same time.
TEST_F(FormatTest, AsManyFilesAtOnceAsAreOpen) {
    const RegisteredFormat format = register_format(
        tag, {suffix},
        [](const std::string &, const std::string &, const Queue &queue) {
            for (const int64_t n : range(0, 2000)) push_number(queue, n);
        },
        number_slots());
    std::vector<std::string> names;
    for (int i = 0; i < 12; i++) names.push_back(file("file" + std::to_string(i)));
    Numbers want;
    for (int64_t n = 0; n < 2000; n++) want.insert(want.end(), 12, n);
    const Reader reader = open_files(scope, "files", names, OpenFiles().interleave(12).num_threads(1));
    EXPECT_EQ(want, rest(reader));
    Reader joined = open_files(scope, "first", {names[0]});
    for (int i = 1; i < 6; i++)
        joined = joined.zip(open_files(scope, "file" + std::to_string(i), {names[0]}), true);
    EXPECT_EQ(range(0, 2000), rest(joined));
}

TEST_F(FormatTest, ThreadsThatEnd) {
    std::atomic<int> started{0};
    std::optional<RegisteredFormat> format(register_format(
        tag, {suffix},
        [&](const std::string &, const std::string &, const Queue &queue) {
            started++;
            for (int64_t n = 0;; n++) push_number(queue, n);
        },
        number_slots()));
    const std::string name = file("a");
    const Reader first = open_files(scope, "first", {name}),
                 second = create_file_reader(scope, "second", name);
    EXPECT_EQ(0, next_number(first));
    EXPECT_EQ(0, next_number(second));
    RegisteredFormat moved = std::move(*format);
    format.emplace(std::move(moved));
    EXPECT_EQ(1, next_number(first));
    format.reset();
    // The pushed tuples are still delivered. Then comes an error; an end would make the file look complete.
    for (const Reader &reader : {first, second}) {
        EXPECT_ERROR(
            ProducerError, -1,
            [&] {
                while (reader.next(kStuck)) {
                }
            }(),
            tag, "have ended");
    }
    EXPECT_ERROR(StateError, -1, open_files(scope, "third", {name}).next(kStuck), tag, "have ended");
    EXPECT_EQ(2, started);
}

TEST_F(FormatTest, HandlesOfOtherKinds) {
    const Writer writer(path("a.raw"));
    const Reader reader = read_numbers("numbers", {1});
    CError err;
    pf_handle queue = 0;
    char *path = nullptr, *options = nullptr;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_writer_close(reader.handle(), &err));
    EXPECT_NE(std::string::npos, err.message().find("expected a writer, found a reader")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_format_wait(writer.handle(), nullptr, &queue, &path, &options, &err));
    EXPECT_NE(std::string::npos, err.message().find("expected a format, found a writer")) << err.message();
    EXPECT_STATUS(PF_STALE_HANDLE, pf_map_workers_complete(writer.handle(), 0, nullptr, 0, &err));
    EXPECT_NE(std::string::npos, err.message().find("expected workers of a map reader, found a writer"))
        << err.message();
    char *json = nullptr;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_stats(writer.handle(), &json, &err));
    EXPECT_NE(std::string::npos, err.message().find("expected a reader, found a writer")) << err.message();
}

// A format that is read through the C functions, in threads of the program.
TEST_F(FormatTest, ByTheCFunctions) {
    pf_handle format = 0, queue = 77;
    CError err;
    const char *suffixes[] = {suffix.c_str()};
    const char *slots = R"([{"name": "n", "dtype": "int64", "dims": [1]}])";
    EXPECT_STATUS(PF_OK, pf_format_register(tag.c_str(), suffixes, 1, slots, &format, &err));
    char *path = nullptr, *options = nullptr;
    pf_wait wait = PF_WAIT_INIT;
    wait.timeout_ns = 1'000'000;
    EXPECT_STATUS(PF_TIMEOUT, pf_format_wait(format, &wait, &queue, &path, &options, &err));
    EXPECT_EQ(0u, queue);
    EXPECT_TRUE(path == nullptr && options == nullptr);

    const std::string name = file("a");
    const Reader reader = open_files(scope, "files", {name});
    EXPECT_NE(std::string::npos, reader.stats().find(R"("name":"n")"));
    auto reading = in_thread([&] { return rest(reader); });
    EXPECT_STATUS(PF_OK, pf_format_wait(format, nullptr, &queue, &path, &options, &err));
    EXPECT_EQ(name, detail::take_string(path));
    EXPECT_EQ("{}", detail::take_string(options));
    {
        const Queue to = Queue::adopt(queue);
        for (const int64_t n : range(0, 100)) push_number(to, n);
        to.close();
    }
    EXPECT_EQ(range(0, 100), reading.get());

    auto waiting = in_thread([&] { return pf_format_wait(format, nullptr, &queue, &path, &options, &err); });
    reader.reset();
    EXPECT_ERROR(Timeout, -1, reader.next(Wait::none()), "time");
    EXPECT_STATUS(PF_OK, waiting.get());
    pf_string_release(path);
    pf_string_release(options);
    EXPECT_STATUS(PF_OK, pf_release(queue, &err));  // drops the queue without filling, closing or failing it
    EXPECT_ERROR(Timeout, -1, reader.next(1ms), "time");
    EXPECT_STATUS(PF_OK, pf_release(format, &err));
    EXPECT_ERROR(Timeout, -1, reader.next(1ms), "time");
    reader.reset();
    EXPECT_ERROR(StateError, -1, reader.next(kStuck), "have ended");
}

}  // namespace

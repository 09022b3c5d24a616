// Programs: built by hand, saved and loaded, damaged; the current programs; unique names; attributes.
#include "programs.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class ProgramTest : public Files {
protected:
    // Returns a program with a loop that counts to 3.
    static Program counting() {
        Program program;
        program.add_variable(0, R"({"name": "i", "dtype": "int64", "dims": [1]})");
        program.add_variable(0, R"({"name": "n", "dtype": "int64", "dims": [1]})");
        program.add_variable(0, R"({"name": "go", "dtype": "bool", "dims": [1]})");
        program.add_op(0, R"({"type": "fill_constant", "outputs": ["i"],
                              "attributes": {"dims": [1], "dtype": "int64", "value": 0}})");
        program.add_op(0, R"({"type": "fill_constant", "outputs": ["n"],
                              "attributes": {"dims": [1], "dtype": "int64", "value": 3}})");
        program.add_op(0, R"({"type": "less_than", "inputs": ["i", "n"], "outputs": ["go"]})");
        EXPECT_EQ(1u, program.add_block(0));
        program.add_op(1, R"({"type": "increment", "inputs": ["i"], "outputs": ["i"]})");
        program.add_op(1, R"({"type": "less_than", "inputs": ["i", "n"], "outputs": ["go"]})");
        program.add_op(
            0, R"({"type": "while", "inputs": ["go"], "attributes": {"block": 1}, "where": "here:1"})");
        return program;
    }
    static int64_t count(const Program &program) {
        return scalar<int64_t>(Executor().run(program, Scope(), {}, {"i"}, kStuck));
    }
};

TEST_F(ProgramTest, Empty) {
    const Program program;
    EXPECT_EQ(R"({"version":1,"blocks":[{"parent":-1,"variables":[],"ops":[]}]})", dense(program.to_json()));
    EXPECT_TRUE(Executor().run(program, scope).empty());
    const Program same = program, other;
    EXPECT_TRUE(program == same);
    EXPECT_TRUE(program != other);
    const Program counted = Program::retain(program.handle());
    EXPECT_TRUE(counted == program);
    EXPECT_ERROR(StaleHandleError, -1, Program::retain(0), "handle");
    EXPECT_ERROR(StaleHandleError, -1, Executor().run(Program::retain(scope.handle()), scope), "program");
}

TEST_F(ProgramTest, BuiltByHand) {
    const Program program = counting();
    EXPECT_EQ(3, count(program));
    EXPECT_TRUE(program.has(0, "i"));
    EXPECT_TRUE(program.has(1, "i"));
    EXPECT_FALSE(program.has(0, "j"));
    EXPECT_EQ(R"({"name":"n","kind":"tensor","persistable":false,"dtype":"int64","dims":[1],"lod_levels":0})",
              dense(program.variable(1, "n")));
    EXPECT_ERROR(NotFoundError, -1, program.variable(0, "j"), "j");
    EXPECT_ERROR(NotFoundError, -1, program.variable(7, "i"), "expected 0 to 1, found 7");
    EXPECT_ERROR(NotFoundError, -1, program.has(0, "i") && program.add_block(9), "expected 0 to 1, found 9");
}

TEST_F(ProgramTest, MistakesChangeNothing) {
    const Program program = counting();
    const std::string before = program.to_json();
    const auto variable = [&](const char *json) { program.add_variable(0, json); };
    EXPECT_ERROR(StateError, -1, variable(R"({"name": "i"})"), "i");
    EXPECT_ERROR(InvalidArgument, -1, variable(R"({"name": ""})"), "name");
    EXPECT_ERROR(InvalidArgument, -1, variable(R"({"kind": "tensor"})"), "name");
    EXPECT_ERROR(InvalidArgument, -1, variable(R"({"name": "x", "kind": "queue"})"), "queue");
    EXPECT_ERROR(InvalidArgument, -1, variable(R"({"name": "x", "slots": []})"), "slots");
    EXPECT_ERROR(InvalidArgument, -1, variable(R"({"name": "x", "shape": [1]})"), "shape");
    EXPECT_ERROR(Error, -1, variable(R"({"name": "x", "dims": [-2]})"), "-2");
    EXPECT_ERROR(Error, -1, variable(R"({"name": "x", "dtype": "float31"})"), "float31");
    EXPECT_ERROR(Error, -1, variable("{"), "line 1, column 2: expected a name in quotes, found the end");
    EXPECT_ERROR(Error, -1, variable(""), "line 1, column 1: expected a variable, an object, found the end");
    const auto op = [&](const char *json, uint32_t block = 0) { program.add_op(block, json); };
    EXPECT_ERROR(NotFoundError, -1, op(R"({"type": "less"})"), "less_than", "less");
    EXPECT_ERROR(NotFoundError, -1, op(R"({"type": "increment", "inputs": ["j"], "outputs": ["i"]})"), "j",
                 "block 0, op 4: increment");
    EXPECT_ERROR(SlotCountError, -1, op(R"({"type": "increment", "inputs": ["i", "n"], "outputs": ["i"]})"),
                 "expected 1, found 2");
    EXPECT_ERROR(DTypeError, -1, op(R"({"type": "less_than", "inputs": ["i", "go"], "outputs": ["go"]})"),
                 "int64", "bool");
    EXPECT_ERROR(DTypeError, 0, op(R"({"type": "less_than", "inputs": ["i", "n"], "outputs": ["i"]})"),
                 "bool");
    EXPECT_ERROR(InvalidArgument, -1,
                 op(R"({"type": "increment", "inputs": ["i"], "outputs": ["i"], "attributes": {"by": 2}})"),
                 "step", "by");
    EXPECT_ERROR(InvalidArgument, -1, op(R"({"type": "while", "inputs": ["go"]})"), "block");
    EXPECT_ERROR(StateError, -1, op(R"({"type": "while", "inputs": ["go"], "attributes": {"block": 1}})"),
                 "block 1");
    EXPECT_ERROR(InvalidArgument, -1,
                 op(R"({"type": "while", "inputs": ["go"], "attributes": {"block": 9}})"), "9");
    EXPECT_ERROR(DTypeError, -1, op(R"({"type": "while", "inputs": ["i"], "attributes": {"block": 1}})"),
                 "expected bool, found int64");
    EXPECT_ERROR(NotFoundError, -1, op(R"({"type": "increment", "inputs": ["i"], "outputs": ["i"]})", 5),
                 "5");
    EXPECT_ERROR(Error, -1, op(R"({"type": "increment")"), "line 1, column 21: expected a comma",
                 "found the end");
    EXPECT_EQ(before, program.to_json());
    EXPECT_EQ(3, count(program));
}

// The refused operator is a field of the error, and is named in the error's text.
TEST_F(ProgramTest, ErrorsNameTheOperator) {
    try {
        counting().add_op(1, R"({"type": "less_than", "inputs": ["i", "go"], "outputs": ["go"],
                                "where": "train.cpp:7"})");
        FAIL() << "nothing was thrown";
    } catch (const DTypeError &e) {
        EXPECT_EQ("block 1, op 2: less_than", e.op());
        EXPECT_EQ(
            0u,
            std::string(e.what()).find(
                "block 1, op 2: less_than(i, go) -> go at train.cpp:7, with i int64 (1,), go bool (1,): "))
            << e.what();
    }
}

TEST_F(ProgramTest, FormsAndBack) {
    const Program program = counting();
    const std::string json = program.to_json(), bytes = program.serialize();
    EXPECT_EQ(json, Program::parse(json).to_json());
    EXPECT_EQ(json, Program::parse(bytes).to_json());
    EXPECT_EQ(bytes, Program::parse(json).serialize());
    EXPECT_EQ(3, count(Program::parse(bytes)));

    program.save(path("p.json"));
    program.save(path("p.program"));
    EXPECT_EQ(json, load("p.json"));
    EXPECT_EQ(bytes, load("p.program"));
    EXPECT_EQ(json, Program::load(path("p.json")).to_json());
    EXPECT_EQ(json, Program::load(path("p.program")).to_json());
    Program().save(path("p.program"));  // replaces the old file
    EXPECT_EQ(Program().serialize(), load("p.program"));
    EXPECT_EQ((std::vector<std::string>{"p.json", "p.program"}), listing());

    EXPECT_NE(std::string::npos, program.mermaid().find("less_than"));
    EXPECT_NE(std::string::npos, program.graphviz().find("digraph"));
}

TEST_F(ProgramTest, FilesThatCannotBeReadOrWritten) {
    EXPECT_ERROR(FileError, -1, Program::load(path("none")), path("none"));
    EXPECT_ERROR(FileError, -1, counting().save(path("none/p.json")), path("none/p.json"));
    try {
        Program::load(store("cut.json", R"({"version": 1, "blocks": [{"parent": -1, "ops": [)"));
        FAIL() << "nothing was thrown";
    } catch (const CorruptRecordError &e) {
        EXPECT_EQ(path("cut.json"), e.file());
        EXPECT_GE(e.offset(), 0);
    }
    EXPECT_ERROR(UnsupportedError, -1, Program::parse(R"({"version": 2, "blocks": []})"),
                 "expected 1, found 2");
    for (const char *text : {"", "{", "{}"}) {
        try {
            Program::parse(text);
            ADD_FAILURE() << "nothing was thrown";
        } catch (const Error &e) {
            EXPECT_NE(',', e.what()[0]) << e.what();  // the message names no file
            EXPECT_EQ("", e.file());
            EXPECT_GE(e.offset(), 0);
        }
    }
    EXPECT_ERROR(Error, -1, Program::parse(""), "expected a program, found 0 bytes");
    EXPECT_ERROR(Error, -1, Program::parse("no program"), "field");
}

// A program that was cut off, or has a changed byte, is parsed or refused with an error.
TEST_F(ProgramTest, DamagedBytes) {
    for (const std::string &good : {counting().serialize(), counting().to_json()}) {
        size_t refused = 0;
        const auto parse = [&](const std::string &bytes) {
            try {
                Program::parse(bytes).serialize();
            } catch (const Error &e) {
                refused++;
                EXPECT_NE(std::string(), e.what());
            }
        };
        for (size_t i = 0; i < good.size(); i++) {
            parse(good.substr(0, i));
            for (const char c : {'\0', '\x7f', '\xff', '{'}) {
                std::string bad = good;
                bad[i] = c;
                parse(bad);
            }
        }
        EXPECT_GT(refused, good.size());
    }
}

TEST_F(ProgramTest, AClonesChangesAreItsOwn) {
    const Program program = counting();
    const std::string before = program.to_json();
    const Program clone = program.clone();
    EXPECT_EQ(before, clone.to_json());
    clone.add_op(0, R"({"type": "increment", "inputs": ["i"], "outputs": ["i"]})");
    EXPECT_EQ(before, program.to_json());
    EXPECT_EQ(4, count(clone));
    EXPECT_EQ(3, count(program));
}

// ---- The current programs ----

TEST(CurrentPrograms, AreTheProcesss) {
    const Program main = default_main_program(), startup = default_startup_program();
    EXPECT_TRUE(main != startup);
    EXPECT_TRUE(main == default_main_program());
    const std::string before = ops(main);
    in_thread([&] {
        EXPECT_TRUE(main == default_main_program());
        EXPECT_TRUE(startup == default_startup_program());
        layers::increment(layers::fill_constant({}, DType::int8, 1));
    }).get();
    EXPECT_GT(ops(main).size(), before.size());
}

TEST(CurrentPrograms, GuardsNest) {
    const Program before = default_main_program();
    const Program a, b, c;
    {
        const auto outer = program_guard(a, b);
        EXPECT_TRUE(a == default_main_program());
        EXPECT_TRUE(b == default_startup_program());
        {
            const auto inner = program_guard(c);
            EXPECT_TRUE(c == default_main_program());
            EXPECT_TRUE(b == default_startup_program());
        }
        program_guard(b, c, [&] {
            EXPECT_TRUE(b == default_main_program());
            EXPECT_TRUE(c == default_startup_program());
        });
        EXPECT_THROW(program_guard(b, c, [] { throw std::runtime_error("in between"); }), std::runtime_error);
        EXPECT_TRUE(a == default_main_program());
        // The guards change the current programs of this thread only.
        in_thread([&] { EXPECT_TRUE(before == default_main_program()); }).get();
    }
    EXPECT_TRUE(before == default_main_program());
}

TEST(UniqueNames, AreCounted) {
    const auto guard = unique_name::guard();
    EXPECT_EQ("x_0", unique_name::generate("x"));
    EXPECT_EQ("x_1", unique_name::generate("x"));
    EXPECT_EQ("y_0", unique_name::generate("y"));
    {
        const auto inner = unique_name::guard();
        EXPECT_EQ("x_0", unique_name::generate("x"));
    }
    EXPECT_EQ("x_2", unique_name::generate("x"));
}

TEST(UniqueNames, OfManyThreads) {
    std::vector<std::future<std::vector<std::string>>> threads;
    for (int i = 0; i < 4; i++) {
        threads.push_back(in_thread([] {
            std::vector<std::string> names;
            for (int j = 0; j < 500; j++) names.push_back(unique_name::generate("of_many_threads"));
            return names;
        }));
    }
    std::vector<std::string> all;
    for (auto &thread : threads)
        for (const auto &name : thread.get()) all.push_back(name);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all.end(), std::adjacent_find(all.begin(), all.end()));
}

// ---- Attributes ----

struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

TEST(AttributeValues, AsJson) {
    const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
    const std::vector<std::pair<AttributeValue, std::string>> values = {
        {true, "true"},
        {false, "false"},
        {0, "0"},
        {-1234567, "-1234567"},
        {int8_t{-7}, "-7"},
        {uint8_t{200}, "200"},
        {std::numeric_limits<int64_t>::min(), "-9223372036854775808"},
        {std::numeric_limits<uint64_t>::max(), "18446744073709551615"},
        {1.0, "1.0"},
        {-0.0, "-0.0"},
        {0.5f, "0.5"},
        {123456.75, "123456.75"},
        {1e300, "1.0000000000000001e+300"},
        {std::nan(""), R"({"$float": "nan"})"},
        {HUGE_VAL, R"({"$float": "inf"})"},
        {-HUGE_VAL, R"({"$float": "-inf"})"},
        {"a \"b\" \\ \n \x01 \xc3\xa9", "\"a \\\"b\\\" \\\\ \\u000a \\u0001 \xc3\xa9\""},
        {std::string("c\0d", 3), R"("c\u0000d")"},
        {{}, "[]"},
        {{1, 2.0, "x", {true}}, R"([1, 2.0, "x", [true]])"},
        {std::vector<int>{1, 2}, "[1, 2]"},
        {std::vector<bool>{true, false}, "[true, false]"},
        {std::vector<std::string>{"a"}, R"(["a"])"},
        {Attributes(), "{}"},
        {Attributes{{"b", 1}, {"a", Attributes{{"c", {}}}}}, R"({"a": {"c": []}, "b": 1})"},
    };
    std::locale::global(before);
    for (const auto &[value, json] : values) EXPECT_EQ(json, value.json());
    EXPECT_EQ(R"({"a": 2})", (Attributes{{"a", 1}}.set("a", 2).json()));
}

// Attributes are unchanged after they were added to a program, saved and parsed.
TEST(AttributeValues, ThroughAProgram) {
    const Program program;
    const Attributes attributes{{"bool", true},         {"int", std::numeric_limits<int64_t>::min()},
                                {"whole", 3.0},         {"tenth", 0.1},
                                {"tiny", 5e-324},       {"nan", std::nan("")},
                                {"inf", -HUGE_VAL},     {"text", "<\"\\\x01\t\xf0\x9f\x98\x80>"},
                                {"list", {1, "x", {}}}, {"map", Attributes{{"a", 1}, {"quote\"d", 2}}}};
    program.add_op(
        0, R"({"type": "call", "attributes": {"kernel": "k", "attributes": )" + attributes.json() + "}}");
    const std::string json = Program::parse(Program::parse(program.serialize()).to_json()).to_json();
    detail::JsonView found;
    detail::JsonView(json)["blocks"].any([&](detail::JsonView, detail::JsonView block) {
        block["ops"].any([&](detail::JsonView, detail::JsonView o) {
            found = o["attributes"]["attributes"];
            return true;
        });
        return true;
    });
    EXPECT_EQ(true, found["bool"].as<bool>());
    EXPECT_EQ(std::numeric_limits<int64_t>::min(), found["int"].as<int64_t>());
    EXPECT_EQ(std::nullopt, found["whole"].as<int64_t>());  // 3.0 is still a float
    EXPECT_EQ(3.0, found["whole"].as<double>());
    EXPECT_EQ(0.1, found["tenth"].as<double>());
    EXPECT_EQ(5e-324, found["tiny"].as<double>());
    EXPECT_TRUE(std::isnan(found["nan"].as<double>().value()));
    EXPECT_EQ(-HUGE_VAL, found["inf"].as<double>());
    EXPECT_EQ("<\"\\\x01\t\xf0\x9f\x98\x80>", found["text"].as<std::string>());
    EXPECT_EQ(R"([1,"x",[]])", dense(found["list"].text()));
    EXPECT_EQ(2, found["map"]["quote\"d"].as<int>());
}

TEST(JsonViews, OfText) {
    using detail::JsonView;
    const std::string text =
        " { \"a\\\"}\" : [ 1 , -2.5e-1 , \"x,y]\" ] , \"b\":{\"c\":{}} ,\"d\" :true, \"e\":null,"
        "\"f\": \"\\u00e9\\ud83d\\ude00\\n\\/\"} ";
    const JsonView view(text);
    EXPECT_EQ("[ 1 , -2.5e-1 , \"x,y]\" ]", view["a\"}"].text());
    std::vector<std::string> elements;
    EXPECT_FALSE(view["a\"}"].any([&](JsonView name, JsonView element) {
        EXPECT_TRUE(name.text().empty());
        elements.emplace_back(element.text());
        return false;
    }));
    EXPECT_EQ((std::vector<std::string>{"1", "-2.5e-1", "\"x,y]\""}), elements);
    EXPECT_EQ("{}", view["b"]["c"].text());
    EXPECT_EQ(true, view["d"].as<bool>());
    EXPECT_EQ("null", view["e"].text());
    EXPECT_EQ("\xc3\xa9\xf0\x9f\x98\x80\n/", view["f"].string());
    EXPECT_TRUE(view["f"].is_string("\xc3\xa9\xf0\x9f\x98\x80\n/"));
    EXPECT_TRUE(view["g"].text().empty());
    EXPECT_TRUE(view["d"]["x"].text().empty());

    EXPECT_EQ(std::nullopt, JsonView("300").as<uint8_t>());
    EXPECT_EQ(std::nullopt, JsonView("-1").as<uint32_t>());
    EXPECT_EQ(std::nullopt, JsonView("1.0").as<int>());
    EXPECT_EQ(std::nullopt, JsonView("true").as<int>());
    EXPECT_EQ(std::nullopt, JsonView("1").as<bool>());
    EXPECT_EQ(std::nullopt, JsonView("infinity").as<double>());
    EXPECT_EQ(std::nullopt, JsonView("\"1\"").as<double>());
    EXPECT_EQ(std::nullopt, JsonView("1e").as<double>());
    EXPECT_EQ(std::nullopt, JsonView("").as<double>());
    EXPECT_EQ(-250.0, JsonView("-2.5e2").as<double>());
    EXPECT_EQ(5e-324, JsonView("5e-324").as<double>());
    EXPECT_EQ(0.1f, JsonView("0.1").as<float>());
    EXPECT_EQ(0.0f, JsonView("1e-50").as<float>());
    EXPECT_EQ(std::nullopt, JsonView("1e50").as<float>());
    EXPECT_EQ(std::nullopt, JsonView("1").as<std::string>());
    EXPECT_EQ(std::nullopt, JsonView("[1, 2.5]").as<std::vector<int>>());
    EXPECT_EQ((std::vector<double>{1, 2.5}), JsonView("[1, 2.5]").as<std::vector<double>>());
    EXPECT_EQ(std::vector<int>(), JsonView("[ ]").as<std::vector<int>>());
}

// Text that is not JSON is never read beyond its end.
TEST(JsonViews, OfDamagedText) {
    const std::string good = R"({"a\\": [1, {"b": "\u00e9"}], "c": -1.5e3})";
    for (size_t n = 0; n <= good.size(); n++) {
        for (size_t i = 0; i < n; i++) {
            for (const char c : {'"', '\\', '{', ']', ',', 'x'}) {
                std::string bad = good.substr(0, n);
                bad[i] = c;
                const std::unique_ptr<char[]> exact(new char[n]);  // for the sanitizer: no byte after the end
                std::memcpy(exact.get(), bad.data(), n);
                const detail::JsonView view(std::string_view(exact.get(), n));
                view["c"].as<double>();
                view["a\\"].any([](detail::JsonView, detail::JsonView element) {
                    element["b"].string();
                    return false;
                });
            }
        }
    }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
//
// Templates render what Python's Jinja renders, and hostile ones end.
#include "jinja/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/files.h"
#include "base/testing/source_path.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::filesystem::path kRoot = testing::SourcePath("");
const std::filesystem::path kTestData = kRoot / "src/jinja/testdata";

std::string ReadFile(const std::filesystem::path& path) {
  EXPECT_TRUE(std::filesystem::is_regular_file(path)) << path;
  return testing::ReadText(path);
}

std::vector<Json> ReadLines(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::istringstream text(ReadFile(path));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

ChatTemplateInput FixtureInput() {
  ChatTemplateInput input;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  std::tm now{};  // Friday, 26 July 2024, 12:34:56
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 12;
  now.tm_min = 34;
  now.tm_sec = 56;
  now.tm_wday = 5;
  now.tm_yday = 207;
  input.now = now;
  return input;
}

Result<std::string> RenderWith(std::string_view source, const ChatTemplateInput& input) {
  Result<std::shared_ptr<const ChatTemplate>> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(input);
}

Result<std::string> Render(std::string_view source, const std::string& extra_json = "") {
  ChatTemplateInput input = FixtureInput();
  input.extra_json = extra_json;
  return RenderWith(source, input);
}

std::string ErrorOf(std::string_view source, const std::string& extra_json = "") {
  const Result<std::string> result = Render(source, extra_json);
  EXPECT_FALSE(result.ok()) << source << " gave " << *result;
  return result.status().message();
}

StatusCode CodeOf(std::string_view source) { return Render(source).status().code(); }

void Replay(const Json& test, const std::string& variables) {
  const std::string source = test.contains("file")
                                 ? ReadFile(kTestData / "templates" / test["file"].get<std::string>())
                                 : test["template"].get<std::string>();
  SCOPED_TRACE(test.contains("file") ? test["file"].get<std::string>() + " " + test["input"].dump() : source);
  const Result<std::string> result = Render(source, variables);
  if (test.contains("expected")) {
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(*result, test["expected"].get<std::string>());
    return;
  }
  ASSERT_FALSE(result.ok()) << "gave " << *result;
  EXPECT_THAT(result.status().message(), HasSubstr("chat template, line "));
  if (test.contains("message")) {
    EXPECT_THAT(result.status().message(), HasSubstr(test["message"].get<std::string>()));
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  }
}

// tools/make_template_fixture.py says how the fixture came about.
TEST(ChatTemplateTest, RendersWhatPythonRenders) {
  const std::filesystem::path path = kTestData / "templates/cases.jsonl";
  const std::vector<Json> lines = ReadLines(path);
  ASSERT_GT(lines.size(), 1000U);
  // {"variables": ...}, as it was written: some of its numbers are none for a parser that counts in 64 bits.
  const std::string first = ReadFile(path).substr(0, ReadFile(path).find('\n'));
  const std::string variables = first.substr(first.find(':') + 1, first.size() - first.find(':') - 2);
  for (size_t i = 1; i < lines.size(); ++i) {
    Replay(lines[i], lines[i].contains("input") ? lines[i]["input"].dump() : variables);
  }
}

// The chats that transformers rendered with the same template, byte for byte.
TEST(ChatTemplateTest, GoldenChats) {
  const std::string source = ReadFile(kTestData / "templates/smollm2.jinja");
  const std::vector<Json> lines = ReadLines(kRoot / "tests/golden/chat.jsonl");
  ASSERT_FALSE(lines.empty());
  for (const Json& line : lines) {
    ChatTemplateInput input;
    for (const Json& message : line["messages"])
      input.messages.push_back({message["role"], message["content"]});
    input.add_generation_prompt = line["add_generation_prompt"];
    const Result<std::string> text = RenderWith(source, input);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, line["text"].get<std::string>());
  }
}

TEST(ChatTemplateTest, VariablesOfTheInput) {
  ChatTemplateInput input;
  input.messages = {{"user", "a"}, {"assistant", "b"}};
  input.bos_token = "<b>";
  input.eos_token = "<e>";
  input.add_generation_prompt = false;
  const std::string source =
      "{{ bos_token }}{{ eos_token }}{{ messages }}{{ add_generation_prompt }}{{ tools }}{{ documents }}{{ x "
      "}}";
  EXPECT_EQ(*RenderWith(source, input),
            "<b><e>[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]FalseNoneNone");
  input.extra_json = R"({"x": 1, "tools": [], "bos_token": null})";
  EXPECT_EQ(*RenderWith("{{ bos_token }}{{ tools }}{{ x }}", input), "None[]1");
}

TEST(ChatTemplateTest, ExtraJsonErrors) {
  EXPECT_THAT(ErrorOf("x", "{"), HasSubstr("extra_json: invalid JSON: a syntax error at byte"));
  EXPECT_THAT(ErrorOf("x", "[1]"), HasSubstr("extra_json must be an object"));
  EXPECT_THAT(ErrorOf("x", "{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}"),
              HasSubstr("100 levels"));
}

TEST(ChatTemplateTest, JsonKeepsOrderAndTheLastOfEqualKeys) {
  EXPECT_EQ(*Render("{{ d | tojson }}",
                    R"({"d": {"z": 1, "a": -2.5, "z": [true, "\u00e9", 9223372036854775807]}})"),
            "{\"z\": [true, \"é\", 9223372036854775807], \"a\": -2.5}");
}

TEST(ChatTemplateTest, NumbersStayWhatTheyAre) {
  for (const std::string number :
       {"18446744073709551615", "18446744073709551616", "-9223372036854775809",
        "340282366920938463463374607431768211455", "0.1", "-2.5", "1e+22", "5.0", "0"}) {
    EXPECT_EQ(*Render("{{ d }} {{ d | tojson }}", "{\"d\": " + number + "}"), number + " " + number);
  }
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("a\n{# x\n #}\n{{ nope.x }}"), "chat template, line 4: 'nope' is undefined");
  EXPECT_EQ(ErrorOf("\n\n{{ 1 + }}"), "chat template, line 3: expected an expression, got '}}'");
  EXPECT_EQ(ErrorOf("{% for x in [1] %}\n{{ x / 0 }}\n{% endfor %}"),
            "chat template, line 2: division by zero");
  EXPECT_EQ(ErrorOf("{{ 1 +\n nope.x }}"), "chat template, line 2: 'nope' is undefined");
  EXPECT_EQ(ErrorOf("{% if x %}\n\n"),
            "chat template, line 2: expected '{% endif %}', got the end of the template");
  EXPECT_EQ(ErrorOf("{{ {'a': 1}['b'].c }}"), "chat template, line 1: 'dict object' has no attribute 'b'");
  EXPECT_EQ(ErrorOf("{{ [1][3] + 1 }}"), "chat template, line 1: list object has no element 3");
  EXPECT_EQ(ErrorOf("\n{{ 'x }}"), "chat template, line 2: the string is not closed");
}

TEST(ChatTemplateTest, RaiseExceptionIsTheMessage) {
  const Result<std::string> result = Render("\n{{ raise_exception('Only user roles!') }}");
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().message(), "chat template, line 2: Only user roles!");
}

TEST(ChatTemplateTest, NamesWhatIsNotOffered) {
  for (const auto& [source, message] : std::vector<std::pair<std::string, std::string>>{
           {"\n{% include 'x' %}", "line 2: the tag 'include' is not offered"},
           {"{% if no %}{{ 1 | pprint }}{% endif %}", "line 1: the filter 'pprint' is not offered"},
           {"{% if 1 is weird %}{% endif %}", "line 1: the test 'weird' is not offered"},
           {"{{ 'a'.swapcase() }}",
            "line 1: 'str object' has no attribute 'swapcase', or the method is not offered"},
           {"{{ [1] | map('pprint') }}", "the filter 'pprint' is not offered"},
           {"{{ dict(**x) }}", "arguments unpacked with '**' are not offered"},
           {"{{ dict(*x) }}", "arguments unpacked with '*' are not offered"},
           {"{% for x in y recursive %}{% endfor %}", "recursive loops are not offered"},
           {"{{ '\\N{DASH}' }}", "named characters"},
           {"{{ '{:>3}'.format(1) }}", "not {:>3}"},
           {"{{ strftime_now('%Q') }}", "strftime_now does not offer '%Q'"},
           {"{{ strftime_now('%') }}", "strftime_now does not offer '%'"},
       }) {
    EXPECT_THAT(ErrorOf(source), HasSubstr(message)) << source;
    EXPECT_EQ(CodeOf(source), StatusCode::kUnsupported) << source;
  }
}

TEST(ChatTemplateTest, TimeIsTheClockUnlessGiven) {
  ChatTemplateInput input;
  const Result<std::string> year = RenderWith("{{ strftime_now('%Y') | int > 2023 }}", input);
  EXPECT_EQ(*year, "True");
  EXPECT_EQ(*Render("{{ strftime_now('%-d/%-m %e') }}"), "26/7 26");
}

TEST(ChatTemplateTest, IntegersDoNotWrap) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 3037000500 * 3037000500 }}",
        "{{ 2 ** 63 }}", "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 9223372036854775808 + 1 }}",
        "{{ 1 - 9223372036854775808 }}", "{{ 0xFFFFFFFFFFFFFFFF }}", "{{ 1e30 | int }}",
        "{{ 9223372036854775807 | round(-1) }}"}) {
    EXPECT_THAT(ErrorOf(source), HasSubstr("64 bits")) << source;
  }
  EXPECT_EQ(*Render("{{ -(-9223372036854775807 - 1) }} {{ (-9223372036854775807 - 1) | abs }}"),
            "9223372036854775808 9223372036854775808");
  EXPECT_EQ(
      *Render(
          "{{ 2 ** 62 }}{{ (-9223372036854775807 - 1) % -1 }}{{ (-9223372036854775807 - 1) | round(-19) }}"),
      "461168601842738790400");
}

TEST(ChatTemplateTest, BytesThatAreNoTextPassThrough) {
  ChatTemplateInput input;
  input.messages = {{"user", "a\xff\xc3(\xe2\x82z\xed\xa0\x80"}};
  EXPECT_EQ(*RenderWith("{{ messages[0].content }}", input), input.messages[0].content);
  EXPECT_EQ(*RenderWith("{{ messages[0].content | length }}{{ messages[0].content[1:3] }}", input),
            "10\xff\xc3");
  EXPECT_EQ(*RenderWith("{{ [messages[0].content[:2]] }}", input), "['a\\udcff']");
  EXPECT_EQ(*Render("\xff{{ '\xfe' | upper }}"), "\xff\xfe");
  EXPECT_THAT(ErrorOf("{{ \xff }}"), HasSubstr("unexpected character"));
}

TEST(ChatTemplateTest, JsonEscapesAsPythonDoes) {
  ChatTemplateInput input;
  input.messages = {{"user", "a\"\\/\n\r\t\f\b\x01\x1f\x7f é\u2028🙂"}};
  EXPECT_EQ(*RenderWith("{{ messages[0].content | tojson }}", input),
            "\"a\\\"\\\\/\\n\\r\\t\\f\\b\\u0001\\u001f\x7f é\u2028🙂\"");
  EXPECT_EQ(*RenderWith("{{ messages[0].content | tojson(ensure_ascii=true) }}", input),
            R"("a\"\\/\n\r\t\f\b\u0001\u001f\u007f \u00e9\u2028\ud83d\ude42")");
  input.messages = {{"user", "a\xff\xc3(\xe2\x82z\xed\xa0\x80"}};  // no text
  EXPECT_EQ(*RenderWith("{{ messages[0].content | tojson }}", input), "\"a\xff\xc3(\xe2\x82z\xed\xa0\x80\"");
  EXPECT_EQ(*RenderWith("{{ messages[0].content | tojson(ensure_ascii=true) }}", input),
            R"("a\udcff\udcc3(\udce2\udc82z\udced\udca0\udc80")");
}

TEST(ChatTemplateTest, RendersInSeveralThreads) {
  const std::string source = ReadFile(kTestData / "templates/qwen3.jinja");
  const Result<std::shared_ptr<const ChatTemplate>> parsed = ChatTemplate::Parse(source);
  ASSERT_TRUE(parsed.ok());
  ChatTemplateInput input;
  input.messages = {{"user", "a"}, {"assistant", "<think>b</think>c"}, {"user", "d"}};
  const std::string expected = *(*parsed)->Render(input);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) EXPECT_EQ(*(*parsed)->Render(input), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Templates that would run for ever, fill the memory or overrun the stack.
TEST(ChatTemplateLimitTest, HostileTemplatesEnd) {
  const std::string doubling = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}";
  const std::string nesting =
      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  // Twenty times an expression on a long text.
  const auto looping = [](const std::string& text, const std::string& expression) {
    return "{% set x = " + text +
           " %}{% set ns = namespace({x: 1}) %}{% for i in range(20) %}{% set y = " + expression +
           " %}{% endfor %}";
  };
  const std::string letters = "'a' * 900000";
  for (const std::string& source : std::vector<std::string>{
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{{ range(10000000000) }}",
           "{{ range(0, -10000000000, -1) | length }}",
           doubling + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
           doubling + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
           doubling + "{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
           doubling + "{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
           doubling + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
           doubling + "{% set ns.x = '{}{}'.format(ns.x, ns.x) %}{% endfor %}",
           doubling + "{% set ns.x = [ns.x, ns.x] | tojson %}{% endfor %}",
           doubling + "{% set ns.x = [ns.x, ns.x] | string %}{% endfor %}",
           doubling + "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
           doubling + "{{ ns.x }}{% set ns.x = ns.x * 2 %}{% endfor %}",
           doubling + "{% set ns.x = ns.x | replace('', ns.x) %}{% endfor %}",
           doubling + "{% set ns.x = ns.x | indent(10000000) %}{% endfor %}",
           "{{ 'a' * 10000000000 }}",
           "{{ [1] * 10000000000 }}",
           "{{ [1, 2] * 9223372036854775807 }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ 'a' | center(10000000000) }}",
           "{{ 'a\nb' | indent(10000000000) }}",
           "{{ [1] | tojson(indent=10000000000) }}",
           "{{ [1] | batch(10000000000, 1) | list }}",
           "{{ ('a' * 900000).split('a') | length }}",
           "{{ ('a' * 900000) | list | length }}",
           "{{ ('a' * 900000).strip('b' * 900000) }}",
           "{{ ('a' * 900000).rfind('a' * 450000 ~ 'b') }}",
           "{{ ('a' * 900000).rsplit('a' * 450000 ~ 'b') | length }}",
           looping("' ' * 900000", "x.strip()"),
           looping("'{' ~ ' ' * 900000 ~ '0}'", "x.format(1)"),
           looping(letters, "''.strip(x)"),
           looping(letters, "x.removeprefix(x)"),
           looping(letters, "x.removesuffix(x)"),
           looping(letters, "x.count(x)"),
           looping(letters, "x in x"),
           looping(letters, "ns[x]"),
           looping(letters, "'a' | indent(x)"),
           looping(letters, "'a' | indent(900000)"),
           looping(letters, "[] | tojson(indent=x)"),
           looping(letters, "[] | tojson(indent=900000)"),
           looping(letters, "[] | tojson(separators=(x, x))"),
           looping(letters, "[1] | map(attribute=x)"),
           looping(letters, "[1] | selectattr(x)"),
           looping(letters, "[] | sort(attribute=x)"),
           "{{ [1] | map(attribute='.' * 900000) | list }}",
           "{{ ('\n' * 900000) | indent | length }}",
           nesting + "{{ ns.x }}",
           nesting + "{{ ns.x | tojson }}",
           nesting + "{% set y = ns.x %}" + nesting + "{{ ns.x == y }}",
           nesting + "{% set y = ns.x %}" + nesting + "{{ ns.x < y }}",
           "{% set ns = namespace(x=()) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor "
           "%}{{ {ns.x: 1} }}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m(a) %}{% for x in [1] %}{% if x %}{{ m(a ~ a) }}{% endif %}{% endfor %}{% endmacro "
           "%}{{ m('a') }}",
           "{% set x = [] %}{% set _ = x.append(x) %}{{ x }}",
           "{% set x = [] %}{% set _ = x.append(x) %}{{ x | tojson }}",
           "{% set x = [] %}{% set y = [x] %}{% set _ = x.append(y) %}{{ x == y }}",
           "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
       }) {
    SCOPED_TRACE(source);
    ChatTemplateInput input;
    input.max_steps = 200'000;
    input.max_bytes = 1'000'000;
    const Result<std::string> result = RenderWith(source, input);
    ASSERT_FALSE(result.ok()) << *result;
    EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted) << result.status().message();
  }
}

TEST(ChatTemplateLimitTest, LimitsAreNamed) {
  ChatTemplateInput input;
  input.max_steps = 1000;
  Result<std::string> result = RenderWith("\n{% for i in range(400) %}\n{{ i }}{% endfor %}", input);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(result.status().message(), HasSubstr("more than 1000 steps"));
  input.max_bytes = 10;
  result = RenderWith("0123456789a", input);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(result.status().message(), HasSubstr("more than 10 bytes"));
  EXPECT_EQ(*RenderWith("0123456789", input), "0123456789");
  input.max_steps = -1;
  EXPECT_FALSE(RenderWith("{{ 1 }}", input).ok());
}

TEST(ChatTemplateLimitTest, InputIsNotCharged) {
  ChatTemplateInput input;
  input.messages.assign(1000, {"user", std::string(1000, 'x')});
  input.extra_json = "{\"more\": \"" + std::string(100000, 'y') + "\"}";
  input.max_steps = 100;
  EXPECT_EQ(*RenderWith("{{ messages | length }}", input), "1000");
}

TEST(ChatTemplateLimitTest, DeepTemplatesAreRefused) {
  const auto repeat = [](std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  constexpr int kDeep = 20000;
  for (const std::string& source : {
           "{{ " + repeat("(", kDeep) + "1" + repeat(")", kDeep) + " }}",
           "{{ " + repeat("[", kDeep) + repeat("]", kDeep) + " }}",
           "{{ " + repeat("not ", kDeep) + "1 }}",
           "{{ " + repeat("- ", kDeep) + "1 }}",
           "{{ 1" + repeat(" + 1", kDeep) + " }}",
           "{{ 1" + repeat(" ** 1", kDeep) + " }}",
           "{{ 1" + repeat(" or 1", kDeep) + " }}",
           "{{ 1" + repeat(" | abs", kDeep) + " }}",
           "{{ x" + repeat(".x", kDeep) + " }}",
           "{{ x" + repeat("[0]", kDeep) + " }}",
           "{{ x" + repeat("()", kDeep) + " }}",
           "{{ 1" + repeat(" is odd | abs", kDeep) + " }}",
           "{{ 1" + repeat(" if 1", kDeep) + " }}",
           "{{ 1" + repeat(" if 1 else 1", kDeep) + " }}",
           "{{ " + repeat("{1: ", kDeep) + "1" + repeat("}", kDeep) + " }}",
           repeat("{% if 1 %}", kDeep) + repeat("{% endif %}", kDeep),
           "{% for " + repeat("(", kDeep) + "x" + repeat(")", kDeep) + " in y %}{% endfor %}",
       }) {
    const Result<std::string> result = Render(source);
    ASSERT_FALSE(result.ok()) << source.substr(0, 30);
    EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted) << source.substr(0, 30);
  }
  EXPECT_EQ(*Render("{{ 0" + repeat(" + 1", 150) + " }}"), "150");
  EXPECT_EQ(*Render("{{ 1" + repeat(" ~ 1", 2000) + " }}"), repeat("1", 2001));
  EXPECT_THAT(ErrorOf(std::string(2 << 20, 'x')), HasSubstr("bytes are more than"));
}

// The deepest evaluation that the limit allows, on a stack of the usual size.
TEST(ChatTemplateLimitTest, DeepestRecursionFitsTheStack) {
  const std::string deep = std::string(40, '[') + "m()" + std::string(40, ']');
  for (const std::string& source : {
           std::string("{% macro m() %}{% if 1 %}{% set x = [{'a': (m() | upper) ~ 'x'}] %}{% endif %}{% "
                       "endmacro %}{{ m() }}"),
           "{% macro m() %}{{ " + deep + " }}{% endmacro %}{{ m() }}",
           std::string("{% macro m() %}{% filter upper %}{% for x in [1] %}{% set y %}{{ not (1 == 2 and 1) "
                       "and m() }}"
                       "{% endset %}{% endfor %}{% endfilter %}{% endmacro %}{{ m() }}"),
       }) {
    const Result<std::string> result = Render(source);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr("levels deep"));
  }
}

// Seeds and inputs that once failed, with the same limits as the fuzz target.
TEST(ChatTemplateLimitTest, FuzzCorpus) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kTestData / "fuzz_template")) {
    SCOPED_TRACE(entry.path());
    ChatTemplateInput input = FixtureInput();
    input.messages = {{"system", "s"}, {"user", " Hi \n"}, {"assistant", "é🙂"}, {"user", ""}};
    input.max_steps = 20'000;
    input.max_bytes = 100'000;
    const Result<std::string> result = RenderWith(ReadFile(entry.path()), input);
    EXPECT_LE(result.ok() ? result->size() : 0, input.max_bytes);
    ++files;
  }
  EXPECT_GT(files, 20U);
}

}  // namespace
}  // namespace longspec

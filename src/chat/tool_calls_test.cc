// SPDX-License-Identifier: Apache-2.0
//
// Calls of tools are found in a model's text in each form that models write.
#include "chat/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::IsEmpty;

std::shared_ptr<const CallForm> Form(ToolFormat format, bool parallel = true) {
  CallForm form{.format = format, .parallel = parallel};
  form.tools.push_back({.name = "weather", .parameters = Json::parse(R"({"type": "object", "properties": {
    "city": {"type": "string"}, "at": {"type": "integer"}, "exact": {"type": ["boolean", "null"]},
    "tags": {"type": "array", "items": {"type": "string"}}, "any": {}, "note": {"type": ["string", "null"]},
    "kind": {"$ref": "#/$defs/kind"}}, "$defs": {"kind": {"enum": ["a", "b"]}}})")});
  form.tools.push_back({.name = "now"});
  return std::make_shared<const CallForm>(std::move(form));
}

struct Told {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Told&) const = default;
};

// However the text is cut, the same is read.
Told Read(const std::shared_ptr<const CallForm>& form, const std::string& text) {
  const auto read = [&](size_t piece) {
    ToolCallReader reader(form);
    Told told;
    const auto take = [&](const AnswerParts& parts) {
      for (const auto& part : parts) {
        if (const auto* said = std::get_if<std::string>(&part)) {
          EXPECT_FALSE(said->empty());
          told.content += *said;
          continue;
        }
        const auto& call = std::get<ToolCallPiece>(part);
        if (!call.name.empty()) told.calls.emplace_back(call.name, "");
        EXPECT_EQ(call.index + 1, static_cast<int>(told.calls.size()));
        told.calls.back().second += call.arguments;
      }
    };
    for (size_t at = 0; at < text.size(); at += piece) take(reader.Push(text.substr(at, piece)));
    take(reader.Finish());
    EXPECT_EQ(reader.n_calls(), static_cast<int>(told.calls.size()));
    return told;
  };
  const Told whole = read(text.size() + 1);
  for (const size_t piece : {1, 2, 3, 7}) EXPECT_EQ(read(piece), whole) << text << " in pieces of " << piece;
  return whole;
}

// Of a strict function only those are calls that the grammar holds.
TEST(ToolCalls, WithoutATagAreOfAStrictFunctionWhereTheyAreHeld) {
  const auto form = [](ToolFormat format, bool held) {
    CallForm both{.format = format, .holds_untagged = held};
    both.tools = {{.name = "f", .strict = true}, {.name = "g"}};
    return std::make_shared<const CallForm>(std::move(both));
  };
  const std::string arguments = R"({"a": 1})";
  const std::vector<std::string> held = {R"({"name": "f", "arguments": )" + arguments + "}",

                                         "{\n  \"name\": \"f\",\n  \"arguments\": " + arguments + "\n}"};
  const Told call = {"", {{"f", arguments}}};
  for (const std::string& text : held) {
    for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kTagged, ToolFormat::kGeneric}) {
      EXPECT_EQ(Read(form(format, true), text), call) << text;
      EXPECT_EQ(Read(form(format, true), "```json\n" + text + "\n```"), call) << text;
      EXPECT_EQ(Read(form(format, false), text), (Told{text, {}})) << text;
    }
  }
  for (const char* other :
       {R"({"arguments": {"a": 1}, "name": "f"})", R"({ "name": "f", "arguments": {"a": 1}})",
        R"({"name": "f", "parameters": {"a": 1}})", "<function=f><parameter=a>1</parameter></function>"}) {
    EXPECT_EQ(Read(form(ToolFormat::kHermes, true), other), (Told{other, {}}));
  }
  // Others are calls however they are written.
  EXPECT_EQ(Read(form(ToolFormat::kHermes, true), R"({ "name": "g", "parameters": {"a": 1}})"),
            (Told{"", {{"g", arguments}}}));
  const std::string function = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>";
  EXPECT_EQ(Read(form(ToolFormat::kTagged, true), function), call);
  EXPECT_EQ(Read(form(ToolFormat::kHermes, true), function), (Told{function, {}}));
  // The form that a model was shown is held in any case.
  EXPECT_EQ(Read(form(ToolFormat::kLlama3, false), R"({"name": "f", "parameters": {"a": 1}})"), call);
  EXPECT_EQ(Read(form(ToolFormat::kHermes, false), "<tool_call>\n" + held[0] + "\n</tool_call>"), call);
}

// Calls stand between tags, as JSON; what only looks like a tag, or has no call in it, stays text.
TEST(ToolCalls, OfHermes) {
  EXPECT_EQ(
      Read(Form(ToolFormat::kHermes),
           "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
           "\"a}\\\"b\", \"at\": [1, {}]}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
           "\"arguments\": {}}\n</tool_call>"),
      (Told{"Let me see.\n", {{"weather", "{\"city\": \"a}\\\"b\", \"at\": [1, {}]}"}, {"now", "{}"}}}));
  EXPECT_EQ(Read(Form(ToolFormat::kHermes), "No <tool_ call> here"), (Told{"No <tool_ call> here", {}}));
  EXPECT_EQ(Read(Form(ToolFormat::kHermes), "<tool_call>I think so"), (Told{"<tool_call>I think so", {}}));
  EXPECT_EQ(Read(Form(ToolFormat::kHermes), "a <tool_ca"), (Told{"a <tool_ca", {}}));
}

// A whole answer that is JSON with a name is a call, and several stand with semicolons between them.
TEST(ToolCalls, OfLlama3) {
  EXPECT_EQ(Read(Form(ToolFormat::kLlama3), "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bonn\"}}"),
            (Told{"", {{"weather", "{\"city\": \"Bonn\"}"}}}));
  EXPECT_EQ(Read(Form(ToolFormat::kLlama3),
                 "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}"),
            (Told{"", {{"now", "{}"}, {"now", "{}"}}}));
  EXPECT_EQ(Read(Form(ToolFormat::kLlama3), "{\"a\": 1}"), (Told{"{\"a\": 1}", {}}));
}

// Both forms of Mistral's: a list behind a mark, and a mark before each name. A mark without a call stays
// text.
TEST(ToolCalls, OfMistral) {
  const auto list = Form(ToolFormat::kMistralList), named = Form(ToolFormat::kMistral);
  const Told both = {"", {{"now", "{}"}, {"weather", "{\"city\": \"x\"}"}}};
  EXPECT_EQ(
      Read(list, R"([TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "a1B2c3D4e"}, {"name": "weather", )"
                 R"("arguments": {"city": "x"}}])"),
      both);
  EXPECT_EQ(Read(list, R"([TOOL_CALLS][{"name": "now", "arguments": {}}])"), (Told{"", {{"now", "{}"}}}));
  EXPECT_EQ(Read(named, R"([TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "x"})"),
            both);
  EXPECT_EQ(Read(named, R"(So. [TOOL_CALLS]now[ARGS]{}
)"),
            (Told{"So. ", {{"now", "{}"}}}));
  for (const char* text :
       {"[TOOL_CALLS]", "[TOOL_CALLS] and so", "[TOOL_CALLS]now[ARGS]x", "a [TOOL_", "[1]"}) {
    EXPECT_EQ(Read(named, text), (Told{text, {}}));
    EXPECT_EQ(Read(list, text), (Told{text, {}}));
  }
  const std::string other = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(Read(named, other), (Told{other, {}}));
}

// The form for models that have none of their own: one list between tags.
TEST(ToolCalls, OfOthers) {
  EXPECT_EQ(Read(Form(ToolFormat::kGeneric),
                 "<tool_call>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather\", "
                 "\"arguments\": {\"city\": \"x\"}}]</tool_call>"),
            (Told{"", {{"now", "{}"}, {"weather", "{\"city\": \"x\"}"}}}));
  EXPECT_EQ(Read(Form(ToolFormat::kGeneric), "<tool_call>[]</tool_call>"), (Told{"", {}}));
}

TEST(ToolCalls, OneThatWasCutShortKeepsWhatItHas) {
  EXPECT_EQ(
      Read(Form(ToolFormat::kHermes), "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bo"),
      (Told{"", {{"weather", "{\"city\": \"Bo"}}}));
}

TEST(ToolCalls, PartsAreInTheOrderOfTheText) {
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const AnswerParts parts =
      ToolCallReader(Form(ToolFormat::kHermes)).ReadWhole("One. " + call + call + "Two. " + call);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(std::get<std::string>(parts[0]), "One. ");
  EXPECT_EQ(std::get<ToolCallPiece>(parts[2]).arguments, "{\"a\": 1}");
  EXPECT_EQ(std::get<std::string>(parts[3]), "Two. ");
  EXPECT_EQ(std::get<ToolCallPiece>(parts[4]).index, 2);
  ASSERT_EQ(ToolCallReader(nullptr).ReadWhole(call).size(), 1U);  // nobody offered tools
  EXPECT_EQ(std::get<std::string>(ToolCallReader(nullptr).ReadWhole(call)[0]), call);
  EXPECT_THAT(ToolCallReader(Form(ToolFormat::kHermes)).ReadWhole(""), IsEmpty());
}

TEST(ToolCalls, AreWholeUnlessTheLastWasCutShort) {
  const auto whole = [](const std::string& text) {
    ToolCallReader reader(Form(ToolFormat::kHermes));
    reader.ReadWhole(text);
    return reader.has_whole_calls();
  };
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}";
  EXPECT_TRUE(whole(call + "}\n</tool_call>"));
  EXPECT_TRUE(whole(call));
  EXPECT_TRUE(whole(call + "}\n</tool_call> and <tool_ca"));
  EXPECT_FALSE(whole(call.substr(0, call.size() - 1)));
  EXPECT_FALSE(whole("nothing"));
}

// --- Calls that are written in another way than the model was shown. ---

constexpr const char* kCall =
    "{\n  \"name\": \"weather\",\n  \"arguments\": {\n    \"city\": \"Bonn\"\n  }\n}";
constexpr const char* kArguments = "{\n    \"city\": \"Bonn\"\n  }";

TEST(UntaggedCalls, OfKnownToolsAreCalls) {
  const std::string call = kCall;
  const Told told = {"", {{"weather", kArguments}}};
  for (const ToolFormat format :
       {ToolFormat::kHermes, ToolFormat::kTagged, ToolFormat::kLlama3, ToolFormat::kGeneric}) {
    for (const std::string& text : std::vector<std::string>{
             call, "\n" + call, "```json\n" + call + "\n```", "```json\n" + call + "\n```\n",
             "```\n" + call + "\n```", "<tools>\n" + call + "\n</tools>",
             "<function_call>" + call + "</function_call>", "[" + call + "]",
             "```json\n[\n" + call + "\n]\n```", "```xml\n<tool_call>\n" + call + "\n</tool_call>\n```",
             call + "\n\n"}) {
      Told read = Read(Form(format), text);
      if (text[0] == '\n') {
        EXPECT_EQ(std::exchange(read.content, ""), "\n");
      }
      EXPECT_EQ(read, told) << text;
    }
  }
}

TEST(UntaggedCalls, MayStandAfterText) {
  const std::string call = kCall;
  EXPECT_EQ(Read(Form(ToolFormat::kHermes), "Let me look.\n```json\n" + call + "\n```"),
            (Told{"Let me look.\n", {{"weather", kArguments}}}));
  EXPECT_EQ(Read(Form(ToolFormat::kHermes), "I call:\n" + call + "\nand wait."),
            (Told{"I call:\nand wait.", {{"weather", kArguments}}}));
  EXPECT_EQ(Read(Form(ToolFormat::kHermes),
                 "1. A:\n   ```json\n   {\"name\": \"now\", \"arguments\": {}}\n   ```\n2. B"),
            (Told{"1. A:\n   2. B", {{"now", "{}"}}}));
}

TEST(UntaggedCalls, MayBeSeveral) {
  const std::string now = "{\"name\": \"now\", \"arguments\": {}}";
  const Told two = {"", {{"now", "{}"}, {"now", "{}"}}};
  for (const std::string& text : std::vector<std::string>{
           now + "\n" + now, "```json\n" + now + "\n" + now + "\n```",
           "```json\n" + now + "\n```\n```json\n" + now + "\n```", "[" + now + ", " + now + "]",
           "<tool_call>\n" + now + "\n" + now + "\n</tool_call>",
           "<tool_call>\n" + now + "\n</tool_call>\n" + now}) {
    EXPECT_EQ(Read(Form(ToolFormat::kHermes), text), two) << text;
  }
  // Where one was allowed, the first is it.
  const Told one = {now, {{"now", "{}"}}};
  EXPECT_EQ(Read(Form(ToolFormat::kHermes, false), now + "\n" + now), one);
}

TEST(UntaggedCalls, HaveMembersThatSayNothing) {
  EXPECT_EQ(Read(Form(ToolFormat::kHermes),
                 R"({"type": "function", "id": "7", "name": "now", "parameters": {"a": "}"}, "why": "{"}!)"),
            (Told{"!", {{"now", R"({"a": "}"})"}}}));
}

// And nothing else is.
TEST(UntaggedCalls, OtherJsonIsText) {
  for (const std::string text : {R"({"name": "Bob", "arguments": {}})",
                                 R"({"name": "weather"})",
                                 R"({"name": "weather", "city": "Bonn"})",
                                 R"({"name": "weather", "arguments": "Bonn"})",
                                 R"({"city": "Bonn"})",
                                 "[1, 2]",
                                 "[link](x)",
                                 "{",
                                 "```",
                                 "```json",
                                 "```python\nprint({})\n```",
                                 "```json\n{\"a\": 1}\n```",
                                 R"(See {"name": "now", "arguments": {}} there)",
                                 "[\n  {\"name\": \"nobody\", \"arguments\": {}}]",
                                 "{\"steps\": [\n  {\"name\": \"now\", \"arguments\": {}}\n]}",
                                 "<function=other>",
                                 "<tools>none</tools>",
                                 R"({"arguments": {}, "name": "now"})",
                                 "`{` and `}`",
                                 "a < b"}) {
    EXPECT_EQ(Read(Form(ToolFormat::kHermes), text), (Told{text, {}})) << text;
  }
}

TEST(UntaggedCalls, TextIsHeldBackNoLongerThanItMayBeACall) {
  const auto given = [](const std::string& text) {
    ToolCallReader reader(Form(ToolFormat::kHermes));
    std::string content;
    for (const auto& part : reader.Push(text)) content += std::get<std::string>(part);
    return content;
  };
  for (const std::string text :
       {"```p", "```json\n{\"b", "{\"name\": \"x", "{ \"na\": ", "text {", "[1", "<b", "a\n  {"})
    EXPECT_EQ(given(text), text);
  for (const std::string text :
       {"```", "```js", "```json\n{\"na", "{\"name\": \"weath", "{", "[", "<tool", "<function=n"})
    EXPECT_EQ(given(text), "") << text;
  EXPECT_EQ(given("So:\n```json\n{"), "So:\n");
}

// --- Arguments between tags. ---

std::string Tagged(const std::string& arguments) {
  return "<tool_call>\n<function=weather>\n" + arguments + "</function>\n</tool_call>";
}

TEST(TaggedCalls, BecomeJsonByTheTypesOfTheSchema) {
  EXPECT_EQ(
      Read(Form(ToolFormat::kTagged),
           "I look.\n" + Tagged("<parameter=city>\nBonn \"am\n "
                                "Rhein\"\n</parameter>\n<parameter=at>\n18446744073709551616\n"
                                "</parameter>\n<parameter=exact>\nTrue\n</"
                                "parameter>\n<parameter=tags>\n[\"a\", \"</parameter>\"]\n</parameter>\n"
                                "<parameter=any>\n0.10\n</parameter>\n<parameter=note>\n12\n</"
                                "parameter>\n<parameter=kind>\na\n</parameter>\n"
                                "<parameter=other>\n{\"b\": null}\n</parameter>\n")),
      (Told{"I look.\n",
            {{"weather", R"({"city": "Bonn \"am\n Rhein\"", "at": 18446744073709551616, "exact": true, )"
                         R"("tags": ["a", "</parameter>"], "any": 0.10, "note": "12", "kind": "a", )"
                         R"("other": {"b": null}})"}}}));
}

// How arguments that models write in tags become JSON: with or without line breaks, cut short, of no or of
// the wrong type.
TEST(TaggedCalls, OddOnes) {
  const auto arguments = [](const std::string& text) {
    const Told told = Read(Form(ToolFormat::kTagged), text);
    EXPECT_EQ(told.content, "") << text;
    return told.calls.empty() ? "no call" : told.calls[0].second;
  };
  EXPECT_EQ(arguments(Tagged("")), "{}");
  EXPECT_EQ(arguments("<tool_call><function=weather><parameter=city>Bonn</parameter></function></tool_call>"),
            R"({"city": "Bonn"})");
  EXPECT_EQ(arguments("<function=weather>\n<parameter=city>\nBonn\n</parameter>\n</function>"),
            R"({"city": "Bonn"})");
  EXPECT_EQ(arguments(Tagged("<parameter=city>\n\n</parameter>\n")), R"({"city": ""})");
  EXPECT_EQ(arguments(Tagged("<parameter=city>\n\n a\n\n\n</parameter>\n")), R"({"city": "\n a\n\n"})");
  EXPECT_EQ(arguments(Tagged("<parameter=city>\nif (a < b) { </para }\n</parameter>\n")),
            R"({"city": "if (a < b) { </para }"})");
  EXPECT_EQ(arguments(Tagged("<parameter=at>\nsoon\n</parameter>\n")), R"({"at": "soon"})");
  EXPECT_EQ(arguments(Tagged("<parameter=tags>\n[broken\n</parameter>\n")), R"({"tags": "[broken"})");
  EXPECT_EQ(arguments(Tagged("<parameter=note>\nnull\n</parameter>\n")), R"({"note": null})");
  EXPECT_EQ(arguments(Tagged("<parameter=any>\n\"x\"\n</parameter>\n")), R"({"any": "\"x\""})");
  // JSON where tags were shown, and tags where JSON was.
  EXPECT_EQ(arguments("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"at\": 1}}\n</tool_call>"),
            R"({"at": 1})");
  EXPECT_EQ(Read(Form(ToolFormat::kHermes), Tagged("<parameter=at>\n1\n</parameter>\n")),
            (Told{"", {{"weather", R"({"at": 1})"}}}));
  // Two of them.
  EXPECT_EQ(Read(Form(ToolFormat::kTagged), Tagged("") + "\n" + Tagged("<parameter=at>\n2\n</parameter>\n"))
                .calls.size(),
            2U);
}

TEST(TaggedCalls, OneThatWasCutShortIsNotWhole) {
  const std::string whole =
      Tagged("<parameter=city>\nBonn\n</parameter>\n<parameter=at>\n12\n</parameter>\n");
  for (size_t n = whole.find(">\n<parameter"); n < whole.size(); ++n) {
    ToolCallReader reader(Form(ToolFormat::kTagged));
    std::string json;
    for (const auto& part : reader.ReadWhole(whole.substr(0, n))) {
      if (const auto* call = std::get_if<ToolCallPiece>(&part)) json += call->arguments;
    }
    const bool ended = n >= whole.find("</function>") + std::string("</function>").size();
    EXPECT_EQ(reader.has_whole_calls(), ended) << n;
    EXPECT_EQ(Json::accept(json), ended) << json;
  }
}

}  // namespace
}  // namespace longspec::chat

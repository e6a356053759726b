// SPDX-License-Identifier: Apache-2.0
//
// What fields of requests do to answers, over a tiny random model: each is honoured to the token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "gzip/testing/compressed.h"
#include "server/testing/served_app.h"

namespace longspec::server {
namespace {

using longspec::testing::EventsOf;
using longspec::testing::JsonOf;
using longspec::testing::ServedApp;
using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kEos = kTinyModelEos;

class RequestFields : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { app_ = std::make_unique<ServedApp>("request_fields_test"); }
  static void TearDownTestSuite() { app_.reset(); }

  static json Text(const json& prompt, json fields = json::object()) {
    json body = {{"prompt", prompt},  {"max_tokens", 12},      {"temperature", 0.8},
                 {"seed", 7},         {"return_tokens", true}, {"speculative", {{"drafters", "ppm"}}},
                 {"ignore_eos", true}};
    body.update(fields);
    return body;
  }
  // With and without guesses: the same.
  static json Completion(const json& fields, const std::string& prompt = "the sea the sea") {
    const json body = Text(prompt, fields);
    json plain = body;
    plain["speculative"] = false;
    const json answer = app_->Ok("/completion", body);
    EXPECT_EQ(app_->Ok("/completion", plain)["tokens"], answer["tokens"]) << fields;
    return answer;
  }
  static json Chat(const json& messages, json fields = json::object()) {
    json body = {{"messages", messages}, {"max_tokens", 12}, {"temperature", 0.8}, {"seed", 7}};
    body.update(fields);
    return body;
  }
  static json Message(const std::string& role, const std::string& content) {
    return {{"role", role}, {"content", content}};
  }

  static std::unique_ptr<ServedApp> app_;
};
std::unique_ptr<ServedApp> RequestFields::app_;

TEST_F(RequestFields, ALastMessageOfTheAssistantsIsGoneOnWith) {
  const json begun = json::array({Message("user", "count"), Message("assistant", "one, two ")});
  const std::string open = app_->Ok("/apply-template", Chat(begun))["prompt"];
  EXPECT_THAT(open, EndsWith("<|im_start|>assistant\none, two "));
  const json raw = {{"prompt", open}, {"max_tokens", 12}, {"temperature", 0.8}, {"seed", 7}};
  const std::string text = app_->Ok("/v1/completions", raw)["choices"][0]["text"];
  EXPECT_EQ(app_->Ok("/v1/chat/completions", Chat(begun))["choices"][0]["message"]["content"], text);
  EXPECT_EQ(app_->Ok("/v1/messages", Chat(begun))["content"][0]["text"], text);
  json input = Chat(begun, {{"input", begun}, {"max_output_tokens", 12}});
  input.erase("messages");
  input.erase("max_tokens");
  EXPECT_EQ(app_->Ok("/v1/responses", input)["output"][0]["content"][0]["text"], text);

  const auto prompt = [&](const json& fields) -> std::string {
    return app_->Ok("/apply-template", Chat(begun, fields))["prompt"];
  };
  EXPECT_EQ(prompt({{"continue_final_message", true}, {"add_generation_prompt", false}}), open);
  EXPECT_THAT(prompt({{"continue_final_message", false}}),
              EndsWith("one, two <|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_THAT(prompt({{"add_generation_prompt", false}}), EndsWith("one, two <|im_end|>\n"));
  EXPECT_THAT(app_->Refusal("/v1/chat/completions",
                            Chat(begun, {{"continue_final_message", true}, {"add_generation_prompt", true}})),
              HasSubstr("cannot both be true"));
}

TEST_F(RequestFields, APromptThatIsNotToBeTakenFromTheCacheIsEvaluated) {
  const auto ask = [&](const json& fields) {
    return app_->Ok("/completion", Text("a tree by the sea", fields));
  };
  const json first = ask(json::object());
  const auto n_prompt = first["timings"]["prompt_n"].get<int>() + first["timings"]["cache_n"].get<int>();
  for (const bool keep : {false, true, false}) {
    const json again = ask({{"cache_prompt", keep}});
    EXPECT_EQ(again["timings"]["cache_n"], keep ? n_prompt - 1 : 0);
    EXPECT_EQ(again["timings"]["prompt_n"], keep ? 1 : n_prompt);
    EXPECT_EQ(again["content"], first["content"]);
  }
  const json chat = Chat(json::array({Message("user", "count")}), {{"cache_prompt", false}});
  for (int i = 0; i < 2; ++i) {
    const json usage = app_->Ok("/v1/messages", chat)["usage"];
    EXPECT_EQ(usage["cache_read_input_tokens"], 0);
    EXPECT_EQ(app_->Ok("/v1/chat/completions", chat)["timings"]["cache_n"], 0);
  }
  EXPECT_THAT(app_->Refusal("/completion", Text("x", {{"cache_prompt", "no"}})), HasSubstr("cache_prompt"));
}

TEST_F(RequestFields, SeveralPromptsAreAnsweredAsEachAlone) {
  const std::vector<std::string> texts = {"the sea", "a tree", "the sea and a tree"};
  for (const int n : {1, 2}) {
    std::vector<std::string> alone;
    for (const std::string& text : texts) {
      const json answer = app_->Ok("/v1/completions", Text(text, {{"n", n}}));
      for (const json& choice : answer["choices"]) alone.push_back(choice["text"]);
    }
    const json together = app_->Ok("/v1/completions", Text(texts, {{"n", n}}));
    const json list = app_->Ok("/completion", Text(texts, {{"n_cmpl", n}}));
    std::map<int, std::string> streamed;
    const json streaming = Text(texts, {{"n", n}, {"stream", true}});
    for (const json& event : EventsOf(app_->Send("/v1/completions", streaming.dump()).body)) {
      if (!event.is_object()) continue;
      for (const json& choice : event["choices"])
        streamed[choice["index"]] += choice["text"].get<std::string>();
    }
    ASSERT_EQ(together["choices"].size(), alone.size());
    ASSERT_EQ(list.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together["choices"][i]["index"], i);
      EXPECT_EQ(together["choices"][i]["text"], alone[i]) << i;
      EXPECT_EQ(list[i]["content"], alone[i]) << i;
      EXPECT_EQ(list[i]["prompt"], texts[i / static_cast<size_t>(n)]);
      EXPECT_EQ(streamed[static_cast<int>(i)], alone[i]) << i;
    }
    EXPECT_EQ(together["usage"]["completion_tokens"], 12 * alone.size());
  }
  // One of them that does not fit is the whole request's.
  const HttpResponse refused =
      app_->Send("/v1/completions", Text({"the sea", std::string(5000, 'x')}).dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(JsonOf(refused)["error"]["type"], "exceed_context_size_error");
  EXPECT_GT(JsonOf(refused)["error"]["n_prompt_tokens"], 1024);
}

TEST_F(RequestFields, AListWithNumbersIsOnePrompt) {
  const json tokens = app_->Ok("/tokenize", {{"content", "the"}})["tokens"];
  json mixed = tokens;
  mixed.push_back(" sea");
  for (const char* target : {"/completion", "/v1/completions"}) {
    const json one = app_->Ok(target, Text(mixed));
    const json same = app_->Ok(target, Text("the sea"));
    EXPECT_EQ(one.value("content", json()), same.value("content", json()));
    EXPECT_EQ(one.value("choices", json()), same.value("choices", json()));
  }
}

TEST_F(RequestFields, LimitsUnderAllTheirNames) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    json chat = Chat(json::array({Message("user", "hi")}), {{"ignore_eos", true}});
    json text = Text("hi");
    for (json* body : {&chat, &text}) {
      body->erase("max_tokens");
      (*body)[name] = 3;
    }
    EXPECT_EQ(app_->Ok("/v1/chat/completions", chat)["usage"]["completion_tokens"], 3) << name;
    EXPECT_EQ(app_->Ok("/v1/completions", text)["usage"]["completion_tokens"], 3) << name;
    json nothing = chat;
    nothing[name] = 0;
    const json answer = app_->Ok("/v1/chat/completions", nothing);
    EXPECT_EQ(answer["choices"][0]["message"]["content"], "");
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  }
  // No limit but the context's.
  const json all = app_->Ok("/v1/completions", Text("hi", {{"max_tokens", -1}}));
  EXPECT_EQ(all["usage"]["total_tokens"], 1024);
}

TEST_F(RequestFields, StopTokensEndTheAnswer) {
  const json whole = Completion(json::object());
  const json& tokens = whole["tokens"];
  const int at = tokens[4];
  size_t first = 0;
  while (tokens[first] != at) ++first;
  const json cut = Completion({{"stop_token_ids", {at}}});
  EXPECT_EQ(cut["tokens"].size(), first + 1);
  EXPECT_EQ(cut["stop_type"], "eos");
  const std::string before = cut["content"];
  EXPECT_THAT(std::string(whole["content"]), ::testing::StartsWith(before));
  const std::string text = app_->Ok("/detokenize", {{"tokens", {at}}})["content"];
  EXPECT_EQ(Completion({{"stop_token_ids", {at}}, {"include_stop_str_in_output", true}})["content"],
            before + text);
  EXPECT_THAT(app_->Refusal("/completion", Text("a", {{"stop_token_ids", {99999}}})), HasSubstr("99999"));
}

TEST_F(RequestFields, AStopStringIsKeptWhereThatIsWished) {
  const std::string whole = Completion(json::object())["content"];
  ASSERT_GT(whole.size(), 6U);
  std::string stop;
  for (size_t at = 3; stop.empty(); ++at) {  // a character by itself
    if (static_cast<unsigned char>(whole[at]) < 0x80) stop = whole.substr(at, 1);
  }
  const size_t found = whole.find(stop);
  EXPECT_EQ(Completion({{"stop", stop}})["content"], whole.substr(0, found));
  EXPECT_EQ(Completion({{"stop", stop}, {"include_stop_str_in_output", true}})["content"],
            whole.substr(0, found) + stop);
}

TEST_F(RequestFields, AnAnswerLastsForSoManyTokens) {
  const json ends = {{"logit_bias", {{std::to_string(kEos), 100}}}, {"ignore_eos", false}};
  EXPECT_EQ(Completion(ends)["tokens"].size(), 1U);
  json longer = ends;
  longer["min_tokens"] = 5;
  const json answer = Completion(longer);
  ASSERT_EQ(answer["tokens"].size(), 6U);
  EXPECT_EQ(answer["tokens"][5], kEos);
  // Nor does a stop token or a stop string end it before.
  const json whole = Completion(json::object());
  const json stops = {{"stop_token_ids", whole["tokens"]}, {"min_tokens", 5}};
  EXPECT_EQ(Completion(stops)["tokens"].size(), 6U);
  const std::string first = std::string(whole["content"]).substr(0, 1);
  EXPECT_EQ(Completion({{"stop", first}})["content"], "");
  EXPECT_GE(Completion({{"stop", first}, {"min_tokens", 5}})["tokens"].size(), 6U);
}

TEST_F(RequestFields, TokensThatMayBeChosen) {
  const json allowed = {100, 101, 102, 103};
  const json answer = Completion({{"allowed_token_ids", allowed}});
  for (const json& token : answer["tokens"]) EXPECT_THAT(allowed, ::testing::Contains(token));
  const std::string whole = Completion(json::object())["content"];
  std::string word;
  for (size_t at = 2; word.empty(); ++at) {  // two characters by themselves
    if (static_cast<unsigned char>(whole[at]) < 0x80 && static_cast<unsigned char>(whole[at + 1]) < 0x80 &&
        whole[at] != ' ')
      word = whole.substr(at, 2);
  }
  const json without = Completion({{"bad_words", {word}}});
  EXPECT_THAT(std::string(without["content"]), Not(HasSubstr(word)));
  EXPECT_EQ(without["tokens"].size(), 12U);
  const json banned = Completion({{"logit_bias", {{word, -100}}}});
  const json of_word = app_->Ok("/tokenize", {{"content", word}});
  for (const json& token : of_word["tokens"]) EXPECT_THAT(banned["tokens"], Not(::testing::Contains(token)));
}

TEST_F(RequestFields, LongPromptsAreTruncatedToTheirEnd) {
  const json answer = app_->Ok("/completion", Text("abcdefgh", {{"truncate_prompt_tokens", 3}}));
  EXPECT_EQ(answer["tokens_evaluated"], 3);
  EXPECT_THAT(std::string("abcdefgh"), EndsWith(std::string(answer["prompt"])));
  const json fitted = app_->Ok(
      "/completion", Text(std::string(5000, 'x'), {{"truncate_prompt_tokens", -1}, {"max_tokens", 20}}));
  EXPECT_EQ(fitted["tokens_evaluated"], 1024 - 20);
  EXPECT_EQ(fitted["tokens_predicted"], 20);
}

TEST_F(RequestFields, AnEchoIsThePromptBeforeTheAnswer) {
  const std::string text = app_->Ok("/v1/completions", Text("the sea"))["choices"][0]["text"];
  EXPECT_EQ(app_->Ok("/v1/completions", Text("the sea", {{"echo", true}}))["choices"][0]["text"],
            "the sea" + text);
  EXPECT_EQ(
      app_->Ok("/v1/completions", Text("the sea", {{"echo", true}, {"max_tokens", 0}}))["choices"][0]["text"],
      "the sea");
}

// A prompt whose form says what is going to be written, mostly.
TEST_F(RequestFields, TheWindowOfANextEditIsAPrediction) {
  const std::string window = "<|file_sep|>current/a.c\nint a;\nint b;\n";
  const auto drafters = [](const std::string& prompt, json fields = json::object()) {
    fields["speculative"] = fields.value("speculative", json::object());
    std::vector<std::string> names;
    const json answer = app_->Ok("/v1/completions", Text(prompt, fields));
    for (const json& one : answer["speculation"]["by_drafter"]) names.push_back(one["name"]);
    return names;
  };
  const std::string prompt = "<|file_sep|>original/a.c\nint a;\n" + window + "<|file_sep|>updated/a.c\n";
  EXPECT_THAT(drafters(prompt), ::testing::Contains("prediction"));
  EXPECT_THAT(drafters(window), Not(::testing::Contains("prediction")));
  // Whoever names drafters has those.
  EXPECT_THAT(drafters(prompt, {{"speculative", {{"drafters", "ppm"}}}}),
              Not(::testing::Contains("prediction")));
  const std::vector<json> chat = {
      Message("user", "<|editable_region_start|>\nint a;\n<|editable_region_end|>\n")};
  const json answer = app_->Ok("/v1/chat/completions", Chat(chat));
  EXPECT_THAT(answer["speculation"].dump(), HasSubstr("prediction"));
}

// As programs that measure models ask for it: the chance of each token behind those before it.
TEST_F(RequestFields, AnEchoWithChancesTellsThoseOfThePrompt) {
  const std::string prompt = "the sea and a tree by the sea";
  const json tokens = app_->Ok("/tokenize", {{"content", prompt}})["tokens"];
  const json fields = {{"echo", true}, {"logprobs", 2}, {"max_tokens", 3}};
  const json body = Text(prompt, fields);
  const json answer = app_->Ok("/v1/completions", body);
  const json& choice = answer["choices"][0];
  const json& chances = choice["logprobs"]["token_logprobs"];
  ASSERT_EQ(chances.size(), tokens.size() + 3);
  EXPECT_TRUE(chances[0].is_null());
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].is_null());
  for (size_t i = 1; i < tokens.size(); ++i) {
    const json before = std::vector<json>(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i));
    const json alone = app_->Ok(
        "/v1/completions",
        Text(before, {{"logprobs", 2}, {"max_tokens", 1}, {"allowed_token_ids", json::array({tokens[i]})}}));
    const json& expected = alone["choices"][0]["logprobs"];
    EXPECT_EQ(chances[i], expected["token_logprobs"][0]) << i;
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][i], expected["top_logprobs"][0]) << i;
  }
  const json without = app_->Ok("/v1/completions", Text(prompt, {{"logprobs", 2}, {"max_tokens", 3}}));
  const std::string said = without["choices"][0]["text"];
  EXPECT_EQ(choice["text"], prompt + said);
  std::string joined;
  for (const std::string text : choice["logprobs"]["tokens"]) joined += text;
  EXPECT_EQ(joined, choice["text"]);
  const std::string last = choice["logprobs"]["tokens"].back();
  EXPECT_EQ(choice["logprobs"]["text_offset"].back(), joined.size() - last.size());
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens.size());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
  // Without guesses, as a stream, of several prompts: the same.
  json plain = body;
  plain["speculative"] = false;
  EXPECT_EQ(app_->Ok("/v1/completions", plain)["choices"], answer["choices"]);
  json stream = body;
  stream["stream"] = true;
  json streamed = json::array();
  std::string text;
  for (const json& event : EventsOf(app_->Send("/v1/completions", stream.dump()).body)) {
    if (!event.is_object()) continue;
    text += event["choices"][0]["text"];
    const json& part = event["choices"][0]["logprobs"];
    if (part.is_object())
      streamed.insert(streamed.end(), part["token_logprobs"].begin(), part["token_logprobs"].end());
  }
  EXPECT_EQ(streamed, chances);
  EXPECT_EQ(text, choice["text"]);
  json two = body;
  two["prompt"] = json::array({tokens, json::array({tokens[0]})});
  two["max_tokens"] = 0;
  const json both = app_->Ok("/v1/completions", two);
  EXPECT_EQ(both["choices"][0]["text"], prompt);
  EXPECT_EQ(both["choices"][1]["logprobs"]["token_logprobs"], json::array({nullptr}));
}

TEST_F(RequestFields, FormsOfAnswersUnderOtherServersNames) {
  if (!HasGrammars()) GTEST_SKIP();
  for (const json& fields : std::vector<json>{{{"regex", "(yes|no)"}},
                                              {{"guided_choice", {"yes", "no"}}},
                                              {{"ebnf", "root ::= \"yes\" | \"no\""}},
                                              {{"structured_outputs", {{"choice", {"yes", "no"}}}}},
                                              {{"structured_outputs", {{"regex", "yes|no"}}}}}) {
    json request = fields;
    request["ignore_eos"] = false;
    EXPECT_THAT(std::string(Completion(request)["content"]), ::testing::AnyOf("yes", "no")) << fields;
    // Rules of tokens hold besides.
    request["bad_words"] = {"n"};
    EXPECT_EQ(Completion(request)["content"], "yes") << fields;
  }
  EXPECT_THAT(app_->Refusal("/completion", Text("a", {{"regex", "("}, {"ignore_eos", false}})),
              HasSubstr("regex"));
}

TEST_F(RequestFields, HalfACharacterIsAReplacement) {
  const HttpResponse answer = app_->Send("/completion", R"({"prompt": "a\ud83d", "n_predict": 0})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(JsonOf(answer)["prompt"], "a\xEF\xBF\xBD");
}

TEST_F(RequestFields, BodiesMayComeCompressed) {
  const std::string body = Text("the sea").dump();
  const std::string coded = longspec::testing::Compressed(body, /*gzip=*/false);
  const HttpResponse answer = app_->Send("/v1/completions", coded, {{"Content-Encoding", "deflate"}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(JsonOf(answer)["choices"], app_->Ok("/v1/completions", Text("the sea"))["choices"]);
  const HttpResponse refused = app_->Send("/v1/completions", coded, {{"Content-Encoding", "br"}});
  EXPECT_EQ(refused.status, 415);
  EXPECT_THAT(refused.headers, ::testing::Contains(std::pair<std::string, std::string>(
                                   "Accept-Encoding", "gzip, deflate, identity")));
}

}  // namespace
}  // namespace longspec::server

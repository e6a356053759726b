// SPDX-License-Identifier: Apache-2.0
//
// Answers in channels are told apart into thoughts, words and calls, however they are cut.
#include "chat/channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "chat/answer_reader.h"

namespace longspec::chat {
namespace {

struct Read {
  std::string thought, said;
  std::vector<std::pair<std::string, std::string>> calls = {};
  bool whole_calls = false;
  bool operator==(const Read&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Read& read) {
  out << "{" << read.thought << "|" << read.said;
  for (const auto& [name, arguments] : read.calls) out << "|" << name << arguments;
  return out << (read.whole_calls ? "|whole}" : "}");
}

std::shared_ptr<const CallForm> Tools(bool strict = false) {
  CallForm form{.format = ToolFormat::kHarmony};
  form.tools.push_back({.name = "f", .strict = strict});
  form.tools.push_back({.name = "g"});
  return std::make_shared<const CallForm>(std::move(form));
}

Read ReadAs(const ReadingForm& form, const std::string& text, size_t piece) {
  AnswerReader reader(form);
  Read read;
  const auto take = [&](const AnswerParts& parts) {
    for (const auto& part : parts) {
      if (const auto* call = std::get_if<ToolCallPiece>(&part)) {
        if (!call->name.empty()) read.calls.emplace_back(call->name, "");
        EXPECT_EQ(call->index + 1, static_cast<int>(read.calls.size()));
        read.calls.back().second += call->arguments;
      } else if (const auto* thought = std::get_if<Thought>(&part)) {
        EXPECT_FALSE(thought->text.empty());
        read.thought += thought->text;
      } else {
        EXPECT_FALSE(std::get<std::string>(part).empty());
        read.said += std::get<std::string>(part);
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) take(reader.Push(text.substr(at, piece)));
  take(reader.Finish());
  read.whole_calls = reader.has_whole_calls();
  return read;
}

// However the text is cut.
Read ReadOf(const std::string& text, const ChannelForm& channels = {},
            const std::shared_ptr<const CallForm>& calls = Tools()) {
  const ReadingForm form = {.channels = channels, .calls = calls};
  const Read whole = ReadAs(form, text, text.size() + 1);
  for (const size_t piece : {1, 2, 3, 5, 11})
    EXPECT_EQ(ReadAs(form, text, piece), whole) << text << " by " << piece;
  return whole;
}

TEST(Channels, TellThoughtsFromWhatIsSaid) {
  EXPECT_EQ(ReadOf("<|channel|>analysis<|message|>We "
                   "add.<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = 4."),
            (Read{"We add.", "2 + 2 = 4."}));
  EXPECT_EQ(ReadOf("<|channel|>final<|message|> Hi\n"), (Read{"", " Hi\n"}));
  EXPECT_EQ(ReadOf("<|start|>assistant<|channel|>final<|message|>Hi<|return|>"), (Read{"", "Hi"}));
  EXPECT_EQ(
      ReadOf(
          "<|channel|>analysis<|message|>\n a \n b\n<|end|><|start|>assistant<|channel|>analysis<|message|>c"
          "<|end|>\n<|start|>assistant<|channel|>final<|message|>d"),
      (Read{"a \n b\nc", "d"}));
  EXPECT_EQ(ReadOf("<|channel|>commentary to=assistant<|channel|>analysis<|message|>a"), (Read{"a", ""}));
  EXPECT_EQ(ReadOf("<|channel|>final <|constrain|>json<|message|>{}"), (Read{"", "{}"}));
  // A preamble is for the user, too.
  EXPECT_EQ(
      ReadOf(
          "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>So."),
      (Read{"", "I look.\nSo."}));
}

TEST(Channels, WhatHasNoneIsSaid) {
  for (const char* text : {"Hi", "", "<b>", "to the point", "<|chan", "a <|channel|> b", "total"})
    EXPECT_EQ(ReadOf(text), (Read{"", text}));
  EXPECT_EQ(ReadOf("<|channel|>" + std::string(600, 'x')).said, "<|channel|>" + std::string(600, 'x'));
  EXPECT_EQ(ReadOf("<|channel|>final<|message|>a<|end|>b"), (Read{"", "a\nb"}));
}

TEST(Channels, MayBeCutShort) {
  EXPECT_EQ(ReadOf("<|channel|>analysis<|message|>so <|en"), (Read{"so <|en", ""}));
  EXPECT_EQ(ReadOf("<|channel|>analysis"), (Read{}));
  EXPECT_EQ(ReadOf("<|channel|>analysis<|message|>a<|end|><|start|>assist"), (Read{"a", ""}));
}

TEST(Channels, TheLastMessageMayBeGoneOnWith) {
  EXPECT_EQ(ReadOf(" and more.", {.within = true}), (Read{"", " and more."}));
}

TEST(Channels, ThoughtsGoWhereTheyShould) {
  const std::string text =
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b";
  EXPECT_EQ(ReadOf(text, {.shown = false}), (Read{"", "b"}));
  EXPECT_EQ(ReadOf(text, {.apart = false}), (Read{"", "<|channel|>analysis<|message|>a<|end|>\nb"}));
}

TEST(Channels, CallsAreThoseOfFunctions) {
  const std::string thought = "<|channel|>analysis<|message|>look<|end|><|start|>assistant";
  const std::string arguments = R"({"city": "Bo<nn", "n": [1, {}]})";
  for (const char* header :
       {"<|channel|>commentary to=functions.f <|constrain|>json", "<|channel|>commentary to=functions.f",
        "<|channel|>commentary to=functions.f<|constrain|>json", " to=functions.f<|channel|>commentary json",
        "<|channel|>analysis to=functions.f code"}) {
    EXPECT_EQ(ReadOf(thought + header + "<|message|>" + arguments),
              (Read{"look", "", {{"f", arguments}}, true}));
    EXPECT_EQ(ReadOf(header + ("<|message|> " + arguments) + "<|call|>"),
              (Read{"", "", {{"f", arguments}}, true}));
  }
  EXPECT_EQ(ReadOf("<|channel|>commentary to=functions.g<|message|>"), (Read{"", "", {{"g", "{}"}}, true}));
  EXPECT_EQ(ReadOf("<|channel|>commentary to=functions.f<|message|>{\"a\": \"b"),
            (Read{"", "", {{"f", "{\"a\": \"b"}}, false}));
  const std::string two = "<|channel|>commentary to=functions.f<|message|>{}<|end|><|start|>assistant";
  EXPECT_EQ(ReadOf(two + " to=functions.g<|channel|>commentary json<|message|>{\"a\": 1}"),
            (Read{"", "", {{"f", "{}"}, {"g", "{\"a\": 1}"}}, true}));
}

TEST(Channels, NothingElseIsACall) {
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
  EXPECT_EQ(ReadOf(call, {}, nullptr), (Read{"", "{}"}));
  EXPECT_EQ(ReadOf("<|channel|>analysis to=browser.search<|message|>{}"), (Read{"{}", ""}));
  EXPECT_EQ(ReadOf("<|channel|>commentary to=python<|message|>1"), (Read{"", "1"}));
}

// Of a strict function only those are calls that the grammar holds.
TEST(Channels, CallsOfAStrictFunctionAreWhereTheyAreHeld) {
  const Read call = {"", "", {{"f", "{}"}}, true};
  EXPECT_EQ(ReadOf("<|channel|>commentary to=functions.f<|message|>{}", {}, Tools(true)), call);
  EXPECT_EQ(
      ReadOf("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}", {}, Tools(true)),
      call);
  EXPECT_EQ(ReadOf(" to=functions.f<|channel|>commentary json<|message|>{}", {}, Tools(true)),
            (Read{"", "{}"}));
  EXPECT_EQ(ReadOf("<|channel|>analysis to=functions.f<|message|>{}", {}, Tools(true)), (Read{"{}", ""}));
}

TEST(Channels, AreReadAlikeHoweverTheyAreCut) {
  constexpr const char* kParts[] = {"<|channel|>", "<|message|>", "<|start|>", "assistant",
                                    "<|end|>",     "analysis",    "final",     " to=functions.f",
                                    "{\"a\"",      ": 1}",        " ",         "\n",
                                    "<|",          "é",           "word"};
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint32_t n = random() % 16; n > 0; --n) text += kParts[random() % std::size(kParts)];
    ReadOf(text, {.shown = random() % 4 != 0, .apart = random() % 4 != 0, .within = random() % 4 == 0});
  }
}

TEST(Channels, AreNoPartOfAMessagesContent) {
  const std::string text =
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b";
  EXPECT_EQ(ContentOf({.tools = ToolFormat::kHarmony}, text), "b");
  EXPECT_EQ(ContentOf({}, text), text);
}

TEST(Channels, AreWhatATemplateShows) {
  EXPECT_TRUE(ShowsChannels("{{ '<|start|>assistant<|channel|>final<|message|>' }}"));
  EXPECT_FALSE(ShowsChannels("{{ '<|im_start|>assistant' }}"));
}

}  // namespace
}  // namespace longspec::chat

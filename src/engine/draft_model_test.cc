// SPDX-License-Identifier: Apache-2.0
//
// Draft models through the facade: the same text, refusals before anything is generated, notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/testing/opens.h"
#include "decode/testing/samplings.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/option_use.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_text/testing/priors.h"
#include "engine/cache_file.h"
#include "engine/calibration_cache.h"
#include "engine/drafter_memories.h"
#include "engine/gguf_tokenizer.h"
#include "formats/draft_names.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using testing::Opens;

class DraftModelTest : public ::testing::Test {
 protected:
  DraftModelTest() {
    const testing::TinyTarget tiny;
    draft_ = testing::WriteDraftFolder(folder_, tiny.spec, testing::RandomDraft(tiny.spec, 64, 2),
                                       ", \"longspec_trained_positions\": 40");
    EXPECT_TRUE(WriteTinyModel({}, folder_.File("target.gguf")).ok());
    ModelOptions options;
    options.path = folder_.File("target.gguf");
    options.threads = 1;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
  }

  static GenerationRequest Request(const std::string& type, const std::string& draft) {
    GenerationRequest request;
    request.tokens = {65, 70, 80, 90};
    request.n_predict = 50;
    request.ignore_eos = true;
    request.sampling.temperature = 0.7F;
    request.sampling.seed = 5;
    request.speculation = OnlyRead({.draft_model = draft}, type);
    return request;
  }

  Result<GenerationResult> Generate(const std::string& type, const std::string& draft) {
    const GenerationRequest request = Request(type, draft);
    auto session = engine_->NewSession();
    return engine_->Generate(**session, request);
  }

  // Drafts that choose among likely_ alone, and a prompt of these, which are likely to be sampled: else a
  // random draft would hardly ever be right.
  std::string WriteLikelyEagle() const {
    const testing::TinyTarget tiny;
    const testing::EagleShape shape;
    return testing::WriteEagle(folder_, "eagle", tiny.spec, shape, testing::RandomEagle(tiny.spec, shape, 4),
                               likely_);
  }
  std::string WriteLikelyOwnKeys() const {
    const testing::TinyTarget tiny;
    const testing::DraftTensors draft = testing::RandomDraft(tiny.spec, 64, 2);
    const std::string folder =
        testing::WriteDraftFolder(folder_, tiny.spec, draft, ", \"longspec_own_keys\": true");
    testing::WriteDraft(draft, folder + "/model.safetensors", "", DType::kF32, likely_);
    return folder;
  }
  GenerationRequest LikelyRequest(const std::string& type, const std::string& draft) const {
    GenerationRequest request = Request(type, draft);
    for (size_t i = 0; i < 300; ++i)
      request.tokens.push_back(static_cast<int32_t>(likely_[i % likely_.size()]));
    for (const int64_t t : likely_) request.sampling.logit_bias.emplace_back(static_cast<int32_t>(t), 9.0F);
    request.speculation.policy = type == "none" ? "" : "fixed";
    return request;
  }

  // By kind.
  std::map<std::string, std::string> WriteDraftsThatReadStates() const {
    const testing::TinyTarget tiny;
    const testing::OwnHeads heads;
    return {{"exit",
             testing::WriteBlockDraft(folder_, "exit", tiny.spec, testing::RandomExit(tiny.spec, heads, 3),
                                      heads, {}, ", \"longspec_exit_layer\": 0")},
            {"beagle", testing::WriteBlockDraft(folder_, "beagle", tiny.spec,
                                                testing::RandomBeagle(tiny.spec, heads, 3))},
            {"medusa",
             testing::WriteBlockDraft(folder_, "medusa", tiny.spec, testing::RandomMedusa(tiny.spec, 4, 3))}};
  }

  // In the folder where the engine looks; returns its path.
  std::string WritePrior(const std::string& name) const {
    std::filesystem::create_directories(folder_.File("priors"));
    const std::string path = folder_.File("priors/" + name);
    const auto file = *GgufFile::Open(folder_.File("target.gguf"));
    const auto source = PriorsOf(*file, *TokenizerSpecFromGguf(*file), 384);
    testing::WritePrior(path, testing::RandomTokens(300, 8, 250), 384, source.tokenizer);
    return path;
  }

  const std::vector<int64_t> likely_ = {200, 201, 202, 203, 204, 205, 206, 207};
  testing::Folder folder_;
  std::string draft_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(DraftModelTest, TheTextIsThatOfPlainDecoding) {
  const auto plain = Generate("none", "");
  ASSERT_TRUE(plain.ok());
  for (int round = 0; round < 2; ++round) {
    const auto longspec = Generate("longspec", draft_);
    ASSERT_TRUE(longspec.ok()) << longspec.status().message();
    EXPECT_EQ(longspec->tokens, plain->tokens);
    EXPECT_EQ(longspec->speculative.type, "longspec");
    EXPECT_GT(longspec->timings.draft_n, 0);
    EXPECT_THAT(longspec->speculative.notice, HasSubstr("trained for 40 positions"));
    const auto lm = Generate("lm", folder_.File("target.gguf"));
    ASSERT_TRUE(lm.ok()) << lm.status().message();
    EXPECT_EQ(lm->tokens, plain->tokens);
    EXPECT_GT(lm->timings.draft_n_accepted, 0);
    EXPECT_EQ(lm->speculative.notice, "");
  }
}

// Qwen's architectures: biases, norms of the heads, and rotary pairs half a head apart.
TEST(DraftModelArchitectures, TheTextIsThatOfPlainDecoding) {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    TinyModelOptions options;
    options.architecture = architecture;
    const testing::TinyTarget tiny(options);
    const testing::Folder folder;
    const std::string draft =
        testing::WriteDraftFolder(folder, tiny.spec, testing::RandomDraft(tiny.spec, 64, 2), "");
    const std::string target = folder.File("target.gguf");
    ASSERT_TRUE(WriteTinyModel(options, target).ok());
    const auto engine = Engine::Load({.path = target, .threads = 2});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    GenerationRequest request;
    for (int i = 0; i < 8; ++i) request.tokens.insert(request.tokens.end(), {65, 70, 80, 90, 31 + i % 2});
    request.n_predict = 40;
    request.ignore_eos = true;
    request.sampling.temperature = 0.7F;
    request.sampling.top_k = 3;
    request.sampling.seed = 5;
    request.speculation.type = "none";
    const auto plain = (*engine)->Generate(**(*engine)->NewSession(), request);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    for (const auto& [type, model] : std::map<std::string, std::string>{
             {"longspec", draft}, {"lm", target}, {"magicdec", ""}, {"recycling", ""}, {"suffix", ""}}) {
      SCOPED_TRACE(std::string(architecture) + " " + type);
      request.speculation = {.type = type, .policy = "fixed", .draft_model = model};
      const auto drafted = (*engine)->Generate(**(*engine)->NewSession(), request);
      ASSERT_TRUE(drafted.ok()) << drafted.status().message();
      EXPECT_EQ(drafted->tokens, plain->tokens);
      EXPECT_GT(drafted->timings.draft_n_accepted, 0);
    }
  }
}

// Drafts that read hidden states: in sessions that go on, that begin alike, and that are forked.
TEST_F(DraftModelTest, EagleDraftsLeaveTheTextAsItIs) {
  const testing::TinyTarget tiny;
  for (const bool eagle3 : {false, true}) {
    const testing::EagleShape shape = {.eagle3 = eagle3};
    const std::string draft = testing::WriteEagle(
        folder_, eagle3 ? "three" : "one", tiny.spec, shape, testing::RandomEagle(tiny.spec, shape, 4), {},
        R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]})");
    GenerationRequest request;
    for (int i = 0; i < 80; ++i) request.tokens.insert(request.tokens.end(), {65, 70, 80, 90, 31 + i % 7});
    request.n_predict = 40;
    request.ignore_eos = true;
    request.sampling.temperature = 0.7F;
    request.sampling.top_k = 2;
    request.sampling.seed = 5;
    std::map<std::string, std::vector<std::vector<int32_t>>> texts;
    std::string notices;
    for (const std::string type : {"none", eagle3 ? "eagle3" : "eagle"}) {
      // Each type has an engine of its own: what one has computed the other must compute too.
      auto engine = Engine::Load({.path = folder_.File("target.gguf"), .threads = 2});
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      request.speculation = OnlyRead({.policy = "fixed", .draft_model = draft}, type);
      auto first = (*engine)->NewSession();
      for (int turn = 0; turn < 3; ++turn) {
        auto again = (*engine)->NewSession();
        auto fork = (*engine)->Fork(**first);
        for (Session* session : {first->get(), again->get(), fork->get()}) {
          GenerationRequest next = request;
          if (turn > 0) next.tokens.push_back(100 + turn);
          const auto result = (*engine)->Generate(*session, next);
          ASSERT_TRUE(result.ok()) << result.status().message();
          texts[type].push_back(result->tokens);
          notices += result->speculative.notice;
          if (type != "none") {
            EXPECT_GT(result->timings.draft_n, 0);
          }
        }
      }
    }
    EXPECT_EQ(texts["none"], texts[eagle3 ? "eagle3" : "eagle"]);
    EXPECT_EQ(notices, "");
  }
}

// The same of the other kinds that read them, alone and as one of several.
TEST_F(DraftModelTest, DraftsThatReadStatesLeaveTheTextAsItIs) {
  const std::map<std::string, std::string> drafts = WriteDraftsThatReadStates();
  const auto answers = [&](const std::string& type, const std::string& draft) {
    // An engine of its own: what one has computed the other must compute too.
    auto engine = Engine::Load({.path = folder_.File("target.gguf"), .threads = 2});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    const auto session = (*engine)->NewSession();
    GenerationRequest request = Request(type, draft);
    request.speculation.policy = type == "auto" || type == "none" ? "" : "fixed";
    std::vector<std::vector<int32_t>> texts;
    for (int turn = 0; turn < 3; ++turn) {
      const auto result = (*engine)->Generate(**session, request);
      EXPECT_TRUE(result.ok()) << result.status().message();
      if (!result.ok()) break;
      EXPECT_EQ(result->speculative.notice, "") << turn;
      if (type != "none" && type != "auto") {
        EXPECT_GT(result->timings.draft_n, 0);
      }
      texts.push_back(result->tokens);
      request.tokens.insert(request.tokens.end(), result->tokens.begin(), result->tokens.end());
      request.tokens.push_back(70 + turn);
    }
    return texts;
  };
  const auto plain = answers("none", "");
  for (const auto& [kind, draft] : drafts) {
    for (const std::string& type : {kind, std::string("auto"), "ppm," + kind}) {
      SCOPED_TRACE(kind + " as " + type);
      EXPECT_EQ(answers(type, draft), plain);
    }
  }
}

// An engine that starts goes on where the one before it was: a draft that was not worth its time is not tried
// again at once.
TEST_F(DraftModelTest, WhatWasLearnedOfADraftOutlivesTheEngine) {
  setenv("XDG_CACHE_HOME", folder_.File("cache").c_str(), 1);
  const ModelOptions options = {.path = folder_.File("target.gguf"), .threads = 1};
  std::string key;
  size_t eagle = 0;  // its number among the drafters
  // How many guesses of EAGLE are verified in an answer of a new engine. Only looks at the clock take time.
  const auto guesses_of_eagle = [&](double look_ms) {
    const SimulatedClock clock(look_ms);
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    key = CalibrationKey((*engine)->info(), options);
    GenerationRequest request = Request("auto", folder_.File("eagle"));
    request.n_predict = 200;
    const auto result = (*engine)->Generate(**(*engine)->NewSession(), request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    const std::vector<AcceptanceCounts>& counts = result->speculative.by_drafter;
    eagle = static_cast<size_t>(std::ranges::find(counts, "eagle", &AcceptanceCounts::name) - counts.begin());
    return eagle < counts.size() ? counts[eagle].drafted : -1;
  };
  const auto learned = [&] {
    auto read = ReadDrafterMemories(CacheFolder(), key);
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() && read->size() == 1 ? std::move(*read) : DrafterMemories{{"none of it", {}}};
  };
  WriteLikelyEagle();
  // It takes time, so what that gains is learned.
  guesses_of_eagle(1);
  DrafterMemories known = learned();
  EXPECT_THAT(known.begin()->first, HasSubstr(folder_.File("eagle")));
  // As if each of its levels had taken so long and added so many tokens, and a token takes 1 ms.
  const auto believe = [&](double level_ms, int added) {
    AskingGain asking;
    asking.Took(eagle, 1000);  // it takes time
    for (int i = 0; i < 100; ++i) asking.Learn(0.1 + 0.03 * i, std::vector<int>{0, added}, level_ms);
    asking.Levels(0, 1, 1);
    known.begin()->second.asking = asking;
    EXPECT_TRUE(WriteDrafterMemories(CacheFolder(), key, known).ok());
    return asking.level_ms();
  };
  const double useless_ms = believe(1000, 0);
  EXPECT_EQ(guesses_of_eagle(0), 0);
  EXPECT_EQ(learned().begin()->second.asking.level_ms(), useless_ms);  // it was not asked
  const double useful_ms = believe(0.01, 2);
  EXPECT_GT(guesses_of_eagle(0), 0);
  EXPECT_NE(learned().begin()->second.asking.level_ms(), useful_ms);
  // Of what nothing is known is tried.
  believe(1000, 0);
  std::filesystem::remove_all(folder_.File("cache"));
  EXPECT_GT(guesses_of_eagle(1), 0);
  EXPECT_NE(learned().begin()->second.asking.level_ms(), useless_ms);
  unsetenv("XDG_CACHE_HOME");
}

// A program that is killed does not end its engine.
TEST_F(DraftModelTest, WhatWasLearnedOfADraftIsKeptOnTheWay) {
  const SimulatedClock clock(1);  // so that the draft takes time on any machine
  setenv("XDG_CACHE_HOME", folder_.File("cache").c_str(), 1);
  const ModelOptions options = {.path = folder_.File("target.gguf"), .threads = 1};
  WriteLikelyEagle();
  auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const std::string key = CalibrationKey((*engine)->info(), options);
  GenerationRequest request = Request("auto", folder_.File("eagle"));
  request.n_predict = 200;
  const auto answer = [&] {
    EXPECT_TRUE((*engine)->Generate(**(*engine)->NewSession(), request).ok());
    return ReadDrafterMemories(CacheFolder(), key).ok();
  };
  EXPECT_FALSE(answer());  // nothing was known when it began
  EXPECT_TRUE(answer());
  // In a batch too: the scheduler asks when it is made, and for each answer.
  std::filesystem::remove_all(folder_.File("cache"));
  const auto scheduler = (*engine)->NewScheduler({});
  ASSERT_TRUE(scheduler.ok());
  request.tokens = {65, 66, 67, 68};
  ASSERT_TRUE((*scheduler)->Submit({.request = std::make_shared<const GenerationRequest>(request)}).ok());
  auto more = (*scheduler)->RunRound();
  while (more.ok() && *more) more = (*scheduler)->RunRound();
  EXPECT_TRUE(more.ok()) << more.status().message();
  EXPECT_TRUE(ReadDrafterMemories(CacheFolder(), key).ok());
  unsetenv("XDG_CACHE_HOME");
}

// A conversation as a server sees it, a new session for each turn: what was read in earlier turns, also by
// other sequences with the same beginning, is all there. So each turn is drafted as by one that reads it
// whole.
TEST_F(DraftModelTest, DraftsOfLaterTurnsLackNothing) {
  const testing::TinyTarget tiny;
  const testing::OwnHeads heads;
  const auto write = [&](const char* kind, const testing::DraftTensors& tensors, const char* more = "") {
    return testing::WriteBlockDraft(folder_, kind, tiny.spec, tensors, heads, likely_, more);
  };
  const std::map<std::string, std::string> drafts = {
      {"eagle", WriteLikelyEagle()},
      {"exit", write("exit", testing::RandomExit(tiny.spec, heads, 3, /*feature=*/true),
                     ", \"longspec_exit_layer\": 0")},
      {"beagle", write("beagle", testing::RandomBeagle(tiny.spec, heads, 3))},
      {"longspec", WriteLikelyOwnKeys()}};
  for (const auto& [kind, draft] : drafts) {
    SCOPED_TRACE(kind);
    GenerationRequest request = LikelyRequest(kind, draft);
    request.speculation.tree = "4,4,4";
    const auto new_engine = [&] {
      return *Engine::Load({.path = folder_.File("target.gguf"), .threads = 1});
    };
    const auto answer = [&](Engine& engine) {
      auto result = engine.Generate(**engine.NewSession(), request);
      EXPECT_TRUE(result.ok()) << result.status().message();
      return std::move(*result);
    };
    const auto engine = new_engine();
    int64_t accepted = 0;
    for (int turn = 0; turn < 4; ++turn) {
      const GenerationResult fresh = answer(*new_engine());
      for (int again = 0; again < 2; ++again) {  // the second knows the whole prompt
        const GenerationResult result = answer(*engine);
        EXPECT_EQ(result.tokens, fresh.tokens);
        EXPECT_EQ(result.speculative.accepted_at, fresh.speculative.accepted_at) << turn << " " << again;
        EXPECT_EQ(result.timings.cache_n > 0, turn + again > 0);
      }
      accepted += fresh.timings.draft_n_accepted;
      // After one turn another question: what is shared ends in the middle of a chunk.
      if (turn == 1) request.tokens.resize(request.tokens.size() - 20);
      request.tokens.insert(request.tokens.end(), fresh.tokens.begin(), fresh.tokens.begin() + 30);
      request.tokens.push_back(70 + turn);
    }
    EXPECT_GT(accepted, 30);
  }
}

// Nor do those of forks where no beginnings are kept.
TEST_F(DraftModelTest, DraftsOfForksLackNothing) {
  const std::map<std::string, std::string> drafts = {{"eagle", WriteLikelyEagle()},
                                                     {"longspec", WriteLikelyOwnKeys()}};
  for (const auto& [kind, draft] : drafts) {
    SCOPED_TRACE(kind);
    GenerationRequest request = LikelyRequest(kind, draft);
    const auto engine =
        *Engine::Load({.path = folder_.File("target.gguf"), .threads = 1, .cache_prompt = false});
    const auto answer = [&](Session& session, int n_predict) {
      request.n_predict = n_predict;
      auto result = engine->Generate(session, request);
      EXPECT_TRUE(result.ok()) << result.status().message();
      return std::move(*result);
    };
    const GenerationResult whole = answer(**engine->NewSession(), 40);
    EXPECT_GT(whole.timings.draft_n_accepted, 0);
    const auto session = *engine->NewSession();
    answer(*session, 1);
    for (int fork = 0; fork < 2; ++fork) {
      const GenerationResult forked = answer(**engine->Fork(*session), 40);
      EXPECT_EQ(forked.tokens, whole.tokens);
      EXPECT_EQ(forked.speculative.notice, "");
      EXPECT_EQ(forked.timings.draft_n_accepted, whole.timings.draft_n_accepted);
    }
    // Nothing is kept of sequences that ended.
    EXPECT_EQ(answer(**engine->NewSession(), 1).timings.cache_n, 0);
  }
}

// TokenSwift's heads, over a part of the cache: as the others, but that they have to be named.
TEST_F(DraftModelTest, TokenSwiftLeavesTheTextAsItIsAndHasToBeNamed) {
  const testing::TinyTarget tiny;
  const std::string draft =
      testing::WriteBlockDraft(folder_, "tokenswift", tiny.spec, testing::RandomTokenswift(tiny.spec, 3, 3));
  const auto answers = [&](const std::string& type) {
    auto engine = Engine::Load({.path = folder_.File("target.gguf"), .threads = 2});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    const auto session = (*engine)->NewSession();
    GenerationRequest request = Request(type, draft);
    request.speculation.policy = "fixed";
    request.speculation.partial.sink = 16;
    request.speculation.partial.budget = 16;
    request.speculation.partial.window = 8;
    request.speculation.partial.refresh = 4;
    request.speculation = OnlyRead(request.speculation, type);
    std::vector<std::vector<int32_t>> texts;
    for (int turn = 0; turn < 3; ++turn) {
      const auto result = (*engine)->Generate(**session, request);
      EXPECT_TRUE(result.ok()) << result.status().message();
      if (!result.ok()) break;
      EXPECT_EQ(result->timings.draft_n > 0, type != "none") << turn;
      texts.push_back(result->tokens);
      request.tokens.insert(request.tokens.end(), result->tokens.begin(), result->tokens.end());
      request.tokens.push_back(70 + turn);
    }
    return texts;
  };
  EXPECT_EQ(answers("tokenswift"), answers("none"));
  const auto refused = Generate("auto", draft);
  EXPECT_THAT(refused.status().message(), HasSubstr("a draft for --spec-type tokenswift"));
}

// Trees of models and retrieval together, whoever's nodes they hold: the text is that of plain decoding.
TEST_F(DraftModelTest, MergedTreesLeaveTheTextAsItIs) {
  struct Merge {
    std::string type, draft;
    std::vector<std::string> drafters;
  };
  const testing::TinyTarget tiny;
  const testing::Folder folder;
  const std::string draft =
      testing::WriteDraftFolder(folder, tiny.spec, testing::RandomDraft(tiny.spec, 64, 2), "");
  const std::string target = folder_.File("target.gguf");
  const std::vector<Merge> merges = {
      {"longspec,ppm,suffix", draft, {"longspec", "ppm", "suffix"}},
      {"suffix,longspec", draft, {"suffix", "longspec"}},
      {"lm,suffix", target, {"lm", "suffix"}},
      {"recycling,suffix,lm", target, {"recycling", "suffix", "lm"}},
      {"magicdec,ngram,recycling", "", {"magicdec", "ngram", "recycling"}},
      {"auto", draft, {"ppm", "suffix", "longspec"}},
      {"auto", target, {"ppm", "suffix", "lm"}},
      {"auto", "", {"ppm", "suffix"}},
  };
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    GenerationRequest request;
    // So few that a language model reads them with its first tree.
    for (int i = 0; i < 8; ++i) request.tokens.insert(request.tokens.end(), {65, 70, 80, 31 + i % 2});
    request.n_predict = 60;
    request.ignore_eos = true;
    request.sampling.temperature = temperature;
    request.sampling.top_k = 3;  // so that drafts are often right
    request.sampling.seed = 5;
    request.speculation.type = "none";
    const auto generate = [&] { return engine_->Generate(**engine_->NewSession(), request); };
    const auto plain = generate();
    ASSERT_TRUE(plain.ok());
    for (const Merge& merge : merges) {
      for (const char* policy : {"fixed", "adaptive"}) {
        SCOPED_TRACE(merge.type + " " + merge.draft + " " + policy);
        request.speculation.type = merge.type;
        request.speculation.draft_model = merge.draft;
        request.speculation.policy = policy;
        request.speculation.draft_n_max = 12;
        const auto merged = generate();
        ASSERT_TRUE(merged.ok()) << merged.status().message();
        EXPECT_EQ(merged->tokens, plain->tokens);
        if (std::string(policy) == "adaptive") continue;
        EXPECT_GT(merged->timings.draft_n_accepted, 0);
        // Each was verified, or the merge is none.
        std::vector<std::string> verified;
        for (const auto& counts : merged->speculative.by_drafter) {
          if (counts.drafted > 0) verified.push_back(counts.name);
        }
        EXPECT_THAT(verified, ::testing::UnorderedElementsAreArray(merge.drafters));
      }
    }
  }
}

// Many at once, whose prompts end beside guesses of others: the last rows of a prompt and its first guesses
// may be one pass.
TEST_F(DraftModelTest, DraftsOfManySequencesLeaveTheirTextsAsTheyAre) {
  const testing::TinyTarget tiny;
  const testing::EagleShape shape = {};
  std::map<std::string, std::string> drafts = WriteDraftsThatReadStates();
  drafts["none"] = drafts["magicdec"] = drafts["partial"] = "";
  drafts["longspec"] =
      testing::WriteDraftFolder(folder_, tiny.spec, testing::RandomDraft(tiny.spec, 64, 2), "");
  drafts["lm"] = folder_.File("target.gguf");
  drafts["eagle"] = testing::WriteEagle(folder_, "eagle", tiny.spec, shape,
                                        testing::RandomEagle(tiny.spec, shape, 4), {}, "");
  const auto answers = [&](const std::string& type, const std::string& draft) {
    const auto scheduler = engine_->NewScheduler({.parallel = 3, .share_prefixes = false});
    EXPECT_TRUE(scheduler.ok()) << scheduler.status().message();
    std::map<int, std::vector<int32_t>> texts;
    int64_t drafted = 0;
    for (int i = 0; i < 4; ++i) {
      GenerationRequest request = Request(type, draft);
      request.tokens = testing::RandomTokens(3 + 40 * i, static_cast<unsigned>(i), 250);
      request.speculation.policy = type == "none" ? "" : "fixed";
      Submission submission{.request = std::make_shared<const GenerationRequest>(request), .on_end = {}};
      submission.on_end = [&, i](int, Result<GenerationResult> result) {
        ASSERT_TRUE(result.ok()) << result.status().message();
        drafted += result->timings.draft_n;
        EXPECT_EQ(result->speculative.notice, "");
        texts[i] = result->tokens;
      };
      EXPECT_TRUE((*scheduler)->Submit(std::move(submission)).ok());
    }
    bool more = true;
    while (more) more = *(*scheduler)->RunRound();
    EXPECT_EQ(drafted > 0, type != "none");
    return texts;
  };
  const auto plain = answers("none", "");
  ASSERT_EQ(plain.size(), 4U);
  for (const auto& [type, draft] : drafts) {
    SCOPED_TRACE(type);
    EXPECT_EQ(answers(type, draft), plain);
  }
}

// With dice and without, with a prior and without, whatever the sampler is told.
TEST_F(DraftModelTest, EveryWayOfSamplingLeavesTheTextAsItIs) {
  WritePrior("x.ngrams");
  struct Way {
    std::string type, draft, prior;
  };
  const std::string target = folder_.File("target.gguf");
  const std::vector<Way> ways = {{"longspec", draft_, ""},
                                 {"lm", target, ""},
                                 {"auto", draft_, ""},
                                 {"auto", target, "none"},
                                 {"lm,ppm,recycling", target, ""}};
  GenerationRequest request = Request("none", "");
  request.n_predict = 32;
  std::map<std::string, int64_t> accepted;
  for (const SamplingOptions& sampling : testing::EverySampling({5, 6})) {
    request.sampling = sampling;
    request.speculation = {.type = "none"};
    const auto plain = engine_->Generate(**engine_->NewSession(), request);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    for (const Way& way : ways) {
      for (const bool dice : {true, false}) {
        const std::string name = way.type + " " + way.draft + (dice ? "" : " without dice");
        SCOPED_TRACE(name + ", " + testing::Describe(sampling));
        request.speculation =
            OnlyRead({.policy = "fixed", .ppm = {.prior = way.prior}, .dice = dice, .draft_model = way.draft},
                     way.type);
        const auto drafted = engine_->Generate(**engine_->NewSession(), request);
        ASSERT_TRUE(drafted.ok()) << drafted.status().message();
        ASSERT_EQ(drafted->tokens, plain->tokens);
        EXPECT_EQ(drafted->speculative.dice, dice && sampling.temperature > 0);
        accepted[name] += drafted->timings.draft_n_accepted;
      }
    }
  }
  // A model that drafts for itself, and knows the numbers, is nearly always right.
  EXPECT_GT(accepted["lm " + target], accepted["lm " + target + " without dice"]);
  for (const auto& [name, n] : accepted) EXPECT_GT(n, 0) << name;
}

TEST_F(DraftModelTest, TheStatisticsSayWhatWasUsed) {
  const std::string path = WritePrior("x.ngrams");
  using Uses = std::vector<std::pair<std::string, std::string>>;
  const auto run = [&](const std::string& type, const std::string& prior) {
    GenerationRequest request = Request(type, "");
    request.speculation = OnlyRead({.ppm = {.prior = prior}}, type);
    const auto result = engine_->Generate(**engine_->NewSession(), request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result->speculative;
  };
  const SpeculativeStats found = run("ppm", "");
  ASSERT_EQ(found.uses.size(), 1U);
  EXPECT_EQ(found.uses[0].first, "prior");
  EXPECT_THAT(found.uses[0].second, ::testing::StartsWith(path + ", "));
  EXPECT_EQ(found.notice, "");
  EXPECT_EQ(run("auto", path).uses, found.uses);
  EXPECT_EQ(run("auto", "none").uses, (Uses{{"prior", "none"}}));
  EXPECT_THAT(run("suffix", "").uses, ::testing::IsEmpty());
  const SpeculativeStats plain = run("none", "");
  EXPECT_THAT(plain.uses, ::testing::IsEmpty());
  EXPECT_FALSE(plain.dice);

  // A damaged one is said to be, and by name it is an error.
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  engine_ = *Engine::Load({.path = folder_.File("target.gguf"), .threads = 1});
  const SpeculativeStats damaged = run("auto", "");
  EXPECT_EQ(damaged.uses, (Uses{{"prior", "none"}}));
  EXPECT_THAT(damaged.notice, ::testing::AllOf(HasSubstr(path), HasSubstr("it was not used")));
  GenerationRequest request = Request("auto", "");
  request.speculation.ppm.prior = path;
  const Status refused = engine_->Generate(**engine_->NewSession(), request).status();
  EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
  EXPECT_THAT(refused.message(), HasSubstr(path));
}

// A draft keeps nothing that the tokens do not tell: a session that goes on, or a fork of it, drafts and says
// what a fresh one does.
TEST_F(DraftModelTest, ASessionGoesOnOrIsForkedAsIfAnew) {
  const testing::TinyTarget tiny;
  const std::string path =
      testing::WriteDraftFolder(folder_, tiny.spec, testing::RandomDraft(tiny.spec, 64, 2));
  GenerationRequest first = Request("longspec", path);
  first.tokens = testing::RandomTokens(240, 4, 250);
  auto session = engine_->NewSession();
  ASSERT_TRUE(engine_->Generate(**session, first).ok());
  auto fork = engine_->Fork(**session);
  ASSERT_TRUE(fork.ok()) << fork.status().message();

  GenerationRequest next = first;
  next.tokens = (*session)->tokens();
  next.tokens.insert(next.tokens.end(), {65, 66, 67});
  const auto generate = [&](Session& in, const std::string& type) {
    next.speculation = OnlyRead(first.speculation, type);
    const auto result = engine_->Generate(in, next);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return *result;
  };
  const GenerationResult plain = generate(**engine_->NewSession(), "none");
  const GenerationResult anew = generate(**engine_->NewSession(), "longspec");
  EXPECT_EQ(anew.tokens, plain.tokens);
  EXPECT_GT(anew.timings.draft_n, 0);
  for (Session* kept : {session->get(), fork->get()}) {
    const GenerationResult result = generate(*kept, "longspec");
    EXPECT_GT(result.timings.cache_n, 240);
    EXPECT_EQ(result.tokens, plain.tokens);
    EXPECT_EQ(result.timings.draft_n, anew.timings.draft_n);
    EXPECT_EQ(result.timings.draft_n_accepted, anew.timings.draft_n_accepted);
  }
}

// Of a prompt that was computed before, a language model's reading is a part of the prompt's time, not of the
// first round's.
TEST_F(DraftModelTest, AForkReadsThePromptBeforeItsFirstRound) {
  GenerationRequest request = Request("none", "");
  request.tokens = testing::RandomTokens(300, 4, 250);
  auto parent = engine_->NewSession();
  ASSERT_TRUE(engine_->Generate(**parent, request).ok());
  const auto unread = [&](const std::string& type) {
    request.speculation.type = type;
    request.speculation.draft_model = folder_.File("target.gguf");
    const auto fork = *engine_->Fork(**parent);
    const auto generation = engine_->Start(*fork, request);
    EXPECT_TRUE(generation.ok()) << generation.status().message();
    return (*generation)->Finish();
  };
  const GenerationResult lm = unread("lm"), several = unread("lm,ngram");
  // Keys and values of 299 positions are there before anything was decoded. (One of several reads when it is
  // asked.)
  EXPECT_EQ(lm.speculative.steps, 0);
  EXPECT_GT(lm.speculative.draft_bytes, 256U * 2 * 2 * 16 * 2 * sizeof(int16_t));
  EXPECT_LT(several.speculative.draft_bytes, lm.speculative.draft_bytes);
  EXPECT_GT(lm.timings.prompt_draft_ms, 0);
  EXPECT_GE(lm.timings.prompt_ms, lm.timings.prompt_draft_ms);
  EXPECT_LE(lm.speculative.draft_ms, 1e-6);
}

TEST_F(DraftModelTest, WhatCannotWorkIsRefused) {
  EXPECT_EQ(Generate("longspec", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate("longspec", "/nonexistent").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Generate("longspec", folder_.File("target.gguf")).status().message(),
              HasSubstr("is no kind of draft model"));
  EXPECT_EQ(Generate("lm", draft_).status().code(), StatusCode::kInvalidArgument);
  TinyModelOptions larger;
  larger.n_vocab = 384 + 129;
  ASSERT_TRUE(WriteTinyModel(larger, folder_.File("other.gguf")).ok());
  EXPECT_THAT(Generate("lm", folder_.File("other.gguf")).status().message(),
              HasSubstr("does not fit the target: a vocabulary of 513 tokens, the target has 384"));
}

TEST_F(DraftModelTest, ADraftIsNoModel) {
  const std::string eagle = folder_.File("eagle.gguf"), lm = folder_.File("lm.gguf");
  const auto checkpoint = OpenDraftCheckpoint(WriteLikelyEagle());
  ASSERT_TRUE(checkpoint.ok() && WriteDraftGguf(*checkpoint, std::nullopt, eagle).ok());
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  writer.SetString(kLmTargetKey, "0123");
  ASSERT_TRUE(writer.Write(lm).ok());
  for (const auto& [path, kind] : {std::pair(eagle, "eagle"), {lm, "lm"}}) {
    const auto engine = Engine::Load({.path = path});
    EXPECT_EQ(engine.status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(engine.status().message(), path + ": a draft model of kind " + kind +
                                             ", which is nothing without its target: -m TARGET -md " + path);
  }
}

// What the memory plan has opened is handed on: the file is not read again, whatever lies there then.
TEST_F(DraftModelTest, ADraftThatThePlanKnowsIsOpenedOnce) {
  const auto plain = Generate("none", "");
  ASSERT_TRUE(plain.ok());
  const std::string lm = folder_.File("lm.gguf");
  ASSERT_TRUE(WriteTinyModel({}, lm).ok());
  for (const std::string& draft : {draft_, lm}) {
    ModelOptions options;
    options.path = folder_.File("target.gguf");
    options.threads = 1;
    options.speculation.draft_model = draft;
    auto engine = Engine::Load(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    std::filesystem::remove_all(draft);
    for (int generation = 0; generation < 2; ++generation) {
      const auto drafted = Generate("auto", draft);
      ASSERT_TRUE(drafted.ok()) << drafted.status().message();
      EXPECT_EQ(drafted->tokens, plain->tokens);
    }
    EXPECT_FALSE(Generate("auto", draft + "x").ok());
  }
}

TEST_F(DraftModelTest, PackedWeightsOfTargetAndDraftAreKept) {
  TinyModelOptions small;
  small.n_layers = 1;
  small.seed = 4;
  ASSERT_TRUE(WriteTinyModel(small, folder_.File("small.gguf")).ok());
  const auto plain = Generate("none", "");
  ASSERT_TRUE(plain.ok());
  ModelOptions options;
  options.path = folder_.File("target.gguf");
  options.threads = 1;
  options.weights_cache = folder_.File("kept");
  std::vector<std::string> warnings;
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  for (const char* origin : {"packed now, kept in ", "read from "}) {
    auto engine = Engine::Load(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    EXPECT_THAT(engine_->info().weights_origin, ::testing::StartsWith(origin + options.weights_cache));
    const auto lm = Generate("lm", folder_.File("small.gguf"));
    ASSERT_TRUE(lm.ok()) << lm.status().message();
    EXPECT_EQ(lm->tokens, plain->tokens);
    int kept = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options.weights_cache)) {
      kept += entry.path().extension() == ".longspec-weights";
    }
    EXPECT_EQ(kept, 2);
  }
  EXPECT_THAT(warnings, ::testing::IsEmpty());
}

// From the plan to the second answer; packed weights are looked for where they are kept, and read once.
TEST_F(DraftModelTest, EachFileIsOpenedOnce) {
  const std::string learned = folder_.File("learned.gguf"), lm = folder_.File("lm.gguf");
  ASSERT_TRUE(WriteDraftGguf(*OpenDraftCheckpoint(draft_), std::nullopt, learned).ok());
  ASSERT_TRUE(WriteTinyModel({.n_layers = 1}, lm).ok());
  ModelOptions options;
  options.path = folder_.File("target.gguf");
  options.threads = 1;
  options.weights_cache = folder_.File("packed");
  const auto load = [&](const GenerationRequest& request) {
    options.speculation = request.speculation;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  };
  load(Request("none", ""));
  std::vector<std::string> packed;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options.weights_cache)) {
    if (entry.path().extension() == ".longspec-weights") packed.push_back(entry.path());
  }
  ASSERT_EQ(packed.size(), 1U);
  const Opens of_target(options.path), of_packed(packed.front());
  for (const auto& [type, draft] : std::map<std::string, std::string>{
           {"none", learned}, {"longspec", learned}, {"lm", lm}, {"auto", lm}, {"ppm,longspec", learned}}) {
    SCOPED_TRACE(type);
    const Opens of_draft(draft);
    GenerationRequest request = Request(type, draft);
    request.n_predict = 3;
    const auto engine = load(request);
    for (int answer = 0; answer < 2; ++answer) {
      const auto session = engine->NewSession();
      EXPECT_TRUE(engine->Generate(**session, request).ok());
    }
    EXPECT_EQ(of_target.Count(), 1);
    EXPECT_EQ(of_packed.Count(), 1);
    EXPECT_EQ(of_draft.Count(), type == "none" ? 0 : 1);
  }
  ASSERT_TRUE(Engine::Inspect(options).ok());
  EXPECT_EQ(of_target.Count(), 1);
  EXPECT_EQ(of_packed.Count(), 0);
}

}  // namespace
}  // namespace longspec

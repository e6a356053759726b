// SPDX-License-Identifier: Apache-2.0
//
// The public facade, over a tiny random model; what needs a chat template uses SmolLM2 if it is
// there.
#include "longspec/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "draft_model/option_use.h"
#include "engine/cache_file.h"
#include "engine/calibration_cache.h"
#include "formats/gguf_writer.h"
#include "formats/session_file.h"
#include "formats/tiny_model.h"
#include "formats/tiny_vocabulary.h"
#include "lab/testing/with_lab.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(WriteTinyModel({}, Path()).ok()); }
  static std::string Path() {
    static const testing::Folder folder;
    return folder.File("tiny.gguf");
  }

  static std::unique_ptr<Engine> Load(ModelOptions options = {}) {
    options.path = Path();
    if (options.threads == 0) options.threads = 1;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static GenerationRequest Request(const std::string& prompt, const std::string& spec = "none") {
    GenerationRequest request;
    request.prompt = prompt;
    request.n_predict = 24;
    request.ignore_eos = true;
    request.sampling.temperature = 0.7F;
    request.sampling.seed = 5;
    request.speculation = OnlyRead({.ngram = {.min = 1}}, spec);
    return request;
  }

  static GenerationResult Generate(Engine& engine, Session& session, const GenerationRequest& request) {
    auto result = engine.Generate(session, request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : GenerationResult();
  }

  static Status Refusal(const GenerationRequest& request) {
    const auto engine = Load();
    auto session = engine->NewSession();
    return engine->Generate(**session, request).status();
  }
};

TEST_F(EngineTest, InfoIsTheSameWithAndWithoutLoading) {
  ModelOptions options;
  options.path = Path();
  options.ctx_size = 300;
  options.threads = 1;
  const auto inspected = Engine::Inspect(options);
  ASSERT_TRUE(inspected.ok()) << inspected.status().message();
  const auto engine = Load(options);
  const ModelInfo& info = engine->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.n_layer, 2);
  EXPECT_EQ(info.n_head_kv, 2);
  EXPECT_EQ(info.n_ctx, 300);
  EXPECT_EQ(info.n_ctx_train, 512);
  EXPECT_EQ(info.tokenizer_model, "gpt2");
  EXPECT_TRUE(info.has_chat_template);
  EXPECT_EQ(info.weight_bytes_by_type.size(), 1U);
  EXPECT_EQ(info.weight_bytes_by_type[0].first, "F32");
  EXPECT_GT(info.n_parameters, 0U);
  EXPECT_FALSE(info.arithmetic.empty());
  EXPECT_EQ(info.memory.ctx_size, 300);
  // Two chunks of 256 positions: 2 layers, 2 heads of 16, keys and values of 2 bytes.
  EXPECT_EQ(info.memory.kv_at_context, 2U * 256 * 2 * 2 * 16 * 2 * 2);
  EXPECT_GT(info.memory.weights, 0U);
  EXPECT_EQ(inspected->name, info.name);
  EXPECT_EQ(inspected->kernels, info.kernels);
  EXPECT_EQ(inspected->memory.total(), info.memory.total());
}

// Files of a model that is not the one of the other tests.
class OtherModel {
 public:
  explicit OtherModel(const TinyModelOptions& options) { EXPECT_TRUE(WriteTinyModel(options, path()).ok()); }
  std::string path() const { return folder_.File("other.gguf"); }
  // Of the same length, everywhere.
  void Replace(const std::string& from, const std::string& to) const {
    std::string bytes = testing::ReadText(path());
    for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1))
      bytes.replace(at, from.size(), to);
    folder_.Write("other.gguf", bytes);
  }

 private:
  const testing::Folder folder_;
};

TEST_F(EngineTest, ATemplateThatCannotBeReadIsSaidAtTheStart) {
  const OtherModel model({.chat_template = "{% if messages %}\n{{ messages[0] | nofilter }}{% endif %}"});
  std::vector<std::string> warnings;
  ModelOptions options{.path = model.path(), .threads = 1};
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr(model.path() + ": chat template, line 2: "));
  EXPECT_EQ(model.path() + ": " + (*engine)->info().chat_template_error, warnings[0]);
  EXPECT_EQ((*engine)->ApplyChatTemplate({{"user", "a"}}, true).status().message(), warnings[0]);
  EXPECT_EQ(Load()->info().chat_template_error, "");
}

TEST_F(EngineTest, InfoSaysWhatAFileLacksToRun) {
  const OtherModel model({});
  EXPECT_EQ(Engine::Inspect({.path = model.path()})->missing, "");
  model.Replace("gpt2", "bert");
  EXPECT_THAT(Engine::Inspect({.path = model.path()})->missing,
              HasSubstr("tokenizer model 'bert' (WordPiece) is not offered"));
  EXPECT_FALSE(Engine::Load({.path = model.path()}).ok());
  model.Replace("bert", "gpt2");
  model.Replace("smollm", "smollx");
  EXPECT_THAT(Engine::Inspect({.path = model.path()})->missing, HasSubstr("pre-tokeniser 'smollx'"));
}

TEST_F(EngineTest, InfoSaysWhatAFileOfAnotherArchitectureIs) {
  const OtherModel model({});
  const auto known = Engine::Inspect({.path = model.path()});
  model.Replace("llama", "gamma");
  const auto info = Engine::Inspect({.path = model.path()});
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->architecture, "gamma");
  EXPECT_THAT(info->missing, ::testing::StartsWith("architecture \"gamma\" is not supported"));
  EXPECT_EQ(Engine::Load({.path = model.path()}).status().message(), model.path() + ": " + info->missing);
  for (const auto member :
       {&ModelInfo::n_layer, &ModelInfo::n_embd, &ModelInfo::n_head, &ModelInfo::n_head_kv,
        &ModelInfo::head_dim, &ModelInfo::n_ff, &ModelInfo::n_vocab, &ModelInfo::n_ctx_train})
    EXPECT_EQ((*info).*member, (*known).*member);
  EXPECT_EQ(info->weight_bytes_by_type, known->weight_bytes_by_type);
  EXPECT_EQ(info->tokenizer_pre, known->tokenizer_pre);
  EXPECT_EQ(info->n_ctx, 0);
  // What is wrong with the options is an error as before.
  EXPECT_FALSE(Engine::Inspect({.path = model.path(), .threads = -1}).ok());
}

// Points the calibration cache at a folder of its own.
class OwnCacheFolder {
 public:
  OwnCacheFolder() { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~OwnCacheFolder() { unsetenv("XDG_CACHE_HOME"); }
  int n_files(const std::string& suffix = "") const {
    int n = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path(), error)) {
      n += entry.is_regular_file() && entry.path().string().ends_with(suffix) ? 1 : 0;
    }
    return n;
  }

 private:
  const testing::Folder folder_;
};

TEST_F(EngineTest, AutoGivesThePlainTextAndSaysWhatItDid) {
  const OwnCacheFolder cache;
  const std::string prompt = "abcabcabc the cat sat on the mat, the cat sat on the";
  const auto engine = Load();
  auto session = engine->NewSession();
  GenerationRequest request = Request(prompt);
  request.n_predict = 200;
  const GenerationResult plain = Generate(*engine, **session, request);
  EXPECT_EQ(plain.speculative.policy, "fixed");
  EXPECT_EQ(plain.speculative.costs, "");
  request.speculation.type = SpeculationOptions().type;
  for (const float temperature : {0.7F, 0.0F}) {
    request.sampling.temperature = temperature;
    request.speculation.type = "none";
    const GenerationResult expected = Generate(*engine, **session, request);
    request.speculation.type = "auto";
    const GenerationResult result = Generate(*engine, **session, request);
    EXPECT_EQ(result.tokens, expected.tokens);
    const SpeculativeStats& s = result.speculative;
    EXPECT_EQ(s.type, "auto");
    EXPECT_EQ(s.policy, "adaptive");
    EXPECT_THAT(s.costs, ::testing::StartsWith("guessed"));
    EXPECT_FALSE(s.last_decision.empty());
    int64_t rounds = 0;
    for (const auto& [name, n] : s.decisions) rounds += n;
    EXPECT_EQ(rounds, s.steps);
    EXPECT_FALSE(s.by_drafter.empty());
    int64_t drafted = 0, in_context = 0;
    for (const AcceptanceCounts& c : s.by_drafter) drafted += c.drafted;
    for (const AcceptanceCounts& c : s.by_context) in_context += c.drafted;
    EXPECT_EQ(drafted, result.timings.draft_n);
    EXPECT_EQ(in_context, result.timings.draft_n);
    EXPECT_EQ(s.by_context.front().name, "0-1K");
  }
}

TEST_F(EngineTest, CalibrationsAreKeptUnlessToldOtherwise) {
  const OwnCacheFolder cache;
  const auto costs = [](ModelOptions options) {
    const auto engine = Load(options);
    engine->MeasureCosts();
    auto session = engine->NewSession();
    return Generate(*engine, **session, Request("hello", "auto")).speculative.costs;
  };
  EXPECT_THAT(costs({.calibration_cache = false}), ::testing::StartsWith("measured in "));
  EXPECT_EQ(cache.n_files(), 0);
  // Also what is measured while the machine does other things.
  EXPECT_THAT(costs({}), HasSubstr(", kept in "));
  EXPECT_EQ(cache.n_files(".costs"), 1);
  EXPECT_THAT(costs({}), ::testing::StartsWith("measured earlier on this machine"));
  EXPECT_THAT(costs({.ctx_size = 300}), ::testing::StartsWith("measured in "));
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  EXPECT_THAT(costs({}), HasSubstr("not kept"));
}

TEST_F(EngineTest, NoAnswerWaitsForCosts) {
  ModelOptions options;
  options.calibration_cache = false;
  const auto engine = Load(options);
  auto session = engine->NewSession();
  // The text is there though measuring, which is slow here, has not begun.
  int passes = 0;
  const auto slowly = [&](int most) {
    return [&passes, most] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return ++passes <= most;
    };
  };
  std::vector<std::string> costs;
  std::vector<GenerationResult> answers;
  const auto ask = [&] {
    answers.push_back(Generate(*engine, **session, Request("hello", "auto")));
    costs.push_back(answers.back().speculative.costs);
  };
  ask();
  EXPECT_EQ(passes, 0);
  EXPECT_FALSE(answers.front().tokens.empty());
  engine->MeasureCosts(slowly(3));  // somebody asks meanwhile
  EXPECT_EQ(passes, 4);
  ask();
  engine->MeasureCosts(slowly(1'000'000));
  EXPECT_GT(passes, 10);
  ask();
  EXPECT_THAT(costs,
              ::testing::ElementsAre(::testing::StartsWith("guessed"), ::testing::StartsWith("guessed"),
                                     ::testing::StartsWith("measured in ")));
  for (const GenerationResult& answer : answers) EXPECT_EQ(answer.tokens, answers.front().tokens);
  // What is known is not measured again.
  passes = 0;
  engine->MeasureCosts(slowly(1'000'000));
  EXPECT_EQ(passes, 0);
}

TEST_F(EngineTest, APlanIsToldBeforeTheWeightsAreRead) {
  int n_plans = 0, n_steps = 0;
  ModelOptions options;
  options.on_plan = [&](const ModelInfo& info) {
    ++n_plans;
    EXPECT_EQ(n_steps, 0);
    EXPECT_GT(info.memory.weights, 0U);
    EXPECT_EQ(info.weights_origin, "");
  };
  options.on_progress = [&](double) { return ++n_steps > 0; };
  Load(options);
  EXPECT_EQ(n_plans, 1);
  EXPECT_GT(n_steps, 0);
}

TEST_F(EngineTest, OutputDoesNotDependOnHowItIsComputed) {
  const std::string prompt = "abcabcabc the cat sat on the mat, the cat sat on the";
  const auto engine = Load();
  auto session = engine->NewSession();
  const GenerationResult plain = Generate(*engine, **session, Request(prompt));
  EXPECT_EQ(plain.tokens.size(), 24U);
  EXPECT_EQ(plain.seed, 5U);
  EXPECT_EQ((*session)->tokens().size(), static_cast<size_t>(plain.timings.prompt_n) + 24);
  for (const int batch : {1, 7, 512}) {
    ModelOptions options;
    options.batch_size = batch;
    options.threads = 1 + batch % 2;
    if (batch == 7) options.attention = AttentionKind::kEager;
    const auto other = Load(options);
    auto other_session = other->NewSession();
    const GenerationResult result = Generate(*other, **other_session, Request(prompt, "ngram"));
    EXPECT_EQ(result.tokens, plain.tokens) << batch;
    EXPECT_EQ(result.text, plain.text);
    EXPECT_EQ(result.timings.prompt_n, plain.timings.prompt_n);
  }
}

TEST_F(EngineTest, TheCopyOfEagerAttentionIsInTheMemoryPlan) {
  const auto scratch = [](AttentionKind kind) {
    ModelOptions options;
    options.attention = kind;
    return Load(options)->info().memory.scratch;
  };
  EXPECT_GT(scratch(AttentionKind::kEager), scratch(AttentionKind::kFlash));
}

TEST_F(EngineTest, GenerationsInTurnSayWhatEachSaysAlone) {
  const auto engine = Load();
  auto prompt_session = engine->NewSession();
  const std::string prompt = "abcabcabc the cat sat on the mat, the cat sat on the";
  const GenerationResult plain = Generate(*engine, **prompt_session, Request(prompt));
  GenerationRequest one = Request(prompt);
  one.n_predict = 1;
  Generate(*engine, **prompt_session, one);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::unique_ptr<Generation>> generations;
  for (const char* type : {"none", "ngram", "suffix"}) {
    auto fork = engine->Fork(**prompt_session);
    ASSERT_TRUE(fork.ok()) << fork.status().message();
    EXPECT_EQ((*fork)->tokens(), (*prompt_session)->tokens());
    sessions.push_back(std::move(*fork));
    auto generation = engine->Start(*sessions.back(), Request(prompt, type));
    ASSERT_TRUE(generation.ok()) << generation.status().message();
    EXPECT_TRUE((*generation)->tokens().empty());
    generations.push_back(std::move(*generation));
  }
  size_t n_running = generations.size();
  std::vector<bool> ended(generations.size(), false);
  while (n_running > 0) {
    for (size_t i = 0; i < generations.size(); ++i) {
      if (ended[i]) continue;
      const size_t before = generations[i]->tokens().size();
      const auto more = generations[i]->Step();
      ASSERT_TRUE(more.ok()) << more.status().message();
      EXPECT_GT(generations[i]->tokens().size(), before);
      ended[i] = !*more;
      n_running -= *more ? 0 : 1;
    }
  }
  for (size_t i = 0; i < generations.size(); ++i) {
    const GenerationResult result = generations[i]->Finish();
    EXPECT_EQ(result.tokens, plain.tokens);
    EXPECT_EQ(result.text, plain.text);
    EXPECT_EQ(result.finish_reason, plain.finish_reason);
    EXPECT_EQ(result.timings.prompt_n, 1);  // the rest came with the fork
    EXPECT_GT(result.timings.predicted_ms, 0);
    EXPECT_EQ(sessions[i]->tokens().size(), static_cast<size_t>(plain.timings.prompt_n) + 24);
  }
  const auto other = Load();
  EXPECT_EQ(other->Fork(**prompt_session).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other->Start(**prompt_session, one).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, AnAnswerMayBeEndedOrDropped) {
  const auto engine = Load();
  auto session = engine->NewSession();
  const GenerationResult plain = Generate(*engine, **session, Request("one two three"));
  for (const bool finish : {true, false}) {
    auto fresh = engine->NewSession();
    auto generation = engine->Start(**fresh, Request("one two three"));
    ASSERT_TRUE(generation.ok());
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(*(*generation)->Step());
    if (finish) {
      const GenerationResult result = (*generation)->Finish();
      EXPECT_EQ(result.tokens, std::vector<int32_t>(plain.tokens.begin(), plain.tokens.begin() + 5));
      EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    }
    generation->reset();
    // What the session holds is used by the next answer.
    const GenerationResult again = Generate(*engine, **fresh, Request("one two three"));
    EXPECT_EQ(again.tokens, plain.tokens);
    EXPECT_GT(again.timings.cache_n, 0);
  }
}

TEST_F(EngineTest, ASessionThatContinuesSaysWhatAFreshOneSays) {
  const auto engine = Load();
  auto session = engine->NewSession();
  const GenerationResult first = Generate(*engine, **session, Request("one two three", "ngram"));
  GenerationRequest longer = Request("", "ngram");
  longer.prompt.clear();
  longer.tokens = (*session)->tokens();
  longer.tokens.push_back(65);
  const GenerationResult reused = Generate(*engine, **session, longer);
  EXPECT_EQ(reused.timings.cache_n, first.timings.prompt_n + 23);
  const auto other = Load({.cache_prompt = false});
  auto fresh_session = other->NewSession();
  const GenerationResult fresh = Generate(*other, **fresh_session, longer);
  EXPECT_EQ(fresh.timings.cache_n, 0);
  EXPECT_EQ(reused.tokens, fresh.tokens);
  (*session)->Clear();
  EXPECT_TRUE((*session)->tokens().empty());
  EXPECT_EQ(Generate(*engine, **session, longer).tokens, fresh.tokens);
}

// A prompt that begins as any other did is evaluated from where it parts, down to the token.
TEST_F(EngineTest, WhatAnySequenceHasEvaluatedIsNotEvaluatedAgain) {
  const auto engine = Load(), forgetful = Load({.cache_prompt = false});
  GenerationRequest request = Request("", "ngram");
  request.prompt.clear();
  for (int i = 0; i < 300; ++i) request.tokens.push_back(40 + i * i % 80);
  const auto generate = [&](Engine& in) {
    auto session = in.NewSession();
    return Generate(in, **session, request);
  };
  const GenerationResult first = generate(*engine);
  EXPECT_EQ(first.timings.cache_n, 0);
  const GenerationResult again = generate(*engine);
  EXPECT_EQ(again.timings.cache_n, 299);
  EXPECT_EQ(again.tokens, first.tokens);
  request.tokens[270] += 1;
  const GenerationResult parts = generate(*engine);
  EXPECT_EQ(parts.timings.cache_n, 270);
  EXPECT_EQ(parts.tokens, generate(*forgetful).tokens);
  EXPECT_EQ(generate(*forgetful).timings.cache_n, 0);
  // What was generated counts, too.
  request.tokens.insert(request.tokens.end(), parts.tokens.begin(), parts.tokens.end());
  request.tokens.push_back(50);
  EXPECT_GE(generate(*engine).timings.cache_n, 300 + std::ssize(parts.tokens) - 1);
}

// Programs that merged the states of chunks one by one had other keys and values past a stretch, and no
// others before.
TEST_F(EngineTest, ASessionPastAStretchSaysHowItsStatesAreMerged) {
  const auto engine = Load({.ctx_size = 4400});
  const testing::Folder folder;
  const std::string path = folder.File("stretch.session");
  for (const size_t n_tokens : {300U, 4200U}) {
    auto session = engine->NewSession();
    GenerationRequest request = Request("", "none");
    request.prompt.clear();
    for (size_t i = 0; i < n_tokens; ++i) request.tokens.push_back(static_cast<int32_t>(40 + i % 50));
    (void)Generate(*engine, **session, request);
    ASSERT_TRUE(engine->SaveSession(**session, path).ok());
    const auto file = ReadSessionFile(path);
    ASSERT_TRUE(file.ok());
    const std::pair<std::string, std::string> merged = {"attention", "merged by 4096"};
    EXPECT_EQ(std::ranges::count(file->contents.belongs_to, merged), n_tokens > 4096 ? 1 : 0);
    EXPECT_TRUE(engine->LoadSession(path).ok());
  }
}

// Saved, the program ended, started again: it goes on as if it had not stopped.
TEST_F(EngineTest, ASessionGoesOnFromAFile) {
  const auto engine = Load();
  auto session = engine->NewSession();
  GenerationRequest request = Request("one two three", "ngram");
  for (int i = 0; i < 30; ++i) request.prompt += " and more";
  (void)Generate(*engine, **session, request);
  const testing::Folder folder;
  const std::string path = folder.File("tiny.session");
  ASSERT_TRUE(engine->SaveSession(**session, path).ok());
  GenerationRequest next = Request("", "ngram");
  next.prompt.clear();
  next.tokens = (*session)->tokens();
  next.tokens.push_back(70);
  const GenerationResult uninterrupted = Generate(*engine, **session, next);

  const auto later = Load({.cache_prompt = false});
  auto loaded = later->LoadSession(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const GenerationResult result = Generate(*later, **loaded, next);
  EXPECT_EQ(result.tokens, uninterrupted.tokens);
  EXPECT_EQ(result.timings.cache_n, static_cast<int64_t>(next.tokens.size()) - 2);

  const auto other_type = Load({.cache_type_k = CacheType::kF32});
  const Status refused = other_type->LoadSession(path).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find(path), std::string::npos) << refused.message();
  EXPECT_EQ(Load({.ctx_size = 128})->LoadSession(path).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(later->LoadSession(path + ".none").status().code(), StatusCode::kNotFound);
}

// The conversation is kept with the session: in files, in forks, until it is cleared.
TEST_F(EngineTest, ASessionKeepsItsMessages) {
  const auto engine = Load();
  auto session = engine->NewSession();
  EXPECT_TRUE((*session)->messages().empty());
  const std::string odd("\0\n\xFF", 3);
  (*session)->messages() = {{"user", odd}, {"assistant", ""}};
  const testing::Folder folder;
  const std::string path = folder.File("messages.session");
  ASSERT_TRUE(engine->SaveSession(**session, path).ok());
  const auto loaded = engine->LoadSession(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ((*loaded)->messages().size(), 2U);
  EXPECT_EQ((*loaded)->messages()[0].role, "user");
  EXPECT_EQ((*loaded)->messages()[0].content, odd);
  EXPECT_EQ((*loaded)->messages()[1].role, "assistant");
  const auto fork = engine->Fork(**loaded);
  EXPECT_EQ((*fork)->messages().size(), 2U);
  (*fork)->Clear();
  EXPECT_TRUE((*fork)->messages().empty());
  EXPECT_EQ((*loaded)->messages().size(), 2U);

  // The file's last byte is one of theirs.
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(size - 1);
  file.put('x');
  file.close();
  const Status damaged = engine->LoadSession(path).status();
  EXPECT_EQ(damaged.code(), StatusCode::kCorrupt);
  EXPECT_THAT(damaged.message(), HasSubstr("the conversation of the session file is damaged"));
}

TEST_F(EngineTest, TokensAndBack) {
  const auto engine = Load({.vocab_only = true});
  const std::string text = "some text\n\xFF and bytes";
  EXPECT_EQ(engine->Detokenize(engine->Tokenize(text)), text);
  EXPECT_EQ(engine->Tokenize("<|im_end|>").size(), 1U);
  EXPECT_GT(engine->Tokenize("<|im_end|>", false, false).size(), 1U);
}

TEST_F(EngineTest, AVocabularyAloneGeneratesNothing) {
  const auto engine = Load({.vocab_only = true});
  const auto session = engine->NewSession();
  EXPECT_EQ(session.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(session.status().message(), HasSubstr("vocab_only"));
  EXPECT_EQ(Engine::Load({.path = "", .vocab_only = true}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, BadRequestsAreNamed) {
  EXPECT_THAT(Refusal({}).message(), HasSubstr("prompt is empty"));
  GenerationRequest both = Request("x");
  both.tokens = {1};
  EXPECT_THAT(Refusal(both).message(), HasSubstr("one of prompt, messages and tokens"));
  EXPECT_EQ(Refusal(Request(std::string(5000, 'x'))).code(), StatusCode::kResourceExhausted);
}

// A file with a tokenizer and the given chat template, and no weights.
Result<std::unique_ptr<Engine>> TryVocabulary(const std::string& chat_template, const std::string& chosen) {
  GgufWriter writer;
  writer.SetString("general.architecture", "unheard-of");
  SetTinyVocabulary(300, &writer);
  if (!chat_template.empty()) writer.SetString("tokenizer.chat_template", chat_template);
  const testing::Folder folder;
  const std::string path = folder.File("vocabulary.gguf");
  EXPECT_TRUE(writer.Write(path).ok());
  return Engine::Load({.path = path, .chat_template = chosen, .vocab_only = true});
}

std::unique_ptr<Engine> LoadVocabulary(const std::string& chat_template, const std::string& chosen = "") {
  auto engine = TryVocabulary(chat_template, chosen);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

TEST(ChatTemplates, AnUnusableOneIsAnErrorForThoseWhoUseIt) {
  const std::vector<Message> messages = {{"user", "hi"}};
  const auto broken = LoadVocabulary("{% for m in messages %}")->ApplyChatTemplate(messages, true);
  EXPECT_FALSE(broken.ok());
  EXPECT_THAT(broken.status().message(), HasSubstr("chat template"));
  const auto raised = LoadVocabulary("{{ raise_exception('only cats') }}")->ApplyChatTemplate(messages, true);
  EXPECT_EQ(raised.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(raised.status().message(), HasSubstr("only cats"));
  const auto fine = LoadVocabulary("{{ messages[0].content }}!")->ApplyChatTemplate(messages, true);
  ASSERT_TRUE(fine.ok()) << fine.status().message();
  EXPECT_EQ(*fine, "hi!");
}

TEST(ChatTemplates, AFileWithoutOneIsWrittenToAsChatMl) {
  const auto engine = LoadVocabulary("");
  const std::string chatml = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(*engine->ApplyChatTemplate({{"user", "hi"}}, true), chatml);
  EXPECT_FALSE(engine->info().has_chat_template);
  EXPECT_EQ(engine->info().chat_template_error, "");
  EXPECT_THAT(engine->info().chat_template, HasSubstr("<|im_start|>"));
}

TEST(ChatTemplates, OneMayBeChosenByNameOrAsJinja) {
  const std::vector<Message> messages = {{"user", "hi"}};
  for (const char* of_file : {"", "{{ messages[0].content }}!", "{% for m in messages %}"}) {
    const auto named = LoadVocabulary(of_file, "zephyr");
    EXPECT_EQ(*named->ApplyChatTemplate(messages, true), "<|user|>\nhi<|endoftext|>\n<|assistant|>\n");
    EXPECT_TRUE(named->info().has_chat_template);
    EXPECT_EQ(*LoadVocabulary(of_file, "<{{ messages[0].content }}>\n")->ApplyChatTemplate(messages, true),
              "<hi>");
  }
  EXPECT_THAT(
      TryVocabulary("", "chatlm").status().message(),
      StartsWith(
          "chat template 'chatlm': it is neither Jinja, which has {{ or {% in it, nor one of chatml, "));
  EXPECT_THAT(TryVocabulary("", "{{ x | nofilter }}").status().message(),
              StartsWith("chat template, line 1: "));
}

TEST_F(EngineTest, MessagesAreRenderedWithTheTemplate) {
  const auto engine = Load();
  auto session = engine->NewSession();
  GenerationRequest request = Request("");
  request.messages = {{"user", "hi"}};
  const GenerationResult chat = Generate(*engine, **session, request);
  const auto text = engine->ApplyChatTemplate(request.messages, true);
  ASSERT_TRUE(text.ok());
  auto raw_session = engine->NewSession();
  EXPECT_EQ(Generate(*engine, **raw_session, Request(*text)).tokens, chat.tokens);
}

TEST_F(EngineTest, ASessionBelongsToItsEngine) {
  const auto a = Load();
  const auto b = Load();
  auto session = a->NewSession();
  const auto result = b->Generate(**session, Request("x"));
  EXPECT_THAT(result.status().message(), HasSubstr("another engine"));
}

TEST_F(EngineTest, BadOptionsAreNamed) {
  const auto refusal = [](const std::function<void(ModelOptions&)>& change) {
    ModelOptions options;
    options.path = Path();
    change(options);
    return Engine::Load(options).status();
  };
  EXPECT_EQ(refusal([](auto& o) { o.path = ""; }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](auto& o) { o.path = "/nonexistent.gguf"; }).code(), StatusCode::kNotFound);
  EXPECT_EQ(refusal([](auto& o) { o.path = std::filesystem::temp_directory_path(); }).code(),
            StatusCode::kIo);
  EXPECT_THAT(refusal([](auto& o) { o.ctx_size = -5; }).message(), HasSubstr("-5"));
  EXPECT_THAT(refusal([](auto& o) { o.threads = -1; }).message(), HasSubstr("threads"));
  EXPECT_THAT(refusal([](auto& o) { o.threads = 5000; }).message(), HasSubstr("5000"));
  EXPECT_THAT(refusal([](auto& o) { o.batch_size = 0; }).message(), HasSubstr("batch size"));
  EXPECT_THAT(refusal([](auto& o) { o.kernels = "abacus"; }).message(), HasSubstr("abacus"));
  const Status heads_of_16 = refusal([](auto& o) { o.cache_type_v = CacheType::kQ8_0; });
  EXPECT_EQ(heads_of_16.code(), StatusCode::kUnsupported);
  EXPECT_THAT(heads_of_16.message(), HasSubstr(Path() + ": --cache-type-v q8_0 needs a head dimension"));
  EXPECT_EQ(refusal([](auto& o) { o.on_progress = [](double) { return false; }; }).code(),
            StatusCode::kCancelled);
  const Status too_much = refusal([](auto& o) { o.ctx_size = 2000000000; });
  EXPECT_EQ(too_much.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(too_much.message(), HasSubstr("would fit"));
}

TEST_F(EngineTest, ProgressRisesToOne) {
  ModelOptions options;
  std::vector<double> shares;
  options.on_progress = [&](double share) {
    shares.push_back(share);
    return true;
  };
  ASSERT_NE(Load(options), nullptr);
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_LE(shares.back(), 1.0);
}

// Everything that is said of each token, in one line a token.
std::string Described(const GeneratedToken& token) {
  std::string line = std::to_string(token.id) + (token.is_end ? " end " : " ") +
                     std::to_string(token.text_begin) + "-" + std::to_string(token.text_end) + " " +
                     std::to_string(token.own.logprob);
  for (const TokenLogprob& other : token.likeliest)
    line += " " + std::to_string(other.token) + ":" + std::to_string(other.logprob);
  return line + "\n";
}

TEST_F(EngineTest, TokensAreReportedAsTheyCome) {
  const auto engine = Load();
  std::string plain;
  for (const char* spec : {"none", "ngram"}) {
    auto session = engine->NewSession();
    GenerationRequest request = Request("the sea the sea the sea the sea", spec);
    request.n_predict = 60;
    request.n_logprobs = 2;
    std::vector<int32_t> ids;
    std::string lines, text;
    int n_guessed = 0, n_started = 0;
    size_t end = 0;
    int64_t drafted = 0, accepted = 0;
    request.on_start = [&](int n_prompt, int n_cached) {
      ++n_started;
      EXPECT_GT(n_prompt, 5);
      EXPECT_GE(n_cached, 0);
      EXPECT_LT(n_cached, n_prompt);
      EXPECT_TRUE(ids.empty());
    };
    request.on_token = [&](const GeneratedToken& token) {
      ids.push_back(token.id);
      lines += Described(token);
      n_guessed += token.source.empty() ? 0 : 1;
      EXPECT_TRUE(token.source.empty() || token.source == spec) << token.source;
      EXPECT_EQ(token.text_begin, end);
      EXPECT_LE(text.size(), end);  // its text comes after it
      end = token.text_end;
      EXPECT_EQ(token.own.token, token.id);
      EXPECT_EQ(token.likeliest.size(), 2U);
      EXPECT_GE(token.likeliest[0].logprob, token.own.logprob);
      EXPECT_EQ(token.timings.predicted_n, static_cast<int64_t>(ids.size()));
      drafted = token.timings.draft_n;
      accepted = token.timings.draft_n_accepted;
    };
    request.on_text = [&](std::string_view piece) {
      text += piece;
      return true;
    };
    const GenerationResult result = Generate(*engine, **session, request);
    EXPECT_EQ(n_started, 1);
    EXPECT_EQ(ids, result.tokens);
    EXPECT_EQ(text, result.text);
    EXPECT_EQ(n_guessed, result.timings.draft_n_accepted);
    EXPECT_EQ(drafted, result.timings.draft_n);
    EXPECT_EQ(accepted, result.timings.draft_n_accepted);
    if (plain.empty()) {
      plain = lines;
    } else {
      EXPECT_EQ(lines, plain);  // chances do not depend on guesses
      EXPECT_GT(n_guessed, 0);
    }
  }
}

TEST_F(EngineTest, AStopStringIsNamed) {
  const auto engine = Load();
  auto session = engine->NewSession();
  const GenerationRequest request = Request("the sea");
  const std::string text = Generate(*engine, **session, request).text;
  size_t begin = text.size() / 2;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) ++begin;  // of a character
  GenerationRequest stopped = request;
  stopped.stop = {"never to be seen", text.substr(begin)};
  const GenerationResult result = Generate(*engine, **session, stopped);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_string, stopped.stop[1]);
  EXPECT_EQ(Generate(*engine, **session, request).stop_string, "");
}

TEST_F(EngineTest, APromptInTokensIsWhatIsEvaluated) {
  const auto engine = Load();
  auto session = engine->NewSession();
  const GenerationRequest request = Request("the sea");
  const auto tokens = engine->PromptTokens(request);
  ASSERT_TRUE(tokens.ok());
  GenerationRequest same = request;
  same.prompt.clear();
  same.tokens = *tokens;
  EXPECT_EQ(Generate(*engine, **session, same).tokens, Generate(*engine, **session, request).tokens);
  EXPECT_FALSE(engine->PromptTokens({}).ok());
}

TEST_F(EngineTest, WhatIsForgottenIsEvaluatedAgain) {
  ModelOptions options;
  options.cache_ram = 16;
  const auto engine = Load(options);
  const GenerationRequest request = Request("the sea and the sky and the land and the sea");
  const auto cached = [&] {
    auto session = engine->NewSession();
    return Generate(*engine, **session, request).timings.cache_n;
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
  auto session = engine->NewSession();
  Generate(*engine, **session, request);
  engine->Forget((*session)->tokens());
  EXPECT_EQ(cached(), 0);
}

TEST(Speculation, OptionsAreCheckedWithoutAModel) {
  EXPECT_THAT(SpeculationTypes(), ::testing::Contains("ngram"));
  for (const std::string& type : SpeculationTypes())
    EXPECT_TRUE(CheckSpeculation(SpeculationOf({.draft_model = "draft"}, type)).ok()) << type;
  EXPECT_THAT(CheckSpeculation({.type = "magic"}).message(), HasSubstr("ngram"));
  EXPECT_FALSE(CheckSpeculation({.draft_n_max = 256}).ok());
  EXPECT_FALSE(CheckSpeculation({.draft_n_max = -1}).ok());
  EXPECT_FALSE(CheckSpeculation({.tree = "bush"}).ok());
}

// The words that answers of the command line and of the server end with.
TEST(FinishReasons, HaveNames) {
  EXPECT_EQ(ToString(FinishReason::kStop), "stop");
  EXPECT_EQ(ToString(FinishReason::kLength), "length");
  EXPECT_EQ(ToString(FinishReason::kContext), "context");
  EXPECT_EQ(ToString(FinishReason::kCancelled), "cancelled");
}

// The template in the default model's own file is read and gives its known text.
TEST(DefaultModel, ChatTemplate) {
  const std::string path = testing::SourcePath("models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no model at " << path;
  const auto engine = Engine::Load({.path = path, .vocab_only = true});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_TRUE((*engine)->info().has_chat_template);
  const auto text = (*engine)->ApplyChatTemplate({{"system", "Be brief."}, {"user", "Hi"}}, true);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(
      *text,
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(EngineTest, RunsOnTheDeviceThatIsAskedFor) {
  EXPECT_EQ(Load()->info().device, "cpu");
  EXPECT_NE(Load({.device = "auto"}), nullptr);
  const Status card = Engine::Load({.path = Path(), .device = "cuda:77"}).status();
  EXPECT_EQ(card.code(), StatusCode::kUnsupported);
  EXPECT_EQ(card.message().find('\n'), std::string::npos);
  const Status unknown = Engine::Load({.path = Path(), .device = "gpu"}).status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.message(), "--device gpu: must be auto, cpu, cuda or cuda:N");
}

}  // namespace
}  // namespace longspec

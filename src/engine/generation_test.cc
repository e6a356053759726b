// SPDX-License-Identifier: Apache-2.0
//
// The generate loop over a scripted target and a toy tokenizer: every outcome, without a model.
#include "engine/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "draft_model/option_use.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kEnd = 0;

constexpr const char* kTurn = "^";  // a control token that ends nothing by itself

// Tokens are short byte strings; 0 ends a generation.
class ToyTokenizer final : public Tokenizer {
 public:
  ToyTokenizer() {
    for (char c = 'a'; c <= 'z'; ++c) tokens_.emplace_back(1, c);
    tokens_.insert(tokens_.end(), {"\xC3", "\xA9", "wx", "yz", "\n", kTurn, " "});
  }
  std::vector<int32_t> Encode(std::string_view text, EncodeOptions) const override {
    std::vector<int32_t> ids;
    for (const char c : text) {
      const auto it = std::find(tokens_.begin(), tokens_.end(), std::string(1, c));
      ids.push_back(static_cast<int32_t>(it - tokens_.begin()));
    }
    return ids;
  }
  std::string Decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id);
    return text;
  }
  const std::string& TokenBytes(int32_t id) const override { return tokens_[static_cast<size_t>(id)]; }
  int vocab_size() const override { return static_cast<int>(tokens_.size()); }
  bool IsControl(int32_t id) const override { return id == kEnd || TokenBytes(id) == kTurn; }
  bool IsEndOfGeneration(int32_t id) const override { return id == kEnd; }
  const TokenizerSpec& spec() const override { return spec_; }

  int32_t Id(const std::string& text) const {
    return static_cast<int32_t>(std::find(tokens_.begin(), tokens_.end(), text) - tokens_.begin());
  }

 private:
  std::vector<std::string> tokens_ = {""};
  TokenizerSpec spec_;
};

// Says script[p + 1] after script[p] at position p, and token 1 after anything else.
class ScriptedTarget final : public Target {
 public:
  ScriptedTarget(int vocab, std::vector<int32_t> script) : vocab_(vocab), script_(std::move(script)) {}
  int vocab_size() const override { return vocab_; }
  int context_length() const override { return 4096; }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    if (fail_after_ == 0) return IoError("scripted failure");
    if (fail_after_ > 0) --fail_after_;
    const ForwardSegment& segment = segments[0];
    const auto n_rows = static_cast<int>(segment.tokens.size());
    logits_.assign(static_cast<size_t>(n_rows) * static_cast<size_t>(vocab_), 0.0F);
    std::vector<int> depth(static_cast<size_t>(n_rows), 0);
    const int first = segment.logits == LogitsFor::kLastRow ? n_rows - 1 : segment.first_logits;
    for (int i = 0; i < n_rows; ++i) {
      const auto row = static_cast<size_t>(i);
      if (i > 0) {
        const int parent = segment.parents.empty() ? i - 1 : segment.parents[row];
        depth[row] = depth[static_cast<size_t>(parent)] + 1;
      }
      const auto position = static_cast<size_t>(segment.kv->base() + depth[row]);
      const bool on_script = position + 1 < script_.size() && script_[position] == segment.tokens[row];
      const int32_t next = on_script ? script_[position + 1] : 1;
      logits_[static_cast<size_t>(std::max(i - first, 0)) * static_cast<size_t>(vocab_) +
              static_cast<size_t>(next)] = 50.0F;
      rows_seen_ += 1;
    }
    TargetOutput output;
    output.vocab = vocab_;
    output.segments.resize(1);
    const int n_logits = segment.logits == LogitsFor::kNone ? 0 : n_rows - first;
    output.segments[0].logits = {logits_.data(), n_logits, vocab_};
    return output;
  }

  int rows_seen() const { return rows_seen_; }
  void FailAfter(int n_calls) { fail_after_ = n_calls; }

 private:
  int vocab_;
  std::vector<int32_t> script_;
  std::vector<float> logits_;
  int rows_seen_ = 0;
  int fail_after_ = -1;
};

class GenerationTest : public ::testing::Test {
 protected:
  // The target continues the first n_prompt characters of `script` with the rest.
  void Script(const std::string& script, size_t n_prompt, bool end = true, int capacity = 512) {
    script_ = tokenizer_.Encode(script, {});
    prompt_.assign(script_.begin(), script_.begin() + static_cast<ptrdiff_t>(n_prompt));
    if (end) script_.push_back(kEnd);
    Restart(capacity);
  }

  void Restart(int capacity = 512) {
    target_ = std::make_unique<ScriptedTarget>(tokenizer_.vocab_size(), script_);
    KvLayout layout;
    layout.n_kv_head = 1;
    layout.head_dim = 16;
    session_.tokens.clear();
    session_.cache = MakeFullCache(layout, 1, capacity);
    parts_.target = target_.get();
    parts_.tokenizer = &tokenizer_;
    parts_.prefill_chunk = 4;
    parts_.n_ctx_train = 4096;
  }

  static GenerationRequest Request(const std::string& type = "none") {
    GenerationRequest request;
    request.sampling.temperature = 0.0F;
    request.speculation = OnlyRead({.ngram = {.min = 1}}, type);
    return request;
  }

  Result<GenerationResult> Run(const GenerationRequest& request) {
    return RunGeneration(parts_, session_, prompt_, request);
  }

  void ExpectConsistent() const {
    EXPECT_LE(static_cast<size_t>(session_.cache->length()), session_.tokens.size());
    if (!session_.tokens.empty()) {
      EXPECT_EQ(
          std::vector<int32_t>(session_.tokens.begin(), session_.tokens.begin() + session_.cache->length()),
          std::vector<int32_t>(script_.begin(), script_.begin() + session_.cache->length()));
    }
  }

  ToyTokenizer tokenizer_;
  std::vector<int32_t> script_, prompt_;
  std::unique_ptr<ScriptedTarget> target_;
  SessionState session_;
  GenerationParts parts_;
};

TEST_F(GenerationTest, RunsToTheEndToken) {
  Script("promptanswer", 6);
  std::string streamed;
  GenerationRequest request = Request();
  request.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  const auto result = Run(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->text, "answer");
  EXPECT_EQ(streamed, "answer");
  EXPECT_EQ(result->tokens.size(), 7U);
  EXPECT_EQ(result->tokens.back(), kEnd);
  EXPECT_EQ(result->finish_reason, FinishReason::kStop);
  EXPECT_EQ(result->timings.cache_n, 0);
  EXPECT_EQ(result->timings.prompt_n, 6);
  EXPECT_EQ(result->timings.predicted_n, 7);
  EXPECT_EQ(result->speculative.type, "none");
  EXPECT_EQ(result->speculative.steps, 7);
  EXPECT_EQ(result->speculative.mean_acceptance_length, 1.0);
  EXPECT_TRUE(result->speculative.lossless);
  EXPECT_EQ(session_.tokens, script_);
  EXPECT_EQ(session_.cache->length(), static_cast<int>(script_.size()) - 1);
}

TEST_F(GenerationTest, ALineThatIsIndentedLessEndsTheText) {
  Script("promptab\n  cd\n   ef\n gh\n  ij", 6);
  GenerationRequest request = Request();
  std::string streamed;
  request.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  request.n_indent = 2;
  const auto limited = Run(request);
  ASSERT_TRUE(limited.ok()) << limited.status().message();
  EXPECT_EQ(limited->text, "ab\n  cd\n   ef\n ");
  EXPECT_EQ(streamed, limited->text);
  EXPECT_EQ(limited->finish_reason, FinishReason::kLength);
  ExpectConsistent();
  Restart();
  GenerationRequest guessed = Request("ngram");
  guessed.n_indent = 2;
  EXPECT_EQ(Run(guessed)->text, limited->text);
  Restart();
  request.n_indent = 1;
  EXPECT_EQ(Run(request)->finish_reason, FinishReason::kStop);
}

TEST_F(GenerationTest, SpeculationChangesOnlyTheStatistics) {
  Script("abcdefgabcdefgabcdefgabcdefgab", 9);
  const auto plain = Run(Request());
  Restart();
  const auto ngram = Run(Request("ngram"));
  ASSERT_TRUE(plain.ok() && ngram.ok()) << plain.status().message() << ngram.status().message();
  EXPECT_EQ(ngram->tokens, plain->tokens);
  EXPECT_EQ(ngram->text, plain->text);
  EXPECT_EQ(ngram->finish_reason, plain->finish_reason);
  EXPECT_LT(ngram->speculative.steps, plain->speculative.steps);
  EXPECT_GT(ngram->timings.draft_n_accepted, 0);
  EXPECT_LE(ngram->timings.draft_n_accepted, ngram->timings.draft_n);
  ASSERT_FALSE(ngram->speculative.acceptance_per_position.empty());
  EXPECT_GT(ngram->speculative.acceptance_per_position[0], 0.0);
  ASSERT_EQ(ngram->speculative.drafted_at.size(), ngram->speculative.acceptance_per_position.size());
  ASSERT_EQ(ngram->speculative.accepted_at.size(), ngram->speculative.drafted_at.size());
  for (size_t i = 0; i < ngram->speculative.drafted_at.size(); ++i) {
    EXPECT_DOUBLE_EQ(
        ngram->speculative.acceptance_per_position[i] * static_cast<double>(ngram->speculative.drafted_at[i]),
        static_cast<double>(ngram->speculative.accepted_at[i]));
  }
}

TEST_F(GenerationTest, LimitsOfTokens) {
  for (const std::string type : {"none", "ngram"}) {
    for (const int n : {0, 1, 5}) {
      Script("abcabcabcabcabcabcabc", 7);
      GenerationRequest request = Request(type);
      request.n_predict = n;
      const auto result = Run(request);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(static_cast<int>(result->tokens.size()), n);
      EXPECT_EQ(result->text, std::string("bcabcabc").substr(0, static_cast<size_t>(n)));
      EXPECT_EQ(result->finish_reason, FinishReason::kLength);
      EXPECT_EQ(session_.tokens.size(), 7U + static_cast<size_t>(n));
    }
  }
}

TEST_F(GenerationTest, StopsWhenTheContextIsFull) {
  for (const std::string type : {"none", "ngram"}) {
    Script("abcabcabcabcabcabcabcabc", 6, false, 16);
    const auto result = Run(Request(type));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->finish_reason, FinishReason::kContext);
    EXPECT_EQ(session_.tokens.size(), 16U);
    EXPECT_EQ(result->text, "abcabcabca");
  }
}

TEST_F(GenerationTest, StopStringEndsTextTokensAndSessionAlike) {
  for (const std::string type : {"none", "ngram"}) {
    Script("xabcdefxabcdefxabcdef", 9);
    GenerationRequest request = Request(type);
    request.stop = {"de"};
    const auto result = Run(request);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->text, "bc");
    EXPECT_EQ(result->finish_reason, FinishReason::kStop);
    EXPECT_EQ(tokenizer_.Decode(result->tokens, false), "bcde");
    EXPECT_EQ(result->timings.predicted_n, 4);
    EXPECT_EQ(session_.tokens.size(), 13U);
    EXPECT_EQ(session_.cache->length(), 12);
  }
}

TEST_F(GenerationTest, AControlTokenIsNoTextButMayBeAStop) {
  for (const std::string type : {"none", "ngram"}) {
    Script("xab^cdxab^cdxab^cd", 8);
    EXPECT_EQ(Run(Request(type))->text, "bcdxabcd");
    GenerationRequest across = Request(type);
    across.stop = {"bc", "x^"};
    Restart();
    EXPECT_EQ(Run(across)->text, "");
    for (const std::string stop : {"^", "b^", "^cd"}) {
      Script("xab^cdxab^cdxab^cd", 8);
      GenerationRequest request = Request(type);
      request.stop = {stop};
      const auto result = Run(request);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(result->text, stop == "b^" ? "" : "b");
      EXPECT_EQ(result->stop_string, stop);
      EXPECT_EQ(result->finish_reason, FinishReason::kStop);
      EXPECT_EQ(result->tokens.size(), stop == "^cd" ? 4U : 2U);
    }
  }
}

TEST_F(GenerationTest, AStopThatOnlyBeganIsGivenOutAtTheEnd) {
  Script("pabcd", 1);
  GenerationRequest request = Request();
  request.stop = {"cdx"};
  const auto result = Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "abcd");
}

TEST_F(GenerationTest, TextComesInWholeCharacters) {
  Script(
      "ab\xC3\xA9"
      "c\xC3",
      1);
  std::vector<std::string> pieces;
  GenerationRequest request = Request();
  request.on_text = [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return true;
  };
  const auto result = Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(pieces, ElementsAre("b", "\xC3\xA9", "c", "\xEF\xBF\xBD"));
  EXPECT_EQ(result->text,
            "b\xC3\xA9"
            "c\xEF\xBF\xBD");
}

TEST_F(GenerationTest, CancelledByTextTheSessionGoesOn) {
  for (const std::string type : {"none", "ngram"}) {
    Script("abcabcabcabcabcabcabcabc", 7);
    GenerationRequest request = Request(type);
    std::string streamed;
    request.on_text = [&](std::string_view piece) {
      streamed += piece;
      return streamed.size() < 3;
    };
    const auto cancelled = Run(request);
    ASSERT_TRUE(cancelled.ok());
    EXPECT_EQ(cancelled->finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(cancelled->text, "bca");
    EXPECT_EQ(streamed, "bca");
    EXPECT_EQ(session_.tokens.size(), 10U);
    EXPECT_EQ(session_.cache->length(), 9);

    prompt_ = session_.tokens;
    request.on_text = nullptr;
    const auto rest = Run(request);
    ASSERT_TRUE(rest.ok());
    EXPECT_EQ(rest->text, "bcabcabcabcabc");
    EXPECT_EQ(rest->timings.cache_n, 9);
    EXPECT_EQ(rest->timings.prompt_n, 1);
  }
}

TEST_F(GenerationTest, CancelledPrefillKeepsWhatWasEvaluated) {
  Script("abcdefghijklmnopqrstuvwxyz", 20);
  GenerationRequest request = Request();
  std::vector<int> done_values;
  request.on_prefill = [&](int done, int total) {
    EXPECT_LE(done, total);
    done_values.push_back(done);
    return done < 8;
  };
  const auto cancelled = Run(request);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status().message();
  EXPECT_EQ(cancelled->finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(cancelled->tokens.empty());
  EXPECT_GT(session_.cache->length(), 0);
  EXPECT_EQ(session_.tokens.size(), static_cast<size_t>(session_.cache->length()));
  ExpectConsistent();

  const int held = session_.cache->length();
  request.on_prefill = nullptr;
  const auto result = Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->timings.cache_n, held);
  EXPECT_EQ(result->text, "uvwxyz");
}

TEST_F(GenerationTest, TheSecondPromptReusesTheCommonPrefix) {
  Script("abcdefghijklmnop", 6);
  ASSERT_TRUE(Run(Request()).ok());
  const int rows = target_->rows_seen();
  prompt_.assign(script_.begin(), script_.begin() + 10);
  prompt_.back() = tokenizer_.Id("z");  // differs in its last token
  const auto result = Run(Request());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->timings.cache_n, 9);
  EXPECT_EQ(result->timings.prompt_n, 1);
  EXPECT_GE(target_->rows_seen(), rows + 1);
  EXPECT_EQ(session_.tokens[9], tokenizer_.Id("z"));

  // The same prompt again: its last token is the root and is evaluated again.
  GenerationRequest request = Request();
  request.n_predict = 1;
  const auto again = Run(request);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->timings.cache_n, 9);

  session_.Clear();
  EXPECT_TRUE(session_.tokens.empty());
  EXPECT_EQ(session_.cache->length(), 0);
}

TEST_F(GenerationTest, AfterAFailureTheSessionIsConsistent) {
  for (const int calls : {0, 1, 2, 5, 6}) {
    Script("abcabcabcabcabcabcabc", 10);
    target_->FailAfter(calls);
    // Plain decoding needs the most calls: every one of them comes.
    const auto failed = Run(Request(calls < 3 ? "ngram" : "none"));
    ASSERT_FALSE(failed.ok()) << calls;
    EXPECT_EQ(failed.status().code(), StatusCode::kIo);
    EXPECT_EQ(session_.tokens.size(), static_cast<size_t>(session_.cache->length()));
    ExpectConsistent();
    target_->FailAfter(-1);
    const auto result = Run(Request("ngram"));
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->text, "bcabcabcabc");
  }
}

TEST_F(GenerationTest, IgnoreEosNeverChoosesAnEndToken) {
  Script("abcd", 2);
  GenerationRequest request = Request();
  request.ignore_eos = true;
  request.n_predict = 6;
  const auto result = Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens.size(), 6U);
  EXPECT_EQ(std::count(result->tokens.begin(), result->tokens.end(), kEnd), 0);
  EXPECT_EQ(result->text.substr(0, 2), "cd");
}

TEST_F(GenerationTest, SeedIsUsedOrMadeAndReported) {
  Script("abcd", 2);
  GenerationRequest request = Request();
  request.sampling.seed = 1234567890123456789ULL;
  EXPECT_EQ(Run(request)->seed, 1234567890123456789ULL);
  request.sampling.seed.reset();
  const uint64_t first = Run(request)->seed;
  EXPECT_NE(Run(request)->seed, first);  // one in four thousand million
}

TEST_F(GenerationTest, BadRequestsAreNamedAndLeaveTheSessionAlone) {
  Script("abcdefgh", 4, true, 8);
  ASSERT_TRUE(Run(Request()).ok());
  const std::vector<int32_t> before = session_.tokens;
  struct Case {
    std::function<void(GenerationRequest&)> change;
    StatusCode code;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[&](auto&) { prompt_.clear(); }, StatusCode::kInvalidArgument, "empty"},
      {[&](auto&) {
         prompt_ = {1, 999};
       },
       StatusCode::kInvalidArgument, "999"},
      {[&](auto&) {
         prompt_ = {1, -1};
       },
       StatusCode::kInvalidArgument, "-1"},
      {[&](auto&) { prompt_.assign(8, 1); }, StatusCode::kResourceExhausted,
       "the prompt has 8 tokens but the context holds 8"},
      {[](auto& r) { r.n_predict = -2; }, StatusCode::kInvalidArgument, "-2"},
      {[](auto& r) {
         r.stop = {"x", ""};
       },
       StatusCode::kInvalidArgument, "stop string"},
      {[](auto& r) { r.speculation.draft_n_max = 256; }, StatusCode::kInvalidArgument, "256"},
      {[](auto& r) { r.speculation.draft_n_max = -1; }, StatusCode::kInvalidArgument,
       "--spec-draft-n-max -1"},
      {[](auto& r) { r.speculation.type = "magic"; }, StatusCode::kInvalidArgument, "magic"},
      {[](auto& r) { r.sampling.top_p = 7.0F; }, StatusCode::kInvalidArgument, "top-p"},
  };
  for (const Case& c : cases) {
    prompt_.assign(script_.begin(), script_.begin() + 4);
    GenerationRequest request = Request();
    c.change(request);
    const auto result = Run(request);
    ASSERT_FALSE(result.ok()) << c.message;
    EXPECT_EQ(result.status().code(), c.code) << result.status().message();
    EXPECT_THAT(result.status().message(), HasSubstr(c.message));
    EXPECT_EQ(session_.tokens, before);
  }
}

}  // namespace
}  // namespace longspec

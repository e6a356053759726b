// SPDX-License-Identifier: Apache-2.0
//
// Feature shards of a tiny model against its cache, and runs that are stopped and go on.
#include "features/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <tuple>

#include "base/clock.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/longspec_reference.h"
#include "features/plan.h"
#include "formats/testing/file_size_limit.h"
#include "network/describe_target.h"
#include "sampling/testing/values_of.h"
#include "tensor/half.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One token a byte.
FeatureTokenizer Bytes() {
  FeatureTokenizer tokenizer;
  tokenizer.encode = [](const std::string& text, bool beginning, bool) {
    std::vector<int32_t> tokens;
    if (beginning) tokens.push_back(1);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c) + 3);
    return tokens;
  };
  tokenizer.apply_template = [](const std::vector<TrainingMessage>& messages,
                                bool prompt) -> Result<std::string> {
    std::string text;
    for (const TrainingMessage& m : messages) text += "<" + m.role + ">" + m.content + ".";
    return prompt ? text + "<assistant>" : text;
  };
  tokenizer.end_of_text = 2;
  return tokenizer;
}

struct Rig {
  // Heads of 32 can be stored in every type.
  explicit Rig(int top_k = 0, CacheType type = CacheType::kF16, int length = 64, const FeatureKeep& keep = {})
      : tiny({.n_heads = 2, .n_kv_heads = 1, .context_length = 512}),
        extractor(&tiny.target(), tiny.NewCache(length + kKvChunk, type), 24, top_k, keep) {
    options.keep = keep;
    options.length = length;
    options.min_length = 4;
    options.top_k = top_k;
    options.output = folder.File("out");
    target.n_embd = tiny.spec.n_embd;
    target.n_head = tiny.spec.n_head;
    target.n_head_kv = tiny.spec.n_head_kv;
    target.head_dim = tiny.spec.head_dim;
    target.n_ff = tiny.spec.n_ff;
    target.n_vocab = tiny.spec.n_vocab;
    target.n_ctx = 512;
    target.rms_eps = 1e-5;
    target.name = "tiny";
  }

  void Input(const std::string& text, const std::string& name = "in.jsonl") {
    std::ofstream(folder.File(name)) << text;
    options.inputs.push_back(folder.File(name));
  }

  Result<FeatureSummary> Make(int stop_after = 1 << 30) {
    int calls = 0;
    const auto on_progress = [&](const FeatureProgress& p) {
      EXPECT_LE(p.share, 1.0);
      last = p;
      return ++calls < stop_after;
    };
    if (options.write == 0 || options.write_later)
      return MakeFeatures(options, target, Bytes(), extractor, on_progress, nullptr, &output_failed);
    ContinuationWriter writer(&tiny.target(), [this] { return tiny.NewCache(options.length + kKvChunk); },
                              {.max_tokens = options.write,
                               .temperatures = {0.0F, 1.0F},
                               .at_once = 3,
                               .top_k = options.top_k,
                               .beginning_logits = options.learn_from == LearnFrom::kEverything,
                               .keep = options.keep});
    return MakeFeatures(options, target, Bytes(), extractor, on_progress, &writer, &output_failed);
  }

  std::vector<std::vector<int32_t>> Sequences() {
    std::vector<std::vector<int32_t>> all;
    const auto shards = OpenFeatureShards(options.output);
    EXPECT_TRUE(shards.ok()) << shards.status().message();
    if (!shards.ok()) return all;
    for (const auto& shard : *shards) {
      for (int i = 0; i < shard->n_sequences(); ++i) {
        const auto tokens = shard->sequence(i).tokens;
        all.emplace_back(tokens.begin(), tokens.end());
      }
    }
    return all;
  }

  // By sequence: how many of its tokens are to be learned.
  std::vector<int64_t> Learned() const {
    std::vector<int64_t> all;
    const auto shards = OpenFeatureShards(options.output);
    for (const auto& shard : *shards) {
      for (int i = 0; i < shard->n_sequences(); ++i) {
        all.push_back(std::ranges::count(shard->sequence(i).loss, 1));
      }
    }
    return all;
  }

  Folder folder;
  TinyTarget tiny;
  FeatureExtractor extractor;
  FeatureRunOptions options;
  FeatureTarget target;
  FeatureProgress last;
  bool output_failed = false;
};

// With --keep none.
Rig TokensAlone() { return Rig(0, CacheType::kF16, 64, {.kv = false}); }

std::string Text(int n, char c) { return "{\"text\":\"" + std::string(static_cast<size_t>(n), c) + "\"}\n"; }

TEST(Features, AreTheLastLayersKeysAndValues) {
  for (const CacheType type : {CacheType::kF16, CacheType::kF32, CacheType::kBF16, CacheType::kBF16Amx,
                               CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    Rig rig(0, type);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 60; ++i) tokens.push_back(3 + i * 37 % 250);
    const auto features = rig.extractor.Extract(tokens, [](int) { return true; });
    ASSERT_TRUE(features.ok());
    // The same tokens in one pass, read by the reference of the draft's own tests.
    const auto cache = rig.tiny.NewCache(512, type);
    {
      auto kv = cache->Begin(60);
      const ForwardSegment segment = {
          .tokens = tokens, .parents = {}, .kv = &*kv, .logits = LogitsFor::kNone};
      ASSERT_TRUE(rig.tiny.target().Forward({&segment, 1}).ok());
      kv->CommitAll();
    }
    const DraftTensors no_draft;
    const auto expected = LongspecReference(no_draft, rig.tiny.parts()).ReadTarget(cache->Span(1), 60);
    const size_t width = 32;
    for (size_t p = 0; p < 60; ++p) {
      EXPECT_EQ(features->positions[p], static_cast<int32_t>(p));
      for (size_t d = 0; d < width; ++d) {
        const auto near = [](double x) { return std::abs(x) / 1024 + 1e-6; };
        EXPECT_NEAR(HalfToFloat(features->kept.keys[p * width + d]), expected.k[p][d],
                    near(expected.k[p][d]));
        EXPECT_NEAR(HalfToFloat(features->kept.values[p * width + d]), expected.v[p][d],
                    near(expected.v[p][d]));
      }
    }
  }
}

TEST(Features, TopProbabilitiesAreTheTargets) {
  Rig rig(4);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 50; ++i) tokens.push_back(3 + i * 37 % 250);
  const auto features = rig.extractor.Extract(tokens, [](int) { return true; });
  ASSERT_TRUE(features.ok());
  ASSERT_EQ(features->top_ids.size(), 200U);
  const auto cache = rig.tiny.NewCache(512, CacheType::kF16);
  auto kv = cache->Begin(50);
  const ForwardSegment segment = {.tokens = tokens, .parents = {}, .kv = &*kv, .logits = LogitsFor::kAllRows};
  const auto output = rig.tiny.target().Forward({&segment, 1});
  ASSERT_TRUE(output.ok());
  for (const size_t row : {0U, 31U, 32U, 49U}) {
    const float* logits = testing::ValuesOf(output->segments[0].logits[static_cast<int>(row)]).data();
    double sum = 0;
    for (int t = 0; t < output->vocab; ++t) sum += std::exp(static_cast<double>(logits[t]));
    const int best = static_cast<int>(std::max_element(logits, logits + output->vocab) - logits);
    EXPECT_EQ(features->top_ids[row * 4], best);
    EXPECT_NEAR(HalfToFloat(features->top_log_probs[row * 4]),
                static_cast<double>(logits[best]) - std::log(sum), 0.01);
    EXPECT_GE(HalfToFloat(features->top_log_probs[row * 4]),
              HalfToFloat(features->top_log_probs[row * 4 + 1]));
  }
}

TEST(Features, TextsAreCutIntoSequences) {
  Rig rig;
  rig.Input(Text(100, 'a') + Text(1, 'b') + Text(10, 'c'));
  const auto made = rig.Make();
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto sequences = rig.Sequences();
  ASSERT_EQ(sequences.size(), 3U);  // "b" is shorter than 4 tokens
  EXPECT_EQ(sequences[0].size(), 64U);
  EXPECT_EQ(sequences[0][0], 1);
  EXPECT_EQ(sequences[1].size(), 100U + 2 - 64);
  EXPECT_EQ(sequences[1].back(), 2);
  EXPECT_EQ(sequences[2].size(), 12U);
  EXPECT_EQ(made->tokens, 114);
  EXPECT_EQ(made->sequences, 3);
  EXPECT_EQ(made->cut, 0);
  EXPECT_EQ(rig.last.tokens, 114);
}

TEST(Features, PiecesAndTokensCanBeLimited) {
  Rig rig;
  rig.Input(Text(1000, 'a') + Text(1000, 'b'));
  rig.options.max_pieces = 2;
  ASSERT_TRUE(rig.Make().ok());
  EXPECT_EQ(rig.Sequences().size(), 4U);
  Rig few;
  few.Input(Text(1000, 'a') + Text(1000, 'b'));
  few.options.max_tokens = 100;
  EXPECT_EQ(few.Make()->tokens, 128);
  few.options.max_tokens = 1200;  // goes on where it stopped
  EXPECT_EQ(few.Make()->tokens, 1002 + 4 * 64);
  few.options.max_tokens = 0;
  EXPECT_EQ(few.Make()->tokens, 2004);
  EXPECT_EQ(few.Make()->tokens, 2004);  // nothing is left
}

// What is planned is what is written, or between the least and the most of it where the target writes.
TEST(FeaturePlan, IsWhatIsWritten) {
  const auto change = [](const std::function<void(FeatureRunOptions&)>& f) { return f; };
  for (const auto& set :
       {change([](FeatureRunOptions&) {}), change([](FeatureRunOptions& o) { o.max_pieces = 2; }),
        change([](FeatureRunOptions& o) { o.min_length = 40; }),
        change([](FeatureRunOptions& o) { o.max_tokens = 150; }),
        change([](FeatureRunOptions& o) { o.learn_from = LearnFrom::kEverything; }),
        change([](FeatureRunOptions& o) { o.write = 20; }), change([](FeatureRunOptions& o) {
          o.write = 20;
          o.write_later = true;
        })}) {
    Rig rig = TokensAlone();
    rig.Input(Text(300, 'a') + Text(1, 'b') + Text(50, 'c'));
    rig.Input(
        "{\"prompt\": \"four and three?\", \"answer\": \"seven\"}\n{\"messages\": [{\"role\": \"user\", "
        "\"content\": \"nothing to learn\"}]}\n",
        "other.jsonl");
    set(rig.options);
    const auto plan = PlanFeatures(rig.options, Bytes(), 1e6);
    const auto made = rig.Make();
    ASSERT_TRUE(made.ok() && plan.has_value()) << made.status().message();
    EXPECT_FALSE(plan->estimated);
    EXPECT_LE(plan->least_tokens, made->tokens);
    EXPECT_GE(plan->tokens, made->tokens);
    const bool exact = rig.options.write == 0 || rig.options.write_later;
    EXPECT_EQ(plan->tokens == plan->least_tokens, exact);
    EXPECT_GT(plan->least_tokens, 0);
  }
}

// Each file has its part of the time, and what is left of that of files before it.
TEST(FeaturePlan, GoesByTheBeginningsOfFilesWithoutTimeForMore) {
  const SimulatedClock clock;
  FeatureTokenizer tokenizer = Bytes();
  int n_tokenised = 0;
  tokenizer.encode = [&, encode = Bytes().encode](const std::string& text, bool beginning, bool special) {
    SpendMs(1);
    ++n_tokenised;
    return encode(text, beginning, special);
  };
  std::string texts;
  for (int i = 0; i < 3000; ++i) texts += Text(1000, 'a');
  Rig rig;
  rig.Input(Text(10, 'b'));
  rig.Input(texts, "long.jsonl");
  auto plan = PlanFeatures(rig.options, tokenizer, 1200);
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(plan->estimated);
  EXPECT_NEAR(static_cast<double>(plan->tokens), 3000 * 1002, 3000 * 50);
  EXPECT_NEAR(n_tokenised, 1200, 1);
  EXPECT_EQ(plan->tokens, plan->least_tokens);
  rig.options.max_tokens = 2'000'000;
  plan = PlanFeatures(rig.options, tokenizer, 1200);
  EXPECT_EQ(plan->tokens, 2'000'000);
  EXPECT_TRUE(plan->estimated);
  rig.options.max_tokens = 7000;
  plan = PlanFeatures(rig.options, tokenizer, 1200);
  EXPECT_FALSE(plan->estimated);
  EXPECT_LT(plan->tokens, 7000 + 64);
}

TEST(FeaturePlan, EndsWhereTheRunWould) {
  Rig rig;
  rig.Input(Text(40, 'a') + "{\"text\": 3}\n" + Text(50, 'b'));
  EXPECT_EQ(PlanFeatures(rig.options, Bytes(), 1e6)->tokens, 42);
  rig.options.inputs.emplace_back("/dev/null");  // what may not give the same twice
  EXPECT_FALSE(PlanFeatures(rig.options, Bytes(), 1e6).has_value());
}

TEST(FeaturePlan, NeedsRoomForWhatIsNotThereYet) {
  EXPECT_TRUE(HasRoom({.tokens = 100, .least_tokens = 100}, 10, 0, 1000));
  EXPECT_FALSE(HasRoom({.tokens = 100, .least_tokens = 100}, 10, 0, 999));
  EXPECT_TRUE(HasRoom({.tokens = 100, .least_tokens = 100}, 10, 600, 400));
  EXPECT_TRUE(HasRoom({.tokens = 200, .least_tokens = 100}, 10, 0, 1000));
  EXPECT_TRUE(HasRoom({.tokens = 100, .least_tokens = 100, .estimated = true}, 10, 0, 800));
  EXPECT_FALSE(HasRoom({.tokens = 100, .least_tokens = 100, .estimated = true}, 10, 0, 799));
}

// A run that is stopped anywhere ends with the shards' contents of one that is not.
TEST(Features, AStoppedRunGoesOn) {
  const std::string text = Text(300, 'a') + Text(90, 'b') + Text(64, 'c') + Text(200, 'd');
  Rig whole;
  whole.Input(text);
  ASSERT_TRUE(whole.Make().ok());
  const auto expected = whole.Sequences();
  for (const int shard_tokens : {100, 100000}) {
    Rig rig;
    rig.Input(text);
    rig.options.shard_tokens = shard_tokens;
    int stops = 0;
    while (true) {
      const auto made = rig.Make(8);
      if (made.ok()) break;
      ASSERT_EQ(made.status().code(), StatusCode::kCancelled);
      ASSERT_LT(++stops, 30);
    }
    EXPECT_GE(stops, 3);
    EXPECT_EQ(rig.Sequences(), expected);
  }
}

TEST(Features, AShardEndsBeforeItsBytesAreMore) {
  const std::string text = Text(300, 'a') + Text(90, 'b') + Text(64, 'c') + Text(200, 'd');
  Rig whole, rig;
  for (Rig* each : {&whole, &rig}) each->Input(text);
  ASSERT_TRUE(whole.Make().ok());
  const int64_t bytes = FeatureBytesPerToken(rig.target, rig.options.keep, 0);
  rig.options.shard_bytes = 150 * bytes;
  const auto made = rig.Make();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(rig.Sequences(), whole.Sequences());
  const auto shards = OpenFeatureShards(rig.options.output);
  ASSERT_TRUE(shards.ok());
  EXPECT_GE(shards->size(), 5U);
  for (const auto& shard : *shards) {
    EXPECT_LE(shard->n_tokens(), 150);
    if (shard->header().last) continue;
    EXPECT_GT(shard->n_tokens(), 150 - 64);
  }
  // A sequence that is more by itself has a shard of its own.
  Rig small;
  small.Input(text);
  small.options.shard_bytes = 1;
  ASSERT_TRUE(small.Make().ok());
  EXPECT_EQ(small.Sequences(), whole.Sequences());
  EXPECT_EQ(OpenFeatureShards(small.options.output)->size(), whole.Sequences().size());
}

// The error says which document is wrong, and what was made of those before it stays.
TEST(Features, AWrongDocumentIsNamedAndCostsNothing) {
  for (const auto& [wrong, why] :
       {std::pair("{\"text\": 3}\n", "\"text\" must be a string"),
        std::pair("{\"messages\": [{\"role\": \"user\", \"content\": \"take back\"}]}\n", "chat template")}) {
    Rig rig;
    rig.Input(Text(40, 'a') + Text(50, 'b') + wrong + Text(30, 'c'));
    FeatureTokenizer tokenizer = Bytes();
    tokenizer.apply_template = [](const std::vector<TrainingMessage>&, bool) -> Result<std::string> {
      return Unsupported("the chat template raised an exception");
    };
    const auto make = [&] {
      return MakeFeatures(rig.options, rig.target, tokenizer, rig.extractor,
                          [](const FeatureProgress&) { return true; });
    };
    const auto failed = make();
    EXPECT_THAT(failed.status().message(), ::testing::AllOf(HasSubstr("in.jsonl:3: "), HasSubstr(why)));
    ASSERT_EQ(rig.Sequences().size(), 2U);
    EXPECT_EQ(rig.Sequences()[1].size(), 52U);
    // The next call is no more than that error.
    EXPECT_EQ(make().status().message(), failed.status().message());
    EXPECT_EQ(rig.Sequences().size(), 2U);
  }
}

TEST(Features, AFullDiskKeepsWhatIsComplete) {
  Rig rig, whole;
  for (Rig* each : {&rig, &whole}) {
    each->options.shard_tokens = 100;
    each->Input(Text(300, 'a') + Text(200, 'b'));
  }
  ASSERT_TRUE(whole.Make().ok());
  ASSERT_EQ(rig.Make(9).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(rig.output_failed);
  const auto names = [&] {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(rig.options.output)) {
      all.push_back(entry.path().string());
    }
    std::ranges::sort(all);
    return all;
  };
  const std::vector<std::string> before = names();
  const std::string last = ReadText(before.back());
  const std::string next = FeatureShardPath(rig.options.output, static_cast<int>(before.size()));
  {
    const FileSizeLimit limit(1000);
    const Status status = rig.Make().status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr(next + ": cannot be written"));
    EXPECT_TRUE(rig.output_failed);
  }
  EXPECT_EQ(names(), before);
  EXPECT_EQ(ReadText(before.back()), last);
  ASSERT_TRUE(rig.Make().ok());
  EXPECT_EQ(rig.Sequences(), whole.Sequences());
}

TEST(Features, AFolderThatCannotBeMadeIsAnErrorOfTheOutput) {
  Rig rig;
  rig.Input(Text(40, 'a'));
  rig.options.output = rig.options.inputs.front() + "/out";
  EXPECT_THAT(rig.Make().status().message(), HasSubstr("in.jsonl/out: cannot be made: Not a directory"));
  EXPECT_TRUE(rig.output_failed);
  rig.options.inputs = {rig.folder.File("nothing.jsonl")};
  EXPECT_FALSE(rig.Make().ok());
  EXPECT_FALSE(rig.output_failed);
}

// The target ends texts and answers prompts; a stopped run goes on with what was not begun.
TEST(Features, TheTargetWritesOn) {
  std::string text = Text(10, 'a') + Text(100, 'b') + "{\"prompt\":\"" + std::string(90, 'x') + "\"}\n";
  for (int i = 0; i < 70; ++i) text += "{\"prompt\":\"p\",\"answer\":\"not this\"}\n";
  Rig whole(2);
  whole.Input(text);
  whole.options.write = 8;
  whole.options.write_together = 64;
  const auto made = whole.Make();
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto expected = whole.Sequences();
  ASSERT_EQ(expected.size(), 72U);
  EXPECT_EQ(made->cut, 1);  // the prompt that is longer than 64 - 8 tokens
  EXPECT_EQ(expected[0].size(), 11U + 8);
  EXPECT_EQ(expected[1].size(), 64U);  // of a text the beginning is taken
  const std::string prompt = "<user>p.<assistant>";
  EXPECT_EQ(expected[2].size(), 1 + prompt.size() + 8);
  const auto shards = OpenFeatureShards(whole.options.output);
  ASSERT_TRUE(shards.ok());
  const FeatureSequence first = shards->front()->sequence(0);
  EXPECT_EQ(std::ranges::count(first.loss, 1), 8);
  EXPECT_EQ(first.loss[10], 0);
  EXPECT_EQ(first.loss[11], 1);
  EXPECT_EQ(first.top_ids[2 * 10], first.tokens[11]);  // the first one is written at temperature 0
  Rig rig(2);
  rig.Input(text);
  rig.options.write = 8;
  rig.options.write_together = 64;
  EXPECT_FALSE(rig.Make(3).ok());
  EXPECT_EQ(rig.Make(200).status().code(), StatusCode::kCancelled);  // among the second 64
  EXPECT_EQ(rig.Sequences().size(), 63U);
  ASSERT_TRUE(rig.Make().ok());
  EXPECT_EQ(rig.Sequences(), expected);
  rig.options.learn_from = LearnFrom::kEverything;
  EXPECT_THAT(rig.Make().status().message(), HasSubstr("another model, text or options"));
  rig.options.output = rig.folder.File("everything");
  ASSERT_TRUE(rig.Make().ok());
  const auto all = OpenFeatureShards(rig.options.output);
  EXPECT_EQ(std::ranges::count(all->front()->sequence(0).loss, 0), 0);
  rig.options.write = 64;
  EXPECT_THAT(rig.Make().status().message(),
              HasSubstr("--write 64: must be from 0 to less than --length 64"));
}

TEST(Features, LessIsWrittenTogetherWhereAShardHoldsLittle) {
  std::string text;
  for (int i = 0; i < 70; ++i)
    text += "{\"prompt\":\"" + std::string(1, static_cast<char>('a' + i % 26)) + "\"}\n";
  Rig whole(2), rig(2);
  for (Rig* each : {&whole, &rig}) {
    each->Input(text);
    each->options.write = 8;
  }
  ASSERT_TRUE(whole.Make().ok());
  rig.options.shard_bytes = 700 * FeatureBytesPerToken(rig.target, rig.options.keep, 2);
  ASSERT_TRUE(rig.Make().ok());
  EXPECT_EQ(rig.Sequences(), whole.Sequences());
  const auto shards = OpenFeatureShards(rig.options.output);
  ASSERT_TRUE(shards.ok());
  EXPECT_GE(shards->size(), 3U);
  for (const auto& shard : *shards) EXPECT_LE(shard->n_tokens(), 700);
}

// Given texts and written ones are the same, whatever is kept of them.
TEST(Features, TokensAloneCanBeKept) {
  const std::string text = Text(100, 'a') + "{\"prompt\":\"p\",\"answer\":\"an answer\"}\n" + Text(10, 'c');
  for (const int write : {0, 8}) {
    Rig whole, rig = TokensAlone();
    for (Rig* each : {&whole, &rig}) {
      each->Input(text);
      each->options.write = write;
    }
    ASSERT_TRUE(whole.Make().ok());
    EXPECT_EQ(rig.Make(2).status().code(), StatusCode::kCancelled);
    const auto made = rig.Make();
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(rig.Sequences(), whole.Sequences());
    EXPECT_EQ(rig.Learned(), whole.Learned());
    const auto shards = OpenFeatureShards(rig.options.output);
    EXPECT_FALSE(shards->front()->header().keep.any());
    EXPECT_EQ(shards->front()->sequence(0).positions.back(), 63);
    // No folder of one kind becomes one of the other.
    whole.options.output = rig.options.output;
    EXPECT_THAT(whole.Make().status().message(), HasSubstr("begun with (tiny, --keep none --top-k 0"));
  }
}

// Beginnings as they would be written on from, for longspec-write.
TEST(Features, EndsCanBeLeftForLater) {
  std::string text = Text(10, 'a') + Text(100, 'b') + "{\"prompt\":\"" + std::string(90, 'x') + "\"}\n";
  for (int i = 0; i < 70; ++i) text += "{\"prompt\":\"p\",\"answer\":\"not this\"}\n";
  Rig written, rig = TokensAlone();
  for (Rig* each : {&written, &rig}) {
    each->Input(text);
    each->options.write = 8;
    each->options.write_together = 64;
  }
  rig.options.write_later = true;
  rig.options.shard_tokens = 100;
  EXPECT_EQ(rig.Make(70).status().code(), StatusCode::kCancelled);  // among the second 64
  EXPECT_EQ(rig.Sequences().size(), 63U);
  const auto made = rig.Make();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->sequences, 72);
  ASSERT_TRUE(written.Make().ok());
  const auto beginnings = rig.Sequences(), whole = written.Sequences();
  ASSERT_EQ(beginnings.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(beginnings[i].size() + 8, whole[i].size()) << i;
    EXPECT_TRUE(std::equal(beginnings[i].begin(), beginnings[i].end(), whole[i].begin())) << i;
  }
  EXPECT_EQ(std::ranges::max(rig.Learned()), 0);
  const auto shards = OpenFeatureShards(rig.options.output);
  EXPECT_THAT(shards->back()->header().source, HasSubstr("--write 8 --write-later, in.jsonl"));
  rig.options.write_later = false;
  EXPECT_THAT(rig.Make().status().message(), HasSubstr("another model, text or options"));
}

TEST(Features, WhatIsEndedLaterHasTokensAlone) {
  const auto error = [](Rig rig, int write) {
    rig.Input(Text(40, 'a'));
    rig.options.write = write;
    rig.options.write_later = true;
    return rig.Make().status().message();
  };
  const auto is_said = HasSubstr("--write-later: with --write N and --keep none, and without --top-k");
  EXPECT_THAT(error(TokensAlone(), 0), is_said);
  EXPECT_THAT(error(Rig(), 8), is_said);
  EXPECT_THAT(error(Rig(2, CacheType::kF16, 64, {.kv = false}), 8), is_said);
  EXPECT_EQ(error(TokensAlone(), 8), "");
}

TEST(Features, AConversationWithoutAQuestionHasNoAnswer) {
  const TrainingDocument document = {.text = "", .messages = {{"assistant", "a"}}};
  EXPECT_THAT(TokenizeBeginning(document, Bytes()).status().message(), HasSubstr("nothing to answer"));
}

TEST(Features, AnotherRunsFolderIsRefused) {
  Rig rig;
  rig.Input(Text(100, 'a'));
  ASSERT_TRUE(rig.Make().ok());
  rig.options.min_length = 5;
  EXPECT_THAT(rig.Make().status().message(), HasSubstr("another model, text or options"));
}

// What is kept depends on them.
TEST(Features, AFolderOfOtherCacheTypesIsRefused) {
  Rig rig, other(0, CacheType::kQ8_0);
  for (Rig* each : {&rig, &other}) each->Input(Text(100, 'a'));
  other.options.output = rig.options.output;
  ASSERT_TRUE(rig.Make().ok());
  EXPECT_THAT(other.Make().status().message(), HasSubstr("another model, text or options"));
  EXPECT_TRUE(rig.Make().ok());
  other.options.output = other.folder.File("out");
  ASSERT_TRUE(other.Make().ok());
  rig.options.output = other.options.output;
  EXPECT_THAT(rig.Make().status().message(), HasSubstr("begun with (tiny, --keep kv --top-k 0 --length 64"));
  EXPECT_THAT(rig.Make().status().message(), HasSubstr("-ctk q8_0 -ctv q8_0, in.jsonl"));
}

TEST(Features, TheArithmeticIsNamedWhereItIsNotTheDefault) {
  const TinyModelOptions model = {.n_heads = 2, .n_kv_heads = 1};
  for (const auto& [bf16_weights, type, text] :
       {std::tuple(Bf16Arithmetic::kF32, CacheType::kF16, ""),
        std::tuple(Bf16Arithmetic::kBF16, CacheType::kF16, " --bf16-weights bf16"),
        std::tuple(Bf16Arithmetic::kBF16Amx, CacheType::kQ8_0,
                   " -ctk q8_0 -ctv q8_0 --bf16-weights bf16-amx")}) {
    TinyTarget tiny(model, {}, 1, bf16_weights);
    const FeatureExtractor extractor(&tiny.target(), tiny.NewCache(64, type), 24, 0);
    EXPECT_EQ(extractor.arithmetic(), text);
  }
}

TEST(Features, BadOptionsAndEmptyTextsAreErrors) {
  Rig rig;
  const auto error = [&] { return rig.Make().status().message(); };
  EXPECT_THAT(error(), HasSubstr("no file"));
  rig.Input("");
  EXPECT_THAT(error(), HasSubstr("no document has 4 tokens"));
  rig.options.length = 513;
  EXPECT_THAT(error(), HasSubstr("--length 513: must be from 2 to the model's context of 512"));
  rig.options.length = 64;
  rig.options.top_k = 1000;
  EXPECT_THAT(error(), HasSubstr("--top-k 1000"));
  rig.options.top_k = 0;
  rig.options.shard_tokens = 0;
  EXPECT_THAT(error(), HasSubstr("--shard-tokens"));
  rig.options.shard_tokens = 10;
  rig.options.inputs.push_back("/nonexistent/x");
  EXPECT_THAT(error(), HasSubstr("/nonexistent/x"));
  rig.options.inputs.pop_back();
  rig.options.output = rig.folder.File("in.jsonl") + "/out";
  EXPECT_THAT(error(), HasSubstr("out: "));
}

LabelledTokens Labelled(const TrainingDocument& document, LearnFrom learn) {
  auto labelled = TokenizeDocument(document, learn, Bytes());
  EXPECT_TRUE(labelled.ok()) << labelled.status().message();
  return *labelled;
}

std::string Learned(const LabelledTokens& labelled) {
  std::string text;
  for (size_t i = 0; i < labelled.tokens.size(); ++i) {
    if (labelled.learn[i] == 1)
      text += labelled.tokens[i] < 3 ? '$' : static_cast<char>(labelled.tokens[i] - 3);
  }
  return text;
}

TEST(TokenizeDocument, LearnsAnswersOrEverything) {
  const TrainingDocument chat = {
      .text = "",
      .messages = {{"system", "s"}, {"user", "u"}, {"assistant", "a"}, {"user", "v"}, {"assistant", "b"}}};
  const LabelledTokens answers = Labelled(chat, LearnFrom::kAnswers);
  EXPECT_EQ(Learned(answers), "a.b.");
  const LabelledTokens everything = Labelled(chat, LearnFrom::kEverything);
  EXPECT_EQ(Learned(everything), "<user>u.a.<user>v.b.");
  EXPECT_EQ(everything.tokens, answers.tokens);
  EXPECT_EQ(answers.tokens.front(), 1);
  EXPECT_EQ(std::ranges::count(answers.tokens, 1), 1);
  EXPECT_EQ(Learned(Labelled({.text = "xy", .messages = {}}, LearnFrom::kAnswers)), "$xy$");
  EXPECT_EQ(Learned(Labelled({.text = "", .messages = {{"assistant", "a"}}}, LearnFrom::kAnswers)),
            "$<assistant>a.");
}

TEST(TokenizeDocument, ATemplateThatTakesTextBackIsRefused) {
  FeatureTokenizer tokenizer = Bytes();
  tokenizer.apply_template = [](const std::vector<TrainingMessage>& messages, bool) -> Result<std::string> {
    return std::to_string(messages.size());
  };
  const TrainingDocument chat = {.text = "", .messages = {{"user", "u"}, {"assistant", "a"}}};
  EXPECT_THAT(TokenizeDocument(chat, LearnFrom::kAnswers, tokenizer).status().message(),
              HasSubstr("chat template"));
}

TEST(DescribeTarget, SaysWhatADraftNeeds) {
  const auto bytes = TinyModelBytes({});
  const auto file = GgufFile::Parse(*bytes, "tiny.gguf");
  const TinyTarget tiny({}, {.scaling = RopeOptions::Scaling::kLinear, .scale = 4.0F});
  const FeatureTarget target = DescribeTarget(*tiny.parts().sizes, **file);
  EXPECT_EQ(target.n_embd, 64);
  EXPECT_EQ(target.rope_scaling, "linear");
  EXPECT_EQ(target.rope_factor, 4.0);
  EXPECT_EQ(target.n_ctx, 4 * DescribeTarget(*TinyTarget({}, {}).parts().sizes, **file).n_ctx);
  ASSERT_EQ(target.rope_frequencies.size(), 8U);
  EXPECT_DOUBLE_EQ(target.rope_frequencies[0], 0.25);
  EXPECT_DOUBLE_EQ(target.rope_frequencies[1], std::pow(10000.0, -1.0 / 8) / 4);
  EXPECT_EQ(target.fingerprint, TargetFingerprint(**file));
}

}  // namespace
}  // namespace longspec::testing

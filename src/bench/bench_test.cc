// SPDX-License-Identifier: Apache-2.0
//
// selfcheck passes on this program and fails on broken kernels; measurements measure what they say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/files.h"
#include "bench/forced_trees.h"
#include "bench/loaded_model.h"
#include "bench/measure.h"
#include "bench/measure_answers.h"
#include "bench/measure_attention.h"
#include "bench/measure_batch.h"
#include "bench/measure_draft.h"
#include "bench/selfcheck.h"
#include "draft/drafter.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_text/testing/priors.h"
#include "engine/gguf_tokenizer.h"
#include "formats/gguf.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kernels/tables.h"
#include "kernels/testing/row_dependent_table.h"
#include "lab/testing/with_lab.h"
#include "model/testing/far_target.h"

namespace longspec {
namespace {

class BenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModelOptions tiny;
    tiny.dtype = DType::kQ4_1;
    tiny.context_length = 4096;
    ASSERT_TRUE(WriteTinyModel(tiny, path_).ok());
    options_.model.path = path_;
    options_.model.threads = 2;
    for (int i = 0; i < 300; ++i) options_.prompt.push_back(3 + i * i % 97);
    options_.n_predict = 40;
  }

  Result<bool> Run(std::vector<const kernels::KernelTable*> tables) {
    options_.tables = std::move(tables);
    lines_.clear();
    return RunSelfcheck(options_, [&](const CheckLine& line) { lines_.push_back(line); });
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("tiny.gguf");
  SelfcheckOptions options_;
  std::vector<CheckLine> lines_;
};

TEST_F(BenchTest, SelfcheckPassesOnEveryTable) {
  const auto result = Run(kernels::Available());
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(*result);
  for (const CheckLine& line : lines_) {
    EXPECT_TRUE(line.identical || line.skipped) << line.name << ": " << line.detail;
  }
  EXPECT_GE(lines_.size(), 30U);
  // Those of one way to draft; with all of them in the same passes each is named once more.
  const auto named = [&](const std::string& part) {
    return std::count_if(lines_.begin(), lines_.end(), [&](const CheckLine& l) {
      return l.name.find(part) != std::string::npos && !l.name.starts_with("all at once");
    });
  };
  EXPECT_TRUE(std::any_of(lines_.begin(), lines_.end(),
                          [](const CheckLine& l) { return l.name.starts_with("all at once: ngram"); }));
  for (const char* temperature : {", temp 0.0", ", temp 0.7", ", temp 1.0"}) {
    const auto at = [&](const std::string& part) { return named(part + temperature); };
    for (const char* type : {"ngram", "suffix", "recycling", "magicdec", "partial", "replay"}) {
      EXPECT_EQ(at(std::string(type) + " chain"), 1) << type;
      EXPECT_EQ(at(std::string(type) + " tree of width 4"), 1) << type;
    }
    for (const char* way :
         {"ngram,suffix", "suffix,recycling", "auto", "auto, adaptive policy", "none again",
          "ppm default shape", "prefill in chunks of 7", "random trees of 40 nodes, every accepted length",
          "five at once: plain", "five at once: half the prompt, guessing",
          "five at once: random trees, shared keys", "threads 1 against 2, plain",
          "threads 3 against 2, random trees"}) {
      EXPECT_EQ(at(way), 1) << way;
    }
    const bool has_dice = std::string(temperature) != ", temp 0.0";
    EXPECT_EQ(at("auto without dice"), has_dice ? 1 : 0);
    EXPECT_EQ(at("auto without a prior"), 0);  // there is none
    if (kernels::Available().size() > 1) {
      EXPECT_EQ(
          at(std::string("kernels reference against ") + kernels::Available().front()->name + ", plain"), 1);
    }
  }
}

// Every arithmetic that is not the default, each under all drafters, chunks, threads and tables.
TEST_F(BenchTest, SelfcheckPassesInEveryArithmetic) {
  TinyModelOptions tiny;
  tiny.n_embd = 128;  // heads of 32, as i8 needs them
  tiny.dtype = DType::kBF16;
  tiny.context_length = 4096;
  ASSERT_TRUE(WriteTinyModel(tiny, path_).ok());
  options_.temperatures = {0.7F};
  for (const auto& [weights, cache] : {std::pair{Bf16Arithmetic::kBF16, CacheType::kBF16},
                                       {Bf16Arithmetic::kBF16Amx, CacheType::kBF16Amx},
                                       {Bf16Arithmetic::kF32, CacheType::kI8}}) {
    options_.model.bf16_weights = weights;
    options_.model.cache_type_k = options_.model.cache_type_v = cache;
    const auto result = Run(kernels::Available());
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(*result);
    for (const CheckLine& line : lines_) {
      EXPECT_TRUE(line.identical || line.skipped) << line.name << ": " << line.detail;
    }
    EXPECT_GE(lines_.size(), 20U);
  }
}

// Drafters that were not checked are named, with the reason; a drafter that is neither checked nor named is a
// gap.
TEST_F(BenchTest, SelfcheckNamesWhatItSkips) {
  options_.temperatures = {0.7F};
  options_.model.threads = 1;
  const auto result = Run({kernels::Available().front()});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(*result);
  for (const std::string& type : DrafterNames()) {
    EXPECT_TRUE(std::any_of(lines_.begin(), lines_.end(), [&](const CheckLine& l) {
      return l.name.starts_with(type);
    })) << type;
  }
  for (const CheckLine& line : lines_) {
    const DrafterEntry* entry = FindDrafter(line.name);
    EXPECT_EQ(line.skipped, entry != nullptr && entry->reads != nullptr) << line.name;
    if (line.skipped) {
      EXPECT_NE(line.detail.find("--spec-draft-model"), std::string::npos) << line.detail;
    }
  }
}

TEST_F(BenchTest, SelfcheckRunsDraftModels) {
  options_.temperatures = {0.0F};
  options_.model.threads = 1;
  options_.draft_models = {path_};
  const auto result = Run({kernels::Available().front()});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(*result);
  const auto found = std::find_if(lines_.begin(), lines_.end(),
                                  [](const CheckLine& l) { return l.name == "lm chain, temp 0.0"; });
  ASSERT_NE(found, lines_.end());
  // The model drafts for itself: all is accepted.
  EXPECT_NE(found->detail.find("35 drafted, 8.00 tokens a step"), std::string::npos) << found->detail;
  // On less than it could see, and in the same passes as all others.
  for (const char* way : {"lm with SpecExtend", "partial with lm inside", "all at once: plain",
                          "all at once: lm chain", "all at once: lm with SpecExtend",
                          "all at once: partial with lm inside", "all at once: magicdec chain"}) {
    const auto line = std::ranges::find(lines_, std::string(way) + ", temp 0.0", &CheckLine::name);
    ASSERT_NE(line, lines_.end()) << way;
    EXPECT_EQ(line->detail.find(" 0 drafted") == std::string::npos, !line->name.ends_with("plain, temp 0.0"))
        << line->name << ": " << line->detail;
  }
  // One that does not fit is an error, no line.
  options_.draft_models = {"/nonexistent/draft"};
  EXPECT_FALSE(Run({kernels::Available().front()}).ok());
}

TEST_F(BenchTest, SelfcheckUsesThePriorThatIsFound) {
  const testing::Folder folder;
  options_.model.path = folder.File("tiny.gguf");
  std::filesystem::copy_file(path_, options_.model.path);
  std::filesystem::create_directory(folder.File("priors"));
  const std::string prior = folder.File("priors/x.ngrams");
  const auto file = *GgufFile::Open(path_);
  testing::WritePrior(prior, options_.prompt, 384,
                      PriorsOf(*file, *TokenizerSpecFromGguf(*file), 384).tokenizer);
  options_.temperatures = {0.7F};
  options_.model.threads = 1;
  const auto result = Run({kernels::Available().front()});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(*result);
  const auto detail = [&](const std::string& name) {
    const auto line = std::ranges::find(lines_, name + ", temp 0.7", &CheckLine::name);
    return line == lines_.end() ? "no line" : line->detail;
  };
  for (const char* name :
       {"ppm default shape", "ppm chain", "auto", "auto, adaptive policy", "auto without dice"}) {
    EXPECT_NE(detail(name).find(", prior " + prior + ", "), std::string::npos)
        << name << ": " << detail(name);
  }
  EXPECT_NE(detail("auto without a prior").find(", prior none"), std::string::npos);
  EXPECT_EQ(detail("suffix chain").find("prior"), std::string::npos);
}

TEST_F(BenchTest, SelfcheckCatchesKernelsThatDependOnTheNumberOfRows) {
  options_.temperatures = {0.0F};
  options_.model.threads = 1;
  const kernels::KernelTable broken = kernels::testing::RowDependentTable();
  const auto result = Run({&broken});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(*result);
  const auto failed = std::find_if(lines_.begin(), lines_.end(),
                                   [](const CheckLine& l) { return !l.identical && !l.skipped; });
  ASSERT_NE(failed, lines_.end());
  EXPECT_NE(failed->detail.find("differ"), std::string::npos) << failed->detail;
}

TEST_F(BenchTest, ForcedTreesReachEveryAcceptedLength) {
  std::vector<int32_t> answer(200);
  for (size_t i = 0; i < answer.size(); ++i) answer[i] = static_cast<int32_t>(i % 50);
  const auto drafter = MakeForcedTreeDrafter(answer, 60, 3);
  std::vector<int32_t> committed = {1, 2, 3};
  ASSERT_TRUE(drafter->Follow(committed).ok());
  for (int round = 0; round < 27; ++round) {
    TokenTree tree(committed.back());
    ASSERT_TRUE(drafter->Propose({.max_nodes = 8, .max_depth = 8}, committed, tree).ok());
    EXPECT_LE(tree.size(), 9);
    int node = 0, accepted = 0;
    for (;; ++accepted) {
      node = tree.FindChild(node, answer[committed.size() - 3 + static_cast<size_t>(accepted)]);
      if (node < 0) break;
    }
    EXPECT_EQ(accepted, round % 9);
    committed.push_back(answer[committed.size() - 3]);
  }
}

// All that a run measures, in order.
std::vector<Measurement> Measured(const BenchOptions& bench) {
  std::vector<Measurement> seen;
  const Status status = RunBench(
      bench, [](const MachineLimits&) {}, [&](const Measurement& m) { seen.push_back(m); });
  EXPECT_TRUE(status.ok()) << status.message();
  return seen;
}

TEST_F(BenchTest, MeasuresEveryDepthAndRowCount) {
  BenchOptions bench;
  bench.model = options_.model;
  bench.depths = {300, 20};
  bench.rows = {1, 5};
  bench.repetitions = 2;
  MachineLimits machine;
  std::vector<Measurement> seen;
  std::vector<SamplingCost> sampling;
  const Status status = RunBench(
      bench, [&](const MachineLimits& limits) { machine = limits; },
      [&](const Measurement& m) { seen.push_back(m); },
      [&](const SamplingCost& cost) {
        EXPECT_EQ(seen.size(), 6U);  // last
        sampling.push_back(cost);
      });
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(seen.size(), 6U);
  EXPECT_EQ(seen[0].test, "prefill");
  EXPECT_EQ(seen[0].depth, 20);
  EXPECT_EQ(seen[1].test, "decode");
  EXPECT_EQ(seen[2].test, "rows");
  EXPECT_EQ(seen[2].rows, 5);
  for (const Measurement& m : seen) {
    EXPECT_GT(m.ms, 0);
    EXPECT_GT(m.gmac_per_second, 0);
    EXPECT_GT(m.roofline_share, 0);
  }
  EXPECT_GT(machine.read_gb_per_second, 0);
  EXPECT_GT(machine.q8_gmac_per_second, 0);
  EXPECT_GT(machine.f32_gmac_per_second, 0);
  EXPECT_GT(machine.bf16_gmac_per_second, 0);
  EXPECT_GT(machine.bf16_amx_gmac_per_second, 0);
  EXPECT_GT(machine.barrier_us, 0);
  EXPECT_LT(machine.barrier_us, 1000);  // milliseconds would be the wrong unit
  ASSERT_EQ(sampling.size(), 2U);
  EXPECT_EQ(sampling[0].filters, "none");
  EXPECT_EQ(sampling[1].filters, "default");
  for (const SamplingCost& cost : sampling) {
    EXPECT_EQ(cost.vocab, 384);
    EXPECT_EQ(cost.depth, 20);  // the shortest
    EXPECT_GT(cost.us, 0);
    EXPECT_DOUBLE_EQ(cost.share_of_step, cost.us / (1e3 * seen[1].ms));
  }
}

TEST_F(BenchTest, SamplingIsMeasuredWhereThereAreRealLogits) {
  BenchOptions bench;
  bench.model = options_.model;
  bench.depths = {20};
  bench.rows = {5};
  bench.repetitions = 1;
  std::vector<SamplingCost> sampling;
  const auto run = [&] {
    sampling.clear();
    EXPECT_TRUE(RunBench(
                    bench, [](const MachineLimits&) {}, [](const Measurement&) {},
                    [&](const SamplingCost& cost) { sampling.push_back(cost); })
                    .ok());
    return sampling.size();
  };
  ASSERT_EQ(run(), 2U);
  EXPECT_GT(sampling[0].us, 0);
  EXPECT_EQ(sampling[0].share_of_step, 0);  // no step of one row
  bench.made_up_context = true;
  EXPECT_EQ(run(), 0U);
  bench.made_up_context = false;
  bench.attention_only = true;
  EXPECT_EQ(run(), 0U);
}

TEST_F(BenchTest, MadeUpContextsNeedNoPrefill) {
  BenchOptions bench;
  bench.model = options_.model;
  bench.depths = {300, 20};
  bench.rows = {1, 3};
  bench.repetitions = 1;
  bench.made_up_context = true;
  const std::vector<Measurement> seen = Measured(bench);
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0].test, "decode");
  EXPECT_EQ(seen[3].depth, 300);
  EXPECT_GT(seen[3].ms, 0);
}

TEST_F(BenchTest, MeasuresAttentionOfChainsAndTrees) {
  BenchOptions bench;
  bench.model = options_.model;
  bench.depths = {300, 20};
  bench.rows = {1, 30};
  bench.repetitions = 1;
  bench.attention_only = true;
  const std::vector<Measurement> seen = Measured(bench);
  ASSERT_EQ(seen.size(), 6U);
  EXPECT_EQ(seen[0].test, "attention");
  EXPECT_EQ(seen[0].rows, 1);
  EXPECT_EQ(seen[1].test, "attention");
  EXPECT_EQ(seen[2].test, "tree");
  EXPECT_EQ(seen[2].rows, 30);
  EXPECT_EQ(seen[2].depth, 20);
  for (const Measurement& m : seen) {
    EXPECT_GT(m.ms, 0);
    EXPECT_GT(m.roofline_share, 0);
  }
}

// The target does it, so that its keys need not be the host's to read.
TEST_F(BenchTest, MeasuresAttentionOfATargetElsewhere) {
  BenchOptions bench;
  bench.model = options_.model;
  bench.depths = {300};
  bench.rows = {1, 3};
  bench.repetitions = 1;
  auto model = LoadForBench(bench.model, nullptr, 3, 512);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::unique_ptr<Target> near = std::move(model->target);
  model->target = std::make_unique<testing::FarTarget>(near.get());
  const MachineLimits limits{.read_gb_per_second = 10, .q8_gmac_per_second = 100, .f32_gmac_per_second = 50};
  int n = 0;
  const Status status = MeasureAttention(bench, *model, limits, [&](const Measurement& m) {
    EXPECT_GT(m.ms, 0);
    ++n;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(n, 3);
}

TEST(Roofline, IsTheSlowerOfReadingAndComputing) {
  const MachineLimits limits{.read_gb_per_second = 10,
                             .q8_gmac_per_second = 100,
                             .f32_gmac_per_second = 20,
                             .bf16_gmac_per_second = 40,
                             .bf16_amx_gmac_per_second = 200};
  EXPECT_DOUBLE_EQ(LeastMs({.bytes = 1e9}, limits), 100);
  EXPECT_DOUBLE_EQ(LeastMs({.bytes = 1e9, .q8_macs = 1e9}, limits), 100);
  EXPECT_DOUBLE_EQ(LeastMs({.bytes = 1e9, .q8_macs = 1e10, .f32_macs = 1e9}, limits), 150);
  EXPECT_DOUBLE_EQ(LeastMs({.q8_macs = 1e10, .f32_macs = 1e9, .bf16_macs = 1e9}, limits), 175);
  EXPECT_DOUBLE_EQ(LeastMs({.bf16_amx_macs = 1e9}, limits), 5);
  Work work;
  work.AddAttention({.k_type = CacheType::kBF16, .v_type = CacheType::kF16}, 7);
  work.AddAttention({.k_type = CacheType::kQ8_0, .v_type = CacheType::kBF16}, 1);
  EXPECT_DOUBLE_EQ(work.bf16_macs, 8);
  EXPECT_DOUBLE_EQ(work.f32_macs, 8);
  EXPECT_DOUBLE_EQ(work.macs(), 16);
  work.AddAttention({.k_type = CacheType::kBF16Amx, .v_type = CacheType::kBF16Amx}, 2);
  work.Add("q8", 1);
  work.Add("q8k", 2);
  work.AddAttention({.k_type = CacheType::kI8, .v_type = CacheType::kI8}, 4);
  EXPECT_DOUBLE_EQ(work.bf16_amx_macs, 4);
  EXPECT_DOUBLE_EQ(work.q8_macs, 11);
}

// Each wrong number is refused by the name of its option.
TEST_F(BenchTest, RefusesNonsense) {
  BenchOptions bench;
  bench.model = options_.model;
  const auto fails = [&](const std::string& part) {
    const Status status = RunBench(
        bench, [](const MachineLimits&) {}, [](const Measurement&) {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  bench.depths = {0};
  fails("--depth 0");
  bench.depths = {10};
  bench.rows = {513};
  fails("--rows 513");
  bench.rows = {};
  fails("at least one");
  bench.rows = {1};
  bench.repetitions = 0;
  fails("--repetitions");
  BatchBenchOptions batches = {.model = options_.model, .depths = {0}, .sequences = {2}, .repetitions = 1};
  const auto refused = [&] { return MeasureBatches(batches, [](const BatchMeasurement&) {}).message(); };
  EXPECT_THAT(refused(), ::testing::HasSubstr("--depth 0: must be from 1"));
  batches = {.model = options_.model, .depths = {1 << 26}, .sequences = {64}, .repetitions = 1};
  EXPECT_THAT(refused(), ::testing::HasSubstr("64 sequences of it have too many positions"));
  EXPECT_FALSE(Run({}).ok());
  options_.prompt.clear();
  EXPECT_FALSE(Run({&kernels::kReferenceTable}).ok());
}

// Whole answers: every kind is measured, and of one document nearly nothing is read twice.
TEST_F(BenchTest, AnswersOfOneDocumentReadItOnce) {
  AnswersBenchOptions options = {.model = options_.model,
                                 .text = "",
                                 .depths = {300},
                                 .sequences = {1, 3},
                                 .answer = 5,
                                 .speculation = {{.type = "none"}, {.type = "ngram"}},
                                 .repetitions = 2};
  for (int i = 0; i < 400; ++i) options.text += " word" + std::to_string(i * i % 89);
  std::vector<AnswersMeasurement> all;
  const Status status = MeasureAnswers(options, [&](const AnswersMeasurement& m) { all.push_back(m); });
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(all.size(), 6U);  // one sequence, three unrelated ones, three of one document; two kinds each
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].speculation, i % 2 == 0 ? "none" : "ngram");
    EXPECT_EQ(all[i].one_document, i >= 4);
    EXPECT_EQ(all[i].tokens, all[i].sequences * 5);
    EXPECT_EQ(all[i].prompt_tokens, all[i].sequences * 300);
    // By chance two prompts begin with the same tokens; and for fewer than 32 tokens nobody waits.
    const double expected = i >= 4 ? 300 + 2 * 16 : all[i].sequences * 300;
    EXPECT_NEAR(static_cast<double>(all[i].prompt_tokens_read), expected, 2 * 32) << i;
    EXPECT_GT(all[i].ms, 0);
    EXPECT_GT(all[i].tokens_per_second(), all[i].with_prompts());
    EXPECT_GE(all[i].mean_acceptance_length, 1);
  }
  options.text = "short";
  EXPECT_EQ(MeasureAnswers(options, {}).code(), StatusCode::kInvalidArgument);
  options.sequences = {65};
  EXPECT_EQ(MeasureAnswers(options, {}).code(), StatusCode::kInvalidArgument);
}

// A proposal of so many levels beside a plain step, of a chain and of wide levels, at each depth.
TEST_F(BenchTest, MeasuresADraftsSteps) {
  testing::Folder folder;
  const auto file = *GgufFile::Open(path_);
  const ModelSpec config = *ReadModelSpec(*file, {});
  DraftBenchOptions options = {
      .model = options_.model, .speculation = {}, .depths = {20, 300}, .repetitions = 1};
  options.speculation.draft_model =
      testing::WriteDraftFolder(folder, config, testing::RandomDraft(config, 64, 3));
  std::vector<DraftMeasurement> seen;
  const Status status = MeasureDraft(options, [&](const DraftMeasurement& m) { seen.push_back(m); });
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(seen.size(), 16U);  // two depths, two widths, four levels
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].draft, "longspec");
    EXPECT_EQ(seen[i].depth, i < 8 ? 20 : 300);
    EXPECT_EQ(seen[i].width, i % 8 < 4 ? 1 : 8);
    EXPECT_EQ(seen[i].levels, static_cast<int>(i % 4) + 1);
    EXPECT_GT(seen[i].ms, 0);
    EXPECT_GT(seen[i].of_plain_step, 0);
    EXPECT_TRUE(i % 4 < 3 || seen[i].ms > seen[i - 3].ms);      // four levels take longer than one
    EXPECT_EQ(seen[i].level_barriers, seen[1].level_barriers);  // whatever the level, nodes and keys
    EXPECT_GT(seen[i].level_barriers, 10);
    EXPECT_GT(seen[i].plain_step_barriers, 10);
  }
  options.depths = {20};
  options.sequences = {1, 3};
  seen.clear();
  ASSERT_TRUE(MeasureDraft(options, [&](const DraftMeasurement& m) { seen.push_back(m); }).ok());
  ASSERT_EQ(seen.size(), 16U);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].sequences, i < 8 ? 1 : 3);
  for (const int n : {0, -1, 65}) {
    options.sequences = {n};
    EXPECT_THAT(MeasureDraft(options, [](const DraftMeasurement&) {}).message(),
                ::testing::HasSubstr("--parallel " + std::to_string(n) + ": must be from 1 to 64"));
  }
  options.sequences = {1};
  options.depths = {1};
  EXPECT_THAT(MeasureDraft(options, [](const DraftMeasurement&) {}).message(),
              ::testing::HasSubstr("--depth 1: must be from 2"));
  options.depths = {20};
  options.speculation.draft_model = path_ + ".missing";
  EXPECT_THAT(MeasureDraft(options, [](const DraftMeasurement&) {}).message(),
              ::testing::HasSubstr(".missing"));
}

}  // namespace
}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// Every drafter proposes the same whether its sequence is alone, a fork of one that has read the prompt, one
// of a batch whose prompt begins like that of another, or one of an evaluation. What it proposed is recorded,
// node by node, and compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_text/suffix_corpus.h"
#include "draft_text/testing/priors.h"
#include "engine/gguf_tokenizer.h"
#include "eval/runner.h"
#include "formats/gguf.h"
#include "lab/testing/with_lab.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using ::testing::IsEmpty;

constexpr int kPrompt = 1180;  // tokens: more than two passes of a language model, and part of a third
constexpr int kShared = 900;   // of them, those that others have too
constexpr int kVocab = 384;

// By the number of tokens that a proposal was to go on. One that was not asked for is not there.
using Proposals = std::map<size_t, std::vector<ProposedToken>>;

// A drafter with some of its options.
struct Way {
  std::string name;   // of the way, for messages
  std::string type;   // --spec-type
  std::string draft;  // of Drafts(); empty: it has none
  std::function<void(SpeculationOptions&)> set = [](SpeculationOptions&) {};
};

void SeeLittle(SpeculationOptions& o) {
  o.partial.sink = 16;
  o.partial.budget = 64;
  o.partial.window = 16;
  o.partial.refresh = 8;
}
void Extend(SpeculationOptions& o) {
  o.spec_extend.chunks = 4;
  o.spec_extend.every = 2;
  o.spec_extend.from = 100;
}

class EveryDraftersProposals : public ::testing::Test {
 protected:
  EveryDraftersProposals() {
    TinyModelOptions tiny;
    tiny.context_length = 2048;
    EXPECT_TRUE(WriteTinyModel(tiny, folder_.File("target.gguf")).ok());
    TinyModelOptions small;
    small.seed = 5;
    small.n_layers = 2;
    small.context_length = 2048;
    EXPECT_TRUE(WriteTinyModel(small, folder_.File("small.gguf")).ok());
    small.context_length = 256;  // so that it reads the end of a text
    EXPECT_TRUE(WriteTinyModel(small, folder_.File("short.gguf")).ok());
    for (int i = 0; i < kPrompt; ++i) {
      // Of tokens that are likely to be chosen, with some that are not, and with repetition.
      prompt_.push_back(i % 7 == 3 ? static_cast<int32_t>(40 + i % 50)
                                   : static_cast<int32_t>(likely_[static_cast<size_t>(i * i / 5) % 8]));
    }
    const auto file = *GgufFile::Open(folder_.File("target.gguf"));
    const auto config = *ReadModelSpec(*file, {});
    WriteDrafts(config);
    WriteData();
    testing::WritePrior(folder_.File("x.ngrams"), testing::RandomTokens(2000, 8, 250), kVocab,
                        PriorsOf(*file, *TokenizerSpecFromGguf(*file), kVocab).tokenizer);
    const std::vector<int32_t> corpus(prompt_.begin() + 300, prompt_.begin() + 800);
    EXPECT_TRUE(SuffixCorpus::Write(folder_.File("corpus"), kVocab, corpus).ok());
  }

  // A text of an evaluation, in bytes, which are tokens.
  void WriteData() const {
    std::string text;
    for (int i = 0; text.size() < 4000; ++i) text += "Line " + std::to_string(i * i % 89) + " of many, ";
    std::filesystem::create_directories(folder_.File("data"));
    std::ofstream(folder_.File("data/report.jsonl"))
        << nlohmann::json{{"id", "r1"}, {"instruction", "Sum up."}, {"prompt_text", text}, {"reference", "x"}}
               .dump()
        << "\n";
  }

  void WriteDrafts(const ModelSizes& c) {
    using namespace testing;
    const OwnHeads heads;
    const EagleShape eagle, eagle3 = {.eagle3 = true};
    drafts_["small"] = folder_.File("small.gguf");
    drafts_["short"] = folder_.File("short.gguf");
    drafts_["target"] = folder_.File("target.gguf");
    drafts_["eagle"] = WriteEagle(folder_, "eagle", c, eagle, RandomEagle(c, eagle, 4), likely_);
    drafts_["eagle3"] = WriteEagle(folder_, "eagle3", c, eagle3, RandomEagle(c, eagle3, 4), {},
                                   R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]})");
    drafts_["exit"] = WriteBlockDraft(folder_, "exit", c, RandomExit(c, heads, 3), heads, likely_,
                                      ", \"longspec_exit_layer\": 0");
    const Folder& second = folders_.emplace_back();
    drafts_["exit-feature"] = WriteBlockDraft(second, "exit", c, RandomExit(c, heads, 3, true), heads,
                                              likely_, ", \"longspec_exit_layer\": 0");
    drafts_["beagle"] = WriteBlockDraft(folder_, "beagle", c, RandomBeagle(c, heads, 3), heads, likely_);
    drafts_["medusa"] = WriteBlockDraft(folder_, "medusa", c, RandomMedusa(c, 4, 3), heads, likely_);
    drafts_["tokenswift"] = WriteBlockDraft(folder_, "tokenswift", c, RandomTokenswift(c, 3, 9));
    drafts_["longspec"] = WriteDraftFolder(folder_, c, RandomDraft(c, 64, 2), "");
    const Folder& third = folders_.emplace_back();
    drafts_["longspec-keys"] =
        WriteDraftFolder(third, c, RandomDraft(c, 64, 2), ", \"longspec_own_keys\": true");
  }

  std::vector<Way> Ways() const {
    using O = SpeculationOptions;
    std::vector<Way> ways;
    const auto add = [&](
                         const std::string& type, const std::string& draft, const std::string& what = "",
                         std::function<void(O&)> set = [](O&) {}) {
      ways.push_back({type + " " + draft + " " + what, type, draft, std::move(set)});
    };
    add("none", "");
    add("ngram", "", "hf", [](O& o) { o.ngram.rule = "hf"; });
    add("ngram", "", "lengths", [](O& o) { o.ngram.max = 6, o.ngram.min = 1; });
    add("replay", "", "", [&](O& o) { o.added = Replay({.tokens = std::vector<int32_t>(40, 201)}); });
    add("prediction", "", "", [&](O& o) {
      o.prediction.tokens = {prompt_.begin() + 50, prompt_.begin() + 150};
    });
    add("ppm", "", "", [](O& o) { o.ppm.min_prob = 0.01F; });
    add("ppm", "", "prior", [&](O& o) { o.ppm.prior = folder_.File("x.ngrams"); });
    add("suffix", "", "",
        [](O& o) { o.suffix.factor = 2, o.suffix.max_depth = 6, o.suffix.min_prob = 0.02F; });
    add("suffix", "", "corpus", [&](O& o) { o.suffix.corpus = folder_.File("corpus"); });
    add("recycling", "");
    add("magicdec", "", "", [](O& o) { o.magicdec.sink = 8, o.magicdec.window = 40; });
    add("partial", "", "", SeeLittle);
    for (const char* score : {"quest", "mean", "norm"}) {
      add("partial", "", score,
          [score](O& o) { SeeLittle(o), o.partial.score = score, o.partial.inner = "none"; });
    }
    add("partial", "", "inner nodes", [](O& o) { SeeLittle(o), o.partial.inner_n_max = 2; });
    add("partial", "small", "inner lm", [](O& o) { SeeLittle(o), o.partial.inner = "lm"; });
    add("tokenswift", "tokenswift", "", [](O& o) { SeeLittle(o), o.partial.score = "mean"; });
    for (const char* draft : {"longspec", "longspec-keys"}) add("longspec", draft);
    for (const char* type : {"eagle", "eagle3"}) {
      add(type, type);
      add(type, type, "extend", Extend);
      add(type, type, "extend to the paper's numbers", [](O& o) { o.spec_extend.enabled = true; });
      add(type, type, "chain", [](O& o) { Extend(o), o.tree = "chain"; });
    }
    add("beagle", "beagle");
    add("medusa", "medusa");
    for (const char* draft : {"exit", "exit-feature"}) add("exit", draft);
    for (const char* type : {"longspec", "eagle", "eagle3", "beagle", "medusa", "exit", "tokenswift"})
      add(type, type, "f32", [](O& o) { SeeLittle(o), o.draft_weights = "f32"; });
    for (const char* draft : {"small", "short", "target"}) {
      add("lm", draft);
      add("lm", draft, "extend", Extend);
      add("lm", draft, "tree", [](O& o) { Extend(o), o.tree = "2,3,2"; });
      add("lm", draft, "window", [](O& o) { o.lm.window = 60, o.lm.sink = 2; });
      add("lm", draft, "recent", [](O& o) { o.lm.recent = 100; });
    }
    add("lm", "small", "extend to the paper's numbers", [](O& o) { o.spec_extend.enabled = true; });
    add("grammar", "");
    for (const char* draft : {"", "eagle", "longspec", "exit-feature", "medusa", "small"}) add("auto", draft);
    add("auto", "eagle", "extend", Extend);
    add("auto", "small", "extend", Extend);
    add("suffix,lm", "short");
    add("ppm,partial,eagle3", "eagle3", "", SeeLittle);
    return ways;
  }

  GenerationRequest Request(const Way& way, const std::vector<int32_t>& tokens, int n_predict = 40) const {
    GenerationRequest request;
    request.tokens = tokens;
    request.n_predict = n_predict;
    request.ignore_eos = true;
    request.sampling.temperature = 0.7F;
    request.sampling.seed = 5;
    request.sampling.top_k = 8;
    for (const int64_t t : likely_) request.sampling.logit_bias.emplace_back(static_cast<int32_t>(t), 9.0F);
    request.speculation = Options(way);
    return request;
  }
  SpeculationOptions Options(const Way& way) const {
    SpeculationOptions options;
    options.type = way.type;
    options.policy = "fixed";
    options.draft_n_max = 5;
    options.ppm.prior = "none";
    if (!way.draft.empty()) options.draft_model = drafts_.at(way.draft);
    way.set(options);
    return OnlyRead(options, way.type);
  }

  // Models are loaded anew, and nothing is known of any text.
  std::unique_ptr<Engine> NewEngine() const {
    auto engine = Engine::Load(
        {.path = folder_.File("target.gguf"), .threads = 1, .batch_size = 200, .calibration_cache = false});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(*engine);
  }

  static void Record(GenerationRequest& request, Proposals* to) {
    request.on_proposal = [to](size_t n_text, std::span<const ProposedToken> tokens) {
      EXPECT_FALSE(to->contains(n_text));
      (*to)[n_text].assign(tokens.begin(), tokens.end());
    };
  }
  Proposals In(Engine& engine, Session& session, const Way& way, const std::vector<int32_t>& tokens) const {
    Proposals proposals;
    GenerationRequest request = Request(way, tokens);
    Record(request, &proposals);
    const auto result = engine.Generate(session, request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) {
      EXPECT_EQ(result->speculative.notice, "");
    }
    return proposals;
  }
  Proposals Alone(const Way& way, const std::vector<int32_t>& tokens) const {
    const auto engine = NewEngine();
    return In(*engine, **engine->NewSession(), way, tokens);
  }

  const std::vector<int64_t> likely_ = {200, 201, 202, 203, 204, 205, 206, 207};
  testing::Folder folder_;
  std::list<testing::Folder> folders_;
  std::vector<int32_t> prompt_;
  std::map<std::string, std::string> drafts_;
};

int Nodes(const Proposals& proposals) {
  int n = 0;
  for (const auto& [at, tokens] : proposals) n += static_cast<int>(tokens.size());
  return n;
}

// Every drafter, and all that it can be told: with each option of one its default is left once at least.
TEST_F(EveryDraftersProposals, OfAllDraftersAndOptionsThereIsAWay) {
  const std::set<std::string_view> exempt = {
      "--spec-recycling-file"};  // a file that outlives the sequence is to change what is proposed
  for (const DrafterEntry* entry : Drafters()) {
    std::vector<SpeculationOptions> of_entry;
    for (const Way& way : Ways()) {
      if (entry->Answers(way.type)) of_entry.push_back(Options(way));
    }
    EXPECT_FALSE(of_entry.empty()) << entry->name;
    for (const DrafterOption& option : entry->options) {
      if (exempt.contains(option.name())) continue;
      const bool tried = std::visit(
          [&](auto member) {
            const SpeculationOptions usual;
            return std::ranges::any_of(of_entry, [&](const SpeculationOptions& options) {
              return member.In(options) != member.In(usual);
            });
          },
          option.member);
      EXPECT_TRUE(tried) << entry->name << " " << option.name();
    }
  }
}

TEST_F(EveryDraftersProposals, AreTheSameInAFork) {
  for (const Way& way : Ways()) {
    SCOPED_TRACE(way.name);
    const Proposals alone = Alone(way, prompt_);
    if (way.type != "none" && way.type != "grammar") {
      EXPECT_GT(Nodes(alone), 40);
    }
    const auto engine = NewEngine();
    const auto parent = *engine->NewSession();
    ASSERT_TRUE(engine->Generate(*parent, Request(way, prompt_, 1)).ok());
    const auto fork = *engine->Fork(*parent), second = *engine->Fork(*parent);
    EXPECT_EQ(In(*engine, *fork, way, prompt_), alone);
    EXPECT_EQ(In(*engine, *second, way, prompt_), alone) << "after another fork has answered";
    EXPECT_EQ(In(*engine, **engine->Fork(*fork), way, prompt_), alone) << "of one that has answered";
  }
}

// A prompt of which another sequence has computed the beginning.
TEST_F(EveryDraftersProposals, AreTheSameInABatchThatSharesABeginning) {
  std::vector<int32_t> other(prompt_.begin(), prompt_.begin() + kShared);
  for (int i = 0; i < 30; ++i) other.push_back(90 + i);
  for (const Way& way : Ways()) {
    SCOPED_TRACE(way.name);
    const auto batch = [&](bool shares) {
      const auto engine = NewEngine();
      const auto scheduler = *engine->NewScheduler();
      const auto run = [&](const std::vector<int32_t>& tokens, int n_predict) {
        Proposals proposals;
        GenerationRequest request = Request(way, tokens, n_predict);
        Record(request, &proposals);
        Submission submission{.request = std::make_shared<const GenerationRequest>(request), .on_end = {}};
        int64_t known = -1;
        submission.on_end = [&](int, const Result<GenerationResult>& result) {
          ASSERT_TRUE(result.ok()) << result.status().message();
          known = result->timings.cache_n;
        };
        EXPECT_TRUE((*scheduler).Submit(std::move(submission)).ok());
        for (bool more = true; more;) more = *scheduler->RunRound();
        return std::pair(proposals, known);
      };
      if (shares) run(other, 8);
      const auto [proposals, known] = run(prompt_, 40);
      EXPECT_GE(known, shares ? kShared - 1 : 0);
      return proposals;
    };
    EXPECT_EQ(batch(true), batch(false));
  }
}

// With all of an evaluation's methods side by side, each with forks of its own, at several temperatures.
TEST_F(EveryDraftersProposals, AreTheSameInAnEvaluation) {
  for (const Way& way : Ways()) {
    if (way.type == "replay") continue;  // an evaluation plays it
    if (way.type == "none") continue;    // an evaluation has it beside all methods
    SCOPED_TRACE(way.name);
    EvalOptions options;
    options.data = folder_.File("data");
    options.out = folder_.File("out");
    options.families = {"report"};
    options.lengths = {1300};
    options.temperatures = {0.0, 0.7};
    options.n_predict = 24;
    options.runs = 2;
    options.ignore_eos = true;
    options.speculation = Options(way);
    std::string method = way.type;
    std::ranges::replace(method, ',', '+');
    method += "@fixed";
    options.methods = {"ngram", method};
    // A tree of a draft model's is none of theirs.
    if (way.type == "ngram" || !options.speculation.tree.empty()) options.methods = {method};
    std::map<double, std::vector<Proposals>> runs;  // by temperature
    options.on_proposal = [&](const std::string& of, double temperature, size_t n_text,
                              std::span<const ProposedToken> tokens) {
      if (of != options.methods.back()) return;
      std::vector<Proposals>& recorded = runs[temperature];
      if (recorded.empty() || (!recorded.back().empty() && recorded.back().rbegin()->first >= n_text))
        recorded.emplace_back();
      recorded.back()[n_text].assign(tokens.begin(), tokens.end());
    };
    ASSERT_TRUE(RunEvaluation(*NewEngine(), options, nullptr).ok());
    std::ifstream prompts(options.out + "/prompts.jsonl");
    std::string line;
    ASSERT_TRUE(std::getline(prompts, line));
    const auto tokens = nlohmann::json::parse(line)["tokens"].get<std::vector<int32_t>>();
    std::filesystem::remove_all(options.out);
    EXPECT_GT(tokens.size(), 1024U);
    for (const double temperature : options.temperatures) {
      Proposals alone;
      GenerationRequest request = Request(way, tokens, options.n_predict);
      request.sampling = options.sampling;
      request.sampling.temperature = static_cast<float>(temperature);
      request.sampling.seed = options.seed;
      Record(request, &alone);
      const auto engine = NewEngine();
      ASSERT_TRUE(engine->Generate(**engine->NewSession(), request).ok());
      ASSERT_EQ(runs[temperature].size(), 2U);
      for (const Proposals& run : runs[temperature]) EXPECT_EQ(run, alone) << temperature;
    }
  }
}

}  // namespace
}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// Whether SmolLM2 finds again what stands far back in its context, by the type of the cache: pass
// keys hidden in the report of data/demo, asked for in the very words they were given in, which is what so
// small a model can do. Greedy decoding gives a key if each of its digits is the likeliest after the ones
// before it, so one forward pass over question and answer tells both whether the key is found and how likely
// it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/source_path.h"
#include "engine/gguf_tokenizer.h"
#include "golden_model.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

using Ids = std::vector<int32_t>;

// Where keys stand, as shares of the text.
constexpr std::array kDepths = {0.1, 0.3, 0.5, 0.7, 0.9};
// Each is one token.
constexpr std::array kCities = {"London", "Paris",  "Tokyo", "Cairo",  "Madrid",
                                "Berlin", "Moscow", "Rome",  "Dublin", "Vienna"};
constexpr int kDigits = 5;

struct CacheTypes {
  CacheType k, v;
};

// A key per depth, and the tokens that give it, ask for it and are it.
struct Needle {
  Ids given, question, answer;
};
using Needles = std::array<Needle, kDepths.size()>;

struct Found {
  bool exact = false;
  double nll = 0;    // of a digit, mean
  double first = 0;  // probability of the first digit
};

struct Sums {
  int n = 0, exact = 0;
  double nll = 0, first = 0;

  Sums() = default;
  explicit Sums(const std::vector<Found>& all) : n(static_cast<int>(all.size())) {
    for (const Found& found : all) {
      exact += found.exact ? 1 : 0;
      nll += found.nll;
      first += found.first;
    }
  }
  double mean_nll() const { return nll / n; }
  double mean_first() const { return first / n; }
};

// The mean of (b's nll - a's) and its standard error, needle by needle.
std::pair<double, double> Difference(const std::vector<Found>& a, const std::vector<Found>& b) {
  const auto n = static_cast<double>(a.size());
  double sum = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += b[i].nll - a[i].nll;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(b[i].nll - a[i].nll - sum / n, 2);
  return {sum / n, std::sqrt(squares / (n - 1) / n)};
}

class CacheNeedles : public GoldenModel {
 protected:
  void SetUp() override {
    GoldenModel::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto spec = TokenizerSpecFromGguf(*file_);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    auto tokenizer = Tokenizer::Create(std::move(*spec));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
    ReadSentences();
    ASSERT_GT(sentences_.size(), 100U);
  }

  // Asks for every needle of every set, in texts that hold none of the keys, or the one asked for, or all.
  std::vector<Found> Look(CacheTypes types, int keys_per_text, size_t n_ctx, int n_sets) {
    std::vector<Found> found;
    for (int set = 0; set < n_sets; ++set) {
      const Needles needles = MakeNeedles(set);
      const std::vector<Ids> filler = Filler(needles, keys_per_text, n_ctx, set);
      const auto cache = NewCache(types.k, types.v);
      Ids held;
      std::vector<size_t> placed;
      if (keys_per_text > 1) placed = {0, 1, 2, 3, 4};
      // From the last depth to the first, so that most of a text with one key is the text before it.
      for (size_t i = needles.size(); i-- > 0;) {
        if (keys_per_text == 1) placed = {i};
        found.push_back(Ask(*cache, held, Text(filler, needles, placed), needles[i]));
      }
    }
    return found;
  }

 private:
  void ReadSentences() {
    std::ifstream in(testing::SourcePath("data/demo/report.txt"));
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#') continue;
      if (line.starts_with("- ")) line.erase(0, 2);
      for (size_t from = 0; from < line.size();) {
        size_t end = from;
        do {
          end = std::min(line.find(". ", end + 1), line.size());
        } while (end < line.size() && line[end - 1] <= 'Z');  // an abbreviation's, or a number's
        sentences_.push_back(tokenizer_->Encode(" " + line.substr(from, end + 1 - from)));
        from = end + 2;
      }
    }
  }

  // The same for every cache type and context.
  Needles MakeNeedles(int set) const {
    std::mt19937 random(static_cast<uint32_t>(set));  // its numbers are the same everywhere
    auto cities = kCities;
    for (size_t i = cities.size(); i > 1; --i) std::swap(cities[i - 1], cities[random() % i]);
    Needles needles;
    for (size_t i = 0; i < needles.size(); ++i) {
      std::string key;
      for (int digit = 0; digit < kDigits; ++digit) key += static_cast<char>('0' + random() % 10);
      const std::string question = std::string(" The pass key of ") + cities[i] + " is ";
      needles[i].given = tokenizer_->Encode(question + key + ".");
      needles[i].question = tokenizer_->Encode(question);
      needles[i].answer = tokenizer_->Encode(key);
      EXPECT_EQ(needles[i].answer.size(), static_cast<size_t>(kDigits));
      EXPECT_EQ(needles[i].given.size(), needles[i].question.size() + kDigits + 1);
      EXPECT_EQ(needles[i].given.size(), needles[0].given.size()) << cities[i];
    }
    return needles;
  }

  // Sentences, so many that text, question and answer take n_ctx tokens; each set begins elsewhere.
  std::vector<Ids> Filler(const Needles& needles, int keys_per_text, size_t n_ctx, int set) const {
    const size_t room = n_ctx - static_cast<size_t>(keys_per_text) * needles[0].given.size() -
                        needles[0].question.size() - needles[0].answer.size();
    std::vector<Ids> filler;
    size_t n = 0;
    for (auto at = size_t{37} * static_cast<size_t>(set); n < room; ++at) {
      filler.push_back(sentences_[at % sentences_.size()]);
      n += filler.back().size();
    }
    // What is too much goes at the beginning: the end is the end of a sentence.
    for (size_t i = 0; n > room; ++i) {
      const size_t cut = std::min(filler[i].size(), n - room);
      filler[i].erase(filler[i].begin(), filler[i].begin() + static_cast<ptrdiff_t>(cut));
      n -= cut;
    }
    return filler;
  }

  // The needles named, each at the end of the sentence that is nearest to its depth.
  static Ids Text(const std::vector<Ids>& filler, const Needles& needles, const std::vector<size_t>& placed) {
    size_t n = 0;
    for (const Ids& sentence : filler) n += sentence.size();
    Ids text;
    size_t at = 0;
    auto next = placed.begin();
    for (const Ids& sentence : filler) {
      const auto middle = static_cast<double>(at) + static_cast<double>(sentence.size()) / 2;
      for (; next != placed.end() && middle >= kDepths[*next] * static_cast<double>(n); ++next)
        text.insert(text.end(), needles[*next].given.begin(), needles[*next].given.end());
      text.insert(text.end(), sentence.begin(), sentence.end());
      at += sentence.size();
    }
    for (; next != placed.end(); ++next)
      text.insert(text.end(), needles[*next].given.begin(), needles[*next].given.end());
    return text;
  }

  // `held`: what the cache holds. What a text has in common with it is not computed again, and changes
  // nothing.
  Found Ask(KvCache& cache, Ids& held, Ids text, const Needle& needle) {
    text.insert(text.end(), needle.question.begin(), needle.question.end());
    const size_t answer_from = text.size();
    text.insert(text.end(), needle.answer.begin(), needle.answer.end());
    const size_t common = static_cast<size_t>(
        std::mismatch(held.begin(), held.end(), text.begin(), text.end()).first - held.begin());
    cache.Truncate(
        static_cast<int>(std::min({common, answer_from - 1, static_cast<size_t>(cache.length())})));
    Prefill(cache, text, answer_from - 1);
    const std::vector<float> logits =
        Feed(cache, text, answer_from - 1, text.size() - 1, LogitsFor::kAllRows);
    Found found{.exact = true};
    const auto vocab = static_cast<size_t>(config_.n_vocab);
    for (size_t i = 0; i < needle.answer.size(); ++i) {
      const auto row = std::span(logits).subspan(vocab * i, vocab);
      const double log_p = static_cast<double>(row[static_cast<size_t>(needle.answer[i])]) - LogZ(row);
      found.exact = found.exact && Best(row) == needle.answer[i];
      found.nll -= log_p / static_cast<double>(needle.answer.size());
      if (i == 0) found.first = std::exp(log_p);
    }
    held = std::move(text);
    return found;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Ids> sentences_;
};

std::string Name(CacheTypes types) {
  return std::string(CacheTypeName(types.k)) + " | " + std::string(CacheTypeName(types.v));
}

// Prints tables of docs/measurements/archive/2026-11-22-cache-types.md: in full with LONGSPEC_GOLDEN_ALL,
// else a corner of them.
TEST_F(CacheNeedles, KeysAreFoundAgain) {
  using enum CacheType;
  // f16 first: the others are compared with it.
  std::vector<CacheTypes> types = {{kF16, kF16}, {kQ8_0, kQ8_0}, {kI8, kI8}, {kQ4_0, kQ4_0}};
  std::vector<size_t> contexts = {512};
  if (All()) {
    types = {{kF16, kF16}, {kF32, kF32},  {kBF16, kBF16}, {kQ8_0, kQ8_0},
             {kI8, kI8},   {kQ8_0, kF16}, {kQ8_0, kQ4_0}, {kQ4_0, kQ4_0}};
    contexts = {256, 512, 1024, 2048, 4096};
  }
  struct Task {
    const char* name;
    int keys_per_text;
    int n_sets;
    std::map<std::string, Sums> sums = {};  // by type, over the contexts
  };
  Task none = {"No key in the text", 0, All() ? 4 : 1};
  Task one = {"One key in the text", 1, All() ? 4 : 1};
  Task five = {"Five keys in the text, one asked for", 5, All() ? 8 : 2};
  for (Task* task : {&none, &one, &five}) {
    std::printf("\n%s: found of %zu, nats a digit, probability of the first digit\n\n| keys | values |",
                task->name, kDepths.size() * static_cast<size_t>(task->n_sets));
    for (const size_t n_ctx : contexts) std::printf(" %zu |", n_ctx);
    std::printf(" all | nats more than f16 |\n|---|---|");
    for (size_t i = 0; i <= contexts.size(); ++i) std::printf("---:|");
    std::printf("---:|\n");
    std::vector<Found> f16;
    for (const CacheTypes type : types) {
      std::printf("| %s |", Name(type).c_str());
      std::vector<Found> all;
      for (const size_t n_ctx : contexts) {
        const std::vector<Found> found = Look(type, task->keys_per_text, n_ctx, task->n_sets);
        const Sums sums(found);
        std::printf(" %d, %.2f, %.2f |", sums.exact, sums.mean_nll(), sums.mean_first());
        std::fflush(stdout);
        all.insert(all.end(), found.begin(), found.end());
      }
      if (f16.empty()) f16 = all;
      const auto [mean, error] = Difference(f16, all);
      const Sums sums(all);
      task->sums[Name(type)] = sums;
      std::printf(" %d of %d, %.3f, %.2f | %+.3f ± %.3f |\n", sums.exact, sums.n, sums.mean_nll(),
                  sums.mean_first(), mean, error);
    }
  }
  const std::string f16 = Name({kF16, kF16}), q4 = Name({kQ4_0, kQ4_0});
  // A key is found because it is there.
  EXPECT_GE(one.sums[f16].exact, 0.8 * one.sums[f16].n);
  EXPECT_GE(five.sums[f16].exact, 0.4 * five.sums[f16].n);
  EXPECT_EQ(none.sums[f16].exact, 0);
  EXPECT_GT(none.sums[f16].mean_nll(), one.sums[f16].mean_nll() + std::log(10.0));
  EXPECT_GT(none.sums[f16].mean_nll(), five.sums[f16].mean_nll() + std::log(10.0));
  // With q8_0 and i8 as well as with f16, but for close calls.
  for (Task* task : {&one, &five}) {
    for (const std::string& near : {Name({kQ8_0, kQ8_0}), Name({kI8, kI8})}) {
      EXPECT_NEAR(task->sums[near].exact, task->sums[f16].exact, std::max(1.0, 0.05 * task->sums[f16].n));
      EXPECT_NEAR(task->sums[near].mean_nll(), task->sums[f16].mean_nll(), 0.05);
    }
  }
  // Not so with q4_0, where the right one of several keys is much less likely.
  EXPECT_GT(five.sums[q4].mean_nll(), five.sums[f16].mean_nll() + 0.2);
}

}  // namespace
}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// Trees: the joint law of the tokens that a whole draft tree and its verification commit, against the
// target's own, for every rule over children. By enumeration over drafts and decisions, and by chi-square;
// rules that look right and are not (research: 8.6) have to be rejected by the same means.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"
#include "verify/testing/chi_square.h"
#include "verify/testing/enumerating_coin.h"
#include "verify/testing/language.h"
#include "verify/testing/rules.h"
#include "verify/verify.h"

namespace longspec::testing {
namespace {

using Tokens = std::vector<int32_t>;
using Law = std::vector<double>;
// The target's law after a text, the first n_committed tokens of which were committed before this step; an
// honest target does not care which.
using Target = std::function<Law(std::span<const int32_t> text, size_t n_committed)>;
using DrawFn = Tokens (*)(const Law& q, int k, Coin& coin);
using VerifyFn = NodeVerdict (*)(const Tokens& children, const Law& p, const Law& q, Coin& coin);

struct Method {
  const char* name;
  DrawFn draw;
  VerifyFn verify;
};

Target Of(const Language& p) {
  return [&p](std::span<const int32_t> text, size_t) { return p.After(text); };
}

// --- How children come about. ---

Tokens Independent(const Law& q, int k, Coin& coin) {
  Tokens children;
  for (int i = 0; i < k; ++i) children.push_back(coin.Draw(q));
  return children;
}

Tokens WithoutReplacement(const Law& q, int k, Coin& coin) {
  Tokens children;
  Law left = q;
  for (int i = 0; i < std::min<int>(k, kVocab); ++i) {
    children.push_back(coin.Draw(left));
    left[static_cast<size_t>(children.back())] = 0;
  }
  return children;
}

Tokens Likeliest(const Law& q, int k, Coin&) {
  Tokens children(q.size());
  for (size_t v = 0; v < q.size(); ++v) children[v] = static_cast<int32_t>(v);
  const auto more = [&](int32_t a, int32_t b) {
    return q[static_cast<size_t>(a)] > q[static_cast<size_t>(b)];
  };
  std::stable_sort(children.begin(), children.end(), more);
  children.resize(std::min(children.size(), static_cast<size_t>(k)));
  return children;
}

// --- Trees. ---

struct Node {
  Tokens children;
  std::vector<Node> below;
};

// The whole tree, before anything is verified: widths[d] children at every node of depth d.
Node Grow(const Language& q, const Method& method, std::span<const int> widths, Tokens& text, Coin& coin) {
  Node node;
  if (widths.empty()) return node;
  node.children = method.draw(q.After(text), widths[0], coin);
  for (const int32_t child : node.children) {
    text.push_back(child);
    node.below.push_back(Grow(q, method, widths.subspan(1), text, coin));
    text.pop_back();
  }
  return node;
}

// One step: appends what is committed and returns how many of the tokens were drafted.
int Step(const Target& p, const Language& q, const Method& method, std::span<const int> widths, Tokens& text,
         Coin& coin) {
  const Node tree = Grow(q, method, widths, text, coin);
  const size_t n_committed = text.size();
  int n_accepted = 0;
  for (const Node* node = &tree;; ++n_accepted) {
    const Law p_here = p(text, n_committed);
    if (node->children.empty()) {
      text.push_back(coin.Draw(p_here));
      return n_accepted;
    }
    const NodeVerdict verdict = method.verify(node->children, p_here, q.After(text), coin);
    text.push_back(verdict.token);
    if (verdict.child < 0) return n_accepted;
    node = &node->below[static_cast<size_t>(verdict.child)];
  }
}

struct EnumeratedTree {
  double distance = 0;  // of the joint law from the target's
  double accepted = 0;  // expected drafted tokens of the first step
};

// One step, completed to a token more than the tree is deep by plain decoding.
EnumeratedTree Enumerate(const Language& p, const Language& q, const Method& method,
                         const std::vector<int>& widths) {
  const int n = static_cast<int>(widths.size()) + 1;
  struct TreeOutcome {
    Tokens text;
    int n_accepted;
  };
  const auto run = [&](Coin& coin) {
    TreeOutcome outcome;
    outcome.n_accepted = Step(Of(p), q, method, widths, outcome.text, coin);
    while (std::ssize(outcome.text) < n) outcome.text.push_back(coin.Draw(p.After(outcome.text)));
    return outcome;
  };
  EnumeratedTree result;
  Law joint(NumCells(n), 0.0);
  EnumeratingCoin::ForEachBranch(run, [&](const TreeOutcome& outcome, double w) {
    joint[Cell(outcome.text)] += w;
    result.accepted += w * outcome.n_accepted;
  });
  result.distance = TotalVariation(joint, JointLaw(p, n));
  return result;
}

// --- The law test: answers of kTokens tokens, step after step, as an engine writes them. ---

constexpr int kTokens = 3;
constexpr double kTreeAlpha = 1e-6;
constexpr uint64_t kSamples = 5000;

// At their roots two of three tokens are likelier than drafted. (With one, a residual is certain, and rules
// that get the draft's law wrong are right by luck.)
Language MakeTarget() { return {9, 3.0}; }
Language MakeDraft() { return {101, 2.0}; }

using StepFn = std::function<void(Tokens& text, Coin& coin)>;

double PValue(const Law& expected, const StepFn& step) {
  std::vector<int64_t> counts(expected.size(), 0);
  const RngStream stream{.seed = 31, .purpose = RngPurpose::kTest};
  for (uint64_t i = 0; i < kSamples; ++i) {
    RngCoin coin(stream, i);
    Tokens text;
    while (std::ssize(text) < kTokens) step(text, coin);
    ++counts[Cell(std::span(text).first(kTokens))];
  }
  return ChiSquarePValue(counts, expected);
}

double PValueOf(const Language& p, const Language& q, const Method& method, const std::vector<int>& widths) {
  return PValue(JointLaw(p, kTokens),
                [&](Tokens& text, Coin& coin) { Step(Of(p), q, method, widths, text, coin); });
}

constexpr Method kExact[] = {
    {"independent", Independent,
     [](const Tokens& children, const Law& p, const Law& q, Coin& coin) {
       return VerifyIndependent(children, p, q, coin);
     }},
    {"without replacement", WithoutReplacement,
     [](const Tokens& children, const Law& p, const Law& q, Coin& coin) {
       return VerifyWithoutReplacement(children, p, q, coin);
     }},
    {"K-SEQ", Independent,
     [](const Tokens& children, const Law& p, const Law& q, Coin& coin) {
       const double gamma = KSeqGamma(p, q, static_cast<int>(children.size()));
       return VerifyKSeq(children, p, q, gamma, coin);
     }},
    {"in turn", Likeliest,
     [](const Tokens& children, const Law& p, const Law&, Coin& coin) {
       return VerifyInTurn(children, p, coin);
     }},
    {"one coin", Likeliest,
     [](const Tokens& children, const Law& p, const Law&, Coin& coin) {
       return VerifyOneCoin(children, p, coin);
     }},
};

TEST(Trees, JointLawByEnumeration) {
  const Language p = MakeTarget(), q = MakeDraft();
  for (const Method& method : kExact) {
    for (const std::vector<int>& widths : {std::vector<int>{2, 2}, {3, 1}, {1, 1, 2}}) {
      EXPECT_LT(Enumerate(p, q, method, widths).distance, 1e-12)
          << method.name << ", widths " << ::testing::PrintToString(widths);
    }
  }
}

TEST(Trees, WiderAndDeeperOnesAcceptMore) {
  const Language p = MakeTarget(), q = MakeDraft();
  for (const Method& method : kExact) {
    const double chain = Enumerate(p, q, method, {1, 1}).accepted;
    EXPECT_GT(Enumerate(p, q, method, {2, 1}).accepted, chain + 0.01) << method.name;
    EXPECT_GT(Enumerate(p, q, method, {1, 2}).accepted, chain + 0.01) << method.name;
    EXPECT_GT(chain, Enumerate(p, q, method, {1}).accepted + 0.01) << method.name;
  }
}

TEST(Trees, ChiSquareOfThreeTokens) {
  const Language p = MakeTarget(), q = MakeDraft();
  for (const Method& method : kExact) {
    for (const std::vector<int>& widths : {std::vector<int>{2, 2}, {3, 2, 1}}) {
      EXPECT_GT(PValueOf(p, q, method, widths), kTreeAlpha)
          << method.name << ", widths " << ::testing::PrintToString(widths);
    }
  }
}

// --- Negative controls. ---

Tokens Distinct(const Law& q, int k, Coin& coin) {
  Tokens distinct;
  for (const int32_t child : Independent(q, k, coin)) {
    if (std::find(distinct.begin(), distinct.end(), child) == distinct.end()) distinct.push_back(child);
  }
  return distinct;
}

NodeVerdict TargetOnRejection(const Tokens& children, const Law& p, const Law& q, Coin& coin) {
  for (size_t i = 0; i < children.size(); ++i) {
    const auto x = static_cast<size_t>(children[i]);
    if (coin.Flip(p[x] / q[x])) return {static_cast<int>(i), children[i]};
  }
  return {-1, coin.Draw(p)};
}

TEST(Trees, WrongRulesAreRejectedByTheSameTests) {
  const auto independent = [](const Tokens& children, const Law& p, const Law& q, Coin& coin) {
    return VerifyIndependent(children, p, q, coin);
  };
  const auto gamma_one = [](const Tokens& children, const Law& p, const Law& q, Coin& coin) {
    return VerifyKSeq(children, p, q, 1.0, coin);
  };
  const Method wrong[] = {
      {"target on rejection", Independent, TargetOnRejection},
      {"duplicates dropped", Distinct, independent},
      {"without replacement, unconditional q", WithoutReplacement, independent},
      {"the likeliest as samples", Likeliest, independent},
      {"K-SEQ, gamma 1", Independent, gamma_one},
  };
  const Language p = MakeTarget(), q = MakeDraft();
  for (const Method& method : wrong) {
    EXPECT_GT(Enumerate(p, q, method, {3, 1}).distance, 0.01) << method.name;
    EXPECT_LT(PValueOf(p, q, method, {3, 2}), kTreeAlpha) << method.name;
  }
}

// At T > 0 the first token is the likeliest one, and all others follow their law.
TEST(Trees, AFirstTokenThatIsAlwaysTheLikeliestIsRejected) {
  const Language p = MakeTarget(), q = MakeDraft();
  for (const Method& method : kExact) {
    const auto step = [&](Tokens& text, Coin& coin) {
      if (text.empty()) {
        text = Likeliest(p.After(text), 1, coin);
      } else {
        Step(Of(p), q, method, std::vector<int>{2, 2}, text, coin);
      }
    };
    EXPECT_LT(PValue(JointLaw(p, kTokens), step), kTreeAlpha) << method.name;
  }
}

// --- Penalties: a target that shuns the tokens of its text. ---

constexpr double kPresencePenalty = 1.5;

Law Penalised(const Language& p, std::span<const int32_t> text, std::span<const int32_t> seen) {
  Law law = p.After(text);
  for (size_t v = 0; v < law.size(); ++v) {
    if (std::find(seen.begin(), seen.end(), static_cast<int32_t>(v)) != seen.end()) {
      law[v] *= std::exp(-kPresencePenalty);
    }
  }
  const double total = std::accumulate(law.begin(), law.end(), 0.0);
  for (double& x : law) x /= total;
  return law;
}

Law PenalisedJointLaw(const Language& p) {
  return JointLawOf([&](std::span<const int32_t> text) { return Penalised(p, text, text); }, kTokens);
}

TEST(Trees, PenaltiesThatSeeTheDraftedPrefixPassAndFrozenOnesAreRejected) {
  const Language p = MakeTarget(), q = MakeDraft();
  const Target sees_all = [&](std::span<const int32_t> text, size_t) { return Penalised(p, text, text); };
  const Target frozen = [&](std::span<const int32_t> text, size_t n_committed) {
    return Penalised(p, text, text.first(n_committed));
  };
  const Law expected = PenalisedJointLaw(p);
  for (const Method& method : kExact) {
    const auto p_value = [&](const Target& target) {
      return PValue(expected, [&](Tokens& text, Coin& coin) {
        Step(target, q, method, std::vector<int>{2, 2}, text, coin);
      });
    };
    EXPECT_GT(p_value(sees_all), kTreeAlpha) << method.name;
    EXPECT_LT(p_value(frozen), kTreeAlpha) << method.name;
  }
}

// --- The same of sample-and-match, with the sampler's own processing and numbers. ---

// What sample-and-match does, but with the history of the root at every node.
Tokens FrozenSampleAndMatch(const TokenTree& tree, const LogitRows& logits, const Sampler& sampler,
                            std::span<const int32_t> committed, Sampler::Scratch& scratch) {
  Tokens tokens;
  for (int node = 0; node >= 0; node = tree.FindChild(node, tokens.back())) {
    const uint64_t position = committed.size() + tokens.size();
    tokens.push_back(sampler.Sample(testing::ValuesOf(logits[node]), {.committed = committed, .drafted = {}},
                                    position, scratch));
  }
  return tokens;
}

struct DraftedTree {
  TokenTree tree;
  std::vector<float> logits;  // (node, vocab)
};

constexpr int32_t kPrompt = static_cast<int32_t>(kVocab);  // stands before every text and is never drawn
constexpr int kSamplerVocab = static_cast<int>(kVocab) + 1;

// Two children at every node of the first two depths. `text` begins with
// kPrompt, which the languages do not know of.
DraftedTree GrowBinary(const Language& p, const Language& q, const Tokens& text, Coin& coin) {
  DraftedTree drafted{TokenTree(text.back()), {}};
  std::vector<Tokens> texts = {Tokens(text.begin() + 1, text.end())};
  for (size_t node = 0; node < texts.size(); ++node) {
    const Tokens here = texts[node];
    for (const double x : p.After(here)) drafted.logits.push_back(static_cast<float>(std::log(x)));
    drafted.logits.push_back(-INFINITY);  // kPrompt
    if (here.size() + 1 >= text.size() + 2) continue;
    for (const int32_t child : Likeliest(q.After(here), 2, coin)) {
      drafted.tree.AddChild(static_cast<int>(node), child);
      texts.push_back(here);
      texts.back().push_back(child);
    }
  }
  return drafted;
}

template <typename Match>
double PValueOfMatching(const Match& match) {
  const Language p = MakeTarget(), q = MakeDraft();
  SamplingOptions options;
  options.temperature = 1.0F;
  options.top_k = 0;
  options.top_p = 1.0F;
  options.min_p = 0.0F;
  options.presence_penalty = static_cast<float>(kPresencePenalty);
  std::vector<int64_t> counts(NumCells(kTokens), 0);
  Sampler::Scratch scratch;
  for (uint64_t seed = 0; seed < kSamples; ++seed) {
    options.seed = seed;
    const auto sampler = Sampler::Create(options, kSamplerVocab);
    RngCoin unused({.seed = 1}, 0);
    Tokens text = {kPrompt};
    while (std::ssize(text) <= kTokens) {
      const DraftedTree drafted = GrowBinary(p, q, text, unused);
      const LogitRows logits(drafted.logits.data(), drafted.tree.size(), kSamplerVocab);
      const Tokens tokens = match(drafted.tree, logits, *sampler, text, scratch);
      text.insert(text.end(), tokens.begin(), tokens.end());
    }
    ++counts[Cell(std::span(text).subspan(1, kTokens))];
  }
  return ChiSquarePValue(counts, PenalisedJointLaw(p));
}

TEST(Trees, SampleAndMatchWithAPenaltyPassesAndWithAFrozenOneIsRejected) {
  const auto right = [](const TokenTree& tree, const LogitRows& logits, const Sampler& sampler,
                        std::span<const int32_t> committed, Sampler::Scratch& scratch) {
    return SampleAndMatch(tree, logits, sampler, committed, scratch)->tokens;
  };
  EXPECT_GT(PValueOfMatching(right), kTreeAlpha);
  EXPECT_LT(PValueOfMatching(FrozenSampleAndMatch), kTreeAlpha);
}

// Sample-and-match that draws by numbers of its own: `number(position, token)` is the Gumbel number.
template <typename Number>
auto MatchingWith(Number number) {
  return [number](const TokenTree& tree, const LogitRows& logits, const Sampler& sampler,
                  std::span<const int32_t> committed, Sampler::Scratch& scratch) {
    Tokens tokens;
    for (int node = 0; node >= 0; node = tree.FindChild(node, tokens.back())) {
      const uint64_t position = committed.size() + tokens.size();
      const auto law = sampler.Distribution(testing::ValuesOf(logits[node]),
                                            {.committed = committed, .drafted = tokens}, scratch);
      const auto key = [&](const TokenProbability& t) {
        return std::log(t.probability) + number(sampler, position, t.token);
      };
      tokens.push_back(std::ranges::max_element(law, {}, key)->token);
    }
    return tokens;
  };
}

TEST(Trees, NumbersSharedByTokensOrPositionsAreRejected) {
  const auto own = [](const Sampler& sampler, uint64_t position, int32_t token) {
    return sampler.DiceAt(position).Gumbel(token);
  };
  const auto shared_by_tokens = [](const Sampler& sampler, uint64_t position, int32_t token) {
    return sampler.DiceAt(position).Gumbel(token / 2);
  };
  const auto shared_by_positions = [](const Sampler& sampler, uint64_t position, int32_t token) {
    return sampler.DiceAt(position / 2).Gumbel(token);
  };
  EXPECT_GT(PValueOfMatching(MatchingWith(own)), kTreeAlpha);
  EXPECT_LT(PValueOfMatching(MatchingWith(shared_by_tokens)), kTreeAlpha);
  EXPECT_LT(PValueOfMatching(MatchingWith(shared_by_positions)), kTreeAlpha);
}

}  // namespace
}  // namespace longspec::testing

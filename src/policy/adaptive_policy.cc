// SPDX-License-Identifier: Apache-2.0
//
// Speculates as far as it pays. Each proposed node has an estimated chance of being reached (the product of
// the acceptance estimates on its path); the best n nodes are verified, for the n that maximises
//
//   (1 + sum of their chances) / (cost of 1 + n rows at this context + drafting + sampling)
//
// which is plain decoding when n is 0. Drafters that cost next to nothing are asked every round and judged by
// what they propose; dear ones are asked only when what they proposed lately would pay for them, and for as
// many levels as promise most, since each takes time (policy/draft_time.h, policy/level_chances.h). A
// portfolio's dear members are asked round by round, after the others (policy/asking.h). What was proposed is
// held against the text whether it was verified or not, so that estimates stay alive without speculating.
// Probes, ever more rarely, tell what rows cost and how dear drafters do, and plain rounds among those that
// speculate what they are held against. Because estimates can be wrong, measured speed has the last word:
// rounds that were slower than plain ones for a while make a pause.
//
// A generation starts from what others learned of its drafter: what proposals cost, how often they were
// accepted, which counts for a quarter of a long text at most, since another one begins, and how fast they
// were. What it learns is told to the ones after it. If it is alone, its own estimates and those that outlive
// it are the same; if not, only its own fade.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <span>

#include "base/running_mean.h"
#include "draft/drafter.h"
#include "draft/portfolio_drafter.h"
#include "policy/level_chances.h"
#include "policy/policy.h"

namespace longspec {
namespace {

constexpr double kCheapDraft = 0.05;  // of a plain step: drafters below it are asked every round
constexpr double kProbeCost = 1.3;    // of a plain step, at most
constexpr int kProbeNodes = 8;        // at most
constexpr int kSpareNodes = 5;        // asked for beyond half as much again as was worth verifying lately
constexpr int kFirstAsk = 8;          // nodes, and levels, while the drafter's cost is unknown
constexpr int kProbeLevels = 2;       // of a dear drafter; more where that costs little
constexpr int kDeeperEvery = 8;       // rounds that ask it: then for some more levels, so that it can grow
constexpr int kMinWait = 16, kMaxWait = 128;  // rounds between probes, at least and if they cost nothing
constexpr double kProbeShare = 0.005;         // of the time: probes that cost much wait longer
constexpr int kVaryEvery = 32;                // rounds
constexpr double kFade = 0.95;                // of running maxima
constexpr double kTooSeldom = 1e-3;           // is a level reached for those below it to be planned

enum class Decision : uint8_t { kSpeculated, kOff, kPaused, kProbe, kNothing, kNoRoom, kMeasured, kSatOut };
constexpr std::array<const char*, 8> kDecisionNames = {
    "speculated",           "off",      "paused", "probe", "nothing proposed", "no room",
    "plain, to measure it", "not asked"};

// Says when to try again: after ever more rounds, until a success.
class Backoff {
 public:
  // Counts a round without success. `cost`: of a try, in rounds.
  bool Due(double cost) {
    if (++rounds_ < wait_ || rounds_ * kProbeShare < cost) return false;
    rounds_ = 0;
    wait_ = std::min(2 * wait_, kMaxWait);
    return true;
  }
  void Reset() {
    rounds_ = 0;
    wait_ = kMinWait;
  }

 private:
  int rounds_ = 0, wait_ = kMinWait;
};

class AdaptivePolicy final : public Policy {
 public:
  AdaptivePolicy(const SpeculationOptions& options, AdaptiveMemory* memory, DrafterMemory* drafter)
      : max_nodes_(std::max(0, options.adaptive_n_max)),
        min_nodes_(options.draft_n_min),
        has_members_(IsPortfolio(options.type)),
        costs_(&memory->costs),
        plain_rounds_(&memory->plain_rounds),
        drafter_(drafter),
        asking_(&drafter->asking),
        acceptance_(drafter->acceptance),
        draft_time_(drafter->draft_time) {
    ++drafter_->in_flight;
    acceptance_.BeginText();
    if (drafter_->in_flight > 1) return;
    drafter_->acceptance.BeginText();
    drafter_->trial.BeginText();
  }
  AdaptivePolicy(const AdaptivePolicy&) = delete;
  AdaptivePolicy& operator=(const AdaptivePolicy&) = delete;
  ~AdaptivePolicy() override { --drafter_->in_flight; }

  void SitOut(const PolicyInput& input) override {
    (void)BeginRound(input);
    Skip(Decision::kSatOut);
  }

  DraftBudget Budget(const PolicyInput& input) override {
    const int cap = BeginRound(input), depth = std::min(cap, input.max_tokens - 1);
    if (depth <= 0) return Skip(Decision::kNoRoom);
    if (drafter_->trial.Pauses()) return Skip(Decision::kPaused);
    const int spare = std::min(cap, kSpareNodes + static_cast<int>(1.5 * most_worth_));
    JudgeDearness(std::min(spare, depth));
    // Every text gets a look, but for a drafter that would not pay if all it says came true.
    const int first = std::min({cap, depth, kFirstAsk});
    if (!asked_before_ &&
        (!draft_time_.known() || (JudgedByProposal() && MayPay(first, draft_time_.mean_ms())))) {
      return Ask(std::min(cap, kFirstAsk), first);
    }
    return JudgedByProposal() ? Ask(spare, depth) : AskIfItPays(cap, depth);
  }

  DraftTask Draft(Drafter& drafter, const DraftBudget& budget, std::span<const int32_t> committed,
                  TokenTree& tree, PassMeeting& meeting) override {
    Portfolio* const portfolio = drafter.portfolio();
    if (portfolio == nullptr) return drafter.Draft(budget, committed, tree, meeting);
    return asking_.Draft(*portfolio, budget, {.dear_ms = DearMs(), .token_ms = token_ms_}, committed, tree,
                         meeting);
  }

  TokenTree Choose(TokenTree proposed) override {
    const int n_proposed = proposed.size() - 1;
    LookAt(proposed);
    if (n_proposed == 0) {
      last_ = {.decision = Decision::kNothing};
      return proposed;
    }
    const int best = BestCount(n_proposed);
    most_worth_ = std::max(kFade * most_worth_, static_cast<double>(best));
    const double promise = Rate(best, gain_[Index(best)]) / Rate(0, 0);
    const bool worth = best >= min_nodes_ && promise > kLeastPromise;
    int n = best;
    last_.decision = worth ? Decision::kSpeculated : Decision::kOff;
    if (!worth && n_proposed >= min_nodes_) {
      const int probe = std::max(min_nodes_, ProbeCount(n_proposed));
      if (probing_ || (JudgedByProposal() && tree_probe_.Due(row_ms_[Index(probe)] / row_ms_[0] - 1))) {
        n = probe;
        last_.decision = Decision::kProbe;
      }
    }
    if (worth && plain_rounds_->Due(promise)) {
      n = 0;
      last_.decision = Decision::kMeasured;
    } else if (worth && !probing_) {
      tree_probe_.Reset();
      n = Varied(best, n_proposed);
    }
    Describe(n, n_proposed);
    if (last_.decision == Decision::kOff || n == 0) return TokenTree(proposed.node(0).token);
    return n == n_proposed ? std::move(proposed) : Cut(proposed, n);
  }

  std::optional<SpeculationCandidates> Value(const TokenTree& proposed) override {
    LookAt(proposed);
    best_reach_.clear();
    for (const int node : order_) best_reach_.push_back(reach_[Index(node)]);
    return SpeculationCandidates{
        .reach = best_reach_, .sample_ms = sample_ms_.value(), .min_nodes = min_nodes_};
  }

  TokenTree Take(TokenTree proposed, int n) override {
    const int n_proposed = proposed.size() - 1;
    most_worth_ = std::max(kFade * most_worth_, static_cast<double>(n));
    last_ = {.decision = n > 0            ? Decision::kSpeculated
                         : n_proposed > 0 ? Decision::kOff
                                          : Decision::kNothing};
    if (n_proposed > 0) Describe(n, n_proposed);
    return n == n_proposed ? std::move(proposed) : Cut(proposed, n);
  }

  void Observe(const RoundResult& round) override {
    ++counts_[static_cast<size_t>(last_.decision)];
    if (round.alone) {
      costs_->Observe(round.tree.size(), round.context, round.target_ms);
      plain_rounds_->Count(round.tree.size() == 1, last_.decision == Decision::kMeasured);
    }
    const auto n_tokens = static_cast<double>(round.accepted.tokens.size());
    sample_ms_.Add(round.verify_ms / n_tokens);
    if (round.asked) {
      const int levels = proposal_.size() > 1 ? proposal_.max_depth() : asked_levels_;
      for (DraftTime* time : {&draft_time_, &drafter_->draft_time}) time->Add(levels, round.draft_ms);
    }
    const auto n_accepted = static_cast<double>(round.accepted.nodes.size()) - 1;
    const double expected = last_.expected - 1;
    if (last_.decision == Decision::kProbe && n_accepted > 2 * expected + 0.5) TextMayHaveChanged();
    if (round.asked) {
      Count(round.accepted.tokens);
      asking_.Learn(round.tree, round.accepted.tokens);
    }
    if (round.alone && (round.tree.size() > 1 || (round.asked && round.draft_ms > DearMs())))
      drafter_->trial.Add(round.draft_ms + round.target_ms + round.verify_ms, n_tokens * PlainMs());
  }

  PolicyReport report() const override {
    PolicyReport report{.policy = "adaptive", .last_decision = InWords(), .decisions = {}};
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] > 0) report.decisions.emplace_back(kDecisionNames[i], counts_[i]);
    }
    return report;
  }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }

  // The most nodes there is room for.
  int BeginRound(const PolicyInput& input) {
    context_ = input.context;
    token_ms_ = input.token_ms;
    asking_.BeginRound();
    const int cap = std::clamp(input.room - 1, 0, max_nodes_);
    row_ms_.resize(static_cast<size_t>(cap) + 1);
    costs_->TargetMs(context_, row_ms_);
    asked_levels_ = 0;
    return cap;
  }

  // A probe was accepted beyond expectation: what made speculation stop counts for less, and the next probe
  // comes soon.
  void TextMayHaveChanged() {
    Fade();
    tree_probe_.Reset();
    draft_probe_.Reset();
  }

  // What is known counts for less; of those in flight beside it, it does not.
  void Fade() {
    acceptance_.Fade();
    if (drafter_->in_flight == 1) drafter_->acceptance.Fade();
  }

  // Whether a proposal of so many nodes, all accepted, would be worth its cost.
  bool MayPay(int nodes, double draft_ms) const {
    return Rate(nodes, nodes, draft_ms) > kLeastPromise * Rate(0, 0);
  }

  DraftBudget Skip(Decision decision) {
    probing_ = false;
    last_ = {.decision = decision};
    if (decision == Decision::kOff) Describe(std::max(1, plan_), 0);
    skipped_ = true;
    return {};
  }

  DraftBudget Ask(int nodes, int depth) {
    skipped_ = probing_ = false;
    asked_before_ = true;
    asked_levels_ = std::min(depth, nodes);
    return {.max_nodes = nodes, .max_depth = asked_levels_, .least_chance = kLeastChance};
  }

  // Of a dear drafter.
  DraftBudget AskIfItPays(int cap, int depth) {
    const int few = FewLevels(depth), probe_nodes = std::min(cap, kProbeNodes);
    if ((!asked_before_ && MayPayAtAll(depth)) || !draft_time_.sure()) return Ask(probe_nodes, few);
    const Plan plan = BestPlan(cap, depth);
    plan_ = plan.nodes;
    plan_gain_ = plan.gain;
    // While it is asked all that is believed of it is put to the test: that may fall a little. While it is
    // not, little is learned.
    pays_ = plan.rate > (pays_ ? 1 : kLeastPromise) * Rate(0, 0);
    if (pays_) {
      draft_probe_.Reset();
      const bool deeper = ++rounds_asked_ % kDeeperEvery == 0;
      const int levels = std::min(depth, plan.levels + (deeper ? plan.levels / 4 + 1 : 0));
      // Half as many nodes again, so that the plan can grow.
      return Ask(std::min(cap, std::max(levels, plan.nodes + plan.nodes / 2 + 2)), levels);
    }
    if (!draft_probe_.Due(draft_time_.Ms(few) / PlainMs())) return Skip(Decision::kOff);
    const DraftBudget budget = Ask(probe_nodes, few);
    probing_ = true;
    return budget;
  }

  // Levels of a look at a dear drafter.
  int FewLevels(int depth) const {
    int levels = kProbeLevels;
    while (levels < kFirstAsk && draft_time_.Ms(levels + 1) <= kProbeCost * draft_time_.Ms(kProbeLevels))
      ++levels;
    return std::min(levels, depth);
  }

  bool MayPayAtAll(int depth) const {
    for (int levels = 1; levels <= std::min(depth, kFirstAsk); ++levels) {
      if (MayPay(levels, draft_time_.Ms(levels))) return true;
    }
    return false;
  }

  // A drafter that takes little is asked for as much as may be worth verifying, and is dear when that takes
  // long. One that is, and takes little because it is asked for little, stays dear.
  void JudgeDearness(int cheap_levels) {
    if (draft_time_.mean_ms() >= DearMs()) {
      dear_ = true;
    } else if (draft_time_.Ms(cheap_levels) < DearMs()) {
      dear_ = false;
    }
  }

  double PlainMs() const { return row_ms_[0] + sample_ms_.value(); }
  double DearMs() const { return kCheapDraft * PlainMs(); }  // drafting that takes longer is dear
  // Drafting costs next to nothing, or it is decided by member: only verifying is in question.
  bool JudgedByProposal() const { return has_members_ || !dear_; }

  // Expected tokens per millisecond of a round that verifies n nodes.
  double Rate(int n, double gain, double draft_ms = 0) const {
    return (1 + gain) / (row_ms_[Index(n)] + draft_ms + sample_ms_.value() * (1 + gain));
  }

  struct Plan {
    int levels = 0, nodes = 0;
    double gain = 0, rate = 0;
  };

  // The numbers of levels and of their best nodes, at least one, that promise most going by what was proposed
  // lately.
  Plan BestPlan(int cap, int depth) {
    Plan best;
    planned_.clear();
    double at_level = 1;
    const int most = std::min(depth, 2 * chances_.known());
    for (int levels = 1; levels <= most && at_level > kTooSeldom; ++levels) {
      const auto n_above = std::ssize(planned_);
      at_level = chances_.Append(levels, at_level, &planned_);
      std::inplace_merge(planned_.begin(), planned_.begin() + n_above, planned_.end(), std::greater());
      planned_.resize(std::min(planned_.size(), Index(cap)));
      const double draft_ms = draft_time_.Ms(levels);
      double gain = 0;
      for (size_t i = 0; i < planned_.size(); ++i) {
        gain += planned_[i];
        const int n = static_cast<int>(i) + 1;
        const double rate = Rate(n, gain, draft_ms);
        if (rate > best.rate) best = {.levels = levels, .nodes = n, .gain = gain, .rate = rate};
      }
    }
    return best;
  }

  // Orders the nodes by their chance of being reached, parents before children; gain_[n] is the sum of the
  // best n.
  void Rank(const TokenTree& tree) {
    reach_.assign(Index(tree.size()), 1.0);
    for (int i = 1; i < tree.size(); ++i) {
      reach_[Index(i)] = reach_[Index(tree.node(i).parent)] * acceptance_.Estimate(KindOf(tree, i, context_));
    }
    order_.resize(Index(tree.size() - 1));
    std::iota(order_.begin(), order_.end(), 1);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return reach_[Index(a)] > reach_[Index(b)]; });
    gain_.assign(1, 0.0);
    for (const int node : order_) gain_.push_back(gain_.back() + reach_[Index(node)]);
  }

  void LookAt(const TokenTree& proposed) {
    Rank(proposed);
    // What was promised, if that may decide whether the drafter is asked.
    if (!skipped_ && !has_members_) chances_.Learn(proposed, order_, reach_, asked_levels_);
    proposal_ = proposed;
  }

  // The number of nodes, at least one, that promises most.
  int BestCount(int n_proposed) const {
    int best = 1;
    for (int n = 2; n <= n_proposed; ++n) {
      if (Rate(n, gain_[Index(n)]) > Rate(best, gain_[Index(best)])) best = n;
    }
    return best;
  }

  // Now and then a few nodes more than seem best, or fewer, in turn: other row counts may cost less than is
  // believed.
  int Varied(int best, int n_proposed) {
    if (++rounds_on_ % kVaryEvery != 0) return best;
    const bool more = rounds_on_ % (2 * kVaryEvery) == 0;
    return more ? std::min(best + best / 2 + 1, n_proposed) : std::max({1, best / 2, min_nodes_});
  }

  int ProbeCount(int n_proposed) const {
    int n = 1;
    while (n < std::min(n_proposed, kProbeNodes) && row_ms_[Index(n + 1)] <= kProbeCost * row_ms_[0]) ++n;
    return n;
  }

  TokenTree Cut(const TokenTree& tree, int n) const {
    std::vector<bool> keep(Index(tree.size()), false);
    keep[0] = true;
    for (int i = 0; i < n; ++i) keep[Index(order_[Index(i)])] = true;
    return Pruned(tree, keep);
  }

  // All that was proposed is put to the test by the tokens that came, as far as they followed it: a node that
  // was not verified would have been accepted if it is the token that came.
  void Count(std::span<const int32_t> tokens) {
    int32_t at = 0;
    for (const int32_t token : tokens) {
      int32_t next = -1;
      for (int32_t child = proposal_.node(at).first_child; child >= 0;
           child = proposal_.node(child).next_sibling) {
        const bool came = proposal_.node(child).token == token;
        const NodeKind kind = KindOf(proposal_, child, context_);
        acceptance_.Add(kind, came);
        drafter_->acceptance.Add(kind, came);
        if (came) next = child;
      }
      if (next < 0) return;
      at = next;
    }
  }

  struct Last {
    Decision decision = Decision::kNoRoom;
    int context = 0, nodes = 0, proposed = 0;
    double cost_ratio = 0, expected = 0;
  };

  void Describe(int n, int n_proposed) {
    last_.context = context_;
    last_.nodes = std::min(n, static_cast<int>(row_ms_.size()) - 1);
    last_.proposed = n_proposed;
    last_.cost_ratio = row_ms_[Index(last_.nodes)] / row_ms_[0];
    last_.expected = 1 + (n_proposed == 0 ? plan_gain_ : gain_[Index(std::min(n, n_proposed))]);
  }

  std::string InWords() const {
    char text[192];
    const double thousands = last_.context / 1024.0;
    switch (last_.decision) {
      case Decision::kSpeculated:
      case Decision::kProbe:
        std::snprintf(text, sizeof(text),
                      "%s: %d of %d proposed nodes, cost %.1fx at %.1fK keys, expected %.1f tokens",
                      last_.decision == Decision::kProbe ? "probe" : "on", last_.nodes, last_.proposed,
                      last_.cost_ratio, thousands, last_.expected);
        return text;
      case Decision::kOff:
        std::snprintf(text, sizeof(text), "off: %d rows cost %.1fx at %.1fK keys%s, expected %.1f tokens",
                      last_.nodes + 1, last_.cost_ratio, thousands,
                      last_.proposed == 0 ? " and drafting" : "", last_.expected);
        return text;
      case Decision::kPaused:
        std::snprintf(text, sizeof(text),
                      "paused: speculated rounds ran at %.2fx of plain speed; on trial again in %d rounds",
                      drafter_->trial.speed(), drafter_->trial.pause());
        return text;
      case Decision::kNothing:
        return "plain: nothing proposed";
      case Decision::kNoRoom:
        return "plain: no room for drafts";
      case Decision::kMeasured:
        return "plain: to measure what plain rounds take";
      case Decision::kSatOut:
        return "plain: nobody is asked, for the sequences of the batch together would lose";
    }
    return "";
  }

  const int max_nodes_, min_nodes_;
  const bool has_members_;
  CostModel* costs_;
  PlainWatch* plain_rounds_;
  DrafterMemory* drafter_;
  Asking asking_;

  // This round.
  int context_ = 0;
  double token_ms_ = 0;
  int asked_levels_ = 0;
  bool skipped_ = false;
  bool asked_before_ = false;
  bool probing_ = false;            // a dear drafter is asked although it does not promise to pay
  std::vector<double> row_ms_;      // [n]: target cost of 1 + n rows
  std::vector<double> reach_;       // by node
  std::vector<int> order_;          // nodes, best first
  std::vector<double> gain_;        // [n]: expected accepted tokens of the best n
  std::vector<double> best_reach_;  // of order_
  std::vector<double> planned_;     // chances of nodes, best first
  TokenTree proposal_{0};
  Last last_;

  // Learned in this generation, or known when it began.
  AcceptanceTable acceptance_;
  DraftTime draft_time_;
  bool dear_ = false, pays_ = false;  // a dear one pays
  RunningMean sample_ms_;
  LevelChances chances_;
  double most_worth_ = 0;  // nodes
  int plan_ = 0;           // the count that promised most when a dear drafter was considered
  double plan_gain_ = 0;
  Backoff tree_probe_, draft_probe_;
  int rounds_on_ = 0, rounds_asked_ = 0;
  std::array<int64_t, kDecisionNames.size()> counts_{};
};

// Makes room for one more drafter, unless all are in use.
void ForgetTheOldest(AdaptiveMemory* memory) {
  auto& known = memory->drafters;
  if (known.size() < AdaptiveMemory::kMostDrafters) return;
  auto oldest = known.end();
  for (auto at = known.begin(); at != known.end(); ++at) {
    if (at->second.in_flight > 0) continue;
    if (oldest == known.end() || at->second.last_used < oldest->second.last_used) oldest = at;
  }
  if (oldest != known.end()) known.erase(oldest);
}

}  // namespace

std::string AcceptanceKey(const Drafter& drafter, bool dice) {
  std::string key(drafter.name());
  for (const auto& [name, value] : drafter.uses()) key += ", " + name + " " + value;
  return key + (dice ? ", dice" : "");
}

std::unique_ptr<Policy> MakeAdaptivePolicy(const SpeculationOptions& options, std::string_view key,
                                           AdaptiveMemory* memory) {
  auto known = memory->drafters.find(key);
  if (known == memory->drafters.end()) {
    ForgetTheOldest(memory);
    known = memory->drafters.emplace(std::string(key), DrafterMemory()).first;
  }
  known->second.last_used = ++memory->n_policies;
  return std::make_unique<AdaptivePolicy>(options, memory, &known->second);
}

}  // namespace longspec

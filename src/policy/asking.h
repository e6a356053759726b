// SPDX-License-Identifier: Apache-2.0
//
// Whom of a portfolio to ask: first its members that take no time, then, if that gains what it costs, those
// that do, as many levels deep as gains most.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/running_mean.h"
#include "draft/portfolio_drafter.h"
#include "tree/token_tree.h"

namespace longspec {

// What it gains to ask members that take time, and how many levels deep: how many tokens each level of their
// guesses adds to what the others, which cost next to nothing, would have had accepted in the same round. It
// is counted after each round in which they were asked, by holding the tree with their guesses and the one
// without against the text that came, apart for rounds in which the others expect little and those in which
// they expect much: a draft model has nothing to add to a copy.
//
// As many levels are asked for as are worth more, at the present speed, than their time. One more is tried
// now and then, and one where none is worth it but the others expect little, so that a change of the text is
// noticed: the more seldom, the more such trials have brought nothing.
//
// It outlives generations, and may be shared by those in flight; as numbers it outlives the program
// (engine/drafter_memories.h). It decides trees, never text. Not thread-safe.
class AskingGain {
 public:
  static constexpr int kMaxLevels = 8;

  // A proposal of the portfolio's member of that number took so long.
  void Took(size_t member, double ms);
  // Whether its proposals lately took longer.
  bool IsDear(size_t member, double dear_ms) const {
    return member < ms_.size() && ms_[member].value() > dear_ms;
  }

  // How many levels to ask for in this round, at most `max_levels`; 0: nothing. `expected`: tokens that the
  // others' tree promises; `token_ms`: what a token takes at the present speed, 0 if that is not known yet;
  // `unread`: rows that they have to run before.
  int Levels(double expected, double token_ms, int max_levels, size_t unread = 0);
  // They ran so many rows before they were asked.
  void CaughtUp(size_t rows, double ms) { AddTime(ms / static_cast<double>(rows), row_ms_); }
  // They had an answer. Until they have, a trial that is due stays due.
  void Answered();

  // They were asked in a round in which the others expected that much. `followed`[d]: tokens of the text that
  // the tree had with d levels of their guesses, without any at [0]; `ms`: what they took.
  void Learn(double expected, std::span<const int> followed, double ms);

  // All that is believed, as finite numbers, in an order of its own; empty: nothing was learned.
  std::vector<double> Beliefs() const;
  // Takes over the beliefs that another program left. False if the numbers are no beliefs: nothing changes.
  bool Believe(std::span<const double> beliefs);

  // What is believed of such a round: tokens that level d, from 1, adds, and what a level takes. For tests.
  double added(double expected, int level) const { return Added(ClassOf(expected), Index(level - 1)); }
  double level_ms() const { return level_ms_.value; }

 private:
  static constexpr size_t kClasses = 4;
  static constexpr double kAddedAtFirst = 0.4;  // tokens, by the first level
  static constexpr double kNextLevel = 0.5;     // what a level adds, of what the one above does
  static constexpr double kDoubt = 4;           // rounds that such a belief counts for
  static constexpr double kRate = 1.0 / 64;     // of running means, at least
  // Rows are verified up to where they just pay, so that a token that is gained is worth a part of its time.
  static constexpr double kWorth = 0.5;
  static constexpr double kProbeShare = 0.005;  // of the time
  static constexpr double kMostPatience = 16;   // times rarer: trials that bring nothing
  static constexpr int kDeeperEvery = 8;        // rounds
  static constexpr double kReadServes = 16;     // rounds that what they read before is for
  static constexpr double kStall = 4;           // times what was known: what takes longer counts as this

  // A running mean whose first values count alike.
  struct Mean {
    double value = 0, n = 0;
    void Add(double x) {
      n += 1;
      const double rate = 1 / n > kRate ? 1 / n : kRate;
      value += rate * (x - value);
    }
    // The mean, mixed with what is believed without it: the less was seen, the more that belief counts.
    double Beside(double belief) const { return (kDoubt * belief + n * value) / (kDoubt + n); }
  };
  using ByLevel = std::array<Mean, kMaxLevels>;
  static constexpr size_t kMostMembers = 64;  // whose time is kept

  // A machine that stood still once must not keep them from being asked for minutes.
  static void AddTime(double ms, Mean& mean) {
    mean.Add(mean.n > 0 && ms > kStall * mean.value ? kStall * mean.value : ms);
  }
  static size_t Index(int i) { return static_cast<size_t>(i); }
  static size_t ClassOf(double expected);
  double Added(size_t of, size_t level) const;
  // visit(number, least, most) of each that is kept but those of ms_.
  template <typename Gain, typename Visit>
  static void VisitBeliefs(Gain& gain, const Visit& visit);

  std::vector<RunningMean> ms_;  // by member
  std::array<ByLevel, kClasses> added_;
  ByLevel added_of_all_;
  Mean level_ms_, row_ms_;
  bool warm_ = false;     // they were asked before: a first time takes longer
  double token_ms_ = 0;   // what a token took last
  double waited_ms_ = 0;  // since they answered last
  double patience_ = 1;
  bool trial_ = false;  // nothing was thought worth its time when they were asked
  int n_asked_ = 0;
};

// Asks the members for one generation, whose rounds it sees in order. Not thread-safe.
class Asking {
 public:
  // `gain`, which it goes by and teaches, is borrowed.
  explicit Asking(AskingGain* gain) : gain_(gain) {}

  // A round begins, in which nobody may be asked.
  void BeginRound() { asked_.reset(); }

  struct Prices {
    double dear_ms = 0;   // members whose proposals lately took longer take time
    double token_ms = 0;  // what a token takes at the present speed; 0: unknown
  };
  // Grows `tree`, a root, within the budget. All that is passed is borrowed until the task ends.
  DraftTask Draft(Portfolio& portfolio, const DraftBudget& budget, Prices prices,
                  std::span<const int32_t> committed, TokenTree& tree, PassMeeting& meeting);

  // What of that proposal was verified, and the text that came.
  void Learn(const TokenTree& verified, std::span<const int32_t> text);

 private:
  // A round in which members that take time were asked.
  struct Asked {
    std::vector<bool> is_dear;  // by member: it takes time
    double expected = 0;        // tokens, of the tree without their guesses
    TokenTree without{0};       // which is this
    int levels = 0;             // of their guesses
    double ms = 0;
  };

  DraftTask AskOne(Portfolio& portfolio, size_t member, const DraftBudget& budget, double dear_ms,
                   std::span<const int32_t> committed, PassMeeting& meeting);
  static int FollowedBy(const Asked& asked, int levels, const TokenTree& verified,
                        std::span<const int32_t> text);

  AskingGain* const gain_;
  std::optional<Asked> asked_;  // in this round
  std::vector<int> followed_;
};

}  // namespace longspec

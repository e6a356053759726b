// SPDX-License-Identifier: Apache-2.0
//
// Where the passes of several sequences' drafts meet. Each draft hands in the rows that it wants to run next,
// and waits; when all wait or have ended, the rows of all drafts of the same model go through it in one pass,
// which reads its weights once. A row's result does not depend on the rows beside it, so the trees are those
// of each alone.
//
// One thread drives all of them: a draft is a coroutine (draft/draft_task.h).
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "draft/draft_task.h"
#include "draft/drafter.h"
#include "longspec/status.h"
#include "tree/token_tree.h"

namespace longspec {

// The rows of one draft.
class MeetingRows {
 public:
  virtual ~MeetingRows() = default;
  // Rows with the same key can share a pass.
  struct Key {
    const void* model = nullptr;
    int form = 0;  // of the pass, where a model has several
    bool operator==(const Key&) const = default;
  };
  virtual Key key() const = 0;
  // Other passes go first, so that those who need them may catch up and meet in this one.
  virtual bool is_costly() const { return false; }
  // Runs those of all of `together`, of which this is the first. An error, or no memory, is that of each.
  virtual Status Run(std::span<MeetingRows* const> together) = 0;
};

class PassMeeting {
 public:
  // What a draft awaits.
  class Turn {
   public:
    bool await_ready();
    void await_suspend(std::coroutine_handle<> draft);
    Status await_resume() { return std::move(status_); }

   private:
    friend class PassMeeting;
    Turn(PassMeeting* meeting, MeetingRows* rows) : meeting_(meeting), rows_(rows) {}
    PassMeeting* meeting_;
    MeetingRows* rows_;
    Status status_;
  };

  // co_await Join(rows): runs them, borrowed until then. Alone at once.
  Turn Join(MeetingRows& rows) { return {this, &rows}; }

  // Runs drafts [0, n) to their ends: begin(i) makes and end(i, result, ms) takes each; ms is what it took,
  // its share of the passes included. With n = 1 nothing waits.
  void Run(int n, const std::function<DraftTask(int)>& begin,
           const std::function<void(int, DraftTask&, double)>& end);

  // Of the last Run.
  int n_passes() const { return n_passes_; }

  // What the draft that runs now has taken so far, in ms. Of use for differences only.
  double Ms() const;

 private:
  struct Waiting {
    Turn* turn;
    std::coroutine_handle<> draft;
    int who;
  };
  struct Clock {
    double ms = 0, since = 0;
  };

  static Status RunPass(std::span<MeetingRows* const> together);
  void RunNext();
  template <typename Step>
  void Clocked(int who, const Step& step);

  int now_ = -1;  // who runs; -1: nobody that is counted
  bool several_ = false;
  int n_passes_ = 0;
  std::vector<Clock> clocks_;
  std::vector<Waiting> waiting_;
};

// A drafter whose rows meet those of other sequences.
class MeetingDrafter : public Drafter {
 public:
  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) final;
  DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                  PassMeeting& meeting) override = 0;
};

}  // namespace longspec

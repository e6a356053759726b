// SPDX-License-Identifier: Apache-2.0
#include "draft/pass_meeting.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/size.h"

namespace longspec {

bool PassMeeting::Turn::await_ready() {
  if (meeting_->several_) return false;
  ++meeting_->n_passes_;
  status_ = RunPass({&rows_, 1});
  return true;
}

void PassMeeting::Turn::await_suspend(std::coroutine_handle<> draft) {
  meeting_->waiting_.push_back({this, draft, meeting_->now_});
}

double PassMeeting::Ms() const {
  if (now_ < 0) return NowMs();
  const Clock& clock = clocks_[Z(now_)];
  return clock.ms + NowMs() - clock.since;
}

Status PassMeeting::RunPass(std::span<MeetingRows* const> together) try {
  return together.front()->Run(together);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for drafts of " + std::to_string(together.size()) + " sequences");
}

template <typename Step>
void PassMeeting::Clocked(int who, const Step& step) {
  now_ = who;
  clocks_[Z(who)].since = NowMs();
  step();
  clocks_[Z(who)].ms += NowMs() - clocks_[Z(who)].since;
  now_ = -1;
}

// One pass of those that wait for what the first waits for, or the first of those whose pass is not costly.
void PassMeeting::RunNext() {
  const auto cheap =
      std::ranges::find_if(waiting_, [](const Waiting& w) { return !w.turn->rows_->is_costly(); });
  const MeetingRows::Key key = (cheap == waiting_.end() ? waiting_.front() : *cheap).turn->rows_->key();
  const auto same = [&](const Waiting& w) { return w.turn->rows_->key() == key; };
  const auto others = std::stable_partition(waiting_.begin(), waiting_.end(), same);
  std::vector<Waiting> met(waiting_.begin(), others);
  waiting_.erase(waiting_.begin(), others);
  std::vector<MeetingRows*> rows;
  for (const Waiting& w : met) rows.push_back(w.turn->rows_);
  ++n_passes_;
  const double start = NowMs();
  const Status status = RunPass(rows);
  const double ms = (NowMs() - start) / static_cast<double>(met.size());
  for (const Waiting& w : met) {
    clocks_[Z(w.who)].ms += ms;
    w.turn->status_ = status;
    Clocked(w.who, [&] { w.draft.resume(); });
  }
}

void PassMeeting::Run(int n, const std::function<DraftTask(int)>& begin,
                      const std::function<void(int, DraftTask&, double)>& end) {
  several_ = n > 1;
  waiting_.clear();
  n_passes_ = 0;
  clocks_.assign(Z(n), {});
  std::vector<DraftTask> drafts(Z(n));
  for (int i = 0; i < n; ++i) {
    Clocked(i, [&] {
      drafts[Z(i)] = begin(i);
      drafts[Z(i)].Start();
    });
  }
  while (!waiting_.empty()) RunNext();
  for (int i = 0; i < n; ++i) end(i, drafts[Z(i)], clocks_[Z(i)].ms);
}

Status MeetingDrafter::Propose(const DraftBudget& budget, std::span<const int32_t> committed,
                               TokenTree& tree) {
  PassMeeting alone;
  return RunNow(Draft(budget, committed, tree, alone));
}

}  // namespace longspec

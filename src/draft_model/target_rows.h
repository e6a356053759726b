// SPDX-License-Identifier: Apache-2.0
//
// The rows of one draft in a pass of a whole model: a language model that drafts, or the target over a part
// of its cache. Those of several sequences are one pass.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status_macros.h"
#include "draft/pass_meeting.h"
#include "longspec/status.h"
#include "model/target.h"

namespace longspec {

class TargetRows : public MeetingRows {
 public:
  Key key() const final { return {.model = model_}; }

  // In as few passes as hold all drafts' rows. What each takes of a pass it takes before the next one.
  Status Run(std::span<MeetingRows* const> together) final {
    std::vector<ForwardSegment> segments;
    for (size_t begin = 0, end = 0; begin < together.size(); begin = end) {
      size_t n_rows = 0;
      segments.clear();
      for (; end < together.size(); ++end) {
        const ForwardSegment& of_one = static_cast<const TargetRows*>(together[end])->segment;
        n_rows += of_one.tokens.size();
        if (end > begin && n_rows > most_rows_) break;
        segments.push_back(of_one);
      }
      LS_ASSIGN(const TargetOutput output, model_->Forward(segments));
      for (size_t i = begin; i < end; ++i) {
        static_cast<TargetRows*>(together[i])->Take(output.segments[i - begin]);
      }
    }
    return {};
  }

  ForwardSegment segment;  // what it views outlives the pass

 protected:
  // `model`: borrowed. `most_rows`: of one pass, as it was loaded for.
  TargetRows(Target* model, size_t most_rows) : model_(model), most_rows_(most_rows) {}

 private:
  virtual void Take(const TargetOutput::Segment& output) = 0;

  Target* const model_;
  const size_t most_rows_;
};

}  // namespace longspec

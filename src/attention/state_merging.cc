// SPDX-License-Identifier: Apache-2.0
#include "attention/state_merging.h"

#include <algorithm>

namespace longspec {
namespace {

int StretchOf(int chunk) { return chunk / kernels::kStretchChunks; }

}  // namespace

StateMerging::StateMerging(const kernels::KernelTable& kernels, int head_dim, int first, int next,
                           float* open, float* before)
    : kernels_(kernels), head_dim_(head_dim), next_(next), kept_open_(open), kept_before_(before) {
  if (next == first) return;
  open_ = open;
  if (StretchOf(next - 1) > StretchOf(first)) before_ = before;
}

void StateMerging::Add(float* state) {
  if (open_ == nullptr) {
    open_ = state;
  } else if (next_ % kernels::kStretchChunks != 0) {
    kernels_.merge_state(open_, state, head_dim_);
  } else {
    if (before_ == nullptr) {
      before_ = open_;
    } else {
      kernels_.merge_state(before_, open_, head_dim_);
    }
    open_ = state;
  }
  ++next_;
}

void StateMerging::MoveTo(float* memory, float*& state) const {
  if (state == nullptr || state == memory) return;
  std::copy_n(state, kernels::kStateHeader + head_dim_, memory);
  state = memory;
}

void StateMerging::Keep() {
  MoveTo(kept_before_, before_);  // first: it may lie where the open one goes
  MoveTo(kept_open_, open_);
}

void StateMerging::Finish(float* out) {
  if (open_ == nullptr) {
    std::fill_n(out, head_dim_, 0.0F);
    return;
  }
  if (before_ != nullptr) kernels_.merge_state(before_, open_, head_dim_);
  kernels_.finish_state(before_ != nullptr ? before_ : open_, head_dim_, out);
}

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// The forward and backward passes of an optimiser step, several at the same time, each on one thread: small
// matrices leave LibTorch's own threads waiting for each other most of the time, above all on a machine that
// does other work. Gradients are added in the order of the passes, so the sum has the same bits for any
// number of threads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "longspec/status.h"

namespace longspec::train {

struct PassSum {
  std::vector<at::Tensor> gradients;  // by parameter; undefined: the pass does not depend on it
  double loss = 0.0;                  // of all rows, added up
  int64_t rows = 0;                   // tokens that are to be predicted
  int64_t tokens = 0;
  double macs = 0.0;  // multiply-adds
};

// Adds pass(0) + pass(1) + ... + pass(n - 1) to *sum. `pass` is called from all threads, on_pass from this
// one, after each of its own passes but the last of all, with the passes added so far. False, and what is in
// *sum is of no use, as soon as on_pass returns false. Exceptions of a pass are thrown again here.
Result<bool> RunPasses(int n, int threads, const std::function<Result<PassSum>(int)>& pass,
                       const std::function<bool(const PassSum&)>& on_pass, PassSum* sum);

// Billions of multiply-adds a second that so many threads reach at once, each with matrix products that fit
// its cache: what a pass could reach if it were nothing else. Takes half a second.
double PeakGigaMacs(int threads);

}  // namespace longspec::train

// SPDX-License-Identifier: Apache-2.0
//
// Decodes a recorded answer again without the model. Speculation never changes the text, so the recording
// says what the target would have answered to any draft; drafters and policies are the real ones, and the
// machine is a table of what rows cost. Nothing depends on a clock: what a change of the policy does can be
// told from the noise of a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft_model/draft_models.h"
#include "policy/policy.h"

namespace longspec::testing {

struct Recording {
  std::string name;                        // "gov_report at 4096, temperature 0.7"
  std::vector<int32_t> prompt, answer;     // tokens; neither is empty
  SamplingOptions sampling = {};           // the answer's, seed and temperature included
  PredictionDraftOptions prediction = {};  // what a server made of the request
};

struct Played {
  double ms = 0;        // of all rounds, as the table says
  double plain_ms = 0;  // that plain decoding takes
  int64_t rounds = 0, drafted = 0, accepted = 0;

  double speedup() const { return plain_ms / ms; }
};

// REQUIRES: the options make a drafter that needs no model. `models` may hold a prior; null: there is none.
// `memory` is what adaptive policies learn from one recording to the next; fixed ones leave it alone.
// `machine` says what rounds cost in truth.
Played Play(const Recording& recording, const SpeculationOptions& options, const CostModel& machine,
            AdaptiveMemory* memory, DraftModels* models = nullptr);

}  // namespace longspec::testing

// SPDX-License-Identifier: Apache-2.0
//
// Whether a token can be chosen from a row of logits. A broken model file, or numbers that leave the range of
// their type, end as logits that are no numbers, and no choice from such means anything.
#pragma once

#include <cstdint>
#include <span>

#include "longspec/status.h"

namespace longspec {

// Ok if each logit is a finite number or minus infinity (a token that cannot occur), and some is finite.
// Otherwise kCorrupt; the message names `position`, the absolute position of the token to be chosen, and the
// first wrong logit. One pass over the row.
Status CheckLogits(std::span<const float> logits, uint64_t position);

}  // namespace longspec

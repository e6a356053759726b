// SPDX-License-Identifier: Apache-2.0
//
// Someone besides the drafter who is shown a sequence's rows as they become committed.
#pragma once

#include "draft/drafter.h"

namespace longspec {

class RowReader {
 public:
  virtual ~RowReader() = default;
  // What it needs of the next pass: queries and logits; hidden states are the drafter's alone.
  virtual Taps taps() const = 0;
  virtual void Read(const CommittedRows& rows) = 0;
};

}  // namespace longspec

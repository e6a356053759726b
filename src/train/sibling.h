// SPDX-License-Identifier: Apache-2.0
//
// A smaller model with the target's vocabulary, out of which a draft of kind lm is cut (--sibling): its
// sizes, and what of its embedding and head belongs to the tokens that the draft chooses among. Frozen.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "longspec/status.h"

namespace longspec::train {

struct Sibling {
  std::shared_ptr<const GgufFile> file;
  FeatureTarget shape;   // as if it were a target itself
  at::Tensor embedding;  // (n, n_embd), n: tokens of the draft
  at::Tensor head;       // the same one where the model ties both, be it in files that hold two
  at::Tensor loss_head;  // the head in the type that products of losses have
  at::Tensor
      stand_ins;  // (n_vocab of the target) int64: the row of the embedding that is read for each token
};

// Whether the file is a draft that was cut out of a model: it can stand for that one when it is trained on.
bool IsCut(const GgufFile& file);

// `vocab`: what the draft chooses among, ascending; of a file that was cut its own. For another token the one
// among these stands in whose embedding points most nearly the same way. kInvalidArgument of a model with
// other tokens than the target's, but for padding.
Result<std::shared_ptr<const Sibling>> LoadSibling(std::shared_ptr<const GgufFile> file,
                                                   const GgufFile& target, const FeatureTarget& described,
                                                   const std::vector<int64_t>& vocab, at::Device device,
                                                   at::ScalarType type);

}  // namespace longspec::train

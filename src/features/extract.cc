// SPDX-License-Identifier: Apache-2.0
#include "features/extract.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace longspec {

FeatureExtractor::FeatureExtractor(Target* target, std::unique_ptr<KvCache> cache, int rows, int top_k,
                                   const FeatureKeep& keep)
    : writer_(target, [&cache] { return std::move(cache); },
              {.max_tokens = 0,
               .temperatures = {0.0F},
               .at_once = 1,
               .top_k = top_k,
               .beginning_logits = true,
               .rows = rows,
               .keep = keep}) {}

Result<ExtractedFeatures> FeatureExtractor::Extract(std::span<const int32_t> tokens,
                                                    const std::function<bool(int)>& on_rows) {
  if (KeepsNothing()) {
    ExtractedFeatures positions;
    positions.positions.resize(tokens.size());
    std::iota(positions.positions.begin(), positions.positions.end(), 0);
    if (!on_rows(static_cast<int>(tokens.size()))) return Cancelled("interrupted");
    return positions;
  }
  const std::vector<int32_t> beginning(tokens.begin(), tokens.end());
  LS_ASSIGN(std::vector<WrittenContinuation> all, writer_.Write({&beginning, 1}, 0, on_rows));
  return std::move(all[0].features);
}

}  // namespace longspec

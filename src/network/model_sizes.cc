// SPDX-License-Identifier: Apache-2.0
#include "network/model_sizes.h"

#include <algorithm>
#include <cmath>

namespace longspec {

AttentionShape ModelSizes::attention() const {
  return {.n_head = n_head,
          .n_kv_head = n_head_kv,
          .head_dim = head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

KvLayout ModelSizes::kv_layout(CacheType k, CacheType v) const {
  return {.k_type = k, .v_type = v, .n_kv_head = n_head_kv, .head_dim = head_dim};
}

int ModelSizes::context_length() const {
  // A file's context length may be what it is after scaling; then it names the one before.
  const int unscaled = rope.orig_ctx > 0 ? rope.orig_ctx : n_ctx_train;
  const double scaled = std::max(1.0 * n_ctx_train, unscaled * std::max(1.0, rope.scale));
  return static_cast<int>(std::min(scaled, 2147483647.0));
}

}  // namespace longspec

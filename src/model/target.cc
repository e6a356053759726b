// SPDX-License-Identifier: Apache-2.0
#include "model/target.h"

#include "attention/attention_mass.h"
#include "base/check.h"
#include "kv/readable_span.h"
#include "model/shared_parts.h"

namespace longspec {

std::shared_ptr<ChunkPool> Target::NewPool(const KvLayout& layout, int n_layer,
                                           const KvOffload& offload) const {
  return MakeHostPool(layout, n_layer, offload);
}

std::unique_ptr<LayerPrefix> Target::NewPrefix(const KvLayout& layout, int n_layers) const {
  return std::make_unique<LayerPrefix>(NewPool(layout, n_layers, {}), shared_parts()->sizes->n_embd);
}

void Target::AttentionMass(const KvCache& cache, int layer, const StateRows& query,
                           std::vector<float>* mass) const {
  LS_CHECK(query.size() == 1);
  const SharedParts& parts = *shared_parts();
  std::vector<float> room;
  const KvSpan span = cache.Span(layer);
  const ReadableSpan readable(span, cache.mover(), 0, span.n_committed);
  longspec::AttentionMass(*parts.lane.kernels, parts.sizes->attention(), readable.span(), query.Read(&room),
                          mass);
}

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// MagicDec (arXiv 2408.11049): the target drafts for itself with StreamingLLM's cache, its
// first and last positions only, at positions inside that cache (draft_model/nested_drafter.h). Keys and
// values are those of the whole cache; the paper computes others, by a second prefill through the window.
#include <algorithm>

#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_lane.h"
#include "draft_model/nested_drafter.h"
#include "draft_model/registry.h"
#include "kv/streaming_cache.h"
#include "model/shared_parts.h"

namespace longspec {
namespace {

constexpr int kMaxMagicdecWindow = 1 << 24;
constexpr DrafterOption kMagicDecOptions[] = {
    {.flags = "--spec-magicdec-sink",
     .member = At<&SpeculationOptions::magicdec, &MagicDecDraftOptions::sink>,
     .help = "first positions the draft sees",
     .most = kMaxMagicdecWindow},
    {.flags = "--spec-magicdec-window",
     .member = At<&SpeculationOptions::magicdec, &MagicDecDraftOptions::window>,
     .help = "and last ones",
     .least = 1,
     .most = kMaxMagicdecWindow},
};

DrafterResult MakeMagicDec(const SpeculationOptions& options, const DraftContext& context) {
  if (context.target == nullptr || context.cache == nullptr) {
    return InvalidArgument("--spec-type magicdec: needs a target and the sequence's cache");
  }
  const SharedParts* parts = context.target->shared_parts();
  if (parts == nullptr || context.cache->exactness() != Exactness::kLossless) {
    return Unsupported(
        "--spec-type magicdec: needs a target of known shape and a cache of all its positions");
  }
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  const int n_layer = parts->sizes->n_layer;
  return std::unique_ptr<Drafter>(std::make_unique<NestedDrafter>(
      context, NestedOptions{.name = "magicdec", .width = width},
      MakeStreamingCache(context.target->NewPool(context.cache->Span(0).layout, n_layer, {}),
                         options.magicdec.sink, options.magicdec.window,
                         RotaryOf(parts->sizes->rope, *parts)),
      nullptr));
}

void HalveTheText(SpeculationOptions& options, int n_tokens) {
  options.magicdec.window = std::clamp(n_tokens / 2, 1, options.magicdec.window);
}

}  // namespace

constexpr DrafterEntry kMagicDecDrafter = {
    .name = "magicdec",
    .summary = "what the model says of the first and last positions alone",
    .options = kMagicDecOptions,
    .reads_dice = true,
    .check = CheckTreeWidth,
    .make = MakeMagicDec,
    .chain_by_default = true,
    .narrow = HalveTheText,
};

}  // namespace longspec

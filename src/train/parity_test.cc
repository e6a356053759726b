// SPDX-License-Identifier: Apache-2.0
//
// The engine computes from the exported draft what the trainer does.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "draft_model/longspec.h"
#include "train/feature_set.h"
#include "train/files.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::kLength;
using testing::Rig;
using testing::SequenceTokens;

// What training optimises is what decoding runs: logits of the trainer's forward pass at lag j against the
// engine's at a node j - 1 levels below the root, where the tree holds the sequence's own tokens.
// A window of 12 is shorter than the sequence, one of 4 also shorter than the tree's path and its root.
void ExpectParity(int window, const std::string& architecture = "llama") {
  Rig rig({}, {kLength}, {.architecture = architecture});
  rig.options.draft.window = window;
  rig.options.steps = 20;
  ASSERT_TRUE(rig.Run().ok());
  const auto trainee = testing::TraineeOf(rig);
  ASSERT_TRUE(LoadDraft(rig.options.output, *trainee).ok());
  const auto checkpoint = OpenDraftCheckpoint(rig.options.output);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto model = LongspecModel::Load(*checkpoint, "f32", rig.tiny.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto layout = rig.tiny.spec.kv_layout(CacheType::kF32, CacheType::kF32);
  const std::vector<int32_t> tokens = SequenceTokens(1);
  const PlacedBatch batch = testing::BatchOf(rig, {1});
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 5);
  for (int lag = 1; lag <= 5; ++lag) {
    const at::Tensor logits =
        at::matmul(chain[static_cast<size_t>(lag) - 1], trainee->setup().frozen.head.t());
    const double deviation = logits.std().item<double>();
    for (const int row : {8, 20, kLength - 1}) {
      // The root is lag - 1 tokens before the row; the rest of the path are nodes.
      const int root = row - (lag - 1);
      const auto cache = rig.tiny.NewCache(512, CacheType::kF16);
      {
        auto kv = cache->Begin(root);
        const ForwardSegment segment = {.tokens = std::span(tokens).first(static_cast<size_t>(root)),
                                        .parents = {},
                                        .kv = &*kv,
                                        .logits = LogitsFor::kNone};
        ASSERT_TRUE(rig.tiny.target().Forward({&segment, 1}).ok());
        kv->CommitAll();
      }
      LongspecForward forward(*model, layout, LongspecForward::MakeLane(**model, rig.tiny.parts()));
      ASSERT_TRUE(forward.Extend(std::span(tokens).first(static_cast<size_t>(root) + 1)).ok());
      std::vector<std::vector<TokenScore>> next;
      const KvSpan span = cache->Span(rig.tiny.spec.n_layer - 1);
      const LongspecRow first = {.token = tokens[static_cast<size_t>(root)], .position = root};
      ASSERT_TRUE(forward.Run({&first, 1}, span, 1, next).ok());
      std::vector<int32_t> path;
      for (int depth = 1; depth < lag; ++depth) {
        path.push_back(depth - 1);
        const int p = root + depth;
        const LongspecRow node = {tokens[static_cast<size_t>(p)], p, depth - 1, path};
        ASSERT_TRUE(forward.Run({&node, 1}, span, 1, next).ok());
      }
      double most = 0;
      for (int i = 0; i < forward.n_logits(); ++i) {
        most = std::max(most,
                        std::abs(logits[row][i].item<double>() - static_cast<double>(forward.logits()[i])));
      }
      EXPECT_LT(most, 1e-3 * deviation) << "window " << window << " lag " << lag << " row " << row;
    }
  }
}

TEST(Parity, EngineAndTrainerAgree) { ExpectParity(512); }

TEST(Parity, EngineAndTrainerAgreeOnQwen) { ExpectParity(12, "qwen2"); }

TEST(Parity, EngineAndTrainerAgreeOnShortWindows) {
  ExpectParity(12);
  ExpectParity(4);
}

}  // namespace
}  // namespace longspec::train

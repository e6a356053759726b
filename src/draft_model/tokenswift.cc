// SPDX-License-Identifier: Apache-2.0
//
// TokenSwift (arXiv 2502.18890): one pass of the target over what it retrieves of
// its cache chooses the next token, serial heads guess the ones after it from the state of that pass, and so
// do the 4-grams of the text that most often began with that token. The whole cache verifies all of it as one
// tree (draft_model/nested_drafter.h). Penalties are the sampler's, applied at each position of the tree, so
// the text is that of plain decoding with them; in the released code all rows of a tree have those of its
// root.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/size.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_lane.h"
#include "draft_model/draft_weights.h"
#include "draft_model/learned_draft.h"
#include "draft_model/nested_drafter.h"
#include "draft_model/partial.h"
#include "draft_model/registry.h"
#include "draft_text/followed_text.h"
#include "draft_text/ngram_table.h"
#include "draft_text/suffix_growth.h"
#include "model/shared_parts.h"

namespace longspec {
namespace {

// With h_0 the output of the target's last layer at position p, before the final norm, head i (0-based)
// predicts the token at p + i + 2:
//   h_(i+1) = h_i + A_i norm(h_i; a_i)
//   logits  = W norm(h_(i+1); b_i)
// with norms of root mean square and W the target's head, or rows of it.
struct TokenswiftModel : LoadedFromFile<TokenswiftModel> {
  static constexpr std::string_view kKind = "tokenswift";
  static const DraftKind kFile;
  static Result<TokenswiftModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  struct Head {
    DraftMatrix linear;                          // A (n_embd, n_embd)
    std::vector<float> input_norm, output_norm;  // a, b (n_embd)
  };

  int n_embd = 0;
  std::vector<Head> heads;
};

std::string TokenswiftPrefix(size_t head) { return "medusa_layers." + std::to_string(head) + "."; }

size_t CountTokenswiftHeads(const DraftCheckpoint& checkpoint) {
  size_t n = 0;
  while (checkpoint.Find(TokenswiftPrefix(n) + "linear.weight") != nullptr) ++n;
  return n;
}

// As many heads as there are names for.
std::vector<DraftPart> TokenswiftTensors(const DraftCheckpoint& checkpoint) {
  TokenswiftModel model;
  do {
    model.heads.emplace_back();
  } while (checkpoint.HasPrefix(TokenswiftPrefix(model.heads.size())));
  return WithoutPlaces(model.Parts());
}

constexpr DraftKind TokenswiftModel::kFile = {
    .name = kKind,
    .recognise = [](const DraftCheckpoint& c) { return c.HasPrefix("medusa_layers."); },
    .tensors = TokenswiftTensors};

Result<TokenswiftModel> TokenswiftModel::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  TokenswiftModel model = Of(checkpoint);
  model.n_embd = target.n_embd;
  model.heads.resize(CountTokenswiftHeads(checkpoint));
  LS_ASSIGN(const int stated, checkpoint.keys.Size("medusa_heads"));
  if (stated > 0 && static_cast<size_t>(stated) > model.heads.size()) {
    return Corrupt(checkpoint.path + ": \"medusa_heads\" is " + std::to_string(stated) +
                   ", but there are tensors of " + std::to_string(model.heads.size()));
  }
  return model;
}

std::vector<DraftPart> TokenswiftModel::Parts() {
  std::vector<DraftPart> parts;
  for (size_t i = 0; i < heads.size(); ++i) {
    Head& of = heads[i];
    const std::string prefix = TokenswiftPrefix(i);
    parts.push_back(
        {.tensor = prefix + "linear.weight", .n_in = n_embd, .n_out = n_embd, .matrix = &of.linear});
    parts.push_back({.tensor = prefix + "input_layernorm.weight", .n_in = n_embd, .vector = &of.input_norm});
    parts.push_back({.tensor = prefix + "post_layernorm.weight", .n_in = n_embd, .vector = &of.output_norm});
  }
  return parts;
}

// The working set, and the table of 4-grams.
DraftMemory TokenswiftModel::Working(const SpeculationOptions& options, const TargetFacts& target,
                                     int64_t) const {
  DraftMemory plan = RetrievalMemory(options, target);
  plan.kv_chunk += kKvChunk * NgramTable::kMostBytes;
  return plan;
}

// Its norms and products are of one row.
std::shared_ptr<DraftLane> MakeLaneOf(const TokenswiftModel& model, const SharedParts& target) {
  std::vector<const DraftMatrix*> matrices = {&model.head.matrix};
  for (const TokenswiftModel::Head& head : model.heads) matrices.push_back(&head.linear);
  const LaneSize size = {.shape = {.n_embd = target.sizes->n_embd, .rms_eps = target.sizes->rms_eps},
                         .max_rows = 1,
                         .n_logits = model.head.matrix.n_out()};
  return std::make_shared<DraftLane>(target, size, matrices);
}

// What the heads say after one state.
class SerialHeads final : public HeadGrowth<GrowthModel> {
 public:
  SerialHeads(std::shared_ptr<const TokenswiftModel> model, const SharedParts& target)
      : model_(std::move(model)),
        states_((model_->heads.size() + 1) * Z(model_->n_embd)),
        lane_(MakeLaneOf(*model_, target)) {}

  int n_heads() const { return static_cast<int>(model_->heads.size()); }

  // `state`: (1, n_embd), the output of the target's last layer.
  void Begin(const StateRows& state) { state.Copy(states_.data()); }

  size_t bytes() const { return lane_->bytes() + states_.capacity() * sizeof(float); }

 private:
  DraftTask RunHead(int i, int k, std::vector<std::vector<TokenScore>>& next) override {
    const TokenswiftModel::Head& head = model_->heads[Z(i)];
    const size_t n = Z(model_->n_embd);
    const float* before = states_.data() + Z(i) * n;
    float* after = states_.data() + Z(i + 1) * n;
    std::memcpy(after, before, n * sizeof(float));
    lane_->Run(1, [&](DraftPass& pass) {
      pass.Multiply(head.linear, pass.Norm(before, head.input_norm), after, /*add=*/true);
      pass.Top(pass.Norm(after, head.output_norm), model_->head, k, next);
    });
    return {};
  }

  const std::shared_ptr<const TokenswiftModel> model_;
  std::vector<float> states_;  // (n_heads + 1, n_embd): h_0, h_1, ...
  const std::shared_ptr<DraftLane> lane_;
};

class TokenswiftExtension final : public DraftExtension {
 public:
  TokenswiftExtension(std::shared_ptr<const TokenswiftModel> model, TreeShape shape,
                      const SharedParts& target)
      : shape_(std::move(shape)),
        last_layer_(target.sizes->n_layer - 1),
        heads_(std::move(model), target),
        text_(NgramTable()) {}

  std::vector<std::string_view> sources() const override { return {"heads", "n-grams"}; }
  Taps taps() const override { return {.hidden_layers = {last_layer_}}; }

  void Follow(std::span<const int32_t> committed) override { text_.Assign(committed); }
  void Read(const CommittedRows& rows) override { text_.Accept(rows.sequence, rows.n_new); }

  Status Propose(const TargetOutput::Segment& pass, int row, const DraftBudget& budget,
                 std::span<const int32_t> text, std::vector<TokenTree>* trees) override {
    TokenTree& by_heads = trees->emplace_back(text.back());
    heads_.Begin(pass.hidden[0].From(row, 1));
    GuidedGrowth guided(heads_, nullptr, budget, kDiceOfModels, text);
    LS_TRY(GrowTreeNow(
        shape_, {.max_nodes = budget.max_nodes, .max_depth = std::min(budget.max_depth, heads_.n_heads())},
        guided, by_heads));
    TokenTree& by_ngrams = trees->emplace_back(text.back());
    AddToTree(grower_.Grow(text_.index(), text_.index().After(text.back()),
                           {.max_nodes = budget.max_nodes,
                            .max_depth = budget.max_depth,
                            .width = NgramTable::kMost,
                            .foresight = budget.foresight,
                            .committed = text}),
              by_ngrams);
    return {};
  }

  size_t bytes() const override { return heads_.bytes() + text_.bytes(); }

 private:
  const TreeShape shape_;
  const int last_layer_;
  SerialHeads heads_;
  FollowedText<NgramTable> text_;
  SuffixGrower grower_;
};

constexpr DrafterOption kTokenswiftOptions[] = {
    kDraftModelOption,    kDraftWeightsOption,   kPartialSinkOption, kPartialBudgetOption,
    kPartialWindowOption, kPartialRefreshOption, kPartialScoreOption};

Status CheckTokenswift(const SpeculationOptions& options) {
  LS_TRY(CheckPartialOptions(options));
  return CheckLearned(options);
}

DrafterResult MakeTokenswift(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(auto part, MakeRetrieval(options, context));
  return MakeLearned<TokenswiftModel>(options, context, "best", [&](auto model, TreeShape shape) {
    auto extension = std::make_unique<TokenswiftExtension>(std::move(model), std::move(shape),
                                                           *context.target->shared_parts());
    return std::make_unique<NestedDrafter>(context, NestedOptions{.name = TokenswiftModel::kKind},
                                           std::move(part), nullptr, std::move(extension));
  });
}

}  // namespace

constexpr DrafterEntry kTokenswiftDrafter = LearnedEntry<TokenswiftModel>(
    {.summary = "what the model says of the positions that it retrieves, and heads and 4-grams after that",
     .options = kTokenswiftOptions,
     .check = CheckTokenswift,
     .make = MakeTokenswift,
     .alone = true,
     .narrow = SeeLess});

}  // namespace longspec

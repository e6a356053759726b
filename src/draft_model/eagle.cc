// SPDX-License-Identifier: Apache-2.0
//
// EAGLE (arXiv 2401.15077, 2406.16858) and EAGLE-3 (2503.01840): trees grown by a one-layer draft model from
// the target's hidden states, which are read as the target computes them. The draft's own keys and values,
// one layer, are kept for all tokens it has read, and found by other sequences that begin alike
// (draft_model/draft_keys.h). Hidden states are not kept: tokens that were computed while no such draft
// read along (without one, or for a session from a file) are left out, and it drafts with the others.
//
// With SpecExtend (draft_model/spec_extend.h) the draft sees copies of some chunks of them, at positions of
// their own, so that one trained on short texts reads long ones. What is kept is the same, whoever has read
// it.
#include "draft_model/eagle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/growing_drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_keys.h"
#include "draft_model/draft_models.h"
#include "draft_model/learned_draft.h"
#include "draft_model/registry.h"
#include "draft_model/spec_extend.h"
#include "draft_model/trained_range.h"
#include "kv/chunk_pool.h"
#include "tensor/dequantize.h"
#include "tensor/state_rows.h"

namespace longspec {

namespace {

constexpr int kMostTaps = 8;
constexpr char kFusedNorm[] = "input_norm.weight";
constexpr char kFrequencyFactors[] = "rope_freqs.weight";

bool IsEagle3(const DraftCheckpoint& checkpoint) {
  return std::ranges::find(checkpoint.config.architectures, "LlamaForCausalLMEagle3") !=
             checkpoint.config.architectures.end() ||
         checkpoint.HasPrefix("midlayer.") || checkpoint.HasPrefix("layers.0.hidden_norm.") ||
         checkpoint.Find("d2t") != nullptr;
}

bool IsEagle1(const DraftCheckpoint& checkpoint) {
  return checkpoint.Find("fc.weight") != nullptr && checkpoint.HasPrefix("layers.0.") &&
         !IsEagle3(checkpoint);
}

std::string RenameEagle3(const std::string& name) {
  constexpr std::string_view kOther = "layers.0.";
  return name.starts_with(kOther) ? "midlayer." + name.substr(kOther.size()) : name;
}

// By outputs, as the file says it; none: it does not.
Result<std::vector<int>> NamedLayers(const DraftCheckpoint& checkpoint, const char* key) {
  LS_ASSIGN(const ConfigKeys nested, checkpoint.keys.Object("eagle_config"));
  LS_ASSIGN(std::vector<int> outputs, nested.Indices(key));
  if (!outputs.empty()) return outputs;
  LS_ASSIGN(const std::vector<int> inputs, checkpoint.keys.Indices(key));
  for (const int input : inputs) {
    if (input == 0) {
      return Unsupported(checkpoint.path + ": \"" + key + "\" beside eagle_config numbers layers by what " +
                         "they read, and 0 is the embedding, which is not read");
    }
    outputs.push_back(input - 1);
  }
  return outputs;
}

// What is said and what is there must agree; a file that says nothing has what its tensors are.
Status CheckNorms(const DraftCheckpoint& checkpoint) {
  LS_TRY(checkpoint.keys.Flag("norm_before_residual", false).status());
  const bool has = checkpoint.Find(kFusedNorm) != nullptr;
  LS_ASSIGN(const bool said, checkpoint.keys.Flag("norm_before_fc", has));
  if (said != has) {
    return Corrupt(checkpoint.path + ": \"norm_before_fc\" is " + (said ? "true" : "false") +
                   ", but tensor " + kFusedNorm + (has ? " is there" : " is missing"));
  }
  for (const char* key : {"fc_norm", "norm_output"}) {
    LS_ASSIGN(const bool wanted, checkpoint.keys.Flag(key, false));
    if (!wanted) continue;
    return Unsupported(checkpoint.path + ": \"" + key + "\": EAGLE-3.1's norms are not supported");
  }
  return {};
}

// Divisors of the frequencies, as llama.cpp's files have them.
Status AddFrequencyFactors(const DraftCheckpoint& checkpoint, RopeConfig* rope) {
  const TensorView* const factors = checkpoint.Find(kFrequencyFactors);
  if (factors == nullptr) return {};
  rope->freq_factors.resize(static_cast<size_t>(rope->n_rot) / 2);
  if (factors->dtype != DType::kF32 || factors->n_elements() != std::ssize(rope->freq_factors)) {
    return Corrupt(checkpoint.path + ": tensor " + kFrequencyFactors + " must hold " +
                   std::to_string(rope->freq_factors.size()) + " F32 values");
  }
  DequantizeRow(DType::kF32, factors->data, factors->n_elements(), rope->freq_factors.data());
  const auto usable = [](float factor) { return std::isfinite(factor) && factor > 0; };
  if (std::ranges::all_of(rope->freq_factors, usable)) return {};
  return Corrupt(checkpoint.path + ": tensor " + kFrequencyFactors + " holds a factor that is not positive");
}

}  // namespace

std::vector<DraftPart> EagleModel::LayerParts(const std::string& prefix, int64_t n_in) {
  const BlockShape& shape = block.shape;
  std::vector<DraftPart> parts = attention.Parts(shape, prefix + "self_attn.", n_in);
  Append(mlp.Parts(shape, prefix + "mlp."), &parts);
  parts.push_back(
      {.tensor = prefix + "post_attention_layernorm.weight", .n_in = shape.n_embd, .vector = &mlp_norm});
  // The embedding is the target's; a copy that some files have must at least be as large.
  parts.push_back(
      {.tensor = "embed_tokens.weight", .n_in = shape.n_embd, .n_out = n_vocab, .required = false});
  return parts;
}

// --- EAGLE-1 and 2: one layer without a norm of its input. ---

constexpr DraftKind Eagle1Model::kFile = {
    .name = kKind, .recognise = IsEagle1, .tensors = TensorsOf<Eagle1Model>};

Result<Eagle1Model> Eagle1Model::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  Eagle1Model model = Of(checkpoint);
  model.name = kKind;
  LS_ASSIGN(model.block, ReadDraftBlock(checkpoint, target, "layers.0.mlp.up_proj.weight"));
  LS_ASSIGN(model.trained_positions, checkpoint.keys.Size(kTrainedPositionsKey));
  model.taps.final_hidden = true;
  model.n_logits = DraftHeadRows(checkpoint, target);
  model.n_vocab = target.n_vocab;
  return model;
}

std::vector<DraftPart> Eagle1Model::Parts() {
  const int64_t d = block.shape.n_embd;
  std::vector<DraftPart> parts = LayerParts("layers.0.", d);
  parts.push_back({.tensor = "fc.weight", .n_in = 2 * d, .n_out = d, .matrix = &fc});
  parts.push_back({.tensor = "fc.bias", .n_in = d, .vector = &fc_bias, .required = false});
  return parts;
}

// --- EAGLE-3. ---

constexpr DraftKind Eagle3Model::kFile = {.name = kKind,
                                          .recognise = IsEagle3,
                                          .tensors = TensorsOf<Eagle3Model>,
                                          .head_of_target = false,
                                          .rename = RenameEagle3};

Result<std::vector<int>> Eagle3Layers(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  constexpr char kKey[] = "eagle_aux_hidden_state_layer_ids";
  LS_ASSIGN(std::vector<int> layers, NamedLayers(checkpoint, kKey));
  if (layers.empty()) layers = {1, target.n_layer / 2 - 1, target.n_layer - 4};
  for (const int layer : layers) {
    if (layer >= 0 && layer < target.n_layer) continue;
    return Unsupported(checkpoint.path +
                       ": the draft model does not fit the target: it reads the output of layer " +
                       std::to_string(layer) + ", the target has " + std::to_string(target.n_layer) +
                       " layers (\"" + kKey + "\")");
  }
  if (layers.size() > kMostTaps) {
    return Unsupported(checkpoint.path + ": reads the outputs of " + std::to_string(layers.size()) +
                       " layers, at most " + std::to_string(kMostTaps) + " are supported");
  }
  return layers;
}

Result<std::vector<int32_t>> Eagle3Tokens(const DraftCheckpoint& checkpoint, int n_vocab) {
  const TensorView *offsets = checkpoint.Find("d2t"), *mask = checkpoint.Find("t2d");
  std::vector<int32_t> tokens;
  if (offsets == nullptr) return tokens;
  int64_t before = -1, row = 0;
  for (const int64_t offset : DraftTokens(*offsets)) {
    const int64_t token = offset >= -n_vocab && offset <= n_vocab ? row + offset : -1;
    if (token <= before || token >= n_vocab) {
      return Corrupt(checkpoint.path + ": tensor d2t: row " + std::to_string(row) + " stands for token " +
                     std::to_string(token) + ", which must be more than the row before's and less than " +
                     std::to_string(n_vocab));
    }
    tokens.push_back(static_cast<int32_t>(token));
    before = token;
    ++row;
  }
  if (mask == nullptr) return tokens;
  size_t next = 0;
  for (int64_t token = 0; token < mask->n_elements(); ++token) {
    const bool has = next < tokens.size() && tokens[next] == token;
    if (has) ++next;
    if (has == (mask->data[token] != std::byte{0})) continue;
    return Corrupt(checkpoint.path + ": tensors d2t and t2d disagree about token " + std::to_string(token));
  }
  if (next < tokens.size()) {
    return Corrupt(checkpoint.path + ": tensor t2d ends before token " + std::to_string(tokens[next]));
  }
  return tokens;
}

Result<Eagle3Model> Eagle3Model::Read(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_ASSIGN(const int target_width, checkpoint.keys.Size("target_hidden_size"));
  LS_TRY(CheckDraftSize(checkpoint, "hidden size of its target", target_width, target.n_embd));
  LS_TRY(CheckDraftWidths(checkpoint, target));
  Eagle3Model model = Of(checkpoint);
  model.name = kKind;
  model.n_vocab = target.n_vocab;
  LS_ASSIGN(model.block, ReadDraftBlock(checkpoint, target, "midlayer.mlp.up_proj.weight"));
  LS_TRY(AddFrequencyFactors(checkpoint, &model.block.rope));
  LS_ASSIGN(model.trained_positions, checkpoint.keys.Size(kTrainedPositionsKey));
  LS_ASSIGN(model.taps.hidden_layers, Eagle3Layers(checkpoint, target));
  LS_ASSIGN(model.head.vocab, Eagle3Tokens(checkpoint, target.n_vocab));
  const std::vector<int32_t>& tokens = model.head.vocab;
  model.n_logits = tokens.empty() ? target.n_vocab : std::ssize(tokens);
  if (!tokens.empty() && checkpoint.Find("lm_head.weight") == nullptr) {
    return Corrupt(checkpoint.path +
                   ": tensor d2t says what the rows of lm_head.weight are, which is missing");
  }
  LS_TRY(CheckNorms(checkpoint));
  LS_ASSIGN(model.residual_is_normed, checkpoint.keys.Flag("norm_before_residual", false));
  return model;
}

std::vector<DraftPart> Eagle3Model::Parts() {
  const int64_t d = block.shape.n_embd, fused = n_taps() * d;
  std::vector<DraftPart> parts = LayerParts("midlayer.", 2 * d);
  parts.push_back({.tensor = "fc.weight", .n_in = fused, .n_out = d, .matrix = &fc});
  parts.push_back({.tensor = "midlayer.input_layernorm.weight", .n_in = d, .vector = &token_norm});
  parts.push_back({.tensor = "midlayer.hidden_norm.weight", .n_in = d, .vector = &feature_norm});
  parts.push_back({.tensor = "norm.weight", .n_in = d, .vector = &output_norm});
  parts.push_back({.tensor = kFusedNorm, .n_in = fused, .vector = &fused_norm, .required = false});
  parts.push_back(
      {.tensor = "lm_head.weight", .n_in = d, .n_out = n_logits, .matrix = &own_head, .required = false});
  parts.push_back({.tensor = kFrequencyFactors, .required = false});
  parts.push_back({.tensor = "d2t", .required = false, .holds = DraftHolds::kTokens});
  parts.push_back({.tensor = "t2d", .required = false, .holds = DraftHolds::kMask});
  return parts;
}

void Eagle3Model::Finish(const SharedParts& target) {
  head.matrix = own_head.n_out() > 0 ? own_head : HeadOf(target);
}

// --- Its passes. ---

namespace {

constexpr size_t kEagleStateBytes = 1 << 20;  // of attention's partial states, whatever the context

// The lane's extra rows: what fc reads, n_taps hidden states, or in EAGLE an embedding and a feature; and in
// EAGLE-3 embeddings, and what attention reads, two norms.
constexpr int kFused = 0, kEmbeddings = 1, kJoined = 2;

}  // namespace

LaneSize EagleForward::Size(const EagleModel& model, int64_t n_logits) {
  BlockShape shape = model.block.shape;
  const int d = shape.n_embd;
  shape.n_other = std::max(2, model.n_taps()) * d;  // fc reads as many values, or more, and attention 2 * d
  return {.shape = shape,
          .max_rows = kMaxRows,
          .n_logits = n_logits,
          .extra = {shape.n_other, d, 2 * d},
          .attentions = {{.shape = model.block.attention(), .state_bytes = kEagleStateBytes}}};
}

std::shared_ptr<DraftLane> EagleForward::MakeLane(const EagleModel& m, const SharedParts& target) {
  const std::vector<const DraftMatrix*> matrices = {&m.fc,          &m.attention.q, &m.attention.k,
                                                    &m.attention.v, &m.attention.o, &m.mlp.gate,
                                                    &m.mlp.up,      &m.mlp.down,    &m.head.matrix};
  return std::make_shared<DraftLane>(target, Size(m, m.head.matrix.n_out()), matrices);
}

EagleForward::EagleForward(std::shared_ptr<const EagleModel> model, KvCache* cache, int first_seen,
                           std::shared_ptr<DraftLane> lane, const ReindexedSet* set)
    : model_(std::move(model)),
      rope_(model_->block.rope),
      cache_(cache),
      first_seen_(first_seen),
      set_(set),
      tree_(MakeHostPool(cache->Span(0).layout, 1)),
      lane_(std::move(lane)) {}

size_t EagleForward::bytes() const { return tree_.bytes() + lane_->bytes(); }

// The rows of a pass: rotary angles, and their embeddings and features where the first product reads them.
Status EagleForward::Embed(std::span<const EagleRow> rows, bool drafted) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  rows_.assign(rows.begin(), rows.end());
  const size_t d = Z(width()), n_taps = Z(model_->n_taps());
  for (size_t r = 0; r < rows_.size(); ++r) {
    const EagleRow& row = rows_[r];
    float* features = lane_->extra(kFused);
    float* token = lane_->extra(kEmbeddings) + r * d;
    float* x = lane_->x(static_cast<int>(r));
    if (!model_->is_eagle3()) {
      token = features + r * 2 * d;
      std::memcpy(token + d, row.feature[0], d * sizeof(float));
      if (!model_->fc_bias.empty()) std::memcpy(x, model_->fc_bias.data(), d * sizeof(float));
    } else if (drafted) {
      std::memcpy(x, row.feature[0], d * sizeof(float));
    } else {
      for (size_t tap = 0; tap < n_taps; ++tap) {
        std::memcpy(features + (r * n_taps + tap) * d, row.feature[tap], d * sizeof(float));
      }
    }
    LS_TRY(lane_->Embed(row.token, token));
    lane_->SetAngles(static_cast<int>(r), rope_, row.position);
  }
  return {};
}

// The residual stream, and what attention reads.
DraftPass::Input EagleForward::Compose(DraftPass& pass, bool drafted) {
  const EagleModel& m = *model_;
  const int d = width(), n_features = m.is_eagle3() ? m.n_taps() : 2;
  float *x = lane_->x(), *features = lane_->extra(kFused);
  if (!m.is_eagle3() || !drafted) {
    pass.NormInPlace(features, m.fused_norm);
    pass.Multiply(m.fc, pass.Of(features, n_features * d), x, /*add=*/!m.fc_bias.empty());
  }
  if (!m.is_eagle3()) return pass.Of(x, d);
  return pass.NormBoth(lane_->extra(kEmbeddings), m.token_norm, x, m.feature_norm, m.residual_is_normed,
                       lane_->extra(kJoined));
}

Status EagleForward::Append(std::span<const EagleRow> rows) {
  for (size_t begin = 0; begin < rows.size(); begin += Z(kMaxRows)) {
    const auto part = rows.subspan(begin, std::min(Z(kMaxRows), rows.size() - begin));
    LS_TRY(Embed(part, /*drafted=*/false));
    LS_ASSIGN(KvTransaction slots, cache_->Begin(n_rows()));
    const KvWriter writer = slots.Writer(0);
    places_.clear();
    for (int r = 0; r < n_rows(); ++r) places_.push_back({.to = &writer, .slot = slots.slot() + r});
    lane_->Run(n_rows(), [&](DraftPass& pass) {
      pass.StoreKeys(Compose(pass, /*drafted=*/false), model_->attention, places_);
    });
    slots.CommitAll();
  }
  return {};
}

MeetingRows::Key EagleRows::key() const { return {.model = forward->model(), .form = drafted ? 1 : 0}; }

Status EagleForward::RunPass(std::span<const Piece> pieces) {
  std::vector<EagleRow> rows;
  for (const Piece& piece : pieces) rows.insert(rows.end(), piece.rows().begin(), piece.rows().end());
  const bool drafted = pieces.front().of->drafted;
  LS_TRY(Embed(rows, drafted));
  PlanAttention(pieces);
  next_.resize(rows.size());
  const int k = MostWanted(pieces);
  const EagleModel& m = *model_;
  float* const outputs = lane_->x();
  lane_->Run(n_rows(), [&](DraftPass& pass) {
    pass.AddAttention(Compose(pass, drafted), m.attention, places_, lane_->attention());
    pass.AddMlp(m.mlp, m.mlp_norm);
    pass.Top(pass.Norm(outputs, m.output_norm), m.head, k, next_);
  });
  const float* x = outputs;
  for (const Piece& piece : pieces) {
    std::memcpy(piece.of->outputs + piece.begin * Z(width()), x, piece.n * Z(width()) * sizeof(float));
    x += piece.n * Z(width());
  }
  HandOut(pieces, std::span(next_));
  return {};
}

AttentionSegment EagleForward::ViewRows(std::span<const EagleRow> rows) {
  int n_slots = 0;
  const int n_stored = set_ != nullptr ? set_->n_slots() : cache_->n_slots();
  const int first_seen = set_ != nullptr ? 0 : std::min(first_seen_, n_stored);
  views_.clear();
  for (const EagleRow& row : rows) {
    LS_CHECK(!row.path.empty());
    views_.push_back({.begin = first_seen, .end = n_stored, .tail = row.path});
    for (const int32_t slot : row.path) n_slots = std::max(n_slots, slot + 1);
  }
  tree_.Reserve(n_slots);
  tree_writer_ = tree_.writer();
  const KvSpan stored = set_ != nullptr ? set_->Span(0) : cache_->Span(0);
  return {.stored = stored, .tail = tree_.span(), .tail_begin = 0, .tail_end = n_slots, .rows = views_};
}

void EagleForward::PlanAttention(std::span<const Piece> pieces) {
  segments_.clear();
  for (const Piece& piece : pieces) segments_.push_back(piece.of->forward->ViewRows(piece.rows()));
  Attention& attention = lane_->attention();
  attention.Plan(segments_);
  places_.clear();
  for (const Piece& piece : pieces) {
    for (const EagleRow& row : piece.rows()) {
      const auto r = static_cast<int>(places_.size());
      places_.push_back(
          {.query = attention.Place(r), .to = &piece.of->forward->tree_writer_, .slot = row.path.back()});
    }
  }
}

namespace {

class EagleDrafter final : public GrowingDrafter {
 public:
  // `cache`: the target's.
  EagleDrafter(std::shared_ptr<const EagleModel> model, TreeShape shape, const Target& target,
               std::shared_ptr<DraftKeys> keys, const KvCache& cache, const SpecExtendSettings& extend,
               std::shared_ptr<DraftLane> lane)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        width_(Z(model_->block.shape.n_embd)),
        range_(model_->path, model_->trained_positions),
        keys_(std::move(keys), cache.capacity()),
        set_(extend.on() ? MakeSet(extend, *target.shared_parts()) : nullptr),
        extended_(extend.on() ? std::make_unique<SpecExtend>(extend, target, cache, set_.get()) : nullptr),
        forward_(model_, &keys_.cache(), kFirstSeen, std::move(lane), set_.get()),
        waiting_features_(model_->n_taps() * model_->block.shape.n_embd),
        last_feature_(Z(model_->n_taps()) * width_) {}

  ~EagleDrafter() override {
    if (Settle().ok()) keys_.Share(text_);
  }

  std::string_view name() const override { return model_->name; }
  bool uses_dice() const override { return true; }
  int overlap(std::span<const int32_t> committed, int n) const override {
    return last_token_ == n && IsBeginning(text_, committed, n) ? 0 : std::min(n, 1);
  }
  Taps taps() const override { return extended_ == nullptr ? model_->taps : extended_->With(model_->taps); }

  Status Follow(std::span<const int32_t> committed) override {
    LS_TRY(Settle());
    const auto same = static_cast<int>(std::ranges::mismatch(text_, committed).in1 - text_.begin());
    if (same < static_cast<int>(text_.size())) keys_.Share(text_);
    KeepBefore(same);
    text_.assign(committed.begin(), committed.end());
    if (extended_ != nullptr) {
      extended_->Restart();
      LS_TRY(extended_->Follow(text_.size()));
      unseen_prompt_ = true;
    }
    if (keys_.Adopt(BeforeLast(committed)) && last_token_ != std::ssize(keys_.stored())) last_token_ = -1;
    return {};
  }

  Status Read(const CommittedRows& rows) override {
    LS_TRY(Remember(rows));
    if (extended_ != nullptr) {
      extended_->Read(rows);
      LS_TRY(extended_->Follow(text_.size()));
    }
    if (rows.output == nullptr || rows.rows.empty()) return {};
    KeepBefore(rows.first + 1);  // what the target computed again is read again
    // No feature comes before token 0: its slot is there for the others to lie where their tokens are.
    if (keys_.stored().empty() && keys_.n_waiting() == 0)
      LS_TRY(Take(0, std::vector<float>(last_feature_.size())));
    if (last_token_ >= 0) LS_TRY(Take(last_token_, last_feature_));
    // The last one is run when the next tree is grown, and stored with those that follow.
    const std::span<const StateRows> taps = TapsOf(*rows.output);
    LS_TRY(Take(rows.first + 1, taps, rows.rows.first(rows.rows.size() - 1)));
    CopyFeatures(taps, rows.rows.last(1), last_feature_.data());
    last_token_ = rows.first + static_cast<int>(rows.rows.size());
    const bool of_prompt = std::ssize(rows.rows) > rows.n_new;
    if (!of_prompt) return {};
    unseen_prompt_ = true;
    LS_TRY(Settle());
    keys_.Share(text_);
    return {};
  }

  size_t bytes() const override {
    return keys_.bytes() + (extended_ == nullptr ? 0 : set_->bytes() + extended_->bytes()) +
           forward_.bytes() + text_.capacity() * sizeof(int32_t) +
           (last_feature_.capacity() + outputs_.capacity()) * sizeof(float) + waiting_features_.bytes();
  }

  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    root_ = static_cast<int>(committed.size()) - 1;
    if (last_token_ != root_) return 0;
    if (extended_ != nullptr) LS_TRY(Look());
    root_place_ = extended_ == nullptr ? root_ - 1 : set_->n_slots();
    const int left = range_.LevelsToGrow(Z(root_place_ + 1));
    if (left <= 0) return left;
    LS_TRY(Settle());
    range_.Sees(keys_.stored().size(), Z(root_));
    paths_.clear();
    outputs_.clear();
    output_of_.clear();
    n_slots_ = 0;
    return left;
  }

  // Forgets the slots of this token and of those after it.
  void KeepBefore(int token) {
    keys_.KeepBefore(token);
    if (set_ != nullptr) set_->Truncate(keys_.cache().length() - kFirstSeen);
    waiting_features_.Truncate(keys_.n_waiting());
    if (last_token_ >= token) last_token_ = -1;
  }

  // Lets the slots of consecutive tokens wait, whose features these rows of the taps make.
  Status Take(int token, std::span<const StateRows> taps, std::span<const int32_t> rows) {
    while (!rows.empty()) {
      if (keys_.n_waiting() == EagleForward::kMaxRows) LS_TRY(Settle());
      const size_t n = std::min(rows.size(), Z(EagleForward::kMaxRows - keys_.n_waiting()));
      CopyFeatures(taps, rows.first(n), waiting_features_.Grow(static_cast<int>(n)));
      for (size_t i = 0; i < n; ++i) keys_.Wait(token++);
      rows = rows.subspan(n);
    }
    return {};
  }
  Status Take(int token, const std::vector<float>& feature) {
    const StateRows whole(feature.data(), 1, static_cast<int>(feature.size()));
    return Take(token, {&whole, 1}, kFirstRow);
  }

  // To (rows, n_taps, width).
  void CopyFeatures(std::span<const StateRows> taps, std::span<const int32_t> rows, float* to) const {
    for (const StateRows& tap : taps) {
      tap.Gather(rows, to, last_feature_.size());
      to += width_;
    }
  }

  // Stores what waits.
  Status Settle() {
    if (keys_.n_waiting() == 0) return {};
    std::vector<EagleRow> slots;
    for (int i = 0; i < keys_.n_waiting(); ++i) {
      slots.push_back(SlotOf(keys_.waiting()[Z(i)], waiting_features_.row(i)));
    }
    LS_TRY(forward_.Append(slots));
    keys_.MarkStored();
    waiting_features_.Truncate(0);
    return {};
  }

  // Changes what the draft sees. One tree sees one set, its root too: its key stands where the set ends.
  // (The released code runs the root on the old set.)
  Status Look() {
    LS_TRY(Settle());
    if (std::exchange(unseen_prompt_, false)) LS_TRY(extended_->HoldLast());
    if (!extended_->has_scores()) return set_->Follow();
    std::vector<int32_t> features;  // their positions
    for (size_t slot = kFirstSeen; slot < keys_.stored().size(); ++slot)
      features.push_back(keys_.stored()[slot] - 1);
    return extended_->Choose(features);
  }

  std::unique_ptr<ReindexedSet> MakeSet(const SpecExtendSettings& extend, const SharedParts& target) {
    return std::make_unique<ReindexedSet>(
        MakeHostPool(keys_.layout(), 1), RotaryOf(model_->block.rope, target), SetOf(extend),
        ReindexSource{.cache = &keys_.cache(), .first = kFirstSeen, .position = [this](int slot) {
                        return keys_.stored()[Z(slot)] - 1;
                      }});
  }

  Status Remember(const CommittedRows& rows) {
    const auto n_new = Z(rows.n_new);
    if (text_.size() + n_new != rows.sequence.size()) return Follow(rows.sequence);
    const auto added = rows.sequence.last(n_new);
    text_.insert(text_.end(), added.begin(), added.end());
    return {};
  }

  std::span<const StateRows> TapsOf(const TargetOutput::Segment& output) const {
    if (model_->taps.final_hidden) return {&output.final_hidden, 1};
    return output.hidden;
  }

  // `feature` (n_taps, width): of the position before the token.
  EagleRow SlotOf(int token, const float* feature) const {
    EagleRow slot = {.token = text_[Z(token)], .position = token - 1};
    for (int tap = 0; tap < model_->n_taps(); ++tap) slot.feature[Z(tap)] = feature + Z(tap) * width_;
    return slot;
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    paths_.resize(nodes.size());
    output_of_.resize(nodes.size(), -1);
    // What is to be run must not move any more: features point into it.
    const size_t first = outputs_.size();
    outputs_.resize(first + which.size() * width_);
    slots_.clear();
    for (size_t i = 0; i < which.size(); ++i) {
      const auto node = Z(which[i]);
      std::vector<int32_t>& path = paths_[node];
      if (nodes[node].parent < 0) {
        slots_.push_back(SlotOf(root_, last_feature_.data()));
        slots_.back().position = root_place_;
      } else {
        const auto parent = Z(nodes[node].parent);
        path = paths_[parent];
        slots_.push_back({.token = nodes[node].token, .position = root_place_ + nodes[node].depth});
        slots_.back().feature[0] = outputs_.data() + Z(output_of_[parent]) * width_;
      }
      path.push_back(n_slots_);
      output_of_[node] = n_slots_++;
      slots_.back().path = path;
    }
    const bool drafted = nodes[Z(which[0])].parent >= 0;
    EagleRows rows(&forward_, slots_, drafted, k, &next, outputs_.data() + first);
    co_return co_await Meet(rows);
  }

  const std::shared_ptr<const EagleModel> model_;
  const size_t width_;
  TrainedRange range_;
  static constexpr int kFirstSeen = 1;  // no feature comes before token 0
  static constexpr std::array<int32_t, 1> kFirstRow = {0};
  SequenceKeys keys_;  // by places of tokens in the text; slot 0 is that of token 0
  // With SpecExtend, else null: what trees see of the cache, and what is chosen.
  const std::unique_ptr<ReindexedSet> set_;
  const std::unique_ptr<SpecExtend> extended_;
  EagleForward forward_;
  std::vector<int32_t> text_;        // committed tokens
  StateBuffer waiting_features_;     // of tokens whose slots wait, (n_taps, width) each
  int last_token_ = -1;              // of the newest slot, which is not stored yet; -1: there is none
  std::vector<float> last_feature_;  // its own, (n_taps, width)
  std::vector<EagleRow> slots_;
  bool unseen_prompt_ = false;  // a prompt was read since the last tree

  // The tree that is being grown.
  int root_ = 0;        // its place in the text
  int root_place_ = 0;  // where its slot stands
  int n_slots_ = 0;
  std::vector<std::vector<int32_t>>
      paths_;                       // per node that was run: slots of the root, its ancestors and itself
  std::vector<int32_t> output_of_;  // per node that was run: its place in outputs_, which is its slot
  std::vector<float> outputs_;      // (n_slots, width)
};

constexpr DrafterOption kEagleOptions[] = {kDraftModelOption,      kDraftWeightsOption,
                                           kSpecExtendOption,      kSpecExtendChunksOption,
                                           kSpecExtendEveryOption, kSpecExtendFromOption};

// EAGLE-1's fixed tree of 25 nodes (its choices.py; 4, 8, 8, 3 and 2 nodes a level).
constexpr char kEagle1Tree[] =
    "[[0],[1],[2],[3],[0,0],[0,1],[0,2],[1,0],[1,1],[2,0],[2,1],[3,0],[0,0,0],[0,0,1],[0,0,2],[0,1,0],[0,1,1]"
    ","
    "[0,2,0],[0,2,1],[1,0,0],[0,0,0,0],[0,0,0,1],[0,0,0,2],[0,0,0,0,0],[0,0,0,0,1]]";
constexpr DrafterPreset kEaglePresets[] = {
    {.name = "eagle1",
     .of = "EAGLE-1",
     .set =
         [](SpeculationOptions& o) {
           o.tree = kEagle1Tree;
           SetNodes(25, &o);
           o.dice = false;
         }},
    {.name = "eagle2",
     .of = "EAGLE-2",
     .set =
         [](SpeculationOptions& o) {
           o.tree = "eagle2:10:5:59";
           SetNodes(59, &o);
           o.dice = false;
         }},
};
constexpr DrafterPreset kEagle3Presets[] = {
    {.name = "draft-eagle3",
     .of = "llama.cpp",
     .set =
         [](SpeculationOptions& o) {
           o.tree = "chain";
           SetNodes(3, &o);
           o.dice = false;
         }},
};

template <typename Model>
DrafterResult MakeEagle(const SpeculationOptions& options, const DraftContext& context) {
  LS_CHECK(context.cache != nullptr);
  LS_TRY(CheckSpecExtend(options, *context.cache));
  return MakeLearned<Model>(options, context, "eagle2", [&](auto model, TreeShape shape) {
    const DraftBlock& block = model->block;
    const auto extend = SpecExtendOf(options, kSpecExtendOfEagle, model->trained_positions);
    auto keys = LearnedKeys(options, context, block);
    auto lane = LearnedLane<EagleForward>(options, context, *model);
    return std::make_unique<EagleDrafter>(std::move(model), std::move(shape), *context.target,
                                          std::move(keys), *context.cache, extend, std::move(lane));
  });
}

template <typename Model>
constexpr DrafterEntry Entry(std::span<const DrafterPreset> presets, std::string_view summary) {
  return LearnedEntry<Model>({.presets = presets,
                              .summary = summary,
                              .options = kEagleOptions,
                              .settle = SettleSpecExtend,
                              .reads_states = true,
                              .make = MakeEagle<Model>});
}

}  // namespace

// Its activations, and one layer's keys and values of the whole context.
DraftMemory EagleModel::Working(const SpeculationOptions& options, const TargetFacts& target, int64_t) const {
  DraftMemory plan = {.fixed = DraftLane::Bytes(EagleForward::Size(*this, n_logits))};
  const KvLayout layout = DraftCacheLayout(block.shape.n_head_kv, block.shape.head_dim, target.cache);
  plan.kv_chunk = plan.kept_chunk = KvChunkBytes(layout, 1);
  if (AsksForSpecExtend(options)) {
    AddSpecExtendMemory(options, kSpecExtendOfEagle, target.sizes, layout, 1, EagleForward::kMaxRows, &plan);
  }
  return plan;
}

constexpr DrafterEntry kEagleDrafter = Entry<Eagle1Model>(
    kEaglePresets, "the guesses of an EAGLE or EAGLE-2 draft model, from the model's last hidden states");
constexpr DrafterEntry kEagle3Drafter = Entry<Eagle3Model>(
    kEagle3Presets, "the guesses of an EAGLE-3 draft model, from hidden states of three layers");

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
#include "draft_model/eagle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "tensor/dequantize.h"

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

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_kinds.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "draft_model/draft_checkpoint.h"

namespace longspec {
namespace {

constexpr bool kOptional = false;
constexpr char kMedusaHeads[] = "medusa_head.";

bool HasPrefix(const DraftCheckpoint& checkpoint, std::string_view prefix) {
  return std::ranges::any_of(checkpoint.tensors,
                             [&](const TensorView& tensor) { return tensor.name.starts_with(prefix); });
}

void Add(std::vector<DraftTensor>* tensors, const std::string& prefix,
         std::initializer_list<const char*> names, bool required = true) {
  for (const char* name : names) tensors->push_back({prefix + name, required});
}

void AddMlp(std::vector<DraftTensor>* tensors, const std::string& prefix) {
  Add(tensors, prefix + "mlp.", {"gate_proj.weight", "up_proj.weight", "down_proj.weight"});
}

// Query, key, value and output projections; the first three may have biases.
void AddAttention(std::vector<DraftTensor>* tensors, const std::string& prefix) {
  Add(tensors, prefix, {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"});
  Add(tensors, prefix, {"q_proj.bias", "k_proj.bias", "v_proj.bias"}, kOptional);
}

// Those of the published checkpoints, in the order of their files.
std::vector<DraftTensor> LongspecTensors(const DraftCheckpoint&) {
  std::vector<DraftTensor> tensors;
  for (const std::string attention : {"self_attn", "cross_attn"}) {
    // Keys and values of cross-attention exist in checkpoints and are never used.
    const bool used = attention == "self_attn";
    Add(&tensors, attention, {".q_proj.weight", ".q_proj.bias"});
    Add(&tensors, attention, {".k_proj.weight", ".k_proj.bias", ".v_proj.weight", ".v_proj.bias"}, used);
    Add(&tensors, attention, {".o_proj.weight"});
  }
  AddMlp(&tensors, "");
  Add(&tensors, "",
      {"input_layernorm.weight", "post_self_attention_layernorm.weight",
       "post_cross_attention_layernorm.weight"});
  return tensors;
}

// EAGLE-1 and EAGLE-2: one layer without a norm of its input. An embedding is the target's, frozen.
std::vector<DraftTensor> EagleTensors(const DraftCheckpoint&) {
  std::vector<DraftTensor> tensors;
  Add(&tensors, "", {"fc.weight"});
  Add(&tensors, "", {"fc.bias", "embed_tokens.weight"}, kOptional);
  AddAttention(&tensors, "layers.0.self_attn.");
  AddMlp(&tensors, "layers.0.");
  Add(&tensors, "layers.0.", {"post_attention_layernorm.weight"});
  return tensors;
}

std::vector<DraftTensor> Eagle3Tensors(const DraftCheckpoint&) {
  std::vector<DraftTensor> tensors;
  Add(&tensors, "", {"fc.weight", "norm.weight"});
  Add(&tensors, "", {"lm_head.weight", "embed_tokens.weight", "input_norm.weight", "rope_freqs.weight"},
      kOptional);
  AddAttention(&tensors, "midlayer.self_attn.");
  AddMlp(&tensors, "midlayer.");
  Add(&tensors, "midlayer.",
      {"input_layernorm.weight", "hidden_norm.weight", "post_attention_layernorm.weight"});
  tensors.push_back({"d2t", kOptional, DraftHolds::kTokens});
  tensors.push_back({"t2d", kOptional, DraftHolds::kMask});
  return tensors;
}

std::vector<DraftTensor> BeagleTensors(const DraftCheckpoint&) {
  std::vector<DraftTensor> tensors;
  Add(&tensors, "layer.", {"input_layernorm.weight", "post_attention_layernorm.weight"});
  Add(&tensors, "layer.", {"kv_layernorm.weight"}, kOptional);
  AddAttention(&tensors, "layer.cross_attn.");
  AddMlp(&tensors, "layer.");
  return tensors;
}

// As many heads as there are names for, one block each: medusa_head.I.0.linear, and a head of its own where
// it has one.
std::vector<DraftTensor> MedusaTensors(const DraftCheckpoint& checkpoint) {
  std::vector<DraftTensor> tensors;
  for (int head = 0;; ++head) {
    const std::string prefix = kMedusaHeads + std::to_string(head) + ".";
    if (head > 0 && !HasPrefix(checkpoint, prefix)) return tensors;
    Add(&tensors, prefix, {"0.linear.weight", "0.linear.bias"});
    Add(&tensors, prefix, {"1.weight"}, kOptional);
  }
}

// TokenSwift's heads, as many as there are names for.
std::vector<DraftTensor> TokenswiftTensors(const DraftCheckpoint& checkpoint) {
  std::vector<DraftTensor> tensors;
  for (int head = 0;; ++head) {
    const std::string prefix = "medusa_layers." + std::to_string(head) + ".";
    if (head > 0 && !HasPrefix(checkpoint, prefix)) return tensors;
    Add(&tensors, prefix, {"linear.weight", "input_layernorm.weight", "post_layernorm.weight"});
  }
}

std::vector<DraftTensor> ExitTensors(const DraftCheckpoint&) {
  std::vector<DraftTensor> tensors;
  Add(&tensors, "layers.0.", {"input_layernorm.weight", "post_attention_layernorm.weight"});
  AddAttention(&tensors, "layers.0.self_attn.");
  AddMlp(&tensors, "layers.0.");
  Add(&tensors, "", {"norm.weight"});
  Add(&tensors, "", {"feature.weight"}, kOptional);
  return tensors;
}

std::string RenameEagle3(const std::string& name) {
  constexpr std::string_view kOther = "layers.0.";
  return name.starts_with(kOther) ? "midlayer." + name.substr(kOther.size()) : name;
}

// The published files of Medusa hold the list of heads alone: "0.0.linear.weight" is of head 0.
std::string RenameMedusa(const std::string& name) {
  const bool bare = !name.empty() && name[0] >= '0' && name[0] <= '9';
  return bare ? kMedusaHeads + name : name;
}

bool IsMedusa(const DraftCheckpoint& checkpoint) {
  return HasPrefix(checkpoint, kMedusaHeads) || checkpoint.keys.Has("medusa_num_heads") ||
         checkpoint.Find("0.0.linear.weight") != nullptr;
}

bool IsEagle3(const DraftCheckpoint& checkpoint) {
  return std::ranges::find(checkpoint.config.architectures, "LlamaForCausalLMEagle3") !=
             checkpoint.config.architectures.end() ||
         HasPrefix(checkpoint, "midlayer.") || HasPrefix(checkpoint, "layers.0.hidden_norm.") ||
         checkpoint.Find("d2t") != nullptr;
}

// The first that recognises a checkpoint has it.
constexpr DraftKind kKinds[] = {
    {.name = "longspec",
     .recognise = [](const DraftCheckpoint& c) { return HasPrefix(c, "cross_attn."); },
     .tensors = LongspecTensors},
    {.name = "eagle3",
     .recognise = IsEagle3,
     .tensors = Eagle3Tensors,
     .head_of_target = false,
     .rename = RenameEagle3},
    {.name = "eagle",
     .recognise =
         [](const DraftCheckpoint& c) { return c.Find("fc.weight") != nullptr && HasPrefix(c, "layers.0."); },
     .tensors = EagleTensors},
    {.name = "beagle",
     .recognise = [](const DraftCheckpoint& c) { return HasPrefix(c, "layer.cross_attn."); },
     .tensors = BeagleTensors},
    {.name = "medusa", .recognise = IsMedusa, .tensors = MedusaTensors, .rename = RenameMedusa},
    {.name = "tokenswift",
     .recognise = [](const DraftCheckpoint& c) { return HasPrefix(c, "medusa_layers."); },
     .tensors = TokenswiftTensors},
    {.name = "exit",
     .recognise = [](const DraftCheckpoint& c) { return c.keys.Has("longspec_exit_layer"); },
     .tensors = ExitTensors},
};

}  // namespace

std::span<const DraftKind> DraftKinds() { return kKinds; }

const DraftKind* FindDraftKind(std::string_view name) {
  const auto* const found = std::ranges::find(kKinds, name, &DraftKind::name);
  return found == std::end(kKinds) ? nullptr : found;
}

std::string DraftKindNames() {
  std::string names;
  for (const DraftKind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

}  // namespace longspec

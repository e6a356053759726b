// SPDX-License-Identifier: Apache-2.0
//
// The shapes of published drafts and of SmolLM2's: tensor tables, counts, memory. The files are as
// large as the real ones and all holes, so they cost neither disk nor time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft_model/longspec.h"
#include "draft_model/testing/longspec_files.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;

struct Shape {
  const char* name;
  int h, n_head, n_kv_head, ff;
  int64_t n, n_used;   // parameters in the checkpoint, and those that are used
  double scale = 1.0;  // linear scaling of the positions
};

// Section 1.6 of the specification; the first follows its formula.
const Shape kShapes[] = {
    {"SmolLM2-135M", 576, 9, 3, 1536, 4'427'328, 4'205'760},
    {"Vicuna-7B", 4096, 32, 32, 11008, 269'520'896, 235'958'272, 4.0},
    {"LongChat-7B", 4096, 32, 32, 11008, 269'520'896, 235'958'272, 8.0},
    {"Vicuna-13B", 5120, 40, 40, 13824, 422'097'920, 369'658'880, 4.0},
    {"Llama-3-8B", 4096, 32, 8, 14336, 260'071'424, 251'680'768},
    {"QwQ-32B", 5120, 40, 8, 27648, 550'532'096, 540'044'288},
};

ModelSizes TargetOf(const Shape& s) {
  ModelSizes c;
  c.n_layer = 30;
  c.n_embd = s.h;
  c.n_head = s.n_head;
  c.n_head_kv = s.n_kv_head;
  c.head_dim = s.h / s.n_head;
  c.n_ff = s.ff;
  c.n_vocab = 49152;
  c.rope.n_rot = c.head_dim;
  if (s.scale != 1.0) {
    c.rope.scaling = RopeOptions::Scaling::kLinear;
    c.rope.scale = s.scale;
  }
  return c;
}

using Table = std::map<std::string, std::vector<int64_t>>;  // shapes as safetensors has them, (out, in)

// Section 1.7 of the specification.
Table TensorsOf(const Shape& s) {
  const int64_t h = s.h, kv = int64_t{s.h} / s.n_head * s.n_kv_head, ff = s.ff;
  Table table = {{"mlp.gate_proj.weight", {ff, h}},
                 {"mlp.up_proj.weight", {ff, h}},
                 {"mlp.down_proj.weight", {h, ff}},
                 {"input_layernorm.weight", {h}},
                 {"post_self_attention_layernorm.weight", {h}},
                 {"post_cross_attention_layernorm.weight", {h}}};
  for (const std::string attention : {"self_attn.", "cross_attn."}) {
    table[attention + "q_proj.weight"] = {h, h};
    table[attention + "q_proj.bias"] = {h};
    table[attention + "k_proj.weight"] = {kv, h};
    table[attention + "k_proj.bias"] = {kv};
    table[attention + "v_proj.weight"] = {kv, h};
    table[attention + "v_proj.bias"] = {kv};
    table[attention + "o_proj.weight"] = {h, h};
  }
  return table;
}

// A safetensors file of F16 zeros.
void WriteHoles(const Table& table, const std::string& path) {
  std::string header = "{";
  int64_t at = 0;
  for (const auto& [name, shape] : table) {
    int64_t n = 1;
    std::string dims;
    for (const int64_t size : shape) {
      n *= size;
      dims += (dims.empty() ? "" : ",") + std::to_string(size);
    }
    header += (at == 0 ? "\"" : ",\"") + name + R"(":{"dtype":"F16","shape":[)" + dims +
              R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(at + 2 * n) + "]}";
    at += 2 * n;
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  const uint64_t size = header.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&size), 8) << header;
  std::filesystem::resize_file(path, 8 + size + static_cast<uint64_t>(at));
}

std::string ConfigOf(const Shape& s, const ModelSizes& c) {
  if (s.scale == 1.0) return ConfigJson(c, ", \"max_position_embeddings\": 32768");
  return ConfigJson(c, R"(, "max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": )" +
                           std::to_string(s.scale) + "}");
}

TEST(LongspecPublished, TensorsAndCountsAreTheSpecifications) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(s.name);
    const Folder folder;
    const ModelSizes target = TargetOf(s);
    WriteHoles(TensorsOf(s), folder.File("model.safetensors"));
    std::ofstream(folder.File("config.json")) << ConfigOf(s, target);
    const auto checkpoint = OpenDraftCheckpoint(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(checkpoint->tensors.size(), 20U);
    const Status fit = LongspecModel::CheckFit(*checkpoint, target);
    EXPECT_TRUE(fit.ok()) << fit.message();
    int64_t n = 0, n_used = 0;
    for (const DraftPart& part : checkpoint->kind->tensors(*checkpoint)) {
      const TensorView* view = checkpoint->Find(part.tensor);
      ASSERT_NE(view, nullptr) << part.tensor;
      n += view->n_elements();
      if (part.required) n_used += view->n_elements();
    }
    EXPECT_EQ(n, s.n);
    EXPECT_EQ(n_used, s.n_used);
    EXPECT_EQ(checkpoint->config.trained_positions,
              s.scale == 1.0 ? 32768 : static_cast<int>(4096 * s.scale));
  }
}

// One of another name, one too many, one too few, one of another shape.
TEST(LongspecPublished, OtherTablesAreRefused) {
  const Shape& s = kShapes[4];
  const Folder folder;
  const std::string path = folder.File("draft.safetensors");
  const auto refusal = [&](const Table& table) {
    WriteHoles(table, path);
    const auto checkpoint = OpenDraftCheckpoint(path);
    return checkpoint.ok() ? LongspecModel::CheckFit(*checkpoint, TargetOf(s)).message()
                           : checkpoint.status().message();
  };
  const Table table = TensorsOf(s);
  EXPECT_EQ(refusal(table), "");
  Table other = table;
  other["model.norm.weight"] = {s.h};
  EXPECT_THAT(refusal(other),
              HasSubstr("tensor norm.weight is none that a draft model of kind longspec has"));
  other = table;
  other["self_attn.o_proj.bias"] = {s.h};
  EXPECT_THAT(refusal(other), HasSubstr("tensor self_attn.o_proj.bias is none that"));
  for (const auto& [name, shape] : table) {
    const bool unused = name.starts_with("cross_attn.k") || name.starts_with("cross_attn.v");
    other = table;
    other.erase(name);
    if (unused) {
      EXPECT_EQ(refusal(other), "");
    } else {
      EXPECT_THAT(refusal(other), HasSubstr("tensor " + name + " is missing"));
    }
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      other = table;
      other[name][dim] += 32;
      EXPECT_NE(refusal(other), "") << name << " " << dim;
    }
  }
}

// Positions a draft was trained for: with linear scaling, as many times as stated before it.
TEST(LongspecPublished, LinearScalingMultipliesTheTrainedPositions) {
  const auto positions = [](const std::string& json) {
    const auto keys = ConfigKeys::Parse("{" + json + "}", "config.json");
    EXPECT_TRUE(keys.ok()) << keys.status().message();
    const auto config = ReadDraftConfig(*keys);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? config->trained_positions : -1;
  };
  const std::string stated = "\"max_position_embeddings\": 4096";
  EXPECT_EQ(positions(""), 0);
  EXPECT_EQ(positions(stated), 4096);
  EXPECT_EQ(positions(stated + R"(, "rope_scaling": {"type": "linear", "factor": 4.0})"), 16384);
  EXPECT_EQ(positions(stated + R"(, "rope_scaling": {"rope_type": "linear", "factor": 8})"), 32768);
  EXPECT_EQ(positions(stated + R"(, "rope_scaling": {"type": "linear"})"), 4096);
  EXPECT_EQ(positions(stated + R"(, "rope_scaling": {"type": "yarn", "factor": 4.0})"), 4096);
  EXPECT_EQ(positions(stated + R"(, "rope_scaling": {"type": "linear", "factor": 1e30})"), 1 << 30);
  EXPECT_EQ(
      positions(stated +
                R"(, "rope_scaling": {"type": "linear", "factor": 4}, "longspec_trained_positions": 99)"),
      99);
}

// Memory does not depend on the context: what one thread takes beside the default test model, to the byte.
TEST(LongspecPublished, MemoryOfTheDefaultModelsDraft) {
  ThreadTeam team(1);
  const ModelSizes target = TargetOf(kShapes[0]);
  auto model = std::make_shared<LongspecModel>();
  model->block = {.shape = BlockOf(target), .rope = target.rope};
  model->head.matrix.packed.n_out = target.n_vocab;
  SharedParts parts;
  parts.sizes = &target;
  parts.lane.kernels = kernels::Available().front();
  parts.lane.team = &team;
  const KvLayout layout = target.kv_layout(CacheType::kF16, CacheType::kF16);
  const LongspecForward forward(model, layout, LongspecForward::MakeLane(*model, parts));
  const size_t ring = static_cast<size_t>(forward.n_ring_chunks()) * layout.layer_bytes();
  EXPECT_EQ(ring, 589'824U);
  EXPECT_EQ(layout.layer_bytes(), 196'608U);
  EXPECT_EQ(forward.bytes() - ring, 7'307'264U);  // and 2 MiB of attention's states
}

}  // namespace
}  // namespace longspec::testing

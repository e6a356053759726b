// SPDX-License-Identifier: Apache-2.0
//
// instruction_counts CASE: runs one kernel of the AVX2 table, or one decoding step of a small model on one
// thread, inside Measured, so that an instruction counter can be switched on for it alone. Without a case it
// lists them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "bench/loaded_model.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kernels/testing/data.h"

using longspec::kernels::KernelTable;
using longspec::kernels::KvType;
using longspec::kernels::WeightFormat;

// By a name that a counter can find.
extern "C" __attribute__((noinline)) void Measured(const std::function<void()>& run) { run(); }

namespace {

constexpr int kIn = 576, kSuperIn = 768, kOut = 1536, kHeadDim = 64, kKeys = 256, kVocab = 49152;

void Matmul(const KernelTable& table, WeightFormat format, int n_rows) {
  using namespace longspec::kernels::testing;
  const TestMatrix weights(format, kIn, kOut, Fill::kRandom, 1);
  const auto x = TestActivations(n_rows, kIn, Fill::kRandom, 2);
  std::vector<float> y(static_cast<size_t>(n_rows) * kOut);
  Measured([&] {
    table.matmul_q8({.w = &weights.matrix(),
                     .x = x.data(),
                     .y = y.data(),
                     .y_stride = kOut,
                     .n_rows = n_rows,
                     .group_end = weights.n_groups()});
  });
}

void MatmulQ8K(const KernelTable& table, WeightFormat format, int n_rows) {
  using namespace longspec::kernels::testing;
  const TestMatrix weights(format, kSuperIn, kOut, Fill::kRandom, 1);
  const auto x = TestActivationsQ8K(n_rows, kSuperIn, Fill::kRandom, 2);
  std::vector<float> y(static_cast<size_t>(n_rows) * kOut);
  Measured([&] {
    table.matmul_q8k({.w = &weights.matrix(),
                      .x = x.data(),
                      .y = y.data(),
                      .y_stride = kOut,
                      .n_rows = n_rows,
                      .group_end = weights.n_groups()});
  });
}

void Scores(const KernelTable& table, KvType type, int n_rows) {
  using namespace longspec::kernels::testing;
  const auto keys = StoredKeys(type, kHeadDim, 1);
  const auto q = Random(2).Floats(static_cast<size_t>(n_rows) * kHeadDim);
  std::vector<float> out(static_cast<size_t>(n_rows) * kKeys);
  Measured([&] {
    table.scores({.keys = keys.data(),
                  .q = q.data(),
                  .out = out.data(),
                  .out_stride = kKeys,
                  .scale = 0.125F,
                  .n_rows = n_rows,
                  .head_dim = kHeadDim,
                  .block_end = kKeys / longspec::kernels::kKeyGroup,
                  .type = type});
  });
}

void Values(const KernelTable& table, KvType type, int n_rows) {
  using namespace longspec::kernels::testing;
  const auto values = StoredValues(type, kHeadDim, 1);
  auto p = Random(2).Floats(static_cast<size_t>(n_rows) * kKeys);
  for (float& weight : p) weight = std::fabs(weight);
  std::vector<float> o(static_cast<size_t>(n_rows) * kHeadDim);
  const std::vector<int> n_keys(static_cast<size_t>(n_rows), kKeys);
  Measured([&] {
    table.values({.values = values.data(),
                  .p = p.data(),
                  .p_stride = kKeys,
                  .o = o.data(),
                  .o_stride = kHeadDim,
                  .n_keys = n_keys.data(),
                  .n_rows = n_rows,
                  .head_dim = kHeadDim,
                  .type = type});
  });
}

void Softmax(const KernelTable& table) {
  auto scores = longspec::kernels::testing::Random(1).Floats(kKeys);
  std::vector<float> state(longspec::kernels::kStateHeader);
  Measured([&] { table.softmax_chunk(scores.data(), kKeys, state.data()); });
}

void TopK(const KernelTable& table) {
  const auto x = longspec::kernels::testing::Random(1).Floats(kVocab);
  float values[40];
  int32_t indices[40];
  Measured([&] { table.top_k(x.data(), kVocab, 40, values, indices); });
}

void Gumbel(const KernelTable& table) {
  const auto logits = longspec::kernels::testing::Random(1).Floats(kVocab, 10.0F);
  const float largest = *std::max_element(logits.begin(), logits.end());
  Measured([&] {
    table.gumbel_argmax(
        {.logits = logits.data(), .n = kVocab, .largest = largest, .temperature = 1.0, .dice = {1, 2}});
  });
}

// One token after 256 others.
int Step(const KernelTable& table) {
  using namespace longspec;
  const testing::Folder folder;
  const std::string path = folder.File("tiny.gguf");
  TinyModelOptions tiny;
  tiny.n_embd = 256;
  tiny.n_ff = 512;
  tiny.n_vocab = 2048;
  tiny.dtype = DType::kQ4_1;
  if (!WriteTinyModel(tiny, path).ok()) return 1;
  auto model = LoadForBench({.path = path, .threads = 1}, &table, 64, 512);
  if (!model.ok()) return 1;
  const auto cache = model->NewCache(512);
  if (!CommitMadeUp(*cache, model->spec.n_layer, 256).ok()) return 1;
  const int32_t token = 7;
  const auto forward = [&] {
    auto rows = cache->Begin(1);
    if (!rows.ok()) return false;
    const ForwardSegment segment{
        .tokens = {&token, 1}, .parents = {}, .kv = &*rows, .logits = LogitsFor::kAllRows};
    return model->target->Forward({&segment, 1}).ok();
  };
  if (!forward()) return 1;  // sizes buffers
  bool ok = false;
  Measured([&] { ok = forward(); });
  return ok ? 0 : 1;
}

struct Case {
  const char* name;
  int (*run)(const KernelTable& table);
};
constexpr Case kCases[] = {
    {"matmul_q4_1_rows_1", [](const KernelTable& t) { return Matmul(t, WeightFormat::kU4Min, 1), 0; }},
    {"matmul_q4_1_rows_8", [](const KernelTable& t) { return Matmul(t, WeightFormat::kU4Min, 8), 0; }},
    {"matmul_q5_0_rows_1", [](const KernelTable& t) { return Matmul(t, WeightFormat::kU5, 1), 0; }},
    {"matmul_q5_0_rows_8", [](const KernelTable& t) { return Matmul(t, WeightFormat::kU5, 8), 0; }},
    {"matmul_q8_0_rows_8", [](const KernelTable& t) { return Matmul(t, WeightFormat::kS8, 8), 0; }},
    {"matmul_q4_k_rows_1",
     [](const KernelTable& t) { return MatmulQ8K(t, WeightFormat::kSuperU4Min, 1), 0; }},
    {"matmul_q4_k_rows_8",
     [](const KernelTable& t) { return MatmulQ8K(t, WeightFormat::kSuperU4Min, 8), 0; }},
    {"matmul_q5_k_rows_8",
     [](const KernelTable& t) { return MatmulQ8K(t, WeightFormat::kSuperU5Min, 8), 0; }},
    {"matmul_q6_k_rows_1",
     [](const KernelTable& t) { return MatmulQ8K(t, WeightFormat::kSuperU6Halves, 1), 0; }},
    {"matmul_q6_k_rows_8",
     [](const KernelTable& t) { return MatmulQ8K(t, WeightFormat::kSuperU6Halves, 8), 0; }},
    {"matmul_q6_k_rows_64",
     [](const KernelTable& t) { return MatmulQ8K(t, WeightFormat::kSuperU6Halves, 64), 0; }},
    {"scores_f16_rows_1", [](const KernelTable& t) { return Scores(t, KvType::kF16, 1), 0; }},
    {"scores_f16_rows_12", [](const KernelTable& t) { return Scores(t, KvType::kF16, 12), 0; }},
    {"values_f16_rows_12", [](const KernelTable& t) { return Values(t, KvType::kF16, 12), 0; }},
    {"scores_i8_rows_1", [](const KernelTable& t) { return Scores(t, KvType::kI8, 1), 0; }},
    {"scores_i8_rows_12", [](const KernelTable& t) { return Scores(t, KvType::kI8, 12), 0; }},
    {"values_i8_rows_1", [](const KernelTable& t) { return Values(t, KvType::kI8, 1), 0; }},
    {"values_i8_rows_12", [](const KernelTable& t) { return Values(t, KvType::kI8, 12), 0; }},
    {"softmax_chunk", [](const KernelTable& t) { return Softmax(t), 0; }},
    {"top_k_40", [](const KernelTable& t) { return TopK(t), 0; }},
    {"gumbel_49152", [](const KernelTable& t) { return Gumbel(t), 0; }},
    {"decode_step", Step},
};

}  // namespace

int main(int argc, char** argv) {
  const auto table = longspec::kernels::Choose("avx2");
  if (!table.ok()) {
    std::fprintf(stderr, "%s\n", table.status().message().c_str());
    return 77;
  }
  if (argc != 2) {
    for (const Case& c : kCases) std::printf("%s\n", c.name);
    return 0;
  }
  for (const Case& c : kCases) {
    if (std::strcmp(argv[1], c.name) == 0) return c.run(**table);
  }
  std::fprintf(stderr, "%s: no such case\n", argv[1]);
  return 2;
}

// SPDX-License-Identifier: Apache-2.0
//
// Passes of a GPU's attention, on any device: their results must be the reference's.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "kernels/testing/attention_case.h"
#include "kernels/testing/data.h"

namespace longspec::kernels::testing {

using SeenByRows = std::vector<SeenByRow>;

// Each row after the one before it, in a partial last chunk.
inline const SeenByRows kChain = {{0, 598, 0}, {0, 599, 0}, {0, 600, 0}, {0, 601, 0}, {0, 602, 0}};
// Branches of a tree, and a row that ends before them.
inline const SeenByRows kTree = {{0, 600, 1}, {0, 600, 2}, {0, 599, 0},
                                 {0, 600, 2}, {0, 600, 7}, {0, 600, 3}};
// Tails that go on in a chunk in which nothing is stored, begin with one, or begin in the first chunk.
inline const SeenByRows kTreeAcross = {{0, 510, 1}, {0, 510, 5}, {0, 510, 9}};
inline const SeenByRows kTreeAtBoundary = {{0, 512, 1}, {0, 512, 4}};
inline const SeenByRows kTreeAtStart = {{0, 0, 1}, {0, 0, 3}, {0, 0, 20}};
// Some see a part of a chunk, none of it, or nothing at all.
inline const SeenByRows kWindows = {{0, 300, 0},   {100, 300, 0}, {260, 400, 0},
                                    {256, 257, 0}, {290, 290, 0}, {0, 16, 0}};
inline const SeenByRows kWindowTree = {{20, 300, 2}, {280, 300, 3}, {301, 300, 4}};
// More parts than are merged at a time.
inline const SeenByRows kManyChunks = {{0, 40000, 0}, {9000, 40001, 0}};

inline bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <typename Device>
class FusedAttentionCases {
 public:
  // Those that differ from the reference.
  static std::vector<std::string> OfTypes() {
    std::vector<std::string> wrong;
    OfType<KvType::kF32>(wrong);
    OfType<KvType::kF16>(wrong);
    OfType<KvType::kQ8_0>(wrong);
    OfType<KvType::kQ4_0>(wrong);
    OfType<KvType::kI8>(wrong);
    Add<KvType::kQ8_0, KvType::kF16, 64, 8>(kTree, 64, 1, 4, wrong);
    Add<KvType::kF16, KvType::kQ4_0, 64, 8>(kTree, 32, 2, 1, wrong);
    Add<KvType::kI8, KvType::kF16, 64, 8>(kTree, 64, 1, 4, wrong);
    Add<KvType::kQ8_0, KvType::kI8, 64, 8>(kTree, 32, 2, 1, wrong);
    return wrong;
  }

  static std::vector<std::string> OfRows() {
    std::vector<std::string> wrong;
    for (const SeenByRows& rows : {kTreeAcross, kTreeAtBoundary, kTreeAtStart, kWindows, kWindowTree}) {
      OfF16<64, 8>(rows, 48, 2, 2, wrong);
      OfF16<64, 16>(rows, 64, 1, 5, wrong);
      Add<KvType::kI8, KvType::kI8, 64, 8>(rows, 32, 2, 2, wrong);
    }
    Add<KvType::kQ4_0, KvType::kQ4_0, 64, 8>(kManyChunks, 32, 1, 1, wrong);
    return wrong;
  }

  static std::vector<std::string> OfSizes() {
    std::vector<std::string> wrong;
    OfF16<64, 32, 3>(kTree, 16, 1, 7, wrong);
    OfF16<64, 64, 2>(kWindows, 64, 1, 12, wrong);
    OfF16<128, 8, 5>(kChain, 112, 1, 8, wrong);
    OfF16<128, 64>(kTree, 80, 1, 12, wrong);
    OfF16<256, 8>(kTree, 256, 1, 3, wrong);
    OfF16<256, 32>(kChain, 144, 1, 8, wrong);
    OfF16<512, 8, 2>(kTreeAcross, 512, 1, 8, wrong);
    Add<KvType::kI8, KvType::kI8, 64, 32, 3>(kTree, 64, 1, 7, wrong);
    Add<KvType::kI8, KvType::kI8, 256, 32>(kTree, 160, 1, 8, wrong);
    Add<KvType::kI8, KvType::kI8, 512, 8, 2>(kTree, 512, 1, 4, wrong);
    Add<KvType::kI8, KvType::kI8, 512, 8, 2>(kTreeAcross, 288, 1, 8, wrong);
    return wrong;
  }

 private:
  template <KvType K, KvType V, int kDims, int kEntries, int kRing = 4>
  static void Add(const SeenByRows& rows, int head_dim, int n_kv_head, int group,
                  std::vector<std::string>& wrong) {
    const AttentionCase test({K, V, head_dim, n_kv_head, group}, rows, kEntries / group, 77);
    const AttentionCase::Result expected = test.Reference();
    const AttentionCase::Result actual = test.template On<Device, K, V, kDims, kEntries, kRing>();
    if (Same(expected.states, actual.states) && Same(expected.out, actual.out)) return;
    wrong.push_back(std::string(Name(K)) + " keys, " + Name(V) + " values, " + std::to_string(n_kv_head) +
                    " x " + std::to_string(group) + " heads of " + std::to_string(head_dim) +
                    ", first row [" + std::to_string(rows[0].begin) + ", " + std::to_string(rows[0].end) +
                    ") and " + std::to_string(rows[0].n_tail) + " slots");
  }

  template <int kDims, int kEntries, int kRing = 4>
  static void OfF16(const SeenByRows& rows, int head_dim, int n_kv_head, int group,
                    std::vector<std::string>& wrong) {
    Add<KvType::kF16, KvType::kF16, kDims, kEntries, kRing>(rows, head_dim, n_kv_head, group, wrong);
  }

  template <KvType T>
  static void OfType(std::vector<std::string>& wrong) {
    for (const SeenByRows& rows : {kChain, kTree}) {
      Add<T, T, 64, 8>(rows, 64, 2, 3, wrong);
      Add<T, T, 64, 16>(rows, 32, 1, 5, wrong);
    }
    Add<T, T, 128, 16>(kTree, 96, 1, 4, wrong);
    Add<T, T, 128, 8>(kTreeAcross, 128, 2, 6, wrong);
  }
};

}  // namespace longspec::kernels::testing

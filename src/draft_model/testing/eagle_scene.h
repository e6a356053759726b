// SPDX-License-Identifier: Apache-2.0
//
// For tests: small EAGLE drafts in folders of their own, and a sequence that one of them reads, round by
// round, with what the specification's naive forward pass says of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/tree_search.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {

inline constexpr char kLowLayers[] = R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]})";

// A draft in a folder of its own, for a target of four layers.
struct SmallEagle {
  explicit SmallEagle(const EagleShape& s, const std::vector<int64_t>& of_head = {},
                      const std::string& more = "", const TinyModelOptions& target = {.n_layers = 4})
      : tiny(target), shape(s), tokens(of_head) {
    if (shape.eagle3) shape.n_tokens = static_cast<int>(tokens.size());
    draft = RandomEagle(tiny.spec, shape, 9);
    const bool names_layers = more.find("eagle_config") != std::string::npos;
    path =
        WriteEagle(folder, "draft", tiny.spec, shape, draft, tokens, (names_layers ? "" : kLowLayers) + more);
  }

  SpeculationOptions Options(const std::string& tree, int n_max = 24) const {
    SpeculationOptions options;
    options.type = shape.eagle3 ? "eagle3" : "eagle";
    options.draft_model = path;
    options.draft_weights = "f32";
    options.tree = tree;
    options.draft_n_max = n_max;
    options.spec_extend.chunks = extend_chunks;
    options.spec_extend.every = extend_every;
    options.spec_extend.from = extend_from;
    return OnlyRead(options, options.type);
  }

  Folder folder;
  TinyTarget tiny;
  EagleShape shape;
  int extend_chunks = 0, extend_every = 4, extend_from = 0;
  std::vector<int64_t> tokens;  // of the head; empty: all
  DraftTensors draft;
  std::string path;
};

// A sequence, the target's cache of all of it but the last token, and a drafter that reads it.
class EagleScene {
 public:
  explicit EagleScene(SmallEagle* eagle, const std::string& tree = "", DraftModels* models = nullptr)
      : e_(*eagle), cache_(e_.tiny.NewCache(1000)) {
    auto drafter =
        MakeDrafter(e_.Options(tree), {.target = &e_.tiny.target(), .cache = cache_.get(), .models = models});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    drafter_ = std::move(*drafter);
  }

  void Follow(const std::vector<int32_t>& committed) {
    const auto same = std::ranges::mismatch(committed_, committed).in1 - committed_.begin();
    committed_ = committed;
    cache_->Truncate(
        std::min({cache_->length(), static_cast<int>(same), static_cast<int>(committed.size()) - 1}));
    ASSERT_TRUE(drafter_->Follow(committed).ok());
  }

  // The target computes all but the last token, so many at a time. The drafter reads them.
  void Compute(int chunk = 100, bool reads = true) {
    const auto end = static_cast<int>(committed_.size()) - 1;
    while (cache_->length() < end) {
      const int n = std::min(chunk, end - cache_->length());
      const auto first = committed_.begin() + cache_->length();
      std::vector<int32_t> rows(static_cast<size_t>(n));
      std::iota(rows.begin(), rows.end(), 0);
      Forward({first, first + n}, {}, rows, 0, reads, nullptr);
    }
  }

  // A round in which nodes of a tree are verified, and these of them accepted, and then `next` is chosen.
  void Round(const TokenTree& tree, const std::vector<int32_t>& accepted, int32_t next) {
    std::vector<int32_t> tokens, parents;
    for (const TreeNode& node : tree.nodes()) {
      tokens.push_back(node.token);
      parents.push_back(node.parent);
    }
    for (const int32_t node : accepted) committed_.push_back(tree.node(node).token);
    committed_.push_back(next);
    std::vector<int32_t> rows = {0};
    rows.insert(rows.end(), accepted.begin(), accepted.end());
    Forward(tokens, parents, rows, static_cast<int>(accepted.size()) + 1, true, &tree);
  }

  TokenTree Propose(int max_nodes, int max_depth) {
    TokenTree tree(committed_.back());
    const Status status =
        drafter_->Propose({.max_nodes = max_nodes, .max_depth = max_depth}, committed_, tree);
    EXPECT_TRUE(status.ok()) << status.message();
    return tree;
  }

  // What the specification says comes after a path below the last token, if the draft has not read positions
  // from `unread` to `begin`.
  Next Specified(int unread = 0, int begin = 0, bool residual_is_normed = false) {
    return After(Slots(unread, begin), residual_is_normed);
  }

  // The same, if of the stored slots, which are all but the last, it sees these chunks of 32, at positions
  // from 0 on.
  Next Extended(const std::vector<int>& chunks, int unread = 0, int begin = 0) {
    const std::vector<EagleSlot> all = Slots(unread, begin);
    std::vector<EagleSlot> seen;
    for (const int c : chunks) {
      const size_t end = std::min(static_cast<size_t>(c + 1) * 32, all.size() - 1);
      for (size_t i = static_cast<size_t>(c) * 32; i < end; ++i) seen.push_back(all[i]);
    }
    seen.push_back(all.back());
    for (size_t i = 0; i < seen.size(); ++i) seen[i].position = static_cast<int>(i);
    return After(seen, false);
  }

  // SpecExtend's choice, said naively: the `k` chunks of the stored slots at whose features the last computed
  // position of the target looks most, in the last layer, and the newest one.
  std::vector<int> Choice(int k, int unread = 0, int begin = 0) {
    const std::vector<double> looks = Looks();
    std::vector<double> scores;  // by slot
    for (const EagleSlot& slot : Slots(unread, begin))
      scores.push_back(looks[static_cast<size_t>(slot.position)]);
    scores.pop_back();
    std::vector<std::pair<double, int>> chunks;
    for (size_t first = 0; first < scores.size(); first += 32) {
      const size_t end = std::min(first + 32, scores.size());
      double sum = 0;
      for (size_t i = first; i < end; ++i) sum += scores[i];
      chunks.emplace_back(-sum / static_cast<double>(end - first), static_cast<int>(first / 32));
    }
    const int newest = chunks.back().second;
    std::ranges::sort(chunks);
    chunks.resize(std::min(chunks.size(), static_cast<size_t>(k)));
    std::vector<int> chosen = {newest};
    for (const auto& [score, chunk] : chunks) {
      if (chunk != newest) chosen.push_back(chunk);
    }
    std::ranges::sort(chosen);
    return chosen;
  }

  Drafter& drafter() { return *drafter_; }
  KvCache& cache() { return *cache_; }
  const std::vector<int32_t>& committed() const { return committed_; }

 private:
  void Forward(const std::vector<int32_t>& tokens, const std::vector<int32_t>& parents,
               const std::vector<int32_t>& rows, int n_new, bool reads, const TokenTree* tree) {
    const int first = cache_->length();
    auto speculated = cache_->Begin(static_cast<int>(tokens.size()));
    ASSERT_TRUE(speculated.ok());
    const Taps taps = drafter_->taps();
    const ForwardSegment segment = {.tokens = tokens, .parents = parents, .kv = &*speculated, .taps = &taps};
    const auto output = e_.tiny.target().Forward({&segment, 1});
    ASSERT_TRUE(output.ok()) << output.status().message();
    speculated->Commit(rows);
    if (!reads) return;
    const Status read = drafter_->Read({.sequence = committed_,
                                        .n_new = n_new,
                                        .first = first,
                                        .rows = rows,
                                        .output = &output->segments[0],
                                        .n_output_rows = static_cast<int>(tokens.size()),
                                        .tree = tree});
    ASSERT_TRUE(read.ok()) << read.message();
  }

  // Of what the draft has read.
  std::vector<EagleSlot> Slots(int unread, int begin) {
    const std::vector<Vec> features = Features(drafter_->taps());
    std::vector<EagleSlot> slots;
    for (int j = 0; j + 1 < static_cast<int>(committed_.size()); ++j) {
      if (j >= unread && j < begin) continue;
      slots.push_back({committed_[static_cast<size_t>(j) + 1], features[static_cast<size_t>(j)], j});
    }
    return slots;
  }

  Next After(const std::vector<EagleSlot>& slots, bool residual_is_normed) {
    const RopeConfig rope = {
        .pairing = kernels::RopePairing::kHalfSplit, .n_rot = e_.shape.head_dim, .freq_factors = {}};
    const EagleReference reference(e_.draft, e_.shape, e_.tiny.parts(), rope, residual_is_normed);
    return [this, reference, slots](const Path& path) {
      std::vector<EagleSlot> all = slots;
      Vec output = reference.Output(all);
      for (const int32_t token : path) {
        all.push_back({token, output, all.back().position + 1});
        output = reference.Output(all);
      }
      const Vec of_head = reference.LogProbs(output);
      Vec log_probs(static_cast<size_t>(e_.tiny.spec.n_vocab), -1e300);
      if (e_.tokens.empty()) return of_head;
      if (e_.shape.eagle3) {
        for (size_t i = 0; i < e_.tokens.size(); ++i)
          log_probs[static_cast<size_t>(e_.tokens[i])] = of_head[i];
        return log_probs;
      }
      for (const int64_t t : e_.tokens) log_probs[static_cast<size_t>(t)] = of_head[static_cast<size_t>(t)];
      return LogSoftmax(log_probs);
    };
  }

  // How much the last computed position looks at each one: mean over heads of the last layer's softmax.
  std::vector<double> Looks() {
    const ModelSizes& c = e_.tiny.spec;
    const auto cache = e_.tiny.NewCache(1000);
    const auto n = committed_.size() - 1;
    auto rows = cache->Begin(static_cast<int>(n));
    Taps taps;
    taps.query_rows = 1;
    const ForwardSegment segment = {.tokens = std::span(committed_).first(n),
                                    .parents = {},
                                    .kv = &*rows,
                                    .logits = LogitsFor::kNone,
                                    .taps = &taps};
    const auto output = e_.tiny.target().Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    rows->CommitAll();
    const KvSpan span = cache->Span(c.n_layer - 1);
    const std::vector<float> queries = ValuesOf(output->segments[0].queries.back());
    std::vector<double> looks(n);
    for (int head = 0; head < c.n_head; ++head) {
      std::vector<double> weights(n);
      double sum = 0;
      for (size_t p = 0; p < n; ++p) {
        double dot = 0;
        for (int d = 0; d < c.head_dim; ++d) {
          dot += static_cast<double>(queries[static_cast<size_t>(head * c.head_dim + d)]) *
                 static_cast<double>(span.KeyAt(static_cast<int>(p), head * c.n_head_kv / c.n_head, d));
        }
        sum += weights[p] = std::exp(dot / std::sqrt(c.head_dim));
      }
      for (size_t p = 0; p < n; ++p) looks[p] += weights[p] / sum / c.n_head;
    }
    return looks;
  }

  std::vector<Vec> Features(const Taps& taps) {
    const auto cache = e_.tiny.NewCache(1000);
    const auto n = committed_.size() - 1, d = static_cast<size_t>(e_.tiny.spec.n_embd);
    auto rows = cache->Begin(static_cast<int>(n));
    const ForwardSegment segment = {.tokens = std::span(committed_).first(n),
                                    .parents = {},
                                    .kv = &*rows,
                                    .logits = LogitsFor::kNone,
                                    .taps = &taps};
    const auto output = e_.tiny.target().Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    std::vector<StateRows> parts = output->segments[0].hidden;
    if (taps.final_hidden) parts = {output->segments[0].final_hidden};
    std::vector<Vec> features(n);
    for (const StateRows& part : parts) {
      const std::vector<float> values = ValuesOf(part);
      for (size_t j = 0; j < n; ++j) {
        const auto state = std::span(values).subspan(j * d, d);
        features[j].insert(features[j].end(), state.begin(), state.end());
      }
    }
    return features;
  }

  SmallEagle& e_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Drafter> drafter_;
  std::vector<int32_t> committed_;
};

inline const std::vector<int64_t>& SomeTokens() {
  static const std::vector<int64_t> tokens = {3, 7, 42, 100, 101, 200, 201, 300, 383};
  return tokens;
}

inline std::vector<std::unique_ptr<SmallEagle>> BothKinds(const std::vector<int64_t>& tokens = {}) {
  std::vector<std::unique_ptr<SmallEagle>> both;
  both.push_back(std::make_unique<SmallEagle>(EagleShape{}, tokens));
  both.push_back(std::make_unique<SmallEagle>(EagleShape{.eagle3 = true}, tokens));
  return both;
}

}  // namespace longspec::testing

// SPDX-License-Identifier: Apache-2.0
//
// Drafts with a smaller language model and a cache of its own: of all positions; of the first and last ones
// (StreamingLLM's), which keeps memory and the cost of a row constant; or of those that the target looks at
// (SpecExtend's, arXiv 2505.20776), which lets a model that knows short texts only read long ones. Without
// that such a model reads a text's end (draft/recent_text.h). Chains are grown row by row; where a tree has
// branches, each level runs the nodes it needs below the last token all nodes share.
#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/growing_drafter.h"
#include "draft/lm_file.h"
#include "draft/recent_text.h"
#include "draft/registry.h"
#include "draft/spec_extend.h"
#include "draft/target_rows.h"
#include "draft/top_tokens.h"
#include "draft/trained_range.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "formats/feature_shard.h"
#include "kv/full_cache.h"
#include "kv/streaming_cache.h"

namespace longspec {
namespace {

constexpr size_t kMostTreeRows = 256;
// Positions beyond the target's, for drafted tokens and rows that are not kept.
constexpr int kMostSpeculated = 2 * kLmMaxRows;

static_assert(kMostTreeRows <= kLmMaxRows);

// Positions that the cache has, without those for what is drafted.
int CachePositions(const LmModel& model, const KvCache& target) {
  // A target's cache that forgets has no end.
  return std::min(
      {target.capacity(), model.config.context_length(), std::numeric_limits<int>::max() - kMostSpeculated});
}

// Tokens of a text that it reads at once: as many positions as it was trained for, but some for what it
// drafts.
int MostRead(const LlamaConfig& config) { return config.context_length() - config.context_length() / 16; }

// What it begins with where it reads only when it is asked, which may be long after the last time: no more
// than fits into a round.
constexpr int kReadWhenAsked = 64;

RecentText MakeRecentText(const LmModel& model, const SpeculationOptions& options, bool when_asked) {
  const int first = when_asked ? kReadWhenAsked : 0;
  return {MostRead(model.config), options.draft_recent > 0 ? options.draft_recent : first};
}

std::unique_ptr<KvCache> MakeCache(const LmModel& model, const KvCache& target,
                                   const SpeculationOptions& options) {
  const KvLayout layout = LmCacheLayout(model.config, target.Span(0).layout);
  if (options.draft_window > 0) {
    return MakeStreamingCache(layout, model.config.n_layer, options.draft_sink, options.draft_window);
  }
  return MakeFullCache(layout, model.config.n_layer, CachePositions(model, target) + kMostSpeculated);
}

// After the rows in `wanted`, places among them, the k most probable tokens go to `next`. All borrowed.
struct LmRows final : TargetRows {
  LmRows(const LmModel& of, const kernels::KernelTable* table)
      : TargetRows(of.target.get(), Z(kLmMaxRows)),
        kernels(table),
        n_logits(of.config.n_logits),
        vocab(of.vocab) {}

  const kernels::KernelTable* kernels;
  int n_logits;
  std::span<const int32_t> vocab;  // as LmModel's
  std::span<const int32_t> wanted;
  int k = 0;
  std::span<std::vector<TokenScore>> next;

 private:
  void Take(const TargetOutput::Segment& output) override {
    const int n_rows = static_cast<int>(segment.tokens.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const int row = wanted[i] - (n_rows - output.n_logits);
      TopTokens(*kernels, output.logits + Z(row) * Z(n_logits), n_logits, k, vocab, next[i]);
    }
  }
};

class LmDrafter final : public GrowingDrafter {
 public:
  LmDrafter(std::shared_ptr<const LmModel> model, TreeShape shape, const SharedParts& target,
            const KvCache& cache, const SpeculationOptions& options, bool one_of_several)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        range_(model_->path, model_->target->context_length()),
        target_(target),
        windowed_(options.draft_window > 0),
        when_asked_(one_of_several && !windowed_ && !AsksForSpecExtend(options)),
        // Of one that is extended another text is seen than is read.
        recent_(AsksForSpecExtend(options) ? RecentText(0, 0)
                                           : MakeRecentText(*model_, options, when_asked_)),
        extended_(MakeSpecExtend(SpecExtendOf(options, kSpecExtendOfLm, model_->target->context_length()),
                                 target, cache, LmCacheLayout(model_->config, cache.Span(0).layout),
                                 model_->config.n_layer, model_->config.rope)),
        own_(extended_ == nullptr ? MakeCache(*model_, cache, options) : nullptr),
        cache_(extended_ == nullptr ? own_.get() : &extended_->cache()) {}

  std::string_view name() const override { return "lm"; }
  bool uses_dice() const override { return true; }
  bool rewinds() const override { return !windowed_; }

  Status Follow(std::span<const int32_t> committed) override {
    if (extended_ != nullptr) extended_->Restart();
    return Trim(committed);
  }

  Taps taps() const override { return extended_ == nullptr ? Taps() : extended_->With({}); }

  // A prompt is run piece by piece, as the target runs it: whoever writes meanwhile waits for no more than a
  // piece. What was accepted is found in the sequence when the next tree is grown. Where the target's last
  // token looks is what the draft is to see from then on.
  Status Read(const CommittedRows& rows) override {
    if (when_asked_) return {};
    if (extended_ != nullptr) extended_->Read(rows);
    const bool of_prompt = std::ssize(rows.rows) > rows.n_new;
    if (of_prompt || extended_ != nullptr) LS_TRY(Trim(rows.sequence));
    if (!of_prompt || range_.LevelsLeft(Seen(rows.sequence)) <= 0) return {};
    const size_t end = std::min(Z(rows.first) + rows.rows.size(), BeforeLast(rows.sequence).size());
    const size_t read = recent_.begin() + held_.size();
    if (end <= read) return {};
    if (extended_ != nullptr) LS_TRY(extended_->BeginPromptPiece());
    ran_prompt_ = true;
    return Hold(rows.sequence.first(end).subspan(read));
  }

  size_t Unread(std::span<const int32_t> committed) const override {
    if (!when_asked_) return 0;
    RecentText recent = recent_;
    const size_t n_kept = recent.Follow(held_, committed);
    return BeforeLast(recent.Of(committed)).size() - n_kept;
  }

  Status CatchUp(std::span<const int32_t> committed) override {
    if (!when_asked_) return {};
    LS_TRY(Trim(committed));
    return Hold(BeforeLast(recent_.Of(committed)).subspan(held_.size()));
  }

  size_t bytes() const override {
    return (extended_ == nullptr ? own_->bytes() : extended_->bytes()) + held_.capacity() * sizeof(int32_t);
  }

  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    LS_TRY(Trim(committed));
    if (std::exchange(ran_prompt_, false) && extended_ != nullptr) LS_TRY(extended_->HoldLast());
    const int left = range_.LevelsToGrow(Seen(committed));
    committed_ = recent_.Of(committed);
    chain_.clear();
    return left;
  }

  // Tokens up to the last one of a text, at the positions where the draft has them: those of its working set
  // if it has one.
  size_t Seen(std::span<const int32_t> committed) const {
    return extended_ != nullptr && !extended_->sees_all() ? Z(cache_->n_slots()) + 1
                                                          : recent_.Of(committed).size();
  }

  // Forgets what does not begin the part of this sequence that it reads, and its last token: what follows
  // that one is asked for. The sequence's length says what is seen of it.
  Status Trim(std::span<const int32_t> committed) {
    const size_t n_kept = recent_.Follow(held_, committed);
    // What a window held before the positions it loses is gone, so it is filled anew.
    held_.resize(windowed_ && n_kept < held_.size() ? 0 : n_kept);
    cache_->Truncate(static_cast<int>(held_.size()));
    return extended_ == nullptr ? Status() : extended_->Follow(committed.size());
  }

  // Runs tokens after those held, and holds them.
  Status Hold(std::span<const int32_t> tokens) {
    while (!tokens.empty()) {
      const auto part = tokens.first(std::min(tokens.size(), Z(kLmMaxRows)));
      tokens = tokens.subspan(part.size());
      LS_ASSIGN(KvTransaction rows, cache_->Begin(static_cast<int>(part.size())));
      const ForwardSegment segment = {.tokens = part, .kv = &rows, .logits = LogitsFor::kNone};
      LS_TRY(model_->target->Forward({&segment, 1}).status());
      Commit(part, &rows);
    }
    return {};
  }

  void Commit(std::span<const int32_t> tokens, KvTransaction* rows) {
    rows->CommitAll();
    held_.insert(held_.end(), tokens.begin(), tokens.end());
  }

  LmRows Rows(std::span<const int32_t> tokens, KvTransaction* rows) const {
    LmRows all(*model_, target_.kernels);
    all.segment = {.tokens = tokens, .kv = rows};
    return all;
  }

  // The same, and what follows the last of them.
  DraftTask HoldAndAsk(std::span<const int32_t> tokens, int k, std::span<std::vector<TokenScore>> next) {
    const auto last = tokens.last(std::min(tokens.size(), Z(kLmMaxRows)));
    LS_CO_TRY(Hold(tokens.first(tokens.size() - last.size())));
    Result<KvTransaction> kept = cache_->Begin(static_cast<int>(last.size()));
    LS_CO_TRY(kept.status());
    LmRows rows = Rows(last, &*kept);
    rows.segment.logits = LogitsFor::kLastRow;
    const auto wanted = static_cast<int32_t>(last.size()) - 1;
    rows.wanted = {&wanted, 1};
    rows.k = k;
    rows.next = next;
    LS_CO_TRY(co_await Meet(rows));
    Commit(last, &*kept);
    co_return Status();
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    next.resize(which.size());
    if (chain_.empty()) {  // the root, and what was accepted before it
      LS_CO_TRY(co_await HoldAndAsk(committed_.subspan(held_.size()), k, next));
      // The root was computed with the old set (research: specextend.md 3.4).
      if (extended_ != nullptr) LS_CO_TRY(extended_->Choose());
    } else if (!windowed_ && which.size() == 1 && nodes[Z(which[0])].parent == chain_.back()) {
      // As long as every level has had one node, that node's token continues what the cache holds. (A window
      // would lose a committed position for it, which a wrong draft does not bring back.)
      const int32_t token = nodes[Z(which[0])].token;
      LS_CO_TRY(co_await HoldAndAsk({&token, 1}, k, next));
    } else {
      co_return co_await ExpandBranches(nodes, which, k, next);
    }
    chain_.push_back(which[0]);
    co_return Status();
  }

  // The nodes and their ancestors below the chain, as one tree that is not kept; in parts if they are many.
  DraftTask ExpandBranches(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                           std::span<std::vector<TokenScore>> next) {
    std::vector<int32_t> wanted;
    for (size_t begin = 0, n = 0; begin < which.size(); begin += n) {
      n = which.size() - begin;
      // One path alone is never longer than a budget is deep.
      while (Collect(nodes, which.subspan(begin, n)) > kMostTreeRows && n > 1) n = (n + 1) / 2;
      wanted.clear();
      for (const int32_t i : which.subspan(begin, n)) wanted.push_back(row_of_[Z(i)]);
      Result<KvTransaction> dropped = cache_->Begin(static_cast<int>(tokens_.size()));
      LS_CO_TRY(dropped.status());
      LmRows rows = Rows(tokens_, &*dropped);
      rows.segment.parents = parents_;
      rows.wanted = wanted;
      rows.k = k;
      rows.next = next.subspan(begin, n);
      LS_CO_TRY(co_await Meet(rows));
    }
    co_return Status();
  }

  // tokens_ and parents_ of these nodes and their ancestors below the chain, parents first; row_of_ says
  // where each is. Returns how many rows they are.
  size_t Collect(std::span<const GrownNode> nodes, std::span<const int32_t> which) {
    row_of_.assign(nodes.size(), -1);
    for (int32_t i : which) {
      for (; row_of_[Z(i)] < 0 && std::ranges::find(chain_, i) == chain_.end(); i = nodes[Z(i)].parent) {
        row_of_[Z(i)] = 0;
      }
    }
    tokens_.clear();
    parents_.clear();
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (row_of_[i] < 0) continue;
      row_of_[i] = static_cast<int32_t>(tokens_.size());
      tokens_.push_back(nodes[i].token);
      parents_.push_back(row_of_[Z(nodes[i].parent)]);  // -1: right after what the cache holds
    }
    return tokens_.size();
  }

  const std::shared_ptr<const LmModel> model_;
  TrainedRange range_;
  const SharedParts target_;
  const bool windowed_;  // the cache forgets
  // One of several drafters, which may never be asked: a prompt is not read before.
  const bool when_asked_;
  RecentText recent_;                           // what it reads
  const std::unique_ptr<SpecExtend> extended_;  // null: own_ is used
  const std::unique_ptr<KvCache> own_;
  KvCache* const cache_;
  std::vector<int32_t> held_;  // tokens the cache holds
  bool ran_prompt_ = false;    // since the last tree

  // The tree that is being grown.
  std::span<const int32_t> committed_;  // up to its root
  std::vector<int32_t> chain_;          // nodes whose tokens are held: the root and its only descendants
  std::vector<int32_t> row_of_, tokens_, parents_;
};

Result<TreeShape> Shape(const std::string& tree) { return ParseTreeShape(tree.empty() ? "chain" : tree); }

constexpr int kMostWindow = 1 << 24;
constexpr DrafterOption kLmOptions[] = {
    kDraftModelOption,
    {.flags = "--spec-draft-recent",
     .member = &SpeculationOptions::draft_recent,
     .help = "last tokens of a text that the draft begins with; 0: all, if it knows texts as long",
     .most = kMostWindow},
    {.flags = "--spec-draft-sink",
     .member = &SpeculationOptions::draft_sink,
     .help = "first positions the draft sees through a window",
     .most = kMostWindow},
    {.flags = "--spec-draft-window",
     .member = &SpeculationOptions::draft_window,
     .help = "and last ones, so that its cache stays as large; 0: all",
     .most = kMostWindow},
    kSpecExtendOption,
    kSpecExtendChunksOption,
    kSpecExtendEveryOption,
    kSpecExtendFromOption,
};

Status CheckLm(const SpeculationOptions& options) {
  if (!options.draft_weights.empty()) {
    return InvalidArgument("--spec-draft-weights " + options.draft_weights + ": --spec-type " + options.type +
                           " runs its model as it is stored");
  }
  if (AsksForSpecExtend(options) && options.draft_window > 0) {
    return InvalidArgument("--spec-extend: not with --spec-draft-window, which says otherwise what it sees");
  }
  if (AsksForSpecExtend(options) && options.draft_recent > 0) {
    return InvalidArgument("--spec-extend: not with --spec-draft-recent, which says otherwise what it sees");
  }
  return Shape(options.tree).status();
}

// REQUIRES: the target's file was read.
Result<LmFile> LmFileOf(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) {
  LS_ASSIGN(const auto file, files.Gguf(options.draft_model));
  const TensorView* const embedding = target.file.FindTensor("token_embd.weight");
  const TensorView* const head = target.file.FindTensor("output.weight");
  return ReadLmFile(file, *embedding, head == nullptr ? *embedding : *head);
}

Status LmFits(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) {
  LS_ASSIGN(const LmFile lm, LmFileOf(options, target, files));
  if (!lm.of_target) {
    LS_ASSIGN(const std::vector<std::string> tokens, target.file.GetStrings("tokenizer.ggml.tokens"));
    return CheckLmFit(lm, target.config.n_vocab, tokens);
  }
  LS_ASSIGN(const std::string of, lm.file->GetString(kLmTargetKey));
  const std::string fingerprint = TargetFingerprint(target.file);
  if (of == fingerprint) return {};
  return Unsupported(options.draft_model +
                     ": the draft model does not fit the target: it has the embedding and "
                     "the head of the model " +
                     of + ", the target is " + fingerprint);
}

Result<DraftMemory> LmMemory(const SpeculationOptions& options, const TargetFacts& target,
                             DraftFiles& files) {
  LS_ASSIGN(const LmFile lm, LmFileOf(options, target, files));
  const LlamaConfig& config = lm.config;
  const LlamaMemory memory = PlanLlamaMemory(config, *lm.file, kLmMaxRows);
  const uint64_t chunk = KvChunkBytes(LmCacheLayout(config, target.cache), config.n_layer);
  DraftMemory plan = {.fixed = memory.weights + memory.scratch};
  if (options.draft_window > 0) {
    // Rows of a prompt stand beside the window until the oldest have made room.
    const int64_t positions = int64_t{options.draft_sink} + options.draft_window + kLmMaxRows;
    plan.fixed += static_cast<uint64_t>(positions / kKvChunk + 1) * chunk;
  } else if (AsksForSpecExtend(options)) {
    AddSpecExtendMemory(options, kSpecExtendOfLm, target.config, LmCacheLayout(config, target.cache),
                        config.n_layer, kLmMaxRows, &plan);
  } else if (config.context_length() < target.config.context_length()) {
    plan.fixed += static_cast<uint64_t>((config.context_length() + kMostSpeculated) / kKvChunk + 1) * chunk;
  } else {
    plan.kv_chunk = chunk;
  }
  return plan;
}

DrafterResult MakeLm(const SpeculationOptions& options, const DraftContext& context) {
  LS_CHECK(context.target != nullptr && context.cache != nullptr);
  const SharedParts* target = context.target->shared_parts();
  if (target == nullptr) {
    return Unsupported(options.draft_model + ": the target's vocabulary is not known");
  }
  LS_ASSIGN(TreeShape shape, Shape(options.tree));
  LS_ASSIGN(auto model, context.models->Lm(options.draft_model, *target));
  LS_TRY(CheckSpecExtend(options, *context.cache));
  try {
    return std::unique_ptr<Drafter>(std::make_unique<LmDrafter>(
        std::move(model), std::move(shape), *target, *context.cache, options, context.one_of_several));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(options.draft_model + ": no memory for the draft model's cache");
  }
}

}  // namespace

constexpr DrafterEntry kLmDrafter = {
    .name = "lm",
    .aliases = {"draft", "draft_model", "draft-simple"},
    .summary = "the guesses of a smaller language model with the same vocabulary",
    .options = kLmOptions,
    .reads = [](std::string_view architecture) { return FindDraftKind(architecture) == nullptr; },
    .check = CheckLm,
    .fits = LmFits,
    .memory = LmMemory,
    .make = MakeLm,
    .in_auto = Always,
    .as_member = GrowBestAsMember,
    .chain_by_default = true,
};

}  // namespace longspec

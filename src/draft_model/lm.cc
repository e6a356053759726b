// SPDX-License-Identifier: Apache-2.0
//
// Drafts with a smaller language model and a cache of its own: of all positions; of the first and last ones,
// at positions inside that cache (StreamingLLM's), which keeps memory and the cost of a row constant and lets
// a model that knows short texts only read a text of any length; or of those that the target looks at
// (SpecExtend's, arXiv 2505.20776). Without either such a model reads a text's end
// (draft_model/trained_range.h). Chains are grown row by row; where a tree has branches, each level runs the
// nodes it needs below the last token all nodes share.
//
// A prompt is read as far as the target has computed it, whoever did that. What is made of it depends on the
// text alone: where rows see more of their own pass than of what came before, passes begin at the same places
// in every sequence. So it is kept for others that begin alike (draft_model/draft_keys.h).
#include "draft_model/lm.h"

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
#include "draft/growing_drafter.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_lane.h"
#include "draft_model/draft_models.h"
#include "draft_model/lm_file.h"
#include "draft_model/registry.h"
#include "draft_model/spec_extend.h"
#include "draft_model/target_rows.h"
#include "draft_model/trained_range.h"
#include "formats/draft_names.h"
#include "formats/feature_shard.h"
#include "kv/full_cache.h"
#include "kv/reindexed_cache.h"
#include "kv/streaming_cache.h"
#include "network/model_tensors.h"

namespace longspec {

KvLayout LmCacheLayout(const ModelSizes& draft, const KvLayout& target) {
  return DraftCacheLayout(draft.n_head_kv, draft.head_dim, target);
}

Result<std::shared_ptr<const LmModel>> LoadLmModel(const std::shared_ptr<const GgufFile>& draft,
                                                   const SharedParts& target,
                                                   const std::vector<std::string>& tokens,
                                                   const WeightsCacheOptions& weights_cache) try {
  auto model = std::make_shared<LmModel>();
  model->path = draft->path();
  LS_ASSIGN(LmFile lm, ReadLmFile(draft, target.embedding, target.head));
  LS_TRY(CheckLmFit(lm, target.sizes->n_vocab, tokens));
  model->spec = lm.spec;
  model->vocab = std::move(lm.vocab);
  model->stand_ins = std::move(lm.stand_ins);
  model->n_shared = model->stand_ins.empty() ? std::min(model->spec.n_vocab, target.sizes->n_vocab)
                                             : static_cast<int>(model->stand_ins.size());
  ModelLoadOptions load;
  load.max_rows = kLmMaxRows;
  // What is kept on disk is known by the file that it is of.
  if (model->vocab.empty() && !lm.of_target) load.weights_cache = weights_cache;
  LS_ASSIGN(model->target, LoadInLane(target, lm.file, model->spec, load));
  return std::shared_ptr<const LmModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(draft->path() + ": no memory for the draft model");
}

namespace {

constexpr size_t kMostTreeRows = 256;
constexpr size_t kMostUnconfirmed = 64;
// Positions beyond the target's, for drafted tokens and rows that are not kept.
constexpr int kMostSpeculated = 2 * kLmMaxRows;

static_assert(kMostTreeRows <= kLmMaxRows);

// Positions that the cache has, without those for what is drafted.
int CachePositions(const LmModel& model, const KvCache& target) {
  // A target's cache that forgets has no end.
  return std::min(
      {target.capacity(), model.spec.context_length(), std::numeric_limits<int>::max() - kMostSpeculated});
}

// Tokens of a text that it reads at once: as many positions as it was trained for, but some for what it
// drafts.
int MostRead(const ModelSpec& spec) { return spec.context_length() - spec.context_length() / 16; }

// What it begins with where it reads only when it is asked, which may be long after the last time: no more
// than fits into a round.
constexpr int kReadWhenAsked = 64;

// Of one that is extended another text is seen than is read, and a window never outgrows what a model knows.
RecentText MakeRecentText(const LmModel& model, const SpeculationOptions& options, bool when_asked) {
  if (AsksForSpecExtend(options)) return {0, 0};
  const int first = when_asked ? kReadWhenAsked : 0;
  return {options.lm.window > 0 ? 0 : MostRead(model.spec),
          options.lm.recent > 0 ? options.lm.recent : first};
}

// What it keeps of the text; one of three.
struct LmCaches {
  std::unique_ptr<WorkingSet> window;           // the first and last positions
  std::unique_ptr<ReindexedCache> reindexed;    // those that the target looks at
  std::unique_ptr<FullCache> full;              // all
  std::shared_ptr<DraftKeys> shared_keys = {};  // of the positions of the last two; null: they are not shared

  KvCache* get() const {
    if (window != nullptr) return window.get();
    return reindexed != nullptr ? static_cast<KvCache*>(reindexed.get()) : full.get();
  }
  FullCache* kept() const { return reindexed != nullptr ? &reindexed->store() : full.get(); }
};

LmCaches MakeCaches(const LmModel& model, const DraftContext& context, const SpeculationOptions& options,
                    const SpecExtendSettings& extend) {
  const ModelSpec& spec = model.spec;
  const KvLayout layout = LmCacheLayout(spec, context.cache->Span(0).layout);
  LmCaches caches;
  if (options.lm.window > 0) {
    caches.window =
        MakeStreamingCache(model.target->NewPool(layout, spec.n_layer, {}), options.lm.sink,
                           options.lm.window, RotaryOf(spec.rope, *context.target->shared_parts()));
    return caches;
  }
  const KvLayout kept = extend.on() ? ReindexedStoreLayout(layout) : layout;
  // What one that may never be asked reads is no text's beginning.
  if (!context.one_of_several || extend.on())
    caches.shared_keys = context.models->LmKeys(model.path, extend.on(), kept,
                                                CachePositions(model, *context.cache) + kMostSpeculated);
  auto pool = caches.shared_keys != nullptr ? caches.shared_keys->pool()
                                            : model.target->NewPool(kept, spec.n_layer, {});
  if (extend.on()) {
    caches.reindexed = MakeReindexedCache(model.target->NewPool(layout, spec.n_layer, {}),
                                          RotaryOf(spec.rope, *context.target->shared_parts()), SetOf(extend),
                                          std::move(pool));
  } else {
    caches.full = MakeFullCache(std::move(pool), CachePositions(model, *context.cache) + kMostSpeculated);
  }
  return caches;
}

// After the rows in `wanted`, places among them, the k most probable tokens go to `next`. All borrowed.
struct LmRows final : TargetRows {
  LmRows(const LmModel& of, const SharedParts& target)
      : TargetRows(of.target.get(), Z(kLmMaxRows)),
        lent(target),
        n_proposed(of.vocab.empty() ? std::min(of.spec.n_logits, of.n_shared) : of.spec.n_logits),
        vocab(of.vocab) {}

  const SharedParts& lent;
  int n_proposed;                  // of its logits, the first ones
  std::span<const int32_t> vocab;  // as LmModel's
  std::span<const int32_t> wanted;
  int k = 0;
  std::span<std::vector<TokenScore>> next;

 private:
  void Take(const TargetOutput::Segment& output) override {
    const int n_rows = static_cast<int>(segment.tokens.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const LogitRow row = output.logits[wanted[i] - (n_rows - output.logits.size())];
      TopOfRow(lent, row, n_proposed, k, vocab, next[i]);
    }
  }
};

class LmDrafter final : public GrowingDrafter {
 public:
  LmDrafter(std::shared_ptr<const LmModel> model, TreeShape shape, const DraftContext& context,
            const SpeculationOptions& options, const SpecExtendSettings& extend)
      : GrowingDrafter(std::move(shape)),
        model_(std::move(model)),
        range_(model_->path, model_->target->context_length()),
        target_(*context.target->shared_parts()),
        target_cache_(*context.cache),
        windowed_(options.lm.window > 0),
        when_asked_(context.one_of_several && !windowed_ && !extend.on()),
        recent_(MakeRecentText(*model_, options, when_asked_)),
        caches_(MakeCaches(*model_, context, options, extend)),
        cache_(caches_.get()),
        extended_(extend.on() ? std::make_unique<SpecExtend>(extend, *context.target, target_cache_,
                                                             &caches_.reindexed->set())
                              : nullptr) {}

  ~LmDrafter() override { Keep(); }

  std::string_view name() const override { return "lm"; }
  bool uses_dice() const override { return true; }
  bool rewinds() const override { return true; }

  // What of a prompt was computed before is read now: that is no part of a round.
  Status Follow(std::span<const int32_t> committed) override {
    Keep();
    n_confirmed_ = committed.size();
    if (extended_ != nullptr) extended_->Restart();
    LS_TRY(Trim(committed));
    n_prompt_ = committed.size();
    TakeOver(committed);
    return when_asked_ ? Status() : ReadPrompt(committed, Z(target_cache_.length()));
  }

  Taps taps() const override { return extended_ == nullptr ? Taps() : extended_->With({}); }

  // A prompt is run piece by piece, as the target runs it: whoever writes meanwhile waits for no more than a
  // piece. What was accepted is found in the sequence when the next tree is grown. Where the target's last
  // token looks is what the draft is to see from then on.
  Status Read(const CommittedRows& rows) override {
    n_confirmed_ = rows.sequence.size();
    if (when_asked_) return {};
    if (extended_ != nullptr) extended_->Read(rows);
    const bool of_prompt = std::ssize(rows.rows) > rows.n_new;
    if (!of_prompt) return extended_ == nullptr ? Status() : Trim(rows.sequence);
    n_prompt_ = rows.sequence.size() - Z(rows.n_new);
    const auto prompt = rows.sequence.first(n_prompt_);
    LS_TRY(Trim(prompt));
    return ReadPrompt(prompt, Z(rows.first) + rows.rows.size());
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
    return cache_->bytes() + (extended_ == nullptr ? 0 : extended_->bytes()) +
           held_.capacity() * sizeof(int32_t);
  }

  std::string notice() const override { return range_.notice(); }

 private:
  Result<int> BeginTree(std::span<const int32_t> committed) override {
    LS_TRY(Trim(committed));
    // The end of a prompt that the target has yet to compute, or more than what rounds accept.
    if (passes_matter() && n_prompt_ <= committed.size())
      LS_TRY(ReadPrompt(committed.first(n_prompt_), n_prompt_));
    const size_t n_more = committed.size() - std::min(committed.size(), n_confirmed_);
    n_unconfirmed_ = windowed_ && n_more <= kMostUnconfirmed ? n_more : 0;
    const auto text = recent_.Of(committed);
    const auto unread = text.first(text.size() - std::max<size_t>(n_unconfirmed_, 1)).subspan(held_.size());
    if (unread.size() > kMostTreeRows) LS_TRY(Hold(unread));
    if (extended_ != nullptr)
      LS_TRY(std::exchange(ran_prompt_, false) ? extended_->HoldLast() : caches_.reindexed->set().Follow());
    if (committed.back() >= model_->n_shared) return 0;
    const int left = range_.LevelsToGrow(Seen(committed));
    committed_ = recent_.Of(committed);
    chain_.clear();
    return left;
  }

  // Tokens up to the last one of a text, at the positions where the draft has them: those of its working set
  // if it has one.
  size_t Seen(std::span<const int32_t> committed) const {
    const bool in_cache = windowed_ || (extended_ != nullptr && !extended_->sees_all());
    return in_cache ? Z(cache_->n_slots()) + 1 + n_unconfirmed_ : recent_.Of(committed).size();
  }

  // Forgets what does not begin the part of this sequence that it reads, and its last token: what follows
  // that one is asked for. The sequence's length says what is seen of it.
  Status Trim(std::span<const int32_t> committed) {
    const size_t n_kept = recent_.Follow(held_, committed);
    // What a window held before the positions it loses is gone, so it is filled anew.
    held_.resize(windowed_ && n_kept < held_.size() ? 0 : n_kept);
    n_own_ = std::min(n_own_, held_.size());
    cache_->Truncate(static_cast<int>(held_.size()));
    return extended_ == nullptr ? Status() : extended_->Follow(committed.size());
  }

  // What others have made of a beginning of this text.
  void TakeOver(std::span<const int32_t> committed) {
    if (!shares()) return;
    const auto part = BeforeLast(recent_.Of(committed));
    const auto known = Z(caches_.shared_keys->Adopt(part, *caches_.kept()));
    if (known <= held_.size()) return;
    held_.assign(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(known));
    n_own_ = known;
    if (extended_ == nullptr) return;
    caches_.reindexed->set().Truncate(0);
    ran_prompt_ = true;
  }
  // For other sequences.
  void Keep() {
    if (shares()) caches_.shared_keys->Keep(std::span(held_).first(n_own_), *caches_.kept());
  }
  // Rows of a prompt that is seen whole have seen other rows than those of a longer one.
  bool shares() const {
    return caches_.shared_keys != nullptr && (extended_ == nullptr || !extended_->sees_all());
  }

  // Whether what is made of a text depends on how it is cut into passes.
  bool passes_matter() const { return windowed_ || extended_ != nullptr; }

  // Of the first positions of this prompt, which the target has computed, those that are still unread.
  Status ReadPrompt(std::span<const int32_t> prompt, size_t n_computed) {
    const size_t whole = BeforeLast(prompt).size(), begin = recent_.begin();
    size_t end = std::min(n_computed, whole);
    if (end <= begin + held_.size()) return {};
    if (passes_matter() && end < whole) end -= (end - begin) % Z(kLmMaxRows);
    if (end <= begin + held_.size()) return {};
    LS_TRY(Hold(prompt.first(end).subspan(begin + held_.size())));
    if (end == whole) Keep();
    return {};
  }

  // A token that it does not know stands in the text as one that it does.
  int32_t Known(int32_t token) const {
    if (token >= model_->n_shared) return 0;
    return model_->stand_ins.empty() ? token : model_->stand_ins[Z(token)];
  }
  // Valid until the next call.
  std::span<const int32_t> Known(std::span<const int32_t> tokens) {
    const auto is_known = [&](int32_t token) { return token < model_->n_shared; };
    if (model_->stand_ins.empty() && std::ranges::all_of(tokens, is_known)) return tokens;
    known_.clear();
    for (const int32_t token : tokens) known_.push_back(Known(token));
    return known_;
  }

  // Runs tokens of a prompt after those held, and holds them. Passes end where the next one would begin had
  // it run all of them.
  Status Hold(std::span<const int32_t> tokens) {
    ran_prompt_ = true;
    while (!tokens.empty()) {
      const size_t begun = held_.size() % Z(kLmMaxRows);
      const auto part = tokens.first(std::min(tokens.size(), Z(kLmMaxRows) - begun));
      tokens = tokens.subspan(part.size());
      if (extended_ != nullptr) LS_TRY(extended_->BeginPromptPiece(static_cast<int>(held_.size() - begun)));
      LS_ASSIGN(KvTransaction rows, cache_->Begin(static_cast<int>(part.size())));
      const ForwardSegment segment = {.tokens = Known(part), .kv = &rows, .logits = LogitsFor::kNone};
      LS_TRY(model_->target->Forward({&segment, 1}).status());
      const bool own = n_own_ == held_.size() && shares();
      Commit(part, &rows);
      if (own) n_own_ = held_.size();
    }
    return {};
  }

  void Commit(std::span<const int32_t> tokens, KvTransaction* rows) {
    rows->CommitAll();
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    if (extended_ == nullptr) n_own_ = held_.size();
  }

  LmRows Rows(std::span<const int32_t> tokens, KvTransaction* rows) const {
    LmRows all(*model_, target_);
    all.segment = {.tokens = tokens, .kv = rows};
    return all;
  }

  // The same of a round's tokens, and what follows the last of them.
  DraftTask HoldAndAsk(std::span<const int32_t> tokens, int k, std::span<std::vector<TokenScore>> next) {
    Result<KvTransaction> kept = cache_->Begin(static_cast<int>(tokens.size()));
    LS_CO_TRY(kept.status());
    LmRows rows = Rows(Known(tokens), &*kept);
    rows.segment.logits = LogitsFor::kLastRow;
    const auto wanted = static_cast<int32_t>(tokens.size()) - 1;
    rows.wanted = {&wanted, 1};
    rows.k = k;
    rows.next = next;
    LS_CO_TRY(co_await Meet(rows));
    Commit(tokens, &*kept);
    co_return Status();
  }

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    next.resize(which.size());
    if (n_unconfirmed_ > 0) {
      LS_CO_TRY(Hold(committed_.first(committed_.size() - n_unconfirmed_).subspan(held_.size())));
      co_return co_await ExpandBranches(nodes, which, k, next);
    }
    if (chain_.empty()) {  // the root, and what was accepted before it
      LS_CO_TRY(co_await HoldAndAsk(committed_.subspan(held_.size()), k, next));
      // The root was computed with the old set.
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
  // where each is. Of a text that may be taken back, what comes before its last token, the root, stands
  // before them. Returns how many rows they are.
  size_t Collect(std::span<const GrownNode> nodes, std::span<const int32_t> which) {
    row_of_.assign(nodes.size(), -1);
    const auto is_held = [&](int32_t i) { return std::ranges::find(chain_, i) != chain_.end(); };
    for (int32_t i : which) {
      for (; i >= 0 && row_of_[Z(i)] < 0 && !is_held(i); i = nodes[Z(i)].parent) row_of_[Z(i)] = 0;
    }
    tokens_.clear();
    parents_.clear();
    const auto add = [&](int32_t token, int32_t parent) {
      tokens_.push_back(Known(token));
      parents_.push_back(parent);  // -1: right after what the cache holds
    };
    const auto unconfirmed = committed_.last(n_unconfirmed_);
    for (const int32_t token : BeforeLast(unconfirmed)) add(token, static_cast<int32_t>(tokens_.size()) - 1);
    const auto last = static_cast<int32_t>(tokens_.size()) - 1;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (row_of_[i] < 0) continue;
      row_of_[i] = static_cast<int32_t>(tokens_.size());
      const int32_t parent = nodes[i].parent;
      add(parent < 0 ? committed_.back() : nodes[i].token, parent < 0 ? last : row_of_[Z(parent)]);
    }
    return tokens_.size();
  }

  const std::shared_ptr<const LmModel> model_;
  TrainedRange range_;
  const SharedParts target_;
  const KvCache& target_cache_;
  const bool windowed_;  // the cache forgets
  // One of several drafters, which may never be asked: a prompt is not read before.
  const bool when_asked_;
  RecentText recent_;  // what it reads
  const LmCaches caches_;
  KvCache* const cache_;                        // one of them
  const std::unique_ptr<SpecExtend> extended_;  // null: it sees what it holds
  std::vector<int32_t> held_;                   // tokens the cache holds
  std::vector<int32_t> known_;
  size_t n_own_ = 0;         // of those held, the first ones: what is held of these depends on them alone
  size_t n_prompt_ = 0;      // tokens that it was told of at once
  size_t n_confirmed_ = 0;   // tokens of the sequence that it was last told of
  bool ran_prompt_ = false;  // since the last tree

  // The tree that is being grown.
  std::span<const int32_t> committed_;  // up to its root
  // Its last tokens, which may be taken back: a window does not hold them, since what it loses for them does
  // not come back.
  size_t n_unconfirmed_ = 0;
  std::vector<int32_t> chain_;  // nodes whose tokens are held: the root and its only descendants
  std::vector<int32_t> row_of_, tokens_, parents_;
};

Result<TreeShape> Shape(const std::string& tree) { return ParseTreeShape(tree.empty() ? "chain" : tree); }

constexpr int kMostWindow = 1 << 24;
constexpr DrafterOption kLmOptions[] = {
    kDraftModelOption,
    {.flags = "--spec-draft-recent",
     .member = At<&SpeculationOptions::lm, &LmDraftOptions::recent>,
     .help = "last tokens of a text that the draft begins with; 0: all, if it knows texts as long",
     .most = kMostWindow},
    {.flags = "--spec-draft-sink",
     .member = At<&SpeculationOptions::lm, &LmDraftOptions::sink>,
     .help = "first positions the draft sees through a window",
     .most = kMostWindow,
     .lacks = [](const SpeculationOptions& o) -> std::string_view {
       return o.lm.window > 0 ? "" : "--spec-draft-window";
     }},
    {.flags = "--spec-draft-window",
     .member = At<&SpeculationOptions::lm, &LmDraftOptions::window>,
     .help = "and last ones, so that its cache stays as large; 0: all",
     .most = kMostWindow},
    kSpecExtendOption,
    kSpecExtendChunksOption,
    kSpecExtendEveryOption,
    kSpecExtendFromOption,
};

constexpr DrafterPreset kLmPresets[] = {
    {.name = "draft-simple",
     .of = "llama.cpp",
     .set =
         [](SpeculationOptions& o) {
           SetNodes(3, &o);
           o.dice = false;
         }},
};

Status CheckLm(const SpeculationOptions& options) {
  if (AsksForSpecExtend(options) && options.lm.window > 0) {
    return InvalidArgument("--spec-extend: not with --spec-draft-window, which says otherwise what it sees");
  }
  if (AsksForSpecExtend(options) && options.lm.recent > 0) {
    return InvalidArgument("--spec-extend: not with --spec-draft-recent, which says otherwise what it sees");
  }
  return Shape(options.tree).status();
}

// REQUIRES: the target's file was read.
Result<LmFile> LmFileOf(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) {
  LS_ASSIGN(const auto file, files.Gguf(options.draft_model));
  return ReadLmFile(file, *target.file.FindTensor(TensorName(TensorRole::kEmbedding)), *HeadIn(target.file));
}

Status LmFits(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) {
  LS_ASSIGN(const LmFile lm, LmFileOf(options, target, files));
  if (!lm.of_target) {
    LS_ASSIGN(const std::vector<std::string> tokens, target.file.GetStrings("tokenizer.ggml.tokens"));
    return CheckLmFit(lm, target.sizes.n_vocab, tokens);
  }
  LS_ASSIGN(const std::string of, lm.file->GetString(kLmTargetKey));
  const std::string fingerprint = TargetFingerprint(target.file);
  if (of == fingerprint) return {};
  return Unsupported(options.draft_model +
                     ": the draft model does not fit the target: it was made for the model " + of +
                     ", the target is " + fingerprint);
}

Result<DraftMemory> LmMemory(const SpeculationOptions& options, const TargetFacts& target,
                             DraftFiles& files) {
  LS_ASSIGN(const LmFile lm, LmFileOf(options, target, files));
  const ModelSpec& spec = lm.spec;
  const ModelMemory memory = PlanModelMemory(spec, *lm.file, kLmMaxRows);
  const uint64_t chunk = KvChunkBytes(LmCacheLayout(spec, target.cache), spec.n_layer);
  DraftMemory plan = {.fixed = memory.weights + memory.scratch};
  if (options.lm.window > 0) {
    // Rows of a prompt stand beside the window until the oldest have made room.
    const int64_t positions = int64_t{options.lm.sink} + options.lm.window + kLmMaxRows;
    plan.fixed += static_cast<uint64_t>(positions / kKvChunk + 1) * chunk;
  } else if (AsksForSpecExtend(options)) {
    const KvLayout layout = LmCacheLayout(spec, target.cache);
    AddSpecExtendMemory(options, kSpecExtendOfLm, target.sizes, layout, spec.n_layer, kLmMaxRows, &plan);
    plan.kv_chunk = plan.kept_chunk = KvChunkBytes(ReindexedStoreLayout(layout), spec.n_layer);
  } else if (spec.context_length() < target.sizes.context_length()) {
    plan.fixed += static_cast<uint64_t>((spec.context_length() + kMostSpeculated) / kKvChunk + 1) * chunk;
    plan.kept_chunk = chunk;
  } else {
    plan.kv_chunk = plan.kept_chunk = chunk;
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
    const auto extend = SpecExtendOf(options, kSpecExtendOfLm, model->target->context_length());
    return std::unique_ptr<Drafter>(
        std::make_unique<LmDrafter>(std::move(model), std::move(shape), context, options, extend));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(options.draft_model + ": no memory for the draft model's cache");
  }
}

}  // namespace

constexpr DrafterEntry kLmDrafter = {
    .name = "lm",
    .aliases = {"draft", "draft_model"},
    .presets = kLmPresets,
    .summary = "the guesses of a smaller language model with the same vocabulary",
    .options = kLmOptions,
    .reads_dice = true,
    .settle = SettleSpecExtend,
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

// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "engine/answer.h"
#include "engine/round_plan.h"

namespace longspec {
namespace {

constexpr int kMostParallel = 64;
constexpr int kMostRowsWithLogits = 256;  // as the memory plan counts them
// A prompt waits for another one that is computing so many more tokens of it than are known.
constexpr int kWorthWaiting = 32;
constexpr size_t kMostLookedAt = 256;  // of those that wait
constexpr double kWarmUpMs = 150;      // a pass of nothing but warm-ups: who arrives waits no longer
constexpr int kNoLimit = 1 << 20;      // chunks that are free where nobody counts them

using Prompts = std::vector<std::vector<int32_t>>;

// What was submitted, as all of its answers share it.
struct Submitted {
  Submission submission;
  AskedRequest asked;
  std::shared_ptr<const Prompts> prompts;
};

// One answer that was asked for and has not ended, or a guest.
struct Entry {
  Entry() = default;
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  int64_t id = 0;
  int index = 0;
  std::shared_ptr<const Submitted> of;  // null: it is a guest
  double arrived_ms = 0;
  std::function<void(const Status&)> on_failure;  // of a guest

  // A guest's are its host's.
  SessionState own_session;
  std::unique_ptr<AnswerInProgress> own_answer;
  SessionState* session = &own_session;
  AnswerInProgress* answer = nullptr;  // null: it has not started
  bool running = false;
  bool prompt_apart = false;  // a round that computes of its prompt does not decode
  bool prompt_known = false;  // all of it, to the prompt cache

  bool is_guest() const { return of == nullptr; }
  const GenerationRequest& request() const { return *of->asked.request; }
  int n_answers() const { return of->submission.n; }  // to each prompt
  const std::vector<int32_t>& prompt() const {
    return (*of->prompts)[static_cast<size_t>(index / n_answers())];
  }
  int most_chunks(int ctx_size) const {
    return is_guest() ? MostChunks(0, -1, ctx_size)
                      : MostChunks(static_cast<int>(prompt().size()), request().n_predict, ctx_size);
  }
  // Asked for no token: its prompt is evaluated ahead, for requests to come.
  bool is_warm_up() const { return !is_guest() && request().n_predict == 0; }
  std::span<const int32_t> tokens() const { return answer == nullptr ? prompt() : session->tokens; }
  std::span<const int32_t> all_but_last() const { return tokens().first(tokens().size() - 1); }
  int n_missing() const {
    if (is_guest()) return answer->n_missing();
    return static_cast<int>(tokens().size()) - (session->cache == nullptr ? 0 : session->cache->length());
  }
};

// Chunks it holds, but for one that has to be copied before it is written.
int HeldChunks(const FullCache& cache) {
  const auto n = static_cast<int>(cache.chunks().size());
  const bool copies = cache.length() % kKvChunk != 0 && cache.chunks().back().use_count() > 1;
  return copies ? n - 1 : n;
}

class SchedulerImpl final : public HostScheduler {
 public:
  // `most_chunks`: 0: as many as there is memory for. `costs`: null: nothing is known of them, and no pass is
  // to take less time for it.
  SchedulerImpl(SchedulerParts parts, const SchedulerOptions& options, size_t most_chunks, CostModel* costs)
      : parts_(std::move(parts)),
        most_chunks_(most_chunks),
        costs_(costs),
        rounds_(parts_.generation.target, costs) {
    schedule_.batch_rows = std::min(parts_.generation.prefill_chunk, parts_.generation.max_rows);
    if (costs == nullptr) {
      schedule_.idle_ms = 0;
      schedule_.most_rows = parts_.generation.max_rows;
    }
    schedule_.parallel = options.parallel > 0 ? options.parallel : kMostParallel;
    schedule_.parallel = std::min({schedule_.parallel, schedule_.batch_rows, kMostRowsWithLogits});
    schedule_.prefill_ms = options.prefill_ms;
    on_round_ = options.on_round;
    waits_for_sessions_ = options.waits_for_sessions;
    kept_ = parts_.generation.prompts;
    if (!options.share_prefixes) parts_.generation.prompts = nullptr;
    parts_.generation.on_match = [this](PrefixIndex::Match& match) { FitMatch(match); };
  }

  Result<int64_t> Submit(Submission submission) override {
    if (submission.n < 1) return InvalidArgument("n " + std::to_string(submission.n) + ": must be 1 or more");
    LS_CHECK(submission.request != nullptr);
    const GenerationRequest& request = *submission.request;
    std::shared_ptr<const Prompts> prompts = std::exchange(submission.prompts, nullptr);
    if (prompts == nullptr || prompts->empty()) {
      auto own = std::make_shared<Prompts>();
      LS_ASSIGN(own->emplace_back(), parts_.tokenize(request));
      prompts = std::move(own);
    }
    for (const std::vector<int32_t>& prompt : *prompts) {
      LS_TRY(AnswerInProgress::Check(parts_.generation, prompt, request, parts_.ctx_size));
      LS_TRY(CheckFits(static_cast<int>(prompt.size()), request.n_predict, parts_.ctx_size,
                       static_cast<int>(most_chunks_)));
    }
    LS_ASSIGN(AskedRequest asked,
              AskedRequest::Of(parts_.generation, submission.request, submission.grammar));
    const int n_answers = submission.n * static_cast<int>(prompts->size());
    const auto of = std::make_shared<const Submitted>(Submitted{
        .submission = std::move(submission), .asked = std::move(asked), .prompts = std::move(prompts)});
    const std::lock_guard lock(mutex_);
    const int64_t id = ++last_id_;
    for (int i = 0; i < n_answers; ++i) {
      Entry& entry = inbox_.emplace_back();
      entry.id = id;
      entry.index = i;
      entry.of = of;
      entry.arrived_ms = NowMs();
    }
    return id;
  }

  void Cancel(int64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  }

  Result<bool> RunRound() override {
    TakeIn();
    if (entries_.empty()) return false;
    const PromptCache::Limit limit(has_limit() ? kept_ : nullptr, most_chunks_);
    try {
      Round();
    } catch (const std::bad_alloc&) {
      EndAll(entries_.size() == 1 && entries_.front().running
                 ? OutOfMemory(*entries_.front().session)
                 : ResourceExhausted("out of memory in a round of " + std::to_string(entries_.size()) +
                                     " sequences"));
    }
    return true;
  }

  void Join(SessionState& session, AnswerInProgress& answer,
            std::function<void(const Status&)> on_failure) override {
    Entry& entry = entries_.emplace_back();
    entry.arrived_ms = NowMs();
    entry.on_failure = std::move(on_failure);
    entry.session = &session;
    entry.answer = &answer;
    entry.running = entry.prompt_apart = true;
    if (entry.n_missing() == 1) RememberPrompt(entry);
  }

  void Leave(const AnswerInProgress& answer) override {
    const auto at = std::ranges::find(entries_, &answer, &Entry::answer);
    if (at != entries_.end()) End(at);
  }

  SchedulerStats stats() const override {
    SchedulerStats stats = stats_;
    stats.running =
        static_cast<int>(std::ranges::count_if(entries_, [](const Entry& e) { return e.running; }));
    stats.waiting = static_cast<int>(entries_.size()) - stats.running;
    stats.chunks_held = n_held();
    stats.chunks_most = most_chunks_;
    stats.chunks_reclaimable = n_reclaimable();
    return stats;
  }

 private:
  using Entries = std::list<Entry>;

  // What was submitted and cancelled since the last round.
  void TakeIn() {
    std::vector<int64_t> cancelled;
    {
      const std::lock_guard lock(mutex_);
      entries_.splice(entries_.end(), inbox_);
      cancelled.swap(cancelled_);
    }
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto here = at++;
      if (std::ranges::find(cancelled, here->id) == cancelled.end()) continue;
      if (here->answer != nullptr) here->answer->End(FinishReason::kCancelled);
      End(here, here->answer == nullptr ? Cancelled("cancelled before it began") : Status());
    }
  }

  // Its answer, or why there is none, goes to whoever asked.
  void End(Entries::iterator at, const Status& status = {}) {
    if (at->is_guest()) return Release(at, status);
    const auto on_end = at->of->submission.on_end;
    const int index = at->index;
    Result<GenerationResult> result = status;
    if (status.ok()) {
      result = at->answer->Finish();
      Remember(*at, true);
    }
    entries_.erase(at);
    if (on_end) on_end(index, std::move(result));
  }

  // A guest's host finishes its answer.
  void Release(Entries::iterator at, const Status& status) {
    const auto on_failure = std::move(at->on_failure);
    if (status.ok()) Remember(*at, true);
    entries_.erase(at);
    if (!status.ok()) on_failure(status);
  }

  void EndAll(const Status& status) {
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto here = at++;
      if (here->running) End(here, status);
    }
  }

  // Makes what the sequence has evaluated known to others: whole chunks, or all of it.
  void Remember(const Entry& entry, bool all) {
    PromptCache* prompts = parts_.generation.prompts;
    if (prompts == nullptr || entry.session->cache == nullptr) return;
    const SessionState& session = *entry.session;
    const int length = std::min(session.cache->length(), static_cast<int>(session.tokens.size()));
    const auto n = static_cast<size_t>(all ? length : length / kKvChunk * kKvChunk);
    prompts->Remember(session.tokens, *session.cache, n);
    if (!has_limit()) prompts->Trim();
  }
  void RememberPrompt(Entry& entry) {
    const bool all = !entry.prompt_known && entry.n_missing() == 1;
    Remember(entry, all);
    entry.prompt_known |= all;
  }

  // Where this one finds what others have computed; null: it takes nothing of it.
  const PromptCache* KnownTo(const Entry& entry) const {
    const bool anew = entry.answer == nullptr && !entry.request().cache_prompt;
    return anew ? nullptr : parts_.generation.prompts;
  }

  // Whether somebody computes what this one would have to, so that it waits and shares.
  bool IsComputedByAnother(const Entry& waiting) const {
    const PromptCache* prompts = KnownTo(waiting);
    if (prompts == nullptr) return false;
    const auto wanted = waiting.all_but_last();
    int known = -1;
    for (const Entry& other : entries_) {
      if (&other == &waiting || !other.running || other.n_missing() <= 1) continue;
      const auto theirs = other.all_but_last();
      const auto common = static_cast<int>(std::ranges::mismatch(wanted, theirs).in1 - wanted.begin());
      if (common < kWorthWaiting) continue;
      if (known < 0) known = prompts->LengthKnown(wanted);
      if (common >= known + kWorthWaiting) return true;
    }
    return false;
  }

  RoundState State(std::vector<Entries::iterator>& listed) {
    RoundState state;
    state.free_chunks = kNoLimit;
    if (has_limit()) {
      const size_t held = n_held();
      state.free_chunks = static_cast<int>(most_chunks_ > held ? most_chunks_ - held : 0);
      state.reclaimable_chunks = static_cast<int>(n_reclaimable());
    }
    const double now = NowMs();
    size_t n_waiting = 0;
    std::vector<std::vector<const KvChunk*>> chunks;  // of those that are listed
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!at->running && (Yields(*at) || ++n_waiting > kMostLookedAt || IsComputedByAnother(*at))) continue;
      const auto n_tokens = static_cast<int>(at->tokens().size());
      SequenceState s{.id = at->id,
                      .running = at->running,
                      .context = n_tokens,
                      .missing = at->n_missing(),
                      .most_chunks = at->most_chunks(parts_.ctx_size),
                      .waited_ms = now - at->arrived_ms};
      std::vector<const KvChunk*>& own = chunks.emplace_back();
      if (at->running) {
        for (const KvChunkRef& chunk : at->session->cache->chunks()) own.push_back(chunk.get());
        s.chunks = HeldChunks(*at->session->cache);
        FindShared(chunks, s);
      } else if (const PromptCache* prompts = KnownTo(*at); prompts != nullptr) {
        const int known = prompts->LengthKnown(at->all_but_last(), &own);
        s.chunks = static_cast<int>(own.size());
        FindShared(chunks, s);
        s.missing = n_tokens - known;
      }
      listed.push_back(at);
      state.sequences.push_back(s);
    }
    return state;
  }

  // `chunks` of those before it, held or to be shared, and of itself.
  static void FindShared(std::span<const std::vector<const KvChunk*>> chunks, SequenceState& s) {
    const auto& own = chunks.back();
    for (size_t i = 0; i + 1 < chunks.size() && s.shared_chunks < std::ssize(own); ++i) {
      const auto common = static_cast<int>(std::ranges::mismatch(own, chunks[i]).in1 - own.begin());
      if (common <= s.shared_chunks) continue;
      s.shared_chunks = common;
      s.shared_with = static_cast<int>(i);
    }
  }

  // Warm-ups have the machine where nobody waits for an answer. What they evaluated stays known.
  void LetWarmUpsYield() {
    somebody_waits_ = !std::ranges::all_of(entries_, &Entry::is_warm_up);
    for (Entry& entry : entries_) {
      if (entry.running && Yields(entry)) Preempt(entry);
    }
  }
  bool Yields(const Entry& entry) const { return somebody_waits_ && entry.is_warm_up(); }

  ScheduleOptions Schedule() const {
    ScheduleOptions schedule = schedule_;
    if (!somebody_waits_) schedule.idle_ms = std::min(schedule.idle_ms, kWarmUpMs);
    return schedule;
  }

  void Round() {
    LetWarmUpsYield();
    TakeBackEnds();
    std::vector<Entries::iterator> listed;
    const RoundState state = State(listed);
    const RoundPlan plan = PlanRound(state, PassCost(costs_ != nullptr ? *costs_ : unknown_), Schedule());
    if (plan.parts.empty()) {
      if (waits_for_sessions_ && waits_for_sessions_()) return;
      // The oldest could run, were it not for chunks that belong to nobody here: those of sessions.
      // One that only waits has nothing to give to the others.
      auto oldest = std::ranges::find_if(entries_, [](const Entry& e) { return e.running; });
      if (oldest == entries_.end())
        oldest = std::ranges::find_if(entries_, [this](const Entry& e) { return !Yields(e); });
      End(oldest, ResourceExhausted("no room for a sequence: " + std::to_string(n_held()) + " of " +
                                    std::to_string(most_chunks_) + " chunks of " + std::to_string(kKvChunk) +
                                    " positions are held, some by sessions"));
      return;
    }
    for (const int i : plan.preempt) Preempt(*listed[static_cast<size_t>(i)]);
    std::vector<std::pair<size_t, Status>> failed;
    new_chunks_ = static_cast<size_t>(plan.new_chunks);
    for (const int i : plan.admit) {
      Entry& entry = *listed[static_cast<size_t>(i)];
      if (IsComputedByAnother(entry)) continue;  // by one that was admitted before it, in this round
      if (const Status status = AdmitOrFail(entry); !status.ok())
        failed.emplace_back(static_cast<size_t>(i), status);
    }

    std::vector<Turn> turns;
    std::vector<size_t> whose;
    int n_rows = 0, n_decoding = 0;
    for (const RoundPlan::Part& part : plan.parts) {
      n_rows += part.rows;
      n_decoding += part.completes ? 1 : 0;
    }
    int spare = std::min(parts_.generation.max_rows - n_rows, kMostRowsWithLogits - n_decoding);
    for (const RoundPlan::Part& part : plan.parts) {
      const auto i = static_cast<size_t>(part.sequence);
      Entry& entry = *listed[i];
      if (!entry.running) continue;
      const int missing = entry.n_missing();
      int rows = std::min(part.rows, missing);
      if (missing == 1) entry.prompt_apart = false;
      if (entry.prompt_apart) rows = std::min(rows, missing - 1);
      // One that has just taken over a beginning may want its last position again (Drafter::overlap).
      if (part.completes && missing == rows + 1 && spare > 0 && !entry.prompt_apart) {
        ++rows;
        --spare;
      }
      Turn turn = entry.answer->NextTurn(rows);
      turn.max_nodes = std::clamp(spare / std::max(n_decoding, 1), 0, part.most_nodes);
      if (turn.max_rows < 1) {  // nothing may be generated
        entry.answer->End(FinishReason::kLength);
        continue;
      }
      turns.push_back(turn);
      whose.push_back(i);
    }
    const double start = NowMs();
    const Status ran = turns.empty() ? Status() : rounds_.Run(turns);
    const double round_ms = NowMs() - start;
    ++stats_.rounds;
    for (size_t t = 0; t < turns.size(); ++t) {
      const Status status = ran.ok() ? Take(*listed[whose[t]], turns[t], round_ms) : ran;
      if (!status.ok()) failed.emplace_back(whose[t], status);
    }
    for (const auto& [i, status] : failed) End(listed[i], status);
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto here = at++;
      if (here->answer != nullptr && here->answer->ended()) End(here);
    }
    if (on_round_ && ran.ok() && !turns.empty()) Report(turns, round_ms);
  }

  void Report(const std::vector<Turn>& turns, double round_ms) const {
    const BatchDecoder::Pass& pass = rounds_.last_pass();
    RoundReport report{.rows = pass.rows,
                       .sequences = static_cast<int>(turns.size()),
                       .predicted_ms = pass.predicted_ms,
                       .pass_ms = pass.target_ms,
                       .round_ms = round_ms};
    for (const Turn& turn : turns) report.tokens += static_cast<int>(turn.tokens.size());
    on_round_(report);
  }

  void Preempt(Entry& entry) {
    LS_CHECK(entry.running);
    // What it evaluated may stay known for as long as nobody needs the room.
    Remember(entry, true);
    entry.session->cache->Truncate(0);
    entry.running = false;
    ++stats_.preemptions;
  }

  // A sequence that memory has no room for ends alone: it would be tried again in every round.
  Status AdmitOrFail(Entry& entry) {
    try {
      return Admit(entry);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory for a sequence of " + std::to_string(entry.tokens().size()) +
                               " tokens");
    }
  }

  Status Admit(Entry& entry) {
    starting_ = &entry;
    if (entry.answer == nullptr) {
      entry.session->cache = MakeFullCache(parts_.pool, parts_.ctx_size);
      OneAnswer own(entry.request());
      const auto& for_answer = entry.of->submission.for_answer;
      if (for_answer) for_answer(entry.index, own);
      LS_ASSIGN(
          entry.own_answer,
          AnswerInProgress::Start(parts_.generation, *entry.session, entry.prompt(), entry.of->asked,
                                  std::move(own), static_cast<uint64_t>(entry.index % entry.n_answers())));
      entry.answer = entry.own_answer.get();
      stats_.prompt_tokens_known += entry.session->cache->length();
      stats_.prompt_tokens += static_cast<int64_t>(entry.prompt().size());
    } else if (PromptCache* prompts = parts_.generation.prompts) {
      std::span<const int32_t> known = entry.all_but_last();
      // A partial verifier reads its set by the queries of the last of them, which has to be computed for
      // that.
      if (entry.request().partial_verification.enabled) known = known.first(known.size() - 1);
      PrefixIndex::Match match = prompts->Find(known);
      FitMatch(match);
      if (match.length > 0) entry.session->cache->Adopt(match.chunks, match.length);
    }
    entry.running = true;
    return {};
  }

  bool has_limit() const { return most_chunks_ > 0; }
  size_t n_held() const { return has_limit() ? parts_.pool->held() : 0; }
  size_t n_reclaimable() const { return kept_ == nullptr ? 0 : kept_->n_reclaimable(); }

  // What the one that starts takes over.
  void FitMatch(PrefixIndex::Match& match) {
    const auto tokens = starting_->all_but_last().first(static_cast<size_t>(match.length));
    if (kept_->Fit(match, new_chunks_, IsWanted(*starting_, tokens)) && new_chunks_ > 0) --new_chunks_;
  }

  // What sequences would have to copy before they write it, as the prompt cache knows it too.
  void TakeBackEnds() {
    if (parts_.generation.prompts == nullptr || !has_limit()) return;
    const auto copies = [](const Entry& entry) {
      const FullCache* cache = entry.session->cache.get();
      return entry.running && HeldChunks(*cache) < static_cast<int>(cache->chunks().size());
    };
    const auto needed = static_cast<size_t>(std::ranges::count_if(entries_, copies));
    for (const Entry& entry : entries_) {
      if (!copies(entry)) continue;
      const auto held = static_cast<size_t>(entry.session->cache->length());
      kept_->TakeBackEnd(*entry.session->cache, needed, IsWanted(entry, entry.tokens().first(held)));
    }
  }

  // Whether others that wait begin with these tokens of the entry, or with most of what goes beyond whole
  // chunks of them.
  bool IsWanted(const Entry& entry, std::span<const int32_t> tokens) const {
    const auto whole = static_cast<std::ptrdiff_t>(tokens.size() / kKvChunk * kKvChunk);
    size_t n_waiting = 0;
    for (const Entry& other : entries_) {
      if (&other == &entry || other.running) continue;
      if (++n_waiting > kMostLookedAt) return false;
      const auto wanted = other.all_but_last();
      const auto common = std::ranges::mismatch(wanted, tokens).in1 - wanted.begin();
      if (common >= whole + kWorthWaiting) return true;
    }
    return false;
  }

  Status Take(Entry& entry, const Turn& turn, double round_ms) {
    LS_TRY(entry.answer->Take(turn, round_ms));
    stats_.tokens += static_cast<int64_t>(turn.tokens.size());
    if ((turn.tokens.empty() || !entry.prompt_known) && !entry.answer->ended()) {
      RememberPrompt(entry);
      entry.answer->ReportPrefill();
    }
    return {};
  }

  SchedulerParts parts_;
  PromptCache* kept_ = nullptr;  // also where beginnings are not shared: what it holds may have to go
  const size_t most_chunks_;
  ScheduleOptions schedule_;
  CostModel* const costs_;
  const CostModel unknown_;
  BatchDecoder rounds_;
  std::function<void(const RoundReport&)> on_round_;
  std::function<bool()> waits_for_sessions_;
  Entries entries_;  // in order of arrival
  const Entry* starting_ = nullptr;
  size_t new_chunks_ = 0;        // that are taken in this round
  bool somebody_waits_ = false;  // for an answer that has a token
  SchedulerStats stats_;

  std::mutex mutex_;  // of what follows
  Entries inbox_;
  std::vector<int64_t> cancelled_;
  int64_t last_id_ = 0;
};

}  // namespace

Result<std::unique_ptr<Scheduler>> MakeScheduler(SchedulerParts parts, const SchedulerOptions& options,
                                                 uint64_t planned_bytes) {
  if (options.parallel < 0) {
    return InvalidArgument("parallel " + std::to_string(options.parallel) +
                           ": must be 0 (as many as memory holds) or more");
  }
  if (!(options.prefill_ms > 0)) return InvalidArgument("prefill_ms must be more than 0");
  const uint64_t bytes = options.cache_bytes > 0 ? options.cache_bytes : planned_bytes;
  const size_t chunks = bytes / parts.pool->chunk_bytes();
  if (chunks < 1) {
    return InvalidArgument("a key-value cache of " + std::to_string(bytes) + " bytes holds no chunk of " +
                           std::to_string(parts.pool->chunk_bytes()) + " bytes");
  }
  CostModel* const costs = &parts.generation.known_costs().memory->costs;
  return std::unique_ptr<Scheduler>(
      std::make_unique<SchedulerImpl>(std::move(parts), options, chunks, costs));
}

std::unique_ptr<HostScheduler> MakeSchedulerOfOne(const GenerationParts& parts, int ctx_size) {
  return std::make_unique<SchedulerImpl>(SchedulerParts{.generation = parts, .ctx_size = ctx_size},
                                         SchedulerOptions{.parallel = 1}, 0, nullptr);
}

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
#include "eval/runner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "draft_model/draft_files.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "eval/eta.h"
#include "eval/lines.h"
#include "eval/method.h"
#include "eval/prompts.h"
#include "eval/samples.h"
#include "eval/transcript.h"
#include "eval/turn_order.h"
#include "formats/atomic_file.h"
#include "kv/kv_cache.h"
#include "lab/replay_drafter.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTurn = 16;  // tokens a method generates before the next one's turn
constexpr int kSlack = 8;  // positions beside prompt, answer and drafts

std::string CellsPath(const std::string& out) { return out + "/cells.jsonl"; }

// The answer that a played draft knows.
struct KnownAnswer {
  std::vector<int32_t> tokens;
  double ms_per_token = 0;  // of plain decoding
};

// What cells must agree in to stand in one table.
Json SettingsJson(const ModelInfo& info, const EvalOptions& o) {
  const SpeculationOptions& s = o.speculation;
  Json arithmetic = Json::object();
  for (const auto& [operation, name] : info.arithmetic) arithmetic[operation] = name;
  return {{"model", info.path},
          {"model_bytes", info.file_bytes},
          {"arithmetic", arithmetic},
          {"rope_scaling", info.rope_scaling},
          {"rope_freq_base", info.rope_freq_base},
          {"cpu", info.cpu},
          {"kernels", info.kernels},
          {"threads", info.threads},
          {"data", o.data},
          {"n_prompts", o.n_prompts},
          {"n_predict", o.n_predict},
          {"runs", o.runs},
          {"turn_tokens", kTurn},
          {"ignore_eos", o.ignore_eos},
          {"seed", o.seed},
          {"top_k", o.sampling.top_k},
          {"top_p", o.sampling.top_p},
          {"min_p", o.sampling.min_p},
          {"repeat_penalty", o.sampling.repeat_penalty},
          // Prompts for it are of all texts, for longer ones of those that are long enough.
          {"shortest_length", *std::min_element(o.lengths.begin(), o.lengths.end())},
          {"draft_n_max", s.draft_n_max},
          {"draft_n_min", s.draft_n_min},
          {"adaptive_n_max", s.adaptive_n_max},
          {"dice", s.dice},
          {"prior", s.ppm.prior},
          {"tree", s.tree},
          {"ngram_max", s.ngram.max},
          {"ngram_min", s.ngram.min},
          {"ngram_rule", s.ngram.rule},
          {"suffix_max_depth", s.suffix.max_depth},
          {"suffix_factor", s.suffix.factor},
          {"suffix_min_prob", s.suffix.min_prob},
          {"ppm_min_prob", s.ppm.min_prob},
          {"corpus", s.suffix.corpus},
          {"recycling_file", s.recycling.file},
          {"magicdec_sink", s.magicdec.sink},
          {"magicdec_window", s.magicdec.window},
          {"partial_sink", s.partial.sink},
          {"partial_budget", s.partial.budget},
          {"partial_window", s.partial.window},
          {"partial_refresh", s.partial.refresh},
          {"partial_score", s.partial.score},
          {"partial_inner", s.partial.inner},
          {"partial_inner_n_max", s.partial.inner_n_max},
          {"draft_model", s.draft_model},
          {"draft_sink", s.lm.sink},
          {"draft_recent", s.lm.recent},
          {"draft_window", s.lm.window},
          {"draft_weights", s.draft_weights},
          {"spec_extend", s.spec_extend.enabled},
          {"spec_extend_chunks", s.spec_extend.chunks},
          {"spec_extend_every", s.spec_extend.every},
          {"spec_extend_from", s.spec_extend.from}};
}

std::string SettingsPath(const std::string& out) { return out + "/settings.json"; }

Status WriteSettings(const std::string& out, const Json& settings) {
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(SettingsPath(out)));
  const std::string text = settings.dump(1) + "\n";
  LS_TRY(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

// `unset`: what earlier versions, which did not write all of them, had where nothing else was asked for.
Status CheckSettings(const std::string& out, std::ifstream& in, const Json& settings, const Json& unset) {
  const std::string path = SettingsPath(out);
  const Json known = Json::parse(in, nullptr, false);
  if (!known.is_object()) return Corrupt(path + ": not a JSON object; remove it or choose another --out");
  for (const auto& [name, value] : settings.items()) {
    if (known.contains(name) ? known[name] == value : value == unset[name]) continue;
    return InvalidArgument("--out " + out + ": holds cells with " + name + " " +
                           (known.contains(name) ? known[name].dump() : "unset") + ", not " + value.dump() +
                           "; choose another folder or remove it");
  }
  return {};
}

// The drafter that a draft model is for; null: none is named, or none reads it.
Result<const DrafterEntry*> ReaderOf(const std::string& draft) {
  const DrafterEntry* none = nullptr;
  if (draft.empty()) return none;
  DraftFiles files;
  LS_ASSIGN(const std::string architecture, files.Architecture(draft));
  return FindReader(architecture);
}

// Cells that share prompts and are run together.
struct Group {
  std::string family;
  int length = 0;
  bool any_length = false;
  std::vector<CellKey> missing;  // in the order they run
};

class Evaluation {
 public:
  Evaluation(Engine& engine, const EvalOptions& options, const OnEvalProgress& on_progress)
      : engine_(engine), options_(options), on_progress_(on_progress), transcript_(options.out) {}

  Status Run() {
    LS_TRY(Plan());
    if (!groups_.empty()) engine_.MeasureCosts([this] { return KeepGoing(); });
    const double start = NowMs();
    double weight_done = 0;
    for (const Group& group : groups_) {
      progress_.doing = group.family + " at " + std::to_string(group.length);
      if (!KeepGoing()) return WasCancelled();
      LS_TRY(RunGroup(group));
      weight_done += Weight(group);
      progress_.done += static_cast<int>(group.missing.size());
      progress_.eta_ms = EtaMs(NowMs() - start, weight_done, total_weight_);
    }
    KeepGoing();
    return {};
  }

  bool output_failed() const { return output_failed_; }

 private:
  Status Written(Status status) {
    output_failed_ = !status.ok();
    return status;
  }

  static Status WasCancelled() { return Cancelled("the evaluation was cancelled; run it again to go on"); }
  bool KeepGoing() const { return on_progress_ == nullptr || on_progress_(progress_); }

  static double Weight(const Group& group) { return GroupWeight(group.length, group.missing.size()); }

  Status Plan() {
    LS_TRY(CheckEvaluationMemory(options_, engine_.info().memory));
    EvalOptions unset;
    unset.lengths = options_.lengths;
    const Json settings = SettingsJson(engine_.info(), options_);
    if (std::ifstream in(SettingsPath(options_.out)); in) {
      LS_TRY(CheckSettings(options_.out, in, settings, SettingsJson(engine_.info(), unset)));
    } else {
      LS_TRY(Written(WriteSettings(options_.out, settings)));
    }
    LS_ASSIGN(const std::vector<Cell> finished, ReadCells(options_.out));
    const auto is_finished = [&](const CellKey& key) {
      return std::any_of(finished.begin(), finished.end(), [&](const Cell& cell) { return cell.key == key; });
    };
    LS_ASSIGN(reader_, ReaderOf(options_.speculation.draft_model));
    LS_ASSIGN(std::vector<std::string> families, ListFamilies(options_.data));
    if (!options_.families.empty()) families = options_.families;
    const int shortest = *std::min_element(options_.lengths.begin(), options_.lengths.end());
    for (const std::string& family : families) {
      for (const int length : options_.lengths) {
        if (length > engine_.info().n_ctx) {
          return InvalidArgument("--lengths " + std::to_string(length) + ": the context holds " +
                                 std::to_string(engine_.info().n_ctx) + " (-c)");
        }
        Group group{.family = family, .length = length, .any_length = length == shortest};
        for (const double temperature : options_.temperatures) {
          for (const std::string& method : options_.methods) {
            const CellKey key{
                .family = family, .method = method, .length = length, .temperature = temperature};
            ++progress_.total;
            if (is_finished(key)) {
              ++progress_.done;
            } else {
              group.missing.push_back(key);
            }
          }
        }
        if (group.missing.empty()) continue;
        total_weight_ += Weight(group);
        groups_.push_back(std::move(group));
      }
    }
    return {};
  }

  Status RunGroup(const Group& group) {
    if (samples_.empty() || samples_.front().family != group.family) {
      LS_ASSIGN(samples_, ReadFamily(options_.data, group.family));
    }
    const int drafts = std::max(options_.speculation.draft_n_max, options_.speculation.adaptive_n_max);
    const int n_tokens = group.length - options_.n_predict - drafts - kSlack;
    std::vector<Cell> cells;
    for (const CellKey& key : group.missing)
      cells.push_back({.key = key, .runs = options_.runs, .items = {}});
    for (const EvalPrompt& prompt :
         ChoosePrompts(engine_, samples_, n_tokens, options_.n_prompts, group.any_length)) {
      LS_TRY(RunPrompt(prompt, cells));
    }
    return Written(Append(cells));
  }

  // A prompt that was read, whose answers are forks of this session.
  struct Reading {
    std::unique_ptr<Session> session;
    double ms = 0;        // what reading it took, all of it
    double draft_ms = 0;  // of that, the drafter
  };

  // On a fork of `from`, or anew.
  Result<Reading> Read(const EvalPrompt& prompt, const std::string& method, const Session* from = nullptr) {
    Reading reading;
    LS_ASSIGN(reading.session, from == nullptr ? engine_.NewSession() : engine_.Fork(*from));
    LS_ASSIGN(GenerationRequest request, Request(prompt, 0.0, method));
    LS_ASSIGN(const std::unique_ptr<Generation> generation,
              engine_.Start(*reading.session, std::move(request)));
    const GenerationResult result = generation->Finish();
    if (result.finish_reason == FinishReason::kCancelled || !KeepGoing()) return WasCancelled();
    reading.ms = result.timings.prompt_ms;
    reading.draft_ms = result.timings.prompt_draft_ms;
    return reading;
  }

  Status RunPrompt(const EvalPrompt& prompt, std::vector<Cell>& cells) {
    // States of the target are read as it computes them: by the draft model, if it reads any, for all
    // methods.
    const bool along = reader_ != nullptr && reader_->reads_states;
    LS_ASSIGN(const Reading whole, Read(prompt, along ? std::string(reader_->name) + "@fixed" : "none"));
    LS_TRY(Written(transcript_.AddPrompt(InTranscript(cells.front().key, prompt), whole.session->tokens())));
    // What a drafter makes of tokens alone it makes once for all of its answers.
    std::map<std::string, Reading> readings;
    for (const Cell& cell : cells) {
      const std::string& method = cell.key.method;
      if (readings.contains(method)) continue;
      LS_ASSIGN(Reading reading, Read(prompt, method, whole.session.get()));
      LS_ASSIGN(const Method of_method, ReadMethod(method, options_.speculation));
      const bool drafts = along && UsesDraftModel(of_method.speculation);
      reading.ms = whole.ms - whole.draft_ms + reading.draft_ms + (drafts ? whole.draft_ms : 0);
      readings.emplace(method, std::move(reading));
    }
    for (const double temperature : options_.temperatures) {
      std::vector<Cell*> together;
      for (Cell& cell : cells) {
        if (cell.key.temperature == temperature) together.push_back(&cell);
      }
      if (together.empty()) continue;
      for (Cell* cell : together) {
        cell->items.push_back({.id = prompt.sample->id,
                               .subset = prompt.sample->subset,
                               .prompt_ms = readings.at(cell->key.method).ms,
                               .plain_prompt_ms = whole.ms - whole.draft_ms,
                               .identical = true});
      }
      LS_TRY(RunTogether(prompt, *whole.session, readings, temperature, together));
    }
    return {};
  }

  // A prompt being continued by one method, in a session of its own.
  struct Runner {
    std::unique_ptr<Session> session;
    std::unique_ptr<Generation> generation;
    std::vector<double> turn_ms = {};
    bool ended = false;
  };
  using TurnTimes = std::vector<std::vector<double>>;  // [run][turn]

  Result<Runner> MakeRunner(const EvalPrompt& prompt, const Session& read, double temperature,
                            const std::string& method, const KnownAnswer& known = {}) {
    Runner runner;
    LS_ASSIGN(runner.session, engine_.Fork(read));
    LS_ASSIGN(GenerationRequest request, Request(prompt, temperature, method));
    LS_ASSIGN(const Method of_method, ReadMethod(method, options_.speculation));
    if (const PlayedDraft played = of_method.played; played.accept > 0) {
      request.speculation.added = Replay({.tokens = known.tokens,
                                          .accept = static_cast<float>(played.accept),
                                          .step_ms = static_cast<float>(played.cost * known.ms_per_token)});
    }
    LS_ASSIGN(runner.generation, engine_.Start(*runner.session, std::move(request)));
    return runner;
  }

  // For drafts that are played; nothing if there are none.
  Result<KnownAnswer> Know(const EvalPrompt& prompt, const Session& read, double temperature,
                           const std::vector<Cell*>& cells) {
    bool any = false;
    for (const Cell* cell : cells) {
      LS_ASSIGN(const Method method, ReadMethod(cell->key.method, options_.speculation));
      any = any || method.played.accept > 0;
    }
    if (!any) return KnownAnswer{};
    std::vector<Runner> plain(1);
    LS_ASSIGN(plain[0], MakeRunner(prompt, read, temperature, "none"));
    TurnOrder alone(1);
    LS_TRY(TakeTurns(plain, alone));
    const std::vector<double>& ms = plain[0].turn_ms;
    KnownAnswer known = {.tokens = plain[0].generation->Finish().tokens};
    known.ms_per_token = std::accumulate(ms.begin(), ms.end(), 0.0) /
                         static_cast<double>(std::max<size_t>(known.tokens.size(), 1));
    return known;
  }

  // `read`: for plain decoding; `readings`: by method.
  Status RunTogether(const EvalPrompt& prompt, const Session& read,
                     const std::map<std::string, Reading>& readings, double temperature,
                     const std::vector<Cell*>& cells) {
    LS_ASSIGN(const KnownAnswer known, Know(prompt, read, temperature, cells));
    std::vector<TurnTimes> times(cells.size() + 1);  // plain decoding's first
    if (!order_ || order_->size() != times.size()) order_.emplace(times.size());
    int64_t n_plain = 0;
    for (int run = 0; run < options_.runs; ++run) {
      std::vector<Runner> runners(1);
      LS_ASSIGN(runners[0], MakeRunner(prompt, read, temperature, "none"));
      for (const Cell* cell : cells) {
        const std::string& method = cell->key.method;
        LS_ASSIGN(Runner runner,
                  MakeRunner(prompt, *readings.at(method).session, temperature, method, known));
        runners.push_back(std::move(runner));
      }
      LS_TRY(TakeTurns(runners, *order_));
      for (size_t i = 0; i < runners.size(); ++i) times[i].push_back(std::move(runners[i].turn_ms));
      const GenerationResult plain = runners[0].generation->Finish();
      n_plain = static_cast<int64_t>(plain.tokens.size());
      if (run == 0) {
        LS_TRY(Written(transcript_.AddAnswer(InTranscript(cells.front()->key, prompt), temperature,
                                             plain.tokens, plain.text)));
      }
      for (size_t i = 0; i < cells.size(); ++i) {
        EvalItem& item = cells[i]->items.back();
        const GenerationResult result = runners[i + 1].generation->Finish();
        item.identical = item.identical && result.tokens == plain.tokens;
        AddRun(result, item);
        if (run == 0) Describe(result, *prompt.sample, item);
        item.kv_bytes = KeysInMemory(item.prompt_tokens + item.tokens);
        if (run == 0 && result.partial_verification.enabled) {
          item.approximate = true;
          item.rouge_l_to_exact = RougeL(result.text, plain.text);
          item.checked = result.partial_verification.checked;
          item.differing = result.partial_verification.differing;
        }
      }
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      // Of as many tokens: an approximate method's text may be shorter or longer.
      EvalItem& item = cells[i]->items.back();
      item.plain_ms = options_.runs * SumOfMedians(times[0]) * static_cast<double>(item.tokens) /
                      static_cast<double>(std::max<int64_t>(n_plain, 1));
      item.ms = options_.runs * SumOfMedians(times[i + 1]);
    }
    return {};
  }

  // Bytes of keys and values of so many positions, less what lies in a file.
  uint64_t KeysInMemory(int64_t positions) const {
    constexpr int64_t kChunk = 256;  // memory is taken by these
    const MemoryPlan& plan = engine_.info().memory;
    if (plan.ctx_size <= 0) return 0;
    const uint64_t a_position = (plan.kv_at_context + plan.kv_in_file) / static_cast<uint64_t>(plan.ctx_size);
    const uint64_t all = static_cast<uint64_t>((positions + kChunk - 1) / kChunk * kChunk) * a_position;
    return plan.kv_in_file > 0 ? std::min(all, plan.kv_at_context) : all;
  }

  static Transcript::Prompt InTranscript(const CellKey& key, const EvalPrompt& prompt) {
    return {.family = key.family, .length = key.length, .id = prompt.sample->id};
  }

  // A turn during which the machine did something else is then no part of any method's time.
  static double SumOfMedians(const TurnTimes& runs) {
    double sum = 0;
    std::vector<double> turn;
    for (size_t t = 0;; ++t) {
      turn.clear();
      for (const std::vector<double>& run : runs) {
        if (t < run.size()) turn.push_back(run[t]);
      }
      if (turn.empty()) return sum;
      sum += Median(turn);
    }
  }

  // Each in turn up to the next multiple of kTurn tokens.
  Status TakeTurns(std::vector<Runner>& runners, TurnOrder& order) {
    const size_t n = runners.size();
    for (size_t limit = kTurn;; limit += kTurn) {
      std::vector<bool> waiting(n);
      for (size_t i = 0; i < n; ++i) waiting[i] = !runners[i].ended;
      const auto n_waiting = static_cast<size_t>(std::ranges::count(waiting, true));
      if (n_waiting == 0) return {};
      for (size_t i = 0; i < n_waiting; ++i) {
        const size_t next = order.Next(waiting, i);
        waiting[next] = false;
        Runner& runner = runners[next];
        const double start = NowMs();
        while (!runner.ended && runner.generation->tokens().size() < limit) {
          LS_ASSIGN(const bool more, runner.generation->Step());
          runner.ended = !more;
        }
        runner.turn_ms.push_back(NowMs() - start);
        if (!KeepGoing()) return WasCancelled();
      }
    }
  }

  static void AddRun(const GenerationResult& result, EvalItem& item) {
    const SpeculativeStats& s = result.speculative;
    item.steps += s.steps;
    item.proposed += s.proposed;
    item.drafted += result.timings.draft_n;
    item.accepted += result.timings.draft_n_accepted;
    item.draft_ms += s.draft_ms;
    item.target_ms += s.target_ms;
    item.verify_ms += s.verify_ms;
    item.commit_ms += s.commit_ms;
    item.draft_bytes = std::max(item.draft_bytes, s.draft_bytes);
    AddByPosition(s.drafted_at, item.drafted_at);
    AddByPosition(s.accepted_at, item.accepted_at);
    item.acceptance_per_position = AcceptancePerPosition(item.drafted_at, item.accepted_at);
    for (const auto& [decision, n] : s.decisions) {
      const auto known = std::find_if(item.decisions.begin(), item.decisions.end(),
                                      [&name = decision](const auto& d) { return d.first == name; });
      if (known != item.decisions.end()) {
        known->second += n;
      } else {
        item.decisions.emplace_back(decision, n);
      }
    }
    item.last_decision = s.last_decision;
    item.dice = s.dice;
    item.uses = s.uses;
  }

  static void Describe(const GenerationResult& result, const Sample& sample, EvalItem& item) {
    item.prompt_tokens = result.timings.cache_n + result.timings.prompt_n;
    item.tokens = static_cast<int64_t>(result.tokens.size());
    item.distinct_4gram = result.distinct_4gram;
    if (sample.reference) item.quality = MeasureQuality(sample.family, result.text, *sample.reference);
  }

  Result<GenerationRequest> Request(const EvalPrompt& prompt, double temperature,
                                    const std::string& name) const {
    LS_ASSIGN(Method method, ReadMethod(name, options_.speculation));
    GenerationRequest request;
    request.prompt = prompt.prompt;
    request.messages = prompt.messages;
    request.n_predict = options_.n_predict;
    request.ignore_eos = options_.ignore_eos;
    request.sampling = options_.sampling;
    request.sampling.temperature = static_cast<float>(temperature);
    request.sampling.seed = options_.seed;
    request.speculation = std::move(method.speculation);
    request.partial_verification = method.partial;
    request.on_prefill = [this](int, int) { return KeepGoing(); };
    if (options_.on_proposal) {
      request.on_proposal = [this, name, temperature](size_t n_text, std::span<const ProposedToken> tokens) {
        options_.on_proposal(name, temperature, n_text, tokens);
      };
    }
    return request;
  }

  // Whether one of the drafters that are named is what the draft model is for.
  bool UsesDraftModel(const SpeculationOptions& options) const {
    const std::string& type = options.type;
    if (kPortfolioDrafter.Answers(type)) return reader_->in_auto != nullptr && reader_->in_auto(options);
    for (size_t begin = 0; begin <= type.size();) {
      const size_t end = std::min(type.find(',', begin), type.size());
      if (reader_->Answers(std::string_view(type).substr(begin, end - begin))) return true;
      begin = end + 1;
    }
    return false;
  }

  Status Append(const std::vector<Cell>& cells) const {
    std::string lines;
    for (const Cell& cell : cells) {
      lines += CellJson(cell).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
    return AppendLines(CellsPath(options_.out), lines);
  }

  Engine& engine_;
  const EvalOptions& options_;
  const OnEvalProgress& on_progress_;
  EvalProgress progress_;
  double total_weight_ = 0;
  const DrafterEntry* reader_ = nullptr;  // the drafter that the draft model is for; null: none is named
  std::vector<Group> groups_;
  std::vector<Sample> samples_;  // of the family that runs
  Transcript transcript_;
  std::optional<TurnOrder> order_;  // of plain decoding and the methods of a group
  bool output_failed_ = false;
};

Status CheckNumbers(const EvalOptions& o) {
  if (o.lengths.empty() || o.temperatures.empty() || o.methods.empty()) {
    return InvalidArgument("--lengths, --temps and --methods need at least one value each");
  }
  if (o.n_prompts < 1 || o.n_predict < 1 || o.runs < 1) {
    return InvalidArgument("--prompts, --predict and --runs must be at least 1");
  }
  const int drafts = std::max(o.speculation.draft_n_max, o.speculation.adaptive_n_max);
  const int least = o.n_predict + drafts + kSlack + 64;
  for (const int length : o.lengths) {
    if (length >= least) continue;
    return InvalidArgument("--lengths " + std::to_string(length) + ": must be at least " +
                           std::to_string(least) + " to hold a prompt, the answer and the drafts");
  }
  for (const double temperature : o.temperatures) {
    if (!(temperature >= 0 && temperature <= 100)) return InvalidArgument("--temps: must be from 0 to 100");
  }
  return {};
}

// Options that all methods have, one of them reads.
Status CheckBase(const EvalOptions& options) {
  for (const DrafterOption* option : SpeculationOptionTable()) {
    const auto reads = [&](const std::string& method) {
      const auto read = ReadMethod(method, options.speculation);
      return read.ok() && Reads(Settled(read->speculation), *option);
    };
    if (IsDefault(*option, options.speculation) || std::ranges::any_of(options.methods, reads)) continue;
    return InvalidArgument(std::string(option->name()) + ": has no effect on any of --methods");
  }
  return {};
}

}  // namespace

Status CheckEvaluation(const EvalOptions& options) {
  LS_TRY(CheckNumbers(options));
  for (const std::string& method : options.methods) {
    LS_ASSIGN(const Method read, ReadMethod(method, options.speculation));
    LS_TRY(CheckSpeculation(read.speculation));
    if (std::count(options.methods.begin(), options.methods.end(), method) > 1) {
      return InvalidArgument("--methods: " + method + " is named twice");
    }
  }
  LS_TRY(CheckBase(options));
  LS_ASSIGN(const std::vector<std::string> known, ListFamilies(options.data));
  for (const std::string& family : options.families) {
    if (std::find(known.begin(), known.end(), family) != known.end()) continue;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return InvalidArgument("--families " + family + ": not in " + options.data + ", which has " + names);
  }
  return {};
}

Status CreateFolder(const EvalOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  return error ? IoError("--out " + options.out + ": " + error.message()) : Status();
}

namespace {

// By a method in a round.
int MostDrafted(const EvalOptions& options) {
  const auto nodes = [](const SpeculationOptions& s) { return std::max(s.draft_n_max, s.adaptive_n_max); };
  int most = nodes(options.speculation);
  for (const std::string& name : options.methods) {
    const auto method = ReadMethod(name, options.speculation);
    if (method.ok()) most = std::max(most, nodes(Settled(method->speculation)));
  }
  return most;
}

}  // namespace

Status CheckEvaluationMemory(const EvalOptions& o, const MemoryPlan& plan) {
  const auto chunks_of = [](int positions) {
    return static_cast<uint64_t>(positions + kKvChunk - 1) / kKvChunk;
  };
  const int longest = *std::max_element(o.lengths.begin(), o.lengths.end());
  const int drafts = MostDrafted(o);
  // Each answer has chunks of its own, and a copy of the prompt's last one.
  const uint64_t n_answers = o.methods.size() + 1, of_answer = chunks_of(o.n_predict + drafts) + 1;
  const uint64_t chunk = plan.kv_at_context / static_cast<uint64_t>(std::max(plan.ctx_size, 1)) * kKvChunk;
  // And so has each method's reading of the prompt.
  const uint64_t caches = (chunks_of(longest) + n_answers * of_answer + o.methods.size()) * chunk;
  const uint64_t needed =
      plan.weights + plan.scratch + plan.draft + plan.draft_keys + plan.working_set + caches;
  if (plan.available == 0 || needed <= plan.available) return {};
  constexpr uint64_t kMiB = 1 << 20;
  return ResourceExhausted("--methods: the keys and values of " + std::to_string(longest) +
                           " positions and of " + std::to_string(n_answers) + " answers side by side take " +
                           std::to_string(caches / kMiB) + " MiB, " + std::to_string(needed / kMiB) +
                           " MiB with the model, and " + std::to_string(plan.available / kMiB) +
                           " MiB are available; name fewer methods or shorter --lengths");
}

Result<SpeculationOptions> PlannedSpeculation(const EvalOptions& options) {
  SpeculationOptions planned = options.speculation;
  planned.adaptive_n_max = MostDrafted(options);
  LS_ASSIGN(const DrafterEntry* const reader, ReaderOf(planned.draft_model));
  if (reader == nullptr) return planned;
  planned.type = reader->name;
  for (const std::string& name : options.methods) {
    LS_ASSIGN(const Method method, ReadMethod(name, options.speculation));
    const SpeculationOptions& s = method.speculation;
    planned.spec_extend.enabled = planned.spec_extend.enabled || s.spec_extend.enabled;
    planned.spec_extend.chunks = std::max(planned.spec_extend.chunks, s.spec_extend.chunks);
    planned.spec_extend.from = std::max(planned.spec_extend.from, s.spec_extend.from);
  }
  return planned;
}

Result<PartialVerificationOptions> PlannedPart(const EvalOptions& options) {
  PartialVerificationOptions planned;
  for (const std::string& name : options.methods) {
    LS_ASSIGN(const Method method, ReadMethod(name, options.speculation));
    const PartialVerificationOptions& part = method.partial;
    if (!part.enabled) continue;
    const bool paper = part.refresh == 0 || (planned.enabled && planned.refresh == 0);
    if (!planned.enabled || part.budget > planned.budget) planned = part;
    if (paper) planned.refresh = 0;  // takes more
  }
  return planned;
}

Status RunEvaluation(Engine& engine, const EvalOptions& options, const OnEvalProgress& on_progress,
                     bool* output_failed) {
  if (output_failed != nullptr) *output_failed = false;
  LS_TRY(CheckEvaluation(options));
  const Status created = CreateFolder(options);
  if (output_failed != nullptr) *output_failed = !created.ok();
  LS_TRY(created);
  Evaluation evaluation(engine, options, on_progress);
  Status ran = evaluation.Run();
  if (output_failed != nullptr) *output_failed = evaluation.output_failed();
  return ran;
}

Result<std::vector<Cell>> ReadCells(const std::string& out) {
  std::ifstream in(CellsPath(out), std::ios::binary);
  std::vector<Cell> cells;
  for (std::string line; std::getline(in, line);) {
    auto cell = ParseCell(line);
    if (cell.ok()) cells.push_back(std::move(*cell));
  }
  return cells;
}

}  // namespace longspec

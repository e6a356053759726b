// SPDX-License-Identifier: Apache-2.0
#include "eval/runner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "eval/prompts.h"
#include "eval/samples.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWarmUpTokens = 4;
constexpr int kSlack = 8;  // positions beside prompt, answer and drafts

std::string CellsPath(const std::string& out) { return out + "/cells.jsonl"; }

SpeculationOptions SpeculationOf(const std::string& method, const SpeculationOptions& base) {
  SpeculationOptions speculation = base;
  const size_t at = method.find('@');
  speculation.type = method.substr(0, at);
  std::replace(speculation.type.begin(), speculation.type.end(), '+', ',');
  speculation.policy = at == std::string::npos ? std::string() : method.substr(at + 1);
  return speculation;
}

// What cells must agree in to stand in one table.
Json SettingsJson(const ModelInfo& info, const EvalOptions& o) {
  return {{"model", info.path},
          {"model_bytes", info.file_bytes},
          {"cpu", info.cpu},
          {"kernels", info.kernels},
          {"threads", info.threads},
          {"data", o.data},
          {"n_prompts", o.n_prompts},
          {"n_predict", o.n_predict},
          {"runs", o.runs},
          {"ignore_eos", o.ignore_eos},
          {"seed", o.seed},
          {"top_k", o.sampling.top_k},
          {"top_p", o.sampling.top_p},
          {"min_p", o.sampling.min_p},
          {"repeat_penalty", o.sampling.repeat_penalty},
          {"draft_n_max", o.speculation.draft_n_max},
          {"adaptive_n_max", o.speculation.adaptive_n_max},
          {"tree", o.speculation.tree}};
}

Status CheckSettings(const std::string& out, const Json& settings) {
  const std::string path = out + "/settings.json";
  std::ifstream in(path);
  if (!in) {
    std::ofstream file(path);
    file << settings.dump(1) << "\n";
    return file.good() ? Status() : IoError("--out " + out + ": cannot be written");
  }
  const Json known = Json::parse(in, nullptr, false);
  if (!known.is_object()) return Corrupt(path + ": not a JSON object; remove it or choose another --out");
  for (const auto& [name, value] : settings.items()) {
    if (known.contains(name) && known[name] == value) continue;
    return InvalidArgument("--out " + out + ": holds cells with " + name + " " +
                           (known.contains(name) ? known[name].dump() : "unset") + ", not " + value.dump() +
                           "; choose another folder or remove it");
  }
  return {};
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
      : engine_(engine), options_(options), on_progress_(on_progress) {}

  Status Run() {
    LS_TRY(Plan());
    const double start = NowMs();
    double weight_done = 0;
    for (const Group& group : groups_) {
      progress_.doing = group.family + " at " + std::to_string(group.length);
      if (!KeepGoing()) return Cancelled("the evaluation was cancelled; run it again to go on");
      LS_TRY(RunGroup(group));
      weight_done += Weight(group);
      progress_.done += static_cast<int>(group.missing.size());
      progress_.eta_ms = (NowMs() - start) / weight_done * (total_weight_ - weight_done);
    }
    KeepGoing();
    return {};
  }

 private:
  bool KeepGoing() const { return on_progress_ == nullptr || on_progress_(progress_); }

  // Prefill grows a little faster than the length, the rest with the number of cells.
  static double Weight(const Group& group) {
    const double keys = group.length;
    return keys * (1 + keys / 16384) + 400.0 * static_cast<double>(group.missing.size());
  }

  Status Plan() {
    LS_TRY(CheckSettings(options_.out, SettingsJson(engine_.info(), options_)));
    LS_ASSIGN(const std::vector<Cell> finished, ReadCells(options_.out));
    const auto is_finished = [&](const CellKey& key) {
      return std::any_of(finished.begin(), finished.end(), [&](const Cell& cell) { return cell.key == key; });
    };
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
    return Append(cells);
  }

  Status RunPrompt(const EvalPrompt& prompt, std::vector<Cell>& cells) {
    LS_ASSIGN(const std::unique_ptr<Session> session, engine_.NewSession());
    GenerationRequest warm_up = Request(prompt, 0.0, "none");
    warm_up.n_predict = kWarmUpTokens;
    LS_ASSIGN(const GenerationResult first, Generate(*session, warm_up));
    for (Cell& cell : cells) {
      LS_ASSIGN(EvalItem item, RunItem(*session, prompt, cell.key));
      item.prompt_ms = first.timings.prompt_ms;
      cell.items.push_back(std::move(item));
    }
    return {};
  }

  // The method and plain decoding in turn; which goes first changes from cell to cell and from run to run.
  Result<EvalItem> RunItem(Session& session, const EvalPrompt& prompt, const CellKey& key) {
    const GenerationRequest plain = Request(prompt, key.temperature, "none");
    const GenerationRequest method = Request(prompt, key.temperature, key.method);
    EvalItem item{.id = prompt.sample->id, .identical = true};
    std::optional<std::vector<int32_t>> tokens;
    for (int run = 0; run < 2 * options_.runs; ++run) {
      const bool plain_now = ((run + (run / 2) + turn_) & 1) == 0;
      LS_ASSIGN(const GenerationResult result, Generate(session, plain_now ? plain : method));
      if (!tokens) tokens = result.tokens;
      item.identical = item.identical && result.tokens == *tokens;
      if (plain_now) {
        item.plain_ms += result.timings.predicted_ms;
      } else {
        AddRun(result, item);
      }
      if (run == 0) Describe(result, *prompt.sample, item);
    }
    ++turn_;
    return item;
  }

  static void AddRun(const GenerationResult& result, EvalItem& item) {
    const SpeculativeStats& s = result.speculative;
    item.ms += result.timings.predicted_ms;
    item.steps += s.steps;
    item.proposed += s.proposed;
    item.drafted += result.timings.draft_n;
    item.accepted += result.timings.draft_n_accepted;
    item.draft_ms += s.draft_ms;
    item.target_ms += s.target_ms;
    item.verify_ms += s.verify_ms;
    item.commit_ms += s.commit_ms;
    item.acceptance_per_position = s.acceptance_per_position;
    item.decisions = s.decisions;
    item.last_decision = s.last_decision;
  }

  static void Describe(const GenerationResult& result, const Sample& sample, EvalItem& item) {
    item.prompt_tokens = result.timings.cache_n + result.timings.prompt_n;
    item.tokens = static_cast<int64_t>(result.tokens.size());
    item.distinct_4gram = result.distinct_4gram;
    if (sample.reference) item.quality = MeasureQuality(sample.family, result.text, *sample.reference);
  }

  GenerationRequest Request(const EvalPrompt& prompt, double temperature, const std::string& method) const {
    GenerationRequest request;
    request.prompt = prompt.prompt;
    request.messages = prompt.messages;
    request.n_predict = options_.n_predict;
    request.ignore_eos = options_.ignore_eos;
    request.sampling = options_.sampling;
    request.sampling.temperature = static_cast<float>(temperature);
    request.sampling.seed = options_.seed;
    request.speculation = SpeculationOf(method, options_.speculation);
    request.on_prefill = [this](int, int) { return KeepGoing(); };
    return request;
  }

  Result<GenerationResult> Generate(Session& session, const GenerationRequest& request) {
    LS_ASSIGN(GenerationResult result, engine_.Generate(session, request));
    if (result.finish_reason == FinishReason::kCancelled || !KeepGoing()) {
      return Cancelled("the evaluation was cancelled; run it again to go on");
    }
    return result;
  }

  Status Append(const std::vector<Cell>& cells) const {
    std::ofstream out(CellsPath(options_.out), std::ios::app | std::ios::binary);
    for (const Cell& cell : cells) {
      out << CellJson(cell).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    }
    out.flush();
    return out.good() ? Status() : IoError(CellsPath(options_.out) + ": cannot be written");
  }

  Engine& engine_;
  const EvalOptions& options_;
  const OnEvalProgress& on_progress_;
  EvalProgress progress_;
  double total_weight_ = 0;
  std::vector<Group> groups_;
  std::vector<Sample> samples_;  // of the family that runs
  int turn_ = 0;
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

}  // namespace

Status CheckEvaluation(const EvalOptions& options) {
  LS_TRY(CheckNumbers(options));
  for (const std::string& method : options.methods) {
    LS_TRY(CheckSpeculation(SpeculationOf(method, options.speculation)));
    if (std::count(options.methods.begin(), options.methods.end(), method) > 1) {
      return InvalidArgument("--methods: " + method + " is named twice");
    }
  }
  LS_ASSIGN(const std::vector<std::string> known, ListFamilies(options.data));
  for (const std::string& family : options.families) {
    if (std::find(known.begin(), known.end(), family) != known.end()) continue;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return InvalidArgument("--families " + family + ": not in " + options.data + ", which has " + names);
  }
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  return error ? IoError("--out " + options.out + ": " + error.message()) : Status();
}

Status RunEvaluation(Engine& engine, const EvalOptions& options, const OnEvalProgress& on_progress) {
  LS_TRY(CheckEvaluation(options));
  return Evaluation(engine, options, on_progress).Run();
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

// SPDX-License-Identifier: Apache-2.0
#include "cli/loading.h"

#include <cstdio>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/print.h"
#include "base/status_macros.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/report.h"

namespace longspec::cli {

void WarnOfLongContext(const ModelInfo& info, const RopeOptions& rope) {
  const bool scaled = rope.scaling != RopeOptions::Scaling::kFromModel || rope.scale != 0;
  if (scaled || info.n_ctx <= info.n_ctx_train) return;
  Warn("a context of " + std::to_string(info.n_ctx) + " exceeds the " + std::to_string(info.n_ctx_train) +
       " tokens the model was trained for; --rope-scaling yarn --rope-scale N extends it");
}

// A warning may come long after the load, from that of a draft model: so it shares the progress.
ModelOptions WithProgress(const ModelOptions& options, const std::shared_ptr<Progress>& progress) {
  ModelOptions with = options;
  with.on_progress = [progress](double share) {
    progress->Update(share);
    return !Interrupted();
  };
  with.on_warning = [progress, warn = options.on_warning](const std::string& warning) {
    progress->Finish();
    if (warn) warn(warning);
  };
  return with;
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelOptions& options, const OutputFlags& flags) {
  const auto progress = std::make_shared<Progress>("loading", Progress::StandardError(!flags.no_progress));
  ModelOptions model = WithProgress(options, progress);
  if (flags.verbose || !flags.no_progress) {
    model.on_plan = [verbose = flags.verbose](const ModelInfo& info) {
      const std::string plan = verbose ? FormatInfo(info) : "memory: " + FormatMemoryPlan(info.memory) + "\n";
      std::fputs(plan.c_str(), stderr);
    };
  }
  const double start = NowMs();
  auto engine = Engine::Load(model);
  progress->Finish();
  if (!engine.ok()) return engine;
  if (flags.verbose) {
    const std::string line = FormatLoad((*engine)->info(), NowMs() - start);
    std::fputs(line.c_str(), stderr);
  }
  WarnOfLongContext((*engine)->info(), options.rope);
  return engine;
}

void MeasureCostsAfter(const GenerationResult& answer, Engine& engine,
                       const std::function<bool()>& keep_going) {
  const bool asked = !answer.speculative.costs.empty();
  if (asked) engine.MeasureCosts([&] { return !Interrupted() && (!keep_going || keep_going()); });
}

std::function<bool(int, int)> ReportPrefill(Progress* progress) {
  return [progress](int done, int total) {
    const double share = total > 0 ? static_cast<double>(done) / total : 1.0;
    const double elapsed = progress->elapsed_ms();
    std::string detail = std::to_string(done) + "/" + std::to_string(total) + " tokens";
    if (elapsed > 0) detail += Print(", %.1f tokens/s", done * 1000.0 / elapsed);
    progress->Update(share, detail + FormatTimeLeft(share, 0, elapsed));
    return !Interrupted();
  };
}

}  // namespace longspec::cli

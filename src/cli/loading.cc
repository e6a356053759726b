// SPDX-License-Identifier: Apache-2.0
#include "cli/loading.h"

#include <cstdio>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/report.h"

namespace longspec::cli {
namespace {

void WarnOfLongContext(const ModelInfo& info, const RopeOptions& rope) {
  const bool scaled = rope.scaling != RopeOptions::Scaling::kFromModel || rope.scale != 0;
  if (scaled || info.n_ctx <= info.n_ctx_train) return;
  Warn("a context of " + std::to_string(info.n_ctx) + " exceeds the " + std::to_string(info.n_ctx_train) +
       " tokens the model was trained for; --rope-scaling yarn --rope-scale N extends it");
}

}  // namespace

Result<std::unique_ptr<Engine>> LoadEngine(const ModelOptions& options, const OutputFlags& flags) {
  if (flags.verbose || !flags.no_progress) {
    LS_ASSIGN(const ModelInfo info, Engine::Inspect(options));
    std::fputs(flags.verbose ? FormatInfo(info).c_str()
                             : ("memory: " + FormatMemoryPlan(info.memory) + "\n").c_str(),
               stderr);
  }
  Progress progress("loading", Progress::StandardError(!flags.no_progress));
  ModelOptions with_progress = options;
  with_progress.on_progress = [&progress](double share) {
    progress.Update(share);
    return !Interrupted();
  };
  auto engine = Engine::Load(with_progress);
  progress.Finish();
  if (engine.ok()) WarnOfLongContext((*engine)->info(), options.rope);
  return engine;
}

std::function<bool(int, int)> ReportPrefill(Progress* progress) {
  return [progress](int done, int total) {
    const double share = total > 0 ? static_cast<double>(done) / total : 1.0;
    progress->Update(share, std::to_string(done) + "/" + std::to_string(total) + " tokens");
    return !Interrupted();
  };
}

}  // namespace longspec::cli

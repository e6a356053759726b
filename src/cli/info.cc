// SPDX-License-Identifier: Apache-2.0
//
// longspec info: what a model is and what it would take to run it here, without loading weights.
#include <memory>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report.h"

namespace longspec::cli {
namespace {

struct InfoOptions {
  ModelOptions model;
  bool json = false;
};

int RunInfo(const InfoOptions& options) {
  const auto info = Engine::Inspect(options.model);
  if (!info.ok()) return Fail(info.status(), Stage::kLoad);
  return WriteOutput(options.json ? JsonLine(InfoJson(*info)) : FormatInfo(*info));
}

}  // namespace

Runner SetUpInfo(CLI::App& app) {
  auto options = std::make_shared<InfoOptions>();
  AddModelOptions(app, &options->model);
  app.add_flag("--json", options->json, "Print one JSON object")->group("Output");
  return [options] { return RunInfo(*options); };
}

}  // namespace longspec::cli

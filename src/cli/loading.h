// SPDX-License-Identifier: Apache-2.0
//
// What every subcommand that generates does the same way: loading a model with progress on stderr, the memory
// plan first under --verbose, and where the weights came from after; reporting prefill; both cancelled by
// Ctrl-C.
#pragma once

#include <functional>
#include <memory>

#include "cli/options.h"
#include "cli/terminal.h"
#include "longspec/engine.h"

namespace longspec::cli {

// `options` whose load stops on Ctrl-C and shows `progress`; a warning does not end up in its line.
ModelOptions WithProgress(const ModelOptions& options, const std::shared_ptr<Progress>& progress);

// A context beyond the positions that the model was trained for, where nothing extends them.
void WarnOfLongContext(const ModelInfo& info, const RopeOptions& rope);

Result<std::unique_ptr<Engine>> LoadEngine(const ModelOptions& options, const OutputFlags& flags);

// Now that nobody waits, measures what passes cost, if this answer had to do with a guess. Stops on Ctrl-C
// and by `keep_going`, which may be empty.
void MeasureCostsAfter(const GenerationResult& answer, Engine& engine,
                       const std::function<bool()>& keep_going = {});

// A GenerationRequest::on_prefill that shows `progress`, which must outlive it, and stops on Ctrl-C.
std::function<bool(int, int)> ReportPrefill(Progress* progress);

}  // namespace longspec::cli

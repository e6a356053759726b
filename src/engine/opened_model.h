// SPDX-License-Identifier: Apache-2.0
//
// A model whose header has been read: all that can be known of it, and refused, before its weights are.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "base/disk_speed.h"
#include "draft_model/draft_files.h"
#include "engine/generation.h"
#include "engine/memory_plan.h"
#include "formats/gguf.h"
#include "kv/chunk_pool.h"
#include "longspec/engine.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/device.h"
#include "network/model_spec.h"

namespace longspec {

struct OpenedModel {
  std::shared_ptr<const GgufFile> file;
  ModelSpec spec;
  std::unique_ptr<Device> device;  // on which it will run
  DraftFiles draft_files;          // opened for the memory plan
  MemoryNeeds needs;
  KvOffload offload;
  KvLayout layout;
  ReadSpeeds speeds;  // of the offload's folder
  ModelInfo info;
};

// The files of one model. Each is opened when it is first asked for, and not again for another device, or if
// a model is looked at and then loaded.
struct ModelFiles {
  std::shared_ptr<const GgufFile> target;  // null: not yet
  DraftFiles drafts;

  // A path that names no regular file is a file that cannot be read, not a bad option.
  Result<std::shared_ptr<const GgufFile>> Target(const std::string& path);
};

// Refuses what the options ask for and this file or machine does not have. `files`: those of these options.
Result<OpenedModel> OpenModel(const ModelOptions& options, ModelFiles& files);

// Refuses, with the numbers, what cannot fit in memory or on the disk, or would be slow there for nothing.
Status CheckRoom(const OpenedModel& model, const ModelOptions& options);

// Engine::Inspect: what a file tells about its model, also if this program does not run it.
Result<ModelInfo> InspectModel(const ModelOptions& options, ModelFiles& files);

// Engine::Load (engine/engine.cc).
Result<std::unique_ptr<Engine>> LoadModelOf(const ModelOptions& options, ModelFiles& files);

// Most rows of one pass.
inline int MaxRows(const ModelOptions& options) { return std::max(options.batch_size, kMaxDraftNodes + 1); }

}  // namespace longspec

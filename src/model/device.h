// SPDX-License-Identifier: Apache-2.0
//
// Where models run: what it is, what a model takes there, and the loaded model. The CPU is the first device.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "longspec/status.h"
#include "model/target.h"
#include "model/transformer.h"
#include "network/model_spec.h"

namespace longspec {

// For people, and for what is kept of this machine.
struct DeviceFacts {
  std::string device;     // as options name it: "cpu", "cuda:0"
  std::string processor;  // its name and the features that kernels care about
  std::string kernels;    // the table in use, or "cuda"
  std::vector<std::string> kernels_available;
  int threads = 0;
};

// Not thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;
  // kUnsupported: it does not run this model, with caches of this layout.
  virtual Status Check(const ModelSpec& /*spec*/, const KvLayout& /*layout*/) const { return {}; }
  // Whether it has memory of its own, apart from the host's, in which weights and caches lie.
  virtual bool has_memory() const { return false; }
  // How many bytes of that memory are free.
  virtual uint64_t FreeMemory() const { return 0; }
  // What a model takes whose passes have at most `max_rows` rows.
  virtual ModelMemory Plan(const ModelSpec& spec, const GgufFile& file, int max_rows) const = 0;
  // The model borrows the device. REQUIRES: spec came from this file.
  virtual Result<std::unique_ptr<Target>> Load(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                               const ModelLoadOptions& options) = 0;
};

// `kernels`: a table by name; empty: $LONGSPEC_KERNELS, else the best that this CPU has. `threads` 0: one for
// each core that it may use. They start when a model is loaded.
Result<std::unique_ptr<Device>> MakeCpuDevice(std::string_view kernels, int threads);

}  // namespace longspec

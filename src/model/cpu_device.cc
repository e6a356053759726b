// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "base/thread_team.h"
#include "kernels/dispatch.h"
#include "model/device.h"

namespace longspec {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(const kernels::KernelTable* kernels, int threads) : kernels_(kernels) {
    facts_.device = "cpu";
    facts_.processor = kernels::CpuDescription();
    facts_.kernels = kernels->name;
    for (const kernels::KernelTable* table : kernels::Available())
      facts_.kernels_available.emplace_back(table->name);
    facts_.threads = threads;
  }

  const DeviceFacts& facts() const override { return facts_; }

  ModelMemory Plan(const ModelSpec& spec, const GgufFile& file, int max_rows) const override {
    return PlanModelMemory(spec, file, max_rows, facts_.threads);
  }

  Result<std::unique_ptr<Target>> Load(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                       const ModelLoadOptions& options) override {
    if (team_ == nullptr) {
      LS_ASSIGN(team_, ThreadTeam::Start(facts_.threads));
    }
    return LoadModel(std::move(file), spec, {kernels_, team_.get()}, options);
  }

 private:
  const kernels::KernelTable* const kernels_;
  DeviceFacts facts_;
  std::unique_ptr<ThreadTeam> team_;  // null until a model is loaded
};

}  // namespace

Result<std::unique_ptr<Device>> MakeCpuDevice(std::string_view kernels, int threads) {
  LS_ASSIGN(const kernels::KernelTable* const table, kernels::Choose(kernels));
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(table, threads > 0 ? threads : ThreadTeam::UsableCores()));
}

}  // namespace longspec

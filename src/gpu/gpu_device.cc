// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_device.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/thread_team.h"
#include "gpu/gpu_mover.h"
#include "gpu/gpu_target.h"
#include "kernels/dispatch.h"

namespace longspec {
namespace {

class GpuDevice final : public Device {
 public:
  GpuDevice(std::shared_ptr<Runtime> card, const kernels::KernelTable* kernels, int threads)
      : card_(std::move(card)), mover_(*card_), kernels_(kernels) {
    facts_.device = card_->facts().device;
    facts_.processor = card_->facts().name;
    facts_.kernels = "cuda";
    facts_.kernels_available = {"cuda"};
    facts_.threads = threads;
  }

  const DeviceFacts& facts() const override { return facts_; }
  bool has_memory() const override { return true; }
  uint64_t FreeMemory() const override { return card_->FreeMemory(); }
  Status Check(const ModelSpec& spec, const KvLayout& layout) const override {
    return CheckGpuModel(spec, layout);
  }
  ModelMemory Plan(const ModelSpec& spec, const GgufFile& file, int max_rows) const override {
    return PlanGpuMemory(spec, file, max_rows);
  }

  Result<std::unique_ptr<Target>> Load(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                       const ModelLoadOptions& options) override {
    if (team_ == nullptr) {
      LS_ASSIGN(team_, ThreadTeam::Start(facts_.threads));
    }
    return LoadGpuModel(card_, mover_, std::move(file), spec, {kernels_, team_.get()}, options);
  }

 private:
  const std::shared_ptr<Runtime> card_;
  const GpuMover mover_;
  const kernels::KernelTable* const kernels_;
  DeviceFacts facts_;
  std::unique_ptr<ThreadTeam> team_;  // null until a model is loaded
};

// Of "cuda" and "cuda:N".
std::optional<int> CardIn(std::string_view name) {
  if (name == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int index = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

Result<std::unique_ptr<Device>> OpenGpu(int index, std::string_view kernels, int threads) {
  LS_ASSIGN(auto card, kernels::gpu::OpenCard(index));
  return MakeGpuDevice(std::move(card), kernels, threads);
}

}  // namespace

Result<std::unique_ptr<Device>> MakeGpuDevice(std::shared_ptr<kernels::gpu::Runtime> card,
                                              std::string_view kernels, int threads) {
  LS_ASSIGN(const kernels::KernelTable* const table, kernels::Choose(kernels));
  return std::unique_ptr<Device>(
      std::make_unique<GpuDevice>(std::move(card), table, threads > 0 ? threads : ThreadTeam::UsableCores()));
}

Result<std::unique_ptr<Device>> MakeDevice(const std::string& name, std::string_view kernels, int threads) {
  if (name == "cpu") return MakeCpuDevice(kernels, threads);
  if (name == "auto") {
    auto card = OpenGpu(0, kernels, threads);
    return card.ok() ? std::move(card) : MakeCpuDevice(kernels, threads);
  }
  const std::optional<int> index = CardIn(name);
  if (!index) return InvalidArgument("--device " + name + ": must be auto, cpu, cuda or cuda:N");
  return OpenGpu(*index, kernels, threads);
}

}  // namespace longspec

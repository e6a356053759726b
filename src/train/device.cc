// SPDX-License-Identifier: Apache-2.0
#include "train/device.h"

#include <torch/cuda.h>

#include <charconv>
#include <system_error>

namespace longspec::train {

Result<at::Device> ParseDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  const std::string prefix = "cuda:";
  int index = 0;
  bool known = name == "cuda";
  if (name.starts_with(prefix)) {
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, index);
    known = error == std::errc() && rest == end && index >= 0;
  }
  if (!known) return InvalidArgument("--device " + name + ": must be cpu, cuda or cuda:N");
  if (!torch::cuda::is_available()) {
    return Unsupported("--device " + name +
                       ": LibTorch finds no CUDA device, or this trainer was built without CUDA");
  }
  if (const auto n = static_cast<int>(torch::cuda::device_count()); index >= n) {
    return InvalidArgument("--device " + name +
                           ": the last one that LibTorch finds is cuda:" + std::to_string(n - 1));
  }
  return at::Device(name);
}

Status StatusOf(const c10::Error& error) {
  const std::string message = error.what_without_backtrace();
  return ResourceExhausted("LibTorch: " + message.substr(0, message.find('\n')));
}

}  // namespace longspec::train

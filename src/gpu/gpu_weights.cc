// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_weights.h"

#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/size.h"

namespace longspec {
namespace {

constexpr size_t kVectorFloats = 16;  // vectors begin at multiples of so many

size_t BytesOf(const kernels::PackedMatrix& matrix) {
  return Z((matrix.n_out + kernels::kRowGroup - 1) / kernels::kRowGroup) * matrix.group_bytes;
}

}  // namespace

HostMatrix::HostMatrix(const kernels::PackedMatrix& of) : bytes(BytesOf(of)), matrix(of) {
  std::memcpy(bytes.data(), of.data, bytes.size());
  matrix.data = bytes.data();
}

Result<GpuWeights> CopyToCard(Runtime& card, const ModelWeights& weights) try {
  const std::span<const std::byte> packed = weights.memory.bytes();
  std::vector<float> floats;
  const auto add = [&](std::span<const float> vector) {
    const size_t at = floats.size();
    floats.insert(floats.end(), vector.begin(), vector.end());
    floats.resize((floats.size() + kVectorFloats - 1) / kVectorFloats * kVectorFloats);
    return at;
  };
  std::vector<std::array<size_t, kTensorRoles>> places(weights.layers.size());
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t role = 0; role < kTensorRoles; ++role)
      places[i][role] = add(weights.layers[i].vector(static_cast<TensorRole>(role)));
  }
  const size_t output_norm = add(weights.output_norm);

  GpuWeights there;
  there.matrices = GpuBuffer(card, packed.size());
  there.vectors = GpuBuffer(card, floats.size() * sizeof(float));
  card.Copy(packed.data(), there.matrices.data(), packed.size());
  card.Copy(floats.data(), there.vectors.data(), floats.size() * sizeof(float));

  const auto moved = [&](kernels::PackedMatrix matrix) {
    if (matrix.data != nullptr) matrix.data = there.matrices.data() + (matrix.data - packed.data());
    return matrix;
  };
  for (size_t i = 0; i < places.size(); ++i) {
    GpuWeights::Layer& layer = there.layers.emplace_back();
    for (size_t role = 0; role < kTensorRoles; ++role) {
      const auto of = static_cast<TensorRole>(role);
      layer.matrices[role] = moved(weights.layers[i].matrix(of).matrix());
      if (!weights.layers[i].vector(of).empty())
        layer.vectors[role] = there.vectors.as<float>() + places[i][role];
    }
  }
  there.output_norm = there.vectors.as<float>() + output_norm;
  there.output = moved(weights.output.matrix());
  if (Status status = card.Wait(); !status.ok()) return status;
  return Result<GpuWeights>(std::move(there));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(card.facts().name + ": no room for weights of " +
                           std::to_string(weights.memory.bytes().size() >> 20) + " MiB, " +
                           std::to_string(card.FreeMemory() >> 20) + " MiB are free");
}

}  // namespace longspec

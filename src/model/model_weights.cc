// SPDX-License-Identifier: Apache-2.0
#include "model/model_weights.h"

#include <new>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/status_macros.h"
#include "model/weights_cache.h"
#include "tensor/dequantize.h"
#include "tensor/dtype.h"

namespace longspec {
namespace {

using Progress = std::function<bool(double)>;  // share done; false cancels; may be empty

// What a step of loading reports, as a part of the whole.
Progress Part(const Progress& whole, double begin, double end) {
  if (!whole) return {};
  return [&whole, begin, end](double share) { return whole(begin + (end - begin) * share); };
}

std::vector<float> Vector(const TensorView& t) {
  std::vector<float> values(static_cast<size_t>(t.n_elements()));
  DequantizeRow(t.dtype, t.data, t.n_elements(), values.data());
  return values;
}

// All matrices in the order in which they lie in memory, one after the other.
struct Plan {
  struct Matrix {
    const TensorView* tensor;
    kernels::PackedWeights* to;
    uint64_t offset;  // bytes
  };
  std::vector<Matrix> matrices;
  uint64_t packed_bytes = 0;
  uint64_t stored_bytes = 0;

  void Add(const TensorView& tensor, kernels::PackedWeights& to) {
    matrices.push_back({&tensor, &to, packed_bytes});
    packed_bytes += kernels::PackedBytes(tensor.dtype, tensor.shape[0], tensor.n_rows());
    stored_bytes += tensor.n_bytes;
  }

  // One line a matrix: another order or another choice of matrices reads differently.
  std::string Describe() const {
    std::string text;
    for (const Matrix& matrix : matrices) {
      const TensorView& t = *matrix.tensor;
      text += std::to_string(matrix.offset) + " " + t.name + " " + std::string(Info(t.dtype).name) + " " +
              std::to_string(t.shape[0]) + " " + std::to_string(t.n_rows()) + "\n";
    }
    return text;
  }
};

// Fills the vectors of `weights`, and says where its matrices are to come from.
Plan FillVectors(const GgufFile& file, const ModelSpec& spec, ModelWeights& weights) {
  Plan plan;
  weights.layers.resize(static_cast<size_t>(spec.n_layer));
  for (const TensorSpec& tensor : TensorsOf(spec)) {
    const TensorView& view = TensorIn(file, tensor);
    if (tensor.layer >= 0) {
      LayerWeights& layer = weights.layers[static_cast<size_t>(tensor.layer)];
      if (tensor.is_matrix()) {
        plan.Add(view, layer.matrix(tensor.role));
      } else {
        layer.SetVector(tensor.role, Vector(view));
      }
    } else if (tensor.role == TensorRole::kEmbedding) {
      weights.embedding = view;
    } else if (tensor.role == TensorRole::kOutputNorm) {
      weights.output_norm = Vector(view);
    } else {
      weights.head = view;
      plan.Add(view, weights.output);
    }
  }
  return plan;
}

// Packs matrix after matrix, each with the whole team, and reports progress between them. Throws
// std::bad_alloc.
Result<OwnedBytes> Pack(const Plan& plan, ThreadTeam& team, const Progress& on_progress) {
  AlignedBuffer memory(plan.packed_bytes);
  uint64_t done = 0;
  for (const Plan::Matrix& matrix : plan.matrices) {
    *matrix.to = kernels::PackedWeights(*matrix.tensor, memory.data() + matrix.offset);
    team.Run([&](ThreadTeam::Worker& worker) {
      const auto share = worker.ShareOf(matrix.to->n_groups());
      matrix.to->Pack(*matrix.tensor, share.begin, share.end);
    });
    done += matrix.tensor->n_bytes;
    if (on_progress && !on_progress(static_cast<double>(done) / static_cast<double>(plan.stored_bytes))) {
      return Cancelled("loading was cancelled");
    }
  }
  return OwnedBytes(std::move(memory));
}

void Warn(const ModelLoadOptions& options, const std::string& message) {
  if (options.weights_cache.on_warning) options.weights_cache.on_warning(message);
}

// What is kept, or what is packed now and kept if that can be. Nothing that goes wrong with the cache stops
// loading.
Result<OwnedBytes> ReadOrPack(const Plan& plan, const GgufFile& file, ThreadTeam& team,
                              const ModelLoadOptions& options, std::string* origin) {
  const Progress& on_progress = options.on_progress;
  constexpr double kHashed = 0.2, kPacked = 0.6;  // about what the steps take
  const auto cache = WeightsCache::Open(options.weights_cache.folder, file, plan.Describe(),
                                        plan.packed_bytes, team, Part(on_progress, 0, kHashed));
  if (cache.status().code() == StatusCode::kCancelled) return cache.status();
  if (!cache.ok()) {
    Warn(options, cache.status().message() + "; the packed weights are not kept");
    return Pack(plan, team, on_progress);
  }

  auto kept = cache->Read(team, Part(on_progress, kHashed, 1));
  if (kept.ok()) {
    for (const Plan::Matrix& matrix : plan.matrices) {
      *matrix.to = kernels::PackedWeights::Packed(*matrix.tensor, kept->bytes().data() + matrix.offset);
    }
    *origin = "read from " + cache->path();
    return kept;
  }
  if (kept.status().code() == StatusCode::kCancelled) return kept;
  if (kept.status().code() != StatusCode::kNotFound) Warn(options, kept.status().message() + "; packed anew");

  auto to = cache->Create();
  auto packed = Pack(plan, team, Part(on_progress, kHashed, to.ok() ? kPacked : 1));
  if (!packed.ok()) return packed;
  const Status written =
      to.ok() ? cache->Write(std::move(*to), packed->bytes(), team, Part(on_progress, kPacked, 1))
              : to.status();
  if (written.code() == StatusCode::kCancelled) return written;
  if (!written.ok()) {
    Warn(options, written.message() + "; the packed weights are not kept");
  } else {
    *origin += ", kept in " + cache->path();
  }
  return packed;
}

}  // namespace

Result<std::unique_ptr<const ModelWeights>> LoadModelWeights(const GgufFile& file, const ModelSpec& spec,
                                                             ThreadTeam& team,
                                                             const ModelLoadOptions& options) {
  auto weights = std::make_unique<ModelWeights>();
  std::string origin = "packed now";
  try {
    const Plan plan = FillVectors(file, spec, *weights);
    if (options.weights_cache.folder.empty()) {
      LS_ASSIGN(weights->memory, Pack(plan, team, options.on_progress));
    } else {
      LS_ASSIGN(weights->memory, ReadOrPack(plan, file, team, options, &origin));
    }
    for (const Plan::Matrix& matrix : plan.matrices) {
      matrix.to->MultiplyBf16As(spec.bf16_format);
      weights->input_forms.Add(matrix.to->matrix());
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(file.path() + ": no memory for the weights");
  }
  if (options.origin != nullptr) *options.origin = origin;
  return std::unique_ptr<const ModelWeights>(std::move(weights));
}

}  // namespace longspec

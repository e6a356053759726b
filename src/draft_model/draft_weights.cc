// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kernels/packing.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace longspec {

namespace {

bool Close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)); }

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", x);
  return text;
}

std::string Shape(int64_t n_in, int64_t n_out) {
  return n_out == 1 ? "(" + std::to_string(n_in) + ")"
                    : "(" + std::to_string(n_out) + ", " + std::to_string(n_in) + ")";
}

DType TypeInMemory(const TensorView& tensor, std::optional<DType> wanted) {
  if (wanted) return *wanted;
  return Info(tensor.dtype).block_elements > 1 ? tensor.dtype : DType::kQ8_0;
}

uint64_t BytesOf(const TensorView& tensor, std::optional<DType> wanted) {
  return kernels::PackedBytes(TypeInMemory(tensor, wanted), tensor.shape[0], tensor.n_rows());
}

// Of rows of the target's head. Four bits, where that takes less, cost a draft that is in blocks itself
// hardly a right guess; its own matrices in four bits cost many.
DType HeadType(const DraftCheckpoint& checkpoint, std::optional<DType> wanted,
               const TensorView& target_head) {
  constexpr DType kRounded = DType::kQ4_1;
  const auto in_blocks = [&](const TensorView& tensor) {
    return tensor.n_rows() > 1 && tensor.name != kDraftVocabTensor &&
           Info(TypeInMemory(tensor, wanted)).block_elements > 1;
  };
  const auto bytes = [&](DType t) {
    return kernels::PackedBytes(t, target_head.shape[0], kernels::kRowGroup);
  };
  return std::ranges::any_of(checkpoint.tensors, in_blocks) && bytes(kRounded) < bytes(target_head.dtype)
             ? kRounded
             : target_head.dtype;
}

// Which row of the checkpoint becomes a row.
class RowOrder {
 public:
  RowOrder(DraftRows rows, const ModelSizes& target)
      : head_dim_(target.head_dim),
        n_rot_(rows == DraftRows::kAsTargetRotates && target.rope.pairing == kernels::RopePairing::kAdjacent
                   ? target.rope.n_rot
                   : 0) {}

  int64_t operator()(int64_t row) const {
    const int64_t i = row % head_dim_;
    return i < n_rot_ ? row - i + i / 2 + i % 2 * (n_rot_ / 2) : row;
  }

 private:
  int64_t head_dim_, n_rot_;
};

class Loader {
 public:
  Loader(const DraftCheckpoint& checkpoint, std::optional<DType> type, const SharedParts& target)
      : checkpoint_(checkpoint), type_(type), target_(target) {}

  Status LoadVector(const TensorView& tensor, const DraftPart& part) const {
    std::vector<float> stored(Z(tensor.n_elements()));
    DequantizeRow(tensor.dtype, tensor.data, tensor.n_elements(), stored.data());
    if (!AllFinite(stored)) return NotFinite(tensor);
    const RowOrder order(part.rows, *target_.sizes);
    part.vector->resize(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      (*part.vector)[i] = stored[Z(order(static_cast<int64_t>(i)))];
    }
    return {};
  }

  // Rows in the wanted order and of the wanted type, then packed, all by the whole team.
  Status LoadMatrix(const TensorView& stored, const DraftPart& part, std::byte* memory) const {
    TensorView tensor = stored;
    tensor.dtype = TypeInMemory(stored, type_);
    const size_t row_bytes = RowBytes(tensor.dtype, tensor.shape[0]);
    AlignedBuffer bytes(row_bytes * Z(tensor.n_rows()));
    tensor.data = bytes.data();
    tensor.n_bytes = bytes.size();
    kernels::PackedWeights to(tensor, memory);
    part.matrix->packed = to.matrix();
    const RowOrder order(part.rows, *target_.sizes);
    std::atomic<bool> finite{true};
    target_.lane.team->Run([&](ThreadTeam::Worker& worker) {
      std::vector<float> values(Z(tensor.shape[0]));
      const auto share = worker.ShareOf(static_cast<int>(tensor.n_rows()));
      for (int row = share.begin; row < share.end; ++row) {
        const std::byte* from = stored.row(order(row));
        std::byte* out = bytes.data() + Z(row) * row_bytes;
        DequantizeRow(stored.dtype, from, stored.shape[0], values.data());
        if (!AllFinite(values)) {
          finite = false;
        } else if (tensor.dtype == stored.dtype) {
          std::memcpy(out, from, row_bytes);
        } else {
          QuantizeRow(tensor.dtype, values.data(), stored.shape[0], out);
        }
      }
      worker.Barrier();
      const auto groups = worker.ShareOf(to.n_groups());
      to.Pack(tensor, groups.begin, groups.end);
    });
    return finite ? Status() : NotFinite(stored);
  }

 private:
  static bool AllFinite(const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
  }
  Status NotFinite(const TensorView& tensor) const {
    return Corrupt(checkpoint_.path + ": tensor " + tensor.name +
                   " holds a value that is not a finite number");
  }

  const DraftCheckpoint& checkpoint_;
  const std::optional<DType> type_;
  const SharedParts& target_;
};

}  // namespace

Status DraftMisfit(const DraftCheckpoint& checkpoint, const std::string& what, const std::string& draft,
                   const std::string& target) {
  return Unsupported(checkpoint.path + ": the draft model does not fit the target: " + what + " " + draft +
                     ", the target has " + target);
}

Status CheckDraftSize(const DraftCheckpoint& checkpoint, const std::string& what, int draft, int target) {
  if (draft == 0 || draft == target) return {};
  return DraftMisfit(checkpoint, what, std::to_string(draft), std::to_string(target));
}

Status CheckDraftWidths(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  LS_TRY(CheckDraftSize(checkpoint, "hidden size", checkpoint.config.hidden_size, target.n_embd));
  return CheckDraftSize(checkpoint, "vocabulary", checkpoint.config.n_vocab, target.n_vocab);
}

Status CheckDraftSharesKeys(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  const DraftConfig& c = checkpoint.config;
  LS_TRY(CheckDraftSize(checkpoint, "attention heads", c.n_head, target.n_head));
  LS_TRY(CheckDraftSize(checkpoint, "key-value heads", c.n_kv_head, target.n_head_kv));
  LS_TRY(CheckDraftSize(checkpoint, "head dimension", c.head_dim, target.head_dim));
  return CheckDraftRope(checkpoint, target);
}

Status CheckDraftRope(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  const DraftConfig& c = checkpoint.config;
  if (c.rope_theta == 0.0) return {};  // the file does not say
  if (!Close(c.rope_theta, target.rope.freq_base)) {
    return DraftMisfit(checkpoint, "RoPE base", Number(c.rope_theta), Number(target.rope.freq_base));
  }
  const std::string scaling = target.rope.ScalingName();
  if (c.rope_scaling != scaling) return DraftMisfit(checkpoint, "RoPE scaling", c.rope_scaling, scaling);
  const bool has_factor = scaling == "linear" || scaling == "yarn";
  if (has_factor && c.rope_factor != 0.0 && !Close(c.rope_factor, target.rope.scale)) {
    return DraftMisfit(checkpoint, "RoPE scaling factor", Number(c.rope_factor), Number(target.rope.scale));
  }
  if (scaling != "yarn") return {};
  const struct {
    const char* what;
    double draft, target;
  } numbers[] = {{"original positions of YaRN", 1.0 * c.rope_original_positions, 1.0 * target.rope.orig_ctx},
                 {"beta_fast of YaRN", c.rope_beta_fast, target.rope.beta_fast},
                 {"beta_slow of YaRN", c.rope_beta_slow, target.rope.beta_slow}};
  for (const auto& n : numbers) {
    if (n.draft == 0.0 || Close(n.draft, n.target)) continue;  // 0: the file does not say
    return DraftMisfit(checkpoint, n.what, Number(n.draft), Number(n.target));
  }
  return {};
}

Status CheckDraftShapes(const DraftCheckpoint& checkpoint, std::span<const DraftPart> parts) {
  for (const DraftPart& part : parts) {
    const TensorView* tensor = checkpoint.Find(part.tensor);
    if (tensor == nullptr || part.n_in == 0) continue;
    if (tensor->shape[0] == part.n_in && tensor->n_rows() == part.n_out) continue;
    return Unsupported(checkpoint.path + ": the draft model does not fit the target: tensor " + part.tensor +
                       " has shape " + Shape(tensor->shape[0], tensor->n_rows()) + ", the target asks for " +
                       Shape(part.n_in, part.n_out));
  }
  return {};
}

Result<int> DraftRowsOf(const DraftCheckpoint& checkpoint, const std::string& tensor,
                        const std::string& what) {
  const TensorView* view = checkpoint.Find(tensor);
  LS_CHECK(view != nullptr);  // OpenDraftCheckpoint has checked
  if (view->n_rows() % kernels::kQuantBlock == 0 && view->n_rows() <= (1 << 30)) {
    return static_cast<int>(view->n_rows());
  }
  return Unsupported(checkpoint.path + ": " + what + " " + std::to_string(view->n_rows()) +
                     " is no multiple of 32");
}

Status CheckDraftWeights(const std::string& weights) {
  const std::optional<DType> type = FindDType(weights);
  if (weights.empty() ||
      (type && CanDequantize(*type) && Info(*type).block_elements <= kernels::kQuantBlock)) {
    return {};
  }
  return InvalidArgument("--spec-draft-weights " + weights + ": must be one of " +
                         WeightTypeNames(kernels::kQuantBlock));
}

uint64_t DraftMatrixBytes(const DraftCheckpoint& checkpoint, std::span<const DraftPart> parts,
                          const std::string& weights) {
  const std::optional<DType> type = FindDType(weights);
  uint64_t bytes = 0;
  for (const DraftPart& part : parts) {
    const TensorView* tensor = checkpoint.Find(part.tensor);
    if (part.matrix != nullptr && tensor != nullptr) bytes += BytesOf(*tensor, type);
  }
  return bytes;
}

Status LoadDraftParts(const DraftCheckpoint& checkpoint, std::span<const DraftPart> parts,
                      const std::string& weights, const SharedParts& target, AlignedBuffer* memory) {
  const std::optional<DType> type = FindDType(weights);
  const Loader loader(checkpoint, type, target);
  *memory = AlignedBuffer(DraftMatrixBytes(checkpoint, parts, weights));
  std::byte* at = memory->data();
  for (const DraftPart& part : parts) {
    const TensorView* tensor = checkpoint.Find(part.tensor);
    if (tensor == nullptr) continue;
    if (part.vector != nullptr) LS_TRY(loader.LoadVector(*tensor, part));
    if (part.matrix == nullptr) continue;
    LS_TRY(loader.LoadMatrix(*tensor, part, at));
    at += BytesOf(*tensor, type);
  }
  return {};
}

Result<std::vector<int32_t>> ReadDraftVocab(const std::string& path, const TensorView& tensor, int n_vocab) {
  std::vector<int32_t> vocab;
  if ((tensor.dtype != DType::kI32 && tensor.dtype != DType::kI64) || tensor.n_dims != 1) {
    return Corrupt(path + ": tensor " + kDraftVocabTensor + " must be a list of tokens, I32 or I64");
  }
  for (const int64_t token : DraftTokens(tensor)) {
    if (token < 0 || token >= n_vocab) {
      return Unsupported(path + ": the draft model does not fit the target: tensor " + kDraftVocabTensor +
                         " names token " + std::to_string(token) + ", the target has a vocabulary of " +
                         std::to_string(n_vocab));
    }
    vocab.push_back(static_cast<int32_t>(token));
  }
  std::ranges::sort(vocab);
  const auto repeated = std::ranges::adjacent_find(vocab);
  if (repeated == vocab.end()) return vocab;
  return Corrupt(path + ": tensor " + kDraftVocabTensor + " names token " + std::to_string(*repeated) +
                 " twice");
}

Status LoadDraftHead(const DraftCheckpoint& checkpoint, const std::string& weights, const SharedParts& target,
                     DraftHead* head) {
  head->matrix = HeadOf(target);
  const TensorView* vocab = checkpoint.Find(kDraftVocabTensor);
  if (vocab == nullptr) return {};
  LS_ASSIGN(head->vocab, ReadDraftVocab(checkpoint.path, *vocab, target.sizes->n_vocab));
  const DType type = HeadType(checkpoint, FindDType(weights), target.head);
  if (type == target.head.dtype) {
    head->matrix.packed = GatherPackedRows(*target.output, head->vocab, &head->memory);
    return {};
  }
  TensorView rows = target.head;
  rows.shape[1] = std::ssize(head->vocab);
  const size_t row_bytes = RowBytes(rows.dtype, rows.shape[0]);
  AlignedBuffer stored(row_bytes * head->vocab.size());
  for (size_t i = 0; i < head->vocab.size(); ++i)
    std::memcpy(stored.data() + i * row_bytes, target.head.row(head->vocab[i]), row_bytes);
  rows.data = stored.data();
  rows.n_bytes = stored.size();
  head->memory = AlignedBuffer(DraftHeadBytes(checkpoint, weights, target.head));
  return Loader(checkpoint, type, target).LoadMatrix(rows, {.matrix = &head->matrix}, head->memory.data());
}

DraftMatrix HeadOf(const SharedParts& target) { return {*target.output}; }

uint64_t DraftHeadBytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const TensorView& target_head) {
  const TensorView* vocab = checkpoint.Find(kDraftVocabTensor);
  if (vocab == nullptr) return 0;
  const DType type = HeadType(checkpoint, FindDType(weights), target_head);
  return kernels::PackedBytes(type, target_head.shape[0], vocab->n_elements());
}

int64_t DraftHeadRows(const DraftCheckpoint& checkpoint, const ModelSizes& target) {
  const TensorView* vocab = checkpoint.Find(kDraftVocabTensor);
  return vocab != nullptr ? vocab->n_elements() : target.n_vocab;
}

std::vector<int64_t> DraftTokens(const TensorView& tensor) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < tensor.n_elements(); ++i) {
    int64_t token = 0;
    if (tensor.dtype == DType::kI64) {
      std::memcpy(&token, tensor.data + i * 8, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, tensor.data + i * 4, 4);
      token = narrow;
    }
    tokens.push_back(token);
  }
  return tokens;
}

namespace {

using kernels::kRowGroup;

// Parts of a group, one after the other, of one row.
void CopyLane(const kernels::GroupLayout& layout, const std::byte* from, size_t from_lane, std::byte* to,
              size_t to_lane) {
  for (const kernels::GroupPart& part : {layout.quants, layout.scales, layout.factors}) {
    for (size_t i = 0; i < part.n_cells; ++i) {
      std::memcpy(to + to_lane * part.bytes, from + from_lane * part.bytes, part.bytes);
      from += kRowGroup * part.bytes;
      to += kRowGroup * part.bytes;
    }
  }
}

}  // namespace

kernels::PackedMatrix GatherPackedRows(const kernels::PackedMatrix& matrix, std::span<const int32_t> rows,
                                       AlignedBuffer* memory) {
  const kernels::GroupLayout layout = kernels::LayoutOf(matrix.format, matrix.n_in);
  const size_t n_groups = (rows.size() + kRowGroup - 1) / kRowGroup;
  *memory = AlignedBuffer(n_groups * matrix.group_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    LS_CHECK(rows[i] >= 0 && rows[i] < matrix.n_out);
    const auto row = static_cast<size_t>(rows[i]);
    CopyLane(layout, matrix.data + row / kRowGroup * matrix.group_bytes, row % kRowGroup,
             memory->data() + i / kRowGroup * matrix.group_bytes, i % kRowGroup);
  }
  kernels::PackedMatrix result = matrix;
  result.data = memory->data();
  result.n_out = static_cast<int64_t>(rows.size());
  return result;
}

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
#include "draft_model/lm_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/size.h"
#include "base/status_macros.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "formats/draft_names.h"
#include "formats/gguf_format.h"
#include "formats/gguf_writer.h"
#include "network/architecture.h"
#include "network/model_tensors.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace longspec {

Status CheckLmFit(const LmFile& draft, int n_vocab, const std::vector<std::string>& tokens) {
  if (draft.of_target) return {};
  const std::string misfit = draft.file->path() + ": the draft model does not fit the target: ";
  if (std::abs(int64_t{draft.spec.n_vocab} - n_vocab) > kMostPadding) {
    return Unsupported(misfit + "a vocabulary of " + std::to_string(draft.spec.n_vocab) +
                       " tokens, the target has " + std::to_string(n_vocab) + ", and a difference of " +
                       std::to_string(kMostPadding) + " is allowed for padding");
  }
  LS_ASSIGN(const std::vector<std::string> own, draft.file->GetStrings("tokenizer.ggml.tokens"));
  const size_t more = std::max(own.size(), tokens.size()) - std::min(own.size(), tokens.size());
  if (more > size_t{kMostPadding}) {
    return Unsupported(misfit + "its tokenizer has " + std::to_string(own.size()) +
                       " tokens, the target's has " + std::to_string(tokens.size()) +
                       ", and a difference of " + std::to_string(kMostPadding) + " is allowed for padding");
  }
  const auto [a, b] = std::ranges::mismatch(own, tokens);
  if (a == own.end() || b == tokens.end()) return {};
  return Unsupported(misfit + "token " + std::to_string(a - own.begin()) + " is " + Quote(*a) +
                     ", the target has " + Quote(*b));
}

namespace {

// A file with tensors of another beside its own.
class FileWithTensors final : public GgufFile {
 public:
  explicit FileWithTensors(std::shared_ptr<const GgufFile> file)
      : file_(std::move(file)), tensors_(file_->tensors()) {}

  void Add(TensorRole role, TensorView tensor) {
    tensor.name = TensorName(role);
    tensors_.push_back(std::move(tensor));
  }
  // With bytes of its own.
  void Add(TensorRole role, TensorView tensor, std::vector<std::byte> bytes) {
    bytes_ = std::move(bytes);
    tensor.data = bytes_.data();
    tensor.n_bytes = bytes_.size();
    Add(role, std::move(tensor));
  }

  const std::string& path() const override { return file_->path(); }
  uint32_t version() const override { return file_->version(); }
  uint64_t file_bytes() const override { return file_->file_bytes(); }
  const std::vector<GgufShard>& shards() const override { return file_->shards(); }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const override {
    return file_->metadata();
  }
  const GgufValue* Find(std::string_view key) const override { return file_->Find(key); }
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* FindTensor(std::string_view name) const override {
    const auto it = std::ranges::find(tensors_, name, &TensorView::name);
    return it == tensors_.end() ? nullptr : &*it;
  }

 private:
  const std::shared_ptr<const GgufFile> file_;
  std::vector<TensorView> tensors_;
  std::vector<std::byte> bytes_;  // of one of them
};

bool HasBlocks(const GgufFile& file) {
  return std::ranges::any_of(
      file.tensors(), [](const TensorView& t) { return t.n_rows() > 1 && Info(t.dtype).block_elements > 1; });
}

// Rows of a matrix; with `rounded` in the type that a head beside block types has, if that takes less.
TensorView RowsOf(const TensorView& matrix, const std::vector<int32_t>& rows, bool rounded,
                  std::vector<std::byte>* bytes) {
  const size_t row_bytes = RowBytes(matrix.dtype, matrix.shape[0]);
  bytes->resize(rows.size() * row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(bytes->data() + i * row_bytes, matrix.row(rows[i]), row_bytes);
  }
  TensorView chosen = matrix;
  chosen.shape[1] = std::ssize(rows);
  chosen.data = bytes->data();
  constexpr DType kRounded = DType::kQ4_1;
  if (rounded && RowBytes(kRounded, matrix.shape[0]) < row_bytes) {
    *bytes = QuantizeTensor(chosen, kRounded);
    chosen.dtype = kRounded;
    chosen.data = bytes->data();
  }
  chosen.n_bytes = bytes->size();
  return chosen;
}

// In GGUF files the shape of a tensor.
std::vector<int64_t> ShapeOf(const TensorView& tensor) {
  return {tensor.shape, tensor.shape + tensor.n_dims};
}

// Which of its n_rows rows a draft reads for each of n_tokens.
Result<std::vector<int32_t>> ReadStandIns(const std::string& path, const TensorView& tensor, int64_t n_tokens,
                                          int n_rows) {
  const std::string name = path + ": tensor " + kDraftStandInTensor;
  if (tensor.dtype != DType::kI32 || tensor.n_dims != 1) return Corrupt(name + " must be a list of I32");
  if (tensor.n_elements() != n_tokens) {
    return Unsupported(name + " has " + std::to_string(tensor.n_elements()) +
                       " entries: the draft model does not fit the target, which has a vocabulary of " +
                       std::to_string(n_tokens));
  }
  std::vector<int32_t> rows(Z(n_tokens));
  std::memcpy(rows.data(), tensor.data, rows.size() * sizeof(int32_t));
  const bool are_rows = std::ranges::all_of(rows, [&](int32_t row) { return row >= 0 && row < n_rows; });
  if (are_rows) return rows;
  return Corrupt(name + " must name rows of the draft's embedding, of which there are " +
                 std::to_string(n_rows));
}

// One with an embedding of its own. `n_tokens`: of the target.
Result<LmFile> ReadWholeLm(std::shared_ptr<const GgufFile> draft, int64_t n_tokens) {
  LmFile lm;
  LS_ASSIGN(lm.spec, ReadModelSpec(*draft, {}));
  const TensorView* const vocab = draft->FindTensor(kDraftVocabTensor);
  if (vocab == nullptr) {
    lm.file = std::move(draft);
    return lm;
  }
  const std::string& path = draft->path();
  const TensorView* const stand_ins = draft->FindTensor(kDraftStandInTensor);
  const TensorView* const head = draft->FindTensor(kDraftHeadTensor);
  if (stand_ins != nullptr) {
    lm.of_target = true;
    LS_ASSIGN(lm.stand_ins, ReadStandIns(path, *stand_ins, n_tokens, lm.spec.n_vocab));
  }
  const auto n_known = stand_ins != nullptr ? static_cast<int>(n_tokens) : lm.spec.n_vocab;
  LS_ASSIGN(lm.vocab, ReadDraftVocab(path, *vocab, n_known));
  const int64_t n_rows = head != nullptr ? head->n_rows() : lm.spec.n_vocab;
  const bool is_wide = head == nullptr || head->shape[0] == lm.spec.n_embd;
  if (n_rows != std::ssize(lm.vocab) || !is_wide || !lm.spec.tied_embeddings) {
    return Corrupt(path + ": " + kDraftVocabTensor + " names " + std::to_string(lm.vocab.size()) +
                   " tokens; the head must have a row of " + std::to_string(lm.spec.n_embd) +
                   " values for each");
  }
  lm.spec.n_logits = static_cast<int>(lm.vocab.size());
  if (head == nullptr) {
    lm.file = std::move(draft);
    return lm;
  }
  lm.spec.tied_embeddings = false;
  auto file = std::make_shared<FileWithTensors>(draft);
  file->Add(TensorRole::kHead, *head);
  lm.file = std::move(file);
  return lm;
}

// A matrix in another type if one is given; vectors and tokens stay as they are.
Status AddLmTensor(const GgufFile& lm, const TensorView& tensor, const std::string& name,
                   std::optional<DType> type, GgufWriter* writer) {
  if (!type || tensor.n_rows() == 1 || !CanDequantize(tensor.dtype) || tensor.dtype == *type) {
    writer->AddTensor(name, tensor.dtype, ShapeOf(tensor), {tensor.data, tensor.n_bytes});
    return {};
  }
  LS_TRY(CheckRowsFit(lm.path(), tensor, *type));
  writer->AddTensor(name, *type, ShapeOf(tensor), QuantizeTensor(tensor, *type));
  return {};
}

// Which layers a part has: of a model of `n_layers`.
Status CheckLayers(const GgufFile& model, const std::string& architecture, const std::vector<int>& layers) {
  LS_ASSIGN(const uint64_t n_layers, model.GetUint(architecture + ".block_count"));
  const bool ascend = std::ranges::adjacent_find(layers, std::greater_equal()) == layers.end();
  if (layers.front() < 0 || std::cmp_greater_equal(layers.back(), n_layers) || !ascend) {
    return InvalidArgument(model.path() + ": has layers 0 to " + std::to_string(n_layers - 1) +
                           ", of which some are kept, each once and in this order");
  }
  const Architecture* const known = FindArchitecture(architecture);
  if (known != nullptr && known->is_plain_but_for_head_norms()) return {};
  return Unsupported(model.path() + ": layers of architecture " + architecture +
                     " are not left out: what one does depends on which one it is");
}

// Of a tensor of layer N the name that it has in a part of these layers; empty: it is left out. Others keep
// theirs.
std::string NameInPart(std::string_view name, const std::vector<int>& layers) {
  constexpr std::string_view kLayer = "blk.";
  if (layers.empty() || !name.starts_with(kLayer)) return std::string(name);
  int layer = 0;
  const char* const digits = name.data() + kLayer.size();
  const auto [end, error] = std::from_chars(digits, name.data() + name.size(), layer);
  const auto at = std::ranges::lower_bound(layers, layer);
  if (error != std::errc() || at == layers.end() || *at != layer) return "";
  return std::string(kLayer) + std::to_string(at - layers.begin()) +
         std::string(name.substr(static_cast<size_t>(end - name.data())));
}

}  // namespace

Status WriteLmPart(const GgufFile& model, const LmPart& part, const std::string& path) {
  const TensorView* const head = HeadIn(model);
  const bool is_draft = head == nullptr || model.FindTensor(kDraftVocabTensor) != nullptr;
  const auto& [layers, vocab, type] = part;
  if (!vocab.empty() && (is_draft || vocab.back() >= head->n_rows() || !CanDequantize(head->dtype))) {
    return InvalidArgument(model.path() +
                           ": the head of a whole model of these tokens is reduced, not this one");
  }
  GgufWriter writer;
  for (const auto& [key, value] : model.metadata()) writer.SetValue(key, value);
  if (!layers.empty()) {
    LS_ASSIGN(const std::string architecture, model.GetString("general.architecture"));
    LS_TRY(CheckLayers(model, architecture, layers));
    writer.SetUint32(architecture + ".block_count", static_cast<uint32_t>(layers.size()));
  }
  for (const TensorView& tensor : model.tensors()) {
    if (!vocab.empty() && tensor.name == TensorName(TensorRole::kHead)) continue;
    const std::string name = NameInPart(tensor.name, layers);
    if (!name.empty()) LS_TRY(AddLmTensor(model, tensor, name, type, &writer));
  }
  if (vocab.empty()) return writer.Write(path);
  std::vector<std::byte> bytes;
  const TensorView rows = RowsOf(*head, vocab, !type && HasBlocks(model), &bytes);
  LS_TRY(AddLmTensor(model, rows, kDraftHeadTensor, type, &writer));
  writer.AddTensor(kDraftVocabTensor, DType::kI32, {std::ssize(vocab)}, std::as_bytes(std::span(vocab)));
  return writer.Write(path);
}

Status WriteLmGguf(const GgufFile& lm, DType type, const std::string& path) {
  GgufWriter writer;
  for (const auto& [key, value] : lm.metadata()) writer.SetValue(key, value);
  for (const TensorView& tensor : lm.tensors())
    LS_TRY(AddLmTensor(lm, tensor, std::string(tensor.name), type, &writer));
  return writer.Write(path);
}

Result<LmFile> ReadLmFile(std::shared_ptr<const GgufFile> draft, const TensorView& embedding,
                          const TensorView& head) {
  if (draft->FindTensor(TensorName(TensorRole::kEmbedding)) != nullptr)
    return ReadWholeLm(std::move(draft), embedding.n_rows());
  LmFile lm;
  lm.of_target = true;
  auto file = std::make_shared<FileWithTensors>(draft);
  file->Add(TensorRole::kEmbedding, embedding);
  LS_ASSIGN(lm.spec, ReadModelSpec(*file, {}));
  const TensorView* const vocab = draft->FindTensor(kDraftVocabTensor);
  if (vocab != nullptr) {
    LS_ASSIGN(lm.vocab, ReadDraftVocab(draft->path(), *vocab, lm.spec.n_vocab));
    std::vector<std::byte> bytes;
    TensorView rows = RowsOf(head, lm.vocab, HasBlocks(*draft), &bytes);
    file->Add(TensorRole::kHead, std::move(rows), std::move(bytes));
    lm.spec.tied_embeddings = false;
    lm.spec.n_logits = static_cast<int>(lm.vocab.size());
  } else if (head.data != embedding.data) {
    file->Add(TensorRole::kHead, head);
    lm.spec.tied_embeddings = false;
  }
  lm.file = std::move(file);
  return lm;
}

}  // namespace longspec

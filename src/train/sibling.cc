// SPDX-License-Identifier: Apache-2.0
#include "train/sibling.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "base/status_macros.h"
#include "formats/draft_names.h"
#include "network/describe_target.h"
#include "network/model_spec.h"
#include "network/model_tensors.h"
#include "train/target_weights.h"

namespace longspec::train {
namespace {

// The tokens that both have are the same ones. Families pad one vocabulary to different sizes.
Status CheckTokens(const GgufFile& file, const GgufFile& target) {
  LS_ASSIGN(const std::vector<std::string> own, file.GetStrings("tokenizer.ggml.tokens"));
  LS_ASSIGN(const std::vector<std::string> tokens, target.GetStrings("tokenizer.ggml.tokens"));
  const auto [a, b] = std::ranges::mismatch(own, tokens);
  if (a == own.end() || b == tokens.end()) return {};
  return InvalidArgument("--sibling: token " + std::to_string(a - own.begin()) + " of " + file.path() +
                         " is not the target's");
}

// Rows of the embedding that stand for each of `n_tokens` tokens. Products in `type`: of a vocabulary of
// 150,000 tokens they are as many as a pass over thousands of tokens takes.
at::Tensor StandIns(const at::Tensor& embedding, const std::vector<int64_t>& vocab, int64_t n_tokens,
                    at::ScalarType type) {
  constexpr int64_t kAtOnce = 1024;
  const auto unit = [&](const at::Tensor& of) {
    const at::Tensor rows = embedding.index_select(0, of);
    return (rows / rows.norm(2, 1, true).clamp_min(1e-6)).to(type);
  };
  const at::Tensor chosen = at::tensor(vocab, at::kLong).to(embedding.device());
  const at::Tensor known = unit(chosen).t();
  std::vector<int64_t> without;
  for (int64_t token = 0; token < std::min(n_tokens, embedding.size(0)); ++token) {
    if (!std::ranges::binary_search(vocab, token)) without.push_back(token);
  }
  const at::Tensor others = at::tensor(without, at::kLong).to(embedding.device());
  const at::Tensor rows = at::zeros({n_tokens}, chosen.options());
  for (int64_t begin = 0; begin < others.numel(); begin += kAtOnce) {
    const at::Tensor some = others.slice(0, begin, std::min(others.numel(), begin + kAtOnce));
    rows.index_copy_(0, some, at::matmul(unit(some), known).argmax(1));
  }
  return rows.index_copy_(0, chosen, at::arange(chosen.numel(), chosen.options()));
}

// Of a file that was cut: what it has.
Status ReadCut(const GgufFile& file, const ModelSpec& spec, int64_t n_tokens, Sibling* sibling) {
  LS_ASSIGN(sibling->embedding,
            LoadRows(file, TensorName(TensorRole::kEmbedding), spec.n_vocab, spec.n_embd));
  sibling->head = sibling->embedding;
  if (file.FindTensor(kDraftHeadTensor) != nullptr) {
    LS_ASSIGN(sibling->head, LoadRows(file, kDraftHeadTensor, spec.n_vocab, spec.n_embd));
  }
  const TensorView& rows = *file.FindTensor(kDraftStandInTensor);
  if (rows.dtype != DType::kI32 || rows.n_elements() != n_tokens)
    return Corrupt(file.path() + ": tensor " + kDraftStandInTensor + " must have an I32 for each token");
  std::vector<int32_t> stand_ins(Z(n_tokens));
  std::memcpy(stand_ins.data(), rows.data, stand_ins.size() * sizeof(int32_t));
  const auto is_row = [&](int32_t row) { return row >= 0 && row < spec.n_vocab; };
  if (!std::ranges::all_of(stand_ins, is_row))
    return Corrupt(file.path() + ": tensor " + kDraftStandInTensor + " names rows that are not there");
  sibling->stand_ins = at::tensor(stand_ins, at::kInt).to(at::kLong);
  return {};
}

// Of a whole model: rows of these tokens.
Status CutRows(const GgufFile& file, const ModelSpec& spec, int64_t n_tokens,
               const std::vector<int64_t>& vocab, at::Device device, at::ScalarType type, Sibling* sibling) {
  // Of one matrix in two types the values differ by so much of their length at most.
  constexpr double kRounding = 0.1;
  const int64_t width = spec.n_embd;
  LS_ASSIGN(at::Tensor embedding, LoadRows(file, TensorName(TensorRole::kEmbedding), spec.n_vocab, width));
  embedding = embedding.to(device);
  const at::Tensor chosen = at::tensor(vocab, at::kLong).to(device);
  sibling->embedding = embedding.index_select(0, chosen);
  sibling->head = sibling->embedding;
  if (!spec.tied_embeddings) {
    LS_ASSIGN(const at::Tensor head, LoadRows(file, TensorName(TensorRole::kHead), spec.n_vocab, width));
    sibling->head = head.to(device).index_select(0, chosen);
    const at::Tensor difference = (sibling->head - sibling->embedding).norm();
    // Published files have the head in the finer type.
    if (difference.item<double>() < kRounding * sibling->head.norm().item<double>())
      sibling->embedding = sibling->head;
  }
  sibling->stand_ins = StandIns(embedding, vocab, n_tokens, type);
  return {};
}

}  // namespace

bool IsCut(const GgufFile& file) { return file.FindTensor(kDraftStandInTensor) != nullptr; }

Result<std::shared_ptr<const Sibling>> LoadSibling(std::shared_ptr<const GgufFile> file,
                                                   const GgufFile& target, const FeatureTarget& described,
                                                   const std::vector<int64_t>& vocab, at::Device device,
                                                   at::ScalarType type) {
  const at::NoGradGuard no_grad;
  LS_ASSIGN(const ModelSpec spec, ReadModelSpec(*file, {}));
  auto sibling = std::make_shared<Sibling>();
  sibling->shape = DescribeTarget(spec, *file);
  const bool is_cut = IsCut(*file);
  if (is_cut ? std::ssize(vocab) != spec.n_vocab : vocab.empty() || vocab.back() >= spec.n_vocab) {
    return InvalidArgument("--sibling: " + file->path() + " has " + std::to_string(spec.n_vocab) +
                           " tokens, which are not those that the draft is to choose among");
  }
  if (is_cut) {
    LS_TRY(ReadCut(*file, spec, described.n_vocab, sibling.get()));
  } else {
    LS_TRY(CheckTokens(*file, target));
    LS_TRY(CutRows(*file, spec, described.n_vocab, vocab, device, type, sibling.get()));
  }
  for (at::Tensor* tensor : {&sibling->embedding, &sibling->head, &sibling->stand_ins})
    *tensor = tensor->to(device);
  if (sibling->head.sizes() == sibling->embedding.sizes() && sibling->head.equal(sibling->embedding))
    sibling->head = sibling->embedding;
  sibling->loss_head = sibling->head.to(type);
  sibling->file = std::move(file);
  return std::shared_ptr<const Sibling>(std::move(sibling));
}

}  // namespace longspec::train

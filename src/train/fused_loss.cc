// SPDX-License-Identifier: Apache-2.0
#include "train/fused_loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/size.h"
#include "train/bf16_product.h"
#include "train/row_kernels.h"

namespace longspec::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In the head's type, with the logarithms of counts, if there are any.
at::Tensor Scores(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& log_counts) {
  const at::Tensor input = hidden.to(head.scalar_type());
  return log_counts.defined() ? at::addmm(log_counts.to(head.scalar_type()), input, head.t())
                              : at::matmul(input, head.t());
}

// Of some rows: the sum of their losses, and of each of them what its logits' gradient is, in the type of the
// head.
struct PartLoss {
  at::Tensor sum, factor;
};

// Whether losses behind that head take the way of Bf16LossOf.
bool HaveBf16Rows(const at::Tensor& head) {
  return head.scalar_type() == at::kBFloat16 && HasBf16Rows(head.device());
}

struct LossHeads {
  at::Tensor of_logits, of_labels;
};

// Computed with, and kept in more than bf16.
at::ScalarType WiderType(const at::Tensor& head) {
  return head.scalar_type() == at::kBFloat16 ? at::kFloat : head.scalar_type();
}

PartLoss LossOf(const at::Tensor& hidden, const LossHeads& heads, const Targets& targets) {
  const at::ScalarType type = WiderType(heads.of_logits);
  at::Tensor log_shares = at::log_softmax(Scores(hidden, heads.of_logits, targets.log_counts), 1, type);
  at::Tensor sum = (log_shares.gather(1, targets.ids) * targets.weights).sum(at::kDouble).neg(), expected;
  if (targets.states.defined()) {
    expected = at::softmax(Scores(targets.states, heads.of_labels, targets.log_counts), 1, type);
    expected.mul_(targets.soft.unsqueeze(1));
    sum = sum - at::linalg_vecdot(expected, log_shares, 1).sum(at::kDouble);
  }
  at::Tensor& error = log_shares.exp_();
  error.scatter_add_(1, targets.ids, -targets.weights);
  if (expected.defined()) error.sub_(expected);
  return {sum, error.to(heads.of_logits.scalar_type())};
}

// The same with logits that stay in bf16. The factor has FullRows(n) rows, of which those after n are nothing
// to go by.
PartLoss Bf16LossOf(const at::Tensor& hidden, const LossHeads& heads, const Targets& targets) {
  const int64_t n = hidden.size(0), width = heads.of_logits.size(0), k = targets.ids.size(1);
  const at::Tensor logits = Scores(FilledUp(hidden), heads.of_logits, targets.log_counts);
  const at::Tensor ids = targets.ids.contiguous(), weights = targets.weights.to(at::kFloat).contiguous();
  at::Tensor labels, soft;
  if (targets.states.defined()) {
    labels = targets.logits.defined() ? targets.logits.contiguous()
                                      : Scores(FilledUp(targets.states), heads.of_labels, targets.log_counts);
    soft = targets.soft.to(at::kFloat).contiguous();
  }
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    RowLabels row = {.ids = {ids.const_data_ptr<int64_t>() + i * k, Z(k)},
                     .weights = {weights.const_data_ptr<float>() + i * k, Z(k)}};
    if (labels.defined()) {
      row.scores = labels.const_data_ptr<at::BFloat16>() + i * width;
      row.soft = soft.const_data_ptr<float>()[i];
    }
    sum += CrossEntropyRow({logits.mutable_data_ptr<at::BFloat16>() + i * width, Z(width)}, row);
  }
  return {at::full({}, sum, at::kDouble), logits};
}

class Fused : public torch::autograd::Function<Fused> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& head,
                            const at::Tensor& ids, const at::Tensor& weights, const at::Tensor& states,
                            const at::Tensor& soft, const at::Tensor& label_logits,
                            const at::Tensor& label_head, const at::Tensor& log_counts,
                            int64_t rows_at_once) {
    const int64_t n = hidden.size(0);
    const bool rows_of_bf16 = HaveBf16Rows(head);
    Targets targets = {.ids = ids, .weights = weights};
    if (states.numel() > 0) {
      targets.states = states;
      targets.soft = soft;
    }
    if (label_logits.numel() > 0) targets.logits = label_logits;
    if (log_counts.numel() > 0) targets.log_counts = log_counts;
    at::Tensor gradient = at::empty_like(hidden), head_gradient;
    if (head.requires_grad()) head_gradient = at::zeros(head.sizes(), hidden.options());
    at::Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
    for (int64_t begin = 0; begin < n; begin += rows_at_once) {
      const int64_t end = std::min(n, begin + rows_at_once);
      const at::Tensor part = hidden.slice(0, begin, end);
      const PartLoss loss = rows_of_bf16 ? Bf16LossOf(part, {head, label_head}, targets.Slice(begin, end))
                                         : LossOf(part, {head, label_head}, targets.Slice(begin, end));
      total += loss.sum;
      gradient.slice(0, begin, end).copy_(at::matmul(loss.factor, head).slice(0, 0, end - begin));
      if (head_gradient.defined()) {
        const at::Tensor factor = loss.factor.slice(0, 0, end - begin);
        head_gradient.add_(at::matmul(factor.t(), part.to(head.scalar_type())).to(hidden.scalar_type()));
      }
    }
    const auto rows = static_cast<double>(n);
    gradient.div_(rows);
    if (head_gradient.defined()) head_gradient = head_gradient.div_(rows).to(head.scalar_type());
    context->save_for_backward({gradient, head_gradient});
    return (total / rows).to(hidden.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor head;
    if (saved[1].defined()) head = saved[1] * gradients[0];
    return {saved[0] * gradients[0], head, {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

Targets Targets::Select(const at::Tensor& rows) const {
  Targets selected = {.ids = ids.index_select(0, rows), .weights = weights.index_select(0, rows)};
  if (states.defined()) {
    selected.states = states.index_select(0, rows);
    selected.soft = soft.index_select(0, rows);
  }
  if (logits.defined()) selected.logits = logits.index_select(0, rows);
  selected.log_counts = log_counts;
  return selected;
}

Targets Targets::Slice(int64_t begin, int64_t end) const {
  Targets part = {.ids = ids.slice(0, begin, end), .weights = weights.slice(0, begin, end)};
  if (states.defined()) {
    part.states = states.slice(0, begin, end);
    part.soft = soft.slice(0, begin, end);
  }
  if (logits.defined()) part.logits = logits.slice(0, begin, end);
  part.log_counts = log_counts;
  return part;
}

Targets Targets::WithLogits(const at::Tensor& head) const {
  constexpr int64_t kMostLogits = int64_t{1} << 26;
  Targets with = *this;
  if (!states.defined() || !HaveBf16Rows(head) || n() * head.size(0) > kMostLogits) return with;
  const at::NoGradGuard no_grad;
  with.logits = Scores(FilledUp(states), head, log_counts).slice(0, 0, n());
  return with;
}

Targets Targets::To(at::Device device) const {
  Targets there = {.ids = ids.to(device), .weights = weights.to(device)};
  if (states.defined()) {
    there.states = states.to(device);
    there.soft = soft.to(device);
  }
  if (logits.defined()) there.logits = logits.to(device);
  if (log_counts.defined()) there.log_counts = log_counts.to(device);
  return there;
}

int64_t RowsAtOnce(const at::Tensor& head) {
  constexpr int64_t kOfCpu = 256, kLogitsOfGpu = int64_t{1} << 27;
  return head.device().is_cpu() ? kOfCpu : std::max(kOfCpu, kLogitsOfGpu / head.size(0));
}

at::Tensor FusedCrossEntropy(const at::Tensor& hidden, const at::Tensor& head, const Targets& targets,
                             int64_t rows_at_once, const at::Tensor& label_head) {
  const at::Tensor none = at::empty({0});  // arguments must be defined
  const bool soft = targets.states.defined();
  if (rows_at_once == 0) rows_at_once = RowsAtOnce(head);
  return Fused::apply(hidden, head, targets.ids, targets.weights, soft ? targets.states : none,
                      soft ? targets.soft : none, targets.logits.defined() ? targets.logits : none,
                      label_head.defined() ? label_head : head.detach(),
                      targets.log_counts.defined() ? targets.log_counts : none, rows_at_once);
}

}  // namespace longspec::train

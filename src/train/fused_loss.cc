// SPDX-License-Identifier: Apache-2.0
#include "train/fused_loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace longspec::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In the head's type; logits in the type of the hidden states.
at::Tensor Logits(const at::Tensor& hidden, const at::Tensor& head) {
  const at::Tensor logits = at::matmul(hidden.to(head.scalar_type()), head.t());
  return head.scalar_type() == at::kBFloat16 ? logits.to(at::kFloat) : logits;
}

class Fused : public torch::autograd::Function<Fused> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& head,
                            const at::Tensor& ids, const at::Tensor& weights, const at::Tensor& states,
                            const at::Tensor& soft, const at::Tensor& label_head, int64_t rows_at_once) {
    const int64_t n = hidden.size(0);
    at::Tensor gradient = at::empty_like(hidden), head_gradient;
    const bool has_soft = soft.numel() > 0;
    if (head.requires_grad()) head_gradient = at::zeros(head.sizes(), hidden.options());
    at::Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
    for (int64_t begin = 0; begin < n; begin += rows_at_once) {
      const int64_t end = std::min(n, begin + rows_at_once);
      const at::Tensor id = ids.slice(0, begin, end), weight = weights.slice(0, begin, end);
      at::Tensor logits = Logits(hidden.slice(0, begin, end), head);
      const at::Tensor log_sum = logits.logsumexp(1);
      at::Tensor expected = (logits.gather(1, id) * weight).sum(1), shares;
      if (has_soft) {
        shares = Logits(states.slice(0, begin, end), label_head).softmax(1);
        shares.mul_(soft.slice(0, begin, end).unsqueeze(1));
        expected = expected + at::linalg_vecdot(shares, logits, 1);
      }
      total += (log_sum - expected).sum(at::kDouble);
      at::Tensor& error = logits.sub_(log_sum.unsqueeze(1)).exp_();
      error.scatter_add_(1, id, -weight);
      if (has_soft) error.sub_(shares);
      const at::Tensor factor = error.to(head.scalar_type());
      gradient.slice(0, begin, end).copy_(at::matmul(factor, head));
      if (head_gradient.defined()) {
        const at::Tensor part = hidden.slice(0, begin, end).to(head.scalar_type());
        head_gradient.add_(at::matmul(factor.t(), part).to(hidden.scalar_type()));
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
    return {saved[0] * gradients[0], head, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

Targets Targets::Select(const at::Tensor& rows) const {
  Targets selected = {.ids = ids.index_select(0, rows), .weights = weights.index_select(0, rows)};
  if (states.defined()) {
    selected.states = states.index_select(0, rows);
    selected.soft = soft.index_select(0, rows);
  }
  return selected;
}

Targets Targets::To(at::Device device) const {
  Targets there = {.ids = ids.to(device), .weights = weights.to(device)};
  if (states.defined()) {
    there.states = states.to(device);
    there.soft = soft.to(device);
  }
  return there;
}

at::Tensor FusedCrossEntropy(const at::Tensor& hidden, const at::Tensor& head, const Targets& targets,
                             int64_t rows_at_once, const at::Tensor& label_head) {
  const at::Tensor none = at::empty({0});  // arguments must be defined
  const bool soft = targets.states.defined();
  return Fused::apply(hidden, head, targets.ids, targets.weights, soft ? targets.states : none,
                      soft ? targets.soft : none, label_head.defined() ? label_head : head.detach(),
                      rows_at_once);
}

}  // namespace longspec::train

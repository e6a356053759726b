// SPDX-License-Identifier: Apache-2.0
#include "train/fused_loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace longspec::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Fused : public torch::autograd::Function<Fused> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& head,
                            const at::Tensor& ids, const at::Tensor& weights, int64_t rows_at_once) {
    const int64_t n = hidden.size(0);
    at::Tensor gradient = at::empty_like(hidden);
    at::Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
    for (int64_t begin = 0; begin < n; begin += rows_at_once) {
      const int64_t end = std::min(n, begin + rows_at_once);
      const at::Tensor id = ids.slice(0, begin, end), weight = weights.slice(0, begin, end);
      at::Tensor logits = at::matmul(hidden.slice(0, begin, end), head.t());
      const at::Tensor log_sum = logits.logsumexp(1);
      total += (log_sum - (logits.gather(1, id) * weight).sum(1)).sum(at::kDouble);
      at::Tensor& error = logits.sub_(log_sum.unsqueeze(1)).exp_();
      error.scatter_add_(1, id, -weight);
      gradient.slice(0, begin, end).copy_(at::matmul(error, head));
    }
    context->save_for_backward({gradient.div_(static_cast<double>(n))});
    return (total / static_cast<double>(n)).to(hidden.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {context->get_saved_variables()[0] * gradients[0], {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor FusedCrossEntropy(const at::Tensor& hidden, const at::Tensor& head, const SparseTargets& targets,
                             int64_t rows_at_once) {
  return Fused::apply(hidden, head, targets.ids, targets.weights, rows_at_once);
}

}  // namespace longspec::train

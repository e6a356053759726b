// SPDX-License-Identifier: Apache-2.0
#include "train/bf16_product.h"

#include <torch/csrc/autograd/custom_function.h>

#include "train/row_kernels.h"

namespace longspec::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Product : public torch::autograd::Function<Product> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor rows = FilledUp(x);
    context->save_for_backward({rows, weight});  // not its copy, of which each product would keep one
    return at::matmul(rows, weight.to(at::kBFloat16).t()).slice(0, 0, x.size(0)).to(at::kFloat);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t n = gradients[0].size(0);
    const at::Tensor gradient = FilledUp(gradients[0]);
    at::Tensor of_x, of_weight;
    if (context->needs_input_grad(0))
      of_x = at::matmul(gradient, saved[1].to(at::kBFloat16)).slice(0, 0, n).to(at::kFloat);
    if (context->needs_input_grad(1)) of_weight = at::matmul(gradient.t(), saved[0]).to(at::kFloat);
    return {of_x, of_weight};
  }
};

}  // namespace

bool HasBf16Rows(at::Device device) { return device.is_cpu() && HasRowKernels(); }

at::Tensor FilledUp(const at::Tensor& x) {
  const int64_t n = x.size(0), full = FullRows(n);
  at::Tensor rows = at::empty({full, x.size(1)}, x.options().dtype(at::kBFloat16));
  rows.slice(0, 0, n).copy_(x);
  rows.slice(0, n, full).zero_();
  return rows;
}

at::Tensor Bf16Product(const at::Tensor& x, const at::Tensor& weight) { return Product::apply(x, weight); }

}  // namespace longspec::train

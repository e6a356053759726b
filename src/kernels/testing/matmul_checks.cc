// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/matmul_checks.h"

#include <vector>

#include "kernels/packing.h"
#include "kernels/tables.h"
#include "kernels/testing/same_bits.h"

namespace longspec::kernels::testing {
namespace {

MatmulShape InWholeBlocks(MatmulShape shape) {
  if (HasSuperBlocks(shape.format)) shape.n_in = (shape.n_in + kSuperBlock - 1) / kSuperBlock * kSuperBlock;
  return shape;
}

// One product's operands; all arithmetics behind one Run.
class Product {
 public:
  explicit Product(const MatmulShape& any_shape)
      : shape_(InWholeBlocks(any_shape)),
        weights_(shape_.format, shape_.n_in, shape_.n_out, shape_.fill, 1),
        x_stride_(shape_.n_in + 5),
        y_stride_(shape_.n_out + 3),
        before_(Random(3).Floats(static_cast<size_t>(shape_.n_rows) * static_cast<size_t>(y_stride_))) {
    if (HasSuperBlocks(shape_.format)) {
      super_blocks_ = TestActivationsQ8K(shape_.n_rows, shape_.n_in, shape_.fill, 2);
    } else if (IsQuantized(shape_.format)) {
      blocks_ = TestActivations(shape_.n_rows, shape_.n_in, shape_.fill, 2);
    } else {
      floats_ = Random(2).Floats(static_cast<size_t>(x_stride_ * (shape_.n_rows - 1) + shape_.n_in));
    }
    if (!IsInBf16(shape_.format)) return;
    for (int row = 0; row < shape_.n_rows; ++row) {
      kReferenceTable.round_bf16(floats_.data() + row * x_stride_, static_cast<int>(shape_.n_in),
                                 Rounded(row));
    }
  }

  // What y holds before any product: never zero, so that both `add` and stray writes show.
  std::vector<float> Before() const { return before_; }
  int n_groups() const { return weights_.n_groups(); }

  void Run(const KernelTable& table, int row, int n_rows, int group_begin, int group_end,
           std::vector<float>& y) const {
    const auto product = [&](auto args) {
      args.w = &weights_.matrix();
      args.y = y.data() + row * y_stride_;
      args.y_stride = y_stride_;
      args.n_rows = n_rows;
      args.group_begin = group_begin;
      args.group_end = group_end;
      args.add = shape_.add;
      return args;
    };
    if (HasSuperBlocks(shape_.format)) {
      table.matmul_q8k(product(MatmulQ8KArgs{.x = super_blocks_.data() + row * (shape_.n_in / kSuperBlock)}));
    } else if (IsQuantized(shape_.format)) {
      table.matmul_q8(product(MatmulQ8Args{.x = blocks_.data() + row * (shape_.n_in / kQuantBlock)}));
    } else if (IsInBf16(shape_.format)) {
      table.matmul_bf16(product(MatmulBf16Args{.x = Rounded(row), .x_stride = RoundedStride()}));
    } else {
      table.matmul_float(
          product(MatmulFloatArgs{.x = floats_.data() + row * x_stride_, .x_stride = x_stride_}));
    }
  }

 private:
  int64_t RoundedStride() const { return (shape_.n_in + kAmxBlock - 1) / kAmxBlock * kAmxBlock; }
  uint16_t* Rounded(int row) const {
    return reinterpret_cast<uint16_t*>(rounded_.data()) + row * RoundedStride();
  }

  MatmulShape shape_;
  TestMatrix weights_;
  int64_t x_stride_, y_stride_;
  std::vector<float> before_;
  std::vector<Q8Block> blocks_;
  std::vector<Q8KBlock> super_blocks_;
  std::vector<float> floats_;
  mutable AlignedBytes rounded_{static_cast<size_t>(shape_.n_rows * RoundedStride()) * sizeof(uint16_t)};
};

::testing::AssertionResult Named(::testing::AssertionResult result, const MatmulShape& s) {
  return result << " (" << Name(s.format) << ", n_in " << s.n_in << ", n_out " << s.n_out << ", rows "
                << s.n_rows << (s.add ? ", add)" : ")");
}

}  // namespace

::testing::AssertionResult MatmulSameAsReference(const KernelTable& table, const MatmulShape& shape,
                                                 int group_begin, int group_end) {
  const Product product(shape);
  std::vector<float> expected = product.Before(), actual = product.Before();
  product.Run(kReferenceTable, 0, shape.n_rows, group_begin, group_end, expected);
  product.Run(table, 0, shape.n_rows, group_begin, group_end, actual);
  return Named(SameBits(expected, actual), shape);
}

::testing::AssertionResult MatmulRowsIndependent(const KernelTable& table, const MatmulShape& shape) {
  const Product product(shape);
  std::vector<float> together = product.Before(), apart = product.Before();
  product.Run(table, 0, shape.n_rows, 0, product.n_groups(), together);
  for (int row = 0; row < shape.n_rows; ++row) {
    for (int group = 0; group < product.n_groups(); ++group)
      product.Run(table, row, 1, group, group + 1, apart);
  }
  return Named(SameBits(together, apart), shape);
}

}  // namespace longspec::kernels::testing

// SPDX-License-Identifier: Apache-2.0
#include "train/places.h"

#include <algorithm>
#include <vector>

#include "base/size.h"

namespace longspec::train {

Places::Places(const Ends& ends, at::Device device) : n_(std::ssize(ends)) {
  int64_t begin = 0;
  for (const int64_t end : ends) {
    length_ = std::max(length_, end - begin);
    begin = end;
  }
  length_ = WholePlaces(length_);
  full_ = n_ * length_ == begin;
  if (full_) return;
  std::vector<int64_t> places;
  begin = 0;
  for (int64_t s = 0; s < n_; ++s) {
    for (int64_t i = 0; i < ends[Z(s)] - begin; ++i) places.push_back(s * length_ + i);
    begin = ends[Z(s)];
  }
  places_ = at::tensor(places, at::kLong).to(device);
}

at::Tensor Places::Beside(const at::Tensor& x) const {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = n_ * length_;
  const at::Tensor all = full_ ? x : at::zeros(shape, x.options()).index_copy(0, places_, x);
  shape[0] = length_;
  shape.insert(shape.begin(), n_);
  return all.reshape(shape);
}

at::Tensor Places::Behind(const at::Tensor& x) const {
  const at::Tensor all = x.flatten(0, 1);
  return full_ ? all : all.index_select(0, places_);
}

}  // namespace longspec::train

// SPDX-License-Identifier: Apache-2.0
#include "tensor/state_rows.h"

#include <algorithm>
#include <cstring>

#include "base/size.h"

namespace longspec {
namespace {

class HostStateMemory final : public StateMemory {
 public:
  float* Take(size_t floats) const override { return new float[floats]; }
  void Return(float* at) const override { delete[] at; }
  void Copy(const float* from, size_t floats, float* to) const override {
    if (floats > 0) std::memcpy(to, from, floats * sizeof(float));
  }
  std::span<const float> Read(const float* from, size_t floats, std::vector<float>* /*room*/) const override {
    return {from, floats};
  }
};

}  // namespace

void StateMemory::Gather(const float* from, int width, std::span<const int32_t> rows, float* to,
                         size_t stride) const {
  for (const int32_t row : rows) {
    Copy(from + Z(row) * Z(width), Z(width), to);
    to += stride;
  }
}

std::span<const float> StateMemory::Read(const float* from, size_t floats, std::vector<float>* room) const {
  room->resize(floats);
  Copy(from, floats, room->data());
  return *room;
}

const StateMemory& HostStates() {
  static const HostStateMemory memory;
  return memory;
}

void StateRows::Copy(float* to) const {
  if (n_ > 0) memory_->Copy(rows_, n_floats(), to);
}

void StateRows::Gather(std::span<const int32_t> rows, float* to, size_t stride) const {
  for (const int32_t row : rows) LS_CHECK(row >= 0 && row < n_);
  if (!rows.empty()) memory_->Gather(rows_, width_, rows, to, stride);
}

std::span<const float> StateRows::Read(std::vector<float>* room) const {
  if (n_ == 0) return {};
  return memory_->Read(rows_, n_floats(), room);
}

StateBuffer::~StateBuffer() {
  if (rows_ != nullptr) memory_->Return(rows_);
}

float* StateBuffer::Grow(int n) {
  LS_CHECK(n >= 0);
  if (n_ + n > capacity_) {
    const int capacity = std::max(n_ + n, 2 * capacity_);
    float* const more = memory_->Take(Z(capacity) * Z(width_));
    if (n_ > 0) memory_->Copy(rows_, Z(n_) * Z(width_), more);
    if (rows_ != nullptr) memory_->Return(rows_);
    rows_ = more;
    capacity_ = capacity;
  }
  n_ += n;
  return row(n_ - n);
}

void StateBuffer::Append(const StateRows& of, std::span<const int32_t> rows) {
  LS_CHECK(of.width() == width_);
  of.Gather(rows, Grow(static_cast<int>(rows.size())), Z(width_));
}

}  // namespace longspec

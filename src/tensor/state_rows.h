// SPDX-License-Identifier: Apache-2.0
//
// Rows of states that a pass computed, such as hidden states and queries, where they lie: in host memory
// here, elsewhere in that of a device, whose addresses the host cannot read. Whoever is handed rows copies
// those that it needs, or hands them on to who computes where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace longspec {

// Where floats lie, and who copies them there. Thread-safe.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  // Room for so many, unspecified. Throws std::bad_alloc.
  virtual float* Take(size_t floats) const = 0;
  virtual void Return(float* at) const = 0;

  // `from` lies in this memory, `to` in host memory or in this one.
  virtual void Copy(const float* from, size_t floats, float* to) const = 0;
  // Rows of `from`, (n, width), in this order, each `stride` floats behind the one before.
  virtual void Gather(const float* from, int width, std::span<const int32_t> rows, float* to,
                      size_t stride) const;
  // For the host to read: where they lie, or in `room`.
  virtual std::span<const float> Read(const float* from, size_t floats, std::vector<float>* room) const;
};

// Memory that the host can address.
const StateMemory& HostStates();

// Borrowed, as is their memory.
class StateRows {
 public:
  StateRows() = default;
  // `rows`: (n, width).
  StateRows(const float* rows, int n, int width, const StateMemory& memory = HostStates())
      : rows_(rows), n_(n), width_(width), memory_(&memory) {}

  int size() const { return n_; }
  int width() const { return width_; }
  bool empty() const { return n_ == 0; }
  StateRows From(int first, int n) const {
    LS_CHECK(first >= 0 && n >= 0 && first + n <= n_);
    StateRows part = *this;
    part.rows_ += static_cast<size_t>(first) * static_cast<size_t>(width_);
    part.n_ = n;
    return part;
  }

  // To host memory, or within their own: all of them side by side, or some as StateMemory::Gather has them.
  void Copy(float* to) const;
  void Gather(std::span<const int32_t> rows, float* to, size_t stride) const;
  // All of them, (size, width): StateMemory::Read.
  std::span<const float> Read(std::vector<float>* room) const;

 private:
  size_t n_floats() const { return static_cast<size_t>(n_) * static_cast<size_t>(width_); }

  const float* rows_ = nullptr;
  int n_ = 0, width_ = 0;
  const StateMemory* memory_ = nullptr;
};

// Rows that are kept, in a memory of one's choice. What is handed out is valid until there are more of them.
// Not thread-safe, but for writing rows that are there.
class StateBuffer {
 public:
  // `memory` is borrowed.
  explicit StateBuffer(int width, const StateMemory& memory = HostStates())
      : width_(width), memory_(&memory) {}
  ~StateBuffer();
  StateBuffer(StateBuffer&& other) noexcept
      : width_(other.width_),
        memory_(other.memory_),
        rows_(std::exchange(other.rows_, nullptr)),
        n_(std::exchange(other.n_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  StateBuffer& operator=(StateBuffer&&) = delete;

  int size() const { return n_; }
  StateRows rows() const { return {rows_, n_, width_, *memory_}; }
  // Where it lies, for who computes there, (width).
  float* row(int i) { return rows_ + static_cast<size_t>(i) * static_cast<size_t>(width_); }

  // Adds so many, unspecified, and says where they lie, (n, width). Throws std::bad_alloc.
  float* Grow(int n);
  // Adds these rows of others, which lie in host memory or in this one.
  void Append(const StateRows& of, std::span<const int32_t> rows);
  void Append(const StateRows& all) { all.Copy(Grow(all.size())); }
  void Truncate(int n) { n_ = n < n_ ? n : n_; }

  size_t bytes() const {
    return static_cast<size_t>(capacity_) * static_cast<size_t>(width_) * sizeof(float);
  }

 private:
  const int width_;
  const StateMemory* const memory_;
  float* rows_ = nullptr;
  int n_ = 0, capacity_ = 0;
};

}  // namespace longspec

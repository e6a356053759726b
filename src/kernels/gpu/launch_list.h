// SPDX-License-Identifier: Apache-2.0
//
// Launches of bodies (cta.h) in the order in which they are to follow each other, with their arguments by
// value: what a pass is, before a runtime (runtime.h) starts it.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace longspec::kernels::gpu {

// The number of a body among those that a runtime launches (bodies.h).
template <class Body>
consteval int BodyNumber();

class LaunchList {
 public:
  template <class Body>
  void Add(const typename Body::Args& args) {
    using Args = typename Body::Args;
    static_assert(std::is_trivially_copyable_v<Args> && alignof(Args) <= kAlignment);
    const size_t at = (args_.size() + kAlignment - 1) / kAlignment * kAlignment;
    args_.resize(at + sizeof(Args));
    std::memcpy(args_.data() + at, &args, sizeof(Args));
    launches_.push_back({.number = BodyNumber<Body>(), .at = at, .same = &Same<Args>});
  }
  void Clear() {
    launches_.clear();
    args_.clear();
  }
  size_t size() const { return launches_.size(); }

  // f(number of a body, its arguments), in order.
  template <typename F>
  void ForEach(const F& f) const {
    for (const Launch& launch : launches_) f(launch.number, ArgsOf(launch));
  }

  // The same bodies with the same arguments: numbers and addresses. What lies at these is not looked at.
  bool operator==(const LaunchList& other) const {
    if (size() != other.size()) return false;
    for (size_t i = 0; i < size(); ++i) {
      const Launch &a = launches_[i], &b = other.launches_[i];
      if (a.number != b.number || !a.same(ArgsOf(a), other.ArgsOf(b))) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kAlignment = alignof(std::max_align_t);

  struct Launch {
    int number;
    size_t at;
    bool (*same)(const void*, const void*);
  };

  // By fields: nobody knows what lies between them.
  template <typename Args>
  static bool Same(const void* a, const void* b) {
    return *static_cast<const Args*>(a) == *static_cast<const Args*>(b);
  }
  const void* ArgsOf(const Launch& launch) const { return args_.data() + launch.at; }

  std::vector<Launch> launches_;
  std::vector<std::byte> args_;
};

}  // namespace longspec::kernels::gpu

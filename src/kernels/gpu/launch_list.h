// SPDX-License-Identifier: Apache-2.0
//
// Launches of bodies (cta.h) in the order in which they are to follow each other, with their arguments by
// value: what a pass is, before a runtime (runtime.h) starts it. What is fetched from the host's memory goes
// on beside what follows, until that waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/gpu/fetch_chunks.h"

namespace longspec::kernels::gpu {

// The number of a body among those that a runtime launches (bodies.h).
template <class Body>
consteval int BodyNumber();

class LaunchList {
 public:
  template <class Body>
  void Add(const typename Body::Args& args) {
    AddWith(What::kLaunch, BodyNumber<Body>(), args);
  }
  // Runtime's functions of these names.
  void BeginFetch(int place, const FetchChunks::Args& args) { AddWith(What::kBeginFetch, place, args); }
  void AwaitFetch(int place) { AddWith(What::kAwaitFetch, place, Nothing()); }
  void Clear() {
    launches_.clear();
    args_.clear();
  }
  size_t size() const { return launches_.size(); }

  // to.LaunchBody(number of a body, its arguments), to.BeginFetch(place, args) and to.AwaitFetch(place), in
  // order.
  template <typename To>
  void StartOn(To& to) const {
    for (const Launch& launch : launches_) {
      switch (launch.what) {
        case What::kLaunch:
          to.LaunchBody(launch.number, ArgsOf(launch));
          break;
        case What::kBeginFetch:
          to.BeginFetch(launch.number, *static_cast<const FetchChunks::Args*>(ArgsOf(launch)));
          break;
        case What::kAwaitFetch:
          to.AwaitFetch(launch.number);
      }
    }
  }

  // The same with the same arguments: numbers and addresses. What lies at these is not looked at.
  bool operator==(const LaunchList& other) const {
    if (size() != other.size()) return false;
    for (size_t i = 0; i < size(); ++i) {
      const Launch &a = launches_[i], &b = other.launches_[i];
      if (a.what != b.what || a.number != b.number || !a.same(ArgsOf(a), other.ArgsOf(b))) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kAlignment = alignof(std::max_align_t);

  enum class What : uint8_t { kLaunch, kBeginFetch, kAwaitFetch };
  struct Launch {
    What what;
    int number;  // of a body, or a fetch's place
    size_t at;
    bool (*same)(const void*, const void*);
  };
  struct Nothing {
    bool operator==(const Nothing&) const = default;
  };

  template <typename Args>
  void AddWith(What what, int number, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && alignof(Args) <= kAlignment);
    const size_t at = (args_.size() + kAlignment - 1) / kAlignment * kAlignment;
    args_.resize(at + sizeof(Args));
    std::memcpy(args_.data() + at, &args, sizeof(Args));
    launches_.push_back({.what = what, .number = number, .at = at, .same = &Same<Args>});
  }
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

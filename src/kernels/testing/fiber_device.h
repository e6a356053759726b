// SPDX-License-Identifier: Apache-2.0
//
// The device of kernels/gpu/table.h on which blocks are fibers, one block after the other, in a random order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/gpu/cta.h"
#include "kernels/testing/fiber_block.h"
#include "kernels/testing/fiber_cta.h"

namespace longspec::kernels::testing {

// What the next launches leave out.
extern GpuFaults gpu_faults;

class FiberDevice {
 public:
  // A copy, exactly as large as said and aligned as a GPU's memory is.
  template <typename T>
  class In {
   public:
    In(const T* host, size_t n) : bytes_(NewBytes(n * sizeof(T))) {
      if (n > 0) std::memcpy(bytes_.get(), host, n * sizeof(T));
    }
    const T* get() const { return reinterpret_cast<const T*>(bytes_.get()); }

   private:
    std::unique_ptr<std::byte[]> bytes_;
  };

  template <typename T>
  class InOut {
   public:
    InOut(T* host, size_t n) : host_(host), n_bytes_(n * sizeof(T)), bytes_(NewBytes(n_bytes_)) {
      if (n > 0) std::memcpy(bytes_.get(), host, n_bytes_);
    }
    ~InOut() {
      if (n_bytes_ > 0) std::memcpy(host_, bytes_.get(), n_bytes_);
    }
    InOut(const InOut&) = delete;
    InOut& operator=(const InOut&) = delete;
    T* get() const { return reinterpret_cast<T*>(bytes_.get()); }

   private:
    T* host_;
    size_t n_bytes_;
    std::unique_ptr<std::byte[]> bytes_;
  };

  template <typename T>
  class Scratch {
   public:
    explicit Scratch(size_t n) : bytes_(NewBytes(n * sizeof(T))) {
      std::memset(bytes_.get(), 0xB7, n * sizeof(T));
    }
    T* get() const { return reinterpret_cast<T*>(bytes_.get()); }

   private:
    std::unique_ptr<std::byte[]> bytes_;
  };

  template <typename Body>
  static void Launch(const typename Body::Args& args) {
    struct Call {
      const typename Body::Args& args;
      FiberBlock& fibers;
      gpu::Grid grid;
      int x = 0, y = 0;
    };
    const gpu::Grid grid = Body::GridOf(args);
    Call call = {args, Fibers(), grid};
    for (const int block : Order(grid.width * grid.height)) {
      call.x = block % grid.width;
      call.y = block / grid.width;
      call.fibers.Run(
          Body::kThreads, grid.shared_bytes, NextSeed(), gpu_faults,
          [](void* argument, int thread) {
            const Call& c = *static_cast<Call*>(argument);
            Body::Run(FiberCta(&c.fibers, thread, c.x, c.y, c.grid.width), c.args);
          },
          &call);
    }
  }

 private:
  static std::unique_ptr<std::byte[]> NewBytes(size_t n);
  static FiberBlock& Fibers();
  static uint32_t NextSeed();
  static std::vector<int> Order(int n_blocks);
};

}  // namespace longspec::kernels::testing

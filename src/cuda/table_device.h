// SPDX-License-Identifier: Apache-2.0
//
// The device of kernels/gpu/table.h that is a GPU. Arguments lie exactly as long as said, so that
// compute-sanitizer sees what is read or written beside them.
#pragma once

#include "cuda/runtime.h"

namespace longspec::cuda {

class TableDevice {
 public:
  template <typename T>
  class In {
   public:
    In(const T* host, size_t n) : bytes_(n * sizeof(T)) {
      MustSucceed(cudaMemcpy(bytes_.get(), host, bytes_.size(), cudaMemcpyHostToDevice), "copy to the card");
    }
    const T* get() const { return reinterpret_cast<const T*>(bytes_.get()); }

   private:
    DeviceBytes bytes_;
  };

  template <typename T>
  class InOut {
   public:
    InOut(T* host, size_t n) : host_(host), in_(host, n), n_bytes_(n * sizeof(T)) {}
    ~InOut() {
      MustSucceed(cudaMemcpy(host_, in_.get(), n_bytes_, cudaMemcpyDeviceToHost), "copy from the card");
    }
    InOut(const InOut&) = delete;
    InOut& operator=(const InOut&) = delete;
    T* get() const { return const_cast<T*>(in_.get()); }

   private:
    T* host_;
    In<T> in_;
    size_t n_bytes_;
  };

  template <typename T>
  class Scratch {
   public:
    explicit Scratch(size_t n) : bytes_(n * sizeof(T)) {
      MustSucceed(cudaMemset(bytes_.get(), 0xB7, bytes_.size()), "memory of the card");
    }
    T* get() const { return reinterpret_cast<T*>(bytes_.get()); }

   private:
    DeviceBytes bytes_;
  };

  template <typename Body>
  static void Launch(const typename Body::Args& args) {
    cuda::Launch<Body>(args, nullptr);
  }
};

}  // namespace longspec::cuda

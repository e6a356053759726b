// SPDX-License-Identifier: Apache-2.0
//
// A layer of a cache for the host to read: where it lies, or a copy.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/kv_span.h"
#include "kv/kv_mover.h"

namespace longspec {

class ReadableSpan {
 public:
  // The chunks that slots [begin, end) lie in. `of` is the layer's, and `mover` who moves what lies there.
  ReadableSpan(const KvSpan& of, const KvMover& mover, int begin, int end);
  ReadableSpan(const ReadableSpan&) = delete;
  ReadableSpan& operator=(const ReadableSpan&) = delete;

  const KvSpan& span() const { return span_; }

 private:
  std::vector<const std::byte*> chunks_;
  std::vector<std::vector<std::byte>> copies_;
  KvSpan span_;
};

}  // namespace longspec

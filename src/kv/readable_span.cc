// SPDX-License-Identifier: Apache-2.0
#include "kv/readable_span.h"

#include "attention/attention_work.h"
#include "base/size.h"

namespace longspec {

ReadableSpan::ReadableSpan(const KvSpan& of, const KvMover& mover, int begin, int end)
    : chunks_(Z(ChunksOf(end))), copies_(chunks_.size()), span_(of) {
  const size_t bytes = of.layout.layer_bytes();
  for (size_t chunk = Z(begin / kKvChunk); chunk < chunks_.size(); ++chunk)
    chunks_[chunk] = mover.Read(of.chunks[chunk] + of.layer_offset, bytes, &copies_[chunk]).data();
  span_.chunks = chunks_.data();
  span_.layer_offset = 0;
}

}  // namespace longspec

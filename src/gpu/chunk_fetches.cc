// SPDX-License-Identifier: Apache-2.0
#include "gpu/chunk_fetches.h"

#include "base/check.h"
#include "base/size.h"

namespace longspec {

void ChunkFetches::Begin() {
  most_chunks_ = on_host_.fetched();
  fetches_.clear();
  n_begun_ = n_read_ = 0;
}

std::byte* ChunkFetches::PlaceFor(size_t layer_bytes) {
  place_bytes_ = most_chunks_ * layer_bytes;
  if (places_.size() < Z(Runtime::kFetches) * place_bytes_) {
    places_ = GpuBuffer();
    places_ = GpuBuffer(card_, Z(Runtime::kFetches) * place_bytes_);
  }
  return places_.data();
}

void ChunkFetches::BeginNext() {
  if (n_begun_ == fetches_.size()) return;
  const auto place = static_cast<int>(n_begun_ % Z(Runtime::kFetches));
  Args& fetch = fetches_[n_begun_++];
  fetch.to = places_.data() + Z(place) * place_bytes_;
  LS_CHECK(Z(fetch.n) <= most_chunks_);
  launches_->BeginFetch(place, fetch);
}

void ChunkFetches::Start() {
  for (int i = 0; i < Runtime::kFetches; ++i) BeginNext();
}

int64_t ChunkFetches::Next() {
  LS_CHECK(n_read_ < n_begun_);
  const auto place = static_cast<int>(n_read_ % Z(Runtime::kFetches));
  launches_->AwaitFetch(place);
  return static_cast<int64_t>(Z(place) * place_bytes_);
}

void ChunkFetches::Release() {
  ++n_read_;
  BeginNext();
}

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// One GGUF file's bytes to metadata and tensor views. Nothing is allocated for a count before the bytes that
// it asks for are known to be there. A pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"

namespace longspec {

struct GgufContents {
  uint32_t version = 0;
  uint64_t n_bytes = 0;
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<TensorView> tensors;  // views into the bytes parsed
};

// `name` is what errors call the file. Keys are unique in the result; tensor names are the caller's to
// compare, since a model may have several files.
Result<GgufContents> ParseGguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace longspec

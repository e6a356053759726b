// SPDX-License-Identifier: Apache-2.0
//
// build/fuzz/fuzz/session_file_fuzz -max_len=4096 <scratch folder> src/formats/testdata/fuzz_session_file
#include <vector>

#include "base/check.h"
#include "formats/session_file.h"

// Once as it is, and once with checksums that are right, so that what they cover is looked at.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                               reinterpret_cast<const std::byte*>(data) + size);
  for (int round = 0; round < 2; ++round) {
    const auto contents = longspec::ParseSession(bytes, "fuzz");
    if (contents.ok()) {
      LS_CHECK(contents->chunks.size() == contents->n_chunks());
      for (const auto& chunk : contents->chunks) {
        LS_CHECK(chunk.data() >= bytes.data() && chunk.data() + chunk.size() <= bytes.data() + bytes.size());
      }
    } else {
      LS_CHECK(contents.status().message().starts_with("fuzz: "));
    }
    longspec::SealSession(bytes);
  }
  return 0;
}

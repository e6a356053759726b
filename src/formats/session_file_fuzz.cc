// SPDX-License-Identifier: Apache-2.0
//
// build/dev/fuzz/session_file_fuzz -max_len=4096 <scratch folder> src/formats/testdata/fuzz_session_file
#include <vector>

#include "base/check.h"
#include "formats/session_file.h"
#include "formats/string_list.h"

// Once as it is, and once with checksums that are right, so that what they cover is looked at.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                               reinterpret_cast<const std::byte*>(data) + size);
  for (int round = 0; round < 2; ++round) {
    const auto contents = longspec::ParseSession(bytes, "fuzz");
    if (contents.ok()) {
      LS_CHECK(contents->chunks.size() == contents->n_chunks());
      const auto inside = [&](std::span<const std::byte> part) {
        return part.data() >= bytes.data() && part.data() + part.size() <= bytes.data() + bytes.size();
      };
      for (const auto& chunk : contents->chunks) LS_CHECK(inside(chunk));
      for (const longspec::SessionSection& section : contents->sections) {
        LS_CHECK(inside(section.bytes) && contents->Find(section.name) == &section);
        const auto strings = longspec::UnpackStrings(section.bytes, section.name);
        if (strings.ok()) LS_CHECK(longspec::PackStrings(*strings).size() == section.bytes.size());
      }
    } else {
      LS_CHECK(contents.status().message().starts_with("fuzz: "));
    }
    longspec::SealSession(bytes);
  }
  return 0;
}

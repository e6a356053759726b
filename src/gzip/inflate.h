// SPDX-License-Identifier: Apache-2.0
//
// Decompressing bytes that are in memory.
#pragma once

#include <cstddef>
#include <string>

namespace longspec {

// `coded` is gzip, of several files after each other too, or in zlib's own form. False: it is damaged or cut
// short, or has more than most_bytes, which then are in *out. REQUIRES: out->empty()
bool Inflate(std::string coded, size_t most_bytes, std::string* out);

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// build/dev/fuzz/safetensors_fuzz -max_len=4096 <scratch folder> src/formats/testdata/safetensors_corpus
#include <cstdint>
#include <cstdlib>

#include "formats/safetensors_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // What is read must survive writing.
  if (longspec::SafetensorsFile::Parse(bytes, "fuzz").ok() && !longspec::ExerciseSafetensors(bytes))
    std::abort();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// build/dev/fuzz/gguf_fuzz -max_len=4096 <scratch folder> src/formats/testdata/gguf_corpus
#include "formats/gguf_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  longspec::ExerciseGguf(std::as_bytes(std::span(data, size)));
  return 0;
}

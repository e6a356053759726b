// SPDX-License-Identifier: Apache-2.0
//
// build/dev/fuzz/ngram_prior_fuzz -max_len=4096 <scratch folder> src/formats/testdata/fuzz_ngram_prior
#include "formats/ngram_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const longspec::Status status = longspec::ExerciseNgrams(std::as_bytes(std::span(data, size)));
  LS_CHECK(status.ok() || status.message().starts_with("fuzz: "));
  return 0;
}

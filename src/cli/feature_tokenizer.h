// SPDX-License-Identifier: Apache-2.0
//
// What makes tokens of training documents (features/run.h): a model's tokenizer and its chat template.
#pragma once

#include "features/run.h"
#include "formats/gguf.h"
#include "longspec/engine.h"

namespace longspec::cli {

// `engine` must outlive it. `file`: the model's, for the token that ends a text.
FeatureTokenizer FeatureTokenizerOf(const Engine& engine, const GgufFile& file);

}  // namespace longspec::cli

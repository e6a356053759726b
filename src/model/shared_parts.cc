// SPDX-License-Identifier: Apache-2.0
#include "model/shared_parts.h"

#include <string>

#include "tensor/dequantize.h"

namespace longspec {

Status SharedParts::Embed(int32_t token, float* x) const {
  if (token < 0 || token >= sizes->n_vocab) {
    return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                           std::to_string(sizes->n_vocab));
  }
  DequantizeRow(embedding.dtype, embedding.row(token), sizes->n_embd, x);
  return {};
}

}  // namespace longspec

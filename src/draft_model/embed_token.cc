// SPDX-License-Identifier: Apache-2.0
#include "draft_model/embed_token.h"

#include <string>

#include "tensor/dequantize.h"

namespace longspec {

Status EmbedToken(const SharedParts& target, int32_t token, float* x) {
  if (token < 0 || token >= target.config->n_vocab) {
    return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                           std::to_string(target.config->n_vocab));
  }
  DequantizeRow(target.embedding.dtype, target.embedding.row(token), target.config->n_embd, x);
  return {};
}

}  // namespace longspec

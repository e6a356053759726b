// SPDX-License-Identifier: Apache-2.0
//
// The fields of a request that say how tokens are chosen and where an answer ends.
#pragma once

#include "openai/fields.h"
#include "openai/requests.h"

namespace longspec::openai {

// temperature and its kin, penalties, logit_bias, seed, samplers.
void ParseSampling(Endpoint endpoint, Fields& fields, ApiRequest* request);
// max_tokens and its other names, min_tokens, truncate_prompt_tokens.
void ParseLimits(Endpoint endpoint, Fields& fields, GenerationRequest* request);
// stop, stop_token_ids, include_stop_str_in_output, ignore_eos.
void ParseEnds(Fields& fields, GenerationRequest* request);
// allowed_token_ids, bad_words.
void ParseTokenRules(Fields& fields, GenerationRequest* request);

}  // namespace longspec::openai

// SPDX-License-Identifier: Apache-2.0
//
// What `info` tells about a model file, from its header alone. Free functions; thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "longspec/engine.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/device.h"
#include "network/model_spec.h"

namespace longspec {

// Path, size, parameters, element types, tokenizer and chat template: true of any GGUF.
void DescribeFile(const GgufFile& file, const ModelOptions& options, ModelInfo* info);

// The shape of the network and its position encoding.
void DescribeNetwork(const ModelSpec& spec, ModelInfo* info);

// The same for a network that does not run, as far as its file tells, and the reason why it does not.
void DescribeOtherNetwork(const GgufFile& file, const Status& why, ModelInfo* info);

void DescribeDevice(const DeviceFacts& device, ModelInfo* info);

// Which arithmetic (docs/arithmetic.md) each operation of this model uses.
void DescribeOperations(const ModelSpec& spec, const GgufFile& file, const ModelOptions& options,
                        ModelInfo* info);

}  // namespace longspec

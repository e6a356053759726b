// SPDX-License-Identifier: Apache-2.0
//
// Where LibTorch computes, as options name it, and how it reports what it cannot do.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "longspec/status.h"

namespace longspec::train {

// "cpu", "cuda" or "cuda:N". Errors name --device: kInvalidArgument of another name or a GPU that is not
// there, kUnsupported without any.
Result<at::Device> ParseDevice(const std::string& name);

// What LibTorch throws, out of memory above all, as one line.
Status StatusOf(const c10::Error& error);

}  // namespace longspec::train

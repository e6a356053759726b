// SPDX-License-Identifier: Apache-2.0
//
// Whether a request shows a key: as Authorization: Bearer KEY or X-Api-Key: KEY.
#pragma once

#include <string>
#include <vector>

#include "server/exchange.h"

namespace longspec::server {

// One of `keys`; where there are none, nothing has to be shown. Takes as long for wrong ones as for right
// ones.
bool HasKey(const HttpRequest& request, const std::vector<std::string>& keys);

}  // namespace longspec::server

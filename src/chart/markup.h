// SPDX-License-Identifier: Apache-2.0
//
// Text inside SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace longspec {

// Fit for content and for attributes in double quotes. Control characters other than tab and line feed, which
// XML cannot hold at all, become spaces.
std::string EscapeMarkup(std::string_view text);

}  // namespace longspec

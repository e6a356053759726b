// SPDX-License-Identifier: Apache-2.0
//
// Which types of JSON a schema lets a value have, as far as a look at it tells. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

namespace longspec::chat {

// A set of types.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kNullType = 1, kBooleanType = 2, kIntegerType = 4, kFractionType = 8,
                           kStringType = 16, kArrayType = 32, kObjectType = 64, kAnyType = 127;

// A set of one.
JsonTypes TypeOf(const nlohmann::ordered_json& value);

// What `schema` refers to, in `root`; itself where it refers to nothing that is there.
const nlohmann::ordered_json& ResolveReferences(const nlohmann::ordered_json& schema,
                                                const nlohmann::ordered_json& root);

// What `schema` allows; what is not understood allows anything. `root` is what its references are looked up
// in.
JsonTypes TypesOf(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

// Of the argument `name` of a function whose arguments' schema is `parameters`. Null: none says anything.
const nlohmann::ordered_json* SchemaOfArgument(const nlohmann::ordered_json& parameters,
                                               std::string_view name);

}  // namespace longspec::chat

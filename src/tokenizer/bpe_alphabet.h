// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's printable byte alphabet: each of the 256 bytes has a character of its own, so that vocabularies and
// merges can be written as text. Bytes that print stand for themselves, the others for U+0100 and up.
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longspec {

// The character of a byte, in UTF-8.
std::string AlphabetCharacter(uint8_t byte);

// The bytes that a text in the alphabet stands for. What is outside the alphabet (special tokens may hold
// anything) stands for itself.
std::string BytesFromAlphabet(std::string_view text);

}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// What form an answer must have, under llama.cpp's names: --grammar, --grammar-file, --json-schema (-j) and
// --json-schema-file (-jf).
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec::cli {

struct GrammarFlags {
  std::string grammar, grammar_file, json_schema, json_schema_file;
};

void AddGrammarOptions(CLI::App& app, GrammarFlags* flags);
bool ReadsStandardInput(const GrammarFlags& flags);
// kInvalidArgument if several are given.
Result<GrammarText> ReadGrammar(const GrammarFlags& flags);

}  // namespace longspec::cli

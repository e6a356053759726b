// SPDX-License-Identifier: Apache-2.0
#include "cli/grammar_flags.h"

#include <CLI/Option.hpp>

#include "base/status_macros.h"
#include "cli/options.h"
#include "cli/prompt.h"

namespace longspec::cli {

void AddGrammarOptions(CLI::App& app, GrammarFlags* flags) {
  const std::string group = "Form of the answer";
  app.add_option("--grammar", flags->grammar, "Grammar of the answer, as text (GBNF)")
      ->check(CheckNotEmpty)
      ->group(group);
  app.add_option("--grammar-file", flags->grammar_file,
                 "File with the grammar of the answer; -: standard input")
      ->check(CheckNotEmpty)
      ->group(group);
  app.add_option("-j,--json-schema", flags->json_schema,
                 "JSON schema of the answer, as text; {} is any JSON value")
      ->check(CheckNotEmpty)
      ->group(group);
  app.add_option("--json-schema-file", flags->json_schema_file,
                 "File with the JSON schema of the answer (-jf); -: standard input")
      ->check(CheckNotEmpty)
      ->group(group);
}

bool ReadsStandardInput(const GrammarFlags& flags) {
  return flags.grammar_file == "-" || flags.json_schema_file == "-";
}

Result<GrammarText> ReadGrammar(const GrammarFlags& flags) {
  using Kind = GrammarText::Kind;
  GrammarText text;
  int n_given = 0;
  const auto take = [&](Kind kind, const std::string& given, bool is_file) -> Status {
    if (given.empty()) return {};
    ++n_given;
    text.kind = kind;
    text.text = given;
    if (is_file) {
      LS_ASSIGN(text.text, ReadInput(given));
    }
    return {};
  };
  LS_TRY(take(Kind::kGbnf, flags.grammar, false));
  LS_TRY(take(Kind::kGbnf, flags.grammar_file, true));
  LS_TRY(take(Kind::kJsonSchema, flags.json_schema, false));
  LS_TRY(take(Kind::kJsonSchema, flags.json_schema_file, true));
  if (n_given > 1)
    return InvalidArgument(
        "--grammar, --grammar-file, --json-schema and --json-schema-file: give one of them");
  return text;
}

}  // namespace longspec::cli

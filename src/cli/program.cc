// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/lab.h"
#include "longspec/version.h"

namespace longspec::cli {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"run", "Generate text from a prompt or a document", SetUpRun},
      {"chat", "Talk with the model", SetUpChat},
      {"batch", "Answer a file of requests, several at a time", SetUpBatch},
      {"serve", "Serve the model over HTTP to clients of OpenAI's API and llama-server", SetUpServe},
      {"info", "Show model, tokenizer, CPU, kernels and memory plan", SetUpInfo},
      {"tokenize", "Show the tokens of a text", SetUpTokenize},
      {"selfcheck", "Compare plain and speculative output, bit by bit", SetUpSelfcheck},
      {"bench", "Measure prefill, decoding and steps with many rows", SetUpBench},
      {"perplexity", "Measure how well the model foretells a text, by position", SetUpPerplexity},
      {"corpus", "Index texts for --spec-type suffix --spec-corpus", SetUpCorpus},
      {"convert", "Turn a draft model into a GGUF file, and back", SetUpConvert},
      {"eval", "Measure speed and quality on task files, by context length", SetUpEval},
      {"features", "Run the model over text, for training", SetUpFeatures},
      {"train", "Train a LongSpec draft model (longspec-train, built on request)", SetUpTrain},
  };
  return commands;
}

namespace {

std::string CommandNames() {
  std::string names;
  for (const Command& command : Commands()) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

OptionKind KindOf(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr) return OptionKind::kUnknown;
  return option->get_items_expected_max() > 0 ? OptionKind::kValued : OptionKind::kFlag;
}

// CLI11 wants the last argument first.
void Parse(CLI::App& app, std::vector<std::string> args) {
  std::reverse(args.begin(), args.end());
  app.parse(std::move(args));
}

int ShowHelp(const CLI::App& app) { return WriteOutput(app.help()); }

// What the library turns into no Status: memory and threads that the system does not give.
int RunGuarded(const Runner& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return Fail(kExitResources, "out of memory");
  } catch (const std::length_error&) {
    return Fail(kExitResources, "out of memory: an input is too large");
  } catch (const std::exception& error) {
    return Fail(kExitResources, error.what());
  }
}

int RunCommand(const Command& command, std::vector<std::string> args) {
  CLI::App app(command.description, std::string("longspec ") + command.name);
  app.footer(kExitCodeHelp);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const Runner run = command.setup(app);
  RefuseEmptyNumbers(app);
  const std::string hint = std::string(" (longspec ") + command.name + " --help lists the options)";
  auto normalized =
      NormalizeArguments(std::move(args), [&app](const std::string& name) { return KindOf(app, name); });
  if (!normalized.ok()) return Fail(kExitUsage, normalized.status().message() + hint);
  try {
    Parse(app, normalized->args);
  } catch (const CLI::CallForHelp&) {
    return ShowHelp(app);
  } catch (const CLI::ExtrasError&) {
    const std::string extra = app.remaining().front();
    return Fail(kExitUsage,
                (extra.starts_with('-') ? "unknown option " : "unexpected argument ") + extra + hint);
  } catch (const CLI::ParseError& error) {
    return Fail(kExitUsage, error.what() + hint);
  }
  for (const std::string& warning : normalized->warnings) Warn(warning);
  return RunGuarded(run);
}

int RunTopLevel(std::vector<std::string> args) {
  CLI::App app("Text from long documents, faster: speculative decoding with bit-identical output.",
               "longspec");
  app.footer(kExitCodeHelp);
  for (const Command& command : Commands()) app.add_subcommand(command.name, command.description);
  bool version = false;
  app.add_flag("--version", version, "Show the version");
  try {
    Parse(app, std::move(args));
  } catch (const CLI::CallForHelp&) {
    return ShowHelp(app);
  } catch (const CLI::ParseError& error) {
    return Fail(kExitUsage, std::string(error.what()) + " (longspec --help shows how to use it)");
  }
  if (version) return WriteOutput("longspec " LONGSPEC_VERSION "\n");
  return Fail(kExitUsage,
              "no command given; one of " + CommandNames() + " (longspec --help shows how to use it)");
}

}  // namespace

int RunProgram(std::vector<std::string> args) {
  ReserveStandardStreams();
  IgnoreWriteSignals();
  AddLab();
  if (args.empty() || args.front().starts_with('-')) return RunTopLevel(std::move(args));
  const std::string name = args.front();
  for (const Command& command : Commands()) {
    if (name == command.name) return RunCommand(command, {args.begin() + 1, args.end()});
  }
  return Fail(kExitUsage, "unknown command '" + name + "'; one of " + CommandNames());
}

}  // namespace longspec::cli

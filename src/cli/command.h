// SPDX-License-Identifier: Apache-2.0
//
// The subcommands. To add one: write its setup function in a file of its own, declare it here and give it a
// line in program.cc.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <vector>

namespace longspec::cli {

// Runs the command with the options that were parsed; returns the exit status.
using Runner = std::function<int()>;

struct Command {
  const char* name;
  const char* description;
  // Declares the command's options on `app` and returns what runs it afterwards.
  Runner (*setup)(CLI::App& app);
};

const std::vector<Command>& Commands();

Runner SetUpRun(CLI::App& app);
Runner SetUpChat(CLI::App& app);
Runner SetUpBatch(CLI::App& app);
Runner SetUpServe(CLI::App& app);
Runner SetUpInfo(CLI::App& app);
Runner SetUpTokenize(CLI::App& app);
Runner SetUpSelfcheck(CLI::App& app);
Runner SetUpBench(CLI::App& app);
Runner SetUpPerplexity(CLI::App& app);
Runner SetUpCorpus(CLI::App& app);
Runner SetUpConvert(CLI::App& app);
Runner SetUpEval(CLI::App& app);
Runner SetUpFeatures(CLI::App& app);
Runner SetUpTrain(CLI::App& app);

}  // namespace longspec::cli

// SPDX-License-Identifier: Apache-2.0
//
// cuda_check: what a card is, whether it has the reference's bits for all halves and for exp of all floats,
// and what steps cost on it. The suites of kernels are kernels_cuda_test's.
//
//   cuda_check [--exp-step N] [--seconds S] [--attention S] [--products 1] [--rows MOST] [--out
//   evidence.json]
//   cuda_check --digest
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "cuda/attention_grid.h"
#include "cuda/product_times.h"
#include "cuda/proofs.h"
#include "cuda/runtime.h"
#include "cuda/step_grid.h"
#include "digest.h"

namespace longspec::cuda {
namespace {

struct Options {
  uint32_t exp_step = 1;
  double seconds = 60, attention_seconds = 0;
  int most_rows = 2048;
  bool products = false;
  const char* out = nullptr;
};

void PrintSteps(const std::vector<StepTime>& steps) {
  std::printf("\n%-20s %5s %7s %10s  %s\n", "model", "rows", "context", "ms",
              "kinds: ms, TB/s, T operations/s");
  for (const StepTime& step : steps) {
    std::printf("%-20s %5d %7d %10.3f ", step.model, step.rows, step.context, step.ms);
    for (const KindTime& kind : step.kinds) {
      std::printf(" | %s %.3f %.2f %.1f", kind.kind.c_str(), kind.ms, kind.bytes / kind.ms * 1e-9,
                  kind.operations / kind.ms * 1e-9);
    }
    std::printf("\n");
  }
}

void PrintAttention(const std::vector<AttentionTime>& times) {
  if (times.empty()) return;
  std::printf("\n%-20s %5s %5s %7s %7s %5s %10s %9s %9s %14s\n", "attention of", "type", "rows", "context",
              "entries", "ring", "ms", "merge ms", "TB/s", "T operations/s");
  for (const AttentionTime& t : times) {
    std::printf("%-20s %5s %5d %7d %7d %5d %10.4f %9.4f %9.2f %14.1f\n", t.model, t.type, t.rows, t.context,
                t.entries, t.ring, t.ms, t.merge_ms, t.bytes / t.ms * 1e-9, t.operations / t.ms * 1e-9);
  }
}

void WriteAttention(std::FILE* f, const std::vector<AttentionTime>& times) {
  std::fprintf(f, "  \"attention\": [");
  for (const AttentionTime& t : times) {
    std::fprintf(
        f,
        "%s\n    {\"model\": \"%s\", \"type\": \"%s\", \"rows\": %d, \"context\": %d, \"entries\": %d, "
        "\"ring\": %d, \"ms\": %.5g, \"merge_ms\": %.5g, \"bytes\": %.5g, \"operations\": %.5g}",
        &t == times.data() ? "" : ",", t.model, t.type, t.rows, t.context, t.entries, t.ring, t.ms,
        t.merge_ms, t.bytes, t.operations);
  }
  std::fprintf(f, "\n  ],\n");
}

void WriteComparison(std::FILE* f, const char* name, const Comparison& c) {
  std::fprintf(f, "  \"%s\": {\"compared\": %llu, \"different\": %llu, \"first\": \"%08x\"},\n", name,
               static_cast<unsigned long long>(c.compared), static_cast<unsigned long long>(c.different),
               c.first_different);
}

bool Write(const char* path, const cudaDeviceProp& card, int driver, double copy, const Comparison& halves,
           const Comparison& exp, const std::vector<StepTime>& steps,
           const std::vector<AttentionTime>& attention) {
  std::FILE* f = std::fopen(path, "w");
  if (f == nullptr) {
    std::fprintf(stderr, "error: --out %s cannot be written\n", path);
    return false;
  }
  std::fprintf(f, "{\n  \"digest\": \"%s\",\n  \"card\": \"%s\",\n  \"compute_capability\": \"%d.%d\",\n",
               kKernelDigest, card.name, card.major, card.minor);
  std::fprintf(f, "  \"multiprocessors\": %d,\n  \"driver\": %d,\n  \"copy_bytes_per_s\": %.4g,\n",
               card.multiProcessorCount, driver, copy);
  WriteComparison(f, "halves", halves);
  WriteComparison(f, "exp", exp);
  WriteAttention(f, attention);
  std::fprintf(f, "  \"steps\": [");
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepTime& s = steps[i];
    std::fprintf(f,
                 "%s\n    {\"model\": \"%s\", \"rows\": %d, \"context\": %d, \"prompt\": %s, \"ms\": %.5g, "
                 "\"kinds\": {",
                 i == 0 ? "" : ",", s.model, s.rows, s.context, s.prompt ? "true" : "false", s.ms);
    for (size_t k = 0; k < s.kinds.size(); ++k) {
      std::fprintf(f, "%s\"%s\": {\"ms\": %.5g, \"bytes\": %.5g, \"operations\": %.5g}", k == 0 ? "" : ", ",
                   s.kinds[k].kind.c_str(), s.kinds[k].ms, s.kinds[k].bytes, s.kinds[k].operations);
    }
    std::fprintf(f, "}}");
  }
  std::fprintf(f, "\n  ]\n}\n");
  return std::fclose(f) == 0;
}

int Check(const Options& options) {
  if (const std::string why = WhyNoDevice(); !why.empty()) {
    std::fprintf(stderr, "error: no kernels ran on a card: %s\n", why.c_str());
    return 2;
  }
  cudaDeviceProp card;
  int driver = 0;
  MustSucceed(cudaGetDeviceProperties(&card, 0), "properties of the card");
  MustSucceed(cudaDriverGetVersion(&driver), "the driver");
  const double copy = CopyRate();
  std::printf("%s, %d.%d, %d multiprocessors, driver for CUDA %d.%d, copies %.2f TB/s (read and written)\n",
              card.name, card.major, card.minor, card.multiProcessorCount, driver / 1000, driver % 1000 / 10,
              copy * 1e-12);
  const Comparison halves = CompareHalves();
  std::printf("halves: %llu compared, %llu differ\n", static_cast<unsigned long long>(halves.compared),
              static_cast<unsigned long long>(halves.different));
  Comparison exp;
  if (options.exp_step > 0)
    exp = CompareExp(options.exp_step, static_cast<int>(std::thread::hardware_concurrency()));
  std::printf("exp: %llu compared, %llu differ\n", static_cast<unsigned long long>(exp.compared),
              static_cast<unsigned long long>(exp.different));
  std::fflush(stdout);
  std::vector<StepTime> steps;
  if (options.seconds > 0) steps = TimeSteps(options.seconds, options.most_rows);
  PrintSteps(steps);
  std::vector<AttentionTime> attention;
  if (options.attention_seconds > 0) attention = TimeAttention(options.attention_seconds);
  PrintAttention(attention);
  if (options.products) PrintProductTimes(stdout);
  if (options.out != nullptr && !Write(options.out, card, driver, copy, halves, exp, steps, attention))
    return 1;
  return halves.different + exp.different == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--digest") == 0) return std::puts(kKernelDigest) < 0 ? 1 : 0;
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value == nullptr) {
      std::fprintf(stderr, "error: %s needs a value\n", name.c_str());
      return 2;
    }
    if (name == "--exp-step") {
      options.exp_step = static_cast<uint32_t>(std::strtoul(value, nullptr, 10));
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--attention") {
      options.attention_seconds = std::strtod(value, nullptr);
    } else if (name == "--products") {
      options.products = std::strcmp(value, "0") != 0;
    } else if (name == "--rows") {
      options.most_rows = static_cast<int>(std::strtol(value, nullptr, 10));
    } else if (name == "--out") {
      options.out = value;
    } else {
      std::fprintf(stderr,
                   "error: there is no option %s; there are --exp-step, --seconds, --attention, --products, "
                   "--rows, --out\n",
                   name.c_str());
      return 2;
    }
  }
  return Check(options);
}

}  // namespace
}  // namespace longspec::cuda

int main(int argc, char** argv) { return longspec::cuda::Main(argc, argv); }

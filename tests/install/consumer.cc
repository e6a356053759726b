// SPDX-License-Identifier: Apache-2.0
//
// A program of a user who installed the library:  consumer [MODEL]
// Without a model it shows that the library is linked and refuses what it should; with one, that it
// generates.
#include <cstdio>
#include <string>

#include "longspec/engine.h"
#include "longspec/version.h"

namespace {

int Fail(const std::string& what) {
  std::fprintf(stderr, "consumer: %s\n", what.c_str());
  return 1;
}

std::string Generate(longspec::Engine& engine, const std::string& speculation) {
  auto session = engine.NewSession();
  if (!session.ok()) return session.status().message();
  longspec::GenerationRequest request;
  request.prompt = "one two three one two three one two";
  request.n_predict = 16;
  request.sampling.temperature = 0;
  request.speculation.type = speculation;
  auto result = engine.Generate(**session, request);
  return result.ok() ? result->text : result.status().message();
}

}  // namespace

int main(int argc, char** argv) {
  auto missing = longspec::Engine::Load({.path = "/nonexistent/model.gguf"});
  if (missing.ok()) return Fail("a model that does not exist was loaded");
  if (missing.status().message().find("/nonexistent/model.gguf") == std::string::npos) {
    return Fail("the message does not name the file: " + missing.status().message());
  }
  if (longspec::SpeculationTypes().empty()) return Fail("there is no drafter");
  if (argc < 2) return 0;

  auto engine = longspec::Engine::Load({.path = argv[1], .ctx_size = 512});
  if (!engine.ok()) return Fail(engine.status().message());
  const std::string plain = Generate(**engine, "none");
  if (plain.empty() || plain != Generate(**engine, "ngram"))
    return Fail("speculation changed the text: " + plain);
  return 0;
}

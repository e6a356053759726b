// SPDX-License-Identifier: Apache-2.0
//
// The table of tensors lists those of a model's file.
#include "network/model_tensors.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "formats/tiny_model.h"

namespace longspec {
namespace {

std::shared_ptr<const GgufFile> TinyFile(const std::string& architecture, bool tied) {
  TinyModelOptions options;
  options.architecture = architecture;
  options.n_layers = 2;
  options.tied = tied;
  const auto bytes = TinyModelBytes(options);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return *GgufFile::Parse(*bytes, "tiny");
}

// What a file has is what the table says, with the same shapes: nothing is left out, and nothing is read
// twice.
TEST(ModelTensors, AreThoseOfTheFile) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const bool tied : {false, true}) {
      const auto file = TinyFile(architecture, tied);
      const auto config = ReadModelSpec(*file, {});
      ASSERT_TRUE(config.ok()) << config.status().message();
      std::set<std::string> of_file, of_table;
      for (const TensorView& tensor : file->tensors()) of_file.insert(tensor.name);
      for (const TensorSpec& spec : TensorsOf(*config)) {
        const bool again = spec.role == TensorRole::kHead && tied;
        EXPECT_EQ(of_table.insert(spec.name).second, !again) << spec.name;
        EXPECT_EQ(TensorIn(*file, spec).shape[0], spec.n_in) << spec.name;
        EXPECT_EQ(TensorIn(*file, spec).n_rows(), spec.n_out) << spec.name;
      }
      EXPECT_EQ(of_table, of_file) << architecture;
    }
  }
}

TEST(ModelTensors, ProductsAreMatricesAndTheHeadIsTheLast) {
  const auto file = TinyFile("qwen2", true);
  const auto config = ReadModelSpec(*file, {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  const std::vector<TensorSpec> products = ProductsOf(*config);
  EXPECT_EQ(products.size(), 2U * 7U + 1U);
  EXPECT_EQ(products.front().name, "blk.0.attn_q.weight");
  EXPECT_EQ(products.back().name, "token_embd.weight");
  for (const TensorSpec& spec : products) EXPECT_GT(spec.n_out, 1) << spec.name;
}

}  // namespace
}  // namespace longspec

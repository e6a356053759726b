// SPDX-License-Identifier: Apache-2.0
//
// A model file with a number that is none: it loads, and a generation ends with an error that says what is
// wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/testing/files.h"
#include "formats/gguf.h"
#include "formats/tiny_model.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BrokenModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModelOptions tiny;
    tiny.dtype = DType::kQ8_0;
    std::vector<std::byte> bytes = *TinyModelBytes(tiny);
    const auto file = *GgufFile::Parse(bytes, "tiny");
    const TensorView* norm = file->FindTensor("blk.1.attn_norm.weight");
    ASSERT_TRUE(norm != nullptr && norm->dtype == DType::kF32);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bytes.data() + (norm->data - bytes.data()), &nan, sizeof(nan));
    path_ = folder_.Write("broken.gguf", bytes);
  }

  const testing::Folder folder_;
  std::string path_;
};

TEST_F(BrokenModelTest, AGenerationEndsWithAnErrorThatSaysSo) {
  ModelOptions options;
  options.path = path_;
  options.threads = 1;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const char* spec : {"none", "ngram", "auto"}) {
    for (const float temperature : {0.0F, 1.0F}) {
      const auto session = (*engine)->NewSession();
      ASSERT_TRUE(session.ok()) << session.status().message();
      GenerationRequest request;
      request.prompt = "abcabcabcab";
      request.n_predict = 8;
      request.sampling.temperature = temperature;
      request.sampling.seed = 1;
      request.speculation.type = spec;
      for (int attempt = 0; attempt < 2; ++attempt) {
        const auto result = (*engine)->Generate(**session, request);
        ASSERT_FALSE(result.ok()) << spec << " " << temperature;
        EXPECT_EQ(result.status().code(), StatusCode::kCorrupt) << result.status().message();
        EXPECT_THAT(
            result.status().message(),
            AllOf(HasSubstr("logits for position 7 are not finite (384 of 384"), HasSubstr("damaged")));
      }
    }
  }
}

}  // namespace
}  // namespace longspec

// SPDX-License-Identifier: Apache-2.0
//
// Which kind of draft a file is, by its own word or by its tensors, and the names each kind has.
#include "draft_model/draft_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "draft_model/draft_files.h"
#include "draft_model/testing/longspec_files.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Tensors of made-up shapes: names and types are all that opening looks at.
class CheckpointTest : public ::testing::Test {
 protected:
  void Write(const std::vector<std::string>& names, const std::string& config) {
    SafetensorsWriter writer;
    for (const std::string& name : names) {
      const bool tokens = name == "d2t" || name == kDraftVocabTensor, mask = name == "t2d";
      const DType type = tokens ? DType::kI64 : mask ? DType::kI8 : DType::kF32;
      const std::vector<std::byte> bytes(64 * RowBytes(type, 1));
      writer.AddTensor(name, type, {32, 2}, bytes);
    }
    std::filesystem::create_directories(Path());
    ASSERT_TRUE(writer.Write(Path() + "/model.safetensors").ok());
    std::ofstream(Path() + "/config.json") << config;
  }
  std::string Path() const { return folder_.File("draft"); }

  std::string Kind(const std::vector<std::string>& names, const std::string& config = "{}") {
    Write(names, config);
    const auto checkpoint = OpenDraftCheckpoint(Path());
    return checkpoint.ok() ? std::string(checkpoint->kind->name) : checkpoint.status().message();
  }

  // All that a kind must have.
  static std::vector<std::string> Names(std::string_view kind) {
    std::vector<std::string> names;
    for (const DraftPart& tensor : FindDraftKind(kind)->tensors({})) {
      if (tensor.required) names.push_back(tensor.tensor);
    }
    return names;
  }

  Folder folder_;
};

TEST_F(CheckpointTest, EveryKindSaysWhatItIs) {
  for (const DraftKind* kind : DraftKinds()) {
    const std::string said = R"({"longspec_draft": ")" + std::string(kind->name) + "\"}";
    EXPECT_EQ(Kind(Names(kind->name), said), kind->name);
  }
  EXPECT_THAT(Kind(Names("eagle"), R"({"longspec_draft": "hawk"})"),
              HasSubstr("\"hawk\" is no kind of draft model; known are " + DraftKindNames()));
  // What it says, it must be.
  EXPECT_THAT(Kind(Names("eagle"), R"({"longspec_draft": "exit"})"),
              HasSubstr("is none that a draft model of kind exit has"));
}

TEST_F(CheckpointTest, PublishedFormsAreToldByTheirTensors) {
  for (const char* kind : {"longspec", "eagle", "eagle3", "beagle", "medusa"}) {
    EXPECT_EQ(Kind(Names(kind)), kind);
  }
  EXPECT_THAT(Kind(Names("exit")), HasSubstr("holds the tensors of no draft model"));
  EXPECT_EQ(Kind(Names("exit"), R"({"longspec_exit_layer": 3})"), "exit");
  EXPECT_THAT(Kind({"linear.weight"}, R"({"medusa_num_heads": 4})"),
              HasSubstr("tensor linear.weight is none that a draft model of kind medusa has"));
  EXPECT_EQ(Kind(Names("eagle3"), R"({"architectures": ["LlamaForCausalLMEagle3"]})"), "eagle3");
}

// vLLM's "speculators" and others name EAGLE-3's layer as EAGLE's is named.
TEST_F(CheckpointTest, Eagle3UnderItsOtherNames) {
  for (const std::string prefix : {"layers.0.", "model.layers.0.", "model.midlayer."}) {
    std::vector<std::string> names = Names("eagle3");
    for (std::string& name : names) {
      if (name.starts_with("midlayer.")) name.replace(0, 9, prefix);
    }
    names.insert(names.end(), {"d2t", "t2d", "embed_tokens.weight"});
    EXPECT_EQ(Kind(names), "eagle3") << prefix;
    EXPECT_NE(OpenDraftCheckpoint(Path())->Find("midlayer.hidden_norm.weight"), nullptr);
  }
}

// The files of Medusa's authors hold the list of heads alone.
TEST_F(CheckpointTest, MedusaUnderItsPublishedNames) {
  const std::vector<std::string> names = {"0.0.linear.weight", "0.0.linear.bias", "0.1.weight",
                                          "1.0.linear.weight", "1.0.linear.bias", "1.1.weight"};
  for (const char* config : {"{}", R"({"medusa_num_heads": 2, "medusa_num_layers": 1})"}) {
    EXPECT_EQ(Kind(names, config), "medusa") << config;
    const auto checkpoint = OpenDraftCheckpoint(Path());
    for (const std::string& name : names) EXPECT_NE(checkpoint->Find("medusa_head." + name), nullptr) << name;
  }
  EXPECT_THAT(Kind({"0.0.linear.weight", "0.0.linear.bias", "0.2.weight"}),
              HasSubstr("tensor medusa_head.0.2.weight is none that"));
}

// As speculators writes it: what it keeps in an object of its own counts as if it stood beside the rest.
TEST_F(CheckpointTest, ALayersConfigurationMayBeNested) {
  std::vector<std::string> names = Names("eagle3");
  names.insert(names.end(), {"d2t", "t2d"});
  Write(names, R"({"speculators_model_type": "eagle3", "target_hidden_size": null, "vocab_size": 380,
                   "transformer_layer_config": {"hidden_size": 64, "num_attention_heads": 2, "head_dim": 32,
                     "rope_theta": 500000.0, "vocab_size": 1, "max_position_embeddings": 4096,
                     "rope_scaling": {"rope_type": "linear", "factor": 2.0}}})");
  const auto checkpoint = OpenDraftCheckpoint(Path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const DraftConfig& config = checkpoint->config;
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.n_head, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.n_vocab, 380);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.rope_scaling, "linear");
  EXPECT_EQ(config.rope_factor, 2.0);
  EXPECT_EQ(config.trained_positions, 8192);
}

TEST_F(CheckpointTest, ATargetsHeadMayBeReduced) {
  for (const DraftKind* kind : DraftKinds()) {
    std::vector<std::string> names = Names(kind->name);
    names.emplace_back(kDraftVocabTensor);
    const std::string said = R"({"longspec_draft": ")" + std::string(kind->name) + "\"}";
    EXPECT_EQ(Kind(names, said) == kind->name, kind->head_of_target) << kind->name;
  }
}

TEST_F(CheckpointTest, EveryKindGoesThroughEveryContainer) {
  for (const DraftKind* kind : DraftKinds()) {
    SCOPED_TRACE(kind->name);
    std::vector<std::string> names = Names(kind->name);
    if (kind->name == "eagle3") names.insert(names.end(), {"d2t", "t2d"});
    Write(names, R"({"longspec_draft": ")" + std::string(kind->name) + "\"}");
    const auto first = OpenDraftCheckpoint(Path());
    ASSERT_TRUE(first.ok()) << first.status().message();
    const std::string gguf = folder_.File("draft.gguf"), back = folder_.File("back");
    ASSERT_TRUE(WriteDraftGguf(*first, DType::kQ8_0, gguf).ok());
    EXPECT_EQ(*DraftFiles().Architecture(gguf), kind->name);
    EXPECT_EQ(*DraftFiles().Architecture(Path()), kind->name);
    const auto packed = OpenDraftCheckpoint(gguf);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    EXPECT_EQ(packed->kind, kind);
    EXPECT_EQ(packed->config.kind, kind->name);
    ASSERT_TRUE(WriteDraftFolder(*packed, std::nullopt, back).ok());
    const auto last = OpenDraftCheckpoint(back);
    ASSERT_TRUE(last.ok()) << last.status().message();
    EXPECT_EQ(last->tensors.size(), names.size());
    std::filesystem::remove_all(back);
  }
}

TEST_F(CheckpointTest, OneKindIsNotAnother) {
  ASSERT_EQ(Kind(Names("eagle")), "eagle");
  DraftFiles files;
  EXPECT_TRUE(files.Draft(Path(), "eagle").ok());
  EXPECT_THAT(files.Draft(Path(), "longspec").status().message(),
              HasSubstr("a draft model of kind eagle, not longspec"));
}

// Truth values are bytes in a safetensors file.
TEST_F(CheckpointTest, BooleansAreRead) {
  std::string header = R"({"t2d":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  bytes += header + std::string("\1\0\0\1", 4);
  const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(bytes)), "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TensorView* mask = (*file)->FindTensor("t2d");
  ASSERT_EQ(mask->dtype, DType::kI8);
  EXPECT_EQ(std::memcmp(mask->data, "\1\0\0\1", 4), 0);
  Write({"fc.weight", "d2t"}, "{}");
  SafetensorsWriter writer;
  const std::vector<std::byte> floats(256);
  for (const std::string& name : Names("eagle3")) writer.AddTensor(name, DType::kF32, {32, 2}, floats);
  writer.AddTensor("t2d", DType::kF32, {32, 2}, floats);
  ASSERT_TRUE(writer.Write(Path() + "/model.safetensors").ok());
  EXPECT_THAT(OpenDraftCheckpoint(Path()).status().message(), HasSubstr("t2d must hold truth values"));
}

TEST_F(CheckpointTest, PicklesAreRefused) {
  std::filesystem::create_directories(Path());
  std::ofstream(Path() + "/pytorch_model.bin") << "PK";
  for (const std::string& path : {Path(), Path() + "/pytorch_model.bin"}) {
    const auto checkpoint = OpenDraftCheckpoint(path);
    EXPECT_EQ(checkpoint.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(checkpoint.status().message(), AllOf(HasSubstr("pytorch_model.bin: a PyTorch pickle"),
                                                     HasSubstr("convert it to model.safetensors")));
  }
}

}  // namespace
}  // namespace longspec::testing

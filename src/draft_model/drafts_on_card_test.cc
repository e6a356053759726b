// SPDX-License-Identifier: Apache-2.0
//
// With a target on a card, here an emulated one, drafters propose what they propose with the target on the
// CPU, and the text is the same: they are given tokens, and copies of what lies there.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/written_text.h"
#include "gpu/gpu_device.h"
#include "kernels/testing/card_under_test.h"
#include "kv/full_cache.h"

namespace longspec::testing {
namespace {

constexpr SamplingOptions kGreedy = {.temperature = 0, .seed = 1};

class DraftsOnCard : public ::testing::Test {
 protected:
  DraftsOnCard() {
    bytes_ = *TinyModelBytes({});
    ModelLoadOptions options;
    options.max_rows = 64;
    card_ = *MakeGpuDevice(kernels::testing::CardUnderTest(), "", 1);
    on_card_ = *card_->Load(*GgufFile::Parse(bytes_, "tiny.gguf"), tiny_.spec, options);
  }

  WrittenText Write(Target& target, const SpeculationOptions& options,
                    const SamplingOptions& sampling) const {
    const KvLayout layout = tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32);
    return WriteText(&target, MakeFullCache(target.NewPool(layout, tiny_.spec.n_layer, {}), 400), options,
                     sampling, 100, 125);
  }

  void ExpectTheSame(const SpeculationOptions& options, const SamplingOptions& sampling = kGreedy) {
    SCOPED_TRACE(options.type + " " + options.draft_model);
    const WrittenText expected = Write(tiny_.target(), options, sampling);
    const WrittenText text = Write(*on_card_, options, sampling);
    EXPECT_EQ(text.tokens, expected.tokens);
    EXPECT_TRUE(text.proposed == expected.proposed);
    EXPECT_GT(text.proposed.size(), 10U);
  }

  Folder folder_;
  TinyTarget tiny_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<Device> card_;
  std::unique_ptr<Target> on_card_;
};

TEST_F(DraftsOnCard, OfTokensAreTheCpus) {
  ExpectTheSame(FewGuesses("ppm"));
  ExpectTheSame(FewGuesses("recycling"));
  ExpectTheSame(FewGuesses("ppm"), {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 3});
  ExpectTheSame(FewGuesses("ppm"), {.temperature = 0.8F, .repeat_penalty = 1.2F, .seed = 3});
}

TEST_F(DraftsOnCard, OfPartsOfTheCacheAreTheCpus) {
  ExpectTheSame(FewGuesses("partial"));
  ExpectTheSame(FewGuesses("magicdec"));
  ExpectTheSame(FewGuesses(
      "tokenswift", WriteBlockDraft(folder_, "tokenswift", tiny_.spec, RandomTokenswift(tiny_.spec, 3, 9))));
}

TEST_F(DraftsOnCard, OfStatesAndKeysAreTheCpus) {
  const ModelSizes& c = tiny_.spec;
  const OwnHeads heads;
  ExpectTheSame(FewGuesses("medusa", WriteBlockDraft(folder_, "medusa", c, RandomMedusa(c, 4, 3), heads)));
  ExpectTheSame(
      FewGuesses("beagle", WriteBlockDraft(folder_, "beagle", c, RandomBeagle(c, heads, 3), heads)));
  ExpectTheSame(FewGuesses("exit", WriteBlockDraft(folder_, "exit", c, RandomExit(c, heads, 3, false), heads,
                                                   {}, ", \"longspec_exit_layer\": 0")));
  ExpectTheSame(FewGuesses("longspec", WriteDraftFolder(folder_, c, RandomDraft(c, 64, 2))));
}

TEST_F(DraftsOnCard, OfEagleAreTheCpus) {
  const EagleShape shape;
  SpeculationOptions eagle = FewGuesses(
      "eagle", WriteEagle(folder_, "eagle", tiny_.spec, shape, RandomEagle(tiny_.spec, shape, 4), {}, ""));
  ExpectTheSame(eagle);
  eagle.spec_extend.chunks = 2;
  eagle.spec_extend.every = 2;
  eagle.spec_extend.from = 60;
  ExpectTheSame(eagle);
}

}  // namespace
}  // namespace longspec::testing

// SPDX-License-Identifier: Apache-2.0
//
// Where a text that is copied with changes goes on.
#include "draft_text/copies.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "draft_text/testing/letters.h"

namespace longspec {
namespace {

using testing::Letters;

// What stands at the likeliest place.
std::string Rest(const Copies& copies, const Copy& place) {
  std::string rest;
  for (size_t at = place.at; copies.TokenAt(place.text, at) >= 0; ++at)
    rest += static_cast<char>(copies.TokenAt(place.text, at));
  return rest;
}

std::string After(std::string_view text, std::string_view answer) {
  Copies copies;
  copies.AddWhole(Letters(text));
  copies.Follow(Letters(answer));
  return copies.places().empty() ? "nowhere" : Rest(copies, copies.places().front());
}

constexpr std::string_view kLines = "open(file);\nread(line);\nprint(line);\nread(line);\nclose(file);\n";

TEST(Copies, OfEqualPlacesTheOneWhereTheTextWasLeftIsLikeliest) {
  EXPECT_EQ(After(kLines, "open(file);\nread(text);\n"), "print(line);\nread(line);\nclose(file);\n");
  EXPECT_EQ(After(kLines, "open(file);\nread(line);\nprint(line);\nread(text);\n"), "close(file);\n");
}

TEST(Copies, ALineMayBeAdded) {
  EXPECT_EQ(After(kLines, "open(file);\nread(line);\nflush();\npri"),
            "nt(line);\nread(line);\nclose(file);\n");
}

TEST(Copies, AndLinesMayBeLeftOut) { EXPECT_EQ(After(kLines, "open(file);\nclo"), "se(file);\n"); }

TEST(Copies, WeightsAreChances) {
  Copies copies;
  copies.AddWhole(Letters(kLines));
  copies.AddBeginning(Letters("xyz"), 0.3);
  std::string answer;
  for (const char c : std::string_view("open(file);\nflush(xx);\nread(nothing);\n")) {
    copies.Follow(Letters(answer += c));
    double sum = 0, last = 1;
    for (const Copy& place : copies.places()) {
      EXPECT_LE(place.weight, last);
      sum += last = place.weight;
    }
    EXPECT_LE(sum, 1 + 1e-9) << answer;
  }
}

TEST(Copies, AnotherAnswerIsFollowedFromItsBeginning) {
  Copies copies, other;
  for (Copies* of : {&copies, &other}) of->AddWhole(Letters(kLines));
  copies.Follow(Letters("open(file);\nread(te"));
  copies.Follow(Letters("open(f"));
  other.Follow(Letters("open(f"));
  ASSERT_EQ(copies.places().size(), other.places().size());
  EXPECT_EQ(Rest(copies, copies.places()[0]), Rest(other, other.places()[0]));
}

TEST(Copies, ALongerCopyIsSurer) {
  for (int run = 1; run < 200; ++run) EXPECT_GT(ChanceOfNext(run), ChanceOfNext(run - 1));
  EXPECT_GT(ChanceOfNext(100), 0.99);
  EXPECT_LT(ChanceOfNext(1), 0.8);
}

}  // namespace
}  // namespace longspec

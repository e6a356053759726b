// SPDX-License-Identifier: Apache-2.0
//
// Gumbel-max sampling: the best key of each part of a row; choice.h joins them. A test in float discards most
// tokens, as cpu/gumbel_search.h has it and proves. K, the key that must be beaten, is that of the part's
// largest logit, or -3.2 if that is more: the row's largest logit has such a key or a better one, so that
// tokens that stay below never win.
#pragma once

#include "base/dice_functions.h"
#include "kernels/gpu/choice.h"
#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

struct GumbelDraw {
  double temperature;
  uint32_t dice[2];
};

struct Gumbel {
  struct Args {
    const float* logits;
    int64_t stride;
    const BestLogit* largest;  // (n_rows) of the logits
    const GumbelDraw* draws;   // (n_rows)
    BestKey* parts;            // (n_rows, n_parts)
    int n, n_rows, n_parts;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 64;

  static Grid GridOf(const Args& a) {
    return {.width = a.n_parts, .height = a.n_rows, .shared_bytes = sizeof(Shared)};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    auto& shared = *reinterpret_cast<Shared*>(cta.Shared());
    const Row<Cta> row(cta, a);
    const BestLogit first = row.Largest().OfBlock(cta, shared.logits);
    if (cta.thread() == 0) shared.first = row.KeyOf(first);
    cta.Sync();
    const BestKey best = row.BestAbove(shared.first).OfBlock(cta, shared.keys);
    if (cta.thread() == 0) a.parts[cta.block_y() * a.n_parts + cta.block()] = best;
  }

 private:
  struct Shared {
    BestKey first, keys[kThreads / kWarp];
    BestLogit logits[kThreads / kWarp];
  };

  static constexpr double kMargin = 1e-3, kOneOverLn2 = 1.44269504088896340736, kMantissaUnit = 1 << 23;
  static constexpr double kLeastKey = -3.2;
  static constexpr float kLeastThreshold = 125 << 23;  // of the float 1/4 as an integer

  template <class Cta>
  class Row {
   public:
    LONGSPEC_GPU Row(const Cta& cta, const Args& a)
        : logits_(a.logits + cta.block_y() * a.stride),
          largest_(a.largest[cta.block_y()].value),
          draw_(a.draws[cta.block_y()]),
          n_(a.n),
          first_counter_(cta.block() * kThreads + cta.thread()),
          counter_step_(a.n_parts * kThreads) {}

    // Of this thread's tokens.
    LONGSPEC_GPU BestLogit Largest() const {
      BestLogit best = BestLogit::None();
      for (int counter = first_counter_; TokenOf(counter, 0) < n_; counter += counter_step_) {
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int token = TokenOf(counter, i);
          if (token >= n_) continue;
          const BestLogit other = {logits_[token], token};
          if (other.IsAbove(best)) best = other;
        }
      }
      return best;
    }

    LONGSPEC_GPU BestKey KeyOf(const BestLogit& logit) const {
      if (logit.index == kNoIndex) return BestKey::None();
      return {KeyOf(logit.value, Words(CounterOf(logit.index))[logit.index / 16 % 4]), logit.index};
    }

    // The best of this thread's tokens and `first`.
    LONGSPEC_GPU BestKey BestAbove(const BestKey& first) const {
      BestKey best = first;
      // What the test is not proved for.
      const bool all =
          !(draw_.temperature >= 0x1p-100 && draw_.temperature <= 0x1p100) || !(largest_ <= 0x1.fffffep127F);
      const double unit = Cta::DDiv(kOneOverLn2 * kMantissaUnit, all ? 1.0 : draw_.temperature);
      const auto scale = static_cast<float>(unit);
      const double least = first.value > kLeastKey ? first.value : kLeastKey;
      const double above = Cta::DSub(31 + 127 + kMargin, Cta::DMul(least, kOneOverLn2));
      const auto offset = static_cast<float>(Cta::DMul(above, kMantissaUnit));
      for (int counter = first_counter_; TokenOf(counter, 0) < n_; counter += counter_step_) {
        float threshold[4];
        bool any = all;
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int token = TokenOf(counter, i);
          threshold[i] = token < n_ ? Cta::Fma(Cta::Sub(logits_[token], largest_), scale, offset) : 0.0F;
          any |= threshold[i] > kLeastThreshold;
        }
        if (!any) continue;
        const auto words = Words(counter);
        for (int i = 0; i < 4; ++i) {
          const int token = TokenOf(counter, i);
          if (token >= n_ || !(all || MayWin(words[static_cast<size_t>(i)], threshold[i]))) continue;
          const BestKey other = {KeyOf(logits_[token], words[static_cast<size_t>(i)]), token};
          if (other.IsAbove(best)) best = other;
        }
      }
      return best;
    }

   private:
    static LONGSPEC_GPU int TokenOf(int counter, int word) {
      return counter / 16 * 64 + 16 * word + counter % 16;
    }
    static LONGSPEC_GPU int CounterOf(int token) { return token / 64 * 16 + token % 16; }

    LONGSPEC_GPU std::array<uint32_t, 4> Words(int counter) const {
      return dice_functions::DiceWords({draw_.dice[0], draw_.dice[1]}, static_cast<uint32_t>(counter));
    }

    static LONGSPEC_GPU bool MayWin(uint32_t bits, float threshold) {
      if (!(threshold > kLeastThreshold)) return false;  // NaN, too
      const int32_t t = threshold < 0x1p31F ? static_cast<int32_t>(threshold) : 0x7FFFFFFF;
      const auto w = static_cast<float>(static_cast<int32_t>(~bits >> 1));
      return static_cast<int32_t>(Cta::ToBits(w)) < t;
    }

    LONGSPEC_GPU double KeyOf(float logit, uint32_t bits) const {
      const double x = logit == largest_ ? 0.0 : Cta::DSub(logit, largest_);
      return Cta::DAdd(Cta::DDiv(x, draw_.temperature), dice_functions::GumbelOf(bits));
    }

    const float* logits_;
    const float largest_;
    const GumbelDraw draw_;
    const int n_, first_counter_, counter_step_;
  };
};

}  // namespace longspec::kernels::gpu

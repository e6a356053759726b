// SPDX-License-Identifier: Apache-2.0
#include "bench/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "sampling/log_softmax.h"

namespace longspec {
namespace {

constexpr int kFirstBucket = 1024;

// The bucket of a position; those before it are made, too.
PositionBucket& BucketOf(std::vector<PositionBucket>& buckets, int position) {
  if (buckets.empty()) buckets.push_back({.from = 0, .to = kFirstBucket, .tokens = {}});
  while (buckets.back().to <= position) {
    const int from = buckets.back().to;
    buckets.push_back({.from = from, .to = from * 2, .tokens = {}});
  }
  return *std::ranges::find_if(buckets, [position](const PositionBucket& b) { return position < b.to; });
}

class PerplexityRun {
 public:
  PerplexityRun(Target& target, const PerplexityOptions& options, const std::function<bool(int)>& on_rows)
      : target_(target), options_(options), on_rows_(on_rows) {}

  // Rows are evaluated in passes and summed up in order, so the sums do not depend on where passes end.
  Status AddWindow(std::span<const int32_t> window, KvCache& cache) {
    const auto n_rows = static_cast<int>(window.size()) - 1;  // the last token has nothing to foretell
    for (int done = 0; done < n_rows;) {
      const int n = std::min(options_.rows, n_rows - done);
      LS_ASSIGN(KvTransaction kv, cache.Begin(n));
      const ForwardSegment segment{
          .tokens = window.subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
          .parents = {},
          .kv = &kv};
      LS_ASSIGN(const TargetOutput output, target_.Forward({&segment, 1}));
      for (int i = 0; i < n; ++i) {
        const int position = done + i + 1;
        const LogitRow logits = output.segments[0].logits[i];
        LS_TRY(logits.Check(static_cast<uint64_t>(position)));
        const double nats =
            -static_cast<double>(LogSoftmax(logits.Read(&row_)).Of(window[static_cast<size_t>(position)]));
        result_.all.Add(nats);
        BucketOf(result_.by_position, position).tokens.Add(nats);
      }
      kv.CommitAll();
      done += n;
      if (on_rows_ && !on_rows_(n)) return Cancelled("stopped");
    }
    ++result_.windows;
    return {};
  }

  const PerplexityResult& result() const { return result_; }

 private:
  Target& target_;
  const PerplexityOptions& options_;
  const std::function<bool(int)>& on_rows_;
  std::vector<float> row_;  // of logits, where it does not lie in host memory
  PerplexityResult result_;
};

}  // namespace

void ForetoldTokens::Add(double nats) {
  ++n;
  sum += nats;
  sum_of_squares += nats * nats;
}

double ForetoldTokens::Mean() const { return sum / static_cast<double>(n); }

double ForetoldTokens::Perplexity() const { return std::exp(Mean()); }

double ForetoldTokens::StandardError() const {
  if (n < 2) return 0.0;
  const double variance = sum_of_squares / static_cast<double>(n) - Mean() * Mean();
  return Perplexity() * std::sqrt(std::max(variance, 0.0) / static_cast<double>(n - 1));
}

Result<PerplexityResult> MeasurePerplexity(Target& target,
                                           const std::function<std::unique_ptr<KvCache>()>& new_cache,
                                           std::span<const int32_t> tokens, const PerplexityOptions& options,
                                           const std::function<bool(int)>& on_rows) {
  const size_t n_beginning = options.beginning.size(),
               length = static_cast<size_t>(std::max(options.window, 0));
  if (length < n_beginning + 1 || length < 2) {
    return InvalidArgument("a context of " + std::to_string(options.window) + " has no token to foretell");
  }
  PerplexityRun run(target, options, on_rows);
  const size_t step = length - n_beginning;
  for (size_t at = 0; at < tokens.size() && run.result().windows != options.most_windows; at += step) {
    std::vector<int32_t> window = options.beginning;
    const std::span<const int32_t> rest = tokens.subspan(at, std::min(step, tokens.size() - at));
    window.insert(window.end(), rest.begin(), rest.end());
    if (window.size() < 2) break;
    const std::unique_ptr<KvCache> cache = new_cache();
    LS_TRY(run.AddWindow(window, *cache));
  }
  if (run.result().all.n == 0) {
    return InvalidArgument("a text of " + std::to_string(tokens.size()) + " tokens has none to foretell");
  }
  return run.result();
}

}  // namespace longspec

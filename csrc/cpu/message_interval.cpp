// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/message_interval.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "../core/jackknife_interval_element.h"
#include "../ops/propagate.h"
#include "balance.h"
#include "lanes.h"

namespace calirare {
namespace {

constexpr int64_t kPartsPerThread = 8;
const Parallel kAlone{1, [](int64_t size, const RangeBody& body) { body(0, size); }};

// Scores of a tile: scores[i] holds all nodes' for model i, from propagated changes moved[lane * m + i].
template <typename T>
CALIRARE_INLINE void link_tile(const T* moved, int64_t m, const T* shift, const T* logits, T scale, T bias, T* scores) {
  using Pack = typename Lanes<T>::Pack;
  Pack logit;
  memcpy(&logit, logits, sizeof logit);
  for (int64_t i = 0; i < m; ++i) {
    Pack x;
    for (int64_t l = 0; l < kLanes<T>; ++l) x[l] = moved[l * m + i];
    x = message_score<T, Pack, typename Lanes<T>::Bits>(x, shift[i], logit, scale, bias);
    memcpy(scores + i * kLanes<T>, &x, sizeof x);
  }
}

// The `count` smallest samples (with from_top the largest, negated) of each lane, ascending: best[j * lanes + l].
// A NaN leaves the order statistics of its lane undefined and sets its flag.
template <typename T>
CALIRARE_INLINE void keep_best(const T* scores, const T* residuals, int64_t m, int side, Kept kept, T* best,
                               bool* has_nan) {
  using Pack = typename Lanes<T>::Pack;
  Pack kept_best[kMostKept];
  for (int64_t j = 0; j < kept.count; ++j) kept_best[j] = Pack{} + std::numeric_limits<T>::infinity();
  Pack nan{};
  for (int64_t i = 0; i < m; ++i) {
    Pack sample;
    memcpy(&sample, scores + i * kLanes<T>, sizeof sample);
    sample = interval_sample(sample, residuals[i], side);
    nan = sample != sample ? Pack{} + T(1) : nan;
    sample = kept.from_top ? -sample : sample;
    for (int64_t j = 0; j < kept.count; ++j) {
      const Pack old = kept_best[j];
      const auto smaller = sample < old;
      kept_best[j] = smaller ? sample : old;
      sample = smaller ? old : sample;
    }
  }
  memcpy(best, kept_best, size_t(kept.count) * sizeof(Pack));
  for (int64_t l = 0; l < kLanes<T>; ++l) has_nan[l] = nan[l] != T(0);
}

CALIRARE_CLONES void link_f32(const float* moved, int64_t m, const float* shift, const float* logits, float scale,
                              float bias, float* scores) {
  link_tile(moved, m, shift, logits, scale, bias, scores);
}
CALIRARE_CLONES void link_f64(const double* moved, int64_t m, const double* shift, const double* logits, double scale,
                              double bias, double* scores) {
  link_tile(moved, m, shift, logits, scale, bias, scores);
}
CALIRARE_CLONES void keep_f32(const float* scores, const float* residuals, int64_t m, int side, Kept kept, float* best,
                              bool* has_nan) {
  keep_best(scores, residuals, m, side, kept, best, has_nan);
}
CALIRARE_CLONES void keep_f64(const double* scores, const double* residuals, int64_t m, int side, Kept kept,
                              double* best, bool* has_nan) {
  keep_best(scores, residuals, m, side, kept, best, has_nan);
}

// What a thread needs for one tile of nodes.
template <typename T>
struct Tile {
  std::vector<T> moved, scores, best, row;
  T logits[kLanes<T>];
  explicit Tile(int64_t m) : moved(kLanes<T> * m), scores(kLanes<T> * m), best(kLanes<T> * kMostKept), row(m) {}
};

// Both order statistics of a node whose samples must be selected among all.
template <typename T>
T selected_end(const T* scores, const T* residuals, int64_t m, int side, QuantileRank rank, std::vector<T>& row) {
  bool has_nan = false;
  for (int64_t i = 0; i < m; ++i) {
    row[i] = interval_sample(scores[i * kLanes<T>], residuals[i], side);
    has_nan |= row[i] != row[i];
  }
  if (has_nan) return std::numeric_limits<T>::quiet_NaN();
  const auto low = row.begin() + rank.low;
  std::nth_element(row.begin(), low, row.end());
  const T high = rank.high == rank.low ? *low : *std::min_element(low + 1, row.end());
  return interpolate(*low, high, rank.fraction, false);
}

template <typename T, typename Keep>
void tile_ends(Tile<T>& tile, int64_t lanes, const T* residuals, int64_t m, const QuantileRank* rank, T* ends,
               Keep keep) {
  for (int side = 0; side < 2; ++side) {
    const Kept kept = kept_of(rank[side], m);
    if (kept.count > kMostKept) {
      for (int64_t l = 0; l < lanes; ++l) {
        ends[2 * l + side] = selected_end(tile.scores.data() + l, residuals, m, side, rank[side], tile.row);
      }
      continue;
    }
    bool has_nan[kLanes<T>];
    keep(tile.scores.data(), residuals, m, side, kept, tile.best.data(), has_nan);
    const bool apart = rank[side].high > rank[side].low;
    for (int64_t l = 0; l < lanes; ++l) {
      const T last = tile.best[(kept.count - 1) * kLanes<T> + l];
      const T before = apart ? tile.best[(kept.count - 2) * kLanes<T> + l] : last;
      ends[2 * l + side] = kept.from_top ? interpolate(-last, -before, rank[side].fraction, has_nan[l])
                                         : interpolate(before, last, rank[side].fraction, has_nan[l]);
    }
  }
}

template <typename T, typename Link, typename Keep>
void message_intervals(const Parallel& parallel, const MessageScores<T>& scores, const T* residuals, const double q[2],
                       T* ends, Link link, Keep keep) {
  const int64_t n = scores.a.n_rows, m = scores.messages.n_cols;
  if (n == 0 || m == 0) return;
  const QuantileRank rank[2] = {quantile_rank(m, q[0]), quantile_rank(m, q[1])};
  const int64_t parts = std::min(n, parallel.threads * kPartsPerThread);
  const auto cuts = balanced_cuts(scores.a.indptr, n, parts);
  parallel.run(parts, [&](int64_t begin, int64_t end) {
    Tile<T> tile(m);
    for (int64_t start = cuts[begin]; start < cuts[end]; start += kLanes<T>) {
      const int64_t lanes = std::min(kLanes<T>, cuts[end] - start);
      const CsrView<T> rows{scores.a.indptr + start, scores.a.indices, scores.a.values, lanes};
      propagate_cpu(kAlone, rows, scores.messages, MatrixView<T>{tile.moved.data(), lanes, m, m});
      for (int64_t l = 0; l < kLanes<T>; ++l) tile.logits[l] = l < lanes ? scores.logits[start + l] : T(0);
      link(tile.moved.data(), m, scores.shift, tile.logits, scores.scale, scores.bias, tile.scores.data());
      tile_ends(tile, lanes, residuals, m, rank, ends + 2 * start, keep);
    }
  });
}

}  // namespace

void message_interval_cpu(const Parallel& parallel, const MessageScores<float>& scores, const float* residuals,
                          const double q[2], float* ends) {
  message_intervals(parallel, scores, residuals, q, ends, link_f32, keep_f32);
}

void message_interval_cpu(const Parallel& parallel, const MessageScores<double>& scores, const double* residuals,
                          const double q[2], double* ends) {
  message_intervals(parallel, scores, residuals, q, ends, link_f64, keep_f64);
}

}  // namespace calirare

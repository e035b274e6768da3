#include "../ops/jackknife_interval.h"

#include <algorithm>
#include <vector>

#include "../core/jackknife_interval_element.h"

namespace calirare {
namespace {

constexpr int64_t kMostKept = 64;  // order statistics found by insertion; beyond it a selection is faster

// The order statistics at rank.low and rank.high counted from the nearer end: the `count` best samples, best first, are
// kept in `work`; most samples are passed over after one comparison. ranked_less is a total order, so ties do not
// matter.
template <typename T, typename Better>
void keep_best(const T* scores, const T* residuals, int64_t m, int side, int64_t count, Better better,
               Ranked<T>* work) {
  int64_t kept = 0;
  for (int64_t i = 0; i < m; ++i) {
    const Ranked<T> sample{interval_sample(scores[i], residuals[i], side), int32_t(i)};
    if (kept == count && !better(sample, work[kept - 1])) continue;
    int64_t at = kept == count ? kept - 1 : kept++;
    for (; at > 0 && better(sample, work[at - 1]); --at) work[at] = work[at - 1];
    work[at] = sample;
  }
}

template <typename T>
void near_end(const T* scores, const T* residuals, int64_t m, int side, QuantileRank rank, std::vector<Ranked<T>>& work,
              T* end, int32_t* places) {
  bool has_nan = false;
  for (int64_t i = 0; i < m; ++i) {
    const T sample = interval_sample(scores[i], residuals[i], side);
    has_nan |= sample != sample;
  }
  const bool from_top = m - rank.low < rank.high + 1;
  const int64_t low = from_top ? m - 1 - rank.low : rank.low, high = from_top ? m - 1 - rank.high : rank.high;
  const auto after = [](Ranked<T> a, Ranked<T> b) { return ranked_less(b, a); };
  if (from_top) {
    keep_best(scores, residuals, m, side, low + 1, after, work.data());
  } else {
    keep_best(scores, residuals, m, side, high + 1, ranked_less<T>, work.data());
  }
  *end = interpolate(work[low].value, work[high].value, rank.fraction, has_nan);
  places[0] = work[low].place;
  places[1] = work[high].place;
}

// One end of one node's interval. `work` is overwritten.
template <typename T>
void interval_end(const T* scores, const T* residuals, int64_t m, int side, QuantileRank rank,
                  std::vector<Ranked<T>>& work, T* end, int32_t* places) {
  if (std::min(rank.high + 1, m - rank.low) <= kMostKept) {
    near_end(scores, residuals, m, side, rank, work, end, places);
    return;
  }
  bool has_nan = false;
  for (int64_t i = 0; i < m; ++i) {
    const T sample = interval_sample(scores[i], residuals[i], side);
    has_nan |= sample != sample;
    work[i] = {sample, int32_t(i)};
  }
  const auto low = work.begin() + rank.low;
  std::nth_element(work.begin(), low, work.end(), ranked_less<T>);
  const auto high = rank.high == rank.low ? low : std::min_element(low + 1, work.end(), ranked_less<T>);
  *end = interpolate(low->value, high->value, rank.fraction, has_nan);
  places[0] = low->place;
  places[1] = high->place;
}

template <typename T>
void intervals(const Parallel& parallel, MatrixView<const T> scores, const T* residuals, const double q[2], T* ends,
               int32_t* places) {
  const int64_t m = scores.n_cols;
  if (scores.n_rows == 0 || m == 0) return;
  const QuantileRank rank[2] = {quantile_rank(m, q[0]), quantile_rank(m, q[1])};
  parallel.run(scores.n_rows, [&](int64_t first, int64_t last) {
    std::vector<Ranked<T>> work(m);
    for (int64_t v = first; v < last; ++v) {
      for (int side = 0; side < 2; ++side) {
        interval_end(scores.data + v * scores.stride, residuals, m, side, rank[side], work, ends + 2 * v + side,
                     places + 4 * v + 2 * side);
      }
    }
  });
}

}  // namespace

void jackknife_interval_cpu(const Parallel& parallel, MatrixView<const float> scores, const float* residuals,
                            const double q[2], float* ends, int32_t* places) {
  intervals(parallel, scores, residuals, q, ends, places);
}

void jackknife_interval_cpu(const Parallel& parallel, MatrixView<const double> scores, const double* residuals,
                            const double q[2], double* ends, int32_t* places) {
  intervals(parallel, scores, residuals, q, ends, places);
}

}  // namespace calirare

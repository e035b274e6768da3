#include "../ops/jackknife_interval.h"

#include <algorithm>
#include <vector>

#include "../core/jackknife_interval_element.h"

namespace calirare {
namespace {

// One end of one node's interval. `work` is overwritten.
template <typename T>
void interval_end(const T* scores, const T* residuals, int64_t m, int side, QuantileRank rank,
                  std::vector<Ranked<T>>& work, T* end, int32_t* places) {
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

// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/jackknife_interval.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../core/jackknife_interval_element.h"
#include "lanes.h"

namespace calirare {
namespace {

// Both order statistics of one end for each node of a tile, as keys and places.
template <typename T>
struct TileEnd {
  typename Lanes<T>::Bits low, high, low_place, high_place, has_nan;
};

// `order_key` of every lane.
template <typename T>
CALIRARE_INLINE typename Lanes<T>::Bits tile_keys(typename Lanes<T>::Pack x) {
  using Bits = typename Lanes<T>::Bits;
  constexpr int kSign = 8 * sizeof(T) - 1;
  Bits bits;
  memcpy(&bits, &x, sizeof bits);
  const Bits negative = Bits{} - (bits >> kSign), top = (Bits{} + 1) << kSign;
  return (bits ^ (negative | top)) | Bits(x != x);
}

// How many of the kept keys come before `key`, and so which of its equals is at place `at` of the sorted samples.
template <typename Bits>
CALIRARE_INLINE Bits wanted_equal(const Bits* best, int64_t at, Bits key) {
  Bits wanted = Bits{} + uint32_t(at);
  for (int64_t j = 0; j < at; ++j) wanted += Bits(best[j] < key);
  return wanted;
}

// `scores` holds a tile, [m, lanes]. The `kept.count` best keys are found by insertion, all lanes at once, and then
// their places: equal samples are ranked by place, from the top backwards.
template <typename T>
CALIRARE_INLINE void tile_end(const T* scores, const T* residuals, int64_t m, int side, QuantileRank rank,
                              TileEnd<T>* end) {
  using Pack = typename Lanes<T>::Pack;
  using Bits = typename Lanes<T>::Bits;
  const Kept kept = kept_of(rank, m);
  const Bits flip = kept.from_top ? ~Bits{} : Bits{};
  Bits best[kMostKept], has_nan{};
  for (int64_t j = 0; j < kept.count; ++j) best[j] = ~Bits{};
  for (int64_t i = 0; i < m; ++i) {
    Pack sample;
    memcpy(&sample, scores + i * kLanes<T>, sizeof sample);
    sample = interval_sample(sample, residuals[i], side);
    has_nan |= Bits(sample != sample);
    Bits key = tile_keys<T>(sample) ^ flip;
    for (int64_t j = 0; j < kept.count; ++j) {
      const Bits old = best[j];
      const auto smaller = key < old;
      best[j] = smaller ? key : old;
      key = smaller ? old : key;
    }
  }
  const int64_t low_at = kept.from_top ? m - 1 - rank.low : rank.low;
  const int64_t high_at = kept.from_top ? m - 1 - rank.high : rank.high;
  const Bits low = best[low_at], high = best[high_at];
  const Bits low_wanted = wanted_equal(best, low_at, low), high_wanted = wanted_equal(best, high_at, high);
  Bits low_seen{}, high_seen{}, low_place{}, high_place{};
  for (int64_t k = 0; k < m; ++k) {
    const int64_t i = kept.from_top ? m - 1 - k : k;
    Pack sample;
    memcpy(&sample, scores + i * kLanes<T>, sizeof sample);
    sample = interval_sample(sample, residuals[i], side);
    const Bits key = tile_keys<T>(sample) ^ flip, place = Bits{} + uint32_t(i);
    const Bits is_low = Bits(key == low), is_high = Bits(key == high);
    low_place |= is_low & Bits(low_seen == low_wanted) & place;
    high_place |= is_high & Bits(high_seen == high_wanted) & place;
    low_seen -= is_low;
    high_seen -= is_high;
  }
  *end = {low ^ flip, high ^ flip, low_place, high_place, has_nan};
}

CALIRARE_CLONES void tile_end_f32(const float* scores, const float* residuals, int64_t m, int side, QuantileRank rank,
                                  TileEnd<float>* end) {
  tile_end(scores, residuals, m, side, rank, end);
}
CALIRARE_CLONES void tile_end_f64(const double* scores, const double* residuals, int64_t m, int side, QuantileRank rank,
                                  TileEnd<double>* end) {
  tile_end(scores, residuals, m, side, rank, end);
}

// One end of one node's interval, its order statistics far from both ends. `work` is overwritten.
template <typename T>
void selected_end(const T* scores, const T* residuals, int64_t m, int side, QuantileRank rank,
                  std::vector<Ranked<T>>& work, T* end, int32_t* places) {
  bool has_nan = false;
  work.resize(m);
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

template <typename T, typename End>
void intervals(const Parallel& parallel, MatrixView<const T> scores, const T* residuals, const double q[2], T* ends,
               int32_t* places, End tile_end) {
  const int64_t n = scores.n_rows, m = scores.n_cols;
  if (n == 0 || m == 0) return;
  const QuantileRank rank[2] = {quantile_rank(m, q[0]), quantile_rank(m, q[1])};
  parallel.run((n + kLanes<T> - 1) / kLanes<T>, [&](int64_t first, int64_t last) {
    std::vector<T> tile(kLanes<T> * m);
    std::vector<Ranked<T>> work;
    TileEnd<T> found;
    for (int64_t start = first * kLanes<T>; start < std::min(n, last * kLanes<T>); start += kLanes<T>) {
      const int64_t lanes = std::min(kLanes<T>, n - start);
      for (int64_t l = 0; l < kLanes<T>; ++l) {
        const T* row = scores.data + (start + std::min(l, lanes - 1)) * scores.stride;  // the last row fills the tile
        for (int64_t i = 0; i < m; ++i) tile[i * kLanes<T> + l] = row[i];
      }
      for (int side = 0; side < 2; ++side) {
        const bool near = kept_of(rank[side], m).count <= kMostKept;
        if (near) tile_end(tile.data(), residuals, m, side, rank[side], &found);
        for (int64_t l = 0; l < lanes; ++l) {
          const int64_t v = start + l;
          T* end = ends + 2 * v + side;
          int32_t* place = places + 4 * v + 2 * side;
          if (!near) {
            selected_end(scores.data + v * scores.stride, residuals, m, side, rank[side], work, end, place);
            continue;
          }
          *end = interpolate(number_of(found.low[l]), number_of(found.high[l]), rank[side].fraction,
                             found.has_nan[l] != 0);
          place[0] = int32_t(found.low_place[l]);
          place[1] = int32_t(found.high_place[l]);
        }
      }
    }
  });
}

}  // namespace

void jackknife_interval_cpu(const Parallel& parallel, MatrixView<const float> scores, const float* residuals,
                            const double q[2], float* ends, int32_t* places) {
  intervals(parallel, scores, residuals, q, ends, places, tile_end_f32);
}

void jackknife_interval_cpu(const Parallel& parallel, MatrixView<const double> scores, const double* residuals,
                            const double q[2], double* ends, int32_t* places) {
  intervals(parallel, scores, residuals, q, ends, places, tile_end_f64);
}

}  // namespace calirare

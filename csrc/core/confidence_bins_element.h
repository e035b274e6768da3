// What samples say about a classifier's calibration: their confidences, predictions, and the confidences' bins.
#pragma once
#include <cstdint>

#include "host_device.h"

namespace calirare {

template <typename T>
struct IndexOfSize;
template <>
struct IndexOfSize<float> {
  using type = int32_t;
};
template <>
struct IndexOfSize<double> {
  using type = int64_t;
};

// kLanes rows at a time, class by class: rows are independent, the classes of one row are not.
template <typename T, int kLanes>
struct ConfidenceRows {
  using Index = typename IndexOfSize<T>::type;  // as wide as T, so that both fill a register alike
  T largest[kLanes], smallest[kLanes], sum[kLanes];
  Index predicted[kLanes];

  // Of equally probable classes the first is predicted.
  CALIRARE_HD void read(const T* rows, int64_t stride, int64_t k) {
    for (int l = 0; l < kLanes; ++l) {
      largest[l] = smallest[l] = sum[l] = rows[l * stride];
      predicted[l] = 0;
    }
    for (int64_t c = 1; c < k; ++c) {
#pragma omp simd
      for (int l = 0; l < kLanes; ++l) {
        const T p = rows[l * stride + c];
        predicted[l] = p > largest[l] ? Index(c) : predicted[l];
        largest[l] = p > largest[l] ? p : largest[l];
        smallest[l] = p < smallest[l] ? p : smallest[l];
        sum[l] += p;
      }
    }
  }
  // A NaN passes the comparisons of `read` by, but not the sum.
  CALIRARE_HD bool is_distribution(int l, T slack) const {
    return (smallest[l] >= T(0)) & (largest[l] <= T(1)) & (sum[l] - T(1) <= slack) & (T(1) - sum[l] <= slack);
  }
};

// The bin b with edges[b] < p <= edges[b + 1]; p = edges[0] lies in the first. The product is a guess, the edges
// decide: they are asked before the number of the bin, as they hardly ever object, which a processor can foresee.
template <typename T>
CALIRARE_HD int64_t bin_of(T p, const T* edges, int64_t n_bins) {
  int64_t bin = int64_t(p * T(n_bins));
  bin = bin < n_bins ? bin : n_bins - 1;
  while (p <= edges[bin] && bin > 0) --bin;
  while (p > edges[bin + 1] && bin + 1 < n_bins) ++bin;
  return bin;
}

}  // namespace calirare

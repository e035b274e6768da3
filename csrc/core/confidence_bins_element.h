// What one sample says about a classifier's calibration: its confidence, whether it is right, and the confidence's bin.
#pragma once
#include <cstdint>

#include "host_device.h"

namespace calirare {

template <typename T>
struct ConfidenceRow {
  T largest, smallest, sum;

  CALIRARE_HD explicit ConfidenceRow(T first) : largest(first), smallest(first), sum(first) {}
  CALIRARE_HD void add(T p) {
    largest = p > largest ? p : largest;
    smallest = p < smallest ? p : smallest;
    sum += p;
  }
  // A NaN passes both comparisons of `add` by, but not the sum.
  CALIRARE_HD bool is_distribution(T slack) const {
    return smallest >= T(0) && largest <= T(1) && sum - T(1) <= slack && T(1) - sum <= slack;
  }
  // Of equally probable classes the first is predicted.
  CALIRARE_HD bool predicts(const T* row, int64_t label) const {
    if (row[label] != largest) return false;
    // Two classes share the largest probability only if twice that is within the sum; rounding keeps the order.
    if (T(2) * largest > sum) return true;
    for (int64_t c = 0; c < label; ++c) {
      if (row[c] == largest) return false;
    }
    return true;
  }
};

// The bin b with edges[b] < p <= edges[b + 1]; p = edges[0] lies in the first. The product is a guess, the edges
// decide.
template <typename T>
CALIRARE_HD int64_t bin_of(T p, const T* edges, int64_t n_bins) {
  int64_t bin = int64_t(p * T(n_bins));
  if (bin >= n_bins) bin = n_bins - 1;
  while (bin > 0 && p <= edges[bin]) --bin;
  while (bin + 1 < n_bins && p > edges[bin + 1]) ++bin;
  return bin;
}

}  // namespace calirare

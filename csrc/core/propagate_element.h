// One output element of Y = A X: the sum over the entries of a row, in the order they are stored.
#pragma once
#include "host_device.h"

namespace calirare {

// One entry more. N is T, or on the CPU a vector of T: neighbouring columns of a row.
template <typename T, typename N>
CALIRARE_INLINED N propagate_term(N sum, T weight, N x) {
  return sum + weight * x;
}

// What of a row's weights the end of its sums takes: nothing.
struct NoWeights {
  template <typename T>
  CALIRARE_INLINED void add(T) {}
  CALIRARE_INLINED void merge(NoWeights) {}
  template <typename N>
  CALIRARE_INLINED N finish(N sum) const {
    return sum;
  }
};

template <typename T>
struct PropagateSum {
  using Number = T;
  using Weights = NoWeights;
  T sum = T(0);
  CALIRARE_HD void add(T weight, T x) { sum = propagate_term(sum, weight, x); }
  CALIRARE_HD void merge(PropagateSum other) { sum += other.sum; }  // two stretches of one row
  CALIRARE_HD T finish() const { return sum; }
};

}  // namespace calirare

// One output element of D^-1 A X: a row's sum and the sum of its weights in double, rounded once at the end.
#pragma once
#include "propagate_element.h"

namespace calirare {

// The sum of a row's weights. Not set to 0 by itself: CUDA shares only what needs no constructor.
struct WeightSum {
  double sum;
  CALIRARE_INLINED void add(double weight) { sum += weight; }
  CALIRARE_INLINED void merge(WeightSum other) { sum += other.sum; }
  // N is double, or on the CPU a vector of them.
  template <typename N>
  CALIRARE_INLINED N finish(N total) const {
    return total * (sum == 0 ? 0 : 1 / sum);
  }
};

struct MeanSum {
  using Number = double;
  using Weights = WeightSum;
  double sum = 0;
  CALIRARE_HD void add(double weight, double x) { sum = propagate_term(sum, weight, x); }
  CALIRARE_HD void merge(MeanSum other) { sum += other.sum; }
};

}  // namespace calirare

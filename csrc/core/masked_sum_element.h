// What one row of a ReLU layer passes on of a change of its inputs: the sum over the active units, weighted.
#pragma once
#include "host_device.h"

namespace calirare {

template <typename T>
struct MaskedSum {
  T sum = T(0);
  CALIRARE_HD void add(T pre_activation, T weight, T product, T bias) {
    if (pre_activation > T(0)) sum += weight * (product + bias);
  }
  CALIRARE_HD T finish(T start) const { return start + sum; }
};

}  // namespace calirare

// One element of a node's weight gradient: a sum of outer products over the node's receptive field.
#pragma once
#include <cstdint>

#include "host_device.h"

namespace calirare {

// d l_i / d W[a, b] = sum over receptive-field entries e of node i of inputs[node_e, a] * delta[e, b].
template <typename T>
struct OuterSum {
  T sum = T(0);
  CALIRARE_HD void add(T input, T delta) { sum += input * delta; }
  CALIRARE_HD T finish() const { return sum; }
};

}  // namespace calirare

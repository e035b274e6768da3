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

// The same where the sum lives in memory between the entries of a node.
template <typename T>
CALIRARE_HD void add_outer_term(T input, T delta, T* element) {
  OuterSum<T> sum{*element};
  sum.add(input, delta);
  *element = sum.finish();
}

}  // namespace calirare

// A tile of nodes, one to a lane of a vector; and order statistics counted from the nearer end.
#pragma once

#include <cstdint>

#include "../core/jackknife_interval_element.h"
#include "clones.h"

namespace calirare {

template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float Pack __attribute__((vector_size(64)));
  typedef uint32_t Bits __attribute__((vector_size(64)));
};
template <>
struct Lanes<double> {
  typedef double Pack __attribute__((vector_size(64)));
  typedef uint64_t Bits __attribute__((vector_size(64)));
};
template <typename T>
constexpr int64_t kLanes = 64 / sizeof(T);

constexpr int64_t kMostKept = 64;  // order statistics kept by insertion; beyond it a selection per node is faster

// Where an end's order statistics are when counted from the nearer end of the sorted samples.
struct Kept {
  bool from_top;
  int64_t count;  // samples to keep: the further of the two is number `count` from there
};
inline Kept kept_of(QuantileRank rank, int64_t m) {
  const Kept bottom{false, rank.high + 1}, top{true, m - rank.low};
  return bottom.count <= top.count ? bottom : top;
}

}  // namespace calirare

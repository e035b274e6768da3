// How a CPU twin spreads work: the caller hands in its thread pool as a function, so no twin knows torch.
#pragma once
#include <cstdint>
#include <functional>

namespace calirare {

using RangeBody = std::function<void(int64_t begin, int64_t end)>;

struct Parallel {
  int threads;
  std::function<void(int64_t size, const RangeBody& body)> run;  // covers [0, size) with disjoint ranges
};

}  // namespace calirare

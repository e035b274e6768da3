// Rows of a ReLU layer, grouped by which of its units are active.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace calirare {

// Some neighbouring units and the rows of a block by their pattern in these units.
struct PatternGroup {
  int64_t first_unit, n_units;    // at most 16 units
  std::vector<uint32_t> pattern;  // distinct patterns, ascending; bit j is unit first_unit + j
  std::vector<int64_t> start;     // rows of pattern p: order[start[p]] .. order[start[p + 1]]
  std::vector<int32_t> order;     // row numbers within the block
};

// Cuts the units of z [r, h] (rows contiguous) into the number of groups with the least work, where a row costs one
// unit of work in each group and a pattern `pattern_cost` plus `unit_cost` for each unit of the group.
std::vector<PatternGroup> group_patterns(const at::Tensor& z, double pattern_cost, double unit_cost);

}  // namespace calirare

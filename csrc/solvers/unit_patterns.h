// Rows of a ReLU layer, grouped by which of its units are active.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
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

constexpr double kNever = 1e30;

// What a pattern costs, in rows: its matrix, or each of its rows without one.
struct PatternCost {
  double pattern, unit;  // the matrix, and for each unit of the group
  double row_alone;      // a row without the matrix; kNever where that cannot be

  double matrix(int64_t n_units) const { return pattern + unit * double(n_units); }
  bool alone(int64_t rows, int64_t n_units) const { return double(rows) * (row_alone - 1.0) < matrix(n_units); }
  double of(int64_t rows, int64_t n_units) const {
    return std::min(double(rows) + matrix(n_units), double(rows) * row_alone);
  }
};

// Cuts the units of z [r, h] (rows contiguous) into the number of groups with the least work.
std::vector<PatternGroup> group_patterns(const at::Tensor& z, const PatternCost& cost);

}  // namespace calirare

// propagate_slices: y = A x for one column, rows of nearly equal length side by side.
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// The product of propagate_cpu, to the last bit, from a copy of A in slices of kSliceRows rows, the longest of a slice
// first. The entries of a slice come in another order: while all its rows last, their first entries, then their second
// ones and so on; after that what is left of each row, row by row. Rows at the end that fill no slice are as ever.
//   x       [n_cols_of_a, 1], rows `stride` apart
//   places  [n_rows]: a permutation; row r of the copy goes to row places[r] of out
//   out     [n_rows, 1], rows `stride` apart; must not overlap what is read; every element is written
// No scratch.
constexpr int64_t kSliceRows = 16;
void propagate_slices_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out,
                          const int64_t* places);
void propagate_slices_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x,
                          MatrixView<double> out, const int64_t* places);

}  // namespace calirare

// neighbour_means: Y = D^-1 A X, the weighted mean of each row's neighbours, summed in double.
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// out[r, c] = sum over entries e of row r of values[e] * x[indices[e], c], over the sum of the row's values; 0 where
// that is 0, as of a row without entries.
//   a    [n_rows, n_cols_of_a], indices within the rows of x (not checked)
//   x    [n_cols_of_a, width], row-major, rows `stride` apart; may be unaligned
//   out  [n_rows, width], row-major; must not overlap x or a; every element is written
// Products and sums run in double and are rounded to T once: products of floats are exact, so that the order of a row's
// entries moves a mean by one unit in the last place of T at most, and that where it lies within some 2^-53 of the
// middle of two numbers. The order is fixed by shapes, row lengths and alignment (on the CPU: as stored): two runs of
// one twin agree bit for bit. No scratch.
void neighbour_means_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out);
void neighbour_means_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x,
                         MatrixView<double> out);

// The same on `device`, asynchronous on `stream` (a cudaStream_t). Throws std::runtime_error on a launch failure.
void neighbour_means_cuda(int device, void* stream, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out);
void neighbour_means_cuda(int device, void* stream, CsrView<double> a, MatrixView<const double> x,
                          MatrixView<double> out);

}  // namespace calirare

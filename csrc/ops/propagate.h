// propagate: Y = A X, the sparse product behind A_hat X (Kipf & Welling 2017, Eq. 2).
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// out[r, c] = sum over entries e of row r of values[e] * x[indices[e], c].
//   a    [n_rows, n_cols_of_a], indices within the rows of x (not checked)
//   x    [n_cols_of_a, width], row-major, rows `stride` apart; may be unaligned
//   out  [n_rows, width], row-major; must not overlap x or a; every element is written
// Sums run in T in an order fixed by shapes, row lengths and alignment (on the CPU: as stored), so two runs of one twin
// agree bit for bit. No scratch.
void propagate_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out);
void propagate_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x, MatrixView<double> out);

// The same on `device`, asynchronous on `stream` (a cudaStream_t). Throws std::runtime_error on a
// launch failure.
void propagate_cuda(int device, void* stream, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out);
void propagate_cuda(int device, void* stream, CsrView<double> a, MatrixView<const double> x, MatrixView<double> out);

}  // namespace calirare

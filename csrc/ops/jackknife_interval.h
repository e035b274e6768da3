// jackknife_interval: the ends of the jackknife interval (paper, Eq. 6; Algorithm 1, line 7).
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// For each row v of `scores` and side 0 (lower) and 1 (upper):
//   ends[v, side]      = quantile q[side] of { scores[v, i] -/+ residuals[i] }, NumPy's "linear" rule
//   places[v, side, 0] = the i of the order statistic at or below the quantile, places[v, side, 1] = the one above
// Equal samples are ranked by i. A row with a NaN sample gives NaN ends.
//   scores     [n, m] row-major, rows `stride` apart, m >= 1
//   residuals  [m]
//   q          two numbers in [0, 1]
//   ends       [n, 2], places [n, 2, 2] int32, written in full; must not overlap scores or residuals
// Sums and quantiles are exact up to one rounding of the sample and one of the interpolation. The CPU twin allocates,
// for each thread, m numbers per row of a vector.
void jackknife_interval_cpu(const Parallel& parallel, MatrixView<const float> scores, const float* residuals,
                            const double q[2], float* ends, int32_t* places);
void jackknife_interval_cpu(const Parallel& parallel, MatrixView<const double> scores, const double* residuals,
                            const double q[2], double* ends, int32_t* places);

// The same on `device`, asynchronous on `stream`. Scratch lives in registers and shared memory.
void jackknife_interval_cuda(int device, void* stream, MatrixView<const float> scores, const float* residuals,
                             const double q[2], float* ends, int32_t* places);
void jackknife_interval_cuda(int device, void* stream, MatrixView<const double> scores, const double* residuals,
                             const double q[2], double* ends, int32_t* places);

}  // namespace calirare

// message_interval: propagation, link, residuals and quantiles of the jackknife in one pass over the nodes (paper, Eq.
// 6 and Algorithm 1, lines 5 to 7, for first-order leave-one-out models).
#pragma once
#include <cstdint>

#include "../core/message_interval_element.h"
#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// For each row v of scores.a, f_i as in `MessageScores`, and side 0 (lower) and 1 (upper):
//   ends[v, side] = quantile q[side] of { f_i -/+ residuals[i] }, NumPy's "linear" rule
// A row with a NaN score gives NaN ends.
//   residuals  [m], m >= 1 as the columns of scores.messages
//   q          two numbers in [0, 1]
//   ends       [n, 2], written in full; must not overlap what is read
// Sums over entries run in T as stored; f is right to a few units in the last place of the sum; quantiles are exact up
// to one rounding of the sample and one of the interpolation. Scores exist for a few nodes at a time: the CPU twin
// allocates, for each thread, twice m numbers per row of a vector.
void message_interval_cpu(const Parallel& parallel, const MessageScores<float>& scores, const float* residuals,
                          const double q[2], float* ends);
void message_interval_cpu(const Parallel& parallel, const MessageScores<double>& scores, const double* residuals,
                          const double q[2], double* ends);

// Rows of scratch, m numbers of `size` bytes each, that serve the CUDA twin best.
int64_t message_interval_scratch_rows(int64_t n, int64_t m, int64_t size);

// The same on `device`, asynchronous on `stream`, `rows` nodes at a time, at least one; scratch [rows, m], written.
void message_interval_cuda(int device, void* stream, const MessageScores<float>& scores, const float* residuals,
                           const double q[2], float* ends, float* scratch, int64_t rows);
void message_interval_cuda(int device, void* stream, const MessageScores<double>& scores, const double* residuals,
                           const double q[2], double* ends, double* scratch, int64_t rows);

}  // namespace calirare

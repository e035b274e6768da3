// masked_sum: how the messages of a ReLU layer's rows change along each of s directions, from the product with all.
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// out[r, i] += sum over units j with z[r, j] > 0 of weight[j] (product[r, i h + j] + bias[i h + j])
//   product  [n, s h], rows `stride` apart
//   bias     [s h]
//   z        [n, h], rows `stride` apart; NaN counts as inactive
//   weight   [h]
//   out      [n, s], rows `stride` apart; must not overlap the others
// Sums run over j in order, in T. No scratch.
template <typename T>
struct MaskedSumTask {
  MatrixView<const T> product;
  const T* bias;
  MatrixView<const T> z;
  const T* weight;
  MatrixView<T> out;
};

void masked_sum_cpu(const Parallel& parallel, const MaskedSumTask<float>& task);
void masked_sum_cpu(const Parallel& parallel, const MaskedSumTask<double>& task);

// The same on `device`, asynchronous on `stream`.
void masked_sum_cuda(int device, void* stream, const MaskedSumTask<float>& task);
void masked_sum_cuda(int device, void* stream, const MaskedSumTask<double>& task);

}  // namespace calirare

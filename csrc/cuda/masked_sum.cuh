// Kernel of masked_sum: a thread owns a (row, direction) pair and walks the units, whose numbers lie side by side, a
// pack at a time.
#pragma once
#include "../core/masked_sum_element.h"
#include "../ops/masked_sum.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kMaskedSumThreads = 256;

template <typename T, int kSize>
__global__ void __launch_bounds__(kMaskedSumThreads) masked_sum_kernel(MaskedSumTask<T> t) {
  const int64_t h = t.z.n_cols, s = t.out.n_cols, total = t.out.n_rows * s;
  for (int64_t k = int64_t(blockIdx.x) * kMaskedSumThreads + threadIdx.x; k < total;
       k += int64_t(gridDim.x) * kMaskedSumThreads) {
    const int64_t r = k / s, i = k % s;
    const T *product = t.product.data + r * t.product.stride + i * h, *bias = t.bias + i * h;
    const T* z = t.z.data + r * t.z.stride;
    MaskedSum<T> sum;
#pragma unroll 4
    for (int64_t j = 0; j < h; j += kSize) {
      const Pack<T, kSize> products = load_pack<kSize>(product + j), biases = load_pack<kSize>(bias + j);
#pragma unroll
      for (int v = 0; v < kSize; ++v) sum.add(z[j + v], t.weight[j + v], products.at[v], biases.at[v]);
    }
    T* out = t.out.data + r * t.out.stride + i;
    *out = sum.finish(*out);
  }
}

template <int kSize, typename T>
void launch_masked_packs(const MaskedSumTask<T>& task, void* stream, GridLimits limits) {
  const int64_t total = task.out.n_rows * task.out.n_cols;
  const dim3 grid(grid_size(divide_up(total, kMaskedSumThreads), limits.x));
  launch(masked_sum_kernel<T, kSize>, grid, dim3(kMaskedSumThreads), stream, task);
  CALIRARE_CHECK_LAUNCH("masked_sum_kernel");
}

template <typename T>
void launch_masked_sum(const MaskedSumTask<T>& task, void* stream, GridLimits limits = {}) {
  constexpr int kSize = 16 / sizeof(T);
  const int64_t h = task.z.n_cols;
  if (task.out.n_rows == 0 || task.out.n_cols == 0) return;
  if (packs_fit<kSize>(task.bias, h) && packs_fit<kSize>(task.product.data, task.product.stride)) {
    launch_masked_packs<kSize>(task, stream, limits);
  } else {
    launch_masked_packs<1>(task, stream, limits);
  }
}

}  // namespace calirare

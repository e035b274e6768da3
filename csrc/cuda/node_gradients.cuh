// Kernels of node_gradients: a thread per pack of gradient entries (dense inputs), a block per node (sparse inputs).
#pragma once
#include "../core/node_gradients_element.h"
#include "../core/views.h"
#include "../ops/node_gradients.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kGradientThreads = 256;

// Blocks take packs of out's columns along x and nodes along y. kSize divides h, so a pack stays in one row a of the
// d + 1 rows; the last of them is the bias, whose input is 1.
template <typename T, int kSize>
__global__ void __launch_bounds__(kGradientThreads)
    node_gradients_dense_kernel(GradientFactors<T> f, MatrixView<const T> inputs, MatrixView<T> out) {
  const int64_t n_packs = out.n_cols / kSize;
  for (int64_t i = blockIdx.y; i < f.m; i += gridDim.y) {
    const int64_t begin = f.entry_ptr[i], end = f.entry_ptr[i + 1];
    for (int64_t k = int64_t(blockIdx.x) * kGradientThreads + threadIdx.x; k < n_packs;
         k += int64_t(gridDim.x) * kGradientThreads) {
      const int64_t a = k * kSize / f.h, b = k * kSize % f.h;
      OuterSum<T> sum[kSize];
#pragma unroll 4
      for (int64_t e = begin; e < end; ++e) {
        const T input = a < inputs.n_cols ? inputs.data[int64_t(f.nodes[e]) * inputs.stride + a] : T(1);
        const Pack<T, kSize> delta = load_pack<kSize>(f.delta + e * f.h + b);
#pragma unroll
        for (int v = 0; v < kSize; ++v) sum[v].add(input, delta.at[v]);
      }
      Pack<T, kSize> total;
#pragma unroll
      for (int v = 0; v < kSize; ++v) total.at[v] = sum[v].finish();
      store_pack(out.data + i * out.stride + k * kSize, total);
    }
  }
}

// A block takes a node: zeroes its row, then adds its entries one after another. Within an entry no two threads touch
// the same element, because a row of `inputs` names each column once; the barrier keeps entries apart. Threads lie
// along (b, non-zero).
template <typename T>
__global__ void __launch_bounds__(kGradientThreads)
    node_gradients_csr_kernel(GradientFactors<T> f, CsrView<T> inputs, MatrixView<T> out) {
  const int64_t thread = int64_t(threadIdx.y) * blockDim.x + threadIdx.x, n_weights = out.n_cols - f.h;
  for (int64_t i = blockIdx.x; i < f.m; i += gridDim.x) {
    T* row = out.data + i * out.stride;
    for (int64_t c = thread; c < out.n_cols; c += kGradientThreads) row[c] = T(0);
    __syncthreads();
    for (int64_t e = f.entry_ptr[i]; e < f.entry_ptr[i + 1]; ++e) {
      const T* delta = f.delta + e * f.h;
      const int64_t node = f.nodes[e];
      for (int64_t k = inputs.indptr[node] + threadIdx.y; k < inputs.indptr[node + 1]; k += blockDim.y) {
        T* weights = row + int64_t(inputs.indices[k]) * f.h;
        for (int64_t b = threadIdx.x; b < f.h; b += blockDim.x) add_outer_term(inputs.values[k], delta[b], weights + b);
      }
      for (int64_t b = thread; b < f.h; b += kGradientThreads) add_outer_term(T(1), delta[b], row + n_weights + b);
      __syncthreads();
    }
  }
}

template <int kSize, typename T>
void launch_dense_packs(GradientFactors<T> f, MatrixView<const T> inputs, MatrixView<T> out, void* stream,
                        GridLimits limits) {
  const dim3 grid(grid_size(divide_up(out.n_cols / kSize, kGradientThreads), limits.x), grid_size(f.m, limits.y));
  launch(node_gradients_dense_kernel<T, kSize>, grid, dim3(kGradientThreads), stream, f, inputs, out);
  CALIRARE_CHECK_LAUNCH("node_gradients_dense_kernel");
}

template <typename T>
void launch_node_gradients(GradientFactors<T> f, MatrixView<const T> inputs, MatrixView<T> out, void* stream,
                           GridLimits limits = {}) {
  constexpr int kSize = 16 / sizeof(T);
  if (f.m == 0 || out.n_cols == 0) return;
  if (f.h % kSize == 0 && packs_fit<kSize>(f.delta, f.h) && packs_fit<kSize>(out.data, out.stride)) {
    launch_dense_packs<kSize>(f, inputs, out, stream, limits);
  } else {
    launch_dense_packs<1>(f, inputs, out, stream, limits);
  }
}

template <typename T>
void launch_node_gradients(GradientFactors<T> f, CsrView<T> inputs, MatrixView<T> out, void* stream,
                           GridLimits limits = {}) {
  if (f.m == 0 || out.n_cols == 0) return;
  unsigned across = 1;  // threads along b: the power of two at or above h
  while (across < f.h && across < kGradientThreads) across *= 2;
  launch(node_gradients_csr_kernel<T>, dim3(grid_size(f.m, limits.x)), dim3(across, kGradientThreads / across), stream,
         f, inputs, out);
  CALIRARE_CHECK_LAUNCH("node_gradients_csr_kernel");
}

}  // namespace calirare

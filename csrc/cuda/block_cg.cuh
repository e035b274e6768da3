// Kernels of block_cg: a block per right-hand side. Every thread takes the column's decisions from the same sums, so
// nothing is handed round but the sums.
#pragma once
#include "../core/block_cg_element.h"
#include "../ops/block_cg.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kCgThreads = 1024;      // of a block, for long columns
constexpr int kCgShortThreads = 256;  // for short ones, so that more columns run at a time
constexpr int64_t kCgShort = 16384;   // numbers in a column

// The sum of `value` over the block, in a fixed order, in every thread: each warp adds its lanes in pairs, then every
// warp adds the warps' sums in pairs.
__device__ inline double block_sum(double value, double* warp_sums) {
  const int lane = threadIdx.x % kWarp, n_warps = int(blockDim.x / kWarp);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullMask, value, offset);
  __syncthreads();  // the sums of the call before were read
  if (lane == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = lane < n_warps ? warp_sums[lane] : 0.0;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullMask, value, offset);
  return value;
}

template <typename T>
__device__ double block_dot(const T* a, const T* b, int64_t size, double* warp_sums) {
  double sum = 0.0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) sum += double(a[i]) * double(b[i]);
  return block_sum(sum, warp_sums);
}

template <typename T>
__global__ void __launch_bounds__(kCgThreads)
    cg_descend_kernel(CgColumns columns, const T* p, const T* ap, T* x, T* r) {
  CALIRARE_SHARED(double, warp_sums, kWarp);
  for (int64_t j = blockIdx.x; j < columns.b; j += gridDim.x) {
    CgColumn column = columns.state[j];
    if (column.status != kCgRunning) continue;
    const int64_t start = j * columns.p;
    const double alpha = cg_step_length(column, block_dot(p + start, ap + start, columns.p, warp_sums));
    if (column.status == kCgRunning) {
      double r_dot_r = 0.0;
#pragma unroll 4
      for (int64_t i = start + threadIdx.x; i < start + columns.p; i += blockDim.x) {
        const T residual = cg_along(r[i], -alpha, ap[i]);
        x[i] = cg_along(x[i], alpha, p[i]);
        r[i] = residual;
        r_dot_r += double(residual) * double(residual);
      }
      cg_check_residual(column, block_sum(r_dot_r, warp_sums));
    }
    if (threadIdx.x == 0) columns.state[j] = column;  // every thread read it before the first barrier
  }
}

template <typename T>
__global__ void __launch_bounds__(kCgThreads) cg_redirect_kernel(CgColumns columns, const T* r, const T* z, T* p) {
  CALIRARE_SHARED(double, warp_sums, kWarp);
  for (int64_t j = blockIdx.x; j < columns.b; j += gridDim.x) {
    CgColumn column = columns.state[j];
    if (column.status != kCgRunning) continue;
    const int64_t start = j * columns.p;
    const double beta = cg_direction_weight(column, block_dot(r + start, z + start, columns.p, warp_sums));
    if (column.status == kCgRunning) {
#pragma unroll 4
      for (int64_t i = start + threadIdx.x; i < start + columns.p; i += blockDim.x) {
        p[i] = cg_along(z[i], beta, p[i]);
      }
    }
    if (threadIdx.x == 0) columns.state[j] = column;
  }
}

inline dim3 cg_block(CgColumns columns) { return dim3(columns.p <= kCgShort ? kCgShortThreads : kCgThreads); }

template <typename T>
void launch_cg_descend(CgColumns columns, const T* p, const T* ap, T* x, T* r, void* stream, GridLimits limits = {}) {
  if (columns.b == 0) return;
  launch(cg_descend_kernel<T>, dim3(grid_size(columns.b, limits.x)), cg_block(columns), stream, columns, p, ap, x, r);
  CALIRARE_CHECK_LAUNCH("cg_descend_kernel");
}

template <typename T>
void launch_cg_redirect(CgColumns columns, const T* r, const T* z, T* p, void* stream, GridLimits limits = {}) {
  if (columns.b == 0) return;
  launch(cg_redirect_kernel<T>, dim3(grid_size(columns.b, limits.x)), cg_block(columns), stream, columns, r, z, p);
  CALIRARE_CHECK_LAUNCH("cg_redirect_kernel");
}

}  // namespace calirare

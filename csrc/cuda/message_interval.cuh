// Kernels of message_interval: scores of a node go to shared memory (a warp, up to kShortRow samples) or to the block's
// row of scratch (a block, beyond), and the selection of jackknife_interval takes them from there.
#pragma once
#include "../core/message_interval_element.h"
#include "../core/propagate_element.h"
// By way of the folder, so that a copy of this file elsewhere still selects with the one true source.
#include "../cuda/jackknife_interval.cuh"
#include "gpu_portable.h"

namespace calirare {

constexpr int kMessageThreads = 128;  // warps of up to kShortRow scores: 16 or 32 KiB of shared
constexpr int kMessageWarps = kMessageThreads / kWarp;
constexpr int64_t kMessageBlocks = 1024;  // of long rows: as many rows of scratch

// Scores of node v into out [m], column by column over `count` threads; this one is number `mine`. The selections give
// each thread the same columns, so no thread reads what another wrote and no barrier is needed.
template <typename T>
__device__ void write_scores(const MessageScores<T>& scores, int64_t v, int64_t mine, int64_t count, T* out) {
  const int64_t begin = scores.a.indptr[v], end = scores.a.indptr[v + 1];
  const T logit = scores.logits[v];
  for (int64_t i = mine; i < scores.messages.n_cols; i += count) {
    PropagateSum<T> moved;
    for (int64_t e = begin; e < end; ++e) {
      moved.add(scores.a.values[e], scores.messages.data[int64_t(scores.a.indices[e]) * scores.messages.stride + i]);
    }
    out[i] = message_score(moved.finish(), scores.shift[i], logit, scores.scale, scores.bias);
  }
}

// An interval end from its order statistics.
template <typename T>
__device__ T end_of(const IntervalTask<T>& task, const Selected<typename IntervalTask<T>::Key>& low) {
  const auto high = task.rank.high < low.up_to ? low.key : low.above;
  return interpolate(number_of(low.key), number_of(high), task.rank.fraction, low.has_nan);
}

template <typename T>
__global__ void __launch_bounds__(kMessageThreads)
    message_interval_warp_kernel(MessageScores<T> scores, const T* residuals, QuantileRank lower, QuantileRank upper,
                                 T* ends) {
  CALIRARE_SHARED(T, shared, kMessageWarps * kShortRow);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  T* row = shared + warp * kShortRow;
  for (int64_t v = int64_t(blockIdx.x) * kMessageWarps + warp; v < scores.a.n_rows;
       v += int64_t(gridDim.x) * kMessageWarps) {
    write_scores(scores, v, lane, kWarp, row);
    for (int side = 0; side < 2; ++side) {
      const IntervalTask<T> task(row, residuals, scores.messages.n_cols, side, side == 0 ? lower : upper);
      const WarpRow<T> keys(task, lane);
      const T end = end_of(task, keys.select(task.rank.low));
      if (lane == 0) ends[2 * v + side] = end;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kIntervalThreads)
    message_interval_block_kernel(MessageScores<T> scores, const T* residuals, QuantileRank lower, QuantileRank upper,
                                  T* ends, T* scratch) {
  using Scratch = BlockScratch<typename IntervalTask<T>::Key>;
  CALIRARE_SHARED(Scratch, shared, 1);
  const int64_t m = scores.messages.n_cols;
  T* row = scratch + blockIdx.x * m;
  for (int64_t v = blockIdx.x; v < scores.a.n_rows; v += gridDim.x) {
    write_scores(scores, v, threadIdx.x, kIntervalThreads, row);
    for (int side = 0; side < 2; ++side) {
      const IntervalTask<T> task(row, residuals, m, side, side == 0 ? lower : upper);
      auto low = block_select(task, task.rank.low, shared[0]);
      block_look_above(task, low, shared[0]);
      if (threadIdx.x == 0) ends[2 * v + side] = end_of(task, low);
    }
  }
}

// As many blocks as rows of scratch are promised.
inline int64_t message_interval_blocks(int64_t n, int64_t m) {
  return m <= kShortRow ? 0 : n < kMessageBlocks ? n : kMessageBlocks;
}

template <typename T>
void launch_message_interval(const MessageScores<T>& scores, const T* residuals, const double q[2], T* ends, T* scratch,
                             void* stream, GridLimits limits = {}) {
  const int64_t n = scores.a.n_rows, m = scores.messages.n_cols;
  if (n == 0 || m == 0) return;
  const QuantileRank lower = quantile_rank(m, q[0]), upper = quantile_rank(m, q[1]);
  if (m <= kShortRow) {
    const dim3 grid(grid_size(divide_up(n, kMessageWarps), limits.x));
    launch(message_interval_warp_kernel<T>, grid, dim3(kMessageThreads), stream, scores, residuals, lower, upper, ends);
    CALIRARE_CHECK_LAUNCH("message_interval_warp_kernel");
  } else {
    const dim3 grid(grid_size(message_interval_blocks(n, m), limits.x));
    launch(message_interval_block_kernel<T>, grid, dim3(kIntervalThreads), stream, scores, residuals, lower, upper,
           ends, scratch);
    CALIRARE_CHECK_LAUNCH("message_interval_block_kernel");
  }
}

}  // namespace calirare

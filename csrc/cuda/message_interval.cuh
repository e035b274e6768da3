// Kernels of message_interval: some nodes at a time, what a node's neighbours send is summed up by the kernels of
// propagate, which share long rows out; then a warp (up to kShortRow samples) or a block takes the link of its node's
// sums, in place, and the selection of jackknife_interval takes them from there.
#pragma once
#include "../core/message_interval_element.h"
// By way of the folder, so that a copy of this file elsewhere still works with the one true sources.
#include "../cuda/jackknife_interval.cuh"
#include "../cuda/propagate.cuh"
#include "gpu_portable.h"

namespace calirare {

constexpr int kMessageThreads = 128;
constexpr int kMessageWarps = kMessageThreads / kWarp;
constexpr int64_t kMessageBytes = 32 << 20;  // of scores at a time: they stay in the cache between two kernels

// The sums of node v in row [m] become scores, column by column over `count` threads; this one is number `mine`. The
// selections give each thread the same columns, so no thread reads what another wrote and no barrier is needed.
template <typename T>
__device__ void link_scores(const MessageScores<T>& scores, int64_t v, int64_t mine, int64_t count, T* row) {
  const T logit = scores.logits[v];
  for (int64_t i = mine; i < scores.messages.n_cols; i += count) {
    row[i] = message_score(row[i], scores.shift[i], logit, scores.scale, scores.bias);
  }
}

// An interval end from its order statistics.
template <typename T>
__device__ T end_of(const IntervalTask<T>& task, const Selected<typename IntervalTask<T>::Key>& low) {
  const auto high = task.rank.high < low.up_to ? low.key : low.above;
  return interpolate(number_of(low.key), number_of(high), task.rank.fraction, low.has_nan);
}

template <int kKeys, typename T>
__global__ void __launch_bounds__(kMessageThreads)
    message_interval_warp_kernel(MessageScores<T> scores, const T* residuals, QuantileRank lower, QuantileRank upper,
                                 T* ends, T* sums) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t v = int64_t(blockIdx.x) * kMessageWarps + threadIdx.x / kWarp; v < scores.a.n_rows;
       v += int64_t(gridDim.x) * kMessageWarps) {
    T* row = sums + v * scores.messages.n_cols;
    link_scores(scores, v, lane, kWarp, row);
    for (int side = 0; side < 2; ++side) {
      const IntervalTask<T> task(row, residuals, scores.messages.n_cols, side, side == 0 ? lower : upper);
      const WarpRow<T, kKeys> keys(task, lane);
      const T end = end_of(task, keys.select(task.rank.low));
      if (lane == 0) ends[2 * v + side] = end;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kIntervalThreads)
    message_interval_block_kernel(MessageScores<T> scores, const T* residuals, QuantileRank lower, QuantileRank upper,
                                  T* ends, T* sums) {
  using Scratch = BlockScratch<typename IntervalTask<T>::Key>;
  CALIRARE_SHARED(Scratch, shared, 1);
  const int64_t m = scores.messages.n_cols;
  for (int64_t v = blockIdx.x; v < scores.a.n_rows; v += gridDim.x) {
    T* row = sums + v * m;
    link_scores(scores, v, threadIdx.x, kIntervalThreads, row);
    for (int side = 0; side < 2; ++side) {
      const IntervalTask<T> task(row, residuals, m, side, side == 0 ? lower : upper);
      auto low = block_select(task, task.rank.low, shared[0]);
      block_look_above(task, low, shared[0]);
      if (threadIdx.x == 0) ends[2 * v + side] = end_of(task, low);
    }
  }
}

// Nodes at a time for m samples of `size` bytes.
inline int64_t message_interval_rows(int64_t n, int64_t m, int64_t size) {
  const int64_t fit = divide_up(kMessageBytes, (m > 0 ? m : 1) * size);
  return n < fit ? n : fit;
}

template <typename T>
MessageScores<T> of_nodes(MessageScores<T> scores, int64_t first, int64_t count) {
  scores.a.indptr += first;
  scores.a.n_rows = count;
  scores.logits += first;
  return scores;
}

// scratch: [rows, m].
template <typename T>
void launch_message_interval(const MessageScores<T>& scores, const T* residuals, const double q[2], T* ends, T* scratch,
                             int64_t rows, void* stream, GridLimits limits = {}) {
  const int64_t n = scores.a.n_rows, m = scores.messages.n_cols;
  if (n == 0 || m == 0) return;
  const QuantileRank lower = quantile_rank(m, q[0]), upper = quantile_rank(m, q[1]);
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t count = n - first < rows ? n - first : rows;
    const MessageScores<T> some = of_nodes(scores, first, count);
    T* their_ends = ends + 2 * first;
    launch_propagate(some.a, some.messages, MatrixView<T>{scratch, count, m, m}, stream, limits);
    if (m <= kShortRow) {
      const dim3 grid(grid_size(divide_up(count, kMessageWarps), limits.x));
      with_keys(m, [&](auto keys) {
        launch(message_interval_warp_kernel<decltype(keys)::value, T>, grid, dim3(kMessageThreads), stream, some,
               residuals, lower, upper, their_ends, scratch);
      });
      CALIRARE_CHECK_LAUNCH("message_interval_warp_kernel");
    } else {
      const dim3 grid(grid_size(count, limits.x));
      launch(message_interval_block_kernel<T>, grid, dim3(kIntervalThreads), stream, some, residuals, lower, upper,
             their_ends, scratch);
      CALIRARE_CHECK_LAUNCH("message_interval_block_kernel");
    }
  }
}

}  // namespace calirare

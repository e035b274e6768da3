// Kernels of jackknife_interval: exact order statistics, by a warp in registers for short rows and by a block with
// radix selection for long ones. Equal samples rank by place, as on the CPU.
#pragma once
#include <type_traits>

#include "../core/jackknife_interval_element.h"
#include "../core/views.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kIntervalThreads = 256;
constexpr int kMostKeys = 32;                     // of a lane, in registers
constexpr int64_t kShortRow = kMostKeys * kWarp;  // samples; from here on a block takes the row
constexpr int kDigits = 256;                      // radix of the block's selection

// One end of one node's interval: the samples and the two order statistics wanted.
template <typename T>
struct IntervalTask {
  using Key = decltype(order_key(T()));
  static constexpr Key kTop = ~Key(0);  // NaN
  static constexpr int kBits = 8 * sizeof(Key);
  const T *scores, *residuals;
  int64_t m;
  int side;
  QuantileRank rank;

  __device__ T sample(int64_t i) const { return interval_sample(scores[i], residuals[i], side); }
  __device__ Key key(int64_t i) const { return order_key(sample(i)); }

  __device__ IntervalTask(const T* scores_, const T* residuals_, int64_t m_, int side_, QuantileRank rank_)
      : scores(scores_), residuals(residuals_), m(m_), side(side_), rank(rank_) {}

  // Task number t of a batch: node t / 2, side t % 2.
  __device__ IntervalTask(MatrixView<const T> all, const T* residuals_, QuantileRank lower, QuantileRank upper,
                          int64_t t)
      : scores(all.data + t / 2 * all.stride),
        residuals(residuals_),
        m(all.n_cols),
        side(int(t % 2)),
        rank(t % 2 == 0 ? lower : upper) {}
};

template <typename Key>
__device__ Key warp_min(Key x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Key other = __shfl_xor_sync(kFullMask, x, offset);
    x = other < x ? other : x;
  }
  return x;
}

// An order statistic's key, how many keys are smaller, how many are not larger, the smallest larger one, and whether
// the row has a NaN.
template <typename Key>
struct Selected {
  Key key, above;
  int64_t below, up_to;
  bool has_nan;
};

// Both order statistics from the lower one; place(key, ordinal) finds number `ordinal` among the samples with a key.
template <typename T, typename Place>
__device__ void write_end(const IntervalTask<T>& task, const Selected<typename IntervalTask<T>::Key>& low, Place place,
                          bool writes, T* end, int32_t* places) {
  int32_t low_place = 0, high_place = 0;
#pragma unroll 1  // one copy of the search: it is long
  for (int64_t rank = task.rank.low; rank < task.rank.low + 2; ++rank) {
    low_place = high_place;
    const int64_t wanted = rank < task.rank.high ? rank : task.rank.high;
    const bool same = wanted < low.up_to;
    high_place = place(same ? low.key : low.above, wanted - (same ? low.below : low.up_to));
  }
  if (!writes) return;
  *end = interpolate(task.sample(low_place), task.sample(high_place), task.rank.fraction, low.has_nan);
  places[0] = low_place;
  places[1] = high_place;
}

// A row held by a warp: lane l has samples l, 32 + l, 64 + l, ... Slots past the row's end hold kTop and come last.
template <typename T, int kKeys>
struct WarpRow {
  using Task = IntervalTask<T>;
  using Key = typename Task::Key;
  Key keys[kKeys];
  int m, lane;

  __device__ WarpRow(const Task& task, int lane_) : m(int(task.m)), lane(lane_) {
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      const int i = k * kWarp + lane;
      keys[k] = i < m ? task.key(i) : Task::kTop;
    }
  }

  // Calls step(k) for the slots in use, four at a time: every index is known to the compiler, so keys stay in
  // registers.
  template <typename Step>
  __device__ void for_slots(Step step) const {
#pragma unroll
    for (int first = 0; first < kKeys; first += 4) {
      if (first * kWarp >= m) break;
#pragma unroll
      for (int k = first; k < first + 4; ++k) step(k);
    }
  }

  // The largest key with at most `rank` keys below it.
  __device__ Selected<Key> select(int64_t rank) const {
    Key key = 0;
    for (int bit = Task::kBits - 1; bit >= 0; --bit) {
      const Key candidate = key | (Key(1) << bit);
      unsigned below = 0;
      for_slots([&](int k) { below += keys[k] < candidate; });
      if (__reduce_add_sync(kFullMask, below) <= rank) key = candidate;
    }
    unsigned below = 0, above = 0, numbers = 0;
    Key least = Task::kTop;
    for_slots([&](int k) {
      below += keys[k] < key;
      above += keys[k] > key && k * kWarp + lane < m;
      numbers += keys[k] < Task::kTop;
      if (keys[k] > key && keys[k] < least) least = keys[k];
    });
    return {key, warp_min(least), __reduce_add_sync(kFullMask, below), m - __reduce_add_sync(kFullMask, above),
            __reduce_add_sync(kFullMask, numbers) < unsigned(m)};
  }

  // The place of number `ordinal` among the samples with this key.
  __device__ int32_t place(Key key, int64_t ordinal) const {
    unsigned found = 0;  // in the one lane that has it
    int64_t before = 0;
    for_slots([&](int k) {
      const unsigned equal = __ballot_sync(kFullMask, keys[k] == key);
      const int64_t rank = before + __popc(equal & ((1u << lane) - 1));
      if (keys[k] == key && rank == ordinal) found = unsigned(k * kWarp + lane);
      before += __popc(equal);
    });
    return int32_t(__reduce_add_sync(kFullMask, found));
  }
};

// Calls use(kKeys) with as few keys per lane as m samples want: where registers are few, more warps run at a time.
template <typename Use>
void with_keys(int64_t m, Use use) {
  if (m <= 4 * kWarp) return use(std::integral_constant<int, 4>());
  if (m <= 8 * kWarp) return use(std::integral_constant<int, 8>());
  use(std::integral_constant<int, kMostKeys>());
}

template <int kKeys, typename T>
__global__ void __launch_bounds__(kIntervalThreads)
    jackknife_interval_warp_kernel(MatrixView<const T> scores, const T* residuals, QuantileRank lower,
                                   QuantileRank upper, T* ends, int32_t* places) {
  using Task = IntervalTask<T>;
  using Key = typename Task::Key;
  constexpr int kWarps = kIntervalThreads / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t t = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; t < 2 * scores.n_rows;
       t += int64_t(gridDim.x) * kWarps) {
    const Task task(scores, residuals, lower, upper, t);
    const WarpRow<T, kKeys> row(task, lane);
    const auto place = [&](Key key, int64_t ordinal) { return row.place(key, ordinal); };
    write_end(task, row.select(task.rank.low), place, lane == 0, ends + t, places + 2 * t);
  }
}

// What the threads of a block share while they select.
template <typename Key>
struct BlockScratch {
  uint32_t histogram[kDigits];
  uint32_t warp_totals[kIntervalThreads / kWarp];
  Key warp_least[kIntervalThreads / kWarp];
  uint32_t digit, before, count;  // the digit chosen, how many keys have a smaller one, how many have it
  int32_t place;
};

// Finds the digit that holds the order statistic: an inclusive scan of the histogram, one digit per thread.
template <typename Key>
__device__ void choose_digit(int64_t rank, BlockScratch<Key>& scratch) {
  static_assert(kDigits == kIntervalThreads, "one digit per thread");
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t count = scratch.histogram[threadIdx.x];
  uint32_t sum = count;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t left = __shfl_up_sync(kFullMask, sum, offset);
    if (lane >= offset) sum += left;
  }
  if (lane == kWarp - 1) scratch.warp_totals[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += scratch.warp_totals[w];
  if (sum - count <= rank && rank < sum) {
    scratch.digit = threadIdx.x;
    scratch.before = sum - count;
    scratch.count = count;
  }
  __syncthreads();
}

// The order statistic by radix selection, 8 bits at a time from the top; the samples stay where they are.
template <typename T, typename Key>
__device__ Selected<Key> block_select(const IntervalTask<T>& task, int64_t rank, BlockScratch<Key>& scratch) {
  Selected<Key> low{0, IntervalTask<T>::kTop, 0, 0, false};
  for (int shift = IntervalTask<T>::kBits - 8; shift >= 0; shift -= 8) {
    scratch.histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < task.m; i += kIntervalThreads) {
      const Key key = task.key(i);
      if (key >> shift >> 8 == low.key >> shift >> 8) atomicAdd(&scratch.histogram[(key >> shift) % kDigits], 1u);
    }
    __syncthreads();
    choose_digit(rank - low.below, scratch);
    low.key |= Key(scratch.digit) << shift;
    low.below += scratch.before;
    low.up_to = low.below + scratch.count;
  }
  return low;
}

// Fills in the smallest key above the selected one, and whether there is a NaN.
template <typename T, typename Key>
__device__ void block_look_above(const IntervalTask<T>& task, Selected<Key>& low, BlockScratch<Key>& scratch) {
  bool has_nan = false;
  for (int64_t i = threadIdx.x; i < task.m; i += kIntervalThreads) {
    const Key key = task.key(i);
    has_nan |= key == IntervalTask<T>::kTop;
    if (key > low.key && key < low.above) low.above = key;
  }
  low.above = warp_min(low.above);
  if (threadIdx.x % kWarp == 0) scratch.warp_least[threadIdx.x / kWarp] = low.above;
  low.has_nan = __syncthreads_or(has_nan) != 0;
  for (int w = 0; w < kIntervalThreads / kWarp; ++w) {
    if (scratch.warp_least[w] < low.above) low.above = scratch.warp_least[w];
  }
}

// The place of number `ordinal` among the samples with this key: whole blocks of samples are counted and passed over
// until it is reached.
template <typename T, typename Key>
__device__ int32_t block_place(const IntervalTask<T>& task, Key key, int64_t ordinal, BlockScratch<Key>& scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t start = 0; start < task.m; start += kIntervalThreads) {
    const int64_t i = start + threadIdx.x;
    const bool equal = i < task.m && task.key(i) == key;
    const int64_t count = __syncthreads_count(equal);
    if (ordinal >= count) {
      ordinal -= count;
      continue;
    }
    const unsigned lanes = __ballot_sync(kFullMask, equal);
    if (lane == 0) scratch.warp_totals[warp] = __popc(lanes);
    __syncthreads();
    int64_t before = __popc(lanes & ((1u << lane) - 1));
    for (int w = 0; w < warp; ++w) before += scratch.warp_totals[w];
    if (equal && before == ordinal) scratch.place = int32_t(i);
    __syncthreads();
    break;
  }
  return scratch.place;
}

template <typename T>
__global__ void __launch_bounds__(kIntervalThreads)
    jackknife_interval_block_kernel(MatrixView<const T> scores, const T* residuals, QuantileRank lower,
                                    QuantileRank upper, T* ends, int32_t* places) {
  using Task = IntervalTask<T>;
  using Key = typename Task::Key;
  using Scratch = BlockScratch<Key>;
  CALIRARE_SHARED(Scratch, scratch, 1);
  for (int64_t t = blockIdx.x; t < 2 * scores.n_rows; t += gridDim.x) {
    const Task task(scores, residuals, lower, upper, t);
    Selected<Key> low = block_select(task, task.rank.low, scratch[0]);
    block_look_above(task, low, scratch[0]);
    const auto place = [&](Key key, int64_t ordinal) { return block_place(task, key, ordinal, scratch[0]); };
    write_end(task, low, place, threadIdx.x == 0, ends + t, places + 2 * t);
  }
}

template <typename T>
void launch_jackknife_interval(MatrixView<const T> scores, const T* residuals, const double q[2], T* ends,
                               int32_t* places, void* stream, GridLimits limits = {}) {
  const int64_t m = scores.n_cols, n_tasks = 2 * scores.n_rows;
  if (n_tasks == 0 || m == 0) return;
  const QuantileRank lower = quantile_rank(m, q[0]), upper = quantile_rank(m, q[1]);
  if (m <= kShortRow) {
    const dim3 grid(grid_size(divide_up(n_tasks, kIntervalThreads / kWarp), limits.x));
    with_keys(m, [&](auto keys) {
      launch(jackknife_interval_warp_kernel<decltype(keys)::value, T>, grid, dim3(kIntervalThreads), stream, scores,
             residuals, lower, upper, ends, places);
    });
    CALIRARE_CHECK_LAUNCH("jackknife_interval_warp_kernel");
  } else {
    launch(jackknife_interval_block_kernel<T>, dim3(grid_size(n_tasks, limits.x)), dim3(kIntervalThreads), stream,
           scores, residuals, lower, upper, ends, places);
    CALIRARE_CHECK_LAUNCH("jackknife_interval_block_kernel");
  }
}

}  // namespace calirare

// Kernel of propagate and, by another `Sum`, of neighbour_means: a group of lanes per row of A; a row with many entries
// is shared by the whole block.
#pragma once
#include "../core/propagate_element.h"
#include "../core/views.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kPropagateThreads = 256;

// How the lanes of a group share a row. kAcross lanes stand side by side along the columns, each with kTiles packs of
// kSize elements; the others take other entries of the row, and their sums meet at the end. A group has at least 8
// lanes, and 16 where each has all columns, so that a graph of mean degree 10 to 20 keeps enough loads in flight.
template <typename T, int kSize_, int kAcross_, int kTiles_>
struct RowLayout {
  static constexpr int kSize = kSize_, kAcross = kAcross_, kTiles = kTiles_;
  static constexpr int kLanes = kAcross == 1 ? 16 : kAcross < 8 ? 8 : kAcross;
  static constexpr int kSlots = kLanes / kAcross;             // entries taken at a time
  static constexpr int kColumns = kSize * kAcross * kTiles;   // columns of a tile
  static constexpr int kGroups = kPropagateThreads / kLanes;  // rows of a block
  static constexpr int kBytes = sizeof(T) * kSize * kTiles;   // of x per lane and entry
  // Entries in flight per lane: 64 bytes of registers, so that half of the warps of a multiprocessor fit, and two at
  // least. A lane that has all columns is handed no entries by others.
  static constexpr int kMost = kBytes > 32 ? 2 : 64 / kBytes < 8 ? 64 / kBytes : 8;
  static constexpr int kBatch = kAcross == 1 ? 4 : kMost < kAcross ? kMost : kAcross;
  static constexpr int64_t kLongRow = 8 * int64_t(kLanes);  // more entries than this: the block shares the row
};

// The columns one lane sums: packs that start at `first`, `first + kStep`, ..., as far as they lie below `end`.
template <typename Sum, typename Layout>
struct LaneSums {
  static constexpr int kStep = Layout::kAcross * Layout::kSize;
  Sum sum[Layout::kTiles][Layout::kSize];
  typename Sum::Weights weights = {};  // of the entries this lane fetches
  int64_t first, end;

  __device__ LaneSums(int64_t tile_begin, int64_t tile_end, int lane)
      : first(tile_begin + int64_t(lane % Layout::kAcross) * Layout::kSize), end(tile_end) {}
};

// Adds the entries that the group's lanes hold (`left` of them, one per lane) from number `start` on, kBatch per lane.
// Where there is no entry, weight and row are 0, and adding their product changes nothing.
template <typename T, typename Sum, typename Layout>
__device__ void add_batch(int32_t node, T weight, int start, int left, MatrixView<const T> x, int lane,
                          LaneSums<Sum, Layout>& mine) {
  using L = Layout;
  Pack<T, L::kSize> row[L::kBatch][L::kTiles] = {};
  T weights[L::kBatch];
#pragma unroll
  for (int j = 0; j < L::kBatch; ++j) {
    const int source = start + j * L::kSlots + lane / L::kAcross;
    const int64_t from = __shfl_sync(kFullMask, node, source, L::kLanes);
    weights[j] = __shfl_sync(kFullMask, weight, source, L::kLanes);
#pragma unroll
    for (int t = 0; t < L::kTiles; ++t) {
      const int64_t column = mine.first + t * mine.kStep;
      if (source < left && column < mine.end) row[j][t] = load_pack<L::kSize>(x.data + from * x.stride + column);
    }
  }
#pragma unroll
  for (int j = 0; j < L::kBatch; ++j) {
#pragma unroll
    for (int t = 0; t < L::kTiles; ++t) {
#pragma unroll
      for (int v = 0; v < L::kSize; ++v) mine.sum[t][v].add(weights[j], row[j][t].at[v]);
    }
  }
}

// Adds entries begin .. end of A where each lane has all columns, and takes entries of its own.
template <typename T, typename Sum, typename Layout>
__device__ void add_own_entries(CsrView<T> a, int64_t begin, int64_t end, MatrixView<const T> x, int lane,
                                LaneSums<Sum, Layout>& mine) {
  using L = Layout;
  for (int64_t e = begin + lane; e < end; e += L::kLanes * L::kBatch) {
    int32_t nodes[L::kBatch];
    T weights[L::kBatch];
    Pack<T, L::kSize> row[L::kBatch] = {};
#pragma unroll
    for (int j = 0; j < L::kBatch; ++j) {
      const int64_t at = e + j * L::kLanes;
      nodes[j] = at < end ? a.indices[at] : -1;
      weights[j] = at < end ? a.values[at] : T(0);
    }
#pragma unroll
    for (int j = 0; j < L::kBatch; ++j) {
      if (nodes[j] >= 0) row[j] = load_pack<L::kSize>(x.data + int64_t(nodes[j]) * x.stride + mine.first);
    }
#pragma unroll
    for (int j = 0; j < L::kBatch; ++j) {
      mine.weights.add(weights[j]);
#pragma unroll
      for (int v = 0; v < L::kSize; ++v) mine.sum[0][v].add(weights[j], row[j].at[v]);
    }
  }
}

// The same where the lanes of a group fetch entries for each other.
template <typename T, typename Sum, typename Layout>
__device__ void add_handed_entries(CsrView<T> a, int64_t begin, int64_t end, MatrixView<const T> x, int lane,
                                   LaneSums<Sum, Layout>& mine) {
  constexpr int kLanes = Layout::kLanes;
  for (int64_t e = begin; __any_sync(kFullMask, e < end); e += kLanes) {
    const int left = end - e >= kLanes ? kLanes : end > e ? int(end - e) : 0;
    const int32_t node = lane < left ? a.indices[e + lane] : 0;
    const T weight = lane < left ? a.values[e + lane] : T(0);
    mine.weights.add(weight);
    for (int start = 0; start < kLanes; start += Layout::kBatch * Layout::kSlots) {
      if (!__any_sync(kFullMask, start < left)) break;
      add_batch(node, weight, start, left, x, lane, mine);
    }
  }
}

// Adds entries begin .. end of A. The whole warp comes here together, each group with a range of its own.
template <typename T, typename Sum, typename Layout>
__device__ void add_entries(CsrView<T> a, int64_t begin, int64_t end, MatrixView<const T> x, int lane,
                            LaneSums<Sum, Layout>& mine) {
  if constexpr (Layout::kAcross == 1) {
    add_own_entries(a, begin, end, x, lane, mine);
  } else {
    add_handed_entries(a, begin, end, x, lane, mine);
  }
}

// What another lane has of a row's weights.
__device__ inline NoWeights of_lane(NoWeights weights, int, int) { return weights; }

// Adds up the lanes that took other entries of the same columns, in a fixed order; all of them end with the total.
template <typename Sum, typename Layout>
__device__ void merge_slots(LaneSums<Sum, Layout>& mine) {
#pragma unroll
  for (int t = 0; t < Layout::kTiles; ++t) {
#pragma unroll
    for (int v = 0; v < Layout::kSize; ++v) {
#pragma unroll
      for (int offset = Layout::kAcross; offset < Layout::kLanes; offset *= 2) {
        Sum other;
        other.sum = __shfl_xor_sync(kFullMask, mine.sum[t][v].sum, offset, Layout::kLanes);
        mine.sum[t][v].merge(other);
      }
    }
  }
#pragma unroll
  for (int offset = 1; offset < Layout::kLanes; offset *= 2) {
    mine.weights.merge(of_lane(mine.weights, offset, Layout::kLanes));
  }
}

// Writes the lane's sums as they are finished by `weights`; `row` points at column `origin`.
template <typename Weights, typename Sum, typename Layout, typename T>
__device__ void store_sums(const LaneSums<Sum, Layout>& mine, Weights weights, int64_t origin, T* row) {
#pragma unroll
  for (int t = 0; t < Layout::kTiles; ++t) {
    const int64_t column = mine.first + t * mine.kStep;
    if (column >= mine.end) continue;
    Pack<T, Layout::kSize> pack;
#pragma unroll
    for (int v = 0; v < Layout::kSize; ++v) pack.at[v] = T(weights.finish(mine.sum[t][v].sum));
    store_pack(row + (column - origin), pack);
  }
}

// What the groups of a block leave for its other threads.
template <typename Sum>
struct Partial {
  typename Sum::Number* sums;      // [kGroups, kColumns]
  typename Sum::Weights* weights;  // [kGroups]
};

// One row by the whole block: each group takes a stretch of the entries, then the groups' sums are added in order.
template <typename Sum, typename Layout, typename T>
__device__ void propagate_long_row(CsrView<T> a, int64_t row, MatrixView<const T> x, MatrixView<T> out,
                                   int64_t tile_begin, int64_t tile_end, Partial<Sum> partial) {
  const int lane = threadIdx.x % Layout::kLanes, group = threadIdx.x / Layout::kLanes;
  const int64_t end = a.indptr[row + 1], share = divide_up(end - a.indptr[row], Layout::kGroups);
  const int64_t first = a.indptr[row] + share * group;
  LaneSums<Sum, Layout> mine(tile_begin, tile_end, lane);
  add_entries(a, first, first + share < end ? first + share : end, x, lane, mine);
  merge_slots(mine);
  if (lane == 0) partial.weights[group] = mine.weights;
  if (lane < Layout::kAcross) store_sums(mine, NoWeights(), tile_begin, partial.sums + group * Layout::kColumns);
  __syncthreads();
  typename Sum::Weights weights = {};
  for (int g = 0; g < Layout::kGroups; ++g) weights.merge(partial.weights[g]);
  for (int64_t c = threadIdx.x; c < tile_end - tile_begin; c += kPropagateThreads) {
    Sum total;
    for (int g = 0; g < Layout::kGroups; ++g) total.merge({partial.sums[g * Layout::kColumns + c]});
    out.data[row * out.stride + tile_begin + c] = T(weights.finish(total.sum));
  }
  __syncthreads();
}

// kGroups rows from `first_row` on, columns tile_begin .. tile_end.
template <typename Sum, typename Layout, typename T>
__device__ void propagate_rows(CsrView<T> a, int64_t first_row, MatrixView<const T> x, MatrixView<T> out,
                               int64_t tile_begin, int64_t tile_end, Partial<Sum> partial) {
  const int lane = threadIdx.x % Layout::kLanes;
  const int64_t row = first_row + threadIdx.x / Layout::kLanes;
  const int64_t begin = row < a.n_rows ? a.indptr[row] : 0, end = row < a.n_rows ? a.indptr[row + 1] : 0;
  const bool is_long = end - begin > Layout::kLongRow;
  LaneSums<Sum, Layout> mine(tile_begin, tile_end, lane);
  add_entries(a, begin, is_long ? begin : end, x, lane, mine);
  merge_slots(mine);
  if (row < a.n_rows && !is_long && lane < Layout::kAcross) {
    store_sums(mine, mine.weights, 0, out.data + row * out.stride);
  }
  if (!__syncthreads_or(is_long)) return;
  for (int64_t r = first_row; r < first_row + Layout::kGroups && r < a.n_rows; ++r) {
    if (a.indptr[r + 1] - a.indptr[r] > Layout::kLongRow) {
      propagate_long_row<Sum, Layout>(a, r, x, out, tile_begin, tile_end, partial);
    }
  }
}

// Blocks take rows along x and tiles along y, so the blocks that run together share a tile: its columns of x stay in
// the L2 cache while the rows pass by.
template <typename Sum, typename Layout, typename T>
__global__ void __launch_bounds__(kPropagateThreads)
    propagate_kernel(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, int64_t tile) {
  using Shared = Pack<typename Sum::Number, Layout::kSize>;
  using Weights = typename Sum::Weights;
  CALIRARE_SHARED(Shared, partial, Layout::kGroups * Layout::kColumns / Layout::kSize);
  CALIRARE_SHARED(Weights, weights, Layout::kGroups);
  for (int64_t begin = blockIdx.y * tile; begin < out.n_cols; begin += gridDim.y * tile) {
    const int64_t end = begin + tile < out.n_cols ? begin + tile : out.n_cols;
    for (int64_t row = int64_t(blockIdx.x) * Layout::kGroups; row < a.n_rows;
         row += int64_t(gridDim.x) * Layout::kGroups) {
      propagate_rows<Sum, Layout>(a, row, x, out, begin, end, Partial<Sum>{&partial[0].at[0], &weights[0]});
    }
  }
}

template <typename Sum, int kSize, int kAcross, int kTiles, typename T>
void launch_propagate_layout(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream, GridLimits limits) {
  using Layout = RowLayout<T, kSize, kAcross, kTiles>;
  // Tiles of nearly equal width, cut at cache lines of 32 floats where there are several.
  const int64_t n_tiles = divide_up(out.n_cols, Layout::kColumns);
  const int64_t tile = n_tiles == 1 ? Layout::kColumns : divide_up(divide_up(out.n_cols, n_tiles), 32) * 32;
  const dim3 grid(grid_size(divide_up(a.n_rows, Layout::kGroups), limits.x),
                  grid_size(divide_up(out.n_cols, tile), limits.y));
  launch(propagate_kernel<Sum, Layout, T>, grid, dim3(kPropagateThreads), stream, a, x, out, tile);
  CALIRARE_CHECK_LAUNCH("propagate_kernel");
}

template <typename Sum, typename T>
void launch_rows(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream, GridLimits limits = {}) {
  constexpr int kSize = 16 / sizeof(T);
  const int64_t width = out.n_cols;
  if (out.n_rows == 0 || width == 0) return;
  if (width > 8 && width % kSize == 0 && packs_fit<kSize>(x.data, x.stride) && packs_fit<kSize>(out.data, out.stride)) {
    const int64_t packs = width / kSize;
    if (packs <= 4) return launch_propagate_layout<Sum, kSize, 4, 1>(a, x, out, stream, limits);
    if (packs <= 8) return launch_propagate_layout<Sum, kSize, 8, 1>(a, x, out, stream, limits);
    if (packs <= 16) return launch_propagate_layout<Sum, kSize, 16, 1>(a, x, out, stream, limits);
    if (32 < packs && packs <= 40) return launch_propagate_layout<Sum, kSize, 8, 5>(a, x, out, stream, limits);
    return launch_propagate_layout<Sum, kSize, 32, 1>(a, x, out, stream, limits);
  }
  if (width == 1) return launch_propagate_layout<Sum, 1, 1, 1>(a, x, out, stream, limits);
  if (width == 2 && packs_fit<2>(x.data, x.stride) && packs_fit<2>(out.data, out.stride)) {
    return launch_propagate_layout<Sum, 2, 1, 1>(a, x, out, stream, limits);
  }
  if (width == 2) return launch_propagate_layout<Sum, 1, 2, 1>(a, x, out, stream, limits);
  if (width <= 8) return launch_propagate_layout<Sum, 1, 8, 1>(a, x, out, stream, limits);
  if (width <= 32) return launch_propagate_layout<Sum, 1, 32, 1>(a, x, out, stream, limits);
  return launch_propagate_layout<Sum, 1, 32, 4>(a, x, out, stream, limits);
}

template <typename T>
void launch_propagate(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream, GridLimits limits = {}) {
  launch_rows<PropagateSum<T>>(a, x, out, stream, limits);
}

}  // namespace calirare

// Kernel of propagate: a group of lanes per row of A; rows with many entries are shared by the whole block.
#pragma once
#include "../core/propagate_element.h"
#include "../core/views.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kPropagateThreads = 256;

// How the lanes of a group share a row. kAcross lanes stand side by side along the columns, each with kTiles packs of
// kSize elements; the others take other entries of the row, and their sums meet at the end. At least 8 lanes work on
// a row: with fewer, graphs of mean degree 10 to 20 leave too few loads in flight.
template <int kSize_, int kAcross_, int kTiles_>
struct RowLayout {
  static constexpr int kSize = kSize_, kAcross = kAcross_, kTiles = kTiles_;
  static constexpr int kLanes = kAcross < 8 ? 8 : kAcross;
  static constexpr int kSlots = kLanes / kAcross;               // entries taken at a time
  static constexpr int kColumns = kSize * kAcross * kTiles;     // columns of a tile
  static constexpr int kGroups = kPropagateThreads / kLanes;    // rows of a block
  static constexpr int kBatch = kAcross < 8 ? kAcross : 8;      // loads of x in flight per lane
  static constexpr int64_t kLongRow = 8 * int64_t(kLanes);      // entries; from here on the block shares the row
};

// The columns one lane sums: packs at `first`, `first + kStep`, ..., those below `end`.
template <typename T, typename Layout>
struct LaneSums {
  static constexpr int kStep = Layout::kAcross * Layout::kSize;
  PropagateSum<T> sum[Layout::kTiles][Layout::kSize];
  int64_t first, end;

  __device__ LaneSums(int64_t tile_begin, int64_t tile_end, int lane)
      : first(tile_begin + int64_t(lane % Layout::kAcross) * Layout::kSize), end(tile_end) {}
};

// Adds entries begin .. end of A to the group's sums. The whole warp comes here together, each group with its own row.
template <typename T, typename Layout>
__device__ void add_entries(CsrView<T> a, int64_t begin, int64_t end, MatrixView<const T> x, int lane,
                            LaneSums<T, Layout>& mine) {
  using L = Layout;
  for (int64_t e = begin; __any_sync(kFullMask, e < end); e += L::kLanes) {
    // Each lane fetches one entry; the group then hands them round.
    const bool fetches = e + lane < end;
    const int32_t node = fetches ? a.indices[e + lane] : 0;
    const T weight = fetches ? a.values[e + lane] : T(0);
    for (int start = 0; start < L::kLanes; start += L::kBatch * L::kSlots) {
      if (!__any_sync(kFullMask, e + start < end)) break;
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
          if (e + source < end && column < mine.end) row[j][t] = load_pack<L::kSize>(x.data + from * x.stride + column);
        }
      }
#pragma unroll
      for (int j = 0; j < L::kBatch; ++j) {
        if (e + start + j * L::kSlots + lane / L::kAcross >= end) continue;  // 0 times an infinite x is not 0
#pragma unroll
        for (int t = 0; t < L::kTiles; ++t) {
#pragma unroll
          for (int v = 0; v < L::kSize; ++v) mine.sum[t][v].add(weights[j], row[j][t].at[v]);
        }
      }
    }
  }
}

// Adds up the lanes that took other entries of the same columns, in a fixed order; every lane ends with the total.
template <typename T, typename Layout>
__device__ void merge_slots(LaneSums<T, Layout>& mine) {
#pragma unroll
  for (int t = 0; t < Layout::kTiles; ++t) {
#pragma unroll
    for (int v = 0; v < Layout::kSize; ++v) {
      for (int offset = Layout::kAcross; offset < Layout::kLanes; offset *= 2) {
        mine.sum[t][v].sum += __shfl_xor_sync(kFullMask, mine.sum[t][v].sum, offset, Layout::kLanes);
      }
    }
  }
}

// Writes a lane's packs to `row`, whose element 0 is column `origin`.
template <typename T, typename Layout>
__device__ void store_sums(const LaneSums<T, Layout>& mine, int64_t origin, T* row) {
#pragma unroll
  for (int t = 0; t < Layout::kTiles; ++t) {
    const int64_t column = mine.first + t * mine.kStep;
    if (column >= mine.end) continue;
    Pack<T, Layout::kSize> pack;
#pragma unroll
    for (int v = 0; v < Layout::kSize; ++v) pack.at[v] = mine.sum[t][v].finish();
    store_pack(row + (column - origin), pack);
  }
}

// One row by the whole block: each group takes a stretch of the entries, then the groups' sums are added in order.
template <typename T, typename Layout>
__device__ void propagate_long_row(CsrView<T> a, int64_t row, MatrixView<const T> x, MatrixView<T> out,
                                   int64_t tile_begin, int64_t tile_end, Pack<T, Layout::kSize>* shared) {
  using L = Layout;
  const int lane = threadIdx.x % L::kLanes, group = threadIdx.x / L::kLanes;
  const int64_t begin = a.indptr[row], end = a.indptr[row + 1];
  const int64_t share = (end - begin + L::kGroups - 1) / L::kGroups;
  const int64_t first = begin + share * group < end ? begin + share * group : end;
  LaneSums<T, L> mine(tile_begin, tile_end, lane);
  add_entries(a, first, first + share < end ? first + share : end, x, lane, mine);
  merge_slots(mine);
  T* partial = &shared->at[0];
  if (lane < L::kAcross) store_sums(mine, tile_begin, partial + group * L::kColumns);
  __syncthreads();
  for (int64_t c = threadIdx.x; c < tile_end - tile_begin; c += kPropagateThreads) {
    T total = T(0);
    for (int g = 0; g < L::kGroups; ++g) total += partial[g * L::kColumns + c];
    out.data[row * out.stride + tile_begin + c] = total;
  }
  __syncthreads();
}

// Block (x, y) takes kGroups rows and `tile` columns at a time. Neighbouring blocks share a tile, so its columns of x
// stay in the L2 cache while the rows pass by.
template <typename T, typename Layout>
__global__ void __launch_bounds__(kPropagateThreads)
    propagate_kernel(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, int64_t tile) {
  using L = Layout;
  CALIRARE_SHARED(PackOf<T COMMA L::kSize>, shared, L::kGroups * L::kColumns / L::kSize);
}

}  // namespace calirare

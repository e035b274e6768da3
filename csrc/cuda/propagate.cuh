// Kernel of propagate and, by another `Sum`, of neighbour_means. A block owns neighbouring rows of A and takes their
// entries chunk by chunk: rows of x are copied to shared memory, many at a time whatever the rows' lengths, and groups
// of lanes add them up from there. A row with many entries is added up by the whole block.
#pragma once
#include "../core/propagate_element.h"
#include "../core/views.h"
#include "gpu_portable.h"

namespace calirare {

constexpr int kPropagateThreads = 256;
constexpr int kPropagateResident = 4;       // blocks of a multiprocessor: 64 registers for a thread
constexpr int64_t kPropagateBlocks = 1024;  // at least, where there are rows for them
constexpr int kBatch = 4;                   // entries of a long row that a thread waits for together

// How the threads of a block share a chunk. kAcross lanes stand side by side along the columns, each with kTiles packs
// of kSize elements; kLoaders entries are asked for at a time, and every thread asks for kPer.
template <typename T, int kSize_, int kAcross_, int kTiles_ = 1>
struct RowLayout {
  static constexpr int kSize = kSize_, kAcross = kAcross_, kTiles = kTiles_;
  static constexpr int kStep = kSize * kAcross;    // columns from a lane's pack to its next
  static constexpr int kColumns = kStep * kTiles;  // of a tile
  static constexpr int kLoaders = kPropagateThreads / kAcross;
  static constexpr int kPer = kAcross == 1 ? 4 : 8;
  static constexpr int kEntries = kPer * kLoaders;              // of a chunk
  static constexpr int kSplit = kAcross < 8 ? 8 / kAcross : 1;  // lanes that share a row's entries
  static constexpr int kGroups = kLoaders / kSplit;             // rows that are added up at a time
  static constexpr int kRows = kEntries / 4;                    // of a block, at most
  static constexpr int64_t kLongRow = kSplit > 1 ? 256 : 128;   // more entries than this: the block shares the row
};

// Entries in shared memory: their rows of x, as far as they lie in the tile, and weights.
template <typename T, typename Layout>
struct alignas(16) Chunk {
  Pack<T, Layout::kSize> x[Layout::kEntries * Layout::kTiles * Layout::kAcross];
  Pack<T, 1> weights[Layout::kEntries];

  static __device__ int place(int entry, int tile, int lane) {
    return (entry * Layout::kTiles + tile) * Layout::kAcross + lane;
  }
};

// What threads leave of a long row, in the place of its chunks.
template <typename Sum, typename Layout>
struct alignas(16) Parts {
  typename Sum::Number sums[kPropagateThreads * Layout::kTiles * Layout::kSize];
  typename Sum::Weights weights[Layout::kLoaders];
};

// Where a thread stands: `column` is its first, and those below `end` are in the tile.
template <typename Layout>
struct Seat {
  int lane, loader, slot, group;
  int64_t column, end;

  __device__ Seat(int64_t tile_begin, int64_t tile_end)
      : lane(threadIdx.x % Layout::kAcross),
        loader(threadIdx.x / Layout::kAcross),
        slot(loader % Layout::kSplit),
        group(loader / Layout::kSplit),
        column(tile_begin + int64_t(lane) * Layout::kSize),
        end(tile_end) {}

  __device__ bool has(int tile) const { return column + tile * Layout::kStep < end; }
};

// What one thread adds up: its columns of some entries, and the weights of these.
template <typename Sum, typename Layout>
struct ThreadSums {
  Sum sum[Layout::kTiles][Layout::kSize];
  typename Sum::Weights weights = {};

  template <typename T>
  __device__ void add(const Chunk<T, Layout>& chunk, int entry, int lane) {
    const T weight = chunk.weights[entry].at[0];
    weights.add(weight);
#pragma unroll
    for (int t = 0; t < Layout::kTiles; ++t) add(t, weight, chunk.x[chunk.place(entry, t, lane)]);
  }
  template <typename T>
  __device__ void add(int tile, T weight, const Pack<T, Layout::kSize>& x) {
#pragma unroll
    for (int v = 0; v < Layout::kSize; ++v) sum[tile][v].add(weight, x.at[v]);
  }
  template <typename T>
  __device__ void store(const Seat<Layout>& seat, T* row) const {
#pragma unroll
    for (int t = 0; t < Layout::kTiles; ++t) {
      if (!seat.has(t)) continue;
      Pack<T, Layout::kSize> pack;
#pragma unroll
      for (int v = 0; v < Layout::kSize; ++v) pack.at[v] = T(weights.finish(sum[t][v].sum));
      store_pack(row + seat.column + t * Layout::kStep, pack);
    }
  }
};

// Asks for the columns of the chunk that starts at `chunk`: `nodes` are those of this thread's entries, -1 where none.
template <typename T, typename Layout>
__device__ void ask_for(CsrView<T> a, MatrixView<const T> x, int64_t chunk, const int32_t (&nodes)[Layout::kPer],
                        const Seat<Layout>& seat, Chunk<T, Layout>& held) {
#pragma unroll
  for (int j = 0; j < Layout::kPer; ++j) {
    const int entry = j * Layout::kLoaders + seat.loader;
    if (nodes[j] < 0) continue;
    if (seat.lane == 0) copy_async(held.weights + entry, a.values + chunk + entry);
    const T* row = x.data + int64_t(nodes[j]) * x.stride + seat.column;
#pragma unroll
    for (int t = 0; t < Layout::kTiles; ++t) {
      if (seat.has(t)) copy_async(held.x + held.place(entry, t, seat.lane), row + t * Layout::kStep);
    }
  }
}

// The nodes of this thread's entries in the chunk that starts at `chunk`, as far as they lie before `end`.
template <typename T, typename Layout, int kCount>
__device__ void nodes_of(CsrView<T> a, int64_t chunk, int64_t end, int loader, int32_t (&nodes)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const int64_t e = chunk + j * Layout::kLoaders + loader;
    nodes[j] = e < end ? a.indices[e] : -1;
  }
}

// Brings entries begin .. end to shared memory, a chunk at a time, and calls use(first entry, end of the chunk) on
// each: once where there are none. What the next chunk holds is asked for while this one is on its way.
template <typename T, typename Layout, typename Use>
__device__ void for_each_chunk(CsrView<T> a, MatrixView<const T> x, int64_t begin, int64_t end,
                               const Seat<Layout>& seat, Chunk<T, Layout>& held, Use use) {
  int32_t nodes[Layout::kPer];
  nodes_of<T, Layout>(a, begin, end, seat.loader, nodes);
  int64_t chunk = begin;
  do {
    ask_for<T, Layout>(a, x, chunk, nodes, seat, held);
    nodes_of<T, Layout>(a, chunk + Layout::kEntries, end, seat.loader, nodes);
    wait_for_copies();
    __syncthreads();
    use(chunk, chunk + Layout::kEntries < end ? chunk + Layout::kEntries : end);
    __syncthreads();
    chunk += Layout::kEntries;
  } while (chunk < end);
}

// What another lane has of a row's weights.
__device__ inline NoWeights of_lane(NoWeights weights, int) { return weights; }

// The sums of all lanes that share a row, in pairs: each of them ends with the total.
template <typename Sum, typename Layout>
__device__ ThreadSums<Sum, Layout> over_slots(ThreadSums<Sum, Layout> mine) {
#pragma unroll
  for (int offset = Layout::kAcross; offset < Layout::kAcross * Layout::kSplit; offset *= 2) {
#pragma unroll
    for (int i = 0; i < Layout::kTiles * Layout::kSize; ++i) {
      Sum& sum = mine.sum[i / Layout::kSize][i % Layout::kSize];
      sum.merge({__shfl_xor_sync(kFullMask, sum.sum, offset)});
    }
    mine.weights.merge(of_lane(mine.weights, offset));
  }
  return mine;
}

// Rows first .. last of the block, none of them long. Groups take kGroups rows at a time; `at` is the first of those.
// The lanes of a group take turns at the entries of their row, from its first on.
template <typename Sum, typename Layout, typename T>
__device__ void propagate_short_rows(CsrView<T> a, MatrixView<const T> x, const int64_t* indptr, int first, int last,
                                     const Seat<Layout>& seat, Chunk<T, Layout>& held, MatrixView<T> out) {
  const int64_t begin = indptr[first], end = indptr[last];
  ThreadSums<Sum, Layout> mine;
  int at = first;
  for_each_chunk<T, Layout>(a, x, begin, end, seat, held, [&](int64_t chunk, int64_t stop) {
    while (true) {
      const int row = at + seat.group;
      const int64_t row_begin = row < last ? indptr[row] : stop, row_end = row < last ? indptr[row + 1] : stop;
      if (row_begin >= chunk) mine = {};  // else it goes on from the chunk before
      const int64_t from = row_begin > chunk ? row_begin : chunk, to = row_end < stop ? row_end : stop;
      const int skipped = (seat.slot - int(from - row_begin)) & (Layout::kSplit - 1);
#pragma unroll 4
      for (int e = int(from - chunk) + skipped; e < int(to - chunk); e += Layout::kSplit) {
        mine.add(held, e, seat.lane);
      }
      const bool ends_here = row < last && row_end <= stop && (row_end > chunk || chunk == begin);
      const ThreadSums<Sum, Layout> total = over_slots(mine);
      if (ends_here && seat.slot == 0) total.store(seat, out.data + row * out.stride);
      if (at + Layout::kGroups >= last || indptr[at + Layout::kGroups] > stop) break;
      at += Layout::kGroups;
    }
  });
}

// What this thread adds up of a long row: every kLoaders-th entry, kBatch of them on their way at a time. They go to
// its own registers, and no thread waits for another.
template <typename Sum, typename Layout, typename T>
__device__ ThreadSums<Sum, Layout> share_of_long_row(CsrView<T> a, MatrixView<const T> x, int64_t begin, int64_t end,
                                                     const Seat<Layout>& seat) {
  ThreadSums<Sum, Layout> mine;
  int32_t nodes[kBatch];
  nodes_of<T, Layout>(a, begin, end, seat.loader, nodes);
  for (int64_t first = begin; first < end; first += kBatch * Layout::kLoaders) {
    Pack<T, Layout::kSize> packs[kBatch][Layout::kTiles] = {};
    T weights[kBatch] = {};
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (nodes[j] < 0) continue;
      weights[j] = a.values[first + j * Layout::kLoaders + seat.loader];
      const T* row = x.data + int64_t(nodes[j]) * x.stride + seat.column;
#pragma unroll
      for (int t = 0; t < Layout::kTiles; ++t) {
        if (seat.has(t)) packs[j][t] = load_pack<Layout::kSize>(row + t * Layout::kStep);
      }
    }
    int32_t next[kBatch];
    nodes_of<T, Layout>(a, first + kBatch * Layout::kLoaders, end, seat.loader, next);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (nodes[j] >= 0) {
        mine.weights.add(weights[j]);
#pragma unroll
        for (int t = 0; t < Layout::kTiles; ++t) mine.add(t, weights[j], packs[j][t]);
      }
      nodes[j] = next[j];
    }
  }
  return mine;
}

// One long row: the threads' sums are added in pairs.
template <typename Sum, typename Layout, typename T>
__device__ void propagate_long_row(CsrView<T> a, MatrixView<const T> x, int64_t begin, int64_t end,
                                   const Seat<Layout>& seat, Chunk<T, Layout>& held, T* out) {
  ThreadSums<Sum, Layout> mine = share_of_long_row<Sum, Layout>(a, x, begin, end, seat);
  static_assert(sizeof(Parts<Sum, Layout>) <= sizeof(Chunk<T, Layout>));
  Parts<Sum, Layout>& parts = reinterpret_cast<Parts<Sum, Layout>&>(held);
  constexpr int kNumbers = Layout::kTiles * Layout::kSize;
  for (int left = Layout::kLoaders; left > 1; left /= 2) {  // threads with something to add up
    if (seat.loader < left) {
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        parts.sums[threadIdx.x * kNumbers + i] = mine.sum[i / Layout::kSize][i % Layout::kSize].sum;
      }
      if (seat.lane == 0) parts.weights[seat.loader] = mine.weights;
    }
    __syncthreads();
    if (seat.loader < left / 2) {
      const int other = threadIdx.x + left / 2 * Layout::kAcross;
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        mine.sum[i / Layout::kSize][i % Layout::kSize].merge({parts.sums[other * kNumbers + i]});
      }
      mine.weights.merge(parts.weights[seat.loader + left / 2]);
    }
  }
  __syncthreads();
  if (seat.loader == 0) mine.store(seat, out);
}

// The first long row from `row` on, or `n`. Every warp looks for itself.
template <typename Layout>
__device__ int next_long_row(const int64_t* indptr, int row, int n) {
  for (; row < n; row += kWarp) {
    const int mine = row + int(threadIdx.x % kWarp);
    const unsigned found = __ballot_sync(kFullMask, mine < n && indptr[mine + 1] - indptr[mine] > Layout::kLongRow);
    if (found != 0) return row + __ffs(int(found)) - 1;
  }
  return n;
}

// `n` rows from `first_row` on, columns tile_begin .. tile_end.
template <typename Sum, typename Layout, typename T>
__device__ void propagate_rows(CsrView<T> a, int64_t first_row, int n, MatrixView<const T> x, MatrixView<T> out,
                               int64_t tile_begin, int64_t tile_end, int64_t* indptr, Chunk<T, Layout>& held) {
  const Seat<Layout> seat(tile_begin, tile_end);
  bool any_long = false;
  for (int i = threadIdx.x; i <= n; i += kPropagateThreads) {
    indptr[i] = a.indptr[first_row + i];
    any_long |= i < n && a.indptr[first_row + i + 1] - indptr[i] > Layout::kLongRow;
  }
  any_long = __syncthreads_or(any_long);
  MatrixView<T> here = out;
  here.data += first_row * out.stride;
  for (int row = 0; row < n; ++row) {
    const int next = any_long ? next_long_row<Layout>(indptr, row, n) : n;
    if (row < next) propagate_short_rows<Sum, Layout>(a, x, indptr, row, next, seat, held, here);
    if (next < n) {
      propagate_long_row<Sum, Layout>(a, x, indptr[next], indptr[next + 1], seat, held, here.data + next * out.stride);
    }
    row = next;
  }  // what reads indptr is followed by a barrier
}

// Blocks take rows along x and tiles along y, so the blocks that run together share a tile: its columns of x stay in
// the L2 cache while the rows pass by.
template <typename Sum, typename Layout, typename T>
__global__ void __launch_bounds__(kPropagateThreads, kPropagateResident)
    propagate_kernel(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, int rows) {
  using Held = Chunk<T, Layout>;
  CALIRARE_SHARED(Held, held, 1);
  CALIRARE_SHARED(int64_t, indptr, Layout::kRows + 1);
  for (int64_t begin = int64_t(blockIdx.y) * Layout::kColumns; begin < out.n_cols;
       begin += int64_t(gridDim.y) * Layout::kColumns) {
    const int64_t end = begin + Layout::kColumns < out.n_cols ? begin + Layout::kColumns : out.n_cols;
    for (int64_t row = int64_t(blockIdx.x) * rows; row < a.n_rows; row += int64_t(gridDim.x) * rows) {
      const int n = int(row + rows < a.n_rows ? rows : a.n_rows - row);
      propagate_rows<Sum, Layout>(a, row, n, x, out, begin, end, indptr, held[0]);
    }
  }
}

template <typename Sum, int kSize, int kAcross, int kTiles, typename T>
void launch_propagate_layout(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream, GridLimits limits) {
  using Layout = RowLayout<T, kSize, kAcross, kTiles>;
  // Whole groups, as few as keep all blocks busy.
  const int64_t wanted = divide_up(divide_up(a.n_rows, kPropagateBlocks), Layout::kGroups) * Layout::kGroups;
  const int rows = int(wanted < Layout::kRows ? wanted : Layout::kRows);
  const dim3 grid(grid_size(divide_up(a.n_rows, rows), limits.x),
                  grid_size(divide_up(out.n_cols, Layout::kColumns), limits.y));
  launch(propagate_kernel<Sum, Layout, T>, grid, dim3(kPropagateThreads), stream, a, x, out, rows);
  CALIRARE_CHECK_LAUNCH("propagate_kernel");
}

template <typename Sum, typename T>
void launch_rows(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream, GridLimits limits = {}) {
  constexpr int kSize = 16 / sizeof(T);
  const int64_t width = out.n_cols;
  if (out.n_rows == 0 || width == 0) return;
  if (width > 2 && width % kSize == 0 && packs_fit<kSize>(x.data, x.stride) && packs_fit<kSize>(out.data, out.stride)) {
    const int64_t packs = width / kSize;
    if (packs <= 1) return launch_propagate_layout<Sum, kSize, 1, 1>(a, x, out, stream, limits);
    if (packs <= 2) return launch_propagate_layout<Sum, kSize, 2, 1>(a, x, out, stream, limits);
    if (packs <= 4) return launch_propagate_layout<Sum, kSize, 4, 1>(a, x, out, stream, limits);
    if (packs <= 8) return launch_propagate_layout<Sum, kSize, 8, 1>(a, x, out, stream, limits);
    return launch_propagate_layout<Sum, kSize, 16, 1>(a, x, out, stream, limits);
  }
  if (width == 1) return launch_propagate_layout<Sum, 1, 1, 1>(a, x, out, stream, limits);
  if (width == 2 && packs_fit<2>(x.data, x.stride) && packs_fit<2>(out.data, out.stride)) {
    return launch_propagate_layout<Sum, 2, 1, 1>(a, x, out, stream, limits);
  }
  if (width == 2) return launch_propagate_layout<Sum, 1, 2, 1>(a, x, out, stream, limits);
  if (width <= 8) return launch_propagate_layout<Sum, 1, 8, 1>(a, x, out, stream, limits);
  if (width <= 32) return launch_propagate_layout<Sum, 1, 32, 1>(a, x, out, stream, limits);
  return launch_propagate_layout<Sum, 1, 32, kSize>(a, x, out, stream, limits);
}

template <typename T>
void launch_propagate(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream, GridLimits limits = {}) {
  launch_rows<PropagateSum<T>>(a, x, out, stream, limits);
}

}  // namespace calirare

// Rows of A X whose sums stay in registers, a tile of columns at a time: what the sums are is the caller's `Sum`.
#pragma once

#include <algorithm>

#include "../core/parallel.h"
#include "../core/propagate_element.h"
#include "../core/views.h"
#include "balance.h"
#include "clones.h"
#include "vector.h"

namespace calirare {

// Where the rows of the product go.
template <typename T>
struct Target {
  MatrixView<T> view;
  bool far;  // rows of `view` are not in cache when their turn comes
  T* row(int64_t r) const { return view.data + r * view.stride; }
};

constexpr int kMostVectors = 8;           // of one row of `out` at a time
constexpr int64_t kAheadBytes = 1 << 23;  // an X above this is fetched ahead; below, that costs more than it saves
constexpr int kAheadLines = 64;           // fetched but not yet used, over the ends of rows: most rows are shorter
constexpr int64_t kFarBytes = 1 << 19;    // an output above this is fetched ahead before it is written
constexpr int64_t kAheadRows = 8;

// kVectors vectors of one output row, sums in stored order. Entries before `last` may be fetched ahead.
template <typename Sum, int kLanes, int kVectors, bool kFetch, typename T>
CALIRARE_INLINE void row_tile(CsrView<T> a, int64_t row, int64_t last, MatrixView<const T> x, Target<T> out,
                              int64_t column) {
  using N = typename Sum::Number;
  using V = typename Vector<N, kLanes>::type;
  constexpr int kLines = (kVectors * kLanes * sizeof(T) + kLineBytes - 1) / kLineBytes;
  constexpr int64_t kAhead = kAheadLines / (kLines < 2 ? 2 : kLines);  // entries
  const int64_t end = a.indptr[row + 1];
  typename Sum::Weights weights = {};
  V sum[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sum[v] = V{};
  for (int64_t e = a.indptr[row]; e < end; ++e) {
    // Compilers turn the loop over entries of a narrow row into gathers with a sum in order: half as fast.
    asm volatile("");
    if (kFetch && e + kAhead < last) {
      const T* ahead = x.data + int64_t(a.indices[e + kAhead]) * x.stride + column;
#pragma GCC unroll 8
      for (int l = 0; l < kLines; ++l) __builtin_prefetch(ahead + l * (kLineBytes / int(sizeof(T))));
    }
    const T* from = x.data + int64_t(a.indices[e]) * x.stride + column;
    const N weight = a.values[e];
    weights.add(weight);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = propagate_term(sum[v], weight, load_as<N, kLanes>(from + v * kLanes));
    }
  }
  T* to = out.row(row) + column;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) store_as<kLanes>(to + v * kLanes, weights.finish(sum[v]));
}

template <typename Sum, int kLanes, int kVectors, bool kFetch, typename T>
CALIRARE_INLINE void tile_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop,
                               int64_t last, int64_t column) {
  constexpr int kLines = (kVectors * kLanes * sizeof(T) + kLineBytes - 1) / kLineBytes;
  for (int64_t r = first; r < stop; ++r) {
    if (out.far && r + kAheadRows < out.view.n_rows) {
      const T* ahead = out.row(r + kAheadRows) + column;
#pragma GCC unroll 8
      for (int l = 0; l < kLines; ++l) __builtin_prefetch(ahead + l * (kLineBytes / int(sizeof(T))), 1);
    }
    row_tile<Sum, kLanes, kVectors, kFetch>(a, r, last, x, out, column);
  }
}

// The columns from `c` on, fewer than a vector.
template <typename Sum, int kBytes, bool kFetch, typename T>
CALIRARE_INLINE void rest_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop,
                             int64_t last, int64_t c) {
  constexpr int kLanes = kBytes / sizeof(typename Sum::Number);
  const int64_t left = out.view.n_cols - c;
  if (kLanes > 8 && (left & 8)) tile_rows<Sum, 8, 1, kFetch>(a, x, out, first, stop, last, c), c += 8;
  if (left & 4) tile_rows<Sum, 4, 1, kFetch>(a, x, out, first, stop, last, c), c += 4;
  if (left & 2) tile_rows<Sum, 2, 1, kFetch>(a, x, out, first, stop, last, c), c += 2;
  if (left & 1) tile_rows<Sum, 1, 1, kFetch>(a, x, out, first, stop, last, c);
}

// Rows first .. stop of every column. A tile is up to 8 registers; tiles of one row are nearly equal, so
// that no narrow one is left over. Rows of a single tile run in one loop; wider rows are finished one by one.
template <typename Sum, int kBytes, bool kFetch, typename T>
CALIRARE_INLINE void rows_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  constexpr int kLanes = kBytes / sizeof(typename Sum::Number);
  const int64_t vectors = out.view.n_cols / kLanes, tiles = (vectors + kMostVectors - 1) / kMostVectors;
  const int64_t narrow = tiles > 0 ? vectors / tiles : 0, wider = vectors - narrow * tiles;
  const int64_t last = a.indptr[stop], step = tiles > 1 ? 1 : stop - first;
  for (int64_t r = first; r < stop; r += step) {
    int64_t c = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t count = narrow + (t < wider);
      switch (count) {
        case 1:
          tile_rows<Sum, kLanes, 1, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 2:
          tile_rows<Sum, kLanes, 2, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 3:
          tile_rows<Sum, kLanes, 3, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 4:
          tile_rows<Sum, kLanes, 4, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 5:
          tile_rows<Sum, kLanes, 5, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 6:
          tile_rows<Sum, kLanes, 6, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 7:
          tile_rows<Sum, kLanes, 7, kFetch>(a, x, out, r, r + step, last, c);
          break;
        default:
          tile_rows<Sum, kLanes, 8, kFetch>(a, x, out, r, r + step, last, c);
      }
      c += count * kLanes;
    }
    rest_of<Sum, kBytes, kFetch>(a, x, out, r, r + step, last, c);
  }
}

// Rows first .. stop, fetched ahead where X does not stay in cache.
template <typename Sum, int kBytes, typename T>
CALIRARE_INLINE void any_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  if (first == stop) return;
  if (x.n_rows * x.n_cols * int64_t(sizeof(T)) > kAheadBytes) {
    rows_of<Sum, kBytes, true>(a, x, out, first, stop);
  } else {
    rows_of<Sum, kBytes, false>(a, x, out, first, stop);
  }
}

constexpr int64_t kSerialWork = 1 << 13;  // entries times cache lines of a row; below it a second thread gains nothing

template <typename T, typename Rows>
void spread(const Parallel& parallel, CsrView<T> a, MatrixView<const T> x, Target<T> out, Rows rows) {
  if (out.view.n_rows == 0 || out.view.n_cols == 0) return;
  const int64_t lines = (out.view.n_cols * int64_t(sizeof(T)) + kLineBytes - 1) / kLineBytes;
  const int64_t work = (a.indptr[a.n_rows] - a.indptr[0] + a.n_rows) * lines;
  if (parallel.threads == 1 || work < kSerialWork) return rows(a, x, out, 0, out.view.n_rows);
  const int64_t parts = std::min<int64_t>(out.view.n_rows, parallel.threads);
  const auto cuts = balanced_cuts(a.indptr, a.n_rows, parts);
  parallel.run(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) rows(a, x, out, cuts[part], cuts[part + 1]);
  });
}

template <typename T>
Target<T> target_of(MatrixView<T> out) {
  return {out, out.n_rows * out.n_cols * int64_t(sizeof(T)) > kFarBytes};
}

}  // namespace calirare

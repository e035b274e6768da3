#include "../ops/propagate.h"

#include <algorithm>

#include "balance.h"

namespace calirare {
namespace {

#define CALIRARE_INLINE inline __attribute__((always_inline))

// kLanes neighbouring elements; loads and stores need no alignment.
template <typename T, int kLanes>
struct Vector {
  typedef T type __attribute__((vector_size(kLanes * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <typename T>
struct Vector<T, 1> {
  typedef T type;
};

// Where the rows of the product go.
template <typename T>
struct Target {
  MatrixView<T> view;
  const int64_t* places;  // null: in order
  T* row(int64_t r) const { return view.data + (places ? places[r] : r) * view.stride; }
};

constexpr int kLineBytes = 64;
constexpr int kMostVectors = 8;           // of one row of `out` at a time
constexpr int64_t kAheadBytes = 1 << 23;  // an X above this is fetched ahead; below, that costs more than it saves
constexpr int kAheadLines = 64;           // fetched but not yet used, over the ends of rows: most rows are shorter

// kVectors vectors of one output row, sums in stored order. Entries before `last` may be fetched ahead.
template <typename T, int kLanes, int kVectors, bool kFetch>
CALIRARE_INLINE void row_tile(CsrView<T> a, int64_t row, int64_t last, MatrixView<const T> x, Target<T> out,
                              int64_t column) {
  using V = typename Vector<T, kLanes>::type;
  constexpr int kLines = (kVectors * kLanes * sizeof(T) + kLineBytes - 1) / kLineBytes;
  constexpr int64_t kAhead = kAheadLines / (kLines < 2 ? 2 : kLines);  // entries
  const int64_t end = a.indptr[row + 1];
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
    const T weight = a.values[e];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[v] += weight * *reinterpret_cast<const V*>(from + v * kLanes);
  }
  T* to = out.row(row) + column;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(to + v * kLanes) = sum[v];
}

template <typename T, int kLanes, int kVectors, bool kFetch>
CALIRARE_INLINE void tile_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop,
                               int64_t last, int64_t column) {
  for (int64_t r = first; r < stop; ++r) row_tile<T, kLanes, kVectors, kFetch>(a, r, last, x, out, column);
}

// Rows first .. stop of every column. A tile is up to 8 registers of 64 bytes; tiles of one row are nearly equal, so
// that no narrow one is left over. Rows of a single tile run in one loop; wider rows are finished one by one.
template <typename T, bool kFetch>
CALIRARE_INLINE void rows_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  constexpr int kLanes = 64 / sizeof(T);
  const int64_t vectors = out.view.n_cols / kLanes, tiles = (vectors + kMostVectors - 1) / kMostVectors;
  const int64_t narrow = tiles > 0 ? vectors / tiles : 0, wider = vectors - narrow * tiles;
  const int64_t last = a.indptr[stop], step = tiles > 1 ? 1 : stop - first;
  for (int64_t r = first; r < stop; r += step) {
    int64_t c = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t count = narrow + (t < wider);
      switch (count) {
        case 1:
          tile_rows<T, kLanes, 1, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 2:
          tile_rows<T, kLanes, 2, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 3:
          tile_rows<T, kLanes, 3, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 4:
          tile_rows<T, kLanes, 4, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 5:
          tile_rows<T, kLanes, 5, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 6:
          tile_rows<T, kLanes, 6, kFetch>(a, x, out, r, r + step, last, c);
          break;
        case 7:
          tile_rows<T, kLanes, 7, kFetch>(a, x, out, r, r + step, last, c);
          break;
        default:
          tile_rows<T, kLanes, 8, kFetch>(a, x, out, r, r + step, last, c);
      }
      c += count * kLanes;
    }
    const int64_t left = out.view.n_cols - c;
    if (kLanes > 8 && (left & 8)) tile_rows<T, 8, 1, kFetch>(a, x, out, r, r + step, last, c), c += 8;
    if (left & 4) tile_rows<T, 4, 1, kFetch>(a, x, out, r, r + step, last, c), c += 4;
    if (left & 2) tile_rows<T, 2, 1, kFetch>(a, x, out, r, r + step, last, c), c += 2;
    if (left & 1) tile_rows<T, 1, 1, kFetch>(a, x, out, r, r + step, last, c);
  }
}

template <typename T>
CALIRARE_INLINE void propagate_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  if (first == stop) return;
  if (x.n_rows * x.n_cols * int64_t(sizeof(T)) > kAheadBytes) {
    rows_of<T, true>(a, x, out, first, stop);
  } else {
    rows_of<T, false>(a, x, out, first, stop);
  }
}

#define CALIRARE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#if !defined(__x86_64__)
#undef CALIRARE_CLONES
#define CALIRARE_CLONES
#endif

// target_clones does not take templates, hence one plain function per type.
CALIRARE_CLONES void rows_f32(CsrView<float> a, MatrixView<const float> x, Target<float> out, int64_t first,
                              int64_t stop) {
  propagate_rows(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f64(CsrView<double> a, MatrixView<const double> x, Target<double> out, int64_t first,
                              int64_t stop) {
  propagate_rows(a, x, out, first, stop);
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

}  // namespace

void propagate_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out,
                   const int64_t* places) {
  spread(parallel, a, x, Target<float>{out, places}, rows_f32);
}

void propagate_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x, MatrixView<double> out,
                   const int64_t* places) {
  spread(parallel, a, x, Target<double>{out, places}, rows_f64);
}

}  // namespace calirare

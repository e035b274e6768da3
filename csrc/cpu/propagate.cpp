// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/propagate.h"

#include <algorithm>

#include "../core/propagate_element.h"
#include "balance.h"
#include "clones.h"
#include "vector.h"

namespace calirare {
namespace {

// Where the rows of the product go.
template <typename T>
struct Target {
  MatrixView<T> view;
  const int64_t* places;  // null: in order
  bool far;               // rows of `view` are not in cache when their turn comes
  T* row(int64_t r) const { return view.data + (places ? places[r] : r) * view.stride; }
};

constexpr int kMostVectors = 8;           // of one row of `out` at a time
constexpr int64_t kAheadBytes = 1 << 23;  // an X above this is fetched ahead; below, that costs more than it saves
constexpr int kAheadLines = 64;           // fetched but not yet used, over the ends of rows: most rows are shorter
constexpr int64_t kFarBytes = 1 << 19;    // an output above this is fetched ahead before it is written
constexpr int64_t kAheadRows = 8;
constexpr int64_t kStreamBytes = 1 << 12;  // rows at least this long are read from end to end
constexpr int kBatch = 8;                  // of them at a time: a processor follows that many streams

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
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = propagate_term(sum[v], weight, *reinterpret_cast<const V*>(from + v * kLanes));
    }
  }
  T* to = out.row(row) + column;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(to + v * kLanes) = sum[v];
}

template <typename T, int kLanes, int kVectors, bool kFetch>
CALIRARE_INLINE void tile_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop,
                               int64_t last, int64_t column) {
  constexpr int kLines = (kVectors * kLanes * sizeof(T) + kLineBytes - 1) / kLineBytes;
  for (int64_t r = first; r < stop; ++r) {
    if (out.far && r + kAheadRows < out.view.n_rows) {
      const T* ahead = out.row(r + kAheadRows) + column;
#pragma GCC unroll 8
      for (int l = 0; l < kLines; ++l) __builtin_prefetch(ahead + l * (kLineBytes / int(sizeof(T))), 1);
    }
    row_tile<T, kLanes, kVectors, kFetch>(a, r, last, x, out, column);
  }
}

// `count` entries added to a row of `vectors` vectors in one sweep: each row of X is one stream.
template <typename T, int kBytes, int kCount>
CALIRARE_INLINE void stream_batch(const int32_t* indices, const T* values, MatrixView<const T> x, T* to,
                                  int64_t vectors, bool first) {
  constexpr int kLanes = kBytes / sizeof(T);
  using V = typename Vector<T, kLanes>::type;
  const T* from[kCount];
  T weight[kCount];
#pragma GCC unroll 8
  for (int k = 0; k < kCount; ++k) {
    from[k] = x.data + int64_t(indices[k]) * x.stride;
    weight[k] = values[k];
  }
  for (int64_t c = 0; c < vectors * kLanes; c += kLanes) {
    V sum = first ? V{} : *reinterpret_cast<const V*>(to + c);
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) sum = propagate_term(sum, weight[k], *reinterpret_cast<const V*>(from[k] + c));
    *reinterpret_cast<V*>(to + c) = sum;
  }
}

// The first `vectors` vectors of one row: entries in batches of nearly equal size, at most kBatch.
template <typename T, int kBytes>
CALIRARE_INLINE void stream_row(CsrView<T> a, int64_t row, MatrixView<const T> x, T* to, int64_t vectors) {
  const int64_t begin = a.indptr[row], count = a.indptr[row + 1] - begin;
  if (count == 0) std::fill_n(to, vectors * int64_t(kBytes / sizeof(T)), T(0));
  const int64_t batches = (count + kBatch - 1) / kBatch;
  for (int64_t b = 0, done = 0; b < batches; ++b) {
    const int64_t size = (count - done + batches - b - 1) / (batches - b);
    const int32_t* indices = a.indices + begin + done;
    const T* values = a.values + begin + done;
    const bool first = b == 0;
    switch (size) {
      case 1:
        stream_batch<T, kBytes, 1>(indices, values, x, to, vectors, first);
        break;
      case 2:
        stream_batch<T, kBytes, 2>(indices, values, x, to, vectors, first);
        break;
      case 3:
        stream_batch<T, kBytes, 3>(indices, values, x, to, vectors, first);
        break;
      case 4:
        stream_batch<T, kBytes, 4>(indices, values, x, to, vectors, first);
        break;
      case 5:
        stream_batch<T, kBytes, 5>(indices, values, x, to, vectors, first);
        break;
      case 6:
        stream_batch<T, kBytes, 6>(indices, values, x, to, vectors, first);
        break;
      case 7:
        stream_batch<T, kBytes, 7>(indices, values, x, to, vectors, first);
        break;
      default:
        stream_batch<T, kBytes, 8>(indices, values, x, to, vectors, first);
    }
    done += size;
  }
}

// The columns from `c` on, fewer than a vector.
template <typename T, int kBytes, bool kFetch>
CALIRARE_INLINE void rest_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop,
                             int64_t last, int64_t c) {
  constexpr int kLanes = kBytes / sizeof(T);
  const int64_t left = out.view.n_cols - c;
  if (kLanes > 8 && (left & 8)) tile_rows<T, 8, 1, kFetch>(a, x, out, first, stop, last, c), c += 8;
  if (left & 4) tile_rows<T, 4, 1, kFetch>(a, x, out, first, stop, last, c), c += 4;
  if (left & 2) tile_rows<T, 2, 1, kFetch>(a, x, out, first, stop, last, c), c += 2;
  if (left & 1) tile_rows<T, 1, 1, kFetch>(a, x, out, first, stop, last, c);
}

// Wide rows: first .. stop.
template <typename T, int kBytes>
CALIRARE_INLINE void streams_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  constexpr int kLanes = kBytes / sizeof(T);
  const int64_t vectors = out.view.n_cols / kLanes;
  for (int64_t r = first; r < stop; ++r) {
    stream_row<T, kBytes>(a, r, x, out.row(r), vectors);
    rest_of<T, kBytes, false>(a, x, out, r, r + 1, 0, vectors * kLanes);
  }
}

// Rows first .. stop of every column. A tile is up to 8 registers; tiles of one row are nearly equal, so
// that no narrow one is left over. Rows of a single tile run in one loop; wider rows are finished one by one.
template <typename T, int kBytes, bool kFetch>
CALIRARE_INLINE void rows_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  constexpr int kLanes = kBytes / sizeof(T);
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
    rest_of<T, kBytes, kFetch>(a, x, out, r, r + step, last, c);
  }
}

template <typename T, int kBytes>
CALIRARE_INLINE void propagate_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  if (first == stop) return;
  if (out.view.n_cols * int64_t(sizeof(T)) >= kStreamBytes) {
    streams_of<T, kBytes>(a, x, out, first, stop);
  } else if (x.n_rows * x.n_cols * int64_t(sizeof(T)) > kAheadBytes) {
    rows_of<T, kBytes, true>(a, x, out, first, stop);
  } else {
    rows_of<T, kBytes, false>(a, x, out, first, stop);
  }
}

// target_clones does not take templates, hence plain functions. Vectors are as long as the processor's registers: GCC
// keeps longer ones on the stack, ten times slower. The sums are the same.
CALIRARE_CLONES void rows_f32_64(CsrView<float> a, MatrixView<const float> x, Target<float> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<float, 64>(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f64_64(CsrView<double> a, MatrixView<const double> x, Target<double> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<double, 64>(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f32_32(CsrView<float> a, MatrixView<const float> x, Target<float> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<float, 32>(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f64_32(CsrView<double> a, MatrixView<const double> x, Target<double> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<double, 32>(a, x, out, first, stop);
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
Target<T> target_of(MatrixView<T> out, const int64_t* places) {
  return {out, places, out.n_rows * out.n_cols * int64_t(sizeof(T)) > kFarBytes};
}

}  // namespace

void propagate_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out,
                   const int64_t* places) {
  spread(parallel, a, x, target_of(out, places), long_vectors() ? rows_f32_64 : rows_f32_32);
}

void propagate_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x, MatrixView<double> out,
                   const int64_t* places) {
  spread(parallel, a, x, target_of(out, places), long_vectors() ? rows_f64_64 : rows_f64_32);
}

}  // namespace calirare

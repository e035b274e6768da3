// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/propagate_tiles.h"

#include <algorithm>
#include <vector>

#include "../core/propagate_element.h"
#include "clones.h"
#include "vector.h"

namespace calirare {
namespace {

constexpr int64_t kAhead = 16;  // entries

// One tile, kVectors vectors from `column` on.
template <typename T, int kLanes, int kVectors>
CALIRARE_INLINE void add_entries(TilesView<T> a, int64_t tile, MatrixView<const T> x, MatrixView<T> out,
                                 int64_t column) {
  using V = typename Vector<T, kLanes>::type;
  constexpr int kLines = (kVectors * kLanes * sizeof(T) + kLineBytes - 1) / kLineBytes;
  constexpr int kPerLine = kLineBytes / sizeof(T);
  T* to_tile = out.data + tile * a.tile_rows * out.stride + column;
  const int64_t stop = a.starts[tile + 1];
  for (int64_t e = a.starts[tile]; e < stop; ++e) {
    asm volatile("");  // two entries of one row must not be taken for independent
    if (e + kAhead < stop) {
      const T* from = x.data + int64_t(a.columns[e + kAhead]) * x.stride + column;
      const T* to = to_tile + int64_t(a.rows[e + kAhead]) * out.stride;
#pragma GCC unroll 8
      for (int l = 0; l < kLines; ++l) {
        __builtin_prefetch(from + l * kPerLine);
        __builtin_prefetch(to + l * kPerLine, 1);
      }
    }
    const T* from = x.data + int64_t(a.columns[e]) * x.stride + column;
    T* to = to_tile + int64_t(a.rows[e]) * out.stride;
    const T weight = a.values[e];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V& sum = *reinterpret_cast<V*>(to + v * kLanes);
      sum = propagate_term(sum, weight, *reinterpret_cast<const V*>(from + v * kLanes));
    }
  }
}

template <typename T, int kBytes>
CALIRARE_INLINE void tile_of(TilesView<T> a, int64_t tile, MatrixView<const T> x, MatrixView<T> out) {
  constexpr int kLanes = kBytes / sizeof(T);
  const int64_t first = tile * a.tile_rows, stop = std::min(out.n_rows, first + a.tile_rows), width = out.n_cols;
  for (int64_t r = first; r < stop; ++r) std::fill_n(out.data + r * out.stride, width, T(0));
  int64_t c = 0;
  for (; c + 8 * kLanes <= width; c += 8 * kLanes) add_entries<T, kLanes, 8>(a, tile, x, out, c);
  if (c + 4 * kLanes <= width) add_entries<T, kLanes, 4>(a, tile, x, out, c), c += 4 * kLanes;
  if (c + 2 * kLanes <= width) add_entries<T, kLanes, 2>(a, tile, x, out, c), c += 2 * kLanes;
  if (c + kLanes <= width) add_entries<T, kLanes, 1>(a, tile, x, out, c), c += kLanes;
  const int64_t left = width - c;
  if (kLanes > 8 && (left & 8)) add_entries<T, 8, 1>(a, tile, x, out, c), c += 8;
  if (left & 4) add_entries<T, 4, 1>(a, tile, x, out, c), c += 4;
  if (left & 2) add_entries<T, 2, 1>(a, tile, x, out, c), c += 2;
  if (left & 1) add_entries<T, 1, 1>(a, tile, x, out, c);
}

CALIRARE_CLONES void tile_f32_64(TilesView<float> a, int64_t tile, MatrixView<const float> x, MatrixView<float> out) {
  tile_of<float, 64>(a, tile, x, out);
}
CALIRARE_CLONES void tile_f32_32(TilesView<float> a, int64_t tile, MatrixView<const float> x, MatrixView<float> out) {
  tile_of<float, 32>(a, tile, x, out);
}
CALIRARE_CLONES void tile_f64_64(TilesView<double> a, int64_t tile, MatrixView<const double> x,
                                 MatrixView<double> out) {
  tile_of<double, 64>(a, tile, x, out);
}
CALIRARE_CLONES void tile_f64_32(TilesView<double> a, int64_t tile, MatrixView<const double> x,
                                 MatrixView<double> out) {
  tile_of<double, 32>(a, tile, x, out);
}

// A thread takes neighbouring tiles with nearly its share of the entries.
template <typename T, typename Tile>
void spread(const Parallel& parallel, TilesView<T> a, MatrixView<const T> x, MatrixView<T> out, Tile one) {
  if (out.n_rows == 0 || out.n_cols == 0) return;
  const int64_t parts = std::min<int64_t>(parallel.threads, a.tiles);
  std::vector<int64_t> cuts(parts + 1, 0);
  for (int64_t part = 1; part < parts; ++part) {
    const int64_t wanted = a.starts[a.tiles] / parts * part;
    const int64_t* found = std::lower_bound(a.starts, a.starts + a.tiles, wanted);
    cuts[part] = std::max<int64_t>(cuts[part - 1], found - a.starts);
  }
  cuts[parts] = a.tiles;
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t tile = cuts[begin]; tile < cuts[end]; ++tile) one(a, tile, x, out);
  };
  if (parts == 1) return body(0, 1);
  parallel.run(parts, body);
}

// Within a tile: a counting sort by column, rows in order.
template <typename T>
void cut(CsrView<T> a, int64_t n_cols, int64_t tile_rows, TilesOut<T> out) {
  std::vector<int64_t> place(n_cols + 1);
  const int64_t tiles = (a.n_rows + tile_rows - 1) / tile_rows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = t * tile_rows, stop = std::min(a.n_rows, first + tile_rows);
    out.starts[t] = a.indptr[first];
    std::fill(place.begin(), place.end(), 0);
    for (int64_t e = a.indptr[first]; e < a.indptr[stop]; ++e) ++place[a.indices[e] + 1];
    place[0] = a.indptr[first];
    for (int64_t c = 0; c < n_cols; ++c) place[c + 1] += place[c];
    for (int64_t r = first; r < stop; ++r) {
      for (int64_t e = a.indptr[r]; e < a.indptr[r + 1]; ++e) {
        const int64_t to = place[a.indices[e]]++;
        out.rows[to] = int32_t(r - first);
        out.columns[to] = a.indices[e];
        out.values[to] = a.values[e];
      }
    }
  }
  out.starts[tiles] = a.indptr[a.n_rows];
}

}  // namespace

void cut_tiles(CsrView<float> a, int64_t n_cols, int64_t tile_rows, TilesOut<float> out) {
  cut(a, n_cols, tile_rows, out);
}
void cut_tiles(CsrView<double> a, int64_t n_cols, int64_t tile_rows, TilesOut<double> out) {
  cut(a, n_cols, tile_rows, out);
}

void propagate_tiles_cpu(const Parallel& parallel, TilesView<float> a, MatrixView<const float> x,
                         MatrixView<float> out) {
  spread(parallel, a, x, out, long_vectors() ? tile_f32_64 : tile_f32_32);
}
void propagate_tiles_cpu(const Parallel& parallel, TilesView<double> a, MatrixView<const double> x,
                         MatrixView<double> out) {
  spread(parallel, a, x, out, long_vectors() ? tile_f64_64 : tile_f64_32);
}

}  // namespace calirare

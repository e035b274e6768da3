// propagate_tiles: Y = A X for an X beyond the caches, the entries of a stretch of rows in the order of their columns.
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// Rows 0 .. tile_rows are the first tile, and so on. The entries of a tile are sorted by column, equal columns by row.
template <typename T>
struct TilesView {
  const int64_t* starts;  // [tiles + 1], entries starts[t] .. starts[t + 1] are tile t
  const int32_t* rows;    // [nnz], counted from the first row of the tile
  const int32_t* columns;
  const T* values;
  int64_t tiles, tile_rows;
};

// Writes the entries of `a`, in tiles, into rows, columns and values [nnz]; starts [ceil(n_rows / tile_rows) + 1].
// Takes n_cols + 1 numbers of its own.
template <typename T>
struct TilesOut {
  int64_t* starts;
  int32_t* rows;
  int32_t* columns;
  T* values;
};
void cut_tiles(CsrView<float> a, int64_t n_cols, int64_t tile_rows, TilesOut<float> out);
void cut_tiles(CsrView<double> a, int64_t n_cols, int64_t tile_rows, TilesOut<double> out);

// The product of propagate_cpu, to the last bit where the columns of a row ascend. Within a tile X is read from its
// first row to its last, so that the processor finds its pages and lines; the rows of `out` of one tile should fit in
// cache. out must not overlap what is read; every element is written. No scratch.
void propagate_tiles_cpu(const Parallel& parallel, TilesView<float> a, MatrixView<const float> x,
                         MatrixView<float> out);
void propagate_tiles_cpu(const Parallel& parallel, TilesView<double> a, MatrixView<const double> x,
                         MatrixView<double> out);

}  // namespace calirare

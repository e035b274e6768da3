// propagate on the CPU from a copy of A that suits an X larger than the caches. It equals propagate to the bit.
#pragma once
#include "launch.h"

namespace calirare {

// The entries of A in tiles of rows; see ops/propagate_tiles.h.
struct TileTensors {
  at::Tensor starts, rows, columns, values;  // int64 [tiles + 1], int32 [nnz], int32 [nnz], [nnz]
  int64_t n_rows, n_cols, tile_rows;
};
TileTensors cut_tiles(const CsrTensors& a, int64_t tile_rows);
void propagate_tiles_out(const TileTensors& a, const at::Tensor& x, at::Tensor& out);

}  // namespace calirare

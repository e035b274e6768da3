// propagate on the CPU from copies of A that suit narrow, wide or large X. Every product equals propagate's to the bit.
#pragma once
#include "launch.h"

namespace calirare {

// An order of the nodes in which neighbours stand near each other, int64 [n]; `a` square, on the CPU.
at::Tensor community_order(const CsrTensors& a, int64_t most_visits);

// Row r of a X to row places[r] of `out`; `places` int64 [n_rows], a permutation.
void propagate_to(const CsrTensors& a, const at::Tensor& x, const at::Tensor& places, at::Tensor& out);

// The same for one column; `slices` holds its rows as ops/propagate_slices.h says.
void propagate_slices_to(const CsrTensors& slices, const at::Tensor& x, const at::Tensor& places, at::Tensor& out);

// The entries of A in tiles of rows; see ops/propagate_tiles.h.
struct TileTensors {
  at::Tensor starts, rows, columns, values;  // int64 [tiles + 1], int32 [nnz], int32 [nnz], [nnz]
  int64_t n_rows, n_cols, tile_rows;
};
TileTensors cut_tiles(const CsrTensors& a, int64_t tile_rows);
void propagate_tiles_out(const TileTensors& a, const at::Tensor& x, at::Tensor& out);

}  // namespace calirare

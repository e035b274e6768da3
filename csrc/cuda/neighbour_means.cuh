// Kernel of neighbour_means: that of propagate, with sums in double that are divided by the sum of the weights.
#pragma once
#include "../core/neighbour_means_element.h"
// By its folder, so that a copy of this file with planted bugs does not find one of that beside it.
#include "../cuda/propagate.cuh"

namespace calirare {

__device__ inline WeightSum of_lane(WeightSum weights, int offset) {
  return {__shfl_xor_sync(kFullMask, weights.sum, offset)};
}

template <typename T>
void launch_neighbour_means(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, void* stream,
                            GridLimits limits = {}) {
  launch_rows<MeanSum>(a, x, out, stream, limits);
}

}  // namespace calirare

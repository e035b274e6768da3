// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/neighbour_means.h"

#include "../core/neighbour_means_element.h"
#include "row_tiles.h"

namespace calirare {
namespace {

// See propagate.cpp.
#define CALIRARE_DEFINE(T, kBytes)                                                                             \
  CALIRARE_CLONES void means_##T##_##kBytes(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, \
                                            int64_t stop) {                                                    \
    any_rows<MeanSum, kBytes>(a, x, out, first, stop);                                                         \
  }
CALIRARE_DEFINE(float, 64)
CALIRARE_DEFINE(float, 32)
CALIRARE_DEFINE(double, 64)
CALIRARE_DEFINE(double, 32)
#undef CALIRARE_DEFINE

}  // namespace

void neighbour_means_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out) {
  spread(parallel, a, x, target_of(out), long_vectors() ? means_float_64 : means_float_32);
}

void neighbour_means_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x,
                         MatrixView<double> out) {
  spread(parallel, a, x, target_of(out), long_vectors() ? means_double_64 : means_double_32);
}

}  // namespace calirare

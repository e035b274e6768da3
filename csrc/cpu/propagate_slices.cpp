#include "../ops/propagate_slices.h"

#include <algorithm>

#include "../core/propagate_element.h"
#include "balance.h"
#include "clones.h"

namespace calirare {
namespace {

constexpr int kChains = 8;  // sums that run side by side: enough to hide the latency of an addition, and registers

// The first `steps` entries of rows lane .. lane + kChains of a slice. Plain loads: instructions that gather are slower
// (by a fifth to two fifths on a processor that has them).
template <typename T, bool kUnit>
CALIRARE_INLINE void common_steps(const int32_t* indices, const T* values, int64_t steps, const T* x, int64_t stride,
                                  T* sums) {
  T sum[kChains] = {};
  for (int64_t e = 0; e < steps * kSliceRows; e += kSliceRows) {
    asm volatile("");
#pragma GCC unroll 8
    for (int l = 0; l < kChains; ++l) {
      sum[l] = propagate_term(sum[l], values[e + l], x[int64_t(indices[e + l]) * (kUnit ? 1 : stride)]);
    }
  }
#pragma GCC unroll 8
  for (int l = 0; l < kChains; ++l) sums[l] = sum[l];
}

// Rows first .. stop; `first` starts a slice. What is left of a row after the common steps is added one by one.
template <typename T, bool kUnit>
CALIRARE_INLINE void slices(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, const int64_t* places,
                            int64_t first, int64_t stop) {
  for (int64_t r = first; r < stop; r += kSliceRows) {
    const int64_t size = std::min(kSliceRows, stop - r);
    const int64_t steps = size < kSliceRows ? 0 : a.indptr[r + kSliceRows] - a.indptr[r + kSliceRows - 1];
    int64_t e = a.indptr[r];
    T sums[kSliceRows];
    for (int64_t l = 0; l < kSliceRows; l += kChains) {
      common_steps<T, kUnit>(a.indices + e + l, a.values + e + l, steps, x.data, x.stride, sums + l);
    }
    e += steps * kSliceRows;
    for (int64_t l = 0; l < size; ++l) {
      T sum = sums[l];
      for (const int64_t end = e + a.indptr[r + l + 1] - a.indptr[r + l] - steps; e < end; ++e) {
        asm volatile("");  // as in propagate.cpp: no gathers that are then added in order
        sum = propagate_term(sum, a.values[e], x.data[int64_t(a.indices[e]) * x.stride]);
      }
      out.data[places[r + l] * out.stride] = sum;
    }
  }
}

CALIRARE_CLONES void slices_f32(CsrView<float> a, MatrixView<const float> x, MatrixView<float> out,
                                const int64_t* places, int64_t first, int64_t stop) {
  x.stride == 1 ? slices<float, true>(a, x, out, places, first, stop)
                : slices<float, false>(a, x, out, places, first, stop);
}
CALIRARE_CLONES void slices_f64(CsrView<double> a, MatrixView<const double> x, MatrixView<double> out,
                                const int64_t* places, int64_t first, int64_t stop) {
  x.stride == 1 ? slices<double, true>(a, x, out, places, first, stop)
                : slices<double, false>(a, x, out, places, first, stop);
}

constexpr int64_t kSerialWork = 1 << 13;  // entries; below it a second thread gains nothing

template <typename T, typename Rows>
void spread(const Parallel& parallel, CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, const int64_t* places,
            Rows rows) {
  const int64_t parts = std::min<int64_t>(parallel.threads, a.n_rows / kSliceRows);
  if (parts <= 1 || a.indptr[a.n_rows] < kSerialWork) return rows(a, x, out, places, 0, a.n_rows);
  auto cuts = balanced_cuts(a.indptr, a.n_rows, parts);
  for (int64_t part = 1; part < parts; ++part) cuts[part] -= cuts[part] % kSliceRows;
  parallel.run(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) rows(a, x, out, places, cuts[part], cuts[part + 1]);
  });
}

}  // namespace

void propagate_slices_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out,
                          const int64_t* places) {
  spread(parallel, a, x, out, places, slices_f32);
}

void propagate_slices_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x,
                          MatrixView<double> out, const int64_t* places) {
  spread(parallel, a, x, out, places, slices_f64);
}

}  // namespace calirare

#include "../ops/propagate.h"

#include <algorithm>

#include "../core/propagate_element.h"
#include "balance.h"

namespace calirare {
namespace {

// A vector register's worth of elements; loads and stores need no alignment.
template <typename T>
struct Vector;
template <>
struct Vector<float> {
  typedef float type __attribute__((vector_size(64), aligned(4), may_alias));
  static constexpr int kLanes = 16;
};
template <>
struct Vector<double> {
  typedef double type __attribute__((vector_size(64), aligned(8), may_alias));
  static constexpr int kLanes = 8;
};

constexpr int64_t kPrefetchAhead = 16;    // entries; measured best on graphs larger than the cache
constexpr int64_t kPartsPerThread = 8;    // evens out what the nnz balance does not see (cache misses)
constexpr int64_t kSerialWork = 1 << 16;  // multiply-adds; below it waking threads costs more than it saves

#define CALIRARE_INLINE inline __attribute__((always_inline))

// kVectors registers of one output row.
template <typename T, int kVectors>
CALIRARE_INLINE void row_tile(CsrView<T> a, int64_t begin, int64_t end, MatrixView<const T> x, int64_t column, T* out) {
  using V = typename Vector<T>::type;
  constexpr int kLanes = Vector<T>::kLanes;
  V sum[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sum[v] = V{};
  for (int64_t e = begin; e < end; ++e) {
    if (e + kPrefetchAhead < end) {
      const T* ahead = x.data + int64_t(a.indices[e + kPrefetchAhead]) * x.stride + column;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(ahead + v * kLanes);
    }
    const T* row = x.data + int64_t(a.indices[e]) * x.stride + column;
    const T weight = a.values[e];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[v] += weight * *reinterpret_cast<const V*>(row + v * kLanes);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(out + v * kLanes) = sum[v];
}

// The last columns, fewer than a register.
template <typename T, int kWidth>
CALIRARE_INLINE void row_tail(CsrView<T> a, int64_t begin, int64_t end, MatrixView<const T> x, int64_t column, T* out) {
  PropagateSum<T> sum[kWidth];
  for (int64_t e = begin; e < end; ++e) {
    const T* row = x.data + int64_t(a.indices[e]) * x.stride + column;
#pragma GCC unroll 16
    for (int c = 0; c < kWidth; ++c) sum[c].add(a.values[e], row[c]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < kWidth; ++c) out[c] = sum[c].finish();
}

template <typename T>
CALIRARE_INLINE void propagate_rows(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, int64_t first,
                                    int64_t last) {
  constexpr int64_t kLanes = Vector<T>::kLanes;
  for (int64_t r = first; r < last; ++r) {
    const int64_t begin = a.indptr[r], end = a.indptr[r + 1];
    T* row = out.data + r * out.stride;
    int64_t c = 0;
    for (; c + 8 * kLanes <= out.n_cols; c += 8 * kLanes) row_tile<T, 8>(a, begin, end, x, c, row + c);
    for (; c + 4 * kLanes <= out.n_cols; c += 4 * kLanes) row_tile<T, 4>(a, begin, end, x, c, row + c);
    for (; c + kLanes <= out.n_cols; c += kLanes) row_tile<T, 1>(a, begin, end, x, c, row + c);
    for (; c + 4 <= out.n_cols; c += 4) row_tail<T, 4>(a, begin, end, x, c, row + c);
    if (c + 2 <= out.n_cols) row_tail<T, 2>(a, begin, end, x, c, row + c), c += 2;
    if (c < out.n_cols) row_tail<T, 1>(a, begin, end, x, c, row + c);
  }
}

#define CALIRARE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#if !defined(__x86_64__)
#undef CALIRARE_CLONES
#define CALIRARE_CLONES
#endif

// target_clones does not take templates, hence one plain function per type.
CALIRARE_CLONES void rows_f32(CsrView<float> a, MatrixView<const float> x, MatrixView<float> out, int64_t first,
                              int64_t last) {
  propagate_rows(a, x, out, first, last);
}
CALIRARE_CLONES void rows_f64(CsrView<double> a, MatrixView<const double> x, MatrixView<double> out, int64_t first,
                              int64_t last) {
  propagate_rows(a, x, out, first, last);
}

template <typename T, typename Rows>
void spread(const Parallel& parallel, CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, Rows rows) {
  if (out.n_rows == 0 || out.n_cols == 0) return;
  const int64_t work = (a.indptr[a.n_rows] - a.indptr[0] + a.n_rows) * out.n_cols;
  const bool alone = parallel.threads == 1 || work < kSerialWork;
  const int64_t parts = alone ? 1 : std::min(out.n_rows, parallel.threads * kPartsPerThread);
  const auto cuts = balanced_cuts(a.indptr, a.n_rows, parts);
  parallel.run(parts, [&](int64_t begin, int64_t end) { rows(a, x, out, cuts[begin], cuts[end]); });
}

}  // namespace

void propagate_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out) {
  spread(parallel, a, x, out, rows_f32);
}

void propagate_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x, MatrixView<double> out) {
  spread(parallel, a, x, out, rows_f64);
}

}  // namespace calirare

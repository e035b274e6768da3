#include <algorithm>

#include "../ops/propagate.h"
#include "balance.h"
#include "clones.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace calirare {
namespace {

constexpr int64_t kBlockRows = 64 * kSliceRows;  // slices whose common steps are done before what is left of their rows

// Writes the sum of the common steps of each row of full slices, first .. stop.
template <typename T>
using CommonSteps = void (*)(CsrView<T> a, const T* x, int64_t stride, int64_t first, int64_t stop, T* sums);

template <typename T>
CALIRARE_INLINE int64_t steps_of(CsrView<T> a, int64_t slice) {
  return a.indptr[slice + kSliceRows] - a.indptr[slice + kSliceRows - 1];
}

template <typename T>
CALIRARE_INLINE void common_steps(CsrView<T> a, const T* x, int64_t stride, int64_t first, int64_t stop, T* sums) {
  for (int64_t r = first; r < stop; r += kSliceRows) {
    T sum[kSliceRows] = {};
    const int64_t end = a.indptr[r] + steps_of(a, r) * kSliceRows;
    for (int64_t e = a.indptr[r]; e < end; e += kSliceRows) {
      for (int64_t l = 0; l < kSliceRows; ++l) sum[l] += a.values[e + l] * x[int64_t(a.indices[e + l]) * stride];
    }
    std::copy_n(sum, kSliceRows, sums + (r - first));
  }
}

CALIRARE_CLONES void common_steps_f32(CsrView<float> a, const float* x, int64_t stride, int64_t first, int64_t stop,
                                      float* sums) {
  common_steps(a, x, stride, first, stop, sums);
}
CALIRARE_CLONES void common_steps_f64(CsrView<double> a, const double* x, int64_t stride, int64_t first, int64_t stop,
                                      double* sums) {
  common_steps(a, x, stride, first, stop, sums);
}

#if defined(__x86_64__)
// Gathers, which compilers do not find in the loop above; contiguous x only. Sums by operators, not by intrinsics, so
// that they follow the compiler's rule for fused multiply-add as everything else does.
__attribute__((target("arch=x86-64-v4"))) void gathered_steps_f32(CsrView<float> a, const float* x, int64_t,
                                                                  int64_t first, int64_t stop, float* sums) {
  for (int64_t r = first; r < stop; r += kSliceRows) {
    __m512 sum = _mm512_setzero_ps();
    const int64_t end = a.indptr[r] + steps_of(a, r) * kSliceRows;
    for (int64_t e = a.indptr[r]; e < end; e += kSliceRows) {
      const __m512i index = _mm512_loadu_si512(a.indices + e);
      sum += _mm512_loadu_ps(a.values + e) * _mm512_mask_i32gather_ps(sum, 0xffff, index, x, sizeof(float));
    }
    _mm512_storeu_ps(sums + (r - first), sum);
  }
}

__attribute__((target("arch=x86-64-v4"))) void gathered_steps_f64(CsrView<double> a, const double* x, int64_t,
                                                                  int64_t first, int64_t stop, double* sums) {
  const auto gather = [x](const int32_t* from) __attribute__((target("arch=x86-64-v4"))) {
    const __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_mask_i32gather_pd(_mm512_setzero_pd(), 0xff, index, x, sizeof(double));
  };
  for (int64_t r = first; r < stop; r += kSliceRows) {
    __m512d low = _mm512_setzero_pd(), high = low;
    const int64_t end = a.indptr[r] + steps_of(a, r) * kSliceRows;
    for (int64_t e = a.indptr[r]; e < end; e += kSliceRows) {
      low += _mm512_loadu_pd(a.values + e) * gather(a.indices + e);
      high += _mm512_loadu_pd(a.values + e + 8) * gather(a.indices + e + 8);
    }
    _mm512_storeu_pd(sums + (r - first), low);
    _mm512_storeu_pd(sums + (r - first) + 8, high);
  }
}

bool gathers() {
  static const bool found = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512cd");
  return found;
}

CommonSteps<float> best_steps(const float*, int64_t stride) {
  return stride == 1 && gathers() ? gathered_steps_f32 : common_steps_f32;
}
CommonSteps<double> best_steps(const double*, int64_t stride) {
  return stride == 1 && gathers() ? gathered_steps_f64 : common_steps_f64;
}
#else
CommonSteps<float> best_steps(const float*, int64_t) { return common_steps_f32; }
CommonSteps<double> best_steps(const double*, int64_t) { return common_steps_f64; }
#endif

// Rows first .. stop; `first` starts a slice. What is left of a row after the common steps is added one by one, by a
// function of the same clones as the steps, for the same rounding.
template <typename T>
CALIRARE_INLINE void slices(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, const int64_t* places,
                            int64_t first, int64_t stop, CommonSteps<T> common) {
  T sums[kBlockRows];
  for (int64_t block = first; block < stop; block += kBlockRows) {
    const int64_t size = std::min(kBlockRows, stop - block), full = block + size / kSliceRows * kSliceRows;
    common(a, x.data, x.stride, block, full, sums);
    std::fill(sums + (full - block), sums + size, T(0));
    int64_t e = 0, steps = 0;
    for (int64_t r = block; r < block + size; ++r) {
      if (r % kSliceRows == 0) {
        steps = r < full ? steps_of(a, r) : 0;
        e = a.indptr[r] + steps * kSliceRows;
      }
      T sum = sums[r - block];
      for (const int64_t end = e + a.indptr[r + 1] - a.indptr[r] - steps; e < end; ++e) {
        asm volatile("");  // as in propagate.cpp: no gathers that are then added in order
        sum += a.values[e] * x.data[int64_t(a.indices[e]) * x.stride];
      }
      out.data[places[r] * out.stride] = sum;
    }
  }
}

CALIRARE_CLONES void slices_f32(CsrView<float> a, MatrixView<const float> x, MatrixView<float> out,
                                const int64_t* places, int64_t first, int64_t stop) {
  slices(a, x, out, places, first, stop, best_steps(x.data, x.stride));
}
CALIRARE_CLONES void slices_f64(CsrView<double> a, MatrixView<const double> x, MatrixView<double> out,
                                const int64_t* places, int64_t first, int64_t stop) {
  slices(a, x, out, places, first, stop, best_steps(x.data, x.stride));
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

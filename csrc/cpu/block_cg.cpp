#include "../ops/block_cg.h"

namespace calirare {
namespace {

template <typename T>
double dot(const T* a, const T* b, int64_t size) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

template <typename T>
void descend(const Parallel& parallel, CgColumns columns, const T* p, const T* ap, T* x, T* r) {
  parallel.run(columns.b, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      CgColumn& column = columns.state[j];
      if (column.status != kCgRunning) continue;
      const int64_t start = j * columns.p;
      const double alpha = cg_step_length(column, dot(p + start, ap + start, columns.p));
      if (column.status != kCgRunning) continue;
      double r_dot_r = 0.0;
#pragma omp simd reduction(+ : r_dot_r)
      for (int64_t i = start; i < start + columns.p; ++i) {
        x[i] = cg_along(x[i], alpha, p[i]);
        r[i] = cg_along(r[i], -alpha, ap[i]);
        r_dot_r += double(r[i]) * double(r[i]);
      }
      cg_check_residual(column, r_dot_r);
    }
  });
}

template <typename T>
void redirect(const Parallel& parallel, CgColumns columns, const T* r, const T* z, T* p) {
  parallel.run(columns.b, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      CgColumn& column = columns.state[j];
      if (column.status != kCgRunning) continue;
      const int64_t start = j * columns.p;
      const double beta = cg_direction_weight(column, dot(r + start, z + start, columns.p));
      if (column.status != kCgRunning) continue;
#pragma omp simd
      for (int64_t i = start; i < start + columns.p; ++i) p[i] = cg_along(z[i], beta, p[i]);
    }
  });
}

}  // namespace

#define CALIRARE_DEFINE(T)                                                                                \
  void cg_descend_cpu(const Parallel& parallel, CgColumns columns, const T* p, const T* ap, T* x, T* r) { \
    descend(parallel, columns, p, ap, x, r);                                                              \
  }                                                                                                       \
  void cg_redirect_cpu(const Parallel& parallel, CgColumns columns, const T* r, const T* z, T* p) {       \
    redirect(parallel, columns, r, z, p);                                                                 \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare

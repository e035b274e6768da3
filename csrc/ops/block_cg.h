// block_cg: the vector work of conjugate gradients for many right-hand sides at once (paper, Eq. 7: H^-1 grad L(i)).
#pragma once
#include <cstdint>

#include "../core/block_cg_element.h"
#include "../core/parallel.h"

namespace calirare {

// b independent systems of size p; all matrices [b, p] row-major and contiguous. A column is one right-hand side.
struct CgColumns {
  CgColumn* state;  // [b]
  int64_t b, p;
};

// One step along the directions, for columns that are still running:
//   alpha = rho / (p . ap);  x += alpha p;  r -= alpha ap;  then the column checks its residual.
// Dot products accumulate in double in a fixed order, so two runs agree bit for bit; steps are made in double and
// rounded once. x, r, p and ap must not overlap. No scratch.
void cg_descend_cpu(const Parallel& parallel, CgColumns columns, const float* p, const float* ap, float* x, float* r);
void cg_descend_cpu(const Parallel& parallel, CgColumns columns, const double* p, const double* ap, double* x,
                    double* r);

// New directions for columns that are still running: beta = (r . z) / rho;  p = z + beta p;  rho = r . z.
// With rho = 0 (the first call) p = z. z may be r.
void cg_redirect_cpu(const Parallel& parallel, CgColumns columns, const float* r, const float* z, float* p);
void cg_redirect_cpu(const Parallel& parallel, CgColumns columns, const double* r, const double* z, double* p);

// The same on `device`, asynchronous on `stream`; `state` lies on the device and nothing is read back. Scratch lives in
// shared memory.
void cg_descend_cuda(int device, void* stream, CgColumns columns, const float* p, const float* ap, float* x, float* r);
void cg_descend_cuda(int device, void* stream, CgColumns columns, const double* p, const double* ap, double* x,
                     double* r);
void cg_redirect_cuda(int device, void* stream, CgColumns columns, const float* r, const float* z, float* p);
void cg_redirect_cuda(int device, void* stream, CgColumns columns, const double* r, const double* z, double* p);

}  // namespace calirare

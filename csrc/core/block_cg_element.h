// Conjugate gradients for one right-hand side: every decision a column takes, from its dot products alone.
#pragma once
#include <cstdint>

#include "host_device.h"

namespace calirare {

// Values are part of the Python interface (calirare_ext.SolverStatus).
enum CgStatus : int32_t {
  kCgRunning = 0,
  kCgConverged = 1,
  kCgMaxIterations = 2,
  kCgNegativeCurvature = 3,
  kCgNonFinite = 4,
};

struct CgColumn {
  double rho;        // r . z, z the preconditioned residual
  double threshold;  // squared norm of the residual at which the column is done
  int32_t status, iterations;
};

CALIRARE_HD bool cg_finite(double x) { return x - x == 0.0; }

// Step length along p from p . (A p). Sets a status, and returns 0, where there is no step to take: A is not positive
// definite along p, or a number is not finite.
CALIRARE_HD double cg_step_length(CgColumn& column, double p_dot_ap) {
  if (!cg_finite(p_dot_ap)) {
    column.status = kCgNonFinite;
    return 0.0;
  }
  if (p_dot_ap <= 0.0) {
    column.status = kCgNegativeCurvature;
    return 0.0;
  }
  const double alpha = column.rho / p_dot_ap;
  if (!cg_finite(alpha)) {  // p . (A p) is positive but next to nothing
    column.status = kCgNonFinite;
    return 0.0;
  }
  ++column.iterations;
  return alpha;
}

// One number of x, r or p after a step along a direction.
template <typename T>
CALIRARE_HD T cg_along(T start, double step, T direction) {
  return T(double(start) + step * double(direction));
}

// After x and r moved: done, lost, or going on.
CALIRARE_HD void cg_check_residual(CgColumn& column, double r_dot_r) {
  if (!cg_finite(r_dot_r)) {
    column.status = kCgNonFinite;
  } else if (r_dot_r <= column.threshold) {
    column.status = kCgConverged;
  }
}

// Weight of the old direction in p = z + beta p. A preconditioner that is not positive definite shows here.
CALIRARE_HD double cg_direction_weight(CgColumn& column, double r_dot_z) {
  if (!cg_finite(r_dot_z)) {
    column.status = kCgNonFinite;
    return 0.0;
  }
  if (r_dot_z <= 0.0) {
    column.status = kCgNegativeCurvature;
    return 0.0;
  }
  const double beta = column.rho == 0.0 ? 0.0 : r_dot_z / column.rho;
  column.rho = r_dot_z;
  return beta;
}

}  // namespace calirare

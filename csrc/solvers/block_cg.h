// Block conjugate gradients: b independent symmetric systems A x_j = g_j that share one product with A.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

namespace calirare {

using Product = std::function<at::Tensor(const at::Tensor&)>;  // [b, p] -> [b, p]

struct CgOptions {
  double tolerance = 1e-6;  // on |g - A x| / |g|
  int64_t max_iterations = 500;
  int64_t check_every = 1;  // iterations between looks at the statuses; 0: never (no host synchronisation)
};

struct CgResult {
  at::Tensor x;              // [b, p]
  at::Tensor status;         // [b] int32, CgStatus; never kCgRunning
  at::Tensor iterations;     // [b] int32
  at::Tensor residual_norm;  // [b] float64, |g - A x| / |g| recomputed with one more product; 0 where g = 0
};

// `precondition` maps residuals to M^-1 r; empty: the identity.
CgResult block_cg(const Product& product, const Product& precondition, const at::Tensor& g, const CgOptions& options);

}  // namespace calirare

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "block_cg.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

#include "../core/block_cg_element.h"
#include "launch.h"

namespace calirare {
namespace {

// Column states for residuals r = g: threshold (tolerance |g|)^2; columns with g = 0 are done, x = 0 is exact.
at::Tensor initial_state(const at::Tensor& g_norm, double tolerance) {
  const at::Tensor norms = g_norm.cpu();
  const double* norm = norms.const_data_ptr<double>();
  const int64_t b = norms.numel();
  at::Tensor state = at::empty({b * int64_t(sizeof(CgColumn))}, norms.options().dtype(at::kByte));
  CgColumn* column = reinterpret_cast<CgColumn*>(state.mutable_data_ptr<uint8_t>());
  for (int64_t j = 0; j < b; ++j) {
    const double limit = tolerance * norm[j];
    const int32_t status = norm[j] == 0.0 ? kCgConverged : cg_finite(norm[j]) ? kCgRunning : kCgNonFinite;
    column[j] = {0.0, limit * limit, status, 0};
  }
  return state.to(g_norm.device());
}

bool any_running(const at::Tensor& state) {
  const at::Tensor host = state.cpu();
  const CgColumn* column = reinterpret_cast<const CgColumn*>(host.const_data_ptr<uint8_t>());
  const int64_t b = host.numel() / int64_t(sizeof(CgColumn));
  for (int64_t j = 0; j < b; ++j) {
    if (column[j].status == kCgRunning) return true;
  }
  return false;
}

// The power of two just below each row's largest entry [b, 1]; 1 for rows of zeros and rows that are not finite.
// Divided by it a row keeps its digits, and squared norms of tiny or huge right-hand sides stay in range.
at::Tensor row_scales(const at::Tensor& g) {
  if (g.numel() == 0) return at::ones({g.size(0), 1}, g.options());
  const at::Tensor exponent = at::amax(g.abs(), {1}, true).log2().floor();
  return at::where(exponent.isfinite(), exponent.exp2(), at::ones({}, g.options()));
}

at::Tensor row_norms(const at::Tensor& x) { return at::linalg_vector_norm(x, 2, {1}, false, at::kDouble); }

// The kernels read raw pointers: what a caller's function returns must be shaped like what it was given.
Product checked(const Product& function, const char* name) {
  return [&function, name](const at::Tensor& v) {
    const at::Tensor out = function(v);
    TORCH_CHECK_VALUE(out.sizes() == v.sizes() && out.device() == v.device(), "block_cg: ", name, " must return shape ",
                      v.sizes(), " on ", v.device(), ", got ", out.sizes(), " on ", out.device());
    TORCH_CHECK_TYPE(out.scalar_type() == v.scalar_type(), "block_cg: ", name, " must return ", v.scalar_type(),
                     ", got ", out.scalar_type());
    return out.contiguous();
  };
}

void report(const at::Tensor& state, const at::TensorOptions& options, CgResult& result) {
  const at::Tensor host = state.cpu();
  const CgColumn* column = reinterpret_cast<const CgColumn*>(host.const_data_ptr<uint8_t>());
  const int64_t b = host.numel() / int64_t(sizeof(CgColumn));
  at::Tensor status = at::empty({b}, host.options().dtype(at::kInt)), iterations = at::empty_like(status);
  for (int64_t j = 0; j < b; ++j) {
    status.mutable_data_ptr<int32_t>()[j] = column[j].status == kCgRunning ? kCgMaxIterations : column[j].status;
    iterations.mutable_data_ptr<int32_t>()[j] = column[j].iterations;
  }
  result.status = status.to(options.device());
  result.iterations = iterations.to(options.device());
}

}  // namespace

CgResult block_cg(const Product& product_, const Product& precondition_, const at::Tensor& g,
                  const CgOptions& options) {
  TORCH_CHECK_VALUE(g.dim() == 2, "block_cg: rhs must be a matrix [b, p], got shape ", g.sizes());
  const at::NoGradGuard no_grad;
  const Product product = checked(product_, "product"), precondition = checked(precondition_, "precondition");
  const at::Tensor rhs = g.contiguous(), scales = row_scales(rhs);
  at::Tensor r = rhs / scales;
  const at::Tensor norms = row_norms(r);
  CgResult result;
  result.x = at::zeros_like(rhs);
  at::Tensor p = at::zeros_like(rhs), state = initial_state(norms, options.tolerance);
  for (int64_t k = 0; k < options.max_iterations; ++k) {
    if (options.check_every > 0 && k % options.check_every == 0 && !any_running(state)) break;
    cg_redirect(state, r, precondition_ ? precondition(r) : r, p);
    cg_descend(state, p, product(p), result.x, r);
  }
  report(state, rhs.options(), result);
  result.x.mul_(scales);
  const at::Tensor left = row_norms((rhs - product(result.x)) / scales);
  result.residual_norm = (left / norms).masked_fill(norms == 0, 0.0);
  return result;
}

}  // namespace calirare

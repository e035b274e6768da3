#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "block_cg.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
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

at::Tensor row_norms(const at::Tensor& x) { return at::linalg_vector_norm(x, 2, {1}, false, at::kDouble); }

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

CgResult block_cg(const Product& product, const Product& precondition, const at::Tensor& g, const CgOptions& options) {
  TORCH_CHECK_VALUE(g.dim() == 2, "block_cg: rhs must be a matrix [b, p], got shape ", g.sizes());
  const at::Tensor rhs = g.contiguous(), norms = row_norms(rhs);
  CgResult result;
  result.x = at::zeros_like(rhs);
  at::Tensor r = rhs.clone(), p = at::zeros_like(rhs), state = initial_state(norms, options.tolerance);
  for (int64_t k = 0; k < options.max_iterations; ++k) {
    if (options.check_every > 0 && k % options.check_every == 0 && !any_running(state)) break;
    cg_redirect(state, r, precondition ? precondition(r).contiguous() : r, p);
    cg_descend(state, p, product(p).contiguous(), result.x, r);
  }
  report(state, rhs.options(), result);
  const at::Tensor left = row_norms(rhs - product(result.x));
  result.residual_norm = (left / norms).masked_fill(norms == 0, 0.0);
  return result;
}

}  // namespace calirare

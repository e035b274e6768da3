#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "masked_gram.h"

#include "../ops/masked_gram.h"
#include "dispatch.h"

namespace calirare {

void masked_gram_out(const CsrTensors& a, const at::Tensor& panels, const at::Tensor& mask, const at::Tensor& scaled,
                     at::Tensor& out) {
  const char* op = "masked_gram";
  check_csr(a, op);
  TORCH_CHECK_VALUE(a.values.is_cpu(), op, ": a must be on the CPU");
  const auto check = [&](const at::Tensor& x, const char* name, int64_t rows, int64_t cols) {
    check_rows(x, op, name);
    check_same(x, a.values, op, name);
    TORCH_CHECK_VALUE(x.size(0) == rows && x.size(1) == cols, op, ": ", name, " must be [", rows, ", ", cols, "], got ",
                      x.sizes());
  };
  TORCH_CHECK_VALUE(scaled.dim() == 2, op, ": scaled must be a matrix");
  const int64_t r = scaled.size(0), h = scaled.size(1);
  check(scaled, "scaled", r, h);
  const int64_t width = kPanelBytes / int64_t(out.element_size());
  check_same(panels, a.values, op, "products");
  TORCH_CHECK_VALUE(panels.is_contiguous() && panels.dim() == 3 && panels.size(0) == (r + width - 1) / width &&
                        panels.size(1) == a.n_cols && panels.size(2) == width,
                    op, ": products must be panels [", (r + width - 1) / width, ", ", a.n_cols, ", ", width, "], got ",
                    panels.sizes());
  check(mask, "mask", a.n_cols, h);
  check(out, "out", r, a.n_rows());
  by_dtype(out, op, [&](auto zero) {
    using T = decltype(zero);
    masked_gram_cpu(torch_pool(), MaskedGramTask<T>{view<T>(a), panels.const_data_ptr<T>(), view<T>(mask),
                                                    view<T>(scaled), view_out<T>(out)});
  });
}

}  // namespace calirare

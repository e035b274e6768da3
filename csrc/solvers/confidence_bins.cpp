#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "confidence_bins.h"

#include <ATen/ops/empty.h>

#include "../ops/confidence_bins.h"
#include "dispatch.h"

namespace calirare {

std::pair<at::Tensor, int64_t> confidence_bins(const at::Tensor& probabilities, const at::Tensor& labels,
                                               const std::optional<at::Tensor>& weights, const at::Tensor& edges,
                                               double slack) {
  const char* op = "confidence_bins";
  check_rows(probabilities, op, "probabilities");
  check_same(edges, probabilities, op, "edges");
  const int64_t n = probabilities.size(0), n_bins = edges.numel() - 1;
  TORCH_CHECK_VALUE(probabilities.is_cpu() && probabilities.size(1) > 0, op,
                    ": probabilities must have columns and be on the CPU");
  TORCH_CHECK_VALUE(edges.is_contiguous() && n_bins > 0, op, ": edges must be contiguous, at least two");
  TORCH_CHECK_TYPE(labels.scalar_type() == at::kLong, op, ": labels must be int64, got ", labels.scalar_type());
  TORCH_CHECK_VALUE(labels.is_cpu() && labels.is_contiguous() && labels.numel() == n, op,
                    ": labels must be contiguous with one entry per row");
  if (weights) {
    TORCH_CHECK_TYPE(weights->scalar_type() == at::kDouble, op, ": weights must be float64");
    TORCH_CHECK_VALUE(weights->is_cpu() && weights->is_contiguous() && weights->numel() == n, op,
                      ": weights must be contiguous with one entry per row");
  }
  const auto doubles = probabilities.options().dtype(at::kDouble);
  at::Tensor sums = at::empty({4, n_bins}, doubles);
  at::Tensor partial = at::empty({confidence_bins_chunks(n, n_bins), 4, n_bins}, doubles);
  int64_t refused = 0;
  by_dtype(probabilities, op, [&](auto zero) {
    using T = decltype(zero);
    confidence_bins_cpu(
        torch_pool(),
        ConfidenceBinsTask<T>{view<T>(probabilities), labels.const_data_ptr<int64_t>(),
                              weights ? weights->const_data_ptr<double>() : nullptr, edges.const_data_ptr<T>(), n_bins,
                              T(slack), partial.mutable_data_ptr<double>(), sums.mutable_data_ptr<double>(), &refused});
  });
  return {sums, refused};
}

}  // namespace calirare

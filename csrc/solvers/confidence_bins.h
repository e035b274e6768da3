// confidence_bins on torch tensors; see ops/confidence_bins.h. The caller has checked shapes and dtypes.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

namespace calirare {

// Sums [4, edges - 1] in double, and how many rows were refused.
std::pair<at::Tensor, int64_t> confidence_bins(const at::Tensor& probabilities, const at::Tensor& labels,
                                               const std::optional<at::Tensor>& weights, const at::Tensor& edges,
                                               double slack);

}  // namespace calirare

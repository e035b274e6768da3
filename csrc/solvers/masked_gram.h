// The first layer's share of the kernel of a two-layer ReLU network; see ops/masked_gram.h.
#pragma once
#include "launch.h"

namespace calirare {

void masked_gram_out(const CsrTensors& a, const at::Tensor& panels, const at::Tensor& mask, const at::Tensor& scaled,
                     at::Tensor& out);

}  // namespace calirare

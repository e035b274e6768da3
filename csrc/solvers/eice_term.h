// L_EICE of the paper (Eq. 10) with its gradient in closed form. The caller has checked shapes and dtypes.
#pragma once
#include <ATen/core/Tensor.h>

namespace calirare {

// Nodes v with logits [n, k], labels i with logits own_logits [m, k] and classes targets [m]; change [n, k - 1, m] and
// own_change [m, k - 1] are what leaving label i out does to the differences to class 0. f is the probability of class
// 1, with more than two classes of the predicted one; q are the two quantiles.
struct EiceInputs {
  at::Tensor logits, change, own_logits, own_change, targets;
  double q[2];
};

// What the gradient goes through: the confidence, the scores f(v; theta_-i), the residuals |y_i - f(i; theta_-i)|.
struct EicePaths {
  bool confidence, scores, residuals;
};

struct EiceTerm {
  at::Tensor value;         // mean of |uncer(v) - conf(v)|, a scalar
  at::Tensor gradient;      // at the logits [n, k]
  at::Tensor own_gradient;  // at the labels' own logits [m, k]
};

// An end is made of two samples f(v; theta_-i) -/+ r_i, so of the [n, m] scores only four a node have a gradient.
EiceTerm eice_term(const EiceInputs& inputs, EicePaths paths);

}  // namespace calirare

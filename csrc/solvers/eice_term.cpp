#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "eice_term.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "../core/jackknife_interval_element.h"
#include "launch.h"

namespace calirare {
namespace {

// Class whose probability is f, int64 [n].
at::Tensor watched_class(const at::Tensor& logits) {
  if (logits.size(1) != 2) return logits.argmax(1);
  return logits.new_ones({logits.size(0)}, logits.options().dtype(at::kLong));
}

// Differences to class 0 in each left-out model, [n, k - 1, s], from logits [n, k] and changes [n, k - 1, s].
at::Tensor moved(const at::Tensor& logits, const at::Tensor& change) {
  return (logits.slice(1, 1) - logits.slice(1, 0, 1)).unsqueeze(2) + change;
}

// Softmax in each left-out model, [n, k, s].
at::Tensor probabilities(const at::Tensor& logits, const at::Tensor& change) {
  const at::Tensor differences = moved(logits, change);
  return at::cat({at::zeros({logits.size(0), 1, change.size(2)}, logits.options()), differences}, 1).softmax(1);
}

// An index of class `of`[v] for [n, k] or [n, k, s].
at::Tensor place_of(const at::Tensor& of, const at::Tensor& p) {
  return p.dim() == 2 ? of.unsqueeze(1) : of.view({-1, 1, 1}).expand({-1, 1, p.size(2)});
}

// f(v; theta_-i), [n, m].
at::Tensor scores_of(const at::Tensor& logits, const at::Tensor& change, const at::Tensor& watched) {
  if (logits.size(1) == 2) return moved(logits, change).squeeze(1).sigmoid_();
  const at::Tensor p = probabilities(logits, change);
  return p.gather(1, place_of(watched, p)).squeeze(1);
}

// d p_c / d z = p_c (onehot(c) - p) for class c = of[v].
at::Tensor derivative(const at::Tensor& p, const at::Tensor& of) {
  const at::Tensor place = place_of(of, p), chosen = p.gather(1, place);
  return (p * chosen).neg_().scatter_add_(1, place, chosen);
}

// How much each of the four samples adds to the midpoint: negative for the residuals of the lower end.
at::Tensor weights_of(const EiceInputs& in) {
  at::Tensor weights = at::zeros({4}, in.logits.options().device(at::kCPU).dtype(at::kDouble));
  double* w = weights.mutable_data_ptr<double>();
  for (int side = 0; side < 2; ++side) {
    const double above = quantile_rank(in.change.size(2), in.q[side]).fraction, sign = side == 0 ? -0.5 : 0.5;
    w[2 * side] = sign * (1 - above);
    w[2 * side + 1] = sign * above;
  }
  return weights.to(in.logits.options());
}

// Sums of the values at each place, [size], in an order that does not change from run to run.
at::Tensor summed(const at::Tensor& places, const at::Tensor& values, int64_t size) {
  at::Tensor sums = at::zeros({size}, values.options());
  if (values.is_cpu()) return sums.index_add_(0, places.flatten(), values.flatten());
  return sums.index_put_({places.flatten()}, values.flatten(), true);
}

}  // namespace

EiceTerm eice_term(const EiceInputs& in, EicePaths paths) {
  const int64_t n = in.logits.size(0), m = in.targets.size(0);
  const at::Tensor predicted = in.logits.argmax(1), watched = watched_class(in.logits);
  const at::Tensor own_watched = watched_class(in.own_logits), right = in.targets == own_watched;
  const at::Tensor own_score = scores_of(in.own_logits, in.own_change.unsqueeze(2), own_watched).squeeze(1);
  const at::Tensor residuals = (right.to(own_score.scalar_type()) - own_score).abs_();
  const auto [ends, int_places] =
      jackknife_interval(scores_of(in.logits, in.change, watched), residuals, in.q[0], in.q[1]);
  const at::Tensor midpoint = ends.mean(1), p = in.logits.softmax(1), other = watched != predicted;
  const at::Tensor confidence = p.gather(1, predicted.unsqueeze(1)).squeeze(1);
  const at::Tensor gap = midpoint.where(other.logical_not(), 1 - midpoint) - confidence;
  const at::Tensor slope = gap.sign().div_(n);

  EiceTerm term{gap.abs().mean(), at::zeros({n, p.size(1)}, p.options()), at::zeros({m, p.size(1)}, p.options())};
  if (paths.confidence) term.gradient -= slope.unsqueeze(1) * derivative(p, predicted);
  if (!paths.scores && !paths.residuals) return term;
  const at::Tensor at_midpoint = slope.where(other.logical_not(), -slope).unsqueeze(1);
  const at::Tensor places = int_places.view({n, 4}).to(at::kLong), weights = weights_of(in);
  if (paths.scores) {
    const int64_t differences = in.change.size(1);
    const at::Tensor there = in.change.gather(2, places.unsqueeze(1).expand({-1, differences, -1}));
    const at::Tensor slopes = derivative(probabilities(in.logits, there), watched);  // [n, k, 4]
    term.gradient += at_midpoint * slopes.matmul(weights.abs());
  }
  if (paths.residuals) {
    const at::Tensor at_residual = summed(places, at_midpoint * weights, m);
    const at::Tensor at_score = (-at_residual).where(right, at_residual).unsqueeze(1);
    const at::Tensor own_p = probabilities(in.own_logits, in.own_change.unsqueeze(2)).squeeze(2);
    term.own_gradient += at_score * derivative(own_p, own_watched);
  }
  return term;
}

}  // namespace calirare

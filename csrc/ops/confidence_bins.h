// confidence_bins: the sums per bin of confidence that expected and maximum calibration error are made of (paper, Eq.
// 2).
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

//   probabilities  [n, k], rows `stride` apart, k >= 1
//   labels         [n]
//   weights        [n], or null: every sample counts 1
//   edges          [n_bins + 1], ascending from 0 to 1, m / n_bins rounded to T
//   slack          how far a row's sum may be from 1
//   partial        [confidence_bins_chunks(n, n_bins), 4, n_bins] scratch
//   sums           [4, n_bins]: samples, weight, weight x confidence, weight x (prediction is right); written in full
//   refused        rows that are no distribution (NaN and entries outside [0, 1] among them) or whose label is not in
//                  0..k-1; such rows enter no sum
// The confidence is the largest probability of the row, the prediction the first class that has it. Sums are made in
// double, chunk by chunk of fixed size and then over chunks in order: the number of threads changes no bit. What is
// written must not overlap what is read.
// There is no CUDA twin: tensors on a GPU take torch's own operators (calirare.metrics.binning).
template <typename T>
struct ConfidenceBinsTask {
  MatrixView<const T> probabilities;
  const int64_t* labels;
  const double* weights;
  const T* edges;
  int64_t n_bins;
  T slack;
  double* partial;
  double* sums;
  int64_t* refused;
};

int64_t confidence_bins_chunks(int64_t n, int64_t n_bins);

void confidence_bins_cpu(const Parallel& parallel, const ConfidenceBinsTask<float>& task);
void confidence_bins_cpu(const Parallel& parallel, const ConfidenceBinsTask<double>& task);

}  // namespace calirare

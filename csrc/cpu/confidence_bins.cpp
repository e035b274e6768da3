#include "../ops/confidence_bins.h"

#include <algorithm>
#include <atomic>

#include "../core/confidence_bins_element.h"

namespace calirare {
namespace {

// Rows of a chunk: enough to make its sums' share of memory and of merging small.
int64_t chunk_rows(int64_t n_bins) { return std::max<int64_t>(8192, 64 * n_bins); }

template <typename T>
int64_t add_rows(const ConfidenceBinsTask<T>& t, int64_t first, int64_t last, double* sums) {
  const int64_t k = t.probabilities.n_cols, m = t.n_bins;
  int64_t refused = 0;
  for (int64_t r = first; r < last; ++r) {
    const T* row = t.probabilities.data + r * t.probabilities.stride;
    ConfidenceRow<T> found(row[0]);
    for (int64_t c = 1; c < k; ++c) found.add(row[c]);
    const int64_t label = t.labels[r];
    if (!found.is_distribution(t.slack) || label < 0 || label >= k) {
      ++refused;
      continue;
    }
    const double weight = t.weights ? t.weights[r] : 1.0;
    double* bin = sums + bin_of(found.largest, t.edges, m);
    bin[0] += 1.0;
    bin[m] += weight;
    bin[2 * m] += weight * double(found.largest);
    if (found.predicts(row, label)) bin[3 * m] += weight;
  }
  return refused;
}

template <typename T>
void confidence_bins_any(const Parallel& parallel, const ConfidenceBinsTask<T>& t) {
  const int64_t n = t.probabilities.n_rows, size = 4 * t.n_bins;
  const int64_t rows = chunk_rows(t.n_bins), chunks = confidence_bins_chunks(n, t.n_bins);
  std::atomic<int64_t> refused{0};
  parallel.run(chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double* own = t.partial + c * size;
      std::fill(own, own + size, 0.0);
      refused += add_rows(t, c * rows, std::min(n, (c + 1) * rows), own);
    }
  });
  std::fill(t.sums, t.sums + size, 0.0);
  for (int64_t c = 0; c < chunks; ++c) {
    for (int64_t i = 0; i < size; ++i) t.sums[i] += t.partial[c * size + i];
  }
  *t.refused = refused;
}

}  // namespace

int64_t confidence_bins_chunks(int64_t n, int64_t n_bins) {
  const int64_t rows = chunk_rows(n_bins);
  return (n + rows - 1) / rows;
}

void confidence_bins_cpu(const Parallel& parallel, const ConfidenceBinsTask<float>& task) {
  confidence_bins_any(parallel, task);
}
void confidence_bins_cpu(const Parallel& parallel, const ConfidenceBinsTask<double>& task) {
  confidence_bins_any(parallel, task);
}

}  // namespace calirare

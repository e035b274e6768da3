#include "../ops/confidence_bins.h"

#include <algorithm>
#include <atomic>

#include "../core/confidence_bins_element.h"
#include "clones.h"

namespace calirare {
namespace {

// Rows of a chunk: enough to make its sums' share of memory and of merging small.
int64_t chunk_rows(int64_t n_bins) { return std::max<int64_t>(8192, 64 * n_bins); }

// Rows r .. r + kLanes into the sums; false, and nothing added, if one of them is refused.
template <typename T, int kLanes, bool kWeighted>
CALIRARE_INLINE bool add_block(const ConfidenceBinsTask<T>& t, int64_t r, double* sums) {
  const int64_t k = t.probabilities.n_cols, m = t.n_bins;
  ConfidenceRows<T, kLanes> rows;
  rows.read(t.probabilities.data + r * t.probabilities.stride, t.probabilities.stride, k);
  const int64_t* labels = t.labels + r;
  double right[kLanes];
  int refused = 0;
#pragma omp simd reduction(+ : refused)
  for (int l = 0; l < kLanes; ++l) {
    refused += !(rows.is_distribution(l, t.slack) & (labels[l] >= 0) & (labels[l] < k));
    right[l] = rows.predicted[l] == labels[l] ? 1.0 : 0.0;
  }
  if (refused) return false;
  for (int l = 0; l < kLanes; ++l) {
    double* bin = sums + bin_of(rows.largest[l], t.edges, m);
    const double weight = kWeighted ? t.weights[r + l] : 1.0;
    bin[0] += 1.0;
    if (kWeighted) bin[m] += weight;
    bin[2 * m] += weight * double(rows.largest[l]);
    bin[3 * m] += weight * right[l];
  }
  return true;
}

constexpr int kLanes = 16;  // float rows of one AVX-512 register, double rows of two

// Blocks that hold a refused row, and what the blocks leave over, row by row.
template <typename T, bool kWeighted>
CALIRARE_INLINE int64_t add_rows(const ConfidenceBinsTask<T>& t, int64_t first, int64_t last, double* sums) {
  int64_t refused = 0;
  for (int64_t r = first; r < last;) {
    const int64_t stop = std::min<int64_t>(r + kLanes, last);
    if (stop - r == kLanes && add_block<T, kLanes, kWeighted>(t, r, sums)) {
      r = stop;
      continue;
    }
    for (; r < stop; ++r) refused += !add_block<T, 1, kWeighted>(t, r, sums);
  }
  if (!kWeighted) std::copy(sums, sums + t.n_bins, sums + t.n_bins);
  return refused;
}

// target_clones does not take templates, hence one plain function per type.
CALIRARE_CLONES int64_t rows_f32(const ConfidenceBinsTask<float>& t, int64_t first, int64_t last, double* sums) {
  return t.weights ? add_rows<float, true>(t, first, last, sums) : add_rows<float, false>(t, first, last, sums);
}
CALIRARE_CLONES int64_t rows_f64(const ConfidenceBinsTask<double>& t, int64_t first, int64_t last, double* sums) {
  return t.weights ? add_rows<double, true>(t, first, last, sums) : add_rows<double, false>(t, first, last, sums);
}

template <typename T, typename Rows>
void confidence_bins_any(const Parallel& parallel, const ConfidenceBinsTask<T>& t, Rows rows_into) {
  const int64_t n = t.probabilities.n_rows, size = 4 * t.n_bins;
  const int64_t rows = chunk_rows(t.n_bins), chunks = confidence_bins_chunks(n, t.n_bins);
  std::atomic<int64_t> refused{0};
  parallel.run(chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double* own = t.partial + c * size;
      std::fill(own, own + size, 0.0);
      refused += rows_into(t, c * rows, std::min(n, (c + 1) * rows), own);
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
  confidence_bins_any(parallel, task, rows_f32);
}
void confidence_bins_cpu(const Parallel& parallel, const ConfidenceBinsTask<double>& task) {
  confidence_bins_any(parallel, task, rows_f64);
}

}  // namespace calirare

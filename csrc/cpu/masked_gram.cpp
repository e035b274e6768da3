#include "../ops/masked_gram.h"

#include <algorithm>
#include <vector>

#include "clones.h"
#include "vector.h"

namespace calirare {
namespace {

constexpr int64_t kSerialWork = 1 << 16;  // vector steps below which a second thread gains nothing

template <typename T>
constexpr int64_t kWide = kPanelBytes / int64_t(sizeof(T));

// Rows u = first .. first + kWide: units in scratch as [h, kWide], sums as [m, kWide].
template <typename T, int kBytes>
CALIRARE_INLINE void block(const MaskedGramTask<T>& t, int64_t first, T* units, T* sums) {
  constexpr int kLanes = kBytes / sizeof(T), kVectors = kPanelBytes / kBytes;  // of rows u side by side
  using V = typename Vector<T, kLanes>::type;
  const int64_t h = t.mask.n_cols, size = std::min(kWide<T>, t.scaled.n_rows - first);
  for (int64_t j = 0; j < h; ++j) {
    for (int64_t l = 0; l < kWide<T>; ++l) {
      units[j * kWide<T> + l] = l < size ? t.scaled.data[(first + l) * t.scaled.stride + j] : T(0);
    }
  }
  const int64_t rows = t.mask.n_rows;
  const T* panel = t.panels + first * rows;
  const T* next = first + kWide<T> < t.scaled.n_rows ? panel + kWide<T> * rows : panel;
  for (int64_t i = 0; i < t.a.n_rows; ++i) {
    V sum[kVectors] = {};
    for (int64_t e = t.a.indptr[i]; e < t.a.indptr[i + 1]; ++e) {
      const int64_t w = t.a.indices[e];
      const T* mask = t.mask.data + w * t.mask.stride;
      const T* ahead = next + std::min(e, rows - 1) * kWide<T>;  // the next panel comes while this one is used
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(ahead + v * kLanes, 0, 2);
      V active[kVectors] = {};
      for (int64_t j = 0; j < h; ++j) {
        for (int v = 0; v < kVectors; ++v) {
          active[v] += mask[j] * *reinterpret_cast<const V*>(units + j * kWide<T> + v * kLanes);
        }
      }
      const T* products = panel + w * kWide<T>;
      for (int v = 0; v < kVectors; ++v) {
        sum[v] += t.a.values[e] * (*reinterpret_cast<const V*>(products + v * kLanes) * active[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(sums + i * kWide<T> + v * kLanes) = sum[v];
  }
  for (int64_t l = 0; l < size; ++l) {
    T* out = t.out.data + (first + l) * t.out.stride;
    for (int64_t i = 0; i < t.a.n_rows; ++i) out[i] = sums[i * kWide<T> + l];
  }
}

// target_clones does not take templates, hence plain functions; see propagate.cpp for the two lengths.
CALIRARE_CLONES void block_f32_64(const MaskedGramTask<float>& t, int64_t first, float* units, float* sums) {
  block<float, 64>(t, first, units, sums);
}
CALIRARE_CLONES void block_f32_32(const MaskedGramTask<float>& t, int64_t first, float* units, float* sums) {
  block<float, 32>(t, first, units, sums);
}
CALIRARE_CLONES void block_f64_64(const MaskedGramTask<double>& t, int64_t first, double* units, double* sums) {
  block<double, 64>(t, first, units, sums);
}
CALIRARE_CLONES void block_f64_32(const MaskedGramTask<double>& t, int64_t first, double* units, double* sums) {
  block<double, 32>(t, first, units, sums);
}

template <typename T, typename Block>
void spread(const Parallel& parallel, const MaskedGramTask<T>& t, Block one) {
  const int64_t blocks = (t.scaled.n_rows + kWide<T> - 1) / kWide<T>;
  const auto body = [&](int64_t begin, int64_t end) {
    std::vector<T> units(t.mask.n_cols * kWide<T>), sums(t.a.n_rows * kWide<T>);
    for (int64_t b = begin; b < end; ++b) one(t, b * kWide<T>, units.data(), sums.data());
  };
  const int64_t work = blocks * t.a.indptr[t.a.n_rows] * (t.mask.n_cols + 1);
  if (parallel.threads == 1 || blocks < 2 || work < kSerialWork) return body(0, blocks);
  parallel.run(blocks, body);
}

}  // namespace

void masked_gram_cpu(const Parallel& parallel, const MaskedGramTask<float>& task) {
  spread(parallel, task, long_vectors() ? block_f32_64 : block_f32_32);
}
void masked_gram_cpu(const Parallel& parallel, const MaskedGramTask<double>& task) {
  spread(parallel, task, long_vectors() ? block_f64_64 : block_f64_32);
}

}  // namespace calirare

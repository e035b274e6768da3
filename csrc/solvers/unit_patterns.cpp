#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "unit_patterns.h"

#include <algorithm>

#include "dispatch.h"

namespace calirare {
namespace {

constexpr int64_t kMostUnits = 16;  // of a group: patterns are counted in a table of 2^16

// Bit j of word w: is unit 16 w + j of the row active?
template <typename T>
std::vector<uint16_t> active_bits(const T* z, int64_t stride, int64_t r, int64_t h, int64_t words) {
  std::vector<uint16_t> bits(r * words, 0);
  over_pool(0, r, 4096, [&](int64_t first, int64_t last) {
    for (int64_t u = first; u < last; ++u) {
      for (int64_t j = 0; j < h; ++j) {
        bits[u * words + j / kMostUnits] |= uint16_t((z[u * stride + j] > T(0)) << (j % kMostUnits));
      }
    }
  });
  return bits;
}

// Units first .. first + n of a row; they may lie in two words.
struct Window {
  const uint16_t* bits;
  int64_t words, first, n;
  uint32_t operator()(int64_t u) const {
    const uint16_t* row = bits + u * words;
    const int64_t word = first / kMostUnits;
    const uint32_t both = uint32_t(row[word]) | (word + 1 < words ? uint32_t(row[word + 1]) << kMostUnits : 0u);
    return (both >> (first % kMostUnits)) & ((1u << n) - 1u);
  }
};

// How many rows have each pattern.
std::vector<int32_t> count(const Window& window, int64_t r) {
  std::vector<int32_t> counts(size_t(1) << window.n, 0);
  for (int64_t u = 0; u < r; ++u) ++counts[window(u)];
  return counts;
}

PatternGroup sorted(const Window& window, int64_t r, std::vector<int32_t> counts) {
  PatternGroup group{window.first, window.n, {}, {0}, std::vector<int32_t>(r)};
  for (size_t p = 0; p < counts.size(); ++p) {
    if (counts[p] == 0) continue;
    group.pattern.push_back(uint32_t(p));
    group.start.push_back(group.start.back() + counts[p]);
    counts[p] = int32_t(group.start[group.start.size() - 2]);  // from now on: where the next such row goes
  }
  for (int64_t u = 0; u < r; ++u) group.order[counts[window(u)]++] = int32_t(u);
  return group;
}

}  // namespace

std::vector<PatternGroup> group_patterns(const at::Tensor& z, const PatternCost& cost) {
  const int64_t r = z.size(0), h = z.size(1), words = (h + kMostUnits - 1) / kMostUnits;
  if (h == 0) return {};
  std::vector<uint16_t> bits;
  by_dtype(z, "loo_messages", [&](auto zero) {
    using T = decltype(zero);
    bits = active_bits(z.const_data_ptr<T>(), z.stride(0), r, h, words);
  });
  std::vector<PatternGroup> best;
  double least = 0;
  for (int64_t n_groups = words; n_groups <= h; n_groups *= 2) {
    double work = 0;
    std::vector<Window> windows;
    std::vector<std::vector<int32_t>> counts;
    for (int64_t g = 0; g < n_groups; ++g) {
      const int64_t first = h * g / n_groups, last = h * (g + 1) / n_groups;
      windows.push_back({bits.data(), words, first, last - first});
      counts.push_back(count(windows.back(), r));
      for (int32_t rows : counts.back()) work += rows == 0 ? 0.0 : cost.of(rows, last - first);
    }
    if (!best.empty() && work >= least) continue;
    least = work;
    best.clear();
    for (int64_t g = 0; g < n_groups; ++g) best.push_back(sorted(windows[g], r, std::move(counts[g])));
    if (work <= double(r * n_groups) * 1.5) break;  // patterns cost little already: more groups cannot pay
  }
  return best;
}

}  // namespace calirare

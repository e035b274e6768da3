// The CUDA twin of neighbour_means against the CPU twin.
#include "../ops/neighbour_means.h"

#include "neighbour_means.cuh"
#include "rows.h"

namespace calirare::testing {
namespace {

struct Means {
  template <typename T>
  static void cpu(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out) {
    neighbour_means_cpu(kSerial, a, x, out);
  }
  template <typename T>
  static void cuda(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, GridLimits limits) {
    launch_neighbour_means(a, x, out, nullptr, limits);
  }

  // Each twin rounds the mean to T once; sums of t terms and of the weights are off by t units of double at most.
  template <typename T>
  static bool within(const Csr<T>& a, const Array<T>& x, int64_t stride, const Array<T>& got, const Array<T>& want,
                     int64_t width) {
    for (int64_t r = 0; r + 1 < a.indptr.size(); ++r) {
      double total = 0, weights = 0;
      for (int64_t e = a.indptr[r]; e < a.indptr[r + 1]; ++e) {
        total += double(a.values[e]), weights += std::abs(double(a.values[e]));
      }
      const double terms = double(a.indptr[r + 1] - a.indptr[r]) + 2, cancelled = weights / std::abs(total);
      for (int64_t c = 0; c < width; ++c) {
        double size = 0;
        for (int64_t e = a.indptr[r]; e < a.indptr[r + 1]; ++e) {
          size += std::abs(double(a.values[e]) * double(x[a.indices[e] * stride + c]) / total);
        }
        const double y = double(want[r * stride + c]), off = std::abs(double(got[r * stride + c]) - y);
        const double sums = 2 * terms * std::numeric_limits<double>::epsilon() * (1 + cancelled) * size;
        if (total != 0 && !(off <= sums + double(std::numeric_limits<T>::epsilon()) * std::abs(y))) return false;
      }
    }
    return true;
  }
};

void tests(Checks& checks) {
  using T = float;
  widths<Means, T>(checks, {1, 2, 3, 8, 12, 16, 31, 32, 33, 64, 100, 128, 160}, Data::kIntegers, {1, 2});
  widths<Means, T>(checks, {1, 2, 16, 33, 160}, Data::kReals, {3});
  for (int64_t n_rows : {1, 31, 32, 33, 257}) {
    check<Means, T>(checks, {mixed_degrees(n_rows, 70), 41, 2}, Data::kIntegers, {5});
  }
  const GridLimits few_blocks{2, 1};  // the kernel has to come back for more rows and tiles
  check<Means, T>(checks, {mixed_degrees(66, 70), 57, 200, 0, 0, few_blocks}, Data::kReals, {6});
  for (int64_t padding : {1, 4}) {
    for (int64_t width : {1, 5, 16, 64})
      check<Means, T>(checks, {mixed_degrees(9, 80), 23, width, padding}, Data::kReals, {7});
  }
  check<Means, T>(checks, {{600, 600, 0, 600}, 10, 2}, Data::kReals, {1, 2, 3, 4, 5, 6});  // several hubs in one block
  check<Means, T>(checks, {{0, 0, 0}, 4, 16}, Data::kIntegers, {1});
  check<Means, T>(checks, {{}, 4, 16}, Data::kIntegers, {1});
  check<Means, T>(checks, {{1, 2}, 4, 0}, Data::kIntegers, {1});
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) {
  return calirare::testing::run(argc, argv, "neighbour_means", calirare::testing::tests);
}

// The CUDA twin of propagate against the CPU twin.
#include "../ops/propagate.h"

#include "propagate.cuh"
#include "rows.h"

namespace calirare::testing {
namespace {

struct Propagate {
  template <typename T>
  static void cpu(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out) {
    propagate_cpu(kSerial, a, x, out);
  }
  template <typename T>
  static void cuda(CsrView<T> a, MatrixView<const T> x, MatrixView<T> out, GridLimits limits) {
    launch_propagate(a, x, out, nullptr, limits);
  }

  // |twin - exact| <= t u S for a sum of t terms, S the sum of their absolute values; twice that between twins.
  template <typename T>
  static bool within(const Csr<T>& a, const Array<T>& x, int64_t stride, const Array<T>& got, const Array<T>& want,
                     int64_t width) {
    for (int64_t r = 0; r + 1 < a.indptr.size(); ++r) {
      for (int64_t c = 0; c < width; ++c) {
        double size = 0;
        for (int64_t e = a.indptr[r]; e < a.indptr[r + 1]; ++e) {
          size += std::abs(double(a.values[e]) * double(x[a.indices[e] * stride + c]));
        }
        const double terms = double(a.indptr[r + 1] - a.indptr[r]);
        const double bound = 2 * terms * double(std::numeric_limits<T>::epsilon()) * size;
        if (!(std::abs(double(got[r * stride + c]) - double(want[r * stride + c])) <= bound)) return false;
      }
    }
    return true;
  }
};

void shapes(Checks& checks) {
  using T = float;
  for (int64_t width : {255, 256, 257, 1000})
    check<Propagate, T>(checks, {mixed_degrees(4, 270), 57, width}, Data::kIntegers, {4});
  for (int64_t n_rows : {1, 31, 32, 33, 257, 1000}) {
    check<Propagate, T>(checks, {mixed_degrees(n_rows, 70), 41, 2}, Data::kIntegers, {5});
  }
  const GridLimits few_blocks{2, 1};  // the kernel has to come back for more rows and tiles
  for (int64_t width : {1, 200}) {
    check<Propagate, T>(checks, {mixed_degrees(66, 70), 57, width, 0, 0, few_blocks}, Data::kIntegers, {6});
  }
  for (int64_t padding : {1, 4}) {  // strides: with 4 packs still fit, with 1 they do not
    for (int64_t width : {1, 2, 5, 16, 64})
      check<Propagate, T>(checks, {mixed_degrees(9, 300), 23, width, padding}, Data::kIntegers, {7});
  }
  check<Propagate, T>(checks, {mixed_degrees(9, 80), 23, 64, 0, 1}, Data::kIntegers, {8});  // x is not aligned
  for (int64_t width : {2, 31})                                                             // several hubs in one block
    check<Propagate, T>(checks, {{600, 600, 0, 600}, 10, width}, Data::kIntegers, {1, 2, 3, 4, 5, 6});
  std::vector<int64_t> many(33000, 1);  // so many that a block has more rows than a warp has lanes
  many[40] = many[32999] = 300;
  check<Propagate, T>(checks, {many, 57, 1}, Data::kIntegers, {1});
  check<Propagate, T>(checks, {{0, 0, 0}, 4, 16}, Data::kIntegers, {1});
  check<Propagate, T>(checks, {{}, 4, 16}, Data::kIntegers, {1});
  check<Propagate, T>(checks, {{1, 2}, 4, 0}, Data::kIntegers, {1});
}

// What a column of x holds stays in that column, and an entry past a row's end never multiplies an infinite x.
void infinities_stay_put(Checks& checks) {
  for (int64_t width : {2, 16, 33}) {
    Random random(3);
    const Csr<float> a = make_csr<float>({1, 5, 0, 40}, 50, Data::kIntegers, random);
    Array<float> x = random.numbers<float>(50 * width, Data::kIntegers), want(4 * width), got(4 * width);
    x[0] = INFINITY;
    x[49 * width + 1] = NAN;
    const auto x_on = [&](Place place) { return MatrixView<const float>{x.on(place), 50, width, width}; };
    propagate_cpu(kSerial, a.on(Place::kHost), x_on(Place::kHost), {want.data(), 4, width, width});
    launch_propagate(a.on(Place::kDevice), x_on(Place::kDevice), {got.on(Place::kDevice), 4, width, width}, nullptr);
    got.fetch();
    checks.expect(same_bits(got, want), "infinities at width " + std::to_string(width));
  }
}

void tests(Checks& checks) {
  widths<Propagate, float>(checks, {1, 2, 3, 8, 12, 16, 31, 32, 33, 64, 100, 128, 132, 160}, Data::kIntegers, {1, 2});
  widths<Propagate, double>(checks, {1, 2, 8, 12, 16, 32, 33, 64, 80}, Data::kIntegers, {1, 2});
  widths<Propagate, float>(checks, {1, 2, 16, 33, 160}, Data::kReals, {3});
  widths<Propagate, double>(checks, {1, 16, 33}, Data::kReals, {3});
  shapes(checks);
  infinities_stay_put(checks);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) { return calirare::testing::run(argc, argv, "propagate", calirare::testing::tests); }

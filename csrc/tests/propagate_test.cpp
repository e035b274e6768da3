// The CUDA twin of propagate against the CPU twin.
#include "../ops/propagate.h"

#include "check.h"
#include "propagate.cuh"

namespace calirare::testing {
namespace {

struct Shape {
  std::vector<int64_t> degrees;
  int64_t n_cols, width;
  int64_t padding = 0, offset = 0;  // of the rows of x and out; of their first element
  GridLimits limits = {};
};

// |twin - exact| <= t u S for a sum of t terms, S the sum of their absolute values; twice that between twins.
template <typename T>
bool within_rounding(const Csr<T>& a, const Array<T>& x, int64_t stride, const Array<T>& got, const Array<T>& want,
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

template <typename T>
void check(Checks& checks, const Shape& shape, Data data, std::initializer_list<unsigned> seeds) {
  Random random(7);
  const Csr<T> a = make_csr<T>(shape.degrees, shape.n_cols, data, random);
  const int64_t stride = shape.width + shape.padding, n_rows = int64_t(shape.degrees.size());
  Array<T> x = random.numbers<T>(shape.n_cols * stride, data, shape.offset);
  const auto x_on = [&](Place place) { return MatrixView<const T>{x.on(place), shape.n_cols, shape.width, stride}; };
  Array<T> want(n_rows * stride, kUnwritten<T>, shape.offset), first = want;
  propagate_cpu(kSerial, a.on(Place::kHost), x_on(Place::kHost), {want.data(), n_rows, shape.width, stride});
  bool is_first = true;
  for (unsigned seed : seeds) {
    emulator::schedule_seed = seed;
    Array<T> got(n_rows * stride, kUnwritten<T>, shape.offset);
    launch_propagate(a.on(Place::kDevice), x_on(Place::kDevice), {got.on(Place::kDevice), n_rows, shape.width, stride},
                     nullptr, shape.limits);
    got.fetch();
    const std::string name = std::string(name_of<T>()) + " width " + std::to_string(shape.width) + " rows " +
                             std::to_string(n_rows) + " padding " + std::to_string(shape.padding);
    checks.expect(
        data == Data::kIntegers ? same_bits(got, want) : within_rounding(a, x, stride, got, want, shape.width), name);
    if (is_first) std::copy_n(got.data(), got.size(), first.data());
    checks.expect(same_bits(got, first), name + ": two schedules");
    is_first = false;
  }
}

// Rows of every kind: empty, one entry, around the number of lanes, and a hub that the block must share.
std::vector<int64_t> mixed_degrees(int64_t n_rows, int64_t hub) {
  const int64_t few[] = {0, 1, 3, 7, 8, 9, 17, 0, 31, 32, 33, 2};
  std::vector<int64_t> degrees;
  for (int64_t r = 0; r < n_rows; ++r) degrees.push_back(few[r % 12]);
  if (n_rows > 2) degrees[size_t(n_rows / 2)] = hub;
  return degrees;
}

template <typename T>
void widths(Checks& checks, std::initializer_list<int64_t> widths, Data data, std::initializer_list<unsigned> seeds) {
  for (int64_t width : widths) check<T>(checks, {mixed_degrees(13, 300), 57, width}, data, seeds);
}

void shapes(Checks& checks) {
  using T = float;
  for (int64_t width : {255, 256, 257, 1000})
    check<T>(checks, {mixed_degrees(4, 270), 57, width}, Data::kIntegers, {4});
  for (int64_t n_rows : {1, 31, 32, 33, 257, 1000}) {
    check<T>(checks, {mixed_degrees(n_rows, 70), 41, 2}, Data::kIntegers, {5});
  }
  const GridLimits few_blocks{2, 1};  // the kernel has to come back for more rows and tiles
  for (int64_t width : {1, 160}) {
    check<T>(checks, {mixed_degrees(66, 70), 57, width, 0, 0, few_blocks}, Data::kIntegers, {6});
  }
  for (int64_t padding : {1, 4}) {  // strides: with 4 packs still fit, with 1 they do not
    for (int64_t width : {1, 5, 16, 64})
      check<T>(checks, {mixed_degrees(9, 80), 23, width, padding}, Data::kIntegers, {7});
  }
  check<T>(checks, {mixed_degrees(9, 80), 23, 64, 0, 1}, Data::kIntegers, {8});        // x is not aligned
  check<T>(checks, {{600, 600, 0, 600}, 10, 2}, Data::kIntegers, {1, 2, 3, 4, 5, 6});  // several hubs in one block
  check<T>(checks, {{0, 0, 0}, 4, 16}, Data::kIntegers, {1});
  check<T>(checks, {{}, 4, 16}, Data::kIntegers, {1});
  check<T>(checks, {{1, 2}, 4, 0}, Data::kIntegers, {1});
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
  widths<float>(checks, {1, 2, 3, 8, 12, 16, 31, 32, 33, 64, 100, 128}, Data::kIntegers, {1, 2});
  widths<double>(checks, {1, 2, 8, 12, 16, 32, 33, 64}, Data::kIntegers, {1, 2});
  widths<float>(checks, {1, 2, 16, 33, 160}, Data::kReals, {3});
  widths<double>(checks, {1, 16, 33}, Data::kReals, {3});
  shapes(checks);
  infinities_stay_put(checks);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) { return calirare::testing::run(argc, argv, "propagate", calirare::testing::tests); }

// Rows of every kind, and a twin of A X on them against the CPU's. `Op` has cpu(a, x, out), cuda(a, x, out, limits) and
// within(a, x, stride, got, want, width): whether two answers are one but for rounding.
#pragma once
#include <string>

#include "check.h"

namespace calirare::testing {

struct Shape {
  std::vector<int64_t> degrees;
  int64_t n_cols, width;
  int64_t padding = 0, offset = 0;  // of the rows of x and out; of their first element
  GridLimits limits = {};
};

template <typename Op, typename T>
void check(Checks& checks, const Shape& shape, Data data, std::initializer_list<unsigned> seeds) {
  Random random(7);
  const Csr<T> a = make_csr<T>(shape.degrees, shape.n_cols, data, random);
  const int64_t stride = shape.width + shape.padding, n_rows = int64_t(shape.degrees.size());
  Array<T> x = random.numbers<T>(shape.n_cols * stride, data, shape.offset);
  const auto x_on = [&](Place place) { return MatrixView<const T>{x.on(place), shape.n_cols, shape.width, stride}; };
  Array<T> want(n_rows * stride, kUnwritten<T>, shape.offset), first = want;
  Op::cpu(a.on(Place::kHost), x_on(Place::kHost), MatrixView<T>{want.data(), n_rows, shape.width, stride});
  bool is_first = true;
  for (unsigned seed : seeds) {
    emulator::schedule_seed = seed;
    Array<T> got(n_rows * stride, kUnwritten<T>, shape.offset);
    Op::cuda(a.on(Place::kDevice), x_on(Place::kDevice),
             MatrixView<T>{got.on(Place::kDevice), n_rows, shape.width, stride}, shape.limits);
    got.fetch();
    const std::string name = std::string(name_of<T>()) + " width " + std::to_string(shape.width) + " rows " +
                             std::to_string(n_rows) + " padding " + std::to_string(shape.padding);
    checks.expect(data == Data::kIntegers ? same_bits(got, want) : Op::within(a, x, stride, got, want, shape.width),
                  name);
    if (is_first) std::copy_n(got.data(), got.size(), first.data());
    checks.expect(same_bits(got, first), name + ": two schedules");
    is_first = false;
  }
}

// Rows of every kind: empty, one entry, around the number of lanes, and a hub that the block must share.
inline std::vector<int64_t> mixed_degrees(int64_t n_rows, int64_t hub) {
  const int64_t few[] = {0, 1, 3, 7, 8, 9, 17, 0, 31, 32, 33, 2};
  std::vector<int64_t> degrees;
  for (int64_t r = 0; r < n_rows; ++r) degrees.push_back(few[r % 12]);
  if (n_rows > 2) degrees[size_t(n_rows / 2)] = hub;
  return degrees;
}

template <typename Op, typename T>
void widths(Checks& checks, std::initializer_list<int64_t> widths, Data data, std::initializer_list<unsigned> seeds) {
  for (int64_t width : widths) check<Op, T>(checks, {mixed_degrees(13, 300), 57, width}, data, seeds);
}

}  // namespace calirare::testing

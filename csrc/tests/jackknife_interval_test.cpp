// The CUDA twin of jackknife_interval against the CPU twin: order statistics are exact, so every bit must agree.
#include "../ops/jackknife_interval.h"

#include "check.h"
#include "jackknife_interval.cuh"

namespace calirare::testing {
namespace {

// How the samples of a row look.
enum class Samples { kReals, kTies, kEqual, kSigns, kNan, kAllNan, kInfinite };

template <typename T>
T make_sample(Samples kind, int64_t i, Random& random) {
  const T zeros[] = {T(0), T(-0.0), T(1), T(-1)};
  switch (kind) {
    case Samples::kReals:
      return random.number<T>(Data::kReals);
    case Samples::kTies:
      return T(random.below(3));
    case Samples::kEqual:
      return T(0.25);
    case Samples::kSigns:
      return zeros[random.below(4)];
    case Samples::kNan:
      return random.below(8) == 0 ? (i % 2 ? T(NAN) : -T(NAN)) : random.number<T>(Data::kReals);
    case Samples::kAllNan:
      return T(NAN);
    case Samples::kInfinite:
      return random.below(3) == 0 ? (i % 2 ? T(INFINITY) : -T(INFINITY)) : random.number<T>(Data::kReals);
  }
  return T(0);
}

constexpr Samples kKinds[] = {Samples::kReals, Samples::kTies,  Samples::kEqual,  Samples::kSigns,
                              Samples::kNan,   Samples::kReals, Samples::kAllNan, Samples::kInfinite};

template <typename T>
void check(Checks& checks, int64_t n, int64_t m, const double (&q)[2], int64_t padding,
           std::initializer_list<unsigned> seeds, GridLimits limits = {}) {
  Random random(31);
  const int64_t stride = m + padding;
  Array<T> scores(n * stride, T(NAN)), residuals(m);  // the padding holds NaN: reading it would show
  for (int64_t v = 0; v < n; ++v) {
    for (int64_t i = 0; i < m; ++i) scores[v * stride + i] = make_sample<T>(kKinds[v % 8], i, random);
  }
  for (int64_t i = 0; i < m; ++i) residuals[i] = random.below(2) ? T(0) : T(random.below(3)) * T(0.5);
  const auto scores_on = [&](Place place) { return MatrixView<const T>{scores.on(place), n, m, stride}; };
  Array<T> want(2 * n, kUnwritten<T>);
  Array<int32_t> want_places(4 * n, -1);
  jackknife_interval_cpu(kSerial, scores_on(Place::kHost), residuals.data(), q, want.data(), want_places.data());
  for (unsigned seed : seeds) {
    emulator::schedule_seed = seed;
    Array<T> got(2 * n, kUnwritten<T>);
    Array<int32_t> places(4 * n, -1);
    launch_jackknife_interval(scores_on(Place::kDevice), residuals.on(Place::kDevice), q, got.on(Place::kDevice),
                              places.on(Place::kDevice), nullptr, limits);
    got.fetch(), places.fetch();
    const std::string name = std::string(name_of<T>()) + " m " + std::to_string(m) + " q " + std::to_string(q[0]);
    checks.expect(same_bits(places, want_places), name + ": places");
    checks.expect(same_bits(got, want), name + ": ends");
  }
}

template <typename T>
void tests_of(Checks& checks) {
  for (int64_t m : {1, 2, 31, 32, 33, 129, 257}) check<T>(checks, 8, m, {0.05, 0.95}, 0, {1, 2});
  check<T>(checks, 4, 256, {0.0, 1.0}, 3, {3});
  check<T>(checks, 8, 5, {0.5, 0.25}, 2, {3});
  for (int64_t m : {kShortRow, kShortRow + 1, kShortRow + 257}) check<T>(checks, 8, m, {0.05, 0.95}, 1, {4, 5});
  check<T>(checks, 2, 2000, {0.0, 1.0}, 0, {6});
  const GridLimits few_blocks{2, 1};  // the kernels have to come back for more rows
  check<T>(checks, 20, 7, {0.1, 0.9}, 0, {7}, few_blocks);
  check<T>(checks, 8, kShortRow + 40, {0.1, 0.9}, 0, {7, 8}, few_blocks);
  check<T>(checks, 0, 7, {0.1, 0.9}, 0, {7});
}

void tests(Checks& checks) {
  tests_of<float>(checks);
  tests_of<double>(checks);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) {
  return calirare::testing::run(argc, argv, "jackknife_interval", calirare::testing::tests);
}

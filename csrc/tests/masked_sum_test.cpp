// The CUDA twin of masked_sum against the CPU twin: both add over the units in order, so every bit must agree.
#include "../ops/masked_sum.h"

#include "check.h"
#include "masked_sum.cuh"

namespace calirare::testing {
namespace {

template <typename T>
void check(Checks& checks, int64_t n, int64_t s, int64_t h, int64_t padding, std::initializer_list<unsigned> seeds,
           GridLimits limits = {}) {
  Random random(7);
  const int64_t wide = s * h + padding, z_stride = h + padding, out_stride = s + padding;
  const Array<T> product = random.numbers<T>(n * wide, Data::kIntegers);
  const Array<T> bias = random.numbers<T>(s * h, Data::kIntegers), weight = random.numbers<T>(h, Data::kIntegers);
  Array<T> z = random.numbers<T>(n * z_stride, Data::kIntegers);
  for (int64_t k = 0; k < z.size(); k += 5) z[k] = k % 2 ? T(NAN) : T(0);  // both count as inactive
  const Array<T> start = random.numbers<T>(n * out_stride, Data::kIntegers);
  const auto task = [&](Place place, Array<T>& out) {
    return MaskedSumTask<T>{{product.on(place), n, s * h, wide},
                            bias.on(place),
                            {z.on(place), n, h, z_stride},
                            weight.on(place),
                            {out.on(place), n, s, out_stride}};
  };
  Array<T> want(start);
  masked_sum_cpu(kSerial, task(Place::kHost, want));
  for (unsigned seed : seeds) {
    emulator::schedule_seed = seed;
    Array<T> got(start);
    launch_masked_sum(task(Place::kDevice, got), nullptr, limits);
    got.fetch();
    checks.expect(same_bits(got, want), std::string(name_of<T>()) + " n " + std::to_string(n) + " s " +
                                            std::to_string(s) + " h " + std::to_string(h));
  }
}

template <typename T>
void tests_of(Checks& checks) {
  for (int64_t n : {1, 3, 17, 64}) {
    for (int64_t s : {1, 5, 33}) {
      for (int64_t h : {1, 4, 16, 17}) check<T>(checks, n, s, h, 0, {1, 2});
    }
  }
  for (int64_t padding : {1, 3}) check<T>(checks, 9, 7, 6, padding, {3});
  check<T>(checks, 40, 31, 3, 0, {4}, GridLimits{2, 1});  // the kernel has to come back for more
  check<T>(checks, 0, 3, 2, 0, {1});
  check<T>(checks, 3, 2, 0, 0, {1});
}

void tests(Checks& checks) {
  tests_of<float>(checks);
  tests_of<double>(checks);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) { return calirare::testing::run(argc, argv, "masked_sum", calirare::testing::tests); }

// The CUDA twin of message_interval against the CPU twin. With whole numbers for messages and weights the propagated
// changes are exact in both, the link is the same arithmetic and order statistics are exact: every bit must agree.
#include "../ops/message_interval.h"

#include "check.h"
#include "message_interval.cuh"

namespace calirare::testing {
namespace {

template <typename T>
struct Problem {
  int64_t n, r, m, stride;
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<T> values, messages, logits, shift, residuals;

  Problem(int64_t n_, int64_t r_, int64_t m_, int64_t padding, Random& random)
      : n(n_),
        r(r_),
        m(m_),
        stride(m_ + padding),
        indptr(n_ + 1),
        indices(0),
        values(0),
        messages(r_ * (m_ + padding)),
        logits(n_),
        shift(m_),
        residuals(m_) {
    for (int64_t v = 0; v < n; ++v) indptr[v + 1] = indptr[v] + (v * 3) % 8;  // rows without entries too
    indices = Array<int32_t>(indptr[n]);
    values = Array<T>(indptr[n]);
    for (int64_t e = 0; e < indptr[n]; ++e) indices[e] = int32_t(random.below(r)), values[e] = T(random.below(3));
    for (int64_t k = 0; k < messages.size(); ++k) messages[k] = k % stride < m ? T(random.below(5) - 2) : T(NAN);
    for (int64_t u = 3; u < r; u += 9) messages[u * stride + random.below(m)] = T(NAN);  // one model of some nodes
    for (int64_t v = 0; v < n; ++v) logits[v] = v % 11 == 7 ? T(NAN) : T(random.below(7) - 3);
    for (int64_t i = 0; i < m; ++i) shift[i] = T(random.below(3)) * T(0.5), residuals[i] = T(random.below(4)) * T(0.25);
  }
  MessageScores<T> on(Place place) const {
    return {{indptr.on(place), indices.on(place), values.on(place), n},
            {messages.on(place), r, m, stride},
            logits.on(place),
            shift.on(place),
            T(0.75),
            T(-0.25)};
  }
};

template <typename T>
void check(Checks& checks, int64_t n, int64_t m, const double (&q)[2], int64_t padding,
           std::initializer_list<unsigned> seeds, GridLimits limits = {}, int64_t rows = 0) {
  if (rows == 0) rows = message_interval_rows(n, m, sizeof(T));
  Random random(5);
  const Problem<T> problem(n, 23, m, padding, random);
  Array<T> want(2 * n, kUnwritten<T>);
  message_interval_cpu(kSerial, problem.on(Place::kHost), problem.residuals.data(), q, want.data());
  for (unsigned seed : seeds) {
    emulator::schedule_seed = seed;
    Array<T> got(2 * n, kUnwritten<T>), scratch(rows * m, kUnwritten<T>);
    launch_message_interval(problem.on(Place::kDevice), problem.residuals.on(Place::kDevice), q, got.on(Place::kDevice),
                            scratch.on(Place::kDevice), rows, nullptr, limits);
    got.fetch();
    const std::string name = std::string(name_of<T>()) + " m " + std::to_string(m) + " q " + std::to_string(q[0]);
    checks.expect(same_bits(got, want), name);
  }
}

template <typename T>
void tests_of(Checks& checks) {
  for (int64_t m : {1, 2, 31, 32, 33, 80, 129, 257}) {
    check<T>(checks, 12, m, {0.05, 0.95}, 0, {1});
    check<T>(checks, 8, m, {0.5, 0.25}, 3, {3});
  }
  check<T>(checks, 8, 40, {0.0, 1.0}, 1, {3});
  for (int64_t m : {kShortRow, kShortRow + 1, kShortRow + 300}) check<T>(checks, 4, m, {0.05, 0.95}, 1, {4});
  for (int64_t n : {1, 15, 16, 17, 33}) check<T>(checks, n, 40, {0.1, 0.9}, 0, {6});
  const GridLimits few_blocks{2, 1};  // the kernels have to come back for more nodes
  check<T>(checks, 40, 12, {0.1, 0.9}, 0, {7}, few_blocks);
  check<T>(checks, 5, kShortRow + 40, {0.1, 0.9}, 0, {7}, few_blocks);
  check<T>(checks, 0, 7, {0.1, 0.9}, 0, {7});
  for (int64_t m : {int64_t(12), kShortRow + 40}) check<T>(checks, 9, m, {0.1, 0.9}, 0, {9}, {}, 4);  // nodes by fours
}

void tests(Checks& checks) {
  tests_of<float>(checks);
  tests_of<double>(checks);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) {
  return calirare::testing::run(argc, argv, "message_interval", calirare::testing::tests);
}

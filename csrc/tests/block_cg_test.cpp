// The CUDA twin of block_cg against the CPU twin, step by step and over whole solves.
#include "block_cg.cuh"

#include "check.h"

namespace calirare::testing {
namespace {

constexpr CgColumn kFresh{0.0, 0.0, kCgRunning, 0};

// Columns of every kind: going on, done, out of iterations, and such as break down in the step.
Array<CgColumn> mixed_columns(int64_t b) {
  Array<CgColumn> state(b, kFresh);
  for (int64_t j = 0; j < b; ++j) {
    state[j].rho = 3.0 + double(j);
    state[j].threshold = j % 3 == 0 ? 1e30 : 0.0;  // every third is done after the step
    if (j % 5 == 3) state[j].status = j % 2 ? kCgConverged : kCgNegativeCurvature;
    if (j % 7 == 6) state[j].rho = 0.0;
  }
  return state;
}

bool same_state(const Array<CgColumn>& a, const Array<CgColumn>& b, double relative) {
  for (int64_t j = 0; j < a.size(); ++j) {
    if (a[j].status != b[j].status || a[j].iterations != b[j].iterations) return false;
    if (!(std::abs(a[j].rho - b[j].rho) <= relative * std::abs(b[j].rho)) && !same_bits(a[j].rho, b[j].rho))
      return false;
  }
  return true;
}

// Sums of integers are exact, but alpha and beta are quotients: twins differ by the rounding of x and r at most.
template <typename T>
bool close(const Array<T>& a, const Array<T>& b, const Array<T>& added, double factor) {
  for (int64_t i = 0; i < a.size(); ++i) {
    const double size = std::abs(double(b[i])) + factor * std::abs(double(added[i]));
    const double bound = 2 * double(std::numeric_limits<T>::epsilon()) * size;
    if (!(std::abs(double(a[i]) - double(b[i])) <= bound) && !same_bits(a[i], b[i])) return false;
  }
  return true;
}

template <typename T>
struct Vectors {
  Array<T> p, ap, x, r;
  Vectors(int64_t size, Random& random)
      : p(random.numbers<T>(size, Data::kIntegers)),
        ap(random.numbers<T>(size, Data::kIntegers)),
        x(random.numbers<T>(size, Data::kIntegers)),
        r(random.numbers<T>(size, Data::kIntegers)) {}
  void fetch() { p.fetch(), ap.fetch(), x.fetch(), r.fetch(); }
};

template <typename T>
void check_descend(Checks& checks, int64_t b, int64_t p, GridLimits limits) {
  Random random(21);
  Vectors<T> start(b * p, random);
  if (b > 1 && p > 0) start.ap[p] = T(NAN);
  if (b > 2 && p > 1) start.ap[2 * p] = T(INFINITY);
  Vectors<T> want = start;
  Array<CgColumn> want_state = mixed_columns(b);
  cg_descend_cpu(kSerial, {want_state.data(), b, p}, want.p.data(), want.ap.data(), want.x.data(), want.r.data());
  Array<T> first_x = start.x, first_r = start.r;
  for (unsigned seed : {1u, 2u, 3u}) {
    emulator::schedule_seed = seed;
    Vectors<T> got = start;
    Array<CgColumn> state = mixed_columns(b);
    launch_cg_descend<T>({state.on(Place::kDevice), b, p}, got.p.on(Place::kDevice), got.ap.on(Place::kDevice),
                         got.x.on(Place::kDevice), got.r.on(Place::kDevice), nullptr, limits);
    got.fetch(), state.fetch();
    const std::string name =
        std::string("descend ") + name_of<T>() + " b " + std::to_string(b) + " p " + std::to_string(p);
    checks.expect(same_state(state, want_state, 0.0), name + ": state");
    checks.expect(close(got.x, want.x, start.p, 1e3) && close(got.r, want.r, start.ap, 1e3), name);
    checks.expect(same_bits(got.p, start.p) && same_bits(got.ap, start.ap), name + ": inputs changed");
    if (seed == 1) std::copy_n(got.x.data(), b * p, first_x.data()), std::copy_n(got.r.data(), b * p, first_r.data());
    checks.expect(same_bits(got.x, first_x) && same_bits(got.r, first_r), name + ": two schedules");
  }
}

template <typename T>
void check_redirect(Checks& checks, int64_t b, int64_t p, GridLimits limits) {
  Random random(22);
  const Vectors<T> start(b * p, random);
  Vectors<T> want = start;
  Array<CgColumn> want_state = mixed_columns(b);
  cg_redirect_cpu(kSerial, {want_state.data(), b, p}, want.r.data(), want.x.data(), want.p.data());
  for (unsigned seed : {1u, 2u}) {
    emulator::schedule_seed = seed;
    Vectors<T> got = start;
    Array<CgColumn> state = mixed_columns(b);
    launch_cg_redirect<T>({state.on(Place::kDevice), b, p}, got.r.on(Place::kDevice), got.x.on(Place::kDevice),
                          got.p.on(Place::kDevice), nullptr, limits);
    got.p.fetch(), got.r.fetch(), got.x.fetch(), state.fetch();
    const std::string name =
        std::string("redirect ") + name_of<T>() + " b " + std::to_string(b) + " p " + std::to_string(p);
    checks.expect(same_state(state, want_state, 0.0), name + ": state");
    checks.expect(close(got.p, want.p, start.p, 1e3), name);
    checks.expect(same_bits(got.r, start.r) && same_bits(got.x, start.x), name + ": inputs changed");
  }
}

// Conjugate gradients on diag(1 .. p): after a while every column must solve it, whatever the starting residual.
void check_solve(Checks& checks, int64_t b, int64_t p) {
  Random random(23);
  const Array<double> g = random.numbers<double>(b * p, Data::kIntegers);
  Array<double> x(b * p), r = g, direction(b * p), product(b * p);
  Array<CgColumn> state(b, kFresh);
  for (int64_t j = 0; j < b; ++j) {
    double norm = 0;
    for (int64_t i = 0; i < p; ++i) norm += g[j * p + i] * g[j * p + i];
    state[j].threshold = 1e-20 * norm;
  }
  const Place device = Place::kDevice;
  for (int64_t k = 0; k < 3 * p; ++k) {
    const double* residual = r.on(device);
    launch_cg_redirect<double>({state.on(device), b, p}, residual, residual, direction.on(device), nullptr);
    direction.fetch(), state.fetch();
    for (int64_t i = 0; i < b * p; ++i) product[i] = double(i % p + 1) * direction[i];
    launch_cg_descend<double>({state.on(device), b, p}, direction.on(device), product.on(device), x.on(device),
                              r.on(device), nullptr);
    x.fetch(), r.fetch(), state.fetch();
  }
  for (int64_t j = 0; j < b; ++j) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < p; ++i) {
      const double exact = g[j * p + i] / double(i + 1);
      error += (x[j * p + i] - exact) * (x[j * p + i] - exact);
      size += exact * exact;
    }
    checks.expect(state[j].status == kCgConverged && state[j].iterations <= 2 * p, "solve: status");
    checks.expect(error <= 1e-16 * size, "solve: column " + std::to_string(j));
  }
}

template <typename T>
void tests_of(Checks& checks) {
  for (int64_t p : {1, 31, 32, 33, 255, 256, 257, 1000}) {
    check_descend<T>(checks, 4, p, {});
    check_redirect<T>(checks, 4, p, {});
  }
  const GridLimits few_blocks{3, 1};  // the kernels have to come back for more columns
  check_descend<T>(checks, 17, 40, few_blocks);
  check_redirect<T>(checks, 17, 40, few_blocks);
  check_descend<T>(checks, 2, kCgShort + 5, {});  // the larger block
  check_redirect<T>(checks, 2, kCgShort + 5, {});
  check_descend<T>(checks, 0, 5, {});
  check_redirect<T>(checks, 0, 5, {});
}

void tests(Checks& checks) {
  tests_of<float>(checks);
  tests_of<double>(checks);
  check_solve(checks, 3, 6);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) { return calirare::testing::run(argc, argv, "block_cg", calirare::testing::tests); }

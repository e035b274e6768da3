// The CUDA twin of node_gradients against the CPU twin: both add in entry order, so every bit must agree.
#include "node_gradients.cuh"

#include "check.h"

namespace calirare::testing {
namespace {

struct Shape {
  std::vector<int64_t> entries;  // of each node
  int64_t d, h;
  int64_t padding = 0;  // of out's rows
  GridLimits limits = {};
};

template <typename T>
struct Problem {
  Array<int64_t> entry_ptr;
  Array<int32_t> nodes;
  Array<T> delta, out;
  int64_t h, stride;

  Problem(const Shape& shape, int64_t n_inputs, Data data, Random& random)
      : entry_ptr(int64_t(shape.entries.size()) + 1),
        nodes(0),
        delta(0),
        out(0),
        h(shape.h),
        stride((shape.d + 1) * shape.h + shape.padding) {
    for (size_t i = 0; i < shape.entries.size(); ++i)
      entry_ptr[int64_t(i) + 1] = entry_ptr[int64_t(i)] + shape.entries[i];
    const int64_t n_entries = entry_ptr[entry_ptr.size() - 1];
    nodes = Array<int32_t>(n_entries);
    for (int64_t e = 0; e < n_entries; ++e) nodes[e] = int32_t(random.below(n_inputs));
    delta = random.numbers<T>(n_entries * h, data);
    out = Array<T>(int64_t(shape.entries.size()) * stride, kUnwritten<T>);
  }
  int64_t m() const { return entry_ptr.size() - 1; }
  GradientFactors<T> on(Place place) const { return {entry_ptr.on(place), nodes.on(place), delta.on(place), m(), h}; }
  MatrixView<T> out_on(Place place, Array<T>& to, const Shape& shape) const {
    return {to.on(place), m(), (shape.d + 1) * h, stride};
  }
};

// inputs_on(place) gives the view of the inputs.
template <typename T, typename Inputs>
void compare(Checks& checks, const Shape& shape, const Problem<T>& problem, Inputs inputs_on, const std::string& kind) {
  Array<T> want = problem.out;
  node_gradients_cpu(kSerial, problem.on(Place::kHost), inputs_on(Place::kHost),
                     problem.out_on(Place::kHost, want, shape));
  for (unsigned seed : {1u, 2u, 3u}) {
    emulator::schedule_seed = seed;
    Array<T> got = problem.out;
    launch_node_gradients(problem.on(Place::kDevice), inputs_on(Place::kDevice),
                          problem.out_on(Place::kDevice, got, shape), nullptr, shape.limits);
    got.fetch();
    checks.expect(same_bits(got, want), kind + " " + name_of<T>() + " d " + std::to_string(shape.d) + " h " +
                                            std::to_string(shape.h) + " padding " + std::to_string(shape.padding));
  }
}

template <typename T>
void check_dense(Checks& checks, const Shape& shape, Data data, int64_t padding) {
  Random random(11);
  const int64_t n_inputs = 37, stride = shape.d + padding;
  Problem<T> problem(shape, n_inputs, data, random);
  const Array<T> inputs = random.numbers<T>(n_inputs * stride, data);
  const auto inputs_on = [&](Place place) { return MatrixView<const T>{inputs.on(place), n_inputs, shape.d, stride}; };
  compare(checks, shape, problem, inputs_on, "dense");
}

// Rows of the inputs are empty, hold one number, a few, or every column.
template <typename T>
void check_csr(Checks& checks, const Shape& shape, Data data) {
  Random random(12);
  std::vector<int64_t> degrees;
  for (int64_t r = 0; r < 37; ++r) degrees.push_back(shape.d * (r % 4) / 3);
  const Csr<T> inputs = make_csr<T>(degrees, shape.d, data, random);
  Problem<T> problem(shape, 37, data, random);
  compare(checks, shape, problem, [&](Place place) { return inputs.on(place); }, "csr");
}

template <typename T>
void tests_of(Checks& checks) {
  const std::vector<int64_t> entries{3, 0, 1, 33, 2};
  for (int64_t h : {1, 2, 3, 4, 16, 17, 31, 32, 33}) {
    check_dense<T>(checks, {entries, 9, h}, Data::kReals, 0);
    check_csr<T>(checks, {entries, 9, h}, Data::kReals);
  }
  for (int64_t d : {1, 31, 32, 33, 255, 256, 257, 1000}) {
    check_dense<T>(checks, {{2, 4}, d, 4}, Data::kReals, 0);
    check_csr<T>(checks, {{2, 4}, d, 4}, Data::kReals);
  }
  for (int64_t padding : {1, 4}) {
    check_dense<T>(checks, {entries, 9, 4, padding}, Data::kReals, padding);
    check_csr<T>(checks, {entries, 9, 4, padding}, Data::kReals);
  }
  const GridLimits few_blocks{2, 2};  // the kernels have to come back for more columns and nodes
  check_dense<T>(checks, {entries, 900, 3, 0, few_blocks}, Data::kReals, 0);
  check_csr<T>(checks, {entries, 30, 3, 0, few_blocks}, Data::kReals);
  check_csr<T>(checks, {entries, 3, 300, 0}, Data::kReals);  // more hidden units than threads
  check_dense<T>(checks, {{0, 0}, 5, 4}, Data::kReals, 0);
  check_csr<T>(checks, {{0, 0}, 5, 4}, Data::kReals);
  check_dense<T>(checks, {{}, 5, 4}, Data::kReals, 0);
  check_csr<T>(checks, {{}, 5, 4}, Data::kReals);
  check_dense<T>(checks, {{2}, 0, 4}, Data::kReals, 0);  // no features: the bias alone
  check_dense<T>(checks, {{2}, 5, 0}, Data::kReals, 0);
}

void tests(Checks& checks) {
  tests_of<float>(checks);
  tests_of<double>(checks);
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) {
  return calirare::testing::run(argc, argv, "node_gradients", calirare::testing::tests);
}

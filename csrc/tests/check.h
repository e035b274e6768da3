// What the kernel tests share: data, arrays that end where they end, counting, and the command line. The tests compile
// with g++, kernels then run under the emulator, and with nvcc for a GPU.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "../core/parallel.h"
#include "../core/views.h"
#include "../cuda/gpu_portable.h"

#if defined(__SANITIZE_ADDRESS__)
// Undefined behaviour ends the process; UBSAN_OPTIONS=halt_on_error=0 tells it alone.
extern "C" const char* __ubsan_default_options() { return "halt_on_error=1"; }
#endif

#if defined(__CUDACC__)
namespace calirare::emulator {
inline unsigned schedule_seed = 1;  // a GPU has schedules of its own
inline int mutant = 0;
}  // namespace calirare::emulator
#endif

namespace calirare::testing {

inline const Parallel kSerial{1, [](int64_t size, const RangeBody& body) { body(0, size); }};

enum class Place { kHost, kDevice };

// A heap array, so that the sanitizer sees the first element past its end, and its copy on the device. `offset`
// elements lie before data().
template <typename T>
class Array {
 public:
  explicit Array(int64_t size, T value = T(), int64_t offset = 0)
      : size_(size), offset_(offset), all_(new T[size_t(size + offset)]) {
    std::fill_n(all_.get(), size + offset, value);
  }
  Array(const Array& other) : Array(other.size_, T(), other.offset_) {
    std::copy_n(other.all_.get(), size_ + offset_, all_.get());
  }
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;
  T* data() { return all_.get() + offset_; }
  const T* data() const { return all_.get() + offset_; }
  int64_t size() const { return size_; }
  // Where the code that runs at `place` finds the array; the device gets what the array holds now.
  T* on(Place place) { return place == Place::kHost ? data() : to_device(); }
  const T* on(Place place) const { return place == Place::kHost ? data() : to_device(); }

  // Takes what kernels left on the device.
  void fetch() {
#if defined(__CUDACC__)
    check_cuda(cudaMemcpy(all_.get(), device_.get(), bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
#endif
  }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }

 private:
#if defined(__CUDACC__)
  struct Free {
    void operator()(void* memory) const { (void)cudaFree(memory); }
  };
  size_t bytes() const { return size_t(size_ + offset_) * sizeof(T); }
  T* to_device() const {
    if (!device_) {
      void* memory = nullptr;
      check_cuda(cudaMalloc(&memory, bytes()), "cudaMalloc");
      device_.reset(static_cast<T*>(memory));
    }
    check_cuda(cudaMemcpy(device_.get(), all_.get(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy to the device");
    return device_.get() + offset_;
  }
  mutable std::unique_ptr<T, Free> device_;
#else
  T* to_device() const { return all_.get() + offset_; }
#endif
  int64_t size_, offset_;
  std::unique_ptr<T[]> all_;
};

// What outputs hold before a kernel writes them.
template <typename T>
constexpr T kUnwritten = T(-7777);

template <typename T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}
template <typename T>
bool same_bits(const Array<T>& a, const Array<T>& b) {
  for (int64_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

// kIntegers: sums are exact in any order, so twins must agree in every bit. kReals: within the rounding of the sums.
enum class Data { kIntegers, kReals };

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t below(int64_t limit) { return int64_t(engine_() % uint64_t(limit)); }
  template <typename T>
  T number(Data data) {
    if (data == Data::kIntegers) return T(below(17) - 8);
    return T(std::ldexp(double(engine_()) - 9.2e18, -62) * std::ldexp(1.0, int(below(9)) - 4));
  }
  template <typename T>
  Array<T> numbers(int64_t size, Data data, int64_t offset = 0) {
    Array<T> out(size, T(), offset);
    for (int64_t i = 0; i < size; ++i) out[i] = number<T>(data);
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

template <typename T>
struct Csr {
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<T> values;
  CsrView<T> on(Place place) const {
    return {indptr.on(place), indices.on(place), values.on(place), indptr.size() - 1};
  }
};

// A matrix with the given numbers of entries per row, columns ascending; unique where a row has room for that.
template <typename T>
Csr<T> make_csr(const std::vector<int64_t>& degrees, int64_t n_cols, Data data, Random& random) {
  Array<int64_t> indptr(int64_t(degrees.size()) + 1);
  for (size_t r = 0; r < degrees.size(); ++r) indptr[int64_t(r) + 1] = indptr[int64_t(r)] + degrees[r];
  const int64_t nnz = indptr[indptr.size() - 1];
  Array<int32_t> indices(nnz);
  for (size_t r = 0; r < degrees.size(); ++r) {
    const int64_t first = indptr[int64_t(r)], shift = random.below(n_cols);
    for (int64_t k = 0; k < degrees[r]; ++k) indices[first + k] = int32_t((shift + k) % n_cols);
    std::sort(indices.data() + first, indices.data() + first + degrees[r]);
  }
  return {std::move(indptr), std::move(indices), random.numbers<T>(nnz, data)};
}

class Checks {
 public:
  void expect(bool good, const std::string& what) {
    ++cases_;
    if (good) return;
    if (++bad_ <= 5) std::printf("  differs: %s\n", what.c_str());
    if (emulator::mutant > 0) throw std::runtime_error("caught");  // one difference is enough
  }
  void fail(const char* what) {
    ++cases_, ++bad_;
    std::printf("  stopped: %s\n", what);
  }
  int cases() const { return cases_; }
  int bad() const { return bad_; }

 private:
  int cases_ = 0, bad_ = 0;
};

template <typename T>
const char* name_of() {
  return std::is_same_v<T, float> ? "float" : "double";
}

// Command line: [--mutant K], K > 0 turning on one planted bug. Exit status 0: every case passed.
inline int run(int argc, char** argv, const char* name, void (*tests)(Checks&)) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--mutant") emulator::mutant = std::atoi(argv[i + 1]);
  }
  Checks checks;
  const auto start = std::chrono::steady_clock::now();
  try {
    tests(checks);
  } catch (const std::exception& error) {
    checks.fail(error.what());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%s: %d cases, %d bad, %.1f s\n", name, checks.cases(), checks.bad(), seconds.count());
  return checks.bad() == 0 && checks.cases() > 0 ? 0 : 1;
}

}  // namespace calirare::testing

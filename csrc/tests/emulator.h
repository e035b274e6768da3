// Runs CUDA kernels on the CPU, for tests. Every CUDA thread of a block is a fiber; a fiber runs until a barrier or a
// warp collective, then another takes over. Blocks run one after another.
//  - The order of fibers and of blocks is shuffled from `schedule_seed`: a missing barrier gives results that change
//    with the seed.
//  - Shared memory is fresh for every block, filled with a pattern, and ends where its array ends.
//  - A barrier that some threads miss, a collective whose lanes disagree, and a shuffle from a lane outside the mask
//    are reported as errors.
//  - An asynchronous copy is made when its thread waits for its copies, and not before.
//  - Reads and writes past an array are found by -fsanitize=address,undefined.
// It cannot see two threads that interleave between barriers: `x = x + 1` by all threads is exact here. That takes
// compute-sanitizer's racecheck on a GPU.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <tuple>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define CALIRARE_CHECK_LAUNCH(kernel) ((void)0)  // launch throws
#define CALIRARE_SHARED(T, name, count) \
  static const char name##_key = 0;     \
  T* const name = static_cast<T*>(::calirare::emulator::shared_array(&name##_key, (count) * sizeof(T)))

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace calirare::emulator {

inline unsigned schedule_seed = 1;
inline int mutant = 0;  // which planted bug is on, in sources that have them

// What the threads of a block or the lanes of a warp do together.
enum class Op : uint8_t { kSync, kSyncOr, kSyncCount, kShuffle, kShuffleXor, kShuffleUp, kBallot, kReduceAdd };

// The thread that is running.
struct Coordinates {
  dim3 thread, block, block_size, grid_size;
  unsigned lane;
};
const Coordinates& here();

void* shared_array(const void* key, size_t bytes);

// Waits for the block; returns how many threads voted.
uint64_t barrier(Op op, bool vote);

// Waits for the lanes in `mask`; returns the 32 values they sent.
const uint64_t* collective(Op op, uint32_t mask, uint64_t sent);

// A copy that is there once its thread waits for its copies: not before.
void copy_later(void* to, const void* from, size_t bytes);
void copies_arrive();

void run_grid(dim3 grid, dim3 block, const std::function<void()>& body);

// Gives `value` to the warp and takes what lane `source` gave.
template <typename T>
T exchange(Op op, unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const uint64_t* received = collective(op, mask, bits);
  if ((mask >> source & 1) == 0) throw std::runtime_error("emulator: a shuffle reads a lane outside its mask");
  std::memcpy(&value, received + source, sizeof(T));
  return value;
}

}  // namespace calirare::emulator

#define threadIdx (::calirare::emulator::here().thread)
#define blockIdx (::calirare::emulator::here().block)
#define blockDim (::calirare::emulator::here().block_size)
#define gridDim (::calirare::emulator::here().grid_size)

inline void __syncthreads() { calirare::emulator::barrier(calirare::emulator::Op::kSync, false); }
inline int __syncthreads_or(int vote) {
  return calirare::emulator::barrier(calirare::emulator::Op::kSyncOr, vote != 0) != 0;
}
inline int __syncthreads_count(int vote) {
  return int(calirare::emulator::barrier(calirare::emulator::Op::kSyncCount, vote != 0));
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned lane = calirare::emulator::here().lane;
  return calirare::emulator::exchange(calirare::emulator::Op::kShuffle, mask, value,
                                      (lane & ~unsigned(width - 1)) + (unsigned(source) & unsigned(width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned lane = calirare::emulator::here().lane, other = lane ^ unsigned(lanes);
  return calirare::emulator::exchange(calirare::emulator::Op::kShuffleXor, mask, value,
                                      other / unsigned(width) > lane / unsigned(width) ? lane : other);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = calirare::emulator::here().lane;
  return calirare::emulator::exchange(calirare::emulator::Op::kShuffleUp, mask, value,
                                      lane % unsigned(width) >= delta ? lane - delta : lane);
}
inline unsigned __ballot_sync(unsigned mask, int vote) {
  const uint64_t* received = calirare::emulator::collective(calirare::emulator::Op::kBallot, mask, vote != 0);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) votes |= unsigned(received[lane]) << lane;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  const uint64_t* received = calirare::emulator::collective(calirare::emulator::Op::kReduceAdd, mask, value);
  unsigned sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) sum += unsigned(received[lane]);
  }
  return sum;
}
template <typename T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = before + value;
  return before;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

namespace calirare {

template <typename P, typename T>
void copy_async(P* to, const T* from) {
  emulator::copy_later(to, from, sizeof(P));
}
inline void wait_for_copies() { emulator::copies_arrive(); }

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, void*, Arguments... arguments) {
  const std::tuple<Parameters...> values{Parameters(arguments)...};
  emulator::run_grid(grid, block, [&] { std::apply(kernel, values); });
}

}  // namespace calirare

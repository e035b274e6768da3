// The emulator itself: it runs right kernels right, and reports the faults it claims to report.
#include "../cuda/gpu_portable.h"
#include "check.h"

namespace calirare::testing {
namespace {

constexpr int kThreads = 64;

__global__ void coordinates_kernel(int64_t* out) {
  const int64_t block = blockIdx.x + int64_t(gridDim.x) * blockIdx.y;
  const int64_t thread = threadIdx.x + int64_t(blockDim.x) * threadIdx.y;
  out[block * blockDim.x * blockDim.y + thread] += 1 + block * 1000 + thread;
}

// Turns an array round through shared memory; without the barrier it reads what may not be written yet.
template <bool kBarrier>
__global__ void turn_round_kernel(const int* in, int* out) {
  CALIRARE_SHARED(int, shared, kThreads);
  shared[threadIdx.x] = in[threadIdx.x];
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

__global__ void shuffles_kernel(int* out) {
  const int lane = threadIdx.x % kWarp;
  int* mine = out + threadIdx.x * 7;
  mine[0] = __shfl_sync(kFullMask, lane, 5);
  mine[1] = __shfl_sync(kFullMask, lane, 1, 8);
  mine[2] = __shfl_xor_sync(kFullMask, lane, 16);
  mine[3] = __shfl_up_sync(kFullMask, lane, 3);
  mine[4] = int(__ballot_sync(kFullMask, lane % 2));
  mine[5] = int(__reduce_add_sync(kFullMask, unsigned(lane)));
  mine[6] = __syncthreads_count(threadIdx.x < 40);
}

enum Fault { kHalfAtBarrier, kHalfInWarp, kLaneNotInMask, kSourceNotInMask, kTwoCollectives, kTwoBarriers };

__global__ void faulty_kernel(Fault fault) {
  const bool half = threadIdx.x % 2 == 0;
  if (fault == kHalfAtBarrier && half) __syncthreads();
  if (fault == kHalfInWarp && half) __ballot_sync(kFullMask, 1);
  if (fault == kLaneNotInMask) __ballot_sync(0x55555555u, 1);
  if (fault == kSourceNotInMask && half) __shfl_sync(0x55555555u, 1, 1);
  if (fault == kTwoCollectives && half) __ballot_sync(kFullMask, 1);
  if (fault == kTwoCollectives && !half) __shfl_sync(kFullMask, 1, 0);
  if (fault == kTwoBarriers && half) __syncthreads();
  if (fault == kTwoBarriers && !half) __syncthreads_or(1);
}

__global__ void peek_kernel(unsigned char* out) {
  CALIRARE_SHARED(unsigned char, shared, 1);
  if (threadIdx.x == 0) out[blockIdx.x] = shared[0];
  __syncthreads();
  shared[0] = 1;
}

template <typename Work>
bool throws(Work work) {
  try {
    work();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

void check_coordinates(Checks& checks) {
  Array<int64_t> out(6 * kThreads);
  launch(coordinates_kernel, dim3(3, 2), dim3(16, 4), nullptr, out.data());
  for (int64_t i = 0; i < out.size(); ++i) {
    checks.expect(out[i] == 1 + i / kThreads * 1000 + i % kThreads, "thread " + std::to_string(i));
  }
}

// How many of 20 schedules give the right answer.
template <bool kBarrier>
int right_schedules() {
  Array<int> in(kThreads), out(kThreads);
  for (int i = 0; i < kThreads; ++i) in[i] = i + 100;
  int right = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    emulator::schedule_seed = seed;
    launch(turn_round_kernel<kBarrier>, dim3(1), dim3(kThreads), nullptr, in.data(), out.data());
    bool same = true;
    for (int i = 0; i < kThreads; ++i) same &= out[i] == in[kThreads - 1 - i];
    right += same;
  }
  return right;
}

void check_collectives(Checks& checks) {
  Array<int> out(kThreads * 7);
  launch(shuffles_kernel, dim3(1), dim3(kThreads), nullptr, out.data());
  for (int t = 0; t < kThreads; ++t) {
    const int lane = t % 32,
              want[] = {5, lane / 8 * 8 + 1, lane ^ 16, lane < 3 ? lane : lane - 3, int(0xaaaaaaaau), 496, 40};
    for (int k = 0; k < 7; ++k) checks.expect(out[t * 7 + k] == want[k], "collective " + std::to_string(k));
  }
}

void tests(Checks& checks) {
  check_coordinates(checks);
  check_collectives(checks);
  checks.expect(right_schedules<true>() == 20, "a barrier makes every schedule right");
  checks.expect(right_schedules<false>() == 0, "a missing barrier shows");
  for (Fault fault : {kHalfAtBarrier, kHalfInWarp, kLaneNotInMask, kSourceNotInMask, kTwoCollectives, kTwoBarriers}) {
    checks.expect(throws([&] { launch(faulty_kernel, dim3(1), dim3(kThreads), nullptr, fault); }),
                  "fault " + std::to_string(fault) + " is reported");
  }
  checks.expect(throws([] { launch(faulty_kernel, dim3(1), dim3(1025), nullptr, kHalfAtBarrier); }), "block too large");
  checks.expect(throws([] { launch(faulty_kernel, dim3(0), dim3(32), nullptr, kHalfAtBarrier); }), "empty grid");
  Array<unsigned char> seen(3);
  launch(peek_kernel, dim3(3), dim3(32), nullptr, seen.data());
  for (int64_t b = 0; b < 3; ++b) checks.expect(seen[b] == 0xCD, "shared memory is fresh in every block");
}

}  // namespace
}  // namespace calirare::testing

int main(int argc, char** argv) { return calirare::testing::run(argc, argv, "emulator", calirare::testing::tests); }

#!/usr/bin/env bash
# What only a machine with a GPU can show. Needs nvcc, cmake, ninja and a torch built for CUDA; no network.
#   benchmarks/gpu.sh                     everything
#   benchmarks/gpu.sh build kernels       some stages: build, kernels, sanitize, tests, bench
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
KERNEL_TESTS=(block_cg_test jackknife_interval_test node_gradients_test propagate_test)

# The extension, against the torch that is there, for the GPU that is there.
build() {
  CALIRARE_CUDA=ON CALIRARE_CUDA_ARCHS=native "$PYTHON" -m pip install --no-index --no-build-isolation --no-deps -e .
  "$PYTHON" -c "import calirare_ext; print(calirare_ext.build_info())"
}

# CUDA twins against CPU twins without torch: the tests that run under the emulator elsewhere.
build_kernels() {
  cmake -S csrc/tests -B build/gpu -G Ninja -DCALIRARE_GPU=ON
  cmake --build build/gpu
}

kernels() {
  build_kernels
  for test in "${KERNEL_TESTS[@]}"; do "build/gpu/$test"; done
}

# memcheck: reads and writes out of bounds. racecheck: shared memory touched without a barrier. initcheck: global
# memory read before it is written. synccheck: barriers that not all threads reach.
sanitize() {
  build_kernels
  for tool in memcheck racecheck initcheck synccheck; do
    for test in "${KERNEL_TESTS[@]}"; do
      echo "== $tool $test"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "build/gpu/$test"
    done
  done
}

tests() {
  "$PYTHON" -m pytest -q --require-cuda
}

bench() {
  "$PYTHON" benchmarks/bench_kernels.py --device cuda
}

for stage in "${@:-build kernels sanitize tests bench}"; do
  for name in $stage; do
    case $name in
      build | kernels | sanitize | tests | bench) echo "=== $name" && "$name" ;;
      *) echo "gpu.sh: no stage '$name': build, kernels, sanitize, tests or bench" >&2 && exit 2 ;;
    esac
  done
done

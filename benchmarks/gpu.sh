#!/usr/bin/env bash
# What only a machine with a GPU can show. Needs nvcc, cmake, ninja and a torch built for CUDA; no network.
#   benchmarks/gpu.sh                     everything
#   benchmarks/gpu.sh build kernels       some stages: build, kernels, sanitize, tests, bench
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
BUILD=${BUILD:-build/gpu}

# The extension, against the torch that is there, for the GPU that is there.
build() {
  CALIRARE_CUDA=ON CALIRARE_CUDA_ARCHS=native "$PYTHON" -m pip install --no-index --no-build-isolation --no-deps -e .
  "$PYTHON" -m pip install --no-index --no-build-isolation --no-deps -e python/calirare_multilabel -e python/calirare_lab
  "$PYTHON" -c "import calirare_ext; print(calirare_ext.build_info())"
}

# CUDA twins against CPU twins without torch: the tests that run under the emulator elsewhere, every one that
# csrc/tests builds. Sets KERNEL_TESTS.
build_kernels() {
  rm -f "$BUILD"/*_test
  cmake -S csrc/tests -B "$BUILD" -G Ninja -DCALIRARE_GPU=ON
  cmake --build "$BUILD"
  KERNEL_TESTS=("$BUILD"/*_test)
  [[ -x ${KERNEL_TESTS[0]} ]] || { echo "gpu.sh: csrc/tests must build kernel tests, found none in $BUILD" >&2 && exit 1; }
}

kernels() {
  build_kernels
  for test in "${KERNEL_TESTS[@]}"; do
    echo "== $(basename "$test")"
    "$test"
  done
}

# memcheck: reads and writes out of bounds. racecheck: shared memory touched without a barrier. initcheck: global
# memory read before it is written. synccheck: barriers that not all threads reach.
sanitize() {
  build_kernels
  for tool in memcheck racecheck initcheck synccheck; do
    for test in "${KERNEL_TESTS[@]}"; do
      echo "== $tool $(basename "$test")"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$test"
    done
  done
}

tests() {
  "$PYTHON" -m pytest -q --require-cuda
}

bench() {
  "$PYTHON" benchmarks/bench_kernels.py --device cuda
  "$PYTHON" benchmarks/bench_device.py
}

all() {
  local failed=""
  for stage in "$@"; do
    benchmarks/gpu.sh "$stage" || failed+=" $stage"
  done
  [[ -z $failed ]] || { echo "gpu.sh: failed:$failed" >&2 && exit 1; }
}

case ${1:-} in
  "") all build kernels sanitize tests bench ;;
  build | kernels | sanitize | tests | bench)
    # A stage that fails does not keep the next ones from running: each shows something of its own.
    if (($# > 1)); then all "$@"; else echo "=== $1" && "$1"; fi
    ;;
  *) echo "gpu.sh: no stage '$1': build, kernels, sanitize, tests or bench" >&2 && exit 2 ;;
esac

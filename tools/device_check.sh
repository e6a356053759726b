#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Proves the kernels, and models that run on them, on an NVIDIA card and times steps there, in at most 6 minutes. The programs are those of
# build/cuda/programs/ (make CUDA=1 builds them where nvcc is); there they need nothing but the driver.
#
#   tools/device_check.sh [OUT]      logs and evidence.json go to OUT ($OUT, else build/cuda/out)
#
# Exit status 0 only if all suites passed with the reference's bits and compute-sanitizer found nothing.
set -u
cd "$(dirname "$0")/.."
out=${1-${OUT-build/cuda/out}}
programs=build/cuda/programs
mkdir -p "$out"
status=0

# named NAME SECONDS COMMAND...: with a log and a limit
named() {
  name=$1 limit=$2
  shift 2
  begin=$(date +%s)
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  echo "$name: exit $code after $(($(date +%s) - begin)) s"
  [ "$code" -eq 0 ] || { status=1; tail -n 15 "$out/$name.log"; }
}

for program in kernels_cuda_test gpu_cuda_test cuda_check; do
  if [ ! -x "$programs/$program" ]; then
    echo "error: $programs/$program is missing; make CUDA=1 builds it" >&2
    exit 2
  fi
done
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null

# Each in a process of its own: a fault of one kernel would end all that come after it.
for suite in MatmulTest AttentionTest ElementwiseTest GumbelTest StoreKvTest BodiesOnCardTest; do
  named "$suite" 40 "$programs/kernels_cuda_test" --gtest_filter="*$suite*" --gtest_brief=1
  grep -E '^\[  (PASSED|FAILED)' "$out/$suite.log"
done
# Passes of tiny models, and of SmolLM2 where models/ has it (or of $LONGSPEC_CHECK_MODEL): the CPU's bits.
for suite in GpuMoverTest GpuLogitsTest GpuTarget ModelOnCard; do
  named "$suite" 60 "$programs/gpu_cuda_test" --gtest_filter="*$suite*" --gtest_brief=1
  grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$out/$suite.log"
done
# A minute of steps, and attention alone.
named check 100 "$programs/cuda_check" --seconds 50 --attention 15 --out "$out/evidence.json"
# Bodies of products beside each other.
named products 40 "$programs/cuda_check" --exp-step 0 --seconds 0 --products 1
cat "$out/products.log"
sed -n 1,60p "$out/check.log"

if command -v compute-sanitizer >/dev/null 2>&1; then
  # Where a kernel reads beside its operands, and where threads of a block do not wait for each other.
  short='*LargestIntegers*:*NoNumbers*:*RopeOfBoth*:*GatesOfEvery*:*ValuesIgnore*:*RmsNormOf*:*MergesStates*:*StoresTouch*'
  named memcheck 30 compute-sanitizer --tool memcheck --error-exitcode 9 "$programs/kernels_cuda_test" \
    --gtest_filter="$short"
  named racecheck 30 compute-sanitizer --tool racecheck --error-exitcode 9 "$programs/kernels_cuda_test" \
    --gtest_filter="$short"
  tail -n 2 "$out/memcheck.log" "$out/racecheck.log"
else
  echo "compute-sanitizer is not there: nothing was checked with it"
fi
exit "$status"

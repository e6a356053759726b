#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Proves kernels, models and the program on an NVIDIA card and times them there, in at most 8 minutes: first what is
# right, then what it costs. The programs are those of `make CUDA=1`, which are built where nvcc is; on the machine with
# the card they need nothing but the driver.
#
#   tools/device_check.sh [OUT]        logs and evidence.json go to OUT ($OUT, else build/cuda/out)
#   tools/device_check.sh --dry-run    prints what would run, with the seconds that each may take
#
# Environment: LONGSPEC_CHECK_MODEL (file; else SmolLM2 of models/, where it is), LLAMA_BENCH (llama.cpp's program).
#
# Exit status 0 only if all suites passed with the reference's bits, the program wrote on the card what it writes on the
# CPU, and compute-sanitizer found nothing; what only measures cannot fail it. Evidence is of the digest of the bodies'
# sources: programs that were built of others are refused.
set -u
cd "$(dirname "$0")/.."
dry=''
[ "${1-}" != --dry-run ] || { dry=1; shift; }
out=${1-${OUT-build/cuda/out}}
programs=build/cuda/programs longspec=build/cuda-release/longspec
model=${LONGSPEC_CHECK_MODEL-models/SmolLM2-135M-Instruct.Q4_1.gguf}
status=0
deadline=$(($(date +%s) + 480))

# run NAME SECONDS COMMAND...: what it says in NAME.log and NAME.err, within this limit and what is left of the time for
# all. Status of the command.
run() {
  log=$out/$1 limit=$2
  shift 2
  if [ -n "$dry" ]; then
    echo "${log##*/} ($limit s): $*"
    return 0
  fi
  begin=$(date +%s)
  left=$((deadline - begin))
  if [ "$left" -lt 5 ]; then
    echo "${log##*/}: left out, the time is over"
    return 1
  fi
  [ "$limit" -le "$left" ] || limit=$left
  timeout "$limit" "$@" >"$log.log" 2>"$log.err"
  code=$?
  echo "${log##*/}: exit $code after $(($(date +%s) - begin)) s"
  [ "$code" -eq 0 ] || tail -q -n 15 "$log.log" "$log.err"
  return "$code"
}

# Must succeed.
proves() { run "$@" || status=1; }
# suite PROGRAM SECONDS SUITE: in a process of its own, as a fault of one kernel would end all that come after it.
suite() {
  proves "$3" "$2" "$programs/$1" --gtest_filter="*$3*" --gtest_brief=1
  [ -n "$dry" ] || grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$out/$3.log"
}
# Shows what was measured.
measures() { run "$@" && [ -z "$dry" ] && cat "$out/$1.log"; }
part() { echo "--- $*"; }

# same NAME OPTION...: the program writes on the card what it writes on the CPU.
same() {
  text=$1
  shift
  for device in cpu cuda:0; do
    proves "$text-$device" 30 "$longspec" run -m "$model" --device "$device" --no-progress --no-chat -n 64 \
      -f data/demo/repository.txt -c 8192 --stats-file "$out/$text-$device.json" "$@"
  done
  [ -n "$dry" ] || cmp "$out/$text-cpu.log" "$out/$text-cuda:0.log" || status=1
}

digest=$(cat src/kernels/gpu/*.h src/cuda/device_cta.h | sha256sum | cut -c 1-16)
if [ -z "$dry" ]; then
  mkdir -p "$out"
  for program in "$programs/kernels_cuda_test" "$programs/gpu_cuda_test" "$programs/cuda_check" "$longspec"; do
    if [ ! -x "$program" ]; then
      echo "error: $program is missing; make CUDA=1 builds it" >&2
      exit 2
    fi
  done
  built=$("$programs/cuda_check" --digest)
  if [ "$built" != "$digest" ]; then
    echo "error: $programs was built of bodies with digest $built, not $digest as they are now; make CUDA=1" >&2
    exit 2
  fi
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
fi

part "proof of kernels, digest $digest"
for name in MatmulTest AttentionTest ElementwiseTest GumbelTest StoreKvTest BodiesOnCardTest; do
  suite kernels_cuda_test 40 "$name"
done
part "proof of models: tiny ones, and SmolLM2 where it is"
for name in GpuMoverTest GpuLogitsTest GpuTarget DraftsOnCard ModelOnCard; do
  suite gpu_cuda_test 40 "$name"
done
part "proof of the program"
if [ -n "$dry" ] || [ -e "$model" ]; then
  same greedy --temp 0 --spec-type none
  same guessed --temp 0
  same drawn --temp 0.8 --seed 7
  same i8 --temp 0 -ctk i8 -ctv i8
  same offload --temp 0 --kv-offload host --kv-memory 0
  same partial --temp 0 --spec-type partial
  proves selfcheck 60 "$longspec" selfcheck -m "$model" --device cuda:0 -n 16 --temps 0
else
  echo "$model is not there: the program did not run"
fi
part "proof that no thread reads beside its operands or before another has written"
if [ -n "$dry" ] || command -v compute-sanitizer >/dev/null 2>&1; then
  short='*LargestIntegers*:*NoNumbers*:*RopeOfBoth*:*GatesOfEvery*:*ValuesIgnore*:*RmsNormOf*'
  short="$short:*MergesStates*:*StoresTouch*"
  for tool in memcheck racecheck; do
    proves "$tool" 20 compute-sanitizer --tool "$tool" --error-exitcode 9 "$programs/kernels_cuda_test" \
      --gtest_filter="$short"
  done
else
  echo "compute-sanitizer is not there: nothing was checked with it"
fi

part "steps, and attention alone"  # halves and exp are part of it
proves check 100 "$programs/cuda_check" --seconds 50 --attention 15 --out "$out/evidence.json"
[ -n "$dry" ] || sed -n 1,60p "$out/check.log"
measures products 30 "$programs/cuda_check" --exp-step 0 --seconds 0 --products 1
[ -z "$dry" ] && [ ! -e "$model" ] || measures bench 40 "$longspec" bench -m "$model" --device cuda:0 --depth 512,4096 \
  --rows 1,2,4,8,16,64
part "llama.cpp on the same file"
if [ -n "$dry" ] || { [ -e "$model" ] && command -v "${LLAMA_BENCH-llama-bench}" >/dev/null 2>&1; }; then
  measures llama-bench 40 "${LLAMA_BENCH-llama-bench}" -m "$model" -ngl 99 -fa 1 -p 512 -n 64 -d 512,4096
else
  echo "llama-bench is not there"
fi
part "attention of torch on the shapes of the steps"
measures torch 40 python3 tools/torch_attention.py --seconds 25
part "a table of a paper, with drafts that are right with a chance"
if [ -n "$dry" ] || { [ -e "$model" ] && command -v python3 >/dev/null 2>&1; }; then
  tasks=$out/tasks
  if [ -z "$dry" ]; then
    mkdir -p "$tasks"
    python3 -c 'import json, sys
print(json.dumps({"id": "1", "prompt_text": open(sys.argv[1]).read(), "instruction": "Summarise the report."}))' \
      data/demo/report.txt >"$tasks/gov_report.jsonl"
  fi
  measures table 60 "$longspec" eval -m "$model" --device cuda:0 --data "$tasks" --out "$out/table" --no-progress \
    --lengths 2048,4096 --temps 0 -n 64 --ignore-eos --methods replay/accept=0.6/cost=0.05,replay/accept=0.8/cost=0.05 \
    --paper longspec-table1
else
  echo "$model is not there: no table"
fi
[ -n "$dry" ] || echo "digest $digest: $([ "$status" -eq 0 ] && echo proved || echo 'not proved')"
exit "$status"

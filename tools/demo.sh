#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The main job: summarise a long report, once with speculation and once without, and compare the two.
# Environment: LONGSPEC (program), MODEL, DOCUMENT, N_PREDICT.
set -eu
cd "$(dirname "$0")/.."

: "${LONGSPEC:=build/release/longspec}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
: "${DOCUMENT:=data/demo/report.txt}" "${N_PREDICT:=256}"
out=build/demo
mkdir -p "$out"

# summarise TYPE: streams the summary and leaves tokens and timings in $out/TYPE.json.
summarise() {
  printf '\n--- %s, --spec-type %s ---\n' "$DOCUMENT" "$1" >&2
  rm -f "$out/$1.json"
  "$LONGSPEC" run -m "$MODEL" -f "$DOCUMENT" \
    -sys "Summarise the report you are given: its main findings and what it recommends." \
    -n "$N_PREDICT" --temp 0 --spec-type "$1" --stats-file "$out/$1.json"
}

summarise auto
summarise none
echo
python3 tools/demo_report.py "$out/auto.json" "$out/none.json"

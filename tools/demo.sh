#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The main job: summarise a long report with speculation, with the draft model that ships alone, and without any, and
# compare them. Environment: LONGSPEC (program), MODEL, DRAFT (empty: none; it is of the default model), DOCUMENT,
# N_PREDICT.
set -eu
cd "$(dirname "$0")/.."

: "${LONGSPEC:=build/release/longspec}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
case $MODEL in
  *SmolLM2-135M-Instruct.Q4_1.gguf) : "${DRAFT=models/drafts/SmolLM2-135M-Instruct.lm.gguf}" ;;
  *) : "${DRAFT=}" ;;
esac
: "${DOCUMENT:=data/demo/report.txt}" "${N_PREDICT:=256}"
out=build/demo
mkdir -p "$out"

# summarise TYPE [OPTION...]: streams the summary and leaves tokens and timings in $out/TYPE.json.
summarise() {
  type=$1
  shift
  printf '\n--- %s, --spec-type %s ---\n' "$DOCUMENT" "$type" >&2
  rm -f "$out/$type.json"
  "$LONGSPEC" run -m "$MODEL" -f "$DOCUMENT" \
    -sys "Summarise the report you are given: its main findings and what it recommends." \
    -n "$N_PREDICT" --temp 0 --spec-type "$type" --stats-file "$out/$type.json" "$@"
}

summarise auto
summarise none
set -- "$out/auto.json"
if [ -n "$DRAFT" ]; then
  summarise lm -md "$DRAFT" --spec-draft-n-max 4
  set -- "$@" "$out/lm.json"
fi
echo
python3 tools/demo_report.py "$@" "$out/none.json"

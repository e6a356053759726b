#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The main job: goes on with a file of a small repository and answers a question about a report, each with speculation
# and without, and compares them. A prompt is evaluated once, with speculation on; the plain run takes it from a session
# file. Environment: LONGSPEC (program), MODEL (file; else the one that the program finds).
set -eu
cd "$(dirname "$0")/.."

: "${LONGSPEC:=build/release/longspec}" "${MODEL:=}"
out=build/demo
mkdir -p "$out"

# both NAME OPTION...: streams the text twice, and leaves tokens and timings in $out/NAME.TYPE.json.
both() {
  name=$1
  shift
  rm -f "$out/$name".*
  for type in auto none; do
    printf '\n--- %s, --spec-type %s ---\n' "$name" "$type" >&2
    "$LONGSPEC" run ${MODEL:+-m "$MODEL"} -c 8192 --temp 0 --spec-type "$type" --session "$out/$name.session" \
      --stats-file "$out/$name.$type.json" "$@"
  done
  rm -f "$out/$name.session"
}

both file --no-chat -f data/demo/repository.txt -n 192
# The part about the data, without what comes before and after.
sed -n '24,82p' data/demo/report.txt >"$out/report.txt"
both question -p "Which challenges limit the transparency of the spending data? Name each in one sentence." \
  -f "$out/report.txt" -n 128
echo
python3 tools/demo_report.py "go on with a file" "$out/file.auto.json" "$out/file.none.json" \
  "question about a report" "$out/question.auto.json" "$out/question.none.json"

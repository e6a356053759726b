#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs LibTorch from PyPI into .venv and builds build/trainer/longspec-train and longspec-write with it.
#
#   tools/setup_trainer.sh          for CPUs: torch without the CUDA libraries it would bring (fetches 0.5 GB, not 3)
#   tools/setup_trainer.sh --cuda   everything, for a GPU
#   tools/setup_trainer.sh --fetch  for CPUs, and nothing is built
#
# LONGSPEC_VENV names another folder than .venv, CMAKE_ARGS adds to the configuration.
set -eu
cd "$(dirname "$0")/.."

case ${1:-} in
  '' | --cuda | --fetch) ;;
  *)
    echo "setup_trainer: unknown option '$1'; known: --cuda, --fetch" >&2
    exit 2
    ;;
esac

tools/setup.sh build
venv=${LONGSPEC_VENV:-.venv}
[ -x "$venv/bin/pip" ] || python3 -m venv "$venv" || {
  echo "setup_trainer: no Python environment could be made; on Debian, install python3-venv" >&2
  exit 1
}
python=$venv/bin/python

if [ "${1:-}" = --cuda ]; then
  "$python" -m pip install --quiet torch
else
  # Asked of what pip has recorded, which it does last: an installation that was interrupted is begun again.
  "$python" -c 'from importlib.metadata import version; version("torch")' 2>/dev/null ||
    "$python" -m pip install --quiet --no-compile --no-deps torch  # no Python of it runs
  # The wheel of PyPI is built for CUDA too: its CPU library is linked with two small libraries of the toolkit.
  toolkit=$("$python" - <<'PYTHON'
from importlib.metadata import distributions, requires
import re
needs = [r for r in requires("torch") or [] if r.startswith("cuda-toolkit")]
version = re.search(r"==[0-9.]+", needs[0]).group() if needs else ""
have = any(d.metadata["Name"] == "cuda-toolkit" and version in ("", "==" + d.version) for d in distributions())
print("cuda-toolkit[cudart,cupti]" + version if needs and not have else "")
PYTHON
  )
  [ -z "$toolkit" ] || "$python" -m pip install --quiet --no-compile "$toolkit"
fi
[ "${1:-}" != --fetch ] || exit 0

# shellcheck disable=SC2086
cmake --preset release -B build/trainer -DLONGSPEC_BUILD_TRAINER=ON -DLONGSPEC_TRAINER_PYTHON="$python" \
  ${CMAKE_ARGS:-} >/dev/null
cmake --build build/trainer --target longspec_program longspec_train_program longspec_write_program -j "$(nproc)"
echo "build/trainer/longspec-train and longspec-write are ready; docs/how-to/train-a-draft-model.md says how to use it"

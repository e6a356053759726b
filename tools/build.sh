#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Configures a preset when that is due and builds targets of it (all of them if none are named).
#
#   tools/build.sh PRESET [TARGET...]
set -eu
cd "$(dirname "$0")/.."

preset=$1
shift
dir=build/$preset

# A compiler cache, where there is one, serves other copies of the repository too: paths are taken relative to its root,
# which debug information does not name then. It is told that precompiled headers are known by what is in them.
export CCACHE_BASEDIR="${CCACHE_BASEDIR-$PWD}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR-1}"
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS-pch_defines,time_macros,include_file_mtime,include_file_ctime}"

# Ninja itself runs CMake again when a CMakeLists.txt changed; presets, and sources that are fetched, are not watched by
# it.
watched=CMakePresets.json
[ ! -d third_party ] || watched="$watched third_party"
# shellcheck disable=SC2086
if [ ! -e "$dir/build.ninja" ] || [ -n "$(find $watched -maxdepth 0 -newer "$dir/build.ninja")" ]; then
  mkdir -p "$dir"
  launcher=''
  if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
  echo "configuring $preset" >&2
  # shellcheck disable=SC2086
  if ! cmake --preset "$preset" $launcher >"$dir/configure.log" 2>&1; then
    rm -f "$dir/build.ninja"
    cat "$dir/configure.log" >&2
    exit 1
  fi
  touch "$dir/build.ninja"
fi

cd "$dir"
exec ninja -j "$(nproc)" "$@"

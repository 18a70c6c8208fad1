"""Goal: kernels of many shapes give the same results however often their blocks leave.

The kernels of compiler/tests/runs are compiled as they are and after `penstock preempt`, and run on
the CPU backend. There a block that leaves really ends: only what the compiler saved survives.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build/release"
PROGRAM = BUILD / "penstock-preempt"
SOURCES = ROOT / "compiler/tests/runs"
NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEEDS = 1000 if NIGHTLY else 20
FLAGS = [
    *("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
    *("-I", str(ROOT / "include"), "-I", str(ROOT / "include/penstock/language/toolkit")),
    *("-I", str(SOURCES)),
]

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists() or not (BUILD / "libpenstock.so").exists(),
    reason="penstock-preempt is not built (no Clang)",
)


def build(kernels: Path, into: Path) -> Path:
    """Compile kernels with the program that runs them."""
    made = into.with_suffix(".o")
    compiler = ["sh", str(ROOT / "cmake/penstock-kernel-compile.sh"), "g++", *FLAGS, "-x", "c++"]
    subprocess.run(
        [*compiler, "-include", "penstock/language/cuda.h", "-c", str(kernels), "-o", str(made)],
        check=True,
    )
    libraries = ["-L", str(BUILD), "-lpenstock", f"-Wl,-rpath,{BUILD}"]
    main = str(SOURCES / "main.cc")
    subprocess.run(
        ["g++", *FLAGS, main, str(made), "-o", str(into), *libraries],
        check=True,
    )
    return into


def run(program: Path, data: Path, share: float, seed: int) -> tuple[str, int]:
    """Return the results, and how often blocks left."""
    done = subprocess.run(
        [str(program), str(data), str(share), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, int(done.stderr)


def test_results_are_equal(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    data = tmp_path / "data.bin"
    data.write_bytes(random.Random(1).randbytes(300_000))
    transformed = tmp_path / "transformed.cu"
    subprocess.run([str(PROGRAM), str(SOURCES / "kernels.cu"), "-o", str(transformed)], check=True)
    expected, left = run(build(SOURCES / "kernels.cu", tmp_path / "spinning"), data, 1, 1)
    assert left == 0
    program = build(transformed, tmp_path / "leaving")
    for seed in range(SEEDS):
        share = (0.0, 0.1, 0.5, 1.0)[seed % 4]
        results, left = run(program, data, share, seed)
        assert results == expected, f"seed {seed}, share {share}"
        assert left > 0 or share == 0

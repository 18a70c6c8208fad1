"""Goal: kernels of many shapes give the same results however often their blocks leave.

The kernels of compiler/tests/runs are compiled as they are and after `penstock preempt`, and run on
the CPU backend. There a block that leaves really ends: only what the compiler saved survives.
random_kernels.py makes more of them, of random code with points at random places.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import random_kernels

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build/release"
PROGRAM = BUILD / "penstock-preempt"
SOURCES = ROOT / "compiler/tests/runs"
NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEEDS = 1000 if NIGHTLY else 20
RANDOM_KERNELS = 200 if NIGHTLY else 12
FLAGS = [
    *("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
    *("-I", str(ROOT / "include"), "-I", str(ROOT / "include/penstock/language/toolkit")),
    *("-I", str(SOURCES)),
]

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists() or not (BUILD / "libpenstock.so").exists(),
    reason="penstock-preempt is not built (no Clang)",
)


def build(kernels: Path, into: Path, main: Path = SOURCES / "main.cc", *flags: str) -> Path:
    """Compile kernels with the program that runs them."""
    made = into.with_suffix(".o")
    flags = (*FLAGS, *flags)
    compiler = ["sh", str(ROOT / "cmake/penstock-kernel-compile.sh"), "g++", *flags, "-x", "c++"]
    subprocess.run(
        [*compiler, "-include", "penstock/language/cuda.h", "-c", str(kernels), "-o", str(made)],
        check=True,
    )
    libraries = ["-L", str(BUILD), "-lpenstock", f"-Wl,-rpath,{BUILD}"]
    subprocess.run(
        ["g++", *flags, str(main), str(made), "-o", str(into), *libraries],
        check=True,
    )
    return into


def run(program: Path, data: Path, *words: float) -> tuple[str, int]:
    """Return the results, and how often blocks left."""
    done = subprocess.run(
        [str(program), str(data), *map(str, words)],
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


def test_random_kernels(tmp_path: Path) -> None:
    """What the tool refuses of them is left out; most must stay."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    seed = int(os.environ.get("PENSTOCK_SEED", "1"))
    data = tmp_path / "data.bin"
    data.write_bytes(random.Random(1).randbytes(300_000))
    spinning, leaving = tmp_path / "random.cu", tmp_path / "leaving.cu"
    made = list(random_kernels.kernels(seed, RANDOM_KERNELS))
    while True:
        spinning.write_text(random_kernels.source(made))
        declared = random_kernels.header(made)
        (tmp_path / "random.h").write_text(declared)
        words = [str(PROGRAM), str(spinning), "-o", str(leaving)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        names = random_kernels.refused(made, done.stderr)
        assert names, done.stderr
        made = [one for one in made if one.name not in names]
    assert len(made) >= RANDOM_KERNELS // 2
    main = tmp_path / "main.cc"
    main.write_text(declared + (SOURCES / "random.cc").read_text())
    flags = ("-I", str(tmp_path), "-Wno-unused")
    expected, _ = run(build(spinning, tmp_path / "spinning", main, *flags), data, 0, seed, 1)
    program = build(leaving, tmp_path / "leaving", main, *flags)
    for share, keeps_popping, forced in itertools.product((0.5, 1.0), (0, 1), range(2)):
        results, left = run(program, data, share, forced, keeps_popping)
        lines = zip(results.splitlines(), expected.splitlines(), strict=True)
        wrong = [one.split()[0] for one, wanted in lines if one != wanted]
        assert not wrong, f"PENSTOCK_SEED={seed}, share {share}, seed {forced}"
        assert left > 0

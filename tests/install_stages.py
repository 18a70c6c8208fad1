"""The stages of `make test` that install Penstock and use what was installed."""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZipFile

from stages import BUILD, Counts, Stage, nvcc, one, python

WHEEL_SIZE_MAX = 10_000_000


def out_of_tree(log: Stage) -> Counts:
    """Install, run the command, and build and run the example against what was installed."""
    prefix, build_folder = BUILD / "installed", BUILD / "out-of-tree"
    shutil.rmtree(prefix, ignore_errors=True)
    shutil.rmtree(build_folder, ignore_errors=True)
    configure: list[str | Path] = ["cmake", "-G", "Ninja", "-S", "examples/out-of-tree"]
    configure += ["-B", build_folder, f"-DCMAKE_PREFIX_PATH={prefix}"]
    configure += [f"-DPENSTOCK_NVCC={nvcc()}", "-DPENSTOCK_CUDA_ARCHITECTURES=90-virtual"]
    command: list[str | Path] = [prefix / "bin/penstock", "scan", "LICENSE", "--count"]
    return one(
        log.run(["cmake", "--install", BUILD / "release", "--prefix", prefix])
        and [path.name for path in (prefix / "bin").iterdir()] == ["penstock"]
        and log.run([*command, "--pattern", "Derivative Works"])
        and log.run(configure)
        and log.run(["cmake", "--build", build_folder])
        and log.run([build_folder / "out-of-tree", "LICENSE"], PENSTOCK_DEVICE="cpu")
    )


def wheel(log: Stage) -> Counts:
    """Build a wheel, install it alone, and run the command from it (nightly)."""
    folder = BUILD / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    alone = folder / "venv"
    built = log.run([python(), "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, "."])
    wheels = list(folder.glob("penstock-*.whl"))
    if not built or len(wheels) != 1:
        return one(False)
    names = ZipFile(wheels[0]).namelist()
    log.log.write("\n".join(names) + "\n")
    return one(
        wheels[0].stat().st_size < WHEEL_SIZE_MAX
        and not any("bench_" in name or "penstock-bench" in name for name in names)
        and log.run([python(), "-m", "venv", alone])
        and log.run([alone / "bin/pip", "install", "-q", "--no-deps", wheels[0]])
        and log.run([alone / "bin/penstock", "check", "--json"])
        and log.run([alone / "bin/python", "-c", "import penstock._core"])
    )

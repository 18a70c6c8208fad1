"""The stages of `make test` that install Penstock and use the installation."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from zipfile import ZipFile

from stages import BUILD, Counts, Stage, nvcc, one, python, total

WHEEL_SIZE_MAX = 10_000_000
BENCH_PARTS = ("bench_", "penstock-bench", "penstock-program")
# What is installed for users to run. The second needs LLVM to be built.
PROGRAMS = {"penstock", "penstock-preempt"}


def out_of_tree(log: Stage) -> Counts:
    """Install, check the installed files, and run the examples of the documentation with them."""
    prefix = BUILD / "installed"
    shutil.rmtree(prefix, ignore_errors=True)
    if not log.run(["cmake", "--install", BUILD / "release", "--prefix", prefix]):
        return one(False)
    programs = {path.name for path in (prefix / "bin").iterdir()}
    as_expected = {"penstock"} <= programs <= PROGRAMS
    if not as_expected:
        log.log.write(f"bin: FAILED: holds {sorted(programs)}, wanted {sorted(PROGRAMS)}\n")
    succeeded = log.run(
        [python(), "tests/readme.py", prefix],
        CUDAARCHS="90-virtual",
        **({"CUDACXX": nvcc()} if nvcc() else {}),
    )
    found = Counter(
        re.findall(r"^[\w/.-]+\.md:\d+ \w*: (ok|FAILED|skipped)", log.text(), re.MULTILINE)
    )
    failed = found["FAILED"] if succeeded else max(found["FAILED"], 1)
    return total(
        [one(as_expected), Counts(found["ok"], failed, found["skipped"])],
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
        and not any(part in name for part in BENCH_PARTS for name in names)
        and log.run([python(), "-m", "venv", alone])
        and log.run([alone / "bin/pip", "install", "-q", "--no-deps", wheels[0]])
        and log.run([alone / "bin/penstock", "check", "--json"])
        and log.run([alone / "bin/python", "-c", "import penstock._core"])
    )

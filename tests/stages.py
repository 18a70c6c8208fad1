"""The stages of `make test`, which tests/run.py runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
JOBS = os.cpu_count() or 1
SECONDS_MAX = 1800  # of one command, so that a hang ends
NIGHTLY_SECONDS_MAX = 4 * 3600
FUZZ_SECONDS = 3600  # of each target, nightly; PENSTOCK_FUZZ_SECONDS sets another time
FUZZ_SECONDS_SHORT = 60  # with --only fuzz
LINT_BATCH = 8  # files that clang-tidy reads at once
CANARY_SECONDS_MAX = 600  # in which the planted bug must be found
# Programs with one thread that make no system calls and take minutes.
PURE_TESTS = "memory_model_test|access_test|readahead_test"

# For ccache, if there is one: a file compiled in one checkout serves another, with precompiled
# headers too.
CACHE = {
    "CCACHE_BASEDIR": str(ROOT),
    "CCACHE_NOHASHDIR": "1",
    "CCACHE_SLOPPINESS": "pch_defines,time_macros",
}


class Counts(NamedTuple):
    """Numbers of checks."""

    passed: int
    failed: int
    skipped: int = 0  # cannot run here: the log says why


class Stage:
    """The argument of a stage: its log and its lane's priority."""

    def __init__(self, name: str, nightly: bool, background: bool) -> None:
        self.name = name
        self.nightly = nightly
        self.priority = ["nice", "-n", "10"] if background else []
        self.path = LOGS / f"{name}.log"
        self.log = self.path.open("w")

    def words(self, command: Sequence[str | Path]) -> list[str]:
        """Return a command at the priority of its lane."""
        return [*self.priority, *(str(word) for word in command)]

    def run(self, command: Sequence[str | Path], **environment: str) -> bool:
        """Run a command with its output in the log; return whether it succeeded."""
        words = self.words(command)
        self.log.write(f"$ {' '.join(words)}\n")
        self.log.flush()
        # The user's calibration must not change the results of tests.
        everything = CACHE | os.environ | {"XDG_CONFIG_HOME": "/dev/null"} | environment
        try:
            done = subprocess.run(
                words,
                cwd=ROOT,
                env=everything,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=subprocess.STDOUT,
                timeout=NIGHTLY_SECONDS_MAX if self.nightly else SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as error:
            self.log.write(f"stopped: {error}\n")
            return False
        return done.returncode == 0

    def text(self) -> str:
        """Return the text of the log so far."""
        self.log.flush()
        return self.path.read_text(errors="replace")


def one(succeeded: bool) -> Counts:
    """Return the counts of a stage that is one check."""
    return Counts(1, 0) if succeeded else Counts(0, 1)


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    return Counts(*(sum(numbers) for numbers in zip(Counts(0, 0), *counts, strict=True)))


def python() -> Path:
    """Return the path of the project's Python."""
    return ROOT / ".venv/bin/python"


def nvcc() -> str:
    """Return the nvcc that compiles kernels; empty if there is none."""
    for place in (
        shutil.which("nvcc"),
        "/usr/local/cuda/bin/nvcc",
        str(ROOT / ".venv/cuda/bin/nvcc"),
    ):
        if place and os.access(place, os.X_OK):
            return place
    return ""


def build(
    preset: str, *options: str, targets: Sequence[str] = ("all",)
) -> Callable[[Stage], Counts]:
    """Return a stage that configures a preset with its tests, and builds `targets` of it."""

    def stage(log: Stage) -> Counts:
        configured = log.run(["cmake", "--preset", preset, "-DPENSTOCK_TESTS=ON", *options])
        # -k 0 builds all targets that do not depend on a failure, so that their tests run.
        command: list[str | Path] = ["cmake", "--build", BUILD / preset]
        command += ["-j", str(JOBS), "--target", *targets, "--", "-k", "0"]
        return one(configured and log.run(command))

    return stage


def build_with_cuda(preset: str, architectures: str, log: Stage) -> Counts:
    """Build what users get, all CUDA code included; fail without an nvcc.

    `architectures` are those that code is generated for; nightly, all that users get.
    """
    return build(
        preset,
        "-DPENSTOCK_PYTHON=ON",
        f"-DPython_EXECUTABLE={python()}",
        "-DPENSTOCK_CUDA=ON",
        f"-DPENSTOCK_NVCC={nvcc() or 'PENSTOCK_NVCC-NOTFOUND'}",
        *([] if log.nightly else [f"-DPENSTOCK_CUDA_ARCHITECTURES={architectures}"]),
    )(log)


def build_release(log: Stage) -> Counts:
    """Build the release preset with all CUDA code."""
    # Only PTX is built: nvcc takes most of its time to generate code from it, for each
    # architecture. The headers are compiled for the oldest architecture, too.
    return build_with_cuda("release", "90-virtual", log)


def build_cuda(log: Stage) -> Counts:
    """Build the cuda preset."""
    # Code for architecture 8.0 runs on 8.6 and 8.9 too.
    return build_with_cuda("cuda", "75;80;90", log)


def ctest(preset: str, only: Sequence[str] = (), **environment: str) -> Callable[[Stage], Counts]:
    """Return a stage that runs the GoogleTest programs of a preset and counts their cases.

    `only` names the programs; empty: all.
    """

    def stage(log: Stage) -> Counts:
        command: list[str | Path] = [
            "ctest",
            "--test-dir",
            BUILD / preset,
            "-V",
            "--no-tests=error",
        ]
        if only:
            command += ["-R", f"^({'|'.join(only)})$"]
        if preset in ("asan", "tsan"):
            command += ["-j", "2"]  # programs wait for faults and limits half of the time
        if preset == "tsan" and log.run(["setarch", "-R", "true"]):
            command = ["setarch", "-R", *command]  # GCC's TSan knows fewer address layouts
        nightly = {"PENSTOCK_NIGHTLY": "1"} if log.nightly else {}
        succeeded = log.run(
            command,
            GTEST_COLOR="no",
            ASAN_OPTIONS="detect_stack_use_after_return=0",
            UBSAN_OPTIONS="print_stacktrace=1",
            TSAN_OPTIONS="second_deadlock_stack=1",
            **environment,
            **nightly,
        )
        return gtest_counts(log.text(), succeeded)

    return stage


def gtest_counts(text: str, succeeded: bool) -> Counts:
    """Count the cases in the output of GoogleTest programs."""
    passed = len(re.findall(r"\[       OK \] ", text))
    # A program lists both kinds again at its end, without a time.
    failed = len(re.findall(r"\[  FAILED  \] .* ms\)$", text, re.MULTILINE))
    skipped = len(re.findall(r"\[  SKIPPED \] .* ms\)$", text, re.MULTILINE))
    return Counts(passed, failed if succeeded else max(failed, 1), skipped)


def gtest_failures(text: str) -> list[str]:
    """Return the output of the failed cases in the output of `ctest -V`.

    Its programs run side by side, and each line begins with the program's number. A case that did
    not end, because the program was killed or a sanitizer ended it, is a failure too.
    """
    running: dict[str, list[str]] = {}  # program: lines of the case that it is at
    failures: list[str] = []
    for line in text.splitlines():
        number, separator, rest = line.partition(": ")
        if not separator or not number.isdigit():
            continue
        if rest.startswith("[ RUN      ]"):
            running[number] = [line]
        elif number in running:
            running[number].append(line)
            if rest.startswith(("[       OK ]", "[  SKIPPED ]")):
                lines = running.pop(number)
                # ThreadSanitizer reports, lets the case end well, and has the program fail.
                failures += (
                    lines if any("WARNING: ThreadSanitizer" in line for line in lines) else []
                )
            elif rest.startswith("[  FAILED  ]"):
                failures += running.pop(number)
    for lines in running.values():
        failures += lines
    return failures


def tidy(log: Stage) -> Counts:
    """Run tests/tidy.py and its self-test, and check that generated pages are up to date."""
    kinds = log.run([python(), "tests/tidy.py", "--self-test"])
    charts = log.run([python(), "docs/charts.py", "--check"])
    pages = log.run([python(), "docs/headers.py", "--check"])
    return one(log.run([python(), "tests/tidy.py"]) and kinds and charts and pages)


def python_lint(log: Stage) -> Counts:
    """Run ruff and mypy."""
    bin_folder = ROOT / ".venv/bin"
    checked = log.run([bin_folder / "ruff", "check", "."])
    formatted = log.run([bin_folder / "ruff", "format", "--check", "."])
    return one(log.run([bin_folder / "mypy"]) and checked and formatted)


def sources(*suffixes: str) -> list[Path]:
    """Return the C++ and CUDA files of the project with these suffixes."""
    folders = ("include", "src", "workloads", "bench", "tests", "frontends", "examples", "cmake")
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    return [path for path in found if path.suffix in suffixes]


def cxx_format(log: Stage) -> Counts:
    """Check that clang-format would change nothing."""
    files = sources(".h", ".cuh", ".cc", ".cu")
    return one(log.run([ROOT / ".venv/bin/clang-format", "--dry-run", "-Werror", *files]))


def in_parallel(
    log: Stage, commands: Sequence[Sequence[str | Path]], shown: bool = True
) -> list[str | Path]:
    """Run commands on all CPUs; return the last arguments of the commands that succeed.

    If `shown`, the output of each command that fails is put in the log in one piece.
    """

    def call(command: Sequence[str | Path]) -> tuple[bool, str]:
        words = log.words(command)
        done = subprocess.run(
            words, cwd=ROOT, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        output = "" if done.returncode == 0 else f"$ {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.returncode == 0, output

    with ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(call, commands))
    if shown:
        log.log.writelines(output for _, output in results)
    return [
        command[-1] for command, (succeeded, _) in zip(commands, results, strict=True) if succeeded
    ]


def lint_batches(files: Sequence[str], commands: dict[str, str]) -> dict[Path, list[str]]:
    """Write sources that include up to LINT_BATCH files of one folder each; return what each holds.

    clang-tidy takes most of its time to read the system's headers, once for each file.
    """
    folder = BUILD / "lint"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    groups: dict[str, list[str]] = {}
    for file in files:
        # Programs have a main() each.
        folders = (ROOT / "bench", ROOT / "bench/programs", ROOT / "tests/programs")
        program = Path(file).parent in folders
        groups.setdefault(file if program else str(Path(file).parent), []).append(file)
    found: dict[Path, list[str]] = {}
    for group in groups.values():
        count = -(-len(group) // LINT_BATCH)
        for part in (group[i::count] for i in range(count)):
            unit = folder / f"{len(found)}.cc"
            lines = [f'#include "{file}"  // NOLINT(bugprone-suspicious-include)' for file in part]
            unit.write_text("\n".join(lines) + "\n")
            found[unit] = part
    entries = [
        {
            "directory": str(BUILD / "release"),
            "file": str(unit),
            "command": commands[part[0]].replace(part[0], str(unit)),
        }
        for unit, part in found.items()
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return found


def cxx_lint(log: Stage) -> Counts:
    """Run clang-tidy over the files of the release build, except kernels; tests only nightly."""
    entries = json.loads((BUILD / "release/compile_commands.json").read_text())
    commands = {entry["file"]: entry["command"] for entry in entries}
    folders = ("src", "workloads", "bench", *(["tests"] if log.nightly else []))
    mine = tuple(f"{ROOT}/{folder}/" for folder in folders)
    files = sorted(file for file in commands if file.startswith(mine) and file.endswith(".cc"))
    if not log.nightly:
        files = [file for file in files if not file.endswith("_test.cc")]
    # GCC knows warnings by names that Clang does not.
    tool = ["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option", "-p"]
    batches = lint_batches(files, commands)
    clean = in_parallel(log, [[*tool, BUILD / "lint", unit] for unit in batches], shown=False)
    # A batch fails by a finding, or because two of its files use a name for two things. A run of
    # each file alone shows which.
    doubtful = [file for unit, part in batches.items() if unit not in clean for file in part]
    alone = in_parallel(log, [[*tool, BUILD / "release", file] for file in doubtful])
    return one(bool(files) and len(alone) == len(doubtful))


def headers(log: Stage) -> Counts:
    """Compile each public header alone with g++, and all of them with nvcc, in both orders."""
    folder = BUILD / "headers"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compiler = nvcc()
    include = ROOT / "include"
    flags: list[str | Path] = ["-std=c++20", f"-I{include}"]
    strict = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]
    found = sorted(path for path in include.rglob("*") if path.suffix in (".h", ".cuh"))
    names = [str(path.relative_to(include)) for path in found]
    commands: list[list[str | Path]] = []
    for name in names:
        unit = folder / (name.replace("/", "-") + ".cu")
        unit.write_text(f'#include "{name}"\n')
        commands.append(["g++", *flags, *strict, unit])
    # nvcc compiles them together, since its own includes take seconds for each run. It compiles for
    # the oldest architecture.
    for unit, order in ((folder / "all.cu", names), (folder / "reversed.cu", names[::-1])):
        unit.write_text("".join(f'#include "{name}"\n' for name in order))
        commands.append(
            [compiler, *flags, "-arch=compute_75", "-cuda", unit, "-o", unit.with_suffix(".ii")]
        )
    return one(bool(compiler) and len(in_parallel(log, commands)) == len(commands))


def pytest(log: Stage) -> Counts:
    """Run the tests of the Python package and of the command."""
    linked = log.run(["setup/link-python.sh", BUILD / "release", "benchmarks"])
    nightly = {"PENSTOCK_NIGHTLY": "1"} if log.nightly else {}
    succeeded = log.run([python(), "-m", "pytest", "-ra", "--color=no"], **nightly) and linked
    return pytest_counts(log.text(), succeeded)


def pytest_cuda(log: Stage) -> Counts:
    """Run the tests of the Python package that was built with the cuda preset."""
    package = str(BUILD / "cuda/python")
    succeeded = log.run([python(), "-m", "pytest", "-ra", "--color=no"], PYTHONPATH=package)
    return pytest_counts(log.text(), succeeded)


def pytest_counts(text: str, succeeded: bool) -> Counts:
    """Count the cases at the end of pytest's output."""
    found = re.findall(r"(\d+) (passed|failed|error|skipped)", text[-2000:])
    numbers = {word: int(count) for count, word in found}
    failed = numbers.get("failed", 0) + numbers.get("error", 0)
    failed = failed if succeeded else max(failed, 1)
    return Counts(numbers.get("passed", 0), failed, numbers.get("skipped", 0))


def container(log: Stage) -> Counts:
    """Run the tests as in a container with Docker's defaults: no io_uring, little /dev/shm."""
    inside: list[str | Path] = [python(), "tests/container.py"]
    if not log.run([*inside, "true"]):
        log.log.write("skipped: there can be no such container here\n")
        return Counts(0, 0, 1)
    code = "from importlib.util import find_spec; import sys; from penstock.probes import devices; "
    code += "found = [*filter(find_spec, ('torch', 'cupy')), *devices.cuda().devices]; "
    code += "print('GPU, torch, CuPy:', found); sys.exit(bool(found))"
    bare = log.run([*inside, python(), "-c", code])
    command = [*inside, "ctest", "--test-dir", BUILD / "release", "-V", "--no-tests=error"]
    tested = log.run([*command, "-E", PURE_TESTS], GTEST_COLOR="no")
    programs = gtest_counts(log.text(), tested)
    command = [*inside, python(), "-m", "pytest", "-ra", "--color=no", "-p", "no:cacheprovider"]
    tested = log.run(command)
    package = pytest_counts(log.text(), tested)
    return total([programs, package, Counts(0, int(not bare))])


def fuzz_target(source: Path, canary: bool, log: Stage) -> Path | None:
    """Build the fuzz target with its room and `base`; return nothing if that fails."""
    folder = BUILD / "fuzz" / source.stem
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / ("canary" if canary else "fuzz")
    apart = ("_test", "_fuzz", "_bench", "_fake")
    rooms = [ROOT / "src/base", source.parent]
    found = [path for room in rooms for path in sorted(room.rglob("*.cc"))]
    command: list[str | Path] = ["clang++", "-std=c++20", "-O1", "-g", "-Iinclude", "-Isrc"]
    command += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
    command += ["-DPENSTOCK_CANARY"] if canary else []
    command += [source, *(path for path in found if not path.stem.endswith(apart))]
    return program if log.run([*command, "-o", program]) else None


def fuzz_one(source: Path, seconds: int, log: Stage) -> list[bool]:
    """Find the canary of a fuzz target, check that it is the canary, then fuzz without it."""
    canary, program = (fuzz_target(source, planted, log) for planted in (True, False))
    if canary is None or program is None:
        return [False]
    seeds = source.with_name(f"{source.stem}_seeds")
    flags = ["-max_len=4096", "-timeout=20", "-print_final_stats=1"]
    crashes, corpus = program.parent / "canary-found", program.parent / "corpus"
    shutil.rmtree(crashes, ignore_errors=True)
    crashes.mkdir()
    corpus.mkdir(exist_ok=True)  # it is kept, and the next night continues from it
    clean = log.run([canary, "-runs=0", *flags, seeds])
    time_max = f"-max_total_time={CANARY_SECONDS_MAX}"
    log.run([canary, time_max, f"-artifact_prefix={crashes}/", *flags, crashes, seeds])
    found = sorted(crashes.glob("crash-*"))
    only_canary = bool(found) and log.run([program, *flags, *found])
    time_max = f"-max_total_time={seconds}"
    prefix = f"-artifact_prefix={program.parent}/"
    return [
        clean,
        bool(found),
        only_canary,
        log.run([program, time_max, prefix, *flags, corpus, seeds]),
    ]


def fuzz(log: Stage) -> Counts:
    """Run every libFuzzer target src/ROOM/X_fuzz.cc (nightly)."""
    usual = FUZZ_SECONDS if log.nightly else FUZZ_SECONDS_SHORT
    seconds = int(os.environ.get("PENSTOCK_FUZZ_SECONDS", usual))
    targets = sorted((ROOT / "src").rglob("*_fuzz.cc"))
    results = [result for source in targets for result in fuzz_one(source, seconds, log)]
    passed = sum(results)
    return Counts(passed, max(len(results) - passed, 0 if targets else 1))


def has_gpu(log: Stage) -> Counts:
    """Check that there is a CUDA device, without which the rest of --gpu would mean nothing."""
    code = "from penstock.probes import devices; import sys; found = devices.cuda(); "
    code += "print(found); sys.exit(not found.devices)"
    return one(log.run([python(), "-c", code], PYTHONPATH="frontends/python"))


# Tests that run under compute-sanitizer. It makes every launch wait for its kernel, so a test that
# serves or ends a waiting kernel from the launching thread cannot end there. A fault is planted.
SANITIZED = {
    "gpu_test": "-*kernels_that_wait*:*does_not_end*:*dead_workers*:*a_fault*",
    "two_compilers_test": "*",
}


def compute_sanitizer(log: Stage) -> Counts:
    """Run tests that launch kernels under compute-sanitizer's tools."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    found = []
    for check in ("memcheck", "synccheck", "racecheck"):
        for program, wanted in SANITIZED.items():
            command: list[str | Path] = [tool, "--tool", check, "--error-exitcode", "9"]
            command += [BUILD / "cuda" / program, f"--gtest_filter={wanted}"]
            found.append(log.run(command, PENSTOCK_DEVICE="cuda:0"))
    return Counts(found.count(True), found.count(False))


def cuda_figures(log: Stage) -> Counts:
    """Run the benchmarks that have rows for a GPU; their JSON goes to bench/results."""
    out = ROOT / "bench/results"
    out.mkdir(exist_ok=True)
    succeeded = True
    for bench in ("gread", "gwrite", "scan", "pread", "safetensors"):
        command: list[str | Path] = [python(), "-m", "penstock", "bench", bench]
        command += ["--device", "cuda:0", "--json", out / f"{bench}-cuda.json"]
        succeeded = log.run(command, PYTHONPATH=str(BUILD / "cuda/python")) and succeeded
    return one(succeeded)

"""Goal: `penstock preempt` transforms what it accepts, refuses the rest by name, and g++ agrees.

Each file of compiler/tests says in its comments what is expected:
  // RUN: transform [OPTION...]   it is transformed, and g++ compiles the output without a warning
  // RUN: error                   it has errors, and nothing is written
  // CHECK: text                  the output has these texts, in this order
  // CHECK-NOT: text              the output does not have this text
  //    more text                 continues the line above
  code  // ERROR: text            the error of this line has this text; NOTE and WARNING likewise
They run with the compiler of the build tree and, where it is built, with the one of another LLVM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build/release"
CASES = sorted((ROOT / "compiler/tests").glob("*.cu"))
PROGRAMS = sorted(path for path in BUILD.glob("penstock-preempt*") if os.access(path, os.X_OK))
INCLUDES = ["-I", str(ROOT / "include"), "-I", str(ROOT / "include/penstock/language/toolkit")]
SYNTAX = [
    *("g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
    *("-Wno-unused-but-set-variable", "-Wno-unused-variable", "-Wno-sign-compare"),
    *("-x", "c++", "-include", "penstock/language/cuda.h", *INCLUDES),
]

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="penstock-preempt is not built (no Clang)")


def run(program: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *map(str, words)], capture_output=True, text=True, check=False
    )


def directives(text: str, name: str) -> list[str]:
    found = re.findall(rf"^// {name}: (.*(?:\n//   .*)*)$", text, re.MULTILINE)
    return [re.sub(r"\s*\n//\s+", " ", one) for one in found]


def expected_messages(path: Path) -> list[str]:
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := re.search(r"// (ERROR|NOTE|WARNING): (.*)$", line):
            message = rf"{re.escape(str(path))}:{number}:\d+: {match[1].lower()}: "
            found.append(message + ".*" + re.escape(match[2]))
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(program: Path, case: Path, tmp_path: Path) -> None:
    text = case.read_text()
    kind, *options = directives(text, "RUN")[0].split()
    compiled = "without-g++" not in options
    options = [word for word in options if word != "without-g++"]
    output = tmp_path / "out.cu"
    done = run(program, case, "-o", output, *options)
    for message in expected_messages(case):
        assert re.search(message, done.stderr), f"no {message} in\n{done.stderr}"
    if kind == "error":
        errors = re.findall(r":(\d+):\d+: error: ", done.stderr)
        assert done.returncode == 1
        assert len(errors) == text.count("// ERROR: "), done.stderr
        assert list(tmp_path.iterdir()) == []
        return
    assert done.returncode == 0, done.stderr
    written = output.read_text()
    # Line breaks of the output are of no meaning, and neither are the comments above.
    code = re.sub(r"^// (CHECK|RUN|   ).*$", "", written, flags=re.MULTILINE)
    flat = re.sub(r"\s+", " ", code)
    at = flat.index("#line 1 ")
    body = flat.find(" whose blocks may leave at its points.", at)
    for wanted in directives(text, "CHECK"):
        found = flat.find(re.sub(r"\s+", " ", wanted), at)
        assert found >= 0, f"no {wanted} in\n{written}"
        at = found + 1
    for unwanted in directives(text, "CHECK-NOT"):
        assert unwanted not in flat[body:], written
    if compiled:
        told = subprocess.run([*SYNTAX, str(output)], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr + written


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text((ROOT / "compiler/tests/multiply.cu").read_text())
    return path


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "preempt", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_verb(kernel: Path, tmp_path: Path) -> None:
    done = command(kernel, "-o", tmp_path / "out.cu", "--report")
    assert (done.returncode, done.stderr) == (0, "")
    assert "kernel multiply, 1 point, multiply<float>, multiply<double>" in done.stdout
    assert "saved: sum, 8 B for each thread (live)" in done.stdout
    assert "not saved: row (computed again: its initialiser is pure)" in done.stdout


def test_json(kernel: Path) -> None:
    told = json.loads(command(kernel, "--json").stdout)
    assert told["kernels"][0]["points"][0]["thread_bytes"] == 8
    kernel.write_text("int x = ;\n")
    assert "expected expression" in json.loads(command(kernel, "--json").stdout)["error"]


def test_output_that_is_the_input(kernel: Path) -> None:
    before = kernel.read_text()
    link = kernel.with_name("link.cu")
    link.symlink_to(kernel)
    for output in (kernel, link, kernel.parent / "." / kernel.name):
        done = command(kernel, "-o", output)
        assert done.returncode == 2
        assert "is the input" in done.stderr
    assert kernel.read_text() == before


def test_output_that_cannot_be_a_file(kernel: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for output, told in (
        (pipe, "no regular file"),
        (tmp_path, "no regular file"),
        (tmp_path / "none" / "out.cu", "make its folder first"),
        ("-", "name a file"),
    ):
        done = command(kernel, "-o", output)
        assert done.returncode == 1
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
    assert pipe.is_fifo()
    target, link = tmp_path / "target.cu", tmp_path / "link.cu"
    target.write_text("old")
    link.symlink_to(target)
    assert command(kernel, "-o", link).returncode == 0
    assert link.is_symlink()
    assert "__preemptible" in target.read_text()


def test_options_of_nvcc(kernel: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.cu"
    accepted = (
        "-arch=sm_90 -gencode arch=compute_80,code=sm_80 --expt-relaxed-constexpr -O3 -lineinfo "
        "-Xcompiler -Wall,-DX -I . -DY=2 -std=c++20 -maxrregcount=64 -Xptxas -v --threads 0"
    )
    done = command(kernel, "-o", output, *accepted.split())
    assert (done.returncode, done.stderr) == (0, "")
    for refused in ("-ptx", "--no-such-option", "-std=c++14", "-x"):
        done = command(kernel, "-o", output, refused)
        assert done.returncode == 2
        assert refused in done.stderr


def test_usage(tmp_path: Path, kernel: Path) -> None:
    assert command().returncode == 2
    assert command(kernel).returncode == 2  # no output
    missing = command(tmp_path / "none.cu", "-o", tmp_path / "out.cu")
    assert missing.returncode == 1
    assert "none.cu: No such file" in missing.stderr


def test_point_in_an_included_file(kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text(kernel.read_text())
    kernel.write_text('#include "mine.h"\n')
    done = command(kernel, "-o", tmp_path / "out.cu")
    assert done.returncode == 1
    assert re.search(r"mine.h:\d+:\d+: error: a point may not be in an included file", done.stderr)
    assert not (tmp_path / "out.cu").exists()


def test_includes_are_found_from_the_output(kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("inline constexpr int kMine = 3;\n")
    kernel.write_text('#include "mine.h"\n' + kernel.read_text())
    (tmp_path / "build").mkdir()
    output = tmp_path / "build/out.cu"
    assert command(kernel, "-o", output).returncode == 0
    assert '#include "../mine.h"' in output.read_text()

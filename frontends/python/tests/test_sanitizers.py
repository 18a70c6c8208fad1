"""Goal: programs that are compiled with a sanitizer run as alone, and find their errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from caching import Cache, needs_cache
from preloading import LIBRARY, PRELUDE, compiled, same_alone_and_preloaded

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")

# TSan cannot start at some random layouts of memory (CONTRIBUTING.md).
FIXED = ["setarch", "-R"] if shutil.which("setarch") is not None else []

PROGRAM = """
int main(int count, char** words) {
    char b[100], *text = malloc(100);
    int fd = open(words[1], O_RDONLY);
    CHECK(read(fd, text, 100) == 100 && pread(fd, b, 100, 0) == 100 && memcmp(b, text, 100) == 0);
    if (count > 2) {
        execl(words[2], words[2], words[1], (char*)0);
        return 1;
    }
    free(text);
    return getenv("FREED") != 0 ? text[5] : 0;
}
"""
KINDS = {
    "gcc address": ["gcc", "-fsanitize=address"],
    "gcc address linked": ["gcc", "-fsanitize=address", "-static-libasan"],
    "gcc leak": ["gcc", "-fsanitize=leak"],
    "gcc thread": ["gcc", "-fsanitize=thread"],
    "gcc undefined": ["gcc", "-fsanitize=undefined"],
    "clang address": ["clang", "-fsanitize=address"],
    "clang address shared": ["clang", "-fsanitize=address", "-shared-libasan"],
    "clang thread": ["clang", "-fsanitize=thread"],
    "clang undefined": ["clang", "-fsanitize=undefined"],
}


@pytest.fixture(params=KINDS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give a program that is compiled with a sanitizer."""
    compiler, *options = KINDS[request.param]
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    source = tmp_path / "program.c"
    source.write_text(PRELUDE + PROGRAM)
    if "-shared-libasan" in options:
        command = [compiler, "-print-resource-dir"]
        folder = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        options.append(f"-Wl,-rpath,{folder}/lib/linux")
    command = [compiler, "-w", "-g", *options, "-o", str(tmp_path / "program"), str(source)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("its run-time is not here")
    return str(tmp_path / "program")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(200)))
    return path


def test_a_program_runs_as_alone(tmp_path: Path, program: str, data: Path) -> None:
    trace = same_alone_and_preloaded(tmp_path, *FIXED, program, str(data))
    assert trace.of(data) == [("r", 0, 100)] * 2
    starter = compiled(tmp_path, "starter", PROGRAM)
    trace = same_alone_and_preloaded(tmp_path, *FIXED, starter, str(data), program)
    assert trace.of(data) == [("r", 0, 100)] * 4


def test_an_error_is_found_as_alone(program: str, data: Path) -> None:
    command = [*FIXED, program, str(data)]
    environment = {**os.environ, "FREED": "1"}
    told = []
    for before in ([], [sys.executable, "-m", "penstock", "run", "--"]):
        done = subprocess.run(
            [*before, *command], env=environment, capture_output=True, check=False, timeout=60
        )
        told.append((done.returncode != 0, b"use-after-free" in done.stderr))
    assert told[0] == told[1]


@needs_cache
def test_its_files_are_served(cache: Cache, program: str, data: Path) -> None:
    shutil.copy(data, cache.folder / "a")
    cache.serve()
    command = [*FIXED, program, str(cache.folder / "a")]
    for write_back in (False, True):
        done = cache.run(*command, check=False, write_back=write_back)
        assert done.returncode == 0, done
    assert cache.statistics()["bytes_served"] >= 200

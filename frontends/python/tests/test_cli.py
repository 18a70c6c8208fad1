"""The command line: exit codes, one-line errors, closed pipes, Ctrl-C, a quick import."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock import cli

COMMAND = [sys.executable, "-m", "penstock"]


# What some print on standard output is their program's; mounts and caches have tests of their own.
QUIET = ("run", "trace", "preempt", "mount", "umount", "serve", "warm", "drop")
PRINTING = [verb for verb in cli.VERBS if verb not in QUIET]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)


def test_help_names_every_verb() -> None:
    done = run("--help")
    assert done.returncode == 0
    for verb in cli.VERBS:
        assert verb in done.stdout


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_help_with_an_example_and_json(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert f"$ penstock {verb}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("words", [[], ["nonsense"], ["check", "--nonsense"], ["check", "a", "b"]])
def test_usage_errors_are_2(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_error_is_one_line_that_names_the_file() -> None:
    done = run("check", "/no/such/place")
    assert done.returncode == 1
    assert done.stderr == "penstock: /no/such/place: No such file or directory\n"


@pytest.mark.parametrize("verb", ["check", "read", "residency", "scan", "signature"])
def test_a_fifo_is_refused_in_the_same_words(verb: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = [verb, str(fifo), *(["--pattern", "x"] if verb == "scan" else [])]
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"penstock: {fifo}: not a regular file\n"


@pytest.mark.parametrize("verb", ["calibrate", "check", "read", "residency", "scan", "signature"])
def test_with_json_an_error_is_an_object_too(verb: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    done = run(verb, missing, "--json", *(["--pattern", "x"] if verb == "scan" else []))
    assert done.returncode == 1
    told = json.loads(done.stdout)
    (told,) = told.get("files", [told])
    assert told["path"] == missing
    assert "No such file or directory" in told["error"]
    assert done.stderr.startswith(f"penstock: {missing}: ")


def test_an_error_in_json_is_not_mixed_with_the_bytes(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    done = run("read", missing, "--json", "-o", "-")
    assert (done.returncode, done.stdout) == (1, "")
    assert '"error": "No such file or directory"' in done.stderr


@pytest.fixture
def command_lines(tmp_path: Path) -> dict[str, list[str]]:
    """Return words for each verb with which it prints at once."""
    text = tmp_path / "text"
    text.write_bytes(b"line\n" * 100_000)
    trace = tmp_path / "trace"
    trace.write_text("penstock-trace 1\n0 0 r data 0 4096\n")
    return {
        "check": ["check", "--json"],
        "scan": ["scan", str(text), "--pattern", "line"],
        "read": ["read", str(text), "--device", "cpu"],
        "residency": ["residency", str(text)],
        "calibrate": ["calibrate", str(tmp_path), "--seconds", "0.1", "--dry-run", "--force"],
        "signature": ["signature", str(trace), "--json"],
        "bench": ["bench", "--list"],
        "stats": ["stats"],
        "completion": ["completion", "bash"],
    }


@pytest.mark.parametrize("words", [["--help"], ["--version"], *PRINTING])
def test_a_closed_pipe_is_no_failure(
    words: str | list[str], command_lines: dict[str, list[str]]
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    line = command_lines[words] if isinstance(words, str) else words
    done = subprocess.run(
        [*COMMAND, *line], stdout=write_end, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [["--help"], ["check", "--help"], *PRINTING])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line_that_names_it(
    words: str | list[str], unbuffered: str, command_lines: dict[str, list[str]]
) -> None:
    line = command_lines[words] if isinstance(words, str) else words
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *line],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == b"penstock: standard output: No space left on device\n"


def test_the_json_of_a_benchmark_goes_the_same_way(tmp_path: Path) -> None:
    program = tmp_path / "penstock-bench-fake"
    program.write_text("#!/bin/sh\necho '{}'\n")
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*COMMAND, "bench", "fake"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open("/dev/full", "wb") as full, open(write_end, "wb") as gone:
        for output, code, told in (
            (subprocess.PIPE, 0, b""),
            (full, 1, b"penstock: standard output: No space left on device\n"),
            (gone, 0, b""),
        ):
            done = subprocess.run(
                command, env=environment, stdout=output, stderr=subprocess.PIPE, check=False
            )
            assert (done.returncode, done.stderr) == (code, told)
            assert done.stdout in (None, b"{}\n")


def test_a_closed_standard_output_is_told() -> None:
    command = f"{' '.join(COMMAND)} check >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "penstock: standard output: is closed\n")


@pytest.mark.parametrize("words", ["scan - --pattern x", "signature -"])
def test_a_closed_standard_input_is_told(words: str) -> None:
    command = f"{' '.join(COMMAND)} {words} <&-"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "penstock: standard input: is closed\n")


def test_a_file_is_not_read_into_itself(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"bytes")
    link.symlink_to(file)
    for output in (file, link):
        done = run("read", "-o", str(output), str(file))
        assert done.returncode == 1
        told = f"penstock: {output}: is the file that is read; name another for -o\n"
        assert done.stderr == told
        assert file.read_bytes() == b"bytes"


def test_an_empty_name_is_no_file() -> None:
    done = run("read", "")
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_tells_the_exit_codes() -> None:
    told = " ".join(run("--help").stdout.split())
    for code in ("0 done", "1 failed", "2 wrong usage", "130 ended by Ctrl-C"):
        assert code in told


def test_ctrl_c_ends_with_one_line() -> None:
    # The verb sleeps, so that the signal arrives while it runs.
    code = "from penstock import cli; import penstock.commands.check as c, time, sys\n"
    code += "c.run = lambda arguments: time.sleep(60)\n"
    code += "print('ready', flush=True); sys.exit(cli.main(['check']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == "penstock: interrupted\n"


def test_import_takes_less_than_30_ms() -> None:
    code = "import time; t = time.perf_counter(); import penstock; print(time.perf_counter() - t)"
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", code], env=os.environ, text=True))
        for _ in range(20)
    ]
    assert statistics.median(seconds) < 0.030

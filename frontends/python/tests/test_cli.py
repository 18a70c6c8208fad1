"""The command line: exit codes, one-line errors, closed pipes, Ctrl-C, a quick import."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time

import pytest

from penstock import cli

COMMAND = [sys.executable, "-m", "penstock"]


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


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{' '.join(COMMAND)} check --json | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


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

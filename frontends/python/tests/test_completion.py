"""Goal: the shell completes what the verbs take, and the script says nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import cli

COMMAND = [sys.executable, "-m", "penstock"]


def run(*words: str) -> str:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "penstock.bash"
    path.write_text(run("completion", "bash"))
    return path


def completed(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of `words`, the first of which is penstock."""
    listed = " ".join(f"'{word}'" for word in words)
    code = f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _penstock"
    code += '; printf "%s\\n" "${COMPREPLY[@]}"'
    command = f'exec {sys.executable} -m penstock "$@"'
    penstock = script.parent / "penstock"
    penstock.write_text(f"#!/bin/sh\n{command}\n")
    penstock.chmod(0o755)
    environment = os.environ | {"PATH": f"{script.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-uc", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs(script: Path) -> None:
    assert completed(script, "penstock", "") == [*cli.VERBS, "--help", "--version"]
    assert completed(script, "penstock", "s") == ["scan", "serve", "stats", "signature"]


@pytest.mark.parametrize("verb", cli.VERBS)
def test_each_verb_has_its_options(script: Path, verb: str) -> None:
    offered = completed(script, "penstock", verb, "-")
    told = run(verb, "--help").partition("\nexample:")[0]
    assert {"-h", "--help", "--json"} <= set(offered)
    for option in offered:
        assert option in told
    # What --help names as an option is offered.
    named = {word.rstrip(",") for word in told.split() if word.startswith("--")}
    known = {word for word in named if f"  {word}" in told or f", {word}" in told}
    assert known <= set(offered)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["scan", "x", "--pat"], ["--pattern", "--patterns"]),
        (["scan", "--device", ""], ["auto", "cpu", "cuda"]),
        (["scan", "--device", "=", "c"], ["cpu", "cuda"]),
        (["scan", "--device", "="], ["auto", "cpu", "cuda"]),
        (["read", "--route", "d"], ["direct"]),
        (["read", "--cache", ""], ["auto", "keep", "drop", "bypass"]),
        (["signature", "ex"], ["explain"]),
        (["completion", ""], ["bash", "zsh"]),
        # Left to the shell, which offers files.
        (["scan", ""], []),
        (["scan", "--patterns", ""], []),
        (["read", "x"], []),
        (["nonsense", "-"], []),
    ],
)
def test_values(script: Path, words: list[str], offered: list[str]) -> None:
    assert completed(script, "penstock", *words) == offered


def test_names_of_benchmarks(script: Path) -> None:
    assert "safetensors" in completed(script, "penstock", "bench", "")


def test_zsh_takes_the_script(tmp_path: Path) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed")
    path = tmp_path / "penstock.zsh"
    path.write_text(run("completion", "zsh"))
    code = f"autoload -U compinit; compinit -D; source {path}; print -r -- $_comps[penstock]"
    done = subprocess.run([zsh, "-fc", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (
        "_bash_complete -o bashdefault -o default -F _penstock",
        "",
    )


def test_the_table_is_json() -> None:
    table = json.loads(run("completion", "--json"))
    assert list(table) == list(cli.VERBS)
    assert table["read"]["options"]["--route"] == ["auto", "cached", "direct", "peer"]
    assert table["read"]["options"]["--strict"] is None
    assert table["scan"]["options"]["--trace"] == []
    done = subprocess.run([*COMMAND, "completion"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "penstock: completion: of which shell? bash or zsh\n",
    )

"""Goal: what set-up leaves in .venv stands alone: it needs no build tree."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
COMMAND = CHECKOUT / ".venv/bin/penstock"
# Which files of Penstock a process has in memory once everything is loaded.
LOADED = """
import penstock, penstock._core
with open("/proc/self/maps") as maps:
    print(*{line.split()[-1] for line in maps if "penstock" in line.rpartition("/")[2]
            or "/_core" in line}, sep="\\n")
print(penstock.__file__)
"""


def run(*command: str | Path) -> str:
    """Run a command that sees no build tree, and return what it prints."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not COMMAND.exists(), reason="setup/link-python.sh has not run")
def test_the_command_in_venv_needs_no_build_tree() -> None:
    interpreter = CHECKOUT / ".venv/bin/python"
    loaded = run(interpreter, "-c", LOADED).split()
    names = {Path(place).name.partition(".")[0] for place in loaded}
    assert names >= {"_core", "libpenstock", "libpenstock_scan", "__init__"}
    assert all(place.startswith(f"{CHECKOUT}/.venv/") for place in loaded), loaded
    assert run(COMMAND, "--version").startswith("penstock ")
    assert run(COMMAND, "scan", CHECKOUT / "LICENSE", "--pattern", "Derivative Works", "--count")


@pytest.mark.skipif(not COMMAND.exists(), reason="setup/link-python.sh has not run")
def test_an_edited_source_is_seen_at_once() -> None:
    package = CHECKOUT / ".venv/package/penstock"
    for source in (CHECKOUT / "frontends/python/penstock").glob("*.py"):
        assert (package / source.name).resolve() == source


def test_the_build_tells_which_packages_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(str(CHECKOUT / "setup"))
    backend = importlib.import_module("build_backend")
    assert backend.missing_packages() == []
    # A compiler that finds neither headers nor libraries: it prints a name as it was given.
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\necho "${1#*=}"\ncase $1 in -print*) ;; *) exit 1 ;; esac\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    libraries = "liburing-dev libboost-context-dev"
    with pytest.raises(SystemExit, match=f"missing {libraries}; run: apt-get install {libraries}$"):
        backend.get_requires_for_build_wheel()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert backend.missing_packages() == ["g++", *libraries.split()]

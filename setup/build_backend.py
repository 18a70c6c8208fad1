"""The build backend of pyproject.toml: scikit-build-core, after a check of what the system lacks.

Without the check, a missing package shows up as an error within the output of CMake. Each need is
tested as the build tests it, with the compiler that $CXX names, so that a library from another
place counts too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def missing_packages() -> list[str]:
    """Return the Debian packages that bring what the build does not find."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        # Without a compiler nothing can be tried: all are named.
        return ["g++", "liburing-dev", "libboost-context-dev", *_missing_headers_of_python()]

    def compiles(header: str) -> bool:
        command = [*compiler, "-x", "c++", "-E", "-o", os.devnull, "-"]
        text = f"#include <{header}>\n"
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        return done.returncode == 0

    def is_linked_from(library: str) -> bool:
        command = [*compiler, f"-print-file-name={library}"]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        return Path(done.stdout.strip()).is_absolute()

    missing = [] if compiles("liburing.h") else ["liburing-dev"]
    missing += [] if is_linked_from("libboost_context.a") else ["libboost-context-dev"]
    return missing + _missing_headers_of_python()


def _missing_headers_of_python() -> list[str]:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return [] if header.exists() else ["python3-dev"]


def _end_where_packages_are_missing() -> None:
    if missing := " ".join(missing_packages()):
        raise SystemExit(f"penstock: missing {missing}; run: apt-get install {missing}")


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Say what the build wants from PyPI, or end it with the line that tells what is missing."""
    _end_where_packages_are_missing()
    return list(_build.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """The same for `pip install -e`."""
    _end_where_packages_are_missing()
    return list(_build.get_requires_for_build_editable(config_settings))

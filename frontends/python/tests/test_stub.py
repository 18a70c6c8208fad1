"""Goal: _core.pyi names what the built _core has: functions, classes, members, their parameters.

Types are not compared: nanobind knows most of them as objects only. And what does not fit a
function is told in one line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import _core

STUB = ast.parse(Path(penstock.__file__).with_name("_core.pyi").read_text())
# By place, and by name only: their names, and whether they have a default.
Parameters = tuple[list[tuple[str, bool]], list[tuple[str, bool]]]


def parameters(function: ast.FunctionDef) -> Parameters:
    """Return the parameters of a function."""
    given = function.args
    places = [*given.posonlyargs, *given.args]
    without = len(places) - len(given.defaults)
    return (
        [(one.arg, i >= without) for i, one in enumerate(places)],
        [
            (one.arg, default is not None)
            for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ],
    )


def built(function: Any) -> list[Parameters]:
    """Return the parameters of each overload of a function of nanobind."""
    found = []
    for text, *_ in function.__nb_signature__:
        # Defaults are numbered; of results some are no types.
        parsed = ast.parse(text.replace("\\", "_").rpartition(" -> ")[0] + ": ...").body[0]
        assert isinstance(parsed, ast.FunctionDef)
        found.append(parameters(parsed))
    return found


def members(nodes: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def is_property(function: ast.FunctionDef) -> bool:
    return bool(function.decorator_list)


CLASSES = {
    node.name: node
    for node in STUB.body
    if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.dump(b) for b in node.bases)
}


def test_names_are_those_of_the_module() -> None:
    public = {name for name in vars(_core) if not name.startswith("_")}
    assert members(STUB.body).keys() | CLASSES.keys() == public


@pytest.mark.parametrize("name", [*members(STUB.body)])
def test_parameters_of_functions(name: str) -> None:
    told = parameters(members(STUB.body)[name])
    assert all(told == one for one in built(getattr(_core, name)))


LOOSE: Any = penstock  # what mypy would refuse is what is tried
MEMORY, BUFFER = LOOSE.empty, bytearray(8)


@pytest.fixture
def file(tmp_path: Path) -> penstock.File:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 8)
    return penstock.open(path)


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda _: MEMORY(-1), ValueError, "empty(): size is negative: -1"),
        (lambda _: MEMORY(1 << 64), ValueError, f"empty(): size is too large: {1 << 64}"),
        (lambda _: MEMORY("8"), TypeError, "empty(): size is of type int, not str"),
        (lambda _: MEMORY(), TypeError, "empty() missing a required argument: 'size'"),
        (lambda _: MEMORY(1, 2), TypeError, "device is a str, not int"),
        (lambda _: MEMORY(1, "cpu", 3), TypeError, "empty() too many positional arguments"),
        (lambda _: MEMORY(1, "cpu")["x"], TypeError, "a part of device memory is a slice, not str"),
        (
            lambda _: MEMORY(siz=8),
            TypeError,
            "empty() got an unexpected keyword argument 'siz'; it takes size, device",
        ),
        (
            lambda file: file.pread(BUFFER, offset=4),
            TypeError,
            "pread() got an unexpected keyword argument 'offset'; it takes buf, size, file_offset,"
            " task_size, cache, route, strict, stream",
        ),
        (lambda file: file.readv(), TypeError, "readv() missing a required argument: 'pieces'"),
        (lambda file: file.read(BUFFER, cache=5), TypeError, "cache is a str, not int"),
        (lambda file: file.read(BUFFER, strict="x"), TypeError, "strict is a bool, not str"),
        (lambda file: file.fsync("x"), TypeError, "fsync(): data_only is of type bool, not str"),
        (
            lambda file: file.pread(BUFFER).result(seconds=1),
            TypeError,
            "result() got an unexpected keyword argument 'seconds'; it takes timeout",
        ),
        (
            lambda _: LOOSE.wait([5]),
            TypeError,
            "each of the futures is a penstock.Future, not int",
        ),
        (lambda _: LOOSE.open("x", 5), TypeError, "open(): mode is of type str, not int"),
        (lambda _: LOOSE.open(None), TypeError, "open(): file must not be None"),
        (lambda _: LOOSE.open("x", threads="x"), TypeError, "threads is an int, not str"),
        (
            lambda _: LOOSE.open("x", throttle_latency_us="x"),
            TypeError,
            "open(): throttle_latency_us is of type float, not str",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_told_in_one_line(
    call: Callable[[Any], object], kind: type[Exception], told: str, file: penstock.File
) -> None:
    with pytest.raises(kind) as error:
        call(file)
    assert str(error.value) == told
    assert type(error.value) is kind


def test_functions_tell_what_they_are(file: penstock.File) -> None:
    assert penstock.File.pread.__name__ == "pread"
    assert (penstock.File.pread.__doc__ or "").startswith("pread(self, buf:")
    assert "size: int" in (penstock.empty.__doc__ or "")
    assert file.pread(BUFFER).result() == penstock.File.pread(file, BUFFER).result() == 8


@pytest.mark.parametrize("name", [*CLASSES])
def test_members_of_classes(name: str) -> None:
    there = getattr(_core, name)
    told = members(CLASSES[name].body)
    public = {member for member in vars(there) if not member.startswith("_")}
    assert {member for member in told if not member.startswith("_")} == public
    for member, function in told.items():
        if member == "__buffer__":
            continue  # before Python 3.12 the buffer protocol is not seen
        assert hasattr(there, member)
        assert is_property(function) == isinstance(vars(there).get(member), property), member
        if member == "__init__" or not (is_property(function) or member.startswith("__")):
            assert built(getattr(there, member)) == [parameters(function)], member

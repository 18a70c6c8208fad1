"""Goal: _core.pyi names what the built _core has: functions, classes, members, their parameters.

Types are not compared: nanobind knows most of them as objects only.
"""

from __future__ import annotations

import ast
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

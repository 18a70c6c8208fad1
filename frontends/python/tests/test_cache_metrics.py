"""Goal: Prometheus can read what `penstock stats --format prometheus` prints."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import Cache, making, needs_cache, write

from penstock.metrics import text_of

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parsed(text: str) -> tuple[dict[str, str], dict[tuple[str, str], float]]:
    """Return the type of each metric, and the value for each metric and path.

    This follows the exposition format 0.0.4: a metric has its HELP, its TYPE and then its samples,
    and all lines of one metric stand together.
    """
    kinds: dict[str, str] = {}
    values: dict[tuple[str, str], float] = {}
    helped = current = ""
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if told := re.fullmatch(rf"# HELP ({NAME}) (.*)", line):
            helped = told[1]
            assert helped not in kinds
        elif told := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            current = told[1]
            assert current == helped
            kinds[current] = told[2]
            assert (told[2] == "counter") == current.endswith("_total")
        else:
            sample = re.fullmatch(rf'({NAME})\{{path="((?:[^"\\\n]|\\[\\n"])*)"\}} (\S+)', line)
            assert sample, line
            assert sample[1] == current
            path = re.sub(r"\\.", lambda found: ESCAPES[found[0]], sample[2])
            assert (current, path) not in values
            values[current, path] = float(sample[3])
    return kinds, values


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with making(tmp_path, "cpu") as made:
        yield made


@needs_cache
def test_the_metrics_of_running_caches(cache: Cache) -> None:
    data = write(cache.folder / "a", 1_000_000)
    folder = cache.folder.parent / 'odd "name"\\'
    folder.mkdir()
    other = Cache(folder, Path(cache.environment["XDG_RUNTIME_DIR"]))
    process = cache.serve()
    cache.processes.append(other.serve())
    cache.command("warm", cache.folder)
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    done = cache.command("stats", "--format", "prometheus")
    kinds, values = parsed(done.stdout)
    told = cache.statistics()
    path = str(cache.folder)
    for short, kind, key in (
        ("hits_total", "counter", "hits"),
        ("read_bytes_total", "counter", "bytes_read"),
        ("size_bytes", "gauge", "size"),
        ("failing_files", "gauge", "failing_count"),
        ("clean_bytes", "gauge", "clean_size"),
    ):
        name = f"penstock_cache_{short}"
        assert (kinds[name], values[name, path]) == (kind, told[key])
        assert (name, str(folder)) in values
    assert values["penstock_cache_clean_bytes", path] >= 1_000_000
    assert values["penstock_cache_up", path] == values["penstock_cache_up", str(folder)] == 1
    one = parsed(cache.command("stats", folder, "--format=prometheus").stdout)[1]
    assert {path for _, path in one} == {str(folder)}
    os.kill(process, signal.SIGSTOP)
    try:
        done = cache.command("stats", "--format", "prometheus", check=False)
    finally:
        os.kill(process, signal.SIGCONT)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    values = parsed(done.stdout)[1]
    assert values["penstock_cache_up", path] == 0
    assert values["penstock_cache_up", str(folder)] == 1
    assert ("penstock_cache_size_bytes", path) not in values


@needs_cache
def test_without_a_cache_there_are_no_samples(cache: Cache) -> None:
    kinds, values = parsed(cache.command("stats", "--format", "prometheus").stdout)
    assert ("penstock_cache_up" in kinds, values) == (True, {})
    assert cache.command("stats", "--json", "--format=prometheus", check=False).returncode == 2


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a\nb", "/a\\nb"),  # as a terminal shows it
        ('/"', '/"'),
        ("/\\n", "/\\n"),
        ("/\udcff", "/\\xff"),
        ("/é€", "/é€"),
    ],
)
def test_any_path_is_one_label(path: str, shown: str) -> None:
    told = {"path": path, "hits": 12, "size": 1 << 40, "tier": "", "tier_error": ""}
    text = text_of([told], [])
    text.encode()  # it is UTF-8
    values = parsed(text)[1]
    assert values["penstock_cache_hits_total", shown] == 12
    assert values["penstock_cache_size_bytes", shown] == 1 << 40
    assert len({path for _, path in values}) == 1


def test_what_goes_wrong_is_seen() -> None:
    told = {"path": "/a", "tier": "/b", "tier_error": "Input/output error"}
    values = parsed(text_of([{**told, "dirty_age_ms": 61_500, "failing_count": 2}], []))[1]
    assert values["penstock_cache_tier_failed", "/a"] == 1
    assert values["penstock_cache_dirty_age_seconds", "/a"] == 61.5
    assert values["penstock_cache_failing_files", "/a"] == 2

"""Goal: rivals in processes of their own are measured, checked, bounded, and left out with reason.

On memory of the host, which stands for a device's, with rivals that are made for this.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from penstock.benchmarks.cuda import pread, safetensors
from penstock.benchmarks.cuda.contest.contest import Cast, Contest, Rival, cold, hot
from penstock.benchmarks.cuda.contest.loaders import Placed
from penstock.benchmarks.cuda.contest.process import Limits
from penstock.benchmarks.cuda.contest.worker import covers
from penstock.benchmarks.harness import page_cache
from penstock.benchmarks.harness.model_file import ModelFile, folder, shapes_of, write
from penstock.benchmarks.harness.report import Report
from penstock.commands.bench import find_programs
from penstock.errors import CommandError
from penstock.probes import system

LIMITS = Limits(start=60, open=30, read=30)
READ_SECONDS_MAX = 4  # where something hangs
TRIAL_READS = 4  # of the only setting of a rival: one to warm up, and three
OURS = Rival("penstock", "penstock.benchmarks.cuda.contest.loaders:Penstock")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    return write(tmp_path / "model", {"a": (100_000,), "b": (3,), "c": (77, 5)}, "U8", 1)


def fresh_report() -> Report:
    arguments = Namespace(pairs=1, smoke=True, only="", device="cpu", json=None, full=False)
    return Report("pread", "?", arguments)


@pytest.fixture
def report() -> Report:
    return fresh_report()


def fake(name: str, *settings: dict[str, Any], kind: str = "Fake") -> Rival:
    return Rival(name, f"fake_rivals:{kind}", settings or ({},))


@pytest.fixture
def contest_of(model: ModelFile, report: Report) -> Iterator[Any]:
    made: list[Contest] = []

    def make(*rivals: Rival, limits: Limits = LIMITS) -> Contest:
        made.append(Contest(Cast(OURS, rivals), model.path, "cpu", report, limits))
        return made[0]

    yield make
    for contest in made:
        contest.__exit__(None, None, None)


def test_fastest_setting_of_all_is_judged(contest_of: Any, report: Report) -> None:
    slow, fast = {"slow_s": 0.2}, {"slow_s": 0.05}
    contest = contest_of(fake("slow", {"slow_s": 0.1}), fake("quick", slow, fast))
    ranked = contest.trial("hot", hot)
    assert [str(entry) for entry in ranked] == [
        "quick (slow_s 0.05)",
        "slow (slow_s 0.1)",
        "quick (slow_s 0.2)",
    ]
    judged = contest.judge(3, hot, ranked)
    assert judged.entry is ranked[0]
    assert judged.verified
    assert len(judged.pairs) == 3
    assert all(theirs >= 0.05 for _, theirs in judged.pairs)
    assert judged.cpu_seconds > 0
    assert report.environment["rival quick"] == "1.2"
    assert "slow (slow_s 0.1) 1" in report.environment["trial hot"]
    assert "rivals left out" not in report.environment


def test_rivals_that_cannot_be_loaded_are_told(contest_of: Any, report: Report) -> None:
    contest = contest_of(
        fake("missing", kind="Missing"), fake("dead", kind="DiesLoading"), fake("there")
    )
    told = report.environment
    assert told["rival missing"] == "left out: ModuleNotFoundError: No module named 'nowhere'"
    assert told["rival dead"].startswith("left out: ended by signal 6")
    assert "missing: ModuleNotFoundError" in told["rivals left out"]
    assert "dead: ended" in told["rivals left out"]
    assert [entry.rival.name for entry in contest.trial("hot", hot)] == ["there"]


def test_rival_that_never_loads_is_bounded(model: ModelFile, report: Report) -> None:
    start = monotonic()
    rivals = [fake("endless", kind="NeverLoads")]
    limits = LIMITS._replace(start=5)
    with Contest(Cast(OURS, rivals), model.path, "cpu", report, limits) as contest:
        assert report.environment["rival endless"] == "left out: no answer within 5 s"
        assert contest.judge(1, hot, contest.trial("hot", hot)) is None
    assert monotonic() - start < 60


@pytest.mark.parametrize("setting", [{"wrong": 1}, {"leaves_out_a_byte": True}])
def test_rival_with_wrong_bytes_is_left_out(
    setting: dict[str, Any], contest_of: Any, report: Report
) -> None:
    contest = contest_of(fake("wrong", setting), fake("right"))
    assert [entry.rival.name for entry in contest.trial("hot", hot)] == ["right"]
    assert report.environment["rival wrong"].startswith("left out: it brought wrong bytes")


def test_wrong_bytes_in_a_judged_run_spoil_the_row(contest_of: Any) -> None:
    contest = contest_of(fake("wrong", {"wrong": TRIAL_READS + 3}))
    judged = contest.judge(3, hot, contest.trial("hot", hot))
    assert len(judged.pairs) == 3
    assert not judged.verified


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("dies", "ended with exit code 3: out of luck"),
        ("raises", "RuntimeError: it is Friday"),
        ("hangs", "no answer within 4 s"),
    ],
)
def test_rival_that_fails_in_mid_run_gives_place_to_the_next(
    how: str, cause: str, contest_of: Any, report: Report
) -> None:
    limits = LIMITS._replace(read=READ_SECONDS_MAX) if how == "hangs" else LIMITS
    rivals = [fake("fails", {how: TRIAL_READS + 3}), fake("next", {"slow_s": 0.2})]
    contest = contest_of(*rivals, limits=limits)
    ranked = contest.trial("hot", hot)
    assert ranked[0].rival.name == "fails"
    judged = contest.judge(3, hot, ranked)
    assert judged.entry.rival.name == "next"
    assert judged.verified
    assert len(judged.pairs) == 3
    assert report.environment["rival fails"] == f"left out: {cause}"


@pytest.mark.parametrize("how", ["dies", "raises", "hangs", "no_such_setting"])
def test_setting_that_fails_is_left_out_alone(how: str, contest_of: Any, report: Report) -> None:
    limits = LIMITS._replace(read=READ_SECONDS_MAX) if how == "hangs" else LIMITS
    contest = contest_of(fake("two", {how: 1}, {"slow_s": 0.01}), limits=limits)
    assert [str(entry) for entry in contest.trial("hot", hot)] == ["two (slow_s 0.01)"]
    assert f"setting left out: two ({how} 1)" in report.environment
    assert report.environment["rival two"] == "1.2"
    assert [str(entry) for entry in contest.trial("again", hot)] == ["two (slow_s 0.01)"]


def test_rival_whose_settings_all_fail_is_left_out(contest_of: Any, report: Report) -> None:
    contest = contest_of(fake("none", *({"dies": 1, "slow_s": i / 100} for i in range(5))))
    assert contest.trial("hot", hot) == []
    assert report.environment["rival none"].startswith("left out: ended with exit code 3")


def test_own_failure_is_an_error(model: ModelFile, report: Report) -> None:
    for ours in (fake("penstock", kind="Missing"), fake("penstock", kind="DiesLoading")):
        with pytest.raises(CommandError, match="penstock"):
            Contest(Cast(ours, []), model.path, "cpu", report, LIMITS)


def test_state_that_is_not_reached_is_not_verified(contest_of: Any) -> None:
    contest = contest_of(fake("right"))
    ranked = contest.trial("hot", hot)
    assert not contest.judge(1, lambda path: False, ranked).verified


def test_rival_that_keeps_the_file_mapped_does_not_keep_it_from_being_cold(
    report: Report,
) -> None:
    with folder("/var/tmp") as place:
        model = write(place / "model", {"a": (1 << 20,)}, "U8", 1)
        if not page_cache.evict(model.path):
            pytest.skip("this file system keeps files in memory")
        cast = Cast(OURS, [fake("maps", {"maps": True}, {"slow_s": 0.2}), fake("not")])
        with Contest(cast, model.path, "cpu", report, LIMITS) as contest:
            assert len(contest.trial("hot", hot)) == 3
            ranked = contest.trial("cold", cold)
            assert [str(entry) for entry in ranked] == ["not (defaults)", "maps (slow_s 0.2)"]
            assert "only run on cached files: maps (maps True)" in report.environment
            judged = contest.judge(2, cold, ranked)
            assert judged is not None
            assert judged.verified


def test_coverage_knows_gaps() -> None:
    chance = random.Random(5)
    for _ in range(300):
        pieces = [Placed(chance.randrange(20), chance.randrange(8), 0) for _ in range(6)]
        held = {at for piece in pieces for at in range(piece.offset, piece.offset + piece.size)}
        begin = chance.randrange(10)
        end = begin + chance.randrange(12)
        assert covers(pieces, begin, end) == (set(range(begin, end)) <= held), pieces


def test_file_holds_what_was_written(tmp_path: Path) -> None:
    for page in (0, 4096):
        model = write(tmp_path / "file", shapes_of(6 << 20), "F16", 2, page=page)
        data = model.path.read_bytes()
        assert len(data) == model.file_size
        assert model.data_offset % 4096 == 0 if page else model.data_offset % 64
        chance = random.Random(6)
        for _ in range(100):
            offset = chance.randrange(len(data))
            part = bytearray(data[offset : offset + chance.randrange(1, 100_000)])
            held = (ctypes.c_char * len(part)).from_buffer(part)
            assert model.holds(offset, len(part), ctypes.addressof(held))
            part[chance.randrange(len(part))] ^= 1
            assert not model.holds(offset, len(part), ctypes.addressof(held))


def test_chosen_runs_are_cached_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("/var/tmp") / f"penstock-test-{os.getpid()}"
    try:
        path.write_bytes(random.Random(1).randbytes(10_000_000))
        if not page_cache.evict(path):
            pytest.skip("this file system keeps files in memory")
        for runs in (set(), {0}, {1, 5, 38}, {37}, set(range(39))):
            assert page_cache.hold(path, 1 << 18, runs)
            assert page_cache.cached_map(path)[64 * 5] == (5 in runs)
        monkeypatch.setattr(page_cache, "evict", lambda path: True)
        assert not page_cache.hold(path, 1 << 18, {1}), "all of it is still cached"
    finally:
        path.unlink()


def rows_of(report: Report) -> dict[tuple[str, str], Any]:
    return {(row.case, row.against): row for row in report._rows}


def arguments(only: str = "") -> Namespace:
    return Namespace(pairs=2, smoke=True, only=only, device="cpu", json=None, full=True)


def test_rows_of_pread(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    pread.measure_all(arguments(), report)
    rows = rows_of(report)
    wanted = [
        ("hot-defaults", "pinned-h2d"),
        ("hot-defaults", "best-rival"),
        ("hot-8g", "pinned-h2d"),
        ("hot-8g", "best-rival"),
        ("cold", "best-rival"),
    ]
    mixed = ("mixed-25", "mixed-50", "mixed-75", "mixed")
    wanted += [(name, against) for name in mixed for against in ("best-rival", "missing-part-cold")]
    told = "fio-best-huge-pages"
    wanted += [] if told in report.environment else [("cold", told)]
    assert sorted(rows) == sorted(wanted)
    hot_rows = [row for (case, _), row in rows.items() if case.startswith("hot")]
    assert all(row.verified and len(row.pairs) == 2 for row in hot_rows)
    for against in ("best-rival", "missing-part-cold"):
        for i in range(2):
            product = 1.0
            for share in pread.SHARES:
                product *= rows[f"mixed-{share}", against].pairs[i][0]
            assert rows["mixed", against].pairs[i][0] == pytest.approx(product ** (1 / 3))
    for name in ("kvikio", "flashpack", "instanttensor"):
        assert report.environment[f"rival {name}"]


def test_long_file_needs_room(
    monkeypatch: pytest.MonkeyPatch, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    size = pread.LONG_SMOKE_SIZE
    enough = pread.LONG_MEMORY * size
    for disk, memory, told in [
        (2 * size - 1, system.Memory(enough, enough, None), "are free in /var/tmp"),
        (2 * size, system.Memory(enough, enough - 1, None), "of memory are to be had"),
        (2 * size, system.Memory(2 * enough, enough, enough - 1), "of memory are to be had"),
    ]:
        usage = Namespace(free=disk)
        monkeypatch.setattr(shutil, "disk_usage", lambda place, usage=usage: usage)
        monkeypatch.setattr(system, "memory", lambda memory=memory: memory)
        pread.measure_long(arguments(), report, [])
        assert rows_of(report) == {}
        assert told in report.environment["hot-8g"]
        assert told in capsys.readouterr().err


def test_long_file_that_does_not_fit_the_device_costs_no_other_row(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.setattr(pread, "OURS", fake("penstock", kind="Missing"))
    pread.measure_long(arguments(), report, [])
    assert rows_of(report) == {}
    assert report.environment["hot-8g"].startswith("left out: penstock")


def test_rows_of_safetensors(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    others = [fake("there"), fake("missing", kind="Missing")]
    monkeypatch.setattr(safetensors, "rivals", lambda smoke: others)
    safetensors.measure_all(arguments(), report)
    rows = rows_of(report)
    assert sorted(rows) == [("cold", "best-rival"), ("hot", "best-rival")]
    assert rows["hot", "best-rival"].verified
    assert "missing" in report.environment["rivals left out"]


@pytest.mark.parametrize("bench", ["pread", "safetensors"])
def test_machine_without_a_gpu_says_so(bench: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "bench", bench, "--device", "cuda:93", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("penstock-bench: cu")
    assert list(tmp_path.iterdir()) == []


def test_cuda_devices_have_benchmarks_of_their_own() -> None:
    for name, module in (("pread", pread), ("safetensors", safetensors)):
        command = [sys.executable, "-m", module.__name__]
        assert find_programs("cuda:0")[name] == command
        assert find_programs().get(name) != command
    assert "contest" not in find_programs("cuda:0")

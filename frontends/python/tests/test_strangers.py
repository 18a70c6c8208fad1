"""Goal: the runner of other people's suites counts what differs, and names what hangs.

The suites themselves are run by hand (tests/strangers); here a made-up suite stands for them.
"""

import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from caching import needs_cache
from mounting import needs_mounts

sys.path.append(str(Path(__file__).parents[3] / "tests"))
from strangers import differences as compared
from strangers import processes, runner, suite

command = importlib.import_module("strangers.__main__")


def shell(name: str, script: str, **how: object) -> suite.Case:
    return suite.Case(name, ["sh", "-c", script], seconds_max=5, **how)  # type: ignore[arg-type]


def rows_of(
    cases: Sequence[suite.Case],
    work: Path,
    ways: Sequence[str] = ("run",),
    expected: Sequence[compared.Expected] = (),
) -> list[compared.Row]:
    made_up = suite.Suite("made-up", lambda _copies: cases, ways=ways)
    return runner.SuiteRun(made_up, work, work / "work", expected, print).run(ways)


def is_running(process: str) -> bool:
    """Return whether a process runs: one that has ended may wait for its parent."""
    try:
        status = Path("/proc", process, "status").read_text()
    except FileNotFoundError:
        return False
    return "State:\tZ" not in status


UNDER_US = 'case "$LD_PRELOAD" in *penstock*) true;; *) false;; esac'


def test_counts_what_differs_between_alone_and_preloaded(tmp_path: Path) -> None:
    last = f"{UNDER_US} && echo not ok 3 || echo ok 3"
    plan = f"echo 1..3; echo ok 1; echo ok 2 '# SKIP no disk'; {last}"
    cases = [
        shell("same", "true"),
        shell("never", "false"),
        shell("worse", f"! {{ {UNDER_US}; }}"),
        shell("better", UNDER_US),
        shell("plan", plan, read=suite.tap),
    ]
    known = [compared.Expected("made-up", "run", "better", "it asks for it")]
    (row,) = rows_of(cases, tmp_path, expected=known)
    assert row.alone == {"passed": 4, "failed": 2, "skipped": 1}
    assert row.under == {"passed": 3, "failed": 3, "skipped": 1}
    assert [(one.test, one.alone, one.under) for one in row.differences] == [
        ("worse", "passed", "failed"),
        ("better", "failed", "passed"),
        ("plan:3", "passed", "failed"),
    ]
    assert [one.reason for one in row.differences] == ["", "it asks for it", ""]
    assert row.unexpected == 2
    assert "| made-up | run | 5 | 4 / 3 | 2 / 3 | 1 / 1 | 0 / 0 | 3 | 2 |" in compared.table([row])
    json.dumps(row.as_json())


def test_names_a_hang_and_kills_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SLOWER", 0.4)  # 2 seconds under us
    daemon = "(setsid sh -c 'echo $$ > process; sleep 300' &) ; while ! [ -s process ]; do :; done"
    keep = f"cp process {tmp_path}/process"
    hangs = shell("hangs", f"{daemon}; {keep}; if {UNDER_US}; then sleep 300; fi")
    begun = time.monotonic()
    (row,) = rows_of([hangs], tmp_path)
    assert time.monotonic() - begun < 60
    assert [(one.alone, one.under) for one in row.differences] == [("passed", "hung")]
    assert row.under == {"hung": 1}
    assert not is_running((tmp_path / "process").read_text().strip())


def test_a_difference_that_does_not_come_again_is_none(tmp_path: Path) -> None:
    once = shell("once", f"[ -e {tmp_path}/seen ] && exit 0; touch {tmp_path}/seen; exit 1")
    (row,) = rows_of([once], tmp_path)
    assert not row.differences


def test_a_run_that_is_cut_says_so(tmp_path: Path) -> None:
    made_up = suite.Suite("made-up", lambda _copies: [shell("one", "true")] * 3, ways=("run",))
    run = runner.SuiteRun(made_up, tmp_path, tmp_path / "work", (), print)
    run.seconds_max = 0
    (row,) = run.run(["run"])
    assert (row.programs, row.programs_known) == (0, 3)
    assert "| made-up | run | 0 of 3 |" in compared.table([row])


def test_a_skipped_case_differs_once() -> None:
    outcomes = {"1": "passed", "2": "passed"}
    assert compared.compare(outcomes, {"all": "skipped"}) == {"": ("passed", "skipped")}
    assert compared.compare(outcomes, {"": "hung"}) == {"": ("passed", "hung")}
    assert not compared.compare({"all": "skipped"}, {"all": "skipped"})


def test_a_test_that_did_not_come_is_absent() -> None:
    done = suite.Finished(0, "1..3\nok 1\nok 2\n", Path())
    assert suite.tap(done) == {"1": "passed", "2": "passed", "3": "absent"}
    assert suite.tap(suite.Finished(1, "", Path())) == {"end": "failed"}


@needs_cache
def test_runs_in_a_cache_and_by_write_back(tmp_path: Path) -> None:
    copied = shell("copied", "echo text > a; cp a b; cmp a b")
    rows = rows_of([copied], tmp_path, ways=("cache", "write-back", "trace"))
    assert [(row.way, dict(row.under), row.broken) for row in rows] == [
        (way, {"passed": 1}, "") for way in ("cache", "write-back", "trace")
    ]


@needs_cache
@needs_mounts
def test_runs_in_a_mount(tmp_path: Path) -> None:
    mounted = shell("mounted", "[ $(stat -f -c %T .) = fuseblk ] || [ $(stat -f -c %T .) = fuse ]")
    (row,) = rows_of([mounted], tmp_path, ways=("mount",))
    assert [(one.alone, one.under) for one in row.differences] == [("failed", "passed")]
    assert not row.broken


def test_expected_differences_have_reasons(tmp_path: Path) -> None:
    path = tmp_path / "expected.txt"
    path.write_text("# a comment\nfsx * no-*,odd: it is\n  so\n")
    (line,) = compared.read_expected(path)
    assert line.reason == "it is so"
    assert line.covers("fsx", "mount", "no-mappings-1")
    assert line.covers("fsx", "mount", "odd")
    assert not line.covers("fsx", "mount", "plain-1")
    (line,) = [compared.Expected("fsx", "*", "*(no disk*", "it wants one")]
    assert line.covers("fsx", "mount", "plain-1", "skipped (no disk here)")
    assert not line.covers("fsx", "mount", "plain-1", "failed")
    path.write_text("fsx mount plain-1:\n")
    with pytest.raises(ValueError, match="not SUITE WAY TEST: REASON"):
        compared.read_expected(path)
    compared.read_expected(compared.EXPECTED)


def test_leaves_out_suites_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_STRANGERS", str(tmp_path))
    assert command.main(["--only", "fsx"]) == 0
    assert "fsx: left out, there is no" in capsys.readouterr().err
    monkeypatch.delenv("PENSTOCK_STRANGERS")
    assert command.main([]) == 2


def test_processes_end_with_the_case(tmp_path: Path) -> None:
    result = processes.run(
        ["sh", "-c", "sleep 300 & echo out"], tmp_path, 10, {"PATH": "/bin:/usr/bin"}
    )
    assert (result.code, result.hung, result.output, result.left) == (0, False, "out\n", 1)

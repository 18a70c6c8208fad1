"""Goal: the commands of a file cache end, and tell what to do, whatever became of its process."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import PENSTOCK, Cache, making, needs_cache
from mounting import SECONDS_MAX, mounted, needs_mounts, penstock, serving

from penstock import cache_places
from penstock.errors import CommandError

pytestmark = needs_cache


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with making(tmp_path, "cpu") as made:
        yield made


# Writes a file, and says what it reads of it before and after a line of input.
OUTLIVES = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(file, b"written" * 1000)
print(len(os.pread(file, 10_000, 0)), flush=True)
sys.stdin.readline()
print(len(os.pread(file, 10_000, 0)), flush=True)
"""


def test_a_cache_of_its_own_ends_when_the_command_is_killed(cache: Cache) -> None:
    words = ["run", "--cache", f"{cache.folder}=64M", "--write-back", sys.executable, "-c"]
    command = subprocess.Popen(
        [*PENSTOCK, *words, OUTLIVES, str(cache.folder / "a")],
        env=cache.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert command.stdin is not None
    assert command.stdout is not None
    assert command.stdout.readline() == "7000\n"
    cache.processes.append(cache.statistics()["pid"])
    process = os.pidfd_open(cache.processes[-1])
    command.kill()
    try:
        assert select.select([process], [], [], 30)[0], "the process of the cache has stayed"
    finally:
        os.close(process)
    assert (cache.folder / "a").read_bytes() == b"written" * 1000
    assert command.communicate("\n", timeout=30)[0] == "7000\n"  # the program goes on


@needs_mounts
@pytest.mark.parametrize("ends_by", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("command", [["serve", "--cache"], ["mount", "--foreground"]])
def test_a_cache_in_the_foreground_ends_with_its_command(
    cache: Cache, command: list[str], ends_by: signal.Signals
) -> None:
    words = ["env", "--default-signal=HUP", *PENSTOCK, *command]  # nohup has it ignored
    words += [str(cache.folder), "--json", "--device=cpu"]
    started = subprocess.Popen(
        words,
        env=cache.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert started.stdout is not None
        lines = list(itertools.takewhile(lambda line: line != "}\n", started.stdout))
        cache.processes.append(json.loads("".join(lines) + "}")["pid"])
        process = os.pidfd_open(cache.processes[-1])
        (cache.folder / "a").write_bytes(b"written" * 1000)
        if ends_by == signal.SIGKILL:
            started.kill()
        else:
            os.killpg(started.pid, ends_by)  # as a terminal that is closed
        try:
            assert select.select([process], [], [], 30)[0], "the process of the cache has stayed"
        finally:
            os.close(process)
    finally:
        started.kill()
        started.communicate(timeout=30)
    assert str(cache.folder) not in Path("/proc/self/mounts").read_text()
    assert (cache.folder / "a").read_bytes() == b"written" * 1000


def test_a_cache_that_does_not_answer_is_one_line(cache: Cache) -> None:
    (cache.folder / "a").write_bytes(b"of storage")
    process = cache.serve()
    folder = cache.folder.parent / "other"
    folder.mkdir()
    other = Cache(folder, Path(cache.environment["XDG_RUNTIME_DIR"]))
    cache.processes.append(other.serve())
    silent = f"its cache does not answer: process {process} is stopped"
    kept = str(cache.folder)
    run = ["run", "--cache", kept]
    reads = ["cat", f"{kept}/a"]
    commands = {
        "all": ["stats", "--once"],
        "stop": ["serve", "--cache", kept, "--stop"],
        "reader": [*run, *reads],
        "writer": [*run, "--write-back", *reads],
    }
    os.kill(process, signal.SIGSTOP)
    try:
        # At once, because each waits for some seconds.
        started = {
            name: subprocess.Popen(
                [*PENSTOCK, *words],
                env=cache.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name, words in commands.items()
        }
        told = {name: one.communicate(timeout=60) for name, one in started.items()}
    finally:
        os.kill(process, signal.SIGCONT)
    for name, (_, errors) in told.items():
        assert silent in errors, name
        assert errors.startswith(f"penstock: {kept}: "), name
        assert errors.count("\n") == 1, name
    assert told["all"][0].startswith(f"{folder}: process ")
    assert told["reader"][0] == "of storage"
    assert told["writer"][0] == told["stop"][0] == ""
    assert {name: one.returncode for name, one in started.items()} == {
        "all": 1,
        "stop": 1,
        "reader": 0,
        "writer": 1,
    }


@needs_mounts
def test_a_mount_that_does_not_answer_is_one_line(cache: Cache, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    made = cache.command("mount", cache.folder, shown, "--cache-size", "64M", "--json")
    process = int(json.loads(made.stdout)["pid"])
    os.kill(process, signal.SIGSTOP)
    try:
        ended = cache.command("umount", shown, check=False)
    finally:
        os.kill(process, signal.SIGCONT)
    assert ended.returncode == 1
    cause = f"its cache does not answer: process {process} is stopped (try: kill -CONT {process})"
    assert ended.stderr == f"penstock: {shown}: {cause}\n"
    cache.command("umount", shown)


@needs_mounts
def test_commands_name_a_mount_whose_process_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        os.kill(process, signal.SIGKILL)
    try:
        advice = f"(try: penstock umount {tmp_path})"
        told = f"penstock: {tmp_path}: its mount's process was killed {advice}"
        limit = time.monotonic() + SECONDS_MAX
        for words in (
            ("stats", tmp_path / "in" / "it"),
            ("serve", "--cache", tmp_path),
            ("run", "--cache", tmp_path, "true"),
        ):
            while (done := penstock(*words)).stderr != f"{told}\n":
                assert time.monotonic() < limit, done.stderr
            assert done.returncode == 1
        assert penstock("umount", tmp_path).returncode == 1  # which tells what is lost
        assert penstock("stats", tmp_path).stderr.endswith("serve --cache PATH)\n")
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=False, capture_output=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a mount namespace of its own")
def test_nothing_is_mounted_over_the_root(cache: Cache) -> None:
    # In a mount namespace of its own: a mount that is wrong hides the root there alone.
    words = ["unshare", "-m", "--propagation", "private", *PENSTOCK, "mount"]
    done = subprocess.run(
        [*words, str(cache.folder), "/"],
        env=cache.environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.stderr.startswith("unshare:"):  # in a chroot
        pytest.skip(done.stderr.strip())
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: /: cannot be mounted over")
    assert done.stderr.count("\n") == 1


def test_the_folder_of_another_user_is_not_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    for made in (tmp_path, tmp_path / "penstock"):  # where the user has no cache yet, and has one
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(CommandError, match="set XDG_RUNTIME_DIR") as error:
            cache_places.folder()
        assert error.value.subject == str(made)
        assert "remove" not in error.value.cause
        monkeypatch.setattr(os, "geteuid", lambda: owner)
        assert cache_places.folder() == tmp_path / "penstock"


@needs_mounts
def test_a_mount_is_found_by_a_link_and_ends_by_umount_alone(tmp_path: Path) -> None:
    below, shown, link = (tmp_path / name for name in ("below", "shown here", "link"))
    below.mkdir()
    shown.mkdir()
    link.symlink_to(below)
    with mounted(link):
        stopped = penstock("serve", "--cache", link, "--stop")
        advice = f"is mounted (try: penstock umount {below})"
        assert (stopped.returncode, advice in stopped.stderr) == (1, True), stopped.stderr
    with mounted(below, shown):
        other = penstock("umount", below)
        assert f"(try: penstock umount '{shown}')" in other.stderr


@needs_mounts
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_start_that_was_interrupted(
    tmp_path: Path, how: signal.Signals
) -> None:
    words = [*PENSTOCK, "mount", str(tmp_path), "--device=cpu", "--cache-size=512M"]
    for tenths in range(1, 8):
        command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(tenths / 10)
        command.send_signal(how)
        if b"mounted" in command.communicate(timeout=SECONDS_MAX)[0]:  # it was faster
            assert penstock("umount", tmp_path).returncode == 0
        limit = time.monotonic() + SECONDS_MAX
        while not penstock("stats", tmp_path).stderr.endswith("serve --cache PATH)\n"):
            assert time.monotonic() < limit, "its process has stayed"
            time.sleep(0.1)
        assert not os.path.ismount(tmp_path)

"""Goal: a file that is opened for writing alone is written as any other, though without pages."""

import mmap
import os
import subprocess
import threading
from pathlib import Path

import pytest
from mounting import SECONDS_MAX, mounted, needs_mounts

pytestmark = needs_mounts

ASYNCHRONOUS = Path(__file__).parents[3] / "build/release/penstock-test-asynchronous_writes"


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """Return an empty folder to mount another one at."""
    path = tmp_path / "shown"
    path.mkdir()
    return path


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return an empty folder that may be mounted."""
    path = tmp_path / "below"
    path.mkdir()
    return path


def test_readers_see_each_write_at_once(shown: Path, below: Path) -> None:
    size = 3 * mmap.PAGESIZE + 100
    with mounted(below, shown):
        (shown / "a").write_bytes(bytes(size))
        over = threading.Event()
        with open(shown / "a", "rb", buffering=0) as reader:

            def read_on() -> None:
                while not over.is_set():
                    os.pread(reader.fileno(), size, 0)

            mapped = mmap.mmap(reader.fileno(), size, access=mmap.ACCESS_READ)
            beside = threading.Thread(target=read_on)
            beside.start()
            writer = os.open(shown / "a", os.O_WRONLY)
            for i in range(2000):
                at = i * 37 % (size - 4)
                bytes_of = i.to_bytes(4, "little")
                assert os.pwrite(writer, bytes_of, at) == 4
                assert os.pread(reader.fileno(), 4, at) == bytes_of
                assert mapped[at : at + 4] == bytes_of
            os.close(writer)
            over.set()
            beside.join()
            mapped.close()
            expected = os.pread(reader.fileno(), size, 0)
        assert (shown / "a").read_bytes() == expected
    assert (below / "a").read_bytes() == expected


@pytest.mark.parametrize("flags", [os.O_SYNC, os.O_DSYNC, 0])
def test_a_synchronous_write_is_below_when_it_returns(shown: Path, below: Path, flags: int) -> None:
    with mounted(below, shown):
        writer = os.open(shown / "a", os.O_WRONLY | os.O_CREAT | flags, 0o600)
        for part in (b"first", b"other"):
            assert os.pwritev(writer, [part], 0, 0 if flags else os.RWF_DSYNC) == 5
            assert (below / "a").read_bytes() == part
        os.close(writer)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root serves other users")
@pytest.mark.parametrize("early", [False, True])
def test_a_write_by_others_takes_set_id_bits(shown: Path, below: Path, early: bool) -> None:
    with mounted(below, shown):
        (shown / "a").write_bytes(b"first")
        if early:
            (shown / "a").chmod(0o6755)
        writer = os.open(shown / "a", os.O_WRONLY)
        (shown / "a").chmod(0o6755)
        os.write(writer, b"again")
        assert (below / "a").stat().st_mode & 0o7777 == 0o6755  # root may keep them
        subprocess.run(
            ["printf", "other"],
            stdout=writer,
            user=65534,
            check=True,
            timeout=SECONDS_MAX,
        )
        os.close(writer)
        assert (below / "a").stat().st_mode & 0o7777 == 0o755
    assert (below / "a").read_bytes() == b"againother"


@pytest.mark.skipif(not ASYNCHRONOUS.exists(), reason="the test's program is not built")
@pytest.mark.parametrize(
    ("opened", "parts"),
    [
        (("direct", "read-write"), (640 << 10, 1, 3)),
        (("direct", "read-write"), (64 << 10, 10, 2)),
        (("direct", "write"), (640 << 10, 1, 3)),
        (("plain", "write"), (640 << 10, 1, 3)),  # passes no pages of the kernel
        (("plain", "read-write"), (640 << 10, 1, 3)),
    ],
)
def test_asynchronous_writes_beside_readers_leave_no_older_bytes(
    shown: Path, below: Path, opened: tuple[str, str], parts: tuple[int, int, int]
) -> None:
    with mounted(below, shown):
        size, depth, readers = map(str, parts)
        done = subprocess.run(
            [ASYNCHRONOUS, shown / "a", *opened, size, depth, readers, "200"],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr

"""What happens to a cache of files, to storage and to the tier's disk in the rounds of a Matrix."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cache_mounts import CacheFront, CacheMount, CacheProcess, NotServedError
from crash_matrix import Disk, Kept
from forgetting import SECONDS_MAX, ForgetfulDisk

GONE_S_MAX = 0.3  # that a disk is gone which comes back before the end of a round
RECOVERY_S_MAX = 0.05  # until a start is killed that puts a log into the files


@dataclass(frozen=True)
class Way:
    """How programs reach the cache, and what it has beside memory."""

    preload: bool = False  # by the preload library, with write-back; else by a mount
    log: bool = False  # syncs are durable in a log in the tier


class Troubles:
    """Starts caches of a disk, lets troubles begin, and mends all at the end of a round."""

    def __init__(
        self, way: Way, folder: Path, disk: Disk, tier: ForgetfulDisk | None, seed: int
    ) -> None:
        self.way = way
        self.place = folder / ("socket" if way.preload else "mount")
        self.errors = folder / "errors"
        self.disk = disk
        self.tier = tier
        self.random = random.Random(seed)
        self.count: dict[str, int] = {}
        self.problems: list[str] = []
        self.last: list[str] = []  # what happened in the last round
        self.kept = 0
        self.interrupted = 0  # starts that were killed while they put a log into the files
        self.refused = 0  # starts while storage took nothing

    def start(self, path: Path, patience: float = SECONDS_MAX) -> CacheProcess:
        """Start a cache of `path`, each with other sizes, so that all kinds of write-back come."""
        chunk_size = 4096 if self.tier is not None else self.random.choice([4096, 16384, 65536])
        options: dict[str, int | str] = {
            "chunk_size": chunk_size,
            "cache_size": 1024 * chunk_size,  # the smallest
            "dirty_limit": self.random.choice([1, 4, 16]) * 65536,
        }
        if self.tier is not None:
            options["tier"] = str(self.tier.place)
            options["tier_size"] = self.random.choice([4, 16, 64]) << 20
            options["tier_writes"] = int(self.way.log)
        kind = CacheFront if self.way.preload else CacheMount
        with self.errors.open("wb") as errors:
            return kind(path, self.place, errors=errors, patience=patience, **options)

    # ---- What begins

    def begin(self, source: random.Random) -> None:
        """Let one trouble begin."""
        kinds: list[Callable[[], None]] = []
        if isinstance(self.disk, ForgetfulDisk):
            kinds += [self.fill_storage, self.forbid_storage, self.lose_storage]
        if self.tier is not None:
            kinds += [self.break_tier, self.lose_tier]
        if self.way.log:
            kinds += [self.remove_log]
        kind = source.choice([*kinds, None])
        name = kind.__name__ if kind is not None else "none"
        self.count[name] = self.count.get(name, 0) + 1
        self.last = [name]
        if kind is not None:
            kind()

    def remove_log(self) -> None:
        """Remove the log's names, and wait until that is noticed: until then it has bytes alone."""
        assert self.tier is not None
        for log in self.tier.place.glob("penstock-log-*"):
            log.unlink()
        limit = time.monotonic() + SECONDS_MAX
        while b"writes go to storage" not in self.errors.read_bytes():
            if time.monotonic() > limit:
                self.problems.append("nothing told that the log was removed")
                break
            time.sleep(0.01)

    def break_tier(self) -> None:
        """Have the disk of the tier fail; it is back at the next start."""
        assert self.tier is not None
        self.tier.be("broken")

    def lose_tier(self) -> None:
        """Have the disk of the tier fail for a moment."""
        assert self.tier is not None
        self.tier.be("broken")
        time.sleep(self.random.random() * GONE_S_MAX)
        self.tier.be("well")

    def fill_storage(self) -> None:
        """Leave storage no room."""
        self.disk.be("full")

    def forbid_storage(self) -> None:
        """Have storage take nothing more."""
        self.disk.be("read-only")

    def lose_storage(self) -> None:
        """Have storage fail, until the next start or for a moment."""
        self.disk.be("broken")
        if self.random.random() < 0.5:
            time.sleep(self.random.random() * GONE_S_MAX)
            self.disk.be("well")

    # ---- The end of a round

    def recover(self, path: Path) -> Kept:
        """Mend all, and put what the log has into the files, as the next start does."""
        self.disk.be("well")
        if self.tier is not None:
            self.tier.be("well")
        if self.tier is None or not self.way.log:
            return {}
        if self.random.random() < 0.5:
            self.tier.lose_power()
            self.last.append("the tier loses power")
        for _ in range(self.random.choice([0, 0, 1, 2])):
            self._interrupt_start(path)
        before = set(self.tier.place.glob("penstock-kept-*"))
        notes: list[bytes] = []
        is_full = self.random.random() < 0.2
        self.last += [f"{one.name} was there before" for one in before]
        self.disk.be("full" if is_full else "well")
        try:
            service = self.start(path)
        except NotServedError as error:
            if not is_full:
                self.problems.append(f"the next start is refused: {error}")
            self.refused += 1
            notes.append(str(error).encode())
            self.disk.be("well")
            service = self.start(path)
        service.kill()
        service.clear()
        self.disk.be("well")
        self.last += [note.decode().strip() for note in service.notes]
        return self._look_at_kept(before, [*notes, *service.notes], is_full=is_full)

    def _interrupt_start(self, path: Path) -> None:
        """Kill a start, maybe while it puts what the log has into the files."""
        assert self.tier is not None
        try:
            service = self.start(path, self.random.random() * RECOVERY_S_MAX)
        except NotServedError:
            self.interrupted += 1
        else:
            service.kill()
            service.clear()
        self.last.append("a recovery is killed")
        if self.random.random() < 0.5:
            self.tier.lose_power()
            self.last.append("the tier loses power")

    def _look_at_kept(self, before: set[Path], notes: list[bytes], *, is_full: bool) -> Kept:
        """Return what was kept since storage was full. Each kept file must have been named."""
        assert self.tier is not None
        found: Kept = {}
        for kept in self.tier.place.glob("penstock-kept-*"):
            if kept not in before:
                self.kept += 1
                if not any(kept.name.encode() in note for note in notes):
                    self.problems.append(f"{kept.name} was not announced")
            number = re.match(r"penstock-kept-file-(\d)-", kept.name)
            if is_full and number is not None:
                found.setdefault(int(number[1]), []).append(kept.read_bytes())
            kept.unlink()
        return found

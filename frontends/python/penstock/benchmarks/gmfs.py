"""Question: what does a file cache in memory of a device cost a program, and what does it win.

Workload: programs that know nothing of Penstock. Each measures its own work, so the start of Python
and of the command is not in the figures. Bytes are compared outside of the timing, and what the
cache tells of its use shows that it served them; a row that it did not serve is not reported.
`read-4k`, `read-64k`, `read-1m`: sequential reads of 128 MiB in steps of that size, all hits, under
`penstock run --cache`.
`mount-read-*`: the same through `penstock mount`. The kernel forgets its own pages of the file
before each pass, so that each byte is asked of the mount.
`write-back-*`: writes of 64 MiB, again and again, that stay in the cache.
`write-fsync-64k`: a file of 128 MiB is written through a mount and synced. The dirty limit is a
quarter of that, or twice (`below-limit`); `write-64k` ends without fsync.
`second-epoch`: a data loader of 8 threads reads 1,000 files of 64 KiB in a shuffled order, from a
FUSE file system of 2 ms a request and 500 MB/s. The row is the worse of preload and mount. The
kernel's pages are forgotten, and what it knows of names is too old, as after a long epoch.
`twice-the-cache`: a cold file of twice the cache's size is read once; the worse of preload and
mount.
The axes of the poster of gmfs. `allocate-*`, `free-*`: device memory in pieces of 4 KiB to 1 MiB.
`set-read-*`, `set-write-*`: one call for all of a set of 4 KiB to 1 GiB, by the preload library and
through a mount. `small-write-4k`: writes of 4 KiB by the preload library with write-back;
`small-write-mount-4k`: through a mount. `write-64m`, `read-64m`: calls of penstock::FileCache with
64 MiB of pinned memory, all in the cache.

Baselines. `tmpfs`: the same program alone, on a file in memory. `passthrough-mount`: the program on
a low-level file system of libfuse that splices the pages of the file below, which are cached, with
requests, readahead and threads as of Penstock's mount. `file-system-below`: the program on the disk
itself; reads are O_DIRECT. `first-epoch`: the loader's epoch that fills the cache. `copy`: a copy
of as many bytes to the device. `allocate-copy-free`: all three for each 4 KiB.
`pinned-d2h-and-h2d`: copies of as many bytes between pinned memory and the device, in the same
direction.
With more than 15 pairs only one row of each kind is measured, and only --full has sets above 16 MiB
and all rows.
Not measured: real network file systems, several programs at once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from penstock.benchmarks.file_cache import chart, reads, storage, writes
from penstock.benchmarks.file_cache.rows import Bench
from penstock.benchmarks.harness import interruptions, model_file, slow_storage
from penstock.benchmarks.harness.report import Report, run_benchmark
from penstock.errors import CommandError

QUESTION = "what does a file cache in device memory cost a program, and what does it win?"
MEMORY = "/dev/shm"  # a tmpfs
MEASURES = (*reads.MEASURES, *writes.MEASURES, *storage.MEASURES, *chart.MEASURES)


def measure_all(arguments: Namespace, report: Report) -> None:
    """Measure every requested row."""
    with ExitStack() as stack:
        stack.enter_context(interruptions.caught())
        place = stack.enter_context(model_file.folder()).resolve()
        made = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=MEMORY)
        memory = Path(stack.enter_context(made))
        bench = Bench(arguments, report, place, memory)
        # No cache of this user is in the way, and none is left to be found. The path must be short.
        (memory / "run").mkdir()
        os.environ["XDG_RUNTIME_DIR"] = str(memory / "run")
        report.environment["slow storage"] = (
            f"FUSE, {slow_storage.LATENCY_US} us a request, {slow_storage.MEGABYTES_PER_S} MB/s"
        )
        for measure in MEASURES:
            try:
                measure(bench)
            except CommandError as error:
                bench.fail(measure.__name__.removeprefix("measure_"), error)
    if bench.failed:
        report.write()
        raise CommandError("gmfs", f"failed: {', '.join(bench.failed)}")


def main() -> int:
    """Run the benchmark."""
    return run_benchmark("gmfs", QUESTION, measure_all)


if __name__ == "__main__":
    sys.exit(main())

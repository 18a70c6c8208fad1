"""RocksDB: its benchmark as a workload, then its own checks of every checksum.

The programs are those of rocksdb-tools.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import Case, Suite

LOAD = "fillrandom,overwrite,readrandom,deleterandom,compact,verifychecksum"
SHAPES = {
    "plain": [],
    "sync": ["--sync=1", "--num=2000"],
    "mappings": ["--mmap_read=1", "--mmap_write=1"],
    "direct": ["--use_direct_reads=1", "--use_direct_io_for_flush_and_compaction=1"],
    "threads": ["--threads=4", "--num=3000", "--max_background_jobs=4"],
    "universal": ["--compaction_style=1"],
    "blobs": ["--enable_blob_files=1", "--min_blob_size=64"],
    "synced-by-range": ["--bytes_per_sync=65536", "--wal_bytes_per_sync=65536"],
}
SCRIPT = """
set -e
db_bench --db="$PWD/db" --benchmarks="$BENCHMARKS" --num=8000 --value_size=400 "$@" \
    --write_buffer_size=1048576 --target_file_size_base=1048576 --statistics=0 --seed=5
ldb --db="$PWD/db" checkconsistency
db_bench --db="$PWD/db" --use_existing_db=1 --benchmarks=verifychecksum,readseq --num=8000 "$@"
ldb --db="$PWD/db" scan | wc -l
for file in "$PWD"/db/*.sst; do sst_dump --file="$file" --command=verify >/dev/null; done
"""


def _cases(_copies: Path) -> Sequence[Case]:
    return [
        Case(
            name,
            ["bash", "-c", SCRIPT, "rocksdb", *options],
            seconds_max=120,
            environment={"BENCHMARKS": LOAD},
        )
        for name, options in SHAPES.items()
    ]


def _missing(_copies: Path) -> str:
    return "" if shutil.which("db_bench") else "rocksdb-tools is not installed"


SUITE = Suite("rocksdb", _cases, missing=_missing)

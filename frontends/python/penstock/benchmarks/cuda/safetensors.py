"""Question: how fast do the tensors of a safetensors file come into a CUDA device's memory.

Workload: a file of 2 GiB like that of a language model, with half-precision floats in 300 tensors,
in the page cache (hot) or not (cold). Each run opens the file, and ends when every tensor is in the
device's memory and the device is idle. Then all bytes in its memory are compared with the written
bytes, and overwritten. This library loads into memory that it is given. Rivals made of PyTorch take
memory from PyTorch's pool, which holds that of the run before.

Baseline: best-rival, the fastest in this state of InstantTensor, fastsafetensors, Run:ai's streamer
with a copy of each tensor, flashpack from a file of its own format with the same tensors, and the
reference's load to a device. Each is tried at its defaults and tuned, in runs that do not count.
Not measured: several files, several devices, GPUDirect Storage.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from itertools import product
from typing import Any

from penstock.benchmarks.cuda.contest.contest import Cast, Contest, Rival, State, cold, hot
from penstock.benchmarks.cuda.contest.memory import memory_of
from penstock.benchmarks.harness.model_file import written
from penstock.benchmarks.harness.report import Report, Row, run_benchmark, wanted

QUESTION = "how fast do the tensors of a safetensors file come into a CUDA device's memory?"
SIZE, SMOKE_SIZE = 2 << 30, 24 << 20

_LIBRARIES = "penstock.benchmarks.cuda.contest.libraries"
OURS = Rival("penstock", "penstock.benchmarks.cuda.contest.loaders:PenstockTensors")


def rivals(*, smoke: bool) -> list[Rival]:
    """Return the rivals, with the settings that are tried."""
    cpus = os.cpu_count() or 1
    mib = 1 << 20
    instant: list[dict[str, Any]] = [
        {"backend": name} for name in ("URING", "AIO", "URING_BUFFERED", "AIO_BUFFERED", "MMAP")
    ]
    instant.append({"backend": "URING_BUFFERED", "chunk_size": 2 * mib, "io_depth": 4 * cpus})
    fast: list[dict[str, Any]] = [
        {"nogds": True, "max_threads": count, "bbuf_size_kb": piece}
        for count, piece in product((cpus, 2 * cpus), (4 << 10, 16 << 10))
    ]
    flashpack: list[dict[str, Any]] = [
        {"FLASHPACK_READ_THREADS": count, "FLASHPACK_READ_CHUNK_BYTES": piece * mib}
        for count, piece in product((cpus, 2 * cpus), (4, 16))
    ]
    runai: list[dict[str, Any]] = [
        {"RUNAI_STREAMER_CONCURRENCY": cpus},
        {"RUNAI_STREAMER_CONCURRENCY": 2 * cpus},
    ]
    if smoke:
        instant, fast, flashpack, runai = instant[2:3], fast[:1], flashpack[:1], runai[:1]
    return [
        Rival("instanttensor", f"{_LIBRARIES}:InstantTensor", [{}, *instant]),
        Rival("fastsafetensors", f"{_LIBRARIES}:FastSafeTensors", [{}, *fast]),
        Rival("runai-model-streamer", f"{_LIBRARIES}:RunAi", [{}, *runai]),
        Rival("flashpack", f"{_LIBRARIES}:FlashPack", [{}, *flashpack]),
        Rival("safetensors", f"{_LIBRARIES}:SafeTensors", [{}, {"backend": "pread"}]),
    ]


def measure_all(arguments: Namespace, report: Report) -> None:
    """Measure every requested row."""
    memory_of(arguments.device)  # without a device, it fails before anything is written
    states: dict[str, State] = {"hot": hot, "cold": cold}
    with written(SMOKE_SIZE if arguments.smoke else SIZE) as file:
        report.environment |= {
            "file": f"{file.size} bytes in {len(file.spans)} tensors",
            "device": arguments.device,
        }
        cast = Cast(OURS, rivals(smoke=arguments.smoke))
        with Contest(cast, file.path, arguments.device, report) as contest:
            for case, state in states.items():
                if not wanted(arguments.only, case):
                    continue
                judged = contest.judge(arguments.pairs, state, contest.trial(case, state))
                if judged is None:
                    report.environment[case] = "left out: no rival runs here"
                    continue
                row = Row(case, "best-rival", pairs=judged.pairs, bytes=file.size)
                row.verified, row.cpu_seconds = judged.verified, judged.cpu_seconds
                row.note = str(judged.entry)
                report.add(row)


def main() -> int:
    """Run the benchmark."""
    return run_benchmark("safetensors", QUESTION, measure_all)


if __name__ == "__main__":
    sys.exit(main())

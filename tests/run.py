#!/usr/bin/env python3
"""Runs the stages of `make test`, `make ci` and `make test-all`, and prints the time of each.

    tests/run.py [--ci | --all | --nightly | --gpu] [--only STAGE,...] [--list]

Stages run in two lanes side by side. One lane compiles and lints with every CPU, at a low priority.
The other runs the tests, which sleep half of their time. A failed stage does not stop the others;
its log is shown and kept in build/logs. The last line counts checks: each GoogleTest case, each
pytest case, and every other stage is one. A check that cannot run here counts as skipped.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from install_stages import out_of_tree, wheel
from stages import (
    LOGS,
    ROOT,
    Counts,
    Stage,
    build,
    build_cuda,
    build_release,
    compute_sanitizer,
    container,
    ctest,
    cuda_figures,
    cxx_format,
    cxx_lint,
    fuzz,
    gtest_failures,
    has_gpu,
    headers,
    pytest,
    pytest_cuda,
    python_lint,
    tidy,
    total,
)

SHOWN_LINES = 60  # lines of a failed stage's log

# The tests of the rooms that parse or cut what comes from outside. CI runs no others under ASan and
# UBSan: to compile them all takes half an hour.
PARSERS = (
    "access_test",
    "extent_test",
    "page_cache_test",
    "planner_test",
    "penstock_scan_test",
    "storage_test",
)

# Each lane runs its stages in this order.
COMPILE: dict[str, Callable[[Stage], Counts]] = {
    "build-release": build_release,
    "build-cuda": build_cuda,
    "build-tsan": build("tsan"),
    "build-asan": build("asan"),
    "build-parsers": build("asan", targets=PARSERS),
    "headers": headers,
    "cxx-lint": cxx_lint,
    "wheel": wheel,
    "fuzz": fuzz,
}
RUN: dict[str, Callable[[Stage], Counts]] = {
    "tidy": tidy,
    "python-lint": python_lint,
    "cxx-format": cxx_format,
    "test-release": ctest("release"),
    "pytest": pytest,
    "out-of-tree": out_of_tree,
    "container": container,
    "test-tsan": ctest("tsan"),
    "test-asan": ctest("asan"),
    "test-parsers": ctest("asan", PARSERS),
    "has-gpu": has_gpu,
    "test-cuda": ctest("cuda", PENSTOCK_DEVICE="cuda:0"),
    "pytest-cuda": pytest_cuda,
    "sanitize-cuda": compute_sanitizer,
    "figures-cuda": cuda_figures,
}
STAGES = COMPILE | RUN
# The stages of the other lane that must end before a stage; within a lane the order suffices.
AFTER = {
    "test-release": "build-release",
    "pytest": "build-release",
    "out-of-tree": "build-release",
    "container": "build-release",
    "test-asan": "build-asan",
    "test-parsers": "build-parsers",
    "test-tsan": "build-tsan",
    "has-gpu": "build-cuda",
    "test-cuda": "build-cuda",
    "pytest-cuda": "build-cuda",
    "sanitize-cuda": "build-cuda",
    "figures-cuda": "build-cuda",
}
NIGHTLY_ONLY = {"wheel", "fuzz", "container"}
# Stages that take longer than a change should wait for. CI runs some of them, and a short form of
# others, to end within 45 minutes on two cores.
CI_SHORT = {"build-parsers", "test-parsers"}
CI_LEAVES_OUT = {"build-asan", "test-asan", "cxx-lint"}
SLOW = CI_LEAVES_OUT | CI_SHORT | {"build-tsan", "test-tsan"}
GPU_ONLY = {
    "has-gpu",
    "build-cuda",
    "test-cuda",
    "pytest-cuda",
    "sanitize-cuda",
    "figures-cuda",
}


class Run:
    """The chosen stages in their two lanes."""

    def __init__(self, chosen: Sequence[str], nightly: bool) -> None:
        self.chosen = chosen
        self.nightly = nightly
        self.ended = {name: threading.Event() for name in chosen}
        self.counts: dict[str, Counts] = {}
        self.printing = threading.Lock()

    def lane(self, stages: dict[str, Callable[[Stage], Counts]]) -> None:
        """Run the chosen stages of a lane, one after another."""
        for name in stages:
            if name not in self.ended:
                continue
            before = self.ended.get(AFTER.get(name, ""))
            if before:
                before.wait()
            try:
                self.perform(name)
            finally:
                self.ended[name].set()

    def perform(self, name: str) -> None:
        """Run one stage and print its line."""
        stage = Stage(name, self.nightly, background=name in COMPILE)
        started = time.monotonic()
        try:
            self.counts[name] = STAGES[name](stage)
        except Exception as error:  # a defect of the stage must not end the lane
            stage.log.write(f"{type(error).__name__}: {error}\n")
            self.counts[name] = Counts(0, 1)
        passed, failed, skipped = self.counts[name]
        seconds = time.monotonic() - started
        with self.printing:
            counted = f"{passed:>5} passed {failed:>4} failed {skipped:>4} skipped"
            print(f"{name:<14} {counted} {seconds:>8.1f} s", flush=True)
            if failed or not passed:
                text = stage.text()
                # The failure may be far above the end of the log.
                lines = gtest_failures(text)[:SHOWN_LINES] or text.splitlines()[-SHOWN_LINES:]
                print("\n".join(f"    {line}" for line in lines))
                print(f"    (all of it: {stage.path.relative_to(ROOT)})", flush=True)
        stage.log.close()

    def all(self) -> Counts:
        """Run both lanes to their ends; Ctrl-C ends the program."""
        lanes = [
            threading.Thread(target=self.lane, args=(stages,), daemon=True)
            for stages in (COMPILE, RUN)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        return total(self.counts.values())


def main() -> int:
    """Run the stages that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ci", action="store_true", help="the sanitizers' short form too")
    parser.add_argument("--all", action="store_true", help="the sanitizers and clang-tidy too")
    parser.add_argument("--nightly", action="store_true", help="the long forms, the wheel, fuzzing")
    parser.add_argument("--gpu", action="store_true", help="the tests on a CUDA device")
    parser.add_argument("--only", default="", help="stages to run, with commas between them")
    parser.add_argument("--list", action="store_true", help="name the stages")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(STAGES))
        return 0
    chosen = [name for name in arguments.only.split(",") if name]
    if unknown := set(chosen) - set(STAGES):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}; --list names them")
    if arguments.gpu:
        chosen = [name for name in STAGES if name in GPU_ONLY]
    elif not chosen:
        left_out = GPU_ONLY if arguments.nightly else GPU_ONLY | NIGHTLY_ONLY
        if arguments.all or arguments.nightly:
            left_out = left_out | CI_SHORT
        else:
            left_out = left_out | (CI_LEAVES_OUT if arguments.ci else SLOW)
        chosen = [name for name in STAGES if name not in left_out]
    LOGS.mkdir(parents=True, exist_ok=True)
    # A shell starts jobs in the background with SIGINT ignored, and tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    passed, failed, skipped = Run(chosen, arguments.nightly).all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{time.monotonic() - started:.0f} s ({cpu:.0f} s of CPU)")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

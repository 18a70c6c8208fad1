#!/usr/bin/env python3
"""Draws the charts of the documentation from the raw pairs in bench/results.

    docs/charts.py            write docs/charts/*.svg
    docs/charts.py --check    compare instead of writing; exit code 1 if a chart is out of date

A bar is the median of the ratios baseline / case of all pairs of a run: to the right of 1 Penstock
is faster, to the left it is slower. The whisker spans the middle half of the ratios.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import curves

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
CHARTS = ROOT / "docs/charts"

WIDTH = 980  # of a chart, as all below in pixels
LABELS = 400  # where the bars begin
BARS = 380  # width of the part with the bars
RATIO = 824  # where the column of ratios ends
ROW = 24
HEAD = 66
FOOT = 20
TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)

STYLE = """
    .ground { fill: #ffffff; }
    .grid   { stroke: #d5dae0; stroke-width: 1; }
    .one    { stroke: #3a4656; stroke-width: 1.6; }
    .faster { fill: #2b6cb0; }
    .slower { fill: #c05621; }
    .spread { stroke: #1f2933; stroke-width: 1.4; }
    text    { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2933; }
    .title  { font-weight: 600; font-size: 15px; }
    .small  { font-size: 12px; fill: #52606d; }
    .group  { font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #0f1419; }
      .grid   { stroke: #39434f; }
      .one    { stroke: #c3ccd6; }
      .faster { fill: #4f9ae0; }
      .slower { fill: #dd8a54; }
      .spread { stroke: #f0f4f8; }
      text    { fill: #e4e9ee; }
      .small  { fill: #aab6c2; }
    }"""


@dataclass(frozen=True)
class Bar:
    """A case of a run, against a baseline."""

    label: str
    run: str  # name of a file in bench/results, without .json
    case: str
    against: str


@dataclass(frozen=True)
class Chart:
    """A chart: bars, and headings (texts) between them."""

    name: str
    title: str
    rows: tuple[Bar | str, ...]


PREAD = "2026-11-26-pread-lots-cpu"
ROUTE = "2026-11-26-route-lots-cpu"
TENSORS = "2026-11-26-safetensors-lots-cpu"
GREAD_GPU = "2026-11-23-gread-h200"
HOT_GPU = "2026-11-26-pread-hot-lots-h200"
MIXED_GPU = "2026-11-26-pread-mixed-lots-h200"
TENSORS_GPU = "2026-11-26-safetensors-last-h200"
STRIDE_GPU = "2026-11-27-gread-grid-stride-h200"
COUNTERS_GPU = "2026-11-27-gwrite-counters-h200"
RANDOM_GPU = "2026-11-26-gread-random-4k-h100"
RANDOM_LAST_GPU = "2026-11-27-gread-random-h200"
GREAD = "2026-11-20-gread-cpu"
READAHEAD = "2026-11-25-readahead-cpu"
SCAN = "2026-11-20-scan-cpu"
WRITE = "2026-11-23-gwrite-cpu"

OVERVIEW = Chart(
    "overview",
    "Penstock against what a user would take instead",
    (
        "Two CPU cores, no GPU",
        Bar(
            "52 kinds of host reads / best mode of each", ROUTE, "auto-geomean", "best-single-mode"
        ),
        Bar("64 MiB, cold / fio at its best", PREAD, "cold-64m", "fio-best-huge-pages"),
        Bar("64 MiB, hot / pread in two threads", PREAD, "hot-64m", "raw-pread-best"),
        Bar("100,000 times 512 bytes, hot / pread", PREAD, "small-512", "pread"),
        Bar("1.9 GiB of tensors, hot / safetensors", TENSORS, "hot", "safetensors"),
        Bar("1.9 GiB of tensors, cold / safetensors", TENSORS, "cold", "safetensors"),
        Bar("scan for 100 strings / grep -F", SCAN, "count-100-patterns", "grep-F"),
        "One GPU (H200)",
        Bar("1 GiB into the GPU, hot / best other library", HOT_GPU, "hot-defaults", "best-rival"),
        Bar("1.9 GiB of tensors, hot / best other library", TENSORS_GPU, "hot", "best-rival"),
        Bar("1.9 GiB of tensors, cold / best other library", TENSORS_GPU, "cold", "best-rival"),
        Bar(
            "kernel reads 1 GiB / one thread reads, then copies",
            GREAD_GPU,
            "sequential-4k+readahead",
            "cpu-read-then-copy",
        ),
        Bar(
            "the same / one copy out of pinned memory",
            GREAD_GPU,
            "sequential-4k+readahead",
            "pinned-h2d",
        ),
        Bar(
            "blocks take 4 KiB pieces in turn / parts of their own",
            STRIDE_GPU,
            "grid-stride-4k",
            "sequential-4k+readahead",
        ),
    ),
)

HOST_READS = Chart(
    "host-reads",
    "Host reads: two cores of a Xeon, 2026-11-26",
    (
        Bar("64 MiB, hot / pread in two threads", PREAD, "hot-64m", "raw-pread-best"),
        Bar("64 MiB, cold / fio, its own buffers", PREAD, "cold-64m", "fio-best"),
        Bar("64 MiB, cold / fio, huge pages", PREAD, "cold-64m", "fio-best-huge-pages"),
        Bar("64 MiB, cold / a loop, same memory", PREAD, "cold-64m", "plain-loop-same-memory"),
        Bar("1,024 pieces of 4 KiB, hot / pread loop", PREAD, "random-4k-vectored", "pread-loop"),
        Bar("100,000 times 512 bytes, hot / pread", PREAD, "small-512", "pread"),
        "Tensors: 300, 1.9 GiB",
        Bar("hot / safetensors", TENSORS, "hot", "safetensors"),
        Bar("hot / readinto", TENSORS, "hot", "readinto"),
        Bar("cold / safetensors", TENSORS, "cold", "safetensors"),
        Bar("cold / readinto", TENSORS, "cold", "readinto"),
    ),
)

GPU = Chart(
    "gpu",
    "Reads into a GPU",
    (
        "Host reads of 1 and 8 GiB, H200, 2026-11-26",
        Bar("1 GiB, hot / best other library", HOT_GPU, "hot-defaults", "best-rival"),
        Bar("1 GiB, hot / one copy, pinned memory", HOT_GPU, "hot-defaults", "pinned-h2d"),
        Bar("8 GiB, hot / best other library", HOT_GPU, "hot-8g", "best-rival"),
        Bar("8 GiB, hot / one copy, pinned memory", HOT_GPU, "hot-8g", "pinned-h2d"),
        Bar("1 GiB, 25 % cached / best other library", MIXED_GPU, "mixed-25", "best-rival"),
        Bar("1 GiB, 50 % cached / best other library", MIXED_GPU, "mixed-50", "best-rival"),
        Bar("1 GiB, 75 % cached / best other library", MIXED_GPU, "mixed-75", "best-rival"),
        Bar(
            "1 GiB, cold / fio, huge pages (to host memory)",
            "2026-11-26-pread-cold-45-pairs-h200",
            "cold",
            "fio-best-huge-pages",
        ),
        "Kernels that read a hot file of 1 GiB, H200, 2026-11-23",
        Bar("resident pages / device copy", GREAD_GPU, "hits-4k-gpu", "device-copy"),
        Bar(
            "in order / one copy, pinned memory", GREAD_GPU, "sequential-4k+readahead", "pinned-h2d"
        ),
        Bar(
            "in order / one thread reads, then copies",
            GREAD_GPU,
            "sequential-4k+readahead",
            "cpu-read-then-copy",
        ),
        Bar(
            "in order / a request a page (seed 000)",
            GREAD_GPU,
            "sequential-4k+readahead",
            "seed-4k",
        ),
        Bar(
            "random 4 KiB / 16 threads that read and copy",
            GREAD_GPU,
            "random-4k",
            "preadv-pool-batched-copy",
        ),
        "The same, H200, 2026-11-27; the first bar H100, 2026-11-26",
        Bar(
            "random 4 KiB / 16 threads that read and copy",
            RANDOM_GPU,
            "random-4k",
            "preadv-pool-batched-copy",
        ),
        Bar(
            "random 4 KiB / 16 threads that read and copy",
            RANDOM_LAST_GPU,
            "random-4k",
            "preadv-pool-batched-copy",
        ),
        Bar(
            "4 KiB pieces in turn / in order",
            STRIDE_GPU,
            "grid-stride-4k",
            "sequential-4k+readahead",
        ),
        Bar(
            "16 KiB pieces in turn / in order",
            STRIDE_GPU,
            "grid-stride-16k",
            "sequential-4k+readahead",
        ),
        Bar(
            "64 KiB pieces in turn / in order",
            STRIDE_GPU,
            "grid-stride-64k",
            "sequential-4k+readahead",
        ),
        Bar(
            "32,768 counters in a file / 16 threads, pread, pwrite",
            COUNTERS_GPU,
            "scattered-counters",
            "pread-pwrite-fsync-threads",
        ),
    ),
)


def load(run: str) -> dict[str, Any]:
    """Return a run of bench/results."""
    loaded: dict[str, Any] = json.loads((RESULTS / f"{run}.json").read_text())
    return loaded


def ratios(row: dict[str, Any]) -> list[float]:
    """Return how many times as fast as its baseline a case was, for each pair, sorted."""
    larger_is_better = row["unit"].endswith("/s") or row["unit"] == "share"
    return sorted(
        case / against if larger_is_better else against / case
        for case, against in row["pairs"]
        if case > 0 and against > 0
    )


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit, with three digits that count."""
    scales: tuple[tuple[float, str], ...]
    if unit == "s":
        scales = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
    elif unit == "B/s":
        scales = ((1e9, "GB/s"), (1e6, "MB/s"))
    else:
        scales = ((1.0, unit),)
    scale, name = next((one for one in scales if value >= one[0]), scales[-1])
    scaled = value / scale
    digits = max(0, 2 - max(0, math.floor(math.log10(scaled)))) if scaled > 0 else 0
    return f"{scaled:.{digits}f} {name}"


def find(bar: Bar) -> dict[str, Any]:
    """Return the row of a run that a bar shows."""
    for row in load(bar.run)["rows"]:
        if (row["case"], row["against"]) == (bar.case, bar.against):
            found: dict[str, Any] = row
            if not found["verified"] or found["simulated"]:
                raise SystemExit(f"{bar.run}: {bar.case}: not verified, or simulated")
            return found
    raise SystemExit(f"{bar.run}: no row {bar.case} / {bar.against}")


class Canvas:
    """The text of an SVG, with a logarithmic scale of ratios."""

    def __init__(self, chart: Chart, low: float, high: float) -> None:
        self.low, self.high = math.log(low), math.log(high)
        self.height = HEAD + ROW * len(chart.rows) + FOOT
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}"'
            f' width="{WIDTH}" height="{self.height}" role="img" aria-labelledby="title">',
            f'  <title id="title">{escape(chart.title)}</title>',
            f"  <style>{STYLE}\n  </style>",
            f'  <rect class="ground" width="{WIDTH}" height="{self.height}" rx="8"/>',
        ]
        self.text(16, 26, "title", chart.title)

    def x(self, ratio: float) -> float:
        """Return where a ratio lies."""
        share = (math.log(ratio) - self.low) / (self.high - self.low)
        return LABELS + BARS * min(max(share, 0), 1)

    def text(self, x: float, y: float, style: str, text: str, anchor: str = "start") -> None:
        """Add a text."""
        self.lines.append(
            f'  <text class="{style}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def line(self, style: str, place: tuple[float, float, float, float]) -> None:
        """Add a line from x, y to x, y."""
        x1, y1, x2, y2 = place
        self.lines.append(
            f'  <line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def axis(self) -> None:
        """Add the scale above the bars."""
        self.text(self.x(1) - 8, 46, "small", "slower", "end")
        self.text(self.x(1) + 8, 46, "small", "faster")
        self.text(RATIO, HEAD - 6, "small", "ratio", "end")
        self.text(WIDTH - 16, HEAD - 6, "small", "Penstock / baseline", "end")
        for tick in TICKS:
            if self.low - 1e-9 <= math.log(tick) <= self.high + 1e-9:
                x = self.x(tick)
                self.line("one" if tick == 1 else "grid", (x, HEAD, x, self.height - FOOT))
                self.text(x, HEAD - 6, "small", f"{tick:g}", "middle")

    def bar(self, index: int, label: str, row: dict[str, Any]) -> None:
        """Add a bar with its label, its spread and its figures."""
        found = ratios(row)
        median = statistics.median(found)
        middle = HEAD + ROW * index + ROW / 2
        left, right = sorted((self.x(1), self.x(median)))
        self.text(LABELS - 10, middle + 4, "label", label, "end")
        style = "faster" if median >= 1 else "slower"
        self.lines.append(
            f'  <rect class="{style}" x="{left:.1f}" y="{middle - 7:.1f}"'
            f' width="{max(right - left, 1):.1f}" height="14"/>'
        )
        quarter = len(found) // 4
        low, high = self.x(found[quarter]), self.x(found[-1 - quarter])
        self.line("spread", (low, middle, high, middle))
        for end in (low, high):
            self.line("spread", (end, middle - 4, end, middle + 4))
        case, against = (
            amount(statistics.median(pair[side] for pair in row["pairs"]), row["unit"])
            for side in (0, 1)
        )
        self.text(RATIO, middle + 4, "small", f"{median:.2f}", "end")
        self.text(WIDTH - 16, middle + 4, "small", f"{case} / {against}", "end")


def draw(chart: Chart) -> str:
    """Return the SVG of a chart."""
    rows = {bar: find(bar) for bar in chart.rows if isinstance(bar, Bar)}
    medians = [statistics.median(ratios(row)) for row in rows.values()]
    low = max((tick for tick in TICKS if tick <= min(medians)), default=TICKS[0])
    high = min((tick for tick in TICKS if tick >= max(medians)), default=TICKS[-1])
    canvas = Canvas(chart, min(low, 0.5), max(high, 2))
    canvas.axis()
    for index, row in enumerate(chart.rows):
        if isinstance(row, Bar):
            canvas.bar(index, row.label, rows[row])
        else:
            canvas.text(16, HEAD + ROW * index + ROW / 2 + 4, "group", row)
    return "\n".join([*canvas.lines, "</svg>", ""])


def route_chart() -> Chart:
    """Return the chart of all kinds of host reads, the slowest against its baseline first."""
    rows = [
        row
        for row in load(ROUTE)["rows"]
        if row["against"] == "best-single-mode" and not row["case"].startswith("auto-")
    ]
    rows.sort(key=lambda row: statistics.median(ratios(row)))
    bars = tuple(Bar(row["case"], ROUTE, row["case"], row["against"]) for row in rows)
    return Chart("routes", f"{len(bars)} kinds of host reads / the best single mode of each", bars)


def run_chart(name: str, title: str, case: str, against: str, bench: str) -> Chart:
    """Return the chart of one case in every run that has it, in the order of their names."""
    found = []
    for path in sorted(RESULTS.glob(f"*-{bench}-*.json")):
        run = load(path.stem)
        for row in run["rows"]:
            if (row["case"], row["against"]) == (case, against) and row["verified"]:
                label = f"{path.stem}, {len(row['pairs'])} pairs"
                found.append(Bar(label, path.stem, case, against))
    return Chart(name, title, tuple(found))


def run_of(name: str, title: str, runs: tuple[tuple[str, str], ...]) -> Chart:
    """Return the chart of all rows of some runs, each behind a heading."""
    rows: list[Bar | str] = []
    for run, heading in runs:
        rows.append(heading)
        for row in load(run)["rows"]:
            if row["verified"] and not row["simulated"] and row["unit"] in ("s", "B/s"):
                label = f"{row['case']} / {row['against']}"
                rows.append(Bar(label, run, row["case"], row["against"]))
    return Chart(name, title, tuple(rows))


def charts() -> list[Chart]:
    """Return all charts."""
    return [
        OVERVIEW,
        HOST_READS,
        GPU,
        route_chart(),
        run_of(
            "kernels-cpu",
            "Kernels that read files, on the CPU backend: two cores",
            (
                (GREAD, "Reads (AMD EPYC, 2026-11-20)"),
                (READAHEAD, "Readahead (Intel Xeon, 2026-11-25)"),
            ),
        ),
        run_of(
            "kernels-write",
            "Kernels that write files",
            ((WRITE, "CPU backend, two cores of an AMD EPYC, 2026-11-23"),),
        ),
        run_chart(
            "cold-runs",
            "Cold reads of 64 MiB / fio at its best with huge pages: every run",
            "cold-64m",
            "fio-best-huge-pages",
            "pread",
        ),
        run_chart(
            "hot-gpu-runs",
            "Hot reads of 1 GiB into a GPU / one copy out of pinned memory: every run",
            "hot-defaults",
            "pinned-h2d",
            "pread",
        ),
    ]


def main(words: list[str]) -> int:
    """Write all charts, or compare them."""
    if words not in ([], ["--check"]):
        print(__doc__)
        return 2
    CHARTS.mkdir(exist_ok=True)
    stale = 0
    drawn = {chart.name: draw(chart) for chart in charts()}
    measured = sorted(RESULTS.glob("*-preempt-cpu.json"))  # the last one; none: the formula alone
    rows = load(measured[-1].stem)["rows"] if measured else []
    drawn["preemption"] = curves.draw(rows, STYLE)
    for name, text in drawn.items():
        path = CHARTS / f"{name}.svg"
        if words and (not path.exists() or path.read_text() != text):
            print(f"{path.relative_to(ROOT)}: out of date; run docs/charts.py")
            stale += 1
        elif not words:
            path.write_text(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Draws what preemption gains against C / I: the model, and what was measured.

docs/charts.py calls draw(). The points are the rows curve-R of `penstock bench preempt`: C / I from
curve-R-compute, the gain from the pairs against spinning, the prediction from the two rows against
the model. The whisker spans the middle half of the pairs. The lines are the formula of seed 001.
"""

from __future__ import annotations

import math
import statistics
from html import escape
from typing import Any

WIDTH, HEIGHT = 720, 430
LEFT, RIGHT, TOP, BOTTOM = 70, 690, 60, 370
LOW, HIGH = 0.1, 10.0  # C / I
GAIN_LOW, GAIN_HIGH = 0.5, 2.25
BETAS = ((math.inf, "no overhead"), (4.0, "overhead I / 4"), (1.0, "overhead I"))

STYLE = """
    .model { fill: none; stroke: #7b8794; stroke-width: 1.4; stroke-dasharray: 5 4; }
    .predicted { fill: none; stroke: #c05621; stroke-width: 1.8; }
    .measured { fill: #2b6cb0; }
    @media (prefers-color-scheme: dark) {
      .predicted { stroke: #dd8a54; }
      .measured { fill: #4f9ae0; }
    }"""


def gain(ratio: float, beta: float) -> float:
    """Return what preemption gains on one place, by the formula of the seed."""
    return (1 + ratio) / (max(1.0, ratio) + 1 / beta)


def x_of(ratio: float) -> float:
    """Return where a C / I lies."""
    share = math.log(ratio / LOW) / math.log(HIGH / LOW)
    return LEFT + (RIGHT - LEFT) * share


def y_of(value: float) -> float:
    """Return where a gain lies, or the end of the scale that is nearest."""
    value = min(max(value, GAIN_LOW), GAIN_HIGH)
    return BOTTOM - (BOTTOM - TOP) * (value - GAIN_LOW) / (GAIN_HIGH - GAIN_LOW)


def points(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the measured points, the smallest C / I first."""
    table = {(row["case"], row["against"]): row["pairs"] for row in rows if row["verified"]}
    found = []
    for (case, against), pairs in table.items():
        if not case.startswith("curve-") or against != "spin":
            continue
        gains = sorted(spin / ours for ours, spin in pairs)
        ours = statistics.median(one for _, one in table[case, "prediction"])
        spin = statistics.median(one for _, one in table[f"{case}-spin", "prediction"])
        places = table[f"{case}-compute", "reads"]
        quarter = len(gains) // 4
        found.append(
            {
                "ratio": statistics.median(compute / reads for compute, reads in places),
                "gain": statistics.median(gains),
                "low": gains[quarter],
                "high": gains[-1 - quarter],
                "predicted": spin / ours,
            }
        )
    return sorted(found, key=lambda point: point["ratio"])


def text(x: float, y: float, style: str, words: str, anchor: str = "start") -> str:
    """Return a text."""
    return (
        f'  <text class="{style}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def line(style: str, place: tuple[float, float, float, float]) -> str:
    """Return a line from x, y to x, y."""
    x1, y1, x2, y2 = place
    return f'  <line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def path(style: str, places: list[tuple[float, float]]) -> str:
    """Return a line through points of (C / I, gain)."""
    joined = " ".join(f"{x_of(ratio):.1f},{y_of(value):.1f}" for ratio, value in places)
    return f'  <polyline class="{style}" points="{joined}"/>'


def axes() -> list[str]:
    """Return the two scales."""
    lines = []
    for ratio in (0.125, 0.25, 0.5, 1, 2, 4, 8):
        lines.append(line("grid", (x_of(ratio), TOP, x_of(ratio), BOTTOM)))
        lines.append(text(x_of(ratio), BOTTOM + 18, "small", f"{ratio:g}", "middle"))
    for value in (0.5, 1, 1.5, 2):
        style = "one" if value == 1 else "grid"
        lines.append(line(style, (LEFT, y_of(value), RIGHT, y_of(value))))
        lines.append(text(LEFT - 8, y_of(value) + 4, "small", f"{value:g}", "end"))
    lines.append(text((LEFT + RIGHT) / 2, BOTTOM + 40, "small", "computation / reads", "middle"))
    lines.append(text(16, 46, "small", "time of blocks that spin / time of blocks that leave"))
    return lines


def draw(rows: list[dict[str, Any]], style: str) -> str:
    """Return the SVG of the measured points and the model."""
    found = points(rows)
    where = ": one place, reads of 32 KiB" if found else ""
    title = f"What blocks gain that leave while they wait{where}"
    steps = [LOW * (HIGH / LOW) ** (i / 60) for i in range(61)]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(title)}</title>',
        f"  <style>{style}{STYLE}\n  </style>",
        f'  <rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        text(16, 26, "title", title),
        *axes(),
    ]
    for beta, name in BETAS:
        lines.append(path("model", [(ratio, gain(ratio, beta)) for ratio in steps]))
        lines.append(text(x_of(0.75), y_of(gain(0.75, beta)) - 6, "small", name, "end"))
    if found:
        lines.append(path("predicted", [(point["ratio"], point["predicted"]) for point in found]))
    for point in found:
        x = x_of(point["ratio"])
        lines.append(line("spread", (x, y_of(point["low"]), x, y_of(point["high"]))))
        lines.append(
            f'  <circle class="measured" cx="{x:.1f}" cy="{y_of(point["gain"]):.1f}" r="4.5"/>'
        )
    legend = "dashed: formula of seed 001"
    if found:
        legend = f"dots: measured   line: predicted from micro-benchmarks   {legend}"
    lines.append(text((LEFT + RIGHT) / 2, HEIGHT - 6, "small", legend, "middle"))
    return "\n".join([*lines, "</svg>", ""])

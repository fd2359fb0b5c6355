#!/usr/bin/env python3
"""Draws the plots of docs/performance.md from the bench's JSON.

    cargo bench --bench ratios -- --json docs/plots/ratios.json
    python3 docs/plots/draw.py docs/plots/ratios.json docs/plots

Needs nothing but Python. Writes counting.svg and growth.svg.
"""

import json
import math
import sys
from html import escape
from pathlib import Path

FONT = 'font-family="system-ui, sans-serif"'
INK, PALE, OURS, THEIRS = "#1f2933", "#d5dbe1", "#0b7285", "#adb5bd"
LINES = ["#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c"]


class Svg:
    """A picture that is appended to."""

    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def text(self, x, y, words, size=13, anchor="start", fill=INK, weight="normal"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{fill}">{escape(words)}</text>'
        )

    def line(self, points, stroke=PALE, width=1.0):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width}"/>'
        )

    def rect(self, x, y, width, height, fill):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{fill}"/>'
        )

    def dot(self, x, y, fill):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}"/>')

    def save(self, path):
        Path(path).write_text("\n".join([*self.parts, "</svg>", ""]), encoding="utf-8")


def ns(value):
    """A time for people."""
    for limit, unit, size in [(1e3, "ns", 1), (1e6, "µs", 1e3), (math.inf, "ms", 1e6)]:
        if value < limit:
            return f"{value / size:.3g} {unit}"


def decades(low, high):
    return range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)


def counting(rows, path):
    """Bars: a record of five counters, alone and with a second writer."""
    bars = {}
    for row in rows:
        if row["group"] == "counting: a record of five" or row["case"].startswith("2 writers"):
            if row["ns"] and row["ns"]["median"]:
                bars[row["case"]] = row["ns"]["median"]
    bars = list(bars.items())
    left, top, step, width = 240, 64, 26, 760
    low, high = min(v for _, v in bars), max(v for _, v in bars)
    ticks = decades(low, high)
    first, last = ticks[0], ticks[-1]
    scale = (width - left - 80) / (last - first)
    bottom = top + step * len(bars)
    svg = Svg(width, bottom + 40, "What a record of five counters costs")
    svg.text(16, 26, "What it costs to count five things", 16, weight="bold")
    svg.text(16, 46, "nanoseconds per record, logarithmic; shmstats in colour", 12)
    for tick in ticks:
        x = left + (tick - first) * scale
        svg.line([(x, top), (x, bottom)])
        svg.text(x, bottom + 18, ns(10.0**tick), 12, "middle")
    for i, (name, value) in enumerate(bars):
        y = top + i * step
        ours = name in ("5 drained counters", "5 single-writer counters", "2 writers, a slot each")
        svg.text(left - 8, y + 17, name, 12, "end")
        length = (math.log10(value) - first) * scale
        svg.rect(left, y + 4, length, step - 8, OURS if ours else THEIRS)
        svg.text(left + length + 6, y + 17, ns(value), 12)
    svg.save(path)


def growth(lines, path):
    """Lines: cost by number of slots."""
    lines = [
        (line["case"], [(s, v) for s, v in zip(line["slots"], line["ns"]) if v]) for line in lines
    ]
    values = [v for _, points in lines for _, v in points]
    slots = [s for _, points in lines for s, _ in points]
    left, top, right, bottom, width = 76, 64, 590, 420, 760
    ticks = decades(min(values), max(values))
    y_scale = (bottom - top) / (ticks[-1] - ticks[0])
    x_scale = (right - left) / (math.log2(max(slots)) or 1)
    at = lambda s, v: (
        left + math.log2(s) * x_scale,
        bottom - (math.log10(v) - ticks[0]) * y_scale,
    )
    svg = Svg(width, bottom + 50, "How reading grows with the number of slots")
    svg.text(16, 26, "How reading grows with the number of slots", 16, weight="bold")
    svg.text(16, 46, "time of one reading of 20 counters per slot, both axes logarithmic", 12)
    for tick in ticks:
        _, y = at(1, 10.0**tick)
        svg.line([(left, y), (right, y)])
        svg.text(left - 8, y + 4, ns(10.0**tick), 12, "end")
    for s in sorted(set(slots)):
        x, _ = at(s, 10.0 ** ticks[0])
        svg.line([(x, top), (x, bottom)])
        svg.text(x, bottom + 18, f"{s:,}", 12, "middle")
    svg.text((left + right) / 2, bottom + 38, "slots", 12, "middle")
    colours = {name: LINES[i % len(LINES)] for i, (name, _) in enumerate(lines)}
    # From the top down, so that no name stands on another.
    above = -math.inf
    for name, points in sorted(lines, key=lambda line: -line[1][-1][1]):
        colour = colours[name]
        svg.line([at(*point) for point in points], colour, 2)
        for point in points:
            svg.dot(*at(*point), colour)
        x, y = at(*points[-1])
        above = max(y + 4, above + 15)
        svg.text(x + 10, above, name, 12, fill=colour)
    svg.save(path)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: draw.py RATIOS.json FOLDER")
    data = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(sys.argv[2])
    counting(data["rows"], folder / "counting.svg")
    growth(data["growth"], folder / "growth.svg")


main()

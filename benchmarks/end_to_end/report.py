"""Tables and a chart of what runner.py measured."""

from __future__ import annotations

import statistics
from html import escape
from typing import Any

from workloads import Bar, Workload


def counted(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rounds that count for wall figures; all of them where none does."""
    good = [r for r in result["rounds"] if min(r["cores"]) >= result["min_cores"]]
    return good or result["rounds"]


def runs_of(rounds: list[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    return [
        run for r in rounds for run in r["runs"] if run["title"] == title and "error" not in run
    ]


def rate(run: dict[str, Any]) -> float:
    return run["samples"] / run["wall_s"]


def cpu(run: dict[str, Any]) -> float:
    return run["cpu_s"] / run["samples"]


def titles(result: dict[str, Any]) -> dict[str, str]:
    return {run["title"]: run["group"] for r in result["rounds"] for run in r["runs"]}


def median_of(result: dict[str, Any], title: str, metric: str) -> float | None:
    if metric == "rate":
        values = [rate(run) for run in runs_of(counted(result), title)]
    else:
        values = [cpu(run) for run in runs_of(result["rounds"], title)]
    return statistics.median(values) if values else None


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def rival(result: dict[str, Any], bar: Bar) -> str | None:
    """Whom a bar compares with: the best by the median over the rounds."""
    named = [t for t, group in titles(result).items() if t in bar.limits or group in bar.groups]
    scored = [(median_of(result, t, bar.metric), t) for t in named]
    known = [(value, t) for value, t in scored if value is not None]
    if not known:
        return None
    return (max if bar.metric == "rate" else min)(known)[1]


def ratios(result: dict[str, Any], bar: Bar, other: str) -> list[float]:
    """headpond's figure over the other's, a round each."""
    figure = rate if bar.metric == "rate" else cpu
    rounds = counted(result) if bar.metric == "rate" else result["rounds"]
    found = []
    for r in rounds:
        ours, theirs = runs_of([r], "headpond"), runs_of([r], other)
        if ours and theirs:
            found.append(figure(ours[0]) / figure(theirs[0]))
    return found


def bar_rows(workload: Workload, result: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for bar in workload.bars:
        other = rival(result, bar)
        values = ratios(result, bar, other) if other else []
        if not values:
            rows.append({"bar": str(bar), "against": other, "met": None})
            continue
        low, middle, high = quartiles(values)
        # CPU must hold in every round, wall in the median of those that count.
        met = middle >= bar.value if bar.metric == "rate" else max(values) <= bar.value
        rows.append(
            {"bar": str(bar), "against": other, "median": middle, "quartiles": [low, high],
             "worst": max(values) if bar.metric == "cpu" else min(values), "met": met}
        )  # fmt: skip
    if workload.fault_bar is not None:
        runs = runs_of(result["rounds"], "headpond")
        if runs:
            faults = statistics.median(run["minor_faults"] / run["batches"] for run in runs)
            rows.append(
                {"bar": f"minor faults a batch <= {workload.fault_bar}", "against": "",
                 "median": faults, "met": faults <= workload.fault_bar + 0.05}
            )  # fmt: skip
    return rows


def short(value: float) -> str:
    """Three significant digits, thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    """Median (least-most)."""
    return f"{short(statistics.median(values))} ({short(min(values))}-{short(max(values))})"


def table_row(result: dict[str, Any], title: str) -> str:
    per = result["per"]
    runs = runs_of(result["rounds"], title)
    timed = runs_of(counted(result), title)

    def per_samples(what: str) -> list[float]:
        return [run[what] / run["samples"] * per for run in runs]

    first = [run.get("first_batch_s") or run.get("first_s") for run in runs]
    cells = (
        title,
        f"{len(timed)}/{len(runs)}",
        spread([rate(run) for run in timed]) if timed else "",
        spread(per_samples("cpu_s")),
        short(statistics.median(per_samples("minor_faults"))),
        short(statistics.median(per_samples("switches"))),
        f"{statistics.median(first) * 1000:.1f}" if all(first) else "",
    )
    return "| " + " | ".join(cells) + " |"


def table(result: dict[str, Any]) -> str:
    """One row a contestant, fastest first."""
    per, unit = f"{result['per']:,}", result["unit"]
    lines = [
        f"| contestant | rounds | {unit}/s median (min-max) | CPU s / {per} {unit} (min-max) | "
        f"faults / {per} | switches / {per} | first batch ms |",
        "|---|---|---|---|---|---|---|",
    ]
    speeds = {title: median_of(result, title, "rate") for title in titles(result)}
    ran = [title for title, speed in speeds.items() if speed is not None]
    ran.sort(key=lambda title: -(speeds[title] or 0))
    lines += [table_row(result, title) for title in ran]
    errors = {
        run["title"]: " ".join(run["error"])
        for r in result["rounds"]
        for run in r["runs"]
        if "error" in run
    }
    return "\n".join([*lines, *(f"\n{title}: failed: {why}" for title, why in errors.items())])


def bars_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| bar | against | median (quartiles) | worst round | met |", "|---|---|---|---|---|"]
    for row in rows:
        if row["met"] is None:
            lines.append(f"| {row['bar']} | {row['against'] or ''} | not measured | | |")
            continue
        low_high = row.get("quartiles")
        between = f" ({low_high[0]:.2f}-{low_high[1]:.2f})" if low_high else ""
        worst = f"{row['worst']:.2f}" if "worst" in row else ""
        lines.append(
            f"| {row['bar']} | {row['against']} | {row['median']:.2f}{between} | {worst} | "
            f"{'yes' if row['met'] else 'NO'} |"
        )
    return "\n".join(lines)


def rounds_line(result: dict[str, Any]) -> str:
    got = ", ".join(f"{min(r['cores']):.2f}" for r in result["rounds"])
    good = sum(min(r["cores"]) >= result["min_cores"] for r in result["rounds"])
    return (
        f"{len(result['rounds'])} rounds, {good} of them with at least {result['min_cores']} cores "
        f"(cores in each: {got})" + ("" if good else "; none counts for wall figures: shown anyway")
    )


COLOURS = {"limit": "#9aa5b1", "torch": "#d98a3d", "peer": "#b8b04a", "headpond": "#2f6f9f"}


def chart(results: list[dict[str, Any]]) -> str:
    """An SVG: one group of bars a workload, samples/s, longest bar = the best of the group."""
    row_px, left, width = 18, 250, 420
    parts: list[str] = []
    y = 10
    for result in results:
        figures = [(median_of(result, t, "rate") or 0.0, t, g) for t, g in titles(result).items()]
        figures = sorted((f for f in figures if f[0]), reverse=True)
        if not figures:
            continue
        y += 20
        parts.append(f'<text x="4" y="{y}" font-weight="bold">{escape(result["title"])}</text>')
        y += 8
        for value, title, group in figures:
            length = max(1, round(value / figures[0][0] * width))
            parts.append(
                f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">{escape(title)}</text>'
                f'<rect x="{left}" y="{y + 3}" width="{length}" height="{row_px - 5}" '
                f'fill="{COLOURS[group]}"/>'
                f'<text x="{left + length + 5}" y="{y + 13}">{short(value)} '
                f"{escape(result['unit'])}/s</text>"
            )
            y += row_px
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 170}" height="{y + 14}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        + "".join(parts)
        + "</svg>\n"
    )

"""Workloads over HTTP: first batch and origin bytes without an index, latency, closing, JPEGs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import prepare
from runner import HERE, Options, run_program
from servers import SlowOrigin, nginx
from special import Row, bar, child, milliseconds

FIRST_BYTE_S = 0.030
MIB_S = 0.020
IN_FLIGHT = 32


def urls(base: str, folder: Path, pattern: str) -> list[str]:
    return [f"{base}/{path.relative_to(folder)}" for path in sorted(folder.glob(pattern))]


def result(name: str, title: str, runs: list[Row], lines: list[str], bars: list[Row]) -> Row:
    failed = [" ".join(run["error"]) for run in runs if "error" in run]
    lines += [f"\nfailed: {text}" for text in failed]
    return {"workload": name, "title": title, "runs": runs, "table": "\n".join(lines), "bars": bars}


def median(runs: list[Row], what: str) -> float:
    return statistics.median(run[what] for run in runs)


def late(options: Options) -> Row:
    """Shards without an index from a slow origin."""
    folder = prepare.small_shards(options.work, options.data)
    shards = sorted(folder.glob("*.tar"))
    data = sum(path.stat().st_size for path in shards)
    group = 2 * shards[0].stat().st_size  # `window` samples fill two shards
    memories = {"two groups fit": 5 * group // 2, "a quarter of a group fits": group // 4}
    runs: list[Row] = []
    for _ in range(options.rounds):
        for title, memory in memories.items():
            window = prepare.SMALL_SHARD_SAMPLES + 1
            with SlowOrigin(folder, first_byte_s=FIRST_BYTE_S, mib_s=MIB_S) as origin:
                run = child({"what": "late", "urls": urls(origin.url, folder, "*.tar"),
                             "window": window, "memory": memory})  # fmt: skip
                runs.append({"title": title, "memory": memory, "origin_bytes": origin.bytes, **run})
        with SlowOrigin(folder, first_byte_s=FIRST_BYTE_S, mib_s=MIB_S) as origin:
            run = child({"what": "stream", "urls": urls(origin.url, folder, "*.tar")[:2]})
            runs.append({"title": "stream of two shards", **run})
    good = [run for run in runs if "error" not in run]
    lines = [
        "| | first batch, or stream, s | origin bytes / data | samples | peak above start, MiB |",
        "|---|---|---|---|---|",
    ]
    bars: list[Row] = []
    for title, memory in memories.items():
        mine = [run for run in good if run["title"] == title]
        if not mine:
            continue
        ratio = median(mine, "origin_bytes") / data
        peak = median(mine, "peak_bytes")
        lines.append(
            f"| {title} | {median(mine, 'first_s'):.3f} | {ratio:.3f} "
            f"| {median(mine, 'samples'):,.0f} | {peak / 2**20:.0f} of {memory / 2**20:.0f} |"
        )
        most = 1.02 if title == "two groups fit" else 2.05
        bars.append(bar(f"{title}: origin bytes <= {most}x the data", ratio, ratio <= most))
        above = (peak - memory) / 2**20
        bars.append(bar(f"{title}: peak memory <= memory + 60 MB", above, above <= 60))
    streams = [run for run in good if run["title"] == "stream of two shards"]
    firsts = [run for run in good if run["title"] == "two groups fit"]
    if streams and firsts:
        stream = median(streams, "stream_s")
        lines.append(f"| the first group alone, streamed | {stream:.3f} | | | |")
        share = median(firsts, "first_s") / stream
        bars.append(bar("first batch <= 1.2x streaming the first group", share, share <= 1.2))
    title = "tar shards without an index, 30 ms to the first byte, 20 ms a MiB"
    return result("http-late", title, runs, lines, bars)


def latency(options: Options) -> Row:
    """Small objects, each a request, with a latency that hides all else."""
    folder = prepare.files_tree(options.work, options.data)
    names = sorted(folder.rglob("*.jp*g"))[:2000]
    runs: list[Row] = []
    for _ in range(options.rounds):
        with SlowOrigin(folder, first_byte_s=FIRST_BYTE_S, mib_s=0) as origin:
            listed = [f"{origin.url}/{path.relative_to(folder)}" for path in names]
            runs.append(child({"what": "latency", "urls": listed, "connections": IN_FLIGHT}))
    good = [run for run in runs if "error" not in run]
    lines = ["| samples/s | Little's law |", "|---|---|"]
    bars: list[Row] = []
    if good:
        law = IN_FLIGHT / FIRST_BYTE_S
        rate = median(good, "rate")
        lines.append(f"| {rate:,.0f} | {law:,.0f} |")
        bars.append(bar("samples/s >= 0.9 of Little's law", rate / law, rate >= 0.9 * law))
    title = f"110 KB objects, 30 ms to the first byte, {IN_FLIGHT} requests in flight"
    return result("http-latency", title, runs, lines, bars)


def closing(options: Options) -> Row:
    """close() while the server has stopped in the middle of its answers."""
    folder = prepare.small_shards(options.work, options.data)
    with SlowOrigin(folder, first_byte_s=0, mib_s=0, stall=True) as origin:
        run = child({"what": "closing", "urls": urls(origin.url, folder, "*.tar"), "times": 500})
    lines = [
        "| close() ms, median and slowest | threads, descriptors: before, after | growth MiB |",
        "|---|---|---|",
    ]
    bars: list[Row] = []
    if "error" not in run:
        lines.append(
            f"| {milliseconds(run['close_s'])} | {run['before']} {run['after']} "
            f"| {run['growth_bytes'] / 2**20:.1f} |"
        )
        slowest = max(run["close_s"]) * 1e3
        bars.append(bar("close() <= 200 ms", slowest, slowest <= 200))
        same = run["before"] == run["after"] and run["growth_bytes"] < 8 << 20
        bars.append(bar("500 times: no growth", run["growth_bytes"] / 2**20, same))
    return result("http-close", "closing with a server that stalls", [run], lines, bars)


def jpeg(options: Options) -> Row:
    """Training crops from shards behind nginx, beside the same shards as files."""
    folder = prepare.shards(options.work, options.data)
    prepare.read_through(folder)
    runs: list[Row] = []
    with nginx(folder) as (base, _):
        for _ in range(options.rounds):
            for title, source in (("files", str(folder)), ("nginx", urls(base, folder, "*.tar"))):
                runs.append({"title": title, **child({"what": "jpeg", "source": source})})
    good = [run for run in runs if "error" not in run]
    lines = ["| shards from | images/s | CPU ms an image |", "|---|---|---|"]
    for title in ("files", "nginx"):
        mine = [run for run in good if run["title"] == title]
        if mine:
            lines.append(
                f"| {title} | {median(mine, 'rate'):,.0f} | {median(mine, 'cpu_ms'):.3f} |"
            )
    pairs = [
        far["rate"] / near["rate"]
        for near, far in zip(runs[::2], runs[1::2], strict=True)
        if "error" not in near and "error" not in far
    ]
    bars = []
    if pairs:
        share = statistics.median(pairs)
        bars.append(bar("nginx: images/s >= 0.85x local files", share, share >= 0.85))
    title = "JPEG training crops from tar shards, window shuffle, batch 64: nginx and local files"
    return result("http-jpeg", title, runs, lines, bars)


# --- the store alone, beside a bare libcurl program and other clients -----------------------------

READS = {
    "4 MiB ranges": {"what": "ranges", "objects": 4, "bytes": 64 << 20, "range": 4 << 20},
    "objects of 100 KiB": {"what": "objects", "objects": 10_000, "bytes": 100 << 10},
}
STORES = ("libcurl", "headpond", "obstore", "tensorstore")


def store_run(options: Options, client: str, reads: Row, base: str, ca: str) -> Row:
    if client in ("libcurl", "headpond"):
        words = {**reads, "root": base, "in-flight": 16} | ({"ca": ca} if ca else {})
        arguments = [str(part) for name, value in words.items() for part in (f"--{name}", value)]
        program = "limit_http" if client == "libcurl" else "micro_http_store"
        return run_program(options, program, tuple(arguments))
    spec = json.dumps({**reads, "client": client, "root": base, "in_flight": 16})
    command = [sys.executable, str(HERE / "object_clients.py"), spec]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": (done.stderr or done.stdout).strip().splitlines()[-1:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def stores(options: Options) -> Row:
    """CPU and rate of the http store for what other clients read from the same nginx."""
    folder = prepare.web_objects(options.work)
    prepare.read_through(folder)
    runs: list[Row] = []
    for tls in (False, True):
        with nginx(folder, tls=tls) as (base, ca):
            for round_ in range(options.rounds):
                for what, reads in READS.items():
                    for client in STORES[round_ % 2 :] + STORES[: round_ % 2]:
                        skipped = client == "tensorstore" and reads["what"] == "ranges"
                        if skipped or (tls and client not in ("libcurl", "headpond")):
                            continue  # its Python interface has no ranges; their CA files differ
                        run = store_run(options, client, reads, base, ca)
                        key = {"what": what, "tls": tls, "client": client, "round": round_}
                        runs.append({**key, **run})
    good = [run for run in runs if "error" not in run]

    def ratios(what: str, tls: bool, client: str, measure: str) -> float:
        pairs: dict[int, dict[str, float]] = {}
        for run in good:
            if (run["what"], run["tls"]) == (what, tls) and run["client"] in ("headpond", client):
                pairs.setdefault(run["round"], {})[run["client"]] = run[measure]
        return statistics.median(p["headpond"] / p[client] for p in pairs.values() if len(p) == 2)

    lines = ["| read | client | CPU s/GB | requests/s |", "|---|---|---|---|"]
    bars: list[Row] = []
    for tls in (False, True):
        for what in READS:
            for client in STORES:
                mine = [
                    r for r in good if (r["what"], r["tls"], r["client"]) == (what, tls, client)
                ]
                if not mine:
                    continue
                cpu = statistics.median(r["cpu_s"] / r["bytes"] * 1e9 for r in mine)
                rate = statistics.median(r["items"] / r["wall_s"] for r in mine)
                lines.append(
                    f"| {what}{', TLS 1.3' if tls else ''} | {client} | {cpu:.3f} | {rate:,.0f} |"
                )
    for what, tls, client, measure, most in (
        ("4 MiB ranges", False, "libcurl", "cpu_s", 1.25),
        ("4 MiB ranges", False, "libcurl", "wall_s", 1 / 0.9),
        ("objects of 100 KiB", False, "libcurl", "cpu_s", 1.6),
        ("objects of 100 KiB", False, "obstore", "cpu_s", 1.0),
        ("objects of 100 KiB", False, "tensorstore", "cpu_s", 1.0),
        ("objects of 100 KiB", False, "libcurl", "wall_s", 1 / 0.9),
        ("objects of 100 KiB", False, "obstore", "wall_s", 1 / 0.9),
        ("objects of 100 KiB", False, "tensorstore", "wall_s", 1 / 0.9),
        ("4 MiB ranges", True, "libcurl", "cpu_s", 1.15),
        ("objects of 100 KiB", True, "libcurl", "cpu_s", 1.15),
    ):
        ratio = ratios(what, tls, client, measure)
        name = "CPU" if measure == "cpu_s" else "time"
        text = f"{what}{', TLS' if tls else ''}: {name} <= {most:.2f}x {client}"
        bars.append(bar(text, ratio, ratio <= most))
    return result(
        "http-store", "the http store beside other clients, nginx, 16 in flight", runs, lines, bars
    )


# --- the node's cache -----------------------------------------------------------------------------


def cache(options: Options) -> Row:
    """Two epochs over nginx through a cache that is large enough, beside files and no cache."""
    folder = prepare.shards(options.work, options.data)
    prepare.read_through(folder)
    runs: list[Row] = []
    with nginx(folder) as (base, _):
        listed = urls(base, folder, "*.tar")
        for round_ in range(options.rounds):
            for title, source, size in (
                ("files", str(folder / "*.tar"), 0),
                ("nginx", listed, 0),
                ("nginx, cached", listed, 4 << 30),
            ):
                with tempfile.TemporaryDirectory(dir=options.work) as place:
                    spec = {"what": "cached", "source": source, "folder": place, "size": size}
                    run = child({**spec, "epochs": 4})
                    runs.append({"title": title, "round": round_, **run})
    good = [run for run in runs if "error" not in run]
    lines = ["| source | epoch | samples/s | CPU ms a sample | requests | MB from the origin |"]
    lines.append("|---|---|---|---|---|---|")
    rates: dict[tuple[str, bool], float] = {}
    costs: dict[tuple[str, bool], float] = {}
    asked = 0
    for title in ("files", "nginx", "nginx, cached"):
        mine = [run["epochs"] for run in good if run["title"] == title]
        for first in (True, False):
            epochs = [e for run in mine for e in (run[:1] if first else run[1:])]
            if not epochs:
                continue
            rate = statistics.median(e["samples"] / e["wall_s"] for e in epochs)
            cost = statistics.median(e["cpu_s"] / e["samples"] for e in epochs) * 1e3
            rates[title, first], costs[title, first] = rate, cost
            requests = statistics.median(e["requests"] for e in epochs)
            origin = statistics.median(e["origin_bytes"] for e in epochs) / 1e6
            if title == "nginx, cached" and not first:
                asked = max(e["requests"] for e in epochs)
            lines.append(
                f"| {title} | {'first' if first else 'later'} | {rate:,.0f} | {cost:.3f} "
                f"| {requests:.0f} | {origin:,.1f} |"
            )
    bars: list[Row] = []
    if len(rates) == 6:
        later = rates["nginx, cached", False] / rates["files", False]
        cost = costs["nginx, cached", False] / costs["files", False]
        first = rates["nginx, cached", True] / rates["nginx", True]
        bars = [
            bar("later epochs: origin requests = 0", asked, asked == 0),
            bar("later epochs: rate >= 0.9x local files", later, later >= 0.9),
            bar("later epochs: CPU <= 1.4x local files", cost, cost <= 1.4),
            bar("first epoch: rate >= 0.9x without a cache", first, first >= 0.9),
        ]
    return result("http-cache", "tar shards behind nginx, through the cache", runs, lines, bars)


REMOTE = {
    "http-cache": cache,
    "http-store": stores,
    "http-late": late,
    "http-latency": latency,
    "http-close": closing,
    "http-jpeg": jpeg,
}

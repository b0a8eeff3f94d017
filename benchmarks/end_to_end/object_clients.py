"""Other clients of a web server, reading what `limit_http` reads: one line of JSON for a SPEC."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from meter import usage

Items = list[tuple[str, int, int]]  # name, start, stop


def items_of(spec: dict[str, Any]) -> Items:
    """Those of limits/http_list.h, in an order of their own."""
    ranges = spec["what"] == "ranges"
    step = spec["range"] if ranges else spec["bytes"]
    items = [
        (f"{'t' if ranges else 'o'}{i:05d}", start, min(start + step, spec["bytes"]))
        for i in range(spec["objects"])
        for start in range(0, spec["bytes"], step)
    ]
    random.Random(7).shuffle(items)
    return items


def obstore(spec: dict[str, Any], items: Items) -> int:
    import obstore as obs
    from obstore.store import HTTPStore

    store = HTTPStore.from_url(spec["root"], client_options={"allow_http": True})

    async def one(name: str, start: int, stop: int) -> int:
        if spec["what"] == "ranges":
            return len(await obs.get_range_async(store, name, start=start, end=stop))
        return len(await (await obs.get_async(store, name)).bytes_async())

    async def everything() -> int:
        waiting = iter(items)

        async def worker() -> int:
            return sum([await one(*item) for item in waiting])

        return sum(await asyncio.gather(*[worker() for _ in range(spec["in_flight"])]))

    return asyncio.run(everything())


def tensorstore(spec: dict[str, Any], items: Items) -> int:
    import tensorstore as ts

    context = ts.Context({"http_request_concurrency": {"limit": spec["in_flight"]}})
    opening = ts.KvStore.open({"driver": "http", "base_url": spec["root"]}, context=context)
    store = opening.result()
    waiting: deque[Any] = deque()
    total = 0
    for name, _, _ in items:
        waiting.append(store.read(name))
        if len(waiting) == 2 * spec["in_flight"]:
            total += len(waiting.popleft().result().value)
    return total + sum(len(read.result().value) for read in waiting)


def main() -> None:
    spec = json.loads(sys.argv[1])
    clients: dict[str, Callable[[dict[str, Any], Items], int]] = {
        "obstore": obstore,
        "tensorstore": tensorstore,
    }
    client = clients[spec["client"]]
    client({**spec, "objects": 1}, items_of({**spec, "objects": 1})[:1])  # imports, threads
    items = items_of(spec)
    begin = usage()
    total = client(spec, items)
    spent = usage().since(begin)
    want = sum(stop - start for _, start, stop in items)
    if total != want:
        raise SystemExit(f"{spec['client']}: {total} bytes of {want}")
    print(
        json.dumps(
            {"items": len(items), "bytes": total, "wall_s": spent.wall_s, "cpu_s": spent.cpu_s}
        )
    )


if __name__ == "__main__":
    main()

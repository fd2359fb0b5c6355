"""`python -m shmstats PATH`: what a region says now, as JSON. The `shmstats` command shows more."""

from __future__ import annotations

import json
import sys
from typing import Any

from . import Error, Inspector, Observation, Totals


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m shmstats PATH", file=sys.stderr)
        return 2
    try:
        with Inspector(arguments[0]) as inspector:
            totals, seen = inspector.totals(), inspector.observe()
            print(json.dumps(_describe(inspector, totals, seen), indent=2))
    except (Error, OSError) as error:
        print(f"shmstats: {error}", file=sys.stderr)
        return 1
    return 0


def _describe(inspector: Inspector, totals: Totals, seen: Observation) -> dict[str, Any]:
    servers = [
        {"slot": slot, "state": state, "pid": owner.pid, "index": owner.server_index}
        for slot, (state, owner) in enumerate(zip(seen.states, seen.owners))
        if state != "free"
    ]
    return {
        "path": str(inspector.path),
        "namespace": inspector.schema.namespace,
        "servers": servers,
        "primary": seen.primary_pid if seen.primary_alive else None,
        "settled": totals.settled,
        "totals": totals.as_dict(),
        "gauges": seen.gauges,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

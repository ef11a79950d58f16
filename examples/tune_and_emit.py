"""Search the schedules of one product, and print the text of the kernel that won.

Run it with ``python examples/tune_and_emit.py``, or with a number of trials behind it. What was tried before on this
machine counts, so that a second run is over at once. ``tracea tune`` and ``tracea emit`` do the same from the command
line.
"""

import sys

import tracea
from tracea.core.op import GemmOp
from tracea.flow.text import emit_text


def main(trials: int = 8) -> None:
    """Tune a product with bias and GELU, and emit its kernel."""
    op = GemmOp.of(m=64, n=256, k=128, bias=True, activation="gelu")
    tuned = tracea.tune(op, budget=tracea.Budget(trials=trials), library=False)
    for variant, found in tuned.trials.items():
        times = [trial.latency_ms for trial in found if trial.latency_ms is not None]
        fastest = f"fastest {1e3 * min(times):.3g} µs" if times else "none was verified"
        print(f"{variant}: {len(found)} tried, {fastest}")
    print(tuned.decision.explain())

    schedule = tuned.decision.schedule
    text = emit_text(op, variant=tuned.decision.variant, schedule=dict(schedule) if schedule else None)
    print("\n".join(text.splitlines()[:12]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

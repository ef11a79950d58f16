"""Write trials until killed: ``python store_writer.py PATH NAME COUNT`` prints the id of each once it is stored."""

from __future__ import annotations

import sys
import time

from tracea.optimizer import Outcome, OutcomeKind, StudyKey, TrialRecord, TrialStore


def main() -> None:
    path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    key = StudyKey(op_key="gemm", variant=name, hardware={"core": "zen"}, toolchain={"gcc": "12"})
    with TrialStore(path) as store:
        for index in range(count):
            outcome = Outcome(kind=OutcomeKind.OK, latency_ms=1.0 + index, detail="x" * 200)
            record = TrialRecord(
                key=key,
                schedule={"index": index},
                outcome=outcome,
                seconds=0.1,
                sampler="grid",
                seed=0,
                recorded_at=time.time(),
            )
            print(store.add(record), flush=True)


if __name__ == "__main__":
    main()

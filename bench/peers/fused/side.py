"""The sides of `bench/fused.py` of one checkout, in a process of its own, by that checkout's Python.

Arguments: the checkout, the address of Kafka, the source topic, its records, Kafka's process id. One name of
a side a line on standard input; one JSON object a line on standard output, the first with all names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    checkout, bootstrap, source, count, pid = sys.argv[1:]
    sys.path.insert(0, str(Path(checkout) / "bench"))
    from fused import Bench, InSpark
    from pipeline import Broker
    from table import Report

    answers, sys.stdout = sys.stdout, sys.stderr  # what a job prints must not stand between the answers
    broker = Broker(bootstrap)
    spark = InSpark(broker, source, int(count))
    spark.start()
    sides = Bench(Report(title="", columns=[]), broker, spark, None, int(pid)).sides()
    print(json.dumps({"sides": list(sides)}), file=answers, flush=True)
    for line in sys.stdin:
        found = sides[line.strip()][1]()
        print(json.dumps({"rate": found.rate, "cpu": found.cpu}), file=answers, flush=True)
    spark.session.stop()


if __name__ == "__main__":
    main()

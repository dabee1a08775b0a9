"""make bench: compares the outbox with its rivals. compare.py FOLDER [quick | smallest]

A run is a list of steps. A step measures one thing in one round, and rounds take turns, so
that a minute in which the machine is slow falls on all alike. Parts:

drain       a backlog, beside pipelined XADD
delay       from commit to stream, idle and under load
tradeoff    throughput and delay, by outbox.max_dispatch_delay
beside      callers beside a backlog that is sent
wal         what a transaction writes, also right after a checkpoint
scaling     what several databases send, to one Redis or to two
throughput  the whole job at full speed, until the last message is in Redis
growth      costs as history, backlog, destinations, endpoints, clients, databases grow

The order is on purpose: from the beginning of the run on a transaction is open in some
databases, and in a full one it is ten minutes old when the throughput beside it is measured.
"""
import json
import os
import sys

import beside
import delay
import drain
import growth
import machine
import plots
import report
import rivals
import scaling
import throughput
import tradeoff
import wal
from progress import Progress
from steps import SCALES, Results

PARTS = {"drain": drain, "delay": delay, "tradeoff": tradeoff, "beside": beside, "wal": wal, "scaling": scaling,
         "throughput": throughput, "growth": growth}


def main(folder, scale="full"):
    scale = SCALES[scale]
    wanted = os.environ.get("BENCH_ONLY", "").split() or list(PARTS)
    steps = [step for name, part in PARTS.items() if name in wanted for step in part.steps(scale)]
    results = Results(machine.about(scale))
    progress = Progress(sum(step.seconds for step in steps))
    with rivals.open_transactions():
        for step in steps:
            take(step, results, progress)
    write(results, folder)
    wrong = results.wrong_books()
    if wrong:
        sys.exit("The books do not agree: " + ", ".join(wrong))


def take(step, results, progress):
    if results.is_left_out(step):
        progress.skip(step.seconds)
        return
    with progress.step(f"{step.part}: {step.name}", step.seconds) as telling:
        try:
            figures = step.measure()
        except rivals.CannotRun as reason:
            telling.more = f"left out: {reason}"
            results.leave_out(step, str(reason))
            return
        if figures is not None:
            results.add(step, figures)
        telling.more = step.say(figures)


def write(results, folder):
    with open(f"{folder}/results.json", "w") as file:
        json.dump(results.to_json(), file, indent=1)
    run = report.Run(results.to_json())
    plots.draw(run, folder)
    os.chdir(folder)
    with open("results.md", "w") as file:
        file.write(report.whole(run))
    print("\n" + report.summary(run))


if __name__ == "__main__":
    main(*sys.argv[1:])

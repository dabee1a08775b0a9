"""Tables and plots of a run, in Markdown: report.py RESULTS.JSON [PAGE.MD]

With a page, puts each of them into it: between <!-- bench: NAME --> and <!-- end -->.
Each figure is the median of the rounds, with the lowest and the highest.
"""
import json
import os
import re
import statistics
import sys

import rivals
from figures import ratio, spread

FLOOR, OUTBOX, XADD = rivals.FLOOR.title, rivals.OUTBOX.title, "XADD, pipelined"
OFF, ON = "throughput, synchronous_commit off", "throughput, synchronous_commit on"


class Run:
    def __init__(self, results):
        self.about, self.parts, self.left_out = results["about"], results["parts"], results["left_out"]

    def has(self, part, *series):
        return all(name in self.parts.get(part, {}) for name in series)

    def values(self, part, series, figure):
        return [figures[figure] for figures in self.parts[part][series]]

    def spread(self, part, series, figure):
        return spread(self.values(part, series, figure))

    def ratio(self, part, series, base, figure):
        return ratio(self.values(part, series, figure), self.values(part, base, figure))


# Cells.

def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def amount(of):
    return f"{number(of.median)} ({number(of.low)} to {number(of.high)})"


def share(of):
    """A ratio; without one where it tells nothing."""
    text = f"{of.median:.2f} ({of.low:.2f} to {of.high:.2f})"
    return text if of.conclusive() else text + ": no conclusion"


def table(heads, rows):
    if not rows:
        return "Not measured in this run.\n"
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# Tables.

def machine(run):
    about, scale = run.about, run.about["scale"]
    return (f"{about['date']}, {about['cores']} cores ({about['processor']}), {about['memory']}, {about['system']}; PostgreSQL "
            f"{about['postgresql']}, Redis {about['redis']}, Node.js {about['node'] or 'none'}. {scale['rounds']} rounds, "
            f"{scale['seconds']} s of load in a turn, 8 clients; load of the machine at the beginning: {about['load_before']:.1f}.\n")


def summary(run):
    rows = [[name, share(on) if on else "", share(off) if off else ""] for name, on, off in comparisons(run) if on or off]
    return table(["", "synchronous_commit on", "off"], rows) + "\n" + table(["", ""], [list(row) for row in others(run)])


def others(run):
    """What does not depend on synchronous_commit, or was measured with it off."""
    peers = [run.values("drain", title, "rate") for title in run.parts.get("drain", {}) if not title.startswith(("outbox", XADD))]
    best = max(peers, key=statistics.median, default=None)
    for title in (title for title in run.parts.get("drain", {}) if title.startswith("outbox")):
        rates = run.values("drain", title, "rate")
        if run.has("drain", XADD):
            yield f"Drain over {XADD}: {title}", share(run.ratio("drain", title, XADD, "rate"))
        if best:
            yield f"Drain over that of the best rival: {title}", share(ratio(rates, best))
    for part in (part for part in run.parts if part.startswith("delay") and run.has(part, OUTBOX)):
        yield (f"{part[0].upper()}{part[1:]}: outbox, p50 and p99, µs",
               f"{amount(run.spread(part, OUTBOX, 'p50'))} and {amount(run.spread(part, OUTBOX, 'p99'))}")
    series = list(run.parts.get("beside a backlog", {}))
    if len(series) == 2:
        yield "Callers beside a backlog over those without: throughput", share(run.ratio("beside a backlog", *reversed(series), "rate"))
        yield "The same: p50 of a transaction", share(run.ratio("beside a backlog", *reversed(series), "p50"))
    if run.has(OFF, OUTBOX):
        yield ("CPU of the dispatcher and of Redis, µs a message",
               f"{amount(run.spread(OFF, OUTBOX, 'relay_cpu'))} and {amount(run.spread(OFF, OUTBOX, 'redis_cpu'))}")
    if run.has("WAL", OUTBOX, rivals.BUSINESS.title):
        later, first = (more_wal(run, OUTBOX, figure) for figure in ("later", "after_checkpoint"))
        yield "WAL of a transaction beyond the business alone, bytes; right after a checkpoint", f"{amount(later)}; {amount(first)}"


def more_wal(run, title, figure):
    return spread([a - b for a, b in zip(run.values("WAL", title, figure), run.values("WAL", rivals.BUSINESS.title, figure))])


def comparisons(run):
    """What is compared, with its ratio for both settings of synchronous_commit."""
    callers = [(rivals.OUTBOX, "begin, enqueue, commit"), (rivals.TOGETHER, "enqueue and commit in one SELECT"),
               (rivals.STATEMENT, "handler in one statement"), (rivals.PIPELINED, "pipelined")]
    for rival, name in callers:
        yield both(run, f"Callers over the round-trip floor: {name}", rival.title, FLOOR, "callers")
    yield both(run, "Callers with the dispatcher at work over those with it off", OUTBOX, rivals.UNDISPATCHED.title, "callers")
    for rival in (rivals.POLLED, rivals.NOTIFIED, rivals.NSERVICEBUS, rivals.PGQ, rivals.LOGICAL, rivals.GRAPHILE, rivals.PG_BOSS):
        yield both(run, f"Whole job over that of: {rival.title}", OUTBOX, rival.title, "whole")
    for rival in (rivals.POLLED, rivals.NSERVICEBUS):
        yield both(run, f"Whole job with one SELECT over that of: {rival.title}", rivals.TOGETHER.title, rival.title, "whole")
    for rival in (rivals.OUTBOX, rivals.TOGETHER):
        yield (f"{rival.title[0].upper()}{rival.title[1:]}, over NServiceBus' shape: each as a share of the floor of its own client",
               *(over_own_floors(run, part, rival) for part in (ON, OFF)))
    yield both(run, "Whole job beside an open transaction over that without: outbox", rivals.OUTBOX_BESIDE_OPEN.title, OUTBOX, "whole")
    yield both(run, "The same: hand-written table", rivals.POLLED_BESIDE_OPEN.title, rivals.POLLED.title, "whole")


def over_own_floors(run, part, rival):
    """The client of NServiceBus' shape is no pgbench, and has a higher floor."""
    theirs, client = rivals.NSERVICEBUS.title, rivals.FLOOR_OF_CLIENT.title
    if not run.has(part, rival.title, FLOOR, theirs, client):
        return None
    our_shares = [a / b for a, b in zip(run.values(part, rival.title, "whole"), run.values(part, FLOOR, "callers"))]
    their_shares = [a / b for a, b in zip(run.values(part, theirs, "whole"), run.values(part, client, "callers"))]
    return ratio(our_shares, their_shares)


def both(run, name, series, base, figure):
    return name, *(run.ratio(part, series, base, figure) if run.has(part, series, base) else None for part in (ON, OFF))


def throughput(run, part):
    rows = []
    for title in in_order(run, part):
        turns = run.parts[part][title]
        delivers = any(rival.title == title and rival.delivers for rival in rivals.ALL)
        rows.append([
            title,
            amount(run.spread(part, title, "callers")),
            share(run.ratio(part, title, FLOOR, "callers")) if title != FLOOR else "1",
            amount(run.spread(part, title, "whole")) if delivers else "",
            number(run.spread(part, title, "machine_cpu").median),
            number(run.spread(part, title, "relay_cpu").median) if delivers and title != rivals.NSERVICEBUS.title else "",
            number(run.spread(part, title, "redis_cpu").median) if delivers else "",
            number(run.spread(part, title, "wal").median),
            verdict(turns) if delivers else "",
        ])
    heads = ["", "callers: transactions/s", "over the floor", "whole job: transactions/s", "CPU of all, µs each", "CPU of the relay, µs a message",
             "CPU of Redis, µs a message", "WAL, bytes each", "books"]
    return table(heads, rows) + left_out(run, part)


def in_order(run, part):
    return [rival.title for rival in rivals.ALL if rival.title in run.parts.get(part, {})]


def verdict(turns):
    missing, doubled, late = (sum(turn[name] for turn in turns) for name in ("missing", "doubled", "late"))
    wrong = [f"{count:,} {name}" for count, name in ((missing, "missing"), (doubled, "doubled"), (late, "not there in time")) if count]
    return ", ".join(wrong) or "agree"


def left_out(run, part):
    return "".join(f"\nLeft out: {title}, for {reason}.\n" for title, reason in run.left_out.get(part, {}).items())


def drain(run):
    rows, base = [], XADD
    for title in run.parts.get("drain", {}):
        window = f", {run.spread('drain', title, 'window').median:,.0f} messages each" if "window" in run.parts["drain"][title][0] else ""
        rows.append([title + window, amount(run.spread("drain", title, "rate")),
                     share(run.ratio("drain", title, base, "rate")) if title != base else "1",
                     number(run.spread("drain", title, "relay_cpu").median), number(run.spread("drain", title, "redis_cpu").median)])
    return table(["", "messages/s", "over XADD", "CPU of the relay, µs each", "CPU of Redis, µs each"], rows) + left_out(run, "drain")


def delay(run):
    text = ""
    for part in sorted((name for name in run.parts if name.startswith("delay")), key=lambda name: ("idle" not in name, name)):
        rows = [[title, amount(run.spread(part, title, "p50")), amount(run.spread(part, title, "p99"))] for title in run.parts[part]]
        text += "\n" + table([part[0].upper() + part[1:], "p50, µs", "p99, µs"], rows) + left_out(run, part)
    return text.lstrip() or table([], [])


def beside(run):
    part = "beside a backlog"
    series = list(run.parts.get(part, {}))
    rows = [[title, amount(run.spread(part, title, "rate")), amount(run.spread(part, title, "p50")), amount(run.spread(part, title, "p99"))]
            for title in series]
    if len(series) == 2:
        rows.append(["the second over the first", *(share(run.ratio(part, series[1], series[0], figure)) for figure in ("rate", "p50", "p99"))])
    return table(["", "callers: transactions/s", "a transaction: p50, µs", "p99, µs"], rows) + left_out(run, part)


def tradeoff(run):
    part, rows = "outbox.max_dispatch_delay", []
    for limit in run.parts.get(part, {}):
        floor = ratio(run.values(part, limit, "outbox"), run.values(part, limit, "floor"))
        rows.append([f"{limit} ms", f"{floor.median:.2f} ({floor.low:.2f} to {floor.high:.2f})",
                     amount(run.spread(part, limit, "p50")), amount(run.spread(part, limit, "p99"))])
    return table([part, "callers at full speed, over the floor", "from commit to stream meanwhile: p50, µs", "p99, µs"], rows)


def wal(run):
    rows, plain = [], rivals.BUSINESS.title
    for title in run.parts.get("WAL", {}):
        cells = [title]
        for figure in ("later", "after_checkpoint"):
            cells += [amount(run.spread("WAL", title, figure)), number(more_wal(run, title, figure).median) if title != plain else ""]
        rows.append(cells)
    return table(["Bytes of WAL for a transaction", "later", "more than the business alone", "right after a checkpoint", "more than the business alone"],
                 rows) + left_out(run, "WAL")


def growth(run):
    rows = []
    for part in (name for name in run.parts if name.startswith("growth: ")):
        thing = part[len("growth: "):]
        for level, pairs in run.parts[part].items():
            of = ratio([pair["outbox"] for pair in pairs], [pair["floor"] for pair in pairs])
            rows.append([thing, f"{int(level):,}", f"{of.median:.2f} ({of.low:.2f} to {of.high:.2f})"])
    return table(["", "how many", "callers over the floor"], rows)


# What a section has: its table, and plots by their names.
SECTIONS = {
    "machine": (machine,),
    "summary": (summary,),
    "throughput on": (lambda run: throughput(run, ON), "whole-on", "callers-on"),
    "throughput off": (lambda run: throughput(run, OFF), "whole-off", "callers-off"),
    "drain": (drain, "drain"),
    "delay": (delay, "delay-p50", "delay-p99", "load"),
    "tradeoff": (tradeoff, "tradeoff"),
    "beside": (beside,),
    "wal": (wal,),
    "growth": (growth, "growth"),
}


def section(run, name, folder):
    """With the plots that are in the folder, as seen from the page."""
    make, *plots = SECTIONS[name]
    text = make(run)
    for plot in plots:
        if os.path.exists(f"{folder}/{plot}.svg"):
            text += f"\n![{plot}]({os.path.join(folder, plot)}.svg)\n"
    return text


def whole(run):
    """All sections, as a page beside the plots, which is where we are."""
    return "# make bench\n" + "".join(f"\n## {name[0].upper()}{name[1:]}\n\n{section(run, name, '.')}" for name in SECTIONS)


def put_into(page, run, folder):
    for name in SECTIONS:
        page = re.sub(rf"(<!-- bench: {name} -->\n).*?(<!-- end -->)",
                      lambda place: f"{place[1]}\n{section(run, name, folder)}\n{place[2]}", page, flags=re.DOTALL)
    return page


def main(results, page=None):
    with open(results) as file:
        run = Run(json.load(file))
    folder, name = os.path.split(os.path.abspath(page or results))
    plots = os.path.relpath(os.path.dirname(os.path.abspath(results)), folder)
    os.chdir(folder)
    if page is None:
        print(whole(run), end="")
        return
    with open(name) as file:
        text = file.read()
    with open(name, "w") as file:
        file.write(put_into(text, run, plots))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Tables and plots of a run, in Markdown: report.py RESULTS.JSON [PAGE.MD...]

With pages, puts each of them into these: between <!-- bench: NAME --> and <!-- end -->.
Each figure is the median of the rounds, with the limits of the middle half of them.
"""
import json
import os
import re
import statistics
import sys

import rivals
from delay import ALONE
from stats import ratio, spread

OUTBOX, XADD = rivals.OUTBOX.title, "XADD, pipelined"
LARGE = "outbox, windows of 100,000"
OFF, ON, BESIDE = "throughput, synchronous_commit off", "throughput, synchronous_commit on", "beside a backlog"


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

    def shares(self, part, series, figure):
        """Of the round-trip floor that was measured beside each turn."""
        return [turn[figure] / turn["floor"] for turn in self.parts[part][series]]

    def over_floor(self, part, series, figure):
        return spread(self.shares(part, series, figure))


# Cells.

def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def capital(text):
    return text[0].upper() + text[1:]


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
    rows += [[name, "", cell] for name, cell in others(run)]
    return table(["", "synchronous_commit on", "off, or either"], rows)


def others(run):
    """What was measured with synchronous_commit = off, or does not depend on it."""
    yield from drained(run)
    for part in (part for part in run.parts if part.startswith("delay") and run.has(part, OUTBOX)):
        for figure in ("p50", "p99"):
            yield f"{capital(part)}: {figure}, µs", amount(run.spread(part, OUTBOX, figure))
            if run.has(part, ALONE):
                yield f"The same over that of {ALONE}", share(run.ratio(part, OUTBOX, ALONE, figure))
    series = list(run.parts.get(BESIDE, {}))
    if len(series) == 2:
        yield f"Callers beside {series[1]} over those without: throughput", share(run.ratio(BESIDE, *reversed(series), "rate"))
        yield "The same: p50 of a transaction", share(run.ratio(BESIDE, *reversed(series), "p50"))
    for part, title in ((OFF, OUTBOX), ("drain", LARGE)):
        if run.has(part, title):
            for figure, who in (("relay_cpu", "the dispatcher"), ("redis_cpu", "Redis")):
                yield f"CPU of {who}, µs a message: {'callers at full speed' if part == OFF else 'draining'}", amount(run.spread(part, title, figure))
    if run.has("WAL", OUTBOX, rivals.BUSINESS.title):
        for figure, when in (("later", ""), ("after_checkpoint", ", right after a checkpoint")):
            yield f"WAL of a transaction beyond that of the business alone, bytes{when}", amount(more_wal(run, OUTBOX, figure))
    for thing, of in grown(run):
        yield f"Callers with more {thing} over those with the fewest", share(of)


def drained(run):
    ours = [title for title in run.parts.get("drain", {}) if title.startswith("outbox")]
    peers = [run.values("drain", title, "rate") for title in run.parts.get("drain", {}) if title not in ours and title != XADD]
    best = max(peers, key=statistics.median, default=None)
    if run.has("drain", XADD):
        for title in ours:
            yield f"Drain over {XADD}: {title}", share(run.ratio("drain", title, XADD, "rate"))
    if best:
        for title in ours:
            yield f"Drain over that of the best rival: {title}", share(ratio(run.values("drain", title, "rate"), best))


def grown(run):
    """For each thing, the callers' share of the floor when it had grown, over that before."""
    for part in (name for name in run.parts if name.startswith("growth: ")):
        levels = list(run.parts[part].items())
        if len(levels) > 1:
            first, last = ([pair["outbox"] / pair["floor"] for pair in pairs] for _, pairs in (levels[0], levels[-1]))
            yield f"{part[len('growth: '):]} ({int(levels[-1][0]):,}, not {int(levels[0][0]):,})", ratio(last, first)


def glance(run):
    """A row for each rival with its relay: the whole job in one line."""
    rows = []
    for rival in (rival for rival in rivals.ALL if rival.delivers and not rival.beside_open and rival.messages == 1):
        cells = [cell for part in (ON, OFF) for cell in (over_floor(run, part, rival, "callers"), over_floor(run, part, rival, "whole"))]
        drain_title = LARGE if rival is rivals.OUTBOX else rival.title
        cells.append(cell_of(run, "drain", drain_title, "rate"))
        cells += [cell_of(run, "delay, idle", rival.title, figure) for figure in ("p50", "p99")]
        cells.append("" if rival.client else cell_of(run, OFF, rival.title, "relay_cpu"))
        cells.append(cell_of(run, OFF, rival.title, "wal"))
        if any(cells):
            rows.append([rival.title, str(rival.round_trips), *cells])
    return table(["Shares of the floor of its own client", "round trips", "callers, synchronous_commit on", "whole job, on", "callers, off", "whole job, off",
                  "drain, messages/s", "idle p50, µs", "idle p99, µs", "CPU of the relay, µs a message", "WAL, bytes each"], rows)


def over_floor(run, part, rival, figure):
    return f"{run.over_floor(part, rival.title, figure).median:.2f}" if run.has(part, rival.title) else ""


def cell_of(run, part, title, figure):
    return number(run.spread(part, title, figure).median) if run.has(part, title) else ""


def more_wal(run, title, figure):
    return spread([a - b for a, b in zip(run.values("WAL", title, figure), run.values("WAL", rivals.BUSINESS.title, figure))])


def comparisons(run):
    """What is compared, with its ratio for both settings of synchronous_commit."""
    for rival, name in ((rivals.OUTBOX, "begin, enqueue, commit"), (rivals.TOGETHER, "enqueue and commit in one SELECT"),
                        (rivals.STATEMENT, "handler in one statement"), (rivals.PIPELINED, "pipelined")):
        yield (f"Callers over the round-trip floor: {name}",
               *(run.over_floor(part, rival.title, "callers") if run.has(part, rival.title) else None for part in (ON, OFF)))
    yield both(run, "Callers with the dispatcher at work over those with it off", OUTBOX, rivals.UNDISPATCHED.title, "callers")
    for rival in (rivals.POLLED, rivals.NOTIFIED, rivals.NSERVICEBUS, rivals.PGQ, rivals.LOGICAL, rivals.GRAPHILE, rivals.PG_BOSS):
        yield both(run, f"Whole job over that of: {rival.title}", OUTBOX, rival.title, "whole")
    for rival in (rivals.POLLED, rivals.NSERVICEBUS):
        yield both(run, f"Whole job with enqueue and commit in one SELECT over that of: {rival.title}", rivals.TOGETHER.title, rival.title, "whole")
    yield both(run, f"Whole job with the handler in one statement over that of: {rivals.POLLED_STATEMENT.title}", rivals.STATEMENT.title,
               rivals.POLLED_STATEMENT.title, "whole")
    for rival, beside in ((rivals.OUTBOX, rivals.OUTBOX_BESIDE_OPEN), (rivals.POLLED, rivals.POLLED_BESIDE_OPEN)):
        yield both(run, f"Whole job beside a transaction open for {open_minutes(run, beside)} minutes over that without: {rival.title}",
                   beside.title, rival.title, "whole")


def both(run, name, series, base, figure):
    return name, *(ratio(run.shares(part, series, figure), run.shares(part, base, figure)) if run.has(part, series, base) else None
                   for part in (ON, OFF))


def open_minutes(run, rival):
    """How old the open transaction was in the rounds."""
    minutes = [turn.get("open_for", 0) / 60 for turn in run.parts.get(OFF, {}).get(rival.title, [])] or [0]
    return f"{min(minutes):.0f} to {max(minutes):.0f}"


def floors(run, part):
    """Rows of the floors, of all turns."""
    for floor, of_client in ((rivals.FLOOR, False), (rivals.FLOOR_OF_CLIENT, True)):
        turns = [turn for rival in rivals.ALL if bool(rival.client) == of_client for turn in run.parts.get(part, {}).get(rival.title, [])]
        if turns:
            yield [floor.title, amount(spread([turn["floor"] for turn in turns])), "", "",
                   number(spread([turn["floor_cpu"] for turn in turns]).median), "", "", "", ""]


def throughput(run, part):
    rows = list(floors(run, part))
    for title in in_order(run, part):
        turns = run.parts[part][title]
        delivers = any(rival.title == title and rival.delivers for rival in rivals.ALL)
        rows.append([
            title,
            amount(run.spread(part, title, "callers")),
            share(run.over_floor(part, title, "callers")),
            amount(run.spread(part, title, "whole")) if delivers else "",
            number(run.spread(part, title, "machine_cpu").median),
            number(run.spread(part, title, "relay_cpu").median) if delivers and title != rivals.NSERVICEBUS.title else "",
            number(run.spread(part, title, "redis_cpu").median) if delivers else "",
            number(run.spread(part, title, "wal").median),
            verdict(turns) if delivers else "",
        ])
    heads = ["", "callers: transactions/s", "over the floor of the same client", "whole job: transactions/s", "CPU of all, µs each",
             "CPU of the relay, µs a message", "CPU of Redis, µs a message", "WAL, bytes each", "books"]
    return table(heads, rows) + left_out(run, part)


def in_order(run, part):
    """The titles of those that took part."""
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
        heads, rows = [capital(part), "p50, µs", "p99, µs"], []
        for title in run.parts[part]:
            rows.append([title, *(amount(run.spread(part, title, figure)) for figure in ("p50", "p99"))])
            if run.has(part, ALONE):
                rows[-1] += [share(run.ratio(part, title, ALONE, figure)) if title != ALONE else "1" for figure in ("p50", "p99")]
        if run.has(part, ALONE):
            heads += [f"over {ALONE}: p50", "p99"]
        text += "\n" + table(heads, rows) + left_out(run, part)
    return text.lstrip() or table([], [])


def beside(run):
    part, series = BESIDE, list(run.parts.get(BESIDE, {}))
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


def several(run):
    part, base = "several databases", next(iter(run.parts.get("several databases", {})), None)
    rows = [[title, amount(run.spread(part, title, "rate")), share(run.ratio(part, title, base, "rate")) if title != base else "1",
             *(f"{run.spread(part, title, figure).median:.2f}" for figure in ("dispatchers", "redis"))] for title in run.parts.get(part, {})]
    return table(["A backlog of 200,000 messages in all", "messages/s", "over one database", "dispatchers: of a core", "Redis: of a core"], rows)


def growth(run):
    rows = []
    for part in (name for name in run.parts if name.startswith("growth: ")):
        for level, rounds in run.parts[part].items():
            of = ratio([pair["outbox"] for pair in rounds], [pair["floor"] for pair in rounds])
            more = (amount(spread([one[figure] for one in rounds])) if figure in rounds[0] else "" for figure in ("relay_cpu", "redis_cpu", "wal", "p50"))
            rows.append([part[len("growth: "):], f"{int(level):,}", f"{of.median:.2f} ({of.low:.2f} to {of.high:.2f})", *more])
    return table(["", "how many", "callers over the floor", "CPU of the dispatcher, µs a message", "CPU of Redis, µs a message", "WAL, bytes each",
                  "from commit to stream, idle: p50, µs"], rows)


def loads(run):
    """How many messages a second, and how busy dispatcher and Redis were with them."""
    rows = []
    for rival in (rivals.OUTBOX, rivals.TOGETHER, rivals.PIPELINED, rivals.STATEMENT, rivals.MANY):
        for part, setting in ((ON, "on"), (OFF, "off")):
            turns = run.parts.get(part, {}).get(rival.title, [])
            rates = [turn["whole"] * rival.messages for turn in turns]
            rows.append((f"8 callers, synchronous_commit {setting}: {rival.title}", rates,
                         *([turn[figure] * rate / 1e6 for turn, rate in zip(turns, rates)] for figure in ("relay_cpu", "redis_cpu"))))
    for title in (LARGE, XADD):
        turns = run.parts.get("drain", {}).get(title, [])
        rows.append((f"a backlog: {title}", [turn["rate"] for turn in turns],
                     *([turn[figure] * turn["rate"] / 1e6 for turn in turns] for figure in ("relay_cpu", "redis_cpu"))))
    for title, turns in run.parts.get("several databases", {}).items():
        rows.append((f"backlogs: {title}", *([turn[figure] for turn in turns] for figure in ("rate", "dispatchers", "redis"))))
    return table(["", "messages/s", "dispatchers: of a core", "Redis: of a core"],
                 [[title, amount(spread(rates)), *(f"{spread(values).median:.2f}" for values in more)] for title, rates, *more in rows if rates])


# What a section has: its table, and plots by their names.
SECTIONS = {
    "machine": (machine,),
    "summary": (summary,),
    "rivals": (glance,),
    "throughput on": (lambda run: throughput(run, ON), "whole-on", "callers-on"),
    "throughput off": (lambda run: throughput(run, OFF), "whole-off", "callers-off"),
    "drain": (drain, "drain"),
    "delay": (delay, "delay-p50", "delay-p99", "load"),
    "tradeoff": (tradeoff, "tradeoff"),
    "beside": (beside,),
    "several": (several, "several"),
    "loads": (loads,),
    "wal": (wal,),
    "growth": (growth, "growth", "growth-cpu", "growth-delay"),
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
    return "# make bench\n" + "".join(f"\n## {capital(name)}\n\n{section(run, name, '.')}" for name in SECTIONS)


def put_into(page, run, folder):
    for name in SECTIONS:
        page = re.sub(rf"(<!-- bench: {name} -->\n).*?(<!-- end -->)",
                      lambda place: f"{place[1]}\n{section(run, name, folder)}\n{place[2]}", page, flags=re.DOTALL)
    return page


def update(path, run, plots):
    folder, name = os.path.split(path)
    os.chdir(folder)
    with open(name) as file:
        text = file.read()
    with open(name, "w") as file:
        file.write(put_into(text, run, os.path.relpath(plots, folder)))


def main(results, *pages):
    with open(results) as file:
        run = Run(json.load(file))
    plots, pages = os.path.dirname(os.path.abspath(results)), [os.path.abspath(page) for page in pages]
    for page in pages:
        update(page, run, plots)
    if not pages:
        os.chdir(plots)
        print(whole(run), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])

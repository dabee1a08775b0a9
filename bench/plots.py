"""Plots of a run, drawn by gnuplot: plots.py RESULTS.JSON FOLDER

Bars end at the median, the best at the top; the thin line is the middle half of the
rounds. The outbox's are darker.
"""
import json
import shutil
import subprocess
import sys

import rivals
from stats import ratio
from report import OFF, ON, Run, in_order

OURS, OTHERS = "#1f5fa8", "#b9c4cf"
LINES = ("#1f5fa8", "#c4572e", "#3b8f4d", "#8457a8", "#a8871f", "#4d4d4d")


def bars(path, title, axis, rows, logarithmic=False):
    """rows: name, median, low, high; the first is at the top."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: row[1], reverse=not logarithmic)
    data = "\n".join(f'{len(rows) - i} {middle} {low} {high} {int(name.startswith("outbox"))} "{name}"'
                     for i, (name, middle, low, high) in enumerate(rows))
    left = min(low for _, _, low, _ in rows) / 2 if logarithmic else 0
    height = 24 * len(rows) + 110
    gnuplot(path, height, f"""
$rows << END
{data}
END
{headline(title, height)}
set xlabel "{axis}" noenhanced
set yrange [0.3:{len(rows)}.7]
set xrange [{left}:*]
{"set logscale x" if logarithmic else ""}
set ytics noenhanced scale 0
set xtics nomirror
set grid xtics lc rgb "#dddddd"
set border 1
unset key
set style fill solid
plot $rows using ({left}):1:({left}):2:($1-0.36):($1+0.36):ytic(6) with boxxyerror lc rgb "{OTHERS}", \\
     $rows using ($5 > 0 ? {left} : 1/0):1:({left}):2:($1-0.36):($1+0.36) with boxxyerror lc rgb "{OURS}", \\
     $rows using 2:1:3:4 with xerrorbars pt 0 lc rgb "#333333"
""")


def lines(path, title, x_axis, y_axis, series, settings=""):
    """series: a name and its points, each x, median, low, high."""
    blocks = "\n".join(f"$line{i} << END\n" + "\n".join(" ".join(map(str, point)) for point in points) + "\nEND"
                       for i, (_, points) in enumerate(series))
    plots = ", ".join(f'$line{i} using 1:2:3:4 with yerrorlines lw 2 pt 7 ps 0.6 lc rgb "{LINES[i % len(LINES)]}" title "{name}"'
                      for i, (name, _) in enumerate(series))
    height = 380
    if series:
        gnuplot(path, height, f"""
{blocks}
{headline(title, height)}
set xlabel "{x_axis}" noenhanced
set ylabel "{y_axis}" noenhanced
set key outside right noenhanced
set grid lc rgb "#dddddd"
set border 3
set tics nomirror
{settings}
plot {plots}
""")


def headline(title, height):
    return f'set label "{title}" at screen 0.02, screen {1 - 16 / height} left noenhanced font ",14"\nset tmargin 3'


def gnuplot(path, height, script):
    head = f'set terminal svg size 860,{height} font "sans-serif,12" background "#ffffff"\nset output "{path}"\n'
    subprocess.run(["gnuplot"], input=head + script, text=True, check=True)


def shares(run, part, figure, delivering):
    """Without those whose transactions carry more than others'."""
    rows = []
    wanted = {rival.title for rival in rivals.ALL if rival.messages == 1 and (rival.delivers or not delivering)}
    for title in in_order(run, part):
        if title in wanted:
            of = run.over_floor(part, title, figure)
            rows.append((title, of.median, of.low, of.high))
    return rows


def absolute(run, part, figure, skip=()):
    rows = []
    for title in run.parts.get(part, {}):
        if title not in skip:
            of = run.spread(part, title, figure)
            rows.append((title, of.median, of.low, of.high))
    return rows


def growth(run, figure, base=None):
    """For each thing, a figure or its ratio to another, beside what it was before that grew."""
    series = []
    for part in (name for name in run.parts if name.startswith("growth: ")):
        points, first = [], None
        for level, rounds in run.parts[part].items():
            if figure in rounds[0]:
                of = ratio([one[figure] for one in rounds], [one[base] if base else 1 for one in rounds])
                first = first or (int(level), of.median)
                points.append((int(level) / first[0], of.median / first[1], of.low / first[1], of.high / first[1]))
        if points:
            series.append((f"{part[len('growth: '):]} ({first[0]:,} at 1)", points))
    return series


def loads(run):
    """The outbox's delay by the share of its throughput that is asked for."""
    series = {"p50": [], "p99": []}
    for part in sorted(name for name in run.parts if name.startswith("delay, at ")):
        share = int(part.split()[2])
        for figure, points in series.items():
            if run.has(part, rivals.OUTBOX.title):
                of = run.spread(part, rivals.OUTBOX.title, figure)
                points.append((share, of.median, of.low, of.high))
    return [(name, points) for name, points in series.items() if len(points) > 1]


def tradeoff(run):
    """Throughput over delay: a point for each setting."""
    part, points = "outbox.max_dispatch_delay", []
    for limit in run.parts.get(part, {}):
        floor = ratio(run.values(part, limit, "outbox"), run.values(part, limit, "floor"))
        points.append((run.spread(part, limit, "p50").median / 1000, floor.median, floor.low, floor.high))
    return [(f"{part} = {', '.join(run.parts.get(part, {}))} ms", points)] if points else []


def draw(run, folder):
    """Draws nothing where there is no gnuplot."""
    if not shutil.which("gnuplot"):
        return
    for name, part in (("on", ON), ("off", OFF)):
        bars(f"{folder}/callers-{name}.svg", f"Callers' throughput (synchronous_commit {name})",
             "share of the round-trip floor", shares(run, part, "callers", False))
        bars(f"{folder}/whole-{name}.svg", f"Throughput of the whole job, until drained (synchronous_commit {name})",
             "share of the round-trip floor", shares(run, part, "whole", True))
    bars(f"{folder}/drain.svg", "Draining a backlog", "messages a second", absolute(run, "drain", "rate"))
    bars(f"{folder}/delay-p50.svg", "From commit to stream, idle: median", "microseconds", absolute(run, "delay, idle", "p50"), True)
    bars(f"{folder}/delay-p99.svg", "From commit to stream, idle: 99 of 100 are faster", "microseconds", absolute(run, "delay, idle", "p99"), True)
    lines(f"{folder}/load.svg", "From commit to stream, under load", "load, % of the highest throughput", "microseconds", loads(run),
          "set logscale y\nset xrange [0:100]")
    lines(f"{folder}/tradeoff.svg", "Throughput for delay: callers at full speed", "median from commit to stream, ms", "share of the floor", tradeoff(run),
          "set yrange [0:*]\nset key bottom right inside")
    for name, title, *figures in (("growth", "Callers' throughput as things grow", "outbox", "floor"),
                                  ("growth-cpu", "CPU of the dispatcher for a message as things grow", "relay_cpu"),
                                  ("growth-delay", "From commit to stream, idle, as things grow", "p50")):
        lines(f"{folder}/{name}.svg", title, "times as many", "share of what it was", growth(run, *figures),
              "set logscale x\nset xrange [0.9:120]\nset yrange [0:*]")
    bars(f"{folder}/several.svg", "Backlogs of several databases", "messages a second",
         [(f"outbox, {row[0]}", *row[1:]) for row in absolute(run, "several databases", "rate")])


def main(results, folder):
    with open(results) as file:
        draw(Run(json.load(file)), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])

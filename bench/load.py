"""Callers at full speed, or at a given rate: pgbench, or a rival's own client."""
import glob
import math
import re
import subprocess
import time
from dataclasses import dataclass

from rivals import PROGRAMS, CannotRun, environment
from servers import FOLDER, SOCKET, conninfo, host

CLIENTS = 8


@dataclass(frozen=True)
class Load:
    transactions: int
    rate: float     # a second
    ended: float    # when the last one had committed


def run(rival, seconds, synchronous="on", **options):
    return finish(start(rival, seconds, synchronous, **options))


def start(rival, seconds, synchronous="on", clients=CLIENTS, rate=None, variables=(), log=None, transactions=None):
    if rival.client:
        command = [f"{PROGRAMS}/{rival.client}", conninfo(rival.server, rival.database), SOCKET, str(clients), str(seconds), *rival.client_mode]
    else:
        command = ["pgbench", "-n", "-M", "prepared", "-h", host(rival.server), "-U", "postgres", "-f", rival.file(rival.caller),
                   "-c", str(clients), "-j", str(min(2, clients))]
        command += ["-t", str(transactions // clients)] if transactions else ["-T", str(math.ceil(seconds))]
        command += ["-R", f"{rate:.0f}"] if rate else []
        command += ["-l", f"--log-prefix={log}"] if log else []
        command += [f"--define={name}={value}" for name, value in variables]
        command.append(rival.database)
    return subprocess.Popen(command, env=environment(synchronous), cwd=FOLDER, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process):
    output, errors = process.communicate()
    ended = time.monotonic()
    done = re.search(r"actually processed: (\d+)", output)
    rate = re.search(r"^tps = ([\d.]+)", output, re.MULTILINE)
    failed = re.search(r"failed transactions: (\d+)", output)
    if process.returncode != 0 or not done or not rate or failed and failed.group(1) != "0":
        raise CannotRun("its callers failed: " + (errors.strip() or output.strip())[-400:])
    return Load(int(done.group(1)), float(rate.group(1)), ended)


def delays(log):
    """Microseconds that each transaction took, of a load that wrote a log."""
    times = []
    for path in glob.glob(f"{log}.*"):
        with open(path) as lines:
            times += [int(line.split()[2]) for line in lines]
    return times

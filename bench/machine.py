"""On what and with what a run was made."""
import os
import platform
import subprocess
import time
from dataclasses import asdict

from servers import redis_server, sql


def about(scale):
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cores": os.cpu_count(),
        "processor": processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2 ** 30:.0f} GB",
        "system": f"{system()}, Linux {platform.release()}",
        "postgresql": sql("ours", "postgres", "SHOW server_version"),
        "redis": redis_server.info("server")["redis_version"],
        "node": output("node", "--version"),
        "load_before": os.getloadavg()[0],
        "scale": asdict(scale),
    }


def processor():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def system():
    with open("/etc/os-release") as lines:
        return next(line.split("=")[1].strip().strip('"') for line in lines if line.startswith("PRETTY_NAME"))


def output(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()
    except FileNotFoundError:
        return None

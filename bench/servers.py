"""The private servers of the bench, and what is asked of them.

`ours` preloads the library. `theirs` does not, and has the rivals, the round-trip
floor and the business transaction. `logical` is like `theirs`, with wal_level =
logical. All have the same settings otherwise; see bench/servers. One Redis, with an
append-only file, has the streams of all; another one shows what two take.
"""
import functools
import os
import subprocess

import psycopg
import redis

FOLDER = os.environ.get("SANDBOX", "")
SOCKET = FOLDER + "/redis/redis.sock"
SECOND_SOCKET = FOLDER + "/second/redis.sock"
STREAM = "bench"


def host(server):
    return f"{FOLDER}/{server}"


def conninfo(server, database):
    return f"host={host(server)} dbname={database} user=postgres"


def connect(server, database="postgres"):
    return psycopg.connect(conninfo(server, database), autocommit=True)


def sql(server, database, query, *values):
    """Runs a query; returns the first column of its first row."""
    with connect(server, database) as connection:
        cursor = connection.execute(query, values or None)
        return cursor.fetchone()[0] if cursor.description else None


def run_file(server, database, path, **variables):
    """Runs a file with psql."""
    options = [f"--set={name}={value}" for name, value in variables.items()]
    command = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", *options, "-o", "/dev/null", "-f", path, conninfo(server, database)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().split("\n")[0])


def create_database(server, database):
    sql(server, "postgres", f"CREATE DATABASE {database}")
    sql(server, database, "CREATE TABLE business (id bigserial PRIMARY KEY, number bigint, value text)")


def wal_position(server):
    return int(sql(server, "postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'"))


@functools.cache
def redis_at(socket):
    return redis.Redis(unix_socket_path=socket)


redis_server = redis_at(SOCKET)


def redis_pid(socket=SOCKET):
    return redis_at(socket).info("server")["process_id"]


def stream_length(socket=SOCKET):
    return redis_at(socket).xlen(STREAM)


def forget_streams(socket=SOCKET):
    """Deletes all streams; the outbox's own keys stay."""
    redis_at(socket).eval("for _, key in ipairs(redis.call('KEYS', '*')) do "
                          "if string.sub(key, 1, 7) ~= 'outbox:' then redis.call('DEL', key) end end", 0)


def backends(server, application):
    with connect(server) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (application,)).fetchall()
    return [pid for pid, in rows]


def cpu_of(pids):
    """Microseconds of CPU that processes have used, with all their threads."""
    used = 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat") as line:
                    used += int(line.read().split()[0])
        except FileNotFoundError:
            pass
    return used / 1000


def cpu_of_machine():
    """Microseconds of CPU that all processes have used."""
    with open("/proc/stat") as lines:
        user, nice, system, _, _, irq, softirq = lines.readline().split()[1:8]
    return (int(user) + int(nice) + int(system) + int(irq) + int(softirq)) * 1e6 / os.sysconf("SC_CLK_TCK")

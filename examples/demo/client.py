"""A client: handles incoming messages, each in one transaction of PostgreSQL.

    client.py CONNINFO STREAM

Reads messages from standard input, one JSON object a line, and answers each on
standard output with what came of it:

    processed   it was new and is committed
    duplicate   it had been processed before
    raced       another client committed the same message first: deliver it again
    failed      the connection broke, and is there again: deliver it again
    error       nothing that should happen

"ready" comes first, once it is connected. It takes no notice of what it has not
answered yet: the queue does (see intake.py). So it may die at any line.
"""

import json
import logging
import signal
import sys
import time

import psycopg

# What pgbench does by default; the message's id goes into the filler of the history.
TPC_B = (
    "UPDATE pgbench_accounts SET abalance = abalance + %(delta)s WHERE aid = %(account)s",
    "SELECT abalance FROM pgbench_accounts WHERE aid = %(account)s",
    "UPDATE pgbench_tellers SET tbalance = tbalance + %(delta)s WHERE tid = %(teller)s",
    "UPDATE pgbench_branches SET bbalance = bbalance + %(delta)s WHERE bid = %(branch)s",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler)"
    " VALUES (%(teller)s, %(branch)s, %(account)s, %(delta)s, CURRENT_TIMESTAMP, %(id)s)",
)
TIMED = "0"  # last digit of the messages whose commit is timed


def main(conninfo, stream):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo decides when to stop
    # Errors are answers here: psycopg must not warn that the rest of a pipeline was skipped.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    connection = connect(conninfo)
    answer(outcome="ready")
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer(**handle(connection, message, stream))
        except psycopg.errors.UniqueViolation as error:
            connection.rollback()
            if error.diag.constraint_name == "outbox_record_claimed":
                answer(outcome="raced")
            else:
                answer(outcome="error", reason=str(error))
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            connection.close()
            connection = connect(conninfo)
            answer(outcome="failed", reason=str(error))
        except psycopg.Error as error:
            answer(outcome="error", reason=str(error))
            return


def handle(connection, message, stream):
    """The message handler: business rows, event and the memory of the message commit together."""
    with connection.pipeline():
        connection.execute("BEGIN")
        is_new = connection.execute("SELECT outbox_begin(%s)", [message["id"]]).fetchone()[0]
        if not is_new:
            connection.execute("ROLLBACK")
            return {"outcome": "duplicate"}

        for statement in TPC_B:
            connection.execute(statement, message)
        connection.execute("SELECT outbox_enqueue(%s, %s::jsonb)", [stream, balance_changed(message)])
        connection.execute("SELECT outbox_commit()")
        connection.execute("COMMIT")
        if message["id"].endswith(TIMED):
            # The server runs this right after the commit, so it shows when that was done.
            clock = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        else:
            clock = None

    if clock is None:
        return {"outcome": "processed"}
    return {"outcome": "processed", "committed_at": clock.fetchone()[0]}


def balance_changed(message):
    return json.dumps({"type": "BalanceChanged", "account": message["account"], "delta": message["delta"]})


def connect(conninfo):
    """Connect; if the server is just being started again, wait for it."""
    while True:
        try:
            # Nothing is prepared: psycopg 3.1 takes a statement for prepared
            # although the pipeline that should have done it was aborted before.
            return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError:
            time.sleep(0.1)


def answer(**fields):
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

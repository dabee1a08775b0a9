#!/usr/bin/env python3
"""Handles incoming messages: each becomes an order and an event, in one transaction.

    producer.py CONNINFO < messages

Reads messages from standard input, one to a line, as {"id": ..., "customer": ...,
"amount": ...}; a real one would get them from its broker and acknowledge each
when handle() has returned. The tables are in schema.sql. Prints for each message
whether it was processed or a duplicate.
"""

import json
import sys

import psycopg

ENDPOINT = "orders"
STREAM = "order-events"


def main(conninfo):
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for line in sys.stdin:
            message = json.loads(line)
            is_new = handle(connection, message)
            print(message["id"], "processed" if is_new else "duplicate", flush=True)


def handle(connection, message):
    """Process a message, whatever happens at the same time; return False for a duplicate."""
    while True:
        try:
            return try_to_handle(connection, message)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            continue  # another transaction was faster; nothing has happened
        except psycopg.errors.UniqueViolation as error:
            # Somebody has processed a copy of this message meanwhile: the next try will see it.
            if error.diag.constraint_name != "outbox_record_claimed":
                raise


def try_to_handle(connection, message):
    with connection.transaction():
        # The endpoint is an argument and not a SET: a pooler may give the session to others.
        begin = connection.execute("SELECT outbox_begin(%s, endpoint => %s)", (message["id"], ENDPOINT))
        (is_new,) = begin.fetchone()
        if not is_new:
            return False

        connection.execute(
            "INSERT INTO orders (customer, amount) VALUES (%s, %s)",
            (message["customer"], message["amount"]),
        )
        event = {"customer": message["customer"], "amount": message["amount"]}
        connection.execute(
            "SELECT outbox_enqueue(%s, %s::jsonb, %s::jsonb)",
            (STREAM, json.dumps(event), json.dumps({"type": "OrderPlaced"})),
        )
        connection.execute("SELECT outbox_commit()")
    return True


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

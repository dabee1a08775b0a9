#!/usr/bin/env python3
"""Handles incoming messages: each becomes an order and an event, in one transaction.

    producer.py URL-OF-POSTGRESQL < messages

Reads messages from standard input, one to a line: id, customer, amount. A real
program would get them from its broker and acknowledge each when handle() has
returned. Prints for each message whether it was processed, a duplicate, or refused.
"""

import sys
import time

import psycopg


def main(url):
    connection = None
    for line in sys.stdin:
        message = line.split()
        result = None
        clashed = False
        while result is None:
            try:
                if connection is None:
                    # A transaction pooler does not carry prepared statements over.
                    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
                result = handle(connection, *message)
            except psycopg.Error as error:
                result = after_error(error, clashed)
                clashed = clashed or isinstance(error, psycopg.errors.UniqueViolation)
                if connection is None or connection.closed:
                    connection = None
                    print("trying again:", error, file=sys.stderr)
                    time.sleep(0.1)
        print(message[0], result, flush=True)


def handle(connection, message_id, customer, amount):
    with connection.transaction():
        # The endpoint is an argument and not a SET: a pooler may give the session to others.
        (is_new,) = connection.execute("SELECT outbox_begin(%s, endpoint => 'orders')", (message_id,)).fetchone()
        if not is_new:
            return "duplicate"
        connection.execute("INSERT INTO orders (customer, amount) VALUES (%s, %s::integer)", (customer, amount))
        connection.execute(
            "SELECT outbox_enqueue('order-events', jsonb_build_object('customer', %s::text, 'amount', %s::integer), %s::jsonb)",
            (customer, amount, '{"type": "OrderPlaced"}'),
        )
        connection.execute("SELECT outbox_commit()")
    return "processed"


def after_error(error, clashed):
    """Return "refused" for a message that no retry will help, None to try again."""
    if isinstance(error, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)):
        return None  # another transaction was faster; nothing has happened
    if isinstance(error, psycopg.errors.UniqueViolation) and not clashed:
        return None  # perhaps a copy was processed meanwhile: then the next try is a duplicate
    if isinstance(error, (psycopg.DataError, psycopg.IntegrityError)):
        return "refused"  # poison: to be put where somebody will look at it
    if isinstance(error, psycopg.OperationalError):
        return None  # the connection was lost: with the same id it is safe to begin again
    raise error


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

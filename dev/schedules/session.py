"""A connection that does not wait for the answer."""

import select
import time

import psycopg
from psycopg import pq

PATIENCE = 180  # seconds; no statement takes longer


class Stuck(Exception):
    """Something did not come to an end."""


class Answer:
    """The last result of what was sent: a value, an error or the loss of the connection."""

    def __init__(self, value=None, sqlstate=None, message="", constraint=None, tag=""):
        self.value = value
        self.sqlstate = sqlstate
        self.message = message
        self.constraint = constraint
        self.tag = tag

    LOST = "lost"  # in place of a SQLSTATE

    def __str__(self):
        return self.sqlstate or str(self.value if self.value is not None else self.tag)


class Session:
    def __init__(self, conninfo):
        self.conninfo = conninfo
        self.connection = None
        self.open()

    def open(self):
        self.connection = pq.PGconn.connect(self.conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(self.connection.error_message.decode())

    def close(self):
        self.connection.finish()

    @property
    def pid(self):
        return self.connection.backend_pid

    def send(self, sql):
        try:
            self.connection.send_query(sql.encode())
        except psycopg.OperationalError:
            pass  # poll() will say so

    def poll(self, seconds):
        """The answer, or None if there is none yet."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.connection.consume_input()
            except psycopg.OperationalError as error:
                return Answer(sqlstate=Answer.LOST, message=str(error))
            if not self.connection.is_busy():
                return self.answer()
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.connection.socket], [], [], left)[0]:
                return None

    def answer(self):
        last = Answer()
        while (result := self.connection.get_result()) is not None:
            if result.status == pq.ExecStatus.TUPLES_OK:
                value = result.get_value(0, 0) if result.ntuples and result.nfields else None
                last = Answer(value=value and value.decode(), tag=result.command_status.decode())
            elif result.status == pq.ExecStatus.COMMAND_OK:
                last = Answer(tag=result.command_status.decode())
            else:
                last = self.error(result)
        if self.connection.status != pq.ConnStatus.OK:
            return Answer(sqlstate=Answer.LOST)
        return last

    @staticmethod
    def error(result):
        def field(which):
            return (result.error_field(which) or b"").decode()

        state = field(pq.DiagnosticField.SQLSTATE)
        # 57P01, 57P02, 57P03: we are being disconnected.
        return Answer(
            sqlstate=Answer.LOST if state == "" or state.startswith("57P") else state,
            message=field(pq.DiagnosticField.MESSAGE_PRIMARY),
            constraint=field(pq.DiagnosticField.CONSTRAINT_NAME),
        )

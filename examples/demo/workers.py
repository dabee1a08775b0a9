"""The demo's own child processes: clients and the probe, talked to by lines of JSON."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Worker:
    """A Python script of this folder as a child process."""

    def start(self):
        command = [sys.executable, os.path.join(HERE, self.script), *self.arguments()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.output = self.process.stdout
        self.is_gone = False
        self._rest = b""

    @property
    def pid(self):
        return self.process.pid

    def answers(self):
        """Return the answers that have come; to be called when output is readable."""
        data = os.read(self.output.fileno(), 65536)
        self.is_gone = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self):
        """End it, if it has not ended, and return what ended it."""
        self.process.kill()
        status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        return ending(status)


class Client(Worker):
    """A client process; see client.py."""

    script = "client.py"

    def __init__(self, number, conninfo, stream):
        self.number = number
        self.name = f"client {number}"
        self.conninfo = conninfo
        self.stream = stream

    def arguments(self):
        return self.conninfo, self.stream

    def start(self):
        super().start()
        self.is_idle = False  # until it says that it is ready

    def handle(self, message):
        self.is_idle = False
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died, which the end of its output will show

    def answers(self):
        answers = super().answers()
        self.is_idle = self.is_idle or bool(answers)
        return answers


class Probe(Worker):
    """A consumer that notes arrivals; see probe.py."""

    FIRST = "0"  # where a stream begins

    script = "probe.py"
    name = "probe"

    def __init__(self, redis_url, stream):
        self.redis_url = redis_url
        self.stream = stream
        self.last = self.FIRST  # newest entry that it has reported

    def arguments(self):
        return self.redis_url, self.stream, self.last

    def answers(self):
        answers = super().answers()
        if answers:
            self.last = answers[-1]["last"]
        return answers


def ending(status):
    """Say in words how a process ended."""
    return f"was killed by signal {-status}" if status < 0 else f"ended with code {status}"

"""Plays one schedule and compares the result with the rule.

The rule, whatever the order of the steps:

    a message is processed to its commit once, and once more for each time that it has expired or was forgotten;
    its business row is there as often as that, and so it is (see schedules.py) in Redis;
    what nobody has committed can be begun, what was committed is a duplicate, and can be forgotten;
    no worker meets an error but where it says that it may.
"""

import collections
import os
import signal
import threading
import time

from plan import RING, OPTIMISTIC, ISOLATIONS, reduced
from session import PATIENCE, Answer, Session, Stuck

READ_COMMITTED = ISOLATIONS[0]

SQL = {
    "open": "BEGIN ISOLATION LEVEL {isolation}; SELECT 1",
    "begin": "SELECT outbox_begin('{message}', concurrency => '{mode}')",
    "handle": "INSERT INTO handled VALUES ('{message}')",
    "enqueue": "SELECT outbox_enqueue('out', '{message}')",
    "seal": "SELECT outbox_commit()",
    "forget": "SELECT outbox_forget('{message}')",
    "commit": "COMMIT",
    "abort": "ROLLBACK",
}

# A message is delivered again: it is processed if it is new.
AGAIN = """
CREATE FUNCTION deliver_again(message text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT outbox_begin(message, concurrency => 'optimistic') THEN
        RETURN false;
    END IF;
    INSERT INTO handled VALUES (message);
    PERFORM outbox_enqueue('out', message);
    PERFORM outbox_commit();
    RETURN true;
END
$$
"""

STILL_NEW = "SELECT CASE WHEN outbox_begin(%s, concurrency => 'pessimistic') THEN outbox_commit() >= 0 ELSE false END"

CLAIMS = ("begin", "seal", "forget")
PAUSE = 0.01  # seconds that a process is stopped


def proceed(pid):
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass  # it has been killed meanwhile


class Worker:
    def __init__(self, number, programme):
        self.number = number
        self.programme = programme
        self.plan = programme.plan()
        self.session = None
        self.running = None  # step that was sent and has not been answered
        self.is_duplicate = False
        self.begun_at = None
        self.forgotten = []  # messages that it has forgotten
        self.claims = []  # messages that it has sealed as new ones: (message, when it got the answer that it is new)
        self.started = False
        self.has_waited = False  # longer than the step takes

    @property
    def next(self):
        return self.plan[0][0] if self.plan else None


class Play:
    def __init__(self, case, chooser, ring, pool, prefix):
        self.case = case
        self.chooser = chooser
        self.ring = ring
        self.pool = pool  # sessions that are free
        self.prefix = prefix
        self.workers = [Worker(n, programme) for n, programme in enumerate(case.workers)]
        self.ring_plan = list(case.ring)
        self.messages = sorted({message for worker in case.workers for message in worker.messages})
        self.committed = {message: [] for message in self.messages}  # → (when commit was sent, when begin had said that it is new)
        self.commits_sent = collections.Counter()  # of messages that were processed
        self.forgets_sent = collections.Counter()  # likewise, of those that were forgotten
        self.forgets = collections.Counter()  # … and whose commit was answered
        self.said_duplicate = set()
        self.story = []
        self.faults = []

    def name(self, message):
        return f"{self.prefix} m{message}"

    def fault(self, text):
        self.faults.append(text)

    def tell(self, actor, text):
        self.story.append(f"{actor}: {text}")

    #
    # Playing
    #
    def play(self):
        """Returns what was wrong; [] if all went well."""
        while True:
            self.settle()
            options = self.options()
            if not options:
                break
            for actor in self.chooser(options):
                self.act(actor)
                self.pause()
        for worker in self.workers:
            if worker.session:
                self.pool.append(worker.session)
        self.compare()
        return self.faults

    def options(self):
        possible = [worker.number for worker in self.workers if worker.plan and (not worker.running or worker.next == "crash")]
        if self.ring_plan and not self.is_too_early(self.ring_plan[0]):
            possible.append(RING)
        return reduced(
            possible,
            [worker.next for worker in self.workers],
            [worker.started for worker in self.workers],
            self.case.workers,
            not self.ring_plan,
        )

    def is_too_early(self, what):
        """Check whether an expensive step is useless, because nothing has been committed."""
        return what in ("half expire", "expire", "compact much") and any(worker.plan for worker in self.workers) and not any(self.committed.values())

    def act(self, actor):
        if actor == RING:
            what = self.ring_plan.pop(0)
            self.tell(RING, what)
            self.ring.step(what)
            return
        worker = self.workers[actor]
        if worker.running and worker.next != "crash":
            return  # it was the first of two that were chosen together, and now it waits
        worker.started = True
        if worker.session is None:
            worker.session = self.pool.pop() if self.pool else Session(self.ring.conninfo)
        what, message = worker.plan.pop(0)
        if what == "crash":
            self.crash(worker)
        elif not self.skips(worker, what):
            self.send(worker, what, message)

    def skips(self, worker, what):
        """Check whether a handler leaves out this step after a duplicate."""
        return worker.is_duplicate and what in ("handle", "enqueue", "seal")

    def send(self, worker, what, message):
        programme = worker.programme
        sql = SQL[what].format(
            isolation=programme.isolation.lower(),
            mode=programme.mode,
            message=message and self.name(message),
        )
        if what in ("begin", "forget") and worker.session.connection.transaction_status == 0:  # idle
            sql = f"BEGIN; {sql}"
        if what == "commit":
            self.commits_sent.update(message for message, _ in worker.claims)
            self.forgets_sent.update(worker.forgotten)
        worker.running = (what, message, (self.times(message), self.forgets[message]), time.monotonic())
        worker.session.send(sql)

    def crash(self, worker):
        self.ring.terminate(worker.session.pid)
        worker.session.close()
        worker.session = None
        worker.running = None
        worker.plan.clear()
        self.tell(worker.number, "crash")

    def pause(self):
        """Stops a process wherever it is, for so long that another one may do the same step meanwhile."""
        claiming = [worker for worker in self.workers if worker.running and worker.running[0] in CLAIMS]
        paused = self.chooser.pause(claiming)
        if paused is None:
            return
        worker, place = paused
        until = time.monotonic() + place * self.ring.usual_time
        while time.monotonic() < until:
            pass  # sleeping is not as precise
        pid = worker.session.pid
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return  # the server has died
        threading.Timer(PAUSE, proceed, (pid,)).start()
        worker.has_waited = True
        self.tell(worker.number, "paused")

    def settle(self):
        """Waits until each worker has its answer, or waits for another worker."""
        deadline = time.monotonic() + PATIENCE
        while running := [worker for worker in self.workers if worker.running]:
            for worker in running:
                if answer := worker.session.poll(0.0005):
                    self.answered(worker, answer)
            running = [worker for worker in running if worker.running]
            blocked = [worker for worker in running if self.is_blocked(worker)]
            if running and len(blocked) == len(running) and self.options():
                return
            if time.monotonic() > deadline:
                raise Stuck(f"worker {running[0].number} does not come to an end with {running[0].running}")

    def is_blocked(self, worker):
        pids = [other.session.pid for other in self.workers if other.session and other is not worker]
        is_blocked = self.ring.is_blocked(worker.session.pid, pids)
        worker.has_waited |= is_blocked
        return is_blocked

    #
    # Answers to a worker
    #
    def answered(self, worker, answer):
        what, message, before, sent_at = worker.running
        worker.running = None
        if what in CLAIMS and not worker.has_waited:
            self.ring.usual_time += 0.1 * (time.monotonic() - sent_at - self.ring.usual_time)
        worker.has_waited = False
        self.tell(worker.number, f"{what}{' m%d' % message if message else ''} {answer}")
        if answer.sqlstate == Answer.LOST:
            self.lost(worker)
        elif answer.sqlstate:
            self.check_error(worker, what, message, answer)
            worker.session.send("ROLLBACK")
            worker.session.poll(PATIENCE)
            worker.plan.clear()
        elif what == "begin":
            self.begun(worker, message, before, answer.value == "t")
        elif what == "forget":
            self.check_known(worker, message, before, answer.value == "t")
            if answer.value == "t":
                worker.forgotten.append(message)
        elif what == "seal":
            worker.claims.append((message, worker.begun_at))
        elif what == "commit":
            for claimed, begun_at in worker.claims:
                self.committed[claimed].append((sent_at, begun_at))
            self.forgets.update(worker.forgotten)

    def lost(self, worker):
        worker.session.close()
        worker.session = None
        worker.plan.clear()
        if "kill" not in self.case.ring:
            self.fault(f"worker {worker.number} lost its connection")

    def begun(self, worker, message, before, is_new):
        worker.is_duplicate = not is_new
        worker.begun_at = time.monotonic()
        if not is_new:
            self.said_duplicate.add(message)
        self.check_known(worker, message, before, not is_new)

    def check_known(self, worker, message, before, is_known):
        """Checks that what was committed once more than it was forgotten is known. Meanwhile, either answer is right."""
        committed, forgotten = before
        if not is_known and committed > self.forgets_sent[message] and not self.may_expire():
            self.fault(f"worker {worker.number} is told that m{message} is new, but it was committed before")
        if is_known and self.commits_sent[message] <= forgotten:
            self.fault(f"worker {worker.number} is told that m{message} is known, but it was forgotten or never committed")

    def check_error(self, worker, what, message, answer):
        """Checks that the worker may get this error."""
        programme = worker.programme
        others = [other.programme for other in self.workers if other is not worker]
        if answer.sqlstate == "40P01" and any(len(other.messages) > 1 for other in self.case.workers):
            return
        if answer.sqlstate == "40001" and self.may_expire():
            return
        wanted = ("23505", "outbox_record_claimed") if programme.isolation == READ_COMMITTED else ("40001", "")
        if what == "seal" and programme.mode == OPTIMISTIC and (answer.sqlstate, answer.constraint) == wanted:
            if any(message in other.messages for other in others):
                return
        self.fault(f"worker {worker.number} met an error in {what}: {answer.sqlstate} {answer.message} {answer.constraint}")

    def may_expire(self):
        return any("expire" in what for what in self.case.ring)

    def times(self, message):
        return len(self.committed.get(message, ()))

    #
    # The rule
    #
    def compare(self):
        for message in self.messages:
            name = self.name(message)
            processed = self.committed[message]
            rows = self.rows(name)
            if rows != len(processed):
                self.fault(f"m{message} was committed {len(processed)} times, and has {rows} business rows")
            if not 0 <= len(processed) - self.forgets[message] <= 1 and not self.may_expire():
                self.fault(f"m{message} was committed {len(processed)} times, and forgotten {self.forgets[message]} times")
            if message in self.said_duplicate and not processed:
                self.fault(f"m{message} was called a duplicate, and nobody has committed it")
            self.compare_times(message, processed)
            self.deliver_again(message, name, processed)

    def compare_times(self, message, processed):
        processed = sorted(processed)
        for (commit, _), (_, begun) in zip(processed, processed[1:]):
            if self.forgets[message] == 0 and (not self.may_expire() or begun - commit < self.ring.retention):
                self.fault(f"m{message} was begun again {begun - commit:.3f} s after it had been processed")

    def deliver_again(self, message, name, processed):
        before = self.rows(name)
        is_new = self.ring.value("SELECT deliver_again(%s)", name)
        is_known = len(processed) > self.forgets[message]
        if is_new and is_known:
            age = time.monotonic() - max(processed)[0]
            if not self.may_expire() or age < self.ring.retention:
                self.fault(f"m{message} comes again within {age:.3f} s and is processed again: its id is lost")
        if not is_new and not is_known:
            self.fault(f"m{message} comes again and is called a duplicate, but nobody has committed it since it was forgotten")
        if self.rows(name) != before + is_new:
            self.fault(f"m{message} has {self.rows(name)} business rows when it has come again")
        if not self.may_expire() and self.ring.value(STILL_NEW, name):
            self.fault(f"m{message} is still new when it has been processed")

    def rows(self, name):
        return self.ring.value("SELECT count(*) FROM handled WHERE message = %s", name)

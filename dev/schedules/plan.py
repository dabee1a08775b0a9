"""What is played: cases, and the order in which their steps are taken.

A case says what each worker does and what happens to the ring of records
meanwhile. A schedule is one order of its steps. Which steps are possible is
only known as it is played, for a worker may have to wait for another; so a
schedule is a list of choices among what is possible at each point.
"""

import dataclasses
import itertools

ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
OPTIMISTIC, PESSIMISTIC = "optimistic", "pessimistic"
MODES = [OPTIMISTIC, PESSIMISTIC]
FORGET = "forget"  # in place of a mode: forgets its messages

RING = "ring"  # the actor that rotates, compacts, expires and kills

# Steps that change nothing that another worker reads.
LOCAL = ("handle", "enqueue")


@dataclasses.dataclass(frozen=True)
class Programme:
    """One transaction of a worker: it processes these messages, or forgets them, and ends like this after so many steps."""

    messages: tuple  # numbers
    mode: str
    isolation: str
    ending: str = "commit"  # or abort, crash
    steps: int = 99  # before it ends so

    def plan(self):
        """Its steps as (what, message) in their order."""
        plan = []
        # A snapshot that is older than begin counts only where it is kept.
        if self.isolation != ISOLATIONS[0]:
            plan.append(("open", None))
        steps = ("forget",) if self.mode == FORGET else ("begin", "handle", "enqueue", "seal")
        for message in self.messages:
            plan += [(what, message) for what in steps]
        return [*plan[: self.steps], (self.ending, None)]

    def __str__(self):
        parts = ",".join(f"m{message}" for message in self.messages)
        end = self.ending if self.steps == 99 else f"{self.ending} after {self.steps}"
        return f"{parts} {self.mode} {self.isolation.lower()} {end}"


@dataclasses.dataclass(frozen=True)
class Case:
    family: str
    workers: tuple  # of Programme
    ring: tuple = ()  # steps of the ring

    def __str__(self):
        return f"{self.family}: " + " | ".join(map(str, self.workers + (self.ring and (" ".join(self.ring),) or ())))


def families():
    """All cases, by family."""
    return {
        "two copies": list(two_copies()),
        "two messages": list(two_messages()),
        "three workers": list(three_workers()),
        "two waiters": list(two_waiters()),
        "ring moves on": list(ring_moves_on()),
        "is forgotten": list(is_forgotten()),
        "large segments": list(large_segments()),
        "server dies": list(server_dies()),
        "records expire": list(records_expire()),
    }


def two_copies():
    """Two workers have the same message; each may end in any way after any step."""
    for isolation in ISOLATIONS:
        first = isolation != ISOLATIONS[0]
        endings = [("commit", 99)] + [(how, n) for how in ("abort", "crash") for n in range(1 + first, 5 + first)]
        every = [Programme((1,), mode, isolation, *ending) for mode in MODES for ending in endings]
        for pair in itertools.combinations_with_replacement(every, 2):
            yield Case("two copies", pair)


def two_messages():
    """One transaction may process both, in either order: that can deadlock."""
    for isolation in ISOLATIONS:
        for mode in MODES:
            every = [
                Programme(messages, mode, isolation, ending)
                for messages in ((1,), (2,), (1, 2), (2, 1))
                for ending in ("commit", "abort", "crash")
            ]
            for pair in itertools.combinations_with_replacement(every, 2):
                if {1, 2} == set(pair[0].messages + pair[1].messages):
                    yield Case("two messages", pair)


def three_workers():
    works = [((1,), (1,), (1,)), ((1,), (1,), (2,)), ((1, 2), (2, 1), (1,)), ((1, 2), (1,), (2,))]
    for isolation in ISOLATIONS:
        for modes in itertools.combinations_with_replacement(MODES, 3):
            for work in works:
                for endings in itertools.product(("commit", "abort", "crash"), repeat=3):
                    yield Case(
                        "three workers",
                        tuple(map(Programme, work, modes, [isolation] * 3, endings)),
                    )


def two_waiters():
    """Two wait for a third, which gives up: both claim at the same moment."""
    for isolation in ISOLATIONS:
        claimed = 1 + (isolation != ISOLATIONS[0])
        waiter = Programme((1,), PESSIMISTIC, isolation)
        for ending in ("abort", "crash"):
            for ring in ((), ("rotate",)):
                yield Case("two waiters", (Programme((1,), PESSIMISTIC, isolation, ending, claimed), waiter, waiter), ring)


def ring_moves_on():
    """The segments of records rotate and are compacted between the steps of the workers."""
    rings = [("rotate",), ("compact",), ("rotate", "rotate"), ("rotate", "compact"), ("compact", "rotate")]
    works = [((1,), (1,)), ((1, 2), (1,)), ((1,), (1,), (1,)), ((1,), (2,), (1,))]
    for work in works:
        for isolation in ISOLATIONS:
            for modes in itertools.combinations_with_replacement(MODES, len(work)):
                for endings in [("commit",), ("abort", "commit"), ("crash", "commit")]:
                    for ring in rings:
                        workers = zip(work, modes, itertools.repeat(isolation), (*endings, "commit", "commit"))
                        yield Case("ring moves on", tuple(Programme(*worker) for worker in workers), ring)


def is_forgotten():
    """An administrator forgets the message while it is processed, once or twice."""
    rings = [(), ("rotate",), ("compact",), ("rotate", "compact")]
    for isolation in ISOLATIONS:
        for modes in itertools.combinations_with_replacement(MODES, 2):
            workers = tuple(Programme((1,), mode, isolation) for mode in modes)
            for endings in [("commit",), ("abort",), ("crash",), ("commit", "commit"), ("abort", "commit")]:
                forgetters = tuple(Programme((1,), FORGET, isolation, ending) for ending in endings)
                for ring in rings:
                    yield Case("is forgotten", workers + forgetters, ring)


def large_segments():
    """More keys are compacted than in one step of the dispatcher."""
    for modes in itertools.product(MODES, repeat=2):
        for ring in [("compact much",), ("rotate", "compact much"), ("compact much", "rotate")]:
            yield Case("large segments", tuple(Programme((n,), mode, ISOLATIONS[0]) for n, mode in zip((1, 2), modes)), ring)


def server_dies():
    """A process of the server is killed, and the server recovers."""
    for modes in itertools.combinations_with_replacement(MODES, 2):
        for isolation in ISOLATIONS:
            for ring in [("kill",), ("rotate", "kill"), ("compact", "kill")]:
                yield Case("server dies", tuple(Programme((1,), mode, isolation) for mode in modes), ring)


def records_expire():
    for modes in itertools.combinations_with_replacement(MODES, 2):
        for isolation in ISOLATIONS:
            for ring in [("half expire",), ("expire",), ("rotate", "expire")]:
                yield Case("records expire", tuple(Programme((1,), mode, isolation) for mode in modes), ring)


def reduced(options, next_steps, started, programmes, ring_is_done):
    """Leaves out of the possible actors those that lead to nothing new.

    Workers with the same programme are the same: of those that have not
    started the first one does. And where only workers are left, the order of
    local steps makes no difference.
    """
    kept = []
    for actor in options:
        if actor != RING and not started[actor]:
            if any(programmes[other] == programmes[actor] and not started[other] for other in range(actor)):
                continue
        kept.append(actor)
    local = [actor for actor in kept if actor != RING and next_steps[actor] in LOCAL]
    return local[:1] if local and ring_is_done else kept


class Given:
    """Takes the choices of a list, and the first possible one after its end; notes what it took of how many."""

    def __init__(self, choices=()):
        self.choices = choices
        self.taken = []

    def __call__(self, options):
        position = len(self.taken)
        choice = self.choices[position] if position < len(self.choices) else 0
        self.taken.append((min(choice, len(options) - 1), len(options)))
        return [options[self.taken[-1][0]]]

    def pause(self, running):
        return None

    def following(self):
        """The choices of the next schedule, depth first; None when there is none."""
        taken = list(self.taken)
        while taken:
            choice, n = taken.pop()
            if choice + 1 < n:
                return [made for made, _ in taken] + [choice + 1]
        return None


class Random:
    """Chooses any; now and then two at the same time, or stops one in the middle of its step.

    Half of the time it does so by priorities, two of which change on the way:
    few switches between workers find more than many.
    """

    TOGETHER = 0.2
    PAUSED = 0.4
    CHANGES = 2

    def __init__(self, generator, case):
        length = sum(len(programme.plan()) for programme in case.workers) + len(case.ring)
        actors = [*range(len(case.workers)), RING]
        generator.shuffle(actors)
        self.generator = generator
        self.ranking = actors if generator.random() < 0.5 else None  # the least comes last
        self.changes = [generator.randrange(length) for _ in range(self.CHANGES)]
        self.n = 0

    def __call__(self, options):
        if self.ranking:
            return [self.first(options)]
        if len(options) > 1 and self.generator.random() < self.TOGETHER:
            return self.generator.sample(options, 2)
        return [self.generator.choice(options)]

    def first(self, options):
        for _ in range(self.changes.count(self.n)):
            best = min(options, key=self.ranking.index)
            self.ranking.remove(best)
            self.ranking.append(best)
        self.n += 1
        return min(options, key=self.ranking.index)

    def pause(self, running):
        """Which of those that are in the middle of a step is stopped, and where in it (0 to 1); or None."""
        if running and self.generator.random() < self.PAUSED:
            return self.generator.choice(running), self.generator.random()
        return None

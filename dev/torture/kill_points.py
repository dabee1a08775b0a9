"""Named lines of the source at which a process dies, if the library was built with them; see src/kill_point.h."""

import glob
import os
import re
import subprocess

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CALL = re.compile(r'\bKILL_POINT(\w*)\((?:kind, )?"(\w+)"\)')
RINGS = {"": [""], "_OF_RING": ["log_", "record_", "history_"], "_OF_WRITTEN_RING": ["log_", "record_"]}


def names():
    """All points, as the source has them."""
    found = []
    for path in glob.glob(os.path.join(SOURCE, "*", "**", "*.c"), recursive=True):
        with open(path) as source:
            found += [ring + name for of, name in CALL.findall(source.read()) for ring in RINGS[of]]
    return sorted(found)


def are_built():
    """Check whether the library that is installed has them."""
    folder = subprocess.run(["pg_config", "--pkglibdir"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with open(os.path.join(folder, "outbox.so"), "rb") as library:
        return b"outbox_kill_point" in library.read()


def arm(folder, name, manner, times):
    """Let the process die that comes there next, or for the nth time."""
    path = os.path.join(folder, "outbox_kill_point")
    if os.path.exists(f"{path}.fired"):
        os.unlink(f"{path}.fired")
    with open(f"{path}.new", "w") as file:
        file.write(f"{name} {manner} {times}\n")
    os.rename(f"{path}.new", path)


def has_fired(folder):
    return os.path.exists(os.path.join(folder, "outbox_kill_point.fired"))


def disarm(folder):
    """Return whether it has not fired, and now never will."""
    try:
        os.unlink(os.path.join(folder, "outbox_kill_point"))
        return True
    except FileNotFoundError:
        return False

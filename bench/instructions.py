"""Reads what callgrind counted: instructions.py FOLDER TRANSACTIONS PROCEDURE...

Each procedure has two dumps, of its warm-up and of so many transactions. Prints, for one
transaction or call, the instructions of each library.
"""
import re
import sys
from collections import Counter

LIBRARIES = {"postgres": "postgres", "outbox": "outbox.so", "libcrypto": "libcrypto.so", "libc": "libc.so"}


def count(path):
    """Instructions by library, without those of the calls that they made."""
    names, counts, library, is_call = {}, Counter(), None, False
    with open(path) as lines:
        for line in lines:
            if name := re.match(r"ob=\((\d+)\)(?: (.*))?", line):
                names.setdefault(name[1], name[2])
                library = names[name[1]]
            elif name := re.match(r"cob=\((\d+)\) (.*)", line):
                names.setdefault(name[1], name[2])
            elif line.startswith("calls="):
                is_call = True  # the next line has what was called, too
            elif line[0] in "+-*0123456789":
                if not is_call:
                    counts[library_of(library)] += int(line.split()[1])
                is_call = False
    return counts


def library_of(path):
    file = (path or "").rsplit("/", 1)[-1]
    return next((name for name, start in LIBRARIES.items() if file.startswith(start)), "other")


def main(folder, transactions, *procedures):
    each = {}
    for number, procedure in enumerate(procedures):
        counts = count(f"{folder}/callgrind.{2 * number + 2}")
        each[procedure] = Counter({name: instructions / int(transactions) for name, instructions in counts.items()})
    business, record, one = each["business"], each["record"], each["one_message"]
    show("", {name: name for name in ("all", *LIBRARIES, "other")})
    for title, more, less in (
            ("the business transaction", business, Counter()),
            ("more than that: two inserts by hand", each["by_hand"], business),
            ("more than that: begin, enqueue, commit", one, business),
            ("of these: outbox_begin and outbox_commit", record, business),
            ("of these: outbox_enqueue", one, record),
            ("each further outbox_enqueue", each["two_messages"], one),
            ("a change: outbox_enqueue without a record", each["enqueued"], business),
            ("the same change: outbox_capture", each["captured"], business),
            ("a row: outbox_forward", each["forwarded"], business)):
        difference = Counter(more)
        difference.subtract(less)
        show(title, {"all": f"{difference.total():,.0f}", **{name: f"{instructions:,.0f}" for name, instructions in difference.items()}})


def show(title, cells):
    print(f"{title:42}" + "".join(f"{cells.get(name, '0'):>11}" for name in ("all", *LIBRARIES, "other")))


if __name__ == "__main__":
    main(*sys.argv[1:])

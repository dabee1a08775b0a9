"""Compares what is in the business table with what has arrived in the stream.

Each message names the number of its business row; a transaction with ten messages
numbers them from there. What a relay still owes when a turn ends arrives in its next turn.
"""
from collections import Counter

from servers import STREAM, connect, redis_server

# The numbers of some entries, as one string, and the id of the last.
NUMBERS = """
local numbers, last = {}, false
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', 5000)) do
    last = entry[1]
    for i = 1, #entry[2], 2 do
        if entry[2][i] == 'body' then
            numbers[#numbers + 1] = string.match(entry[2][i + 1], '"account": (%d+)')
        end
    end
end
return {last, table.concat(numbers, ' ')}
"""


owed = {}  # by database: the messages of earlier turns that had not arrived when the relay ended


def arrived():
    numbers, start = Counter(), "-"
    while True:
        last, some = redis_server.eval(NUMBERS, 1, STREAM, start)
        if last is None:
            return numbers
        numbers.update(map(int, some.split()))
        start = b"(" + last


def committed(server, database, messages):
    with connect(server, database) as connection:
        rows = connection.execute("SELECT number FROM business").fetchall()
    return Counter(number + i for number, in rows for i in range(messages))


def due(server, database, messages):
    return committed(server, database, messages) + owed.get(database, Counter())


def compare(server, database, messages=1):
    """Returns how many messages are missing, and how many are there that should not be."""
    there, wanted = arrived(), due(server, database, messages)
    return (wanted - there).total(), (there - wanted).total()


def carry_over(server, database, messages):
    """What has not arrived yet is owed in the next turn."""
    owed[database] = due(server, database, messages) - arrived()


def forget_owed(database):
    owed.pop(database, None)


def count_owed(database):
    return owed.get(database, Counter()).total()

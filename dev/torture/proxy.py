"""A network between the dispatcher and Redis that is slow, breaks, and delivers late.

What a connection has sent arrives even if its client has given it up meanwhile.
"""

import asyncio
import threading

TO_REDIS, TO_CLIENT = "to Redis", "to the client"


class Proxy:
    """Listens on a loopback port; a thread of its own. All methods may be called from any thread."""

    def __init__(self, socket, port=None):
        """Carries to the unix socket, or to a loopback port; TLS passes as it is."""
        self._socket = socket
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._connections = set()
        self._delay = 0
        self._refuses = False
        self._truncations = {}  # direction → bytes that still pass
        self.harmed = 0  # connections that were cut or refused
        self.port = self._loop.run_until_complete(self._listen())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def delay(self, seconds):
        """Delay each packet by so many seconds."""
        self._delay = seconds

    def refuse(self, refuses):
        """Refuse new connections, or no more."""
        self._refuses = refuses

    def cut(self):
        """Close all connections."""
        self._call(lambda: [connection.cut() for connection in list(self._connections)])

    def truncate(self, direction, size):
        """Let so many bytes more pass in that direction, then cut that connection."""
        self._call(lambda: self._truncations.update({direction: size}))

    def hold(self):
        """Hold back what existing connections send and receive; new ones are not affected."""
        self._call(lambda: [connection.flows.clear() for connection in self._connections])

    def release(self):
        """Deliver what was held back."""
        self._call(lambda: [connection.flows.set() for connection in self._connections])

    def heal(self):
        self._delay = 0
        self._refuses = False
        self._call(self._truncations.clear)
        self.release()

    def _call(self, function):
        self._loop.call_soon_threadsafe(function)

    async def _listen(self):
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return server.sockets[0].getsockname()[1]

    async def _accept(self, reader, writer):
        if self._refuses:
            self.harmed += 1
            writer.close()
            return
        try:
            redis_reader, redis_writer = await self._connect()
        except OSError:
            writer.close()
            return
        connection = Connection(writer, redis_writer)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                self._pump(connection, reader, redis_writer, TO_REDIS),
                self._pump(connection, redis_reader, writer, TO_CLIENT),
            )
        finally:
            connection.cut()
            self._connections.discard(connection)

    def _connect(self):
        if self._port:
            return asyncio.open_connection("127.0.0.1", self._port)
        return asyncio.open_unix_connection(self._socket)

    async def _pump(self, connection, reader, writer, direction):
        """Carry what comes from one side to the other until it ends."""
        while True:
            try:
                data = await reader.read(1 << 16)
            except OSError:
                data = b""
            if self._delay:
                await asyncio.sleep(self._delay)
            await connection.flows.wait()
            if direction in self._truncations:
                rest = self._truncations[direction]
                self._truncations[direction] = rest - len(data)
                if rest < len(data):
                    del self._truncations[direction]
                    self.harmed += 1
                    writer.write(data[:rest])
                    await asyncio.sleep(0.01)
                    connection.cut()
                    return
            try:
                if not data:
                    if writer.can_write_eof():
                        writer.write_eof()
                    if direction == TO_CLIENT:
                        connection.cut()
                    return
                if direction == TO_REDIS or not writer.is_closing():
                    writer.write(data)
                    await writer.drain()
            except (OSError, RuntimeError):
                if direction == TO_REDIS:
                    connection.cut()
                    return
                # The client has gone; Redis may still execute what it sent.


class Connection:
    def __init__(self, *writers):
        self.writers = writers
        self.flows = asyncio.Event()
        self.flows.set()

    def cut(self):
        self.flows.set()
        for writer in self.writers:
            writer.close()

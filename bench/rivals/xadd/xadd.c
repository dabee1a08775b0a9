/*
 * xadd.c
 *		Adds messages to a stream as fast as Redis takes them: SOCKET COUNT
 *
 * This is the limit for whatever adds messages one by one: commands are written
 * by hand, with the fields that the outbox writes, and while Redis works on a batch
 * the next one is made. Each reply is checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BATCH				500
#define BODY "{\"type\": \"BalanceChanged\", \"account\": %012ld, \"delta\": -100}"

static int	redis;
static int	unanswered;

static void connect_redis(const char *path);
static void send_batch(long first, int count);
static void read_replies(int left);
static void die(const char *why);

int
main(int argc, char **argv)
{
	long		count = atol(argv[argc - 1]);

	connect_redis(argv[1]);
	for (long sent = 0; sent < count;)
	{
		int			batch = count - sent < BATCH ? count - sent : BATCH;

		send_batch(sent, batch);
		read_replies(batch);
		sent += batch;
	}
	read_replies(0);
	return 0;
}

static void
connect_redis(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	redis = socket(AF_UNIX, SOCK_STREAM, 0);
	if (connect(redis, (struct sockaddr *) &address, sizeof(address)) != 0)
		die("no connection");
}

static void
send_batch(long first, int count)
{
	static char commands[BATCH * 400];
	size_t		length = 0;
	size_t		written = 0;

	for (long number = first + 1; number <= first + count; number++)
	{
		char		body[128];
		int			body_length = snprintf(body, sizeof(body), BODY, number);

		length += sprintf(commands + length,
						  "*9\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$2\r\nid\r\n$36\r\n%08lx-0000-4000-8000-%012lx\r\n"
						  "$4\r\ntime\r\n$13\r\n1700000000000\r\n$4\r\nbody\r\n$%d\r\n%s\r\n",
						  number, number, body_length, body);
	}
	while (written < length)
	{
		ssize_t		n = write(redis, commands + written, length - written);

		if (n <= 0)
			die("cannot write");
		written += n;
	}
	unanswered += count;
}

/*
 * Reads until no more than so many are unanswered. Each reply is "$15", the id of
 * the entry, and a line end after both.
 */
static void
read_replies(int left)
{
	static char buffer[65536];
	static int	lines;			/* of a reply that were read */

	while (unanswered > left)
	{
		ssize_t		n = read(redis, buffer, sizeof(buffer));

		if (n <= 0)
			die("cannot read");
		for (ssize_t i = 0; i < n; i++)
		{
			if (buffer[i] == '-' && i + 1 < n && buffer[i + 1] >= 'A')
				die("Redis has refused a message");
			if (buffer[i] == '\n' && ++lines == 2)
			{
				lines = 0;
				unanswered--;
			}
		}
	}
}

static void
die(const char *why)
{
	fprintf(stderr, "xadd: %s\n", why);
	exit(1);
}

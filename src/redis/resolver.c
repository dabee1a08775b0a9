/*
 * resolver.c
 *		Finds the addresses of a host.
 *
 * Called by redis_link.c and postgres_url.c. A name is looked up by a thread of
 * the C library (getaddrinfo_a of glibc, which blocks all signals in it).
 * If it were not, a resolver that hangs would make this process hang, and with it
 * every DROP DATABASE of the server, which waits for all processes to pass a
 * barrier.
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/redis/resolver.h"
#include "src/wait_event.h"

#define SLICE_MS	10			/* between two checks for an answer */
#define MAX_LOOKUPS	16			/* under way at the same time */
#define LATE_MS		10000		/* after which no caller may rely on an answer
								 * that was given up */

/* A name that the C library looks up. It may still do so after the wait was given up. */
typedef struct Lookup
{
	struct gaicb request;
	struct addrinfo hints;
	char		name[NI_MAXHOST];	/* empty = free */
	bool		waited_for;
	TimestampTz given_up;		/* when it was waited for last */
} Lookup;

static Lookup lookups[MAX_LOOKUPS];

static Lookup *find_lookup(const char *host);
static bool is_out_of_date(Lookup *lookup);
static const char *begin_lookup(Lookup *lookup, const char *host);
static const char *await_lookup(Lookup *lookup, TimestampTz deadline, void (*attend) (void));
static void await_answer(const Lookup *lookup, TimestampTz deadline, void (*attend) (void));
static void add_addresses(const struct addrinfo *found, Addresses *addresses);

/*
 * Finds the addresses of a host, numeric ones at once. Returns NULL, or why
 * there are none. Calls `attend` while it waits, which may raise an error; a
 * nested call from there for the same host fails.
 */
const char *
resolver_find(const char *host, TimestampTz deadline, void (*attend) (void), Addresses *addresses)
{
	unsigned char ignored[sizeof(struct in6_addr)];
	const char *failure;
	Lookup	   *lookup;

	addresses->n = 0;
	if (inet_pton(AF_INET, host, ignored) == 1 || inet_pton(AF_INET6, host, ignored) == 1)
	{
		strlcpy(addresses->text[addresses->n++], host, INET6_ADDRSTRLEN);
		return NULL;
	}
	lookup = find_lookup(host);
	if (lookup == NULL || lookup->waited_for)
		return "too many hosts are being looked up";
	if (lookup->name[0] == '\0' && (failure = begin_lookup(lookup, host)) != NULL)
		return failure;
	failure = await_lookup(lookup, deadline, attend);
	if (failure)
		return failure;
	add_addresses(lookup->request.ar_result, addresses);
	freeaddrinfo(lookup->request.ar_result);
	return addresses->n > 0 ? NULL : "it has no address";
}

/*
 * Returns the lookup of a host that is under way, or was given up before its
 * answer came; otherwise a free one; NULL if there is none.
 */
static Lookup *
find_lookup(const char *host)
{
	Lookup	   *vacant = NULL;

	for (int i = 0; i < MAX_LOOKUPS; i++)
	{
		Lookup	   *lookup = &lookups[i];

		if (strncmp(lookup->name, host, sizeof(lookup->name) - 1) == 0 && !is_out_of_date(lookup))
			return lookup;
		if (lookup->name[0] != '\0' && !lookup->waited_for && gai_error(&lookup->request) != EAI_INPROGRESS)
		{
			/* That one was given up, and has its answer now. */
			if (gai_error(&lookup->request) == 0)
				freeaddrinfo(lookup->request.ar_result);
			lookup->name[0] = '\0';
		}
		if (lookup->name[0] == '\0')
			vacant = lookup;
	}
	return vacant;
}

/* Check whether a lookup was given up so long ago that the answer it has got may not hold any more. */
static bool
is_out_of_date(Lookup *lookup)
{
	return lookup->name[0] != '\0' && !lookup->waited_for && gai_error(&lookup->request) != EAI_INPROGRESS &&
		clock_ms_until_next(lookup->given_up, LATE_MS) <= 0;
}

/* Starts the thread of a lookup. Returns NULL, or why that failed. */
static const char *
begin_lookup(Lookup *lookup, const char *host)
{
	struct gaicb *list[] = {&lookup->request};
	int			result;

	strlcpy(lookup->name, host, sizeof(lookup->name));
	lookup->hints.ai_socktype = SOCK_STREAM;
	memset(&lookup->request, 0, sizeof(lookup->request));
	lookup->request.ar_name = lookup->name;
	lookup->request.ar_request = &lookup->hints;
	result = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
	if (result == 0)
		return NULL;
	lookup->name[0] = '\0';
	return foreign_text_lookup_error(result);
}

/* Waits for the answer, which then belongs to the caller. Returns NULL, or why there is none. */
static const char *
await_lookup(Lookup *lookup, TimestampTz deadline, void (*attend) (void))
{
	int			result;

	lookup->waited_for = true;
	PG_TRY();
	{
		await_answer(lookup, deadline, attend);
	}
	PG_FINALLY();
	{
		lookup->waited_for = false;
		lookup->given_up = clock_now();
	}
	PG_END_TRY();

	result = gai_error(&lookup->request);
	if (result == EAI_INPROGRESS)
		return "timed out";
	lookup->name[0] = '\0';
	return result == 0 ? NULL : foreign_text_lookup_error(result);
}

/* Sleeps until the thread has the answer, or the deadline has passed. */
static void
await_answer(const Lookup *lookup, TimestampTz deadline, void (*attend) (void))
{
	while (gai_error(unconstify(struct gaicb *, &lookup->request)) == EAI_INPROGRESS && clock_now() < deadline)
	{
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, SLICE_MS, wait_event_of(OUTBOX_WAIT_RESOLVER));
		attend();
	}
}

/* Adds the numeric form of what was found, as far as there is room. */
static void
add_addresses(const struct addrinfo *found, Addresses *addresses)
{
	for (; found && addresses->n < MAX_ADDRESSES; found = found->ai_next)
	{
		if (getnameinfo(found->ai_addr, found->ai_addrlen, addresses->text[addresses->n],
						INET6_ADDRSTRLEN, NULL, 0, NI_NUMERICHOST) == 0)
			addresses->n++;
	}
}

/*
 * resolver.c
 *		Finds the addresses of a host.
 *
 * Called by redis_link.c and store_postgres.c. A name is looked up by a thread of the C library
 * (getaddrinfo_a of glibc, which blocks all signals in it), since a resolver
 * that hangs would make this process hang too, and with it every DROP DATABASE
 * of the server: that waits for all processes to pass a barrier.
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
#include "src/resolver.h"

#define SLICE_MS	10			/* between two looks whether it has an answer */

/* Who is attended to meanwhile may want an address, too, but we have one request. */
static bool asking;

static const char *ask(const char *host, TimestampTz deadline, void (*attend) (void),
					   struct addrinfo **found);
static void add_addresses(const struct addrinfo *found, Addresses *addresses);

/*
 * Finds the addresses of a host, numeric ones at once. Returns NULL, or why
 * there is none. Calls `attend` while it waits; that may raise an error, and a
 * call from in there fails.
 */
const char *
resolver_find(const char *host, TimestampTz deadline, void (*attend) (void), Addresses *addresses)
{
	struct addrinfo *found = NULL;
	unsigned char ignored[sizeof(struct in6_addr)];
	const char *volatile failure = NULL;

	addresses->n = 0;
	if (inet_pton(AF_INET, host, ignored) == 1 || inet_pton(AF_INET6, host, ignored) == 1)
	{
		strlcpy(addresses->text[addresses->n++], host, INET6_ADDRSTRLEN);
		return NULL;
	}
	if (asking)
		return "another host is being looked up";
	asking = true;
	PG_TRY();
	{
		failure = ask(host, deadline, attend, &found);
	}
	PG_FINALLY();
	{
		asking = false;
	}
	PG_END_TRY();
	if (failure)
		return failure;
	add_addresses(found, addresses);
	freeaddrinfo(found);
	return addresses->n > 0 ? NULL : "it has no address";
}

static const char *
ask(const char *host, TimestampTz deadline, void (*attend) (void), struct addrinfo **found)
{
	/* One that took too long still runs: its memory must stay, so reuse it. */
	static struct gaicb request;
	static struct addrinfo hints;
	static char name[NI_MAXHOST];
	struct gaicb *list[] = {&request};
	int			result;

	if (request.ar_name == NULL || gai_error(&request) != EAI_INPROGRESS)
	{
		strlcpy(name, host, sizeof(name));
		hints.ai_socktype = SOCK_STREAM;
		memset(&request, 0, sizeof(request));
		request.ar_name = name;
		request.ar_request = &hints;
		result = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
		if (result != 0)
		{
			request.ar_name = NULL;
			return gai_strerror(result);
		}
	}

	while ((result = gai_error(&request)) == EAI_INPROGRESS)
	{
		if (clock_now() >= deadline)
			return "timed out";
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, SLICE_MS, PG_WAIT_EXTENSION);
		attend();
	}
	request.ar_name = NULL;
	if (result != 0)
		return gai_strerror(result);
	*found = request.ar_result;
	if (strcmp(name, host) == 0)
		return NULL;

	/* The answer to an older question. */
	freeaddrinfo(*found);
	return ask(host, deadline, attend, found);
}

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

/*
 * relcache_callback.c
 *		Tells our caches that a relation has changed.
 *
 * Called once by each file that keeps what it knows of relations. PostgreSQL has
 * room for ten relcache callbacks in a process, for all extensions and itself: a
 * process that needs one more ends. So we register one for all of ours.
 */
#include "postgres.h"

#include "utils/inval.h"

#include "src/table/relcache_callback.h"

#define MAX_LISTENERS	8

static RelationListener listeners[MAX_LISTENERS];
static int	nlisteners;

static void tell_listeners(Datum arg, Oid relation);

/* Has a function told of each change, as long as the process lives. */
void
relcache_callback_add(RelationListener listener)
{
	Assert(nlisteners < MAX_LISTENERS);
	if (nlisteners == 0)
		CacheRegisterRelcacheCallback(tell_listeners, (Datum) 0);
	listeners[nlisteners++] = listener;
}

/* A relcache callback. */
static void
tell_listeners(Datum arg, Oid relation)
{
	for (int i = 0; i < nlisteners; i++)
		listeners[i] (relation);
}

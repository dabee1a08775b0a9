/*
 * lanes.c
 *		The lanes that messages are sent in.
 *
 * Called by redis_session.c, which claims them, and by page.c, which asks for the lane
 * of a message. All messages for one Redis are one lane. Nothing here talks to Redis.
 */
#include "postgres.h"

#include "bgworker/publish/lanes.h"

static Lane only;

/* Names the fences of an instance. */
void
lanes_init(const char *instance)
{
	lane_init(&only, instance);
}

/* Begins a connection: no fence is ours yet. */
void
lanes_begin(void)
{
	lane_begin(&only);
}

/* Returns how many lanes are in use. */
int
lanes_count(void)
{
	return 1;
}

/* Returns one of the lanes that are in use. */
Lane *
lanes_get(int n)
{
	return &only;
}

/* Returns the lane of a message. */
Lane *
lanes_find(const Route *route, const Message *message)
{
	return &only;
}

/*
 * slow_commit.c
 *		A module for t/274: makes a commit last, when others see it and before they are told.
 *
 * Loaded by LOAD into a session. At the end of a transaction, when the file slow_commit is in the
 * data directory, it creates the file slow_commit.reached, and waits until the first one is gone.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

static void
wait_in_commit(XactEvent event, void *arg)
{
	FILE	   *reached;

	if (event != XACT_EVENT_COMMIT || access("slow_commit", F_OK) != 0)
		return;
	reached = fopen("slow_commit.reached", "w");
	if (reached)
		fclose(reached);
	while (access("slow_commit", F_OK) == 0)
		pg_usleep(10000);
}

void
_PG_init(void)
{
	RegisterXactCallback(wait_in_commit, NULL);
}

/*
 * batch_verdict.h
 *		What Redis answered to one run of the script.
 */
#ifndef OUTBOX_BATCH_VERDICT_H
#define OUTBOX_BATCH_VERDICT_H

#include <hiredis.h>

#include "src/foreign_text.h"

/* The errors that publish.lua returns begin with one of these. */
#define SCRIPT_FENCE_MOVED	"FENCE"
#define SCRIPT_LEASE_LOST	"LEASE"

typedef struct Verdict
{
	int			added;			/* how many messages were added; -1 = unknown */
	char		error[FOREIGN_TEXT_BYTES];	/* why the next one was not added,
											 * or what is wrong with the
											 * server; empty = no error */
	bool		is_forbidden;	/* one of the streams is, so nothing was
								 * added; which one is not known (forbidden.c) */
	int64	   *refused;		/* places in the batch of those messages; the
								 * caller provides room for a whole batch */
	int			nrefused;
} Verdict;

extern bool batch_verdict_read(Verdict *verdict, redisReply *reply, int messages, bool declared);
extern bool batch_verdict_forbids_key(const redisReply *reply);
extern bool batch_verdict_forbids_command(const char *error);
extern bool batch_verdict_is_of_server(const char *error);
extern bool batch_verdict_is_of_slot(const char *error);
extern bool batch_verdict_is_of_lane(const char *error);
extern bool batch_verdict_is_of_torn_slot(const char *error);

#endif							/* OUTBOX_BATCH_VERDICT_H */

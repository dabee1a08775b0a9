/*
 * limits.h
 *		The limits on arguments of callers, on what is sent at once, and on databases.
 */
#ifndef OUTBOX_LIMITS_H
#define OUTBOX_LIMITS_H

#define MAX_NAME_BYTES	1024	/* of a msgid, message_id, dest or endpoint */
#define MAX_URL_BYTES	1024	/* of a deduplication store */

/* Limits of a message, as it is sent. */
#define MAX_BODY_BYTES	(64 * 1024 * 1024)
#define MAX_HEADERS		1000	/* Lua passes at most 8000 values to a command */
#define MAX_HEADER_BYTES (1024 * 1024)	/* of all names and values together */

/* The limit of outbox.batch_size. */
#define MAX_BATCH_SIZE	10000
#define BATCH_BYTES		(1024 * 1024)	/* a batch that has as many is full */

/* Databases of a server that allow connections, each of which has an entry in shared memory. */
#define MAX_DATABASES	512

#endif							/* OUTBOX_LIMITS_H */

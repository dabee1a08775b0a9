/*
 * limits.h
 *		How large what the callers give may be, each limit in this one place.
 */
#ifndef OUTBOX_LIMITS_H
#define OUTBOX_LIMITS_H

#define MAX_NAME_BYTES	1024	/* of a msgid, message_id, dest or endpoint */
#define MAX_URL_BYTES	1024	/* of a deduplication store */

/* Of a message, as it is sent. */
#define MAX_BODY_BYTES	(64 * 1024 * 1024)
#define MAX_HEADERS		1000	/* Lua hands 8000 values at the most to a
								 * command */
#define MAX_HEADER_BYTES (1024 * 1024)	/* names and values of all together */

#endif							/* OUTBOX_LIMITS_H */

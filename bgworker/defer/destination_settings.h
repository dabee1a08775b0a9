/*
 * destination_settings.h
 *		The settings of destinations that have any.
 */
#ifndef OUTBOX_DESTINATION_SETTINGS_H
#define OUTBOX_DESTINATION_SETTINGS_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/hsearch.h"

#include "src/limits.h"
#include "src/stream/entry.h"

typedef struct Destination
{
	char		dest[MAX_NAME_BYTES + 1];	/* hash key */
	text	   *stream;			/* its key in Redis now; NULL = its name */
	text	   *wanted_stream;	/* the one that it is to have */
	int			maxlen;			/* -1 = outbox.stream_maxlen */
	EntryFormat format;			/* of its entries */
	int			partitions;		/* streams that messages are spread over now;
								 * 0 = one, without a number */
	int			wanted;			/* how many it is to have; -1 = it never had
								 * any */
	bool		is_settled;		/* Redis knows how many */
	TimestampTz compared;		/* when that was seen last, by clock_now() */
	char	   *refusal;		/* why Redis cannot be told; NULL = it can, as
								 * far as we know */
	char	   *sent_dest;		/* its name as UTF-8 */
	char	   *sent_stream;	/* and the key of the wanted stream; both are
								 * set if it ever had partitions */
	bool		holds;			/* a dead message holds back later ones of its
								 * key */
	bool		paused;
} Destination;

extern void destination_load(void);
extern const Destination *destination_find(const text *dest);
extern bool destination_all_paused(void);
extern bool destination_any_has_new_partitions(void);
extern bool destination_any_was_given_partitions(void);
extern List *destination_unsettled(void);
extern List *destination_compared_before(TimestampTz moment);
extern void destination_unsettle(Destination *destination);
extern void destination_settle(Destination *destination);
extern void destination_refuse(Destination *destination, const char *error);
extern const char *destination_refusal(const text *dest);
extern void destination_ask_again(const text *dest);
extern void destination_unsettle_all(void);
extern uint64 destination_changes(void);
extern void destination_each(void (*visit) (const Destination *destination, void *arg), void *arg);
extern void destination_verify_next(void);
extern void destination_each_paused(void (*visit) (const char *dest));
extern HTAB *destination_make_table(const char *name, MemoryContext memory, Size entry_size);
extern void *destination_look_up(HTAB *table, const text *dest);
extern void destination_key(const text *dest, char *key);

#endif							/* OUTBOX_DESTINATION_SETTINGS_H */

/*
 * record_name.h
 *		The incoming message that a record is about, and where the record belongs.
 */
#ifndef OUTBOX_RECORD_NAME_H
#define OUTBOX_RECORD_NAME_H

#include "utils/uuid.h"

#include "src/record/endpoint.h"

typedef struct RecordName
{
	char	   *endpoint;
	char	   *msgid;
	pg_uuid_t	key;			/* hash of both */
	char	   *given;			/* the id as it was given, if the custom
								 * record table spells it in another way, as
								 * one of type uuid may; otherwise NULL */
	int64		retention;		/* microseconds; of a record here, or of the
								 * id in the store if that is longer */
	RecordMapping mapping;		/* custom record table, if it has one */
	char	   *dedup_store;	/* URL, or NULL */
	bool		is_appended;	/* it is written by claim_append() or
								 * claim_restore(), and not by a handler */
	bool		is_restored;	/* it comes out of a dump: what is forgotten
								 * stays so */
	bool		has_receipt;	/* others than the ring are told of the
								 * record: it has a receipt in the log */
} RecordName;

extern void record_name_make(RecordName *name, const Endpoint *endpoint, const char *msgid);
extern bool record_name_as_given(const RecordName *name, RecordName *given);
extern void record_name_free(RecordName *name);
extern void record_name_make_key(const char *endpoint, const char *msgid, pg_uuid_t *key);

#endif							/* OUTBOX_RECORD_NAME_H */

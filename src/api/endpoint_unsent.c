/*
 * endpoint_unsent.c
 *		Finds messages that an endpoint has not sent yet, and ids that were not propagated.
 *
 * Called by outbox_drop_endpoint(). It searches what is committed now, in the
 * log and among deferred messages.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "src/api/endpoint_unsent.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/window_row.h"
#include "src/record/record_name.h"

/* What is searched for among messages that are not yet sent. */
typedef struct EndpointSearch
{
	const char *endpoint;
	bool		has_store;
	const SnapshotValue *published; /* what is in Redis was seen by this */
	bool		found;
	bool		is_id;			/* it is an id that was not propagated yet */
} EndpointSearch;

static void search_undispatched(EndpointSearch *search);
static bool match_message(TupleTableSlot *row, int segment, void *arg);
static bool match_deferred(const Deferred *row, void *arg);
static bool row_is_of(TupleTableSlot *row, const char *endpoint);
static bool message_is_of(const Message *message, const char *endpoint);
static bool key_is_of(const pg_uuid_t *key, const char *endpoint, const text *msgid);

/* Raises 55006 if messages of the endpoint are on their way, or their ids. */
void
endpoint_unsent_check(const char *name, bool has_store)
{
	EndpointSearch search = {.endpoint = name, .has_store = has_store};

	search_undispatched(&search);
	if (search.found && search.is_id)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("endpoint \"%s\" has message ids that have not been propagated", name),
				 errdetail("They are not in its deduplication store yet, or not marked in its record table."),
				 errhint("Wait until they are, or use force => true to forget them.")));
	if (search.found)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("endpoint \"%s\" has messages that have not been sent", name),
				 errhint("Wait until outbox.pending and outbox.dead_letters show none of them, or use force => true; they are still sent then.")));
}

/* Looks for committed messages that Redis may not have, and for ids that may not have been propagated. */
static void
search_undispatched(EndpointSearch *search)
{
	Window		published;
	Window		propagated;

	/*
	 * In the order in which a message may move meanwhile, so that none is
	 * missed.
	 */
	if (!window_row_published(&published))
		return;
	search->published = published.snapshot;
	if (!window_row_propagated(&propagated, !search->has_store) || propagated.number > published.number)
		propagated = published;
	log_scan(SnapshotSelf, propagated.snapshot, snapshot_value_latest(), match_message, search);
	if (!search->found || search->is_id)
		deferred_scan(match_deferred, search);
}

/* A LogReader. A message that is not sent counts more than an id, so an id does not end the scan. */
static bool
match_message(TupleTableSlot *row, int segment, void *arg)
{
	EndpointSearch *search = arg;
	bool		is_sent = snapshot_value_sees(search->published, log_row_tx(row));

	if (is_sent && (search->found || !log_row_is_receipt(row)))
		return true;
	if (!row_is_of(row, search->endpoint))
		return true;
	search->found = true;
	search->is_id = is_sent;
	return is_sent;
}

/* Passes over what is in the log again, and what an administrator has discarded. */
static bool
match_deferred(const Deferred *row, void *arg)
{
	EndpointSearch *search = arg;

	if (row->state == DEFERRED_RETURNED || row->state == DEFERRED_DISCARDED ||
		!message_is_of(&row->message, search->endpoint))
		return true;
	search->found = true;
	search->is_id = false;
	return false;
}

/* Check whether a row of the log is of the endpoint. */
static bool
row_is_of(TupleTableSlot *row, const char *endpoint)
{
	Message		message;
	Receipt		receipt;

	if (log_row_is_receipt(row))
	{
		log_row_receipt(row, &receipt);
		return key_is_of(&receipt.key, endpoint, receipt.msgid);
	}
	log_row_origin(row, &message);
	return message_is_of(&message, endpoint);
}

/* Check whether a message is of the endpoint. */
static bool
message_is_of(const Message *message, const char *endpoint)
{
	if (message->is_of_default)
		return strcmp(endpoint, DEFAULT_ENDPOINT) == 0;
	return message->has_key && message->cause && key_is_of(&message->key, endpoint, message->cause);
}

/* Check whether a key was made for the endpoint. Messages, and some receipts, do not name theirs. */
static bool
key_is_of(const pg_uuid_t *key, const char *endpoint, const text *msgid)
{
	pg_uuid_t	its_key;
	char	   *id = text_to_cstring(msgid);

	record_name_make_key(endpoint, id, &its_key);
	pfree(id);					/* this may be asked for millions of rows */
	return memcmp(&its_key, key, sizeof(*key)) == 0;
}

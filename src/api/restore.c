/*
 * restore.c
 *		What makes pg_restore bring an outbox back, and keeps logical replication
 *		out of it.
 *
 * A dump contains pending and deferred messages, and all records (dump.c). On restore
 * they come by COPY into the table that they were dumped from, which has no
 * meaning in the new database: a trigger redirects each row to the current
 * segment, as part of the transaction that restores it. There it is an ordinary
 * message or record, and the message is sent once.
 *
 * A message gets a new id, because ids of the old database have no meaning
 * among those that were enqueued here meanwhile. Its place among those that are
 * restored is that of its row: a dump has them all in one table, log_0, in the
 * order of their ids (see the extension's script).
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "replication/logicalworker.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "src/api/arguments.h"
#include "src/claim/claim.h"
#include "src/claim/record_forget.h"
#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/log_id.h"
#include "src/record/record_ring.h"
#include "src/ring/history.h"
#include "src/shared.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

static OwnTable kind_of(Oid relation);
static bool is_incomplete(OwnTable kind, TupleTableSlot *row);
static void restore_row(OwnTable kind, TupleTableSlot *row);
static bool is_segment_of(RingKind kind, Oid relation);
static void restore_deferred(TupleTableSlot *row);
static void restore_log_row(TupleTableSlot *row);
static void restore_message(TupleTableSlot *row);
static void restore_compacted(TupleTableSlot *row);
static void restore_record(TupleTableSlot *row);

PG_FUNCTION_INFO_V1(outbox_redirect_restored);
PG_FUNCTION_INFO_V1(outbox_refuse_replicated);

/* Trigger: redirects a row that comes by SQL into the current segment. */
Datum
outbox_redirect_restored(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	OwnTable	kind;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired BEFORE INSERT FOR EACH ROW",
						"outbox.redirect_restored")));

	/* Our own process writes to outbox.deferred by SQL. */
	if (shared_is_dispatcher())
		return PointerGetDatum(trigger->tg_trigtuple);

	/* The owner of the table may have altered it, and writes to it. */
	kind = kind_of(RelationGetRelid(trigger->tg_relation));
	own_table_check(trigger->tg_relation, kind);

	/*
	 * An incomplete row is returned so that it is refused: constraints are
	 * checked after this trigger.
	 */
	if (is_incomplete(kind, trigger->tg_trigslot))
		return PointerGetDatum(trigger->tg_trigtuple);

	/* A subscriber must not send what its publisher sends. */
	if (!IsLogicalWorker())
		restore_row(kind, trigger->tg_trigslot);
	return PointerGetDatum(NULL);
}

/*
 * Trigger: drops what logical replication applies. Each outbox has rings and
 * windows of its own, and sends what was committed in its own database.
 */
Datum
outbox_refuse_replicated(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired BEFORE INSERT, UPDATE or DELETE FOR EACH ROW",
						"outbox.refuse_replicated")));
	if (IsLogicalWorker())
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						   trigger->tg_newtuple : trigger->tg_trigtuple);
}

/* Tells what a table is for. Raises 39P01 if it is none of those that have the trigger. */
static OwnTable
kind_of(Oid relation)
{
	const Relations *relations = relations_enter();

	if (relation == relations->deferred)
		return OWN_DEFERRED;
	if (relation == relations->forgotten)
		return OWN_FORGOTTEN;
	if (is_segment_of(RING_LOG, relation))
		return OWN_LOG;
	if (is_segment_of(RING_HISTORY, relation))
		return OWN_HISTORY;
	if (is_segment_of(RING_RECORD, relation))
		return OWN_RECORD;
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("function \"%s\" must be fired by a trigger on a table of the extension",
					"outbox.redirect_restored")));
	return OWN_RECORD;			/* not reached */
}

/* Check whether a value is missing that must be there. */
static bool
is_incomplete(OwnTable kind, TupleTableSlot *row)
{
	TupleDesc	columns = row->tts_tupleDescriptor;

	for (int i = 0; i < columns->natts; i++)
	{
		if (TupleDescAttr(columns, i)->attnotnull && slot_attisnull(row, i + 1))
			return true;
	}
	return kind == OWN_LOG && !log_row_is_whole(row);
}

/* Restores a row of any of our tables. */
static void
restore_row(OwnTable kind, TupleTableSlot *row)
{
	bool		isnull;

	if (kind == OWN_DEFERRED)
		restore_deferred(row);
	else if (kind == OWN_FORGOTTEN)
		record_forget_restored(DatumGetUUIDP(slot_getattr(row, 1, &isnull)));
	else if (kind == OWN_LOG)
		restore_log_row(row);
	else if (kind == OWN_HISTORY)
		restore_compacted(row);
	else
		restore_record(row);
}

/* Check whether a table is a segment of a ring. */
static bool
is_segment_of(RingKind kind, Oid relation)
{
	const Relations *relations = relations_enter();

	for (int n = 0; n < relations->nsegments[kind]; n++)
	{
		if (relations->segments[kind][n].table == relation)
			return true;
	}
	return false;
}

/* What was deferred starts again as an ordinary message, unless it could not even be read when it was dumped. */
static void
restore_deferred(TupleTableSlot *row)
{
	Deferred	deferred;

	deferred_read_row(row, &deferred);
	if (deferred.state == DEFERRED_SCHEDULED)
		deferred.message.deliver_at = deferred.next_attempt;
	if (deferred.message.body == NULL)
		return;
	argument_check_row(&deferred.message);
	deferred.message.id = log_id_next();
	log_append(&deferred.message);
	log_append_receipt_of(&deferred.message);
}

/* Restores a message or a receipt. */
static void
restore_log_row(TupleTableSlot *row)
{
	Receipt		receipt;

	if (!log_row_is_receipt(row))
	{
		restore_message(row);
		return;
	}
	log_row_receipt(row, &receipt);
	log_append_receipt(&receipt);
}

/*
 * Restores a message. One that was deferred when it was dumped gets a receipt
 * again: the first one may have been passed over.
 */
static void
restore_message(TupleTableSlot *row)
{
	Message		message;

	log_row_message(row, &message);
	argument_check_row(&message);
	message.id = log_id_next();
	message.stream = NULL;
	log_append(&message);
	if (!FullTransactionIdIsValid(message.tx))
		log_append_receipt_of(&message);
}

/* What was compacted starts again as ordinary records of which only the key is known. */
static void
restore_compacted(TupleTableSlot *row)
{
	int			n;
	const pg_uuid_t *keys = history_row_keys(row, &n);

	for (int i = 0; i < n; i++)
		claim_restore(&keys[i], NULL, NULL);
}

/* Of a record that was compacted before, only the key is known. */
static void
restore_record(TupleTableSlot *row)
{
	bool		isnull;
	bool		msgid_is_null;
	pg_uuid_t  *key = DatumGetUUIDP(slot_getattr(row, 1, &isnull));
	Datum		msgid = slot_getattr(row, 4, &msgid_is_null);

	claim_restore(key, record_ring_endpoint(row), msgid_is_null ? NULL : TextDatumGetCString(msgid));
}

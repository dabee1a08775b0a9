/*
 * delivery_triggers.c
 *		What happens behind outbox_pause(), outbox_resume(), outbox_set_destination(),
 *		outbox_retry() and outbox_discard().
 *
 * These are SQL (see the extension's script): they change rows of
 * outbox.destination and outbox.deferred, and triggers call the functions here.
 * The dispatcher reads the rows again when that has been committed. It changes
 * outbox.deferred itself, and must not be told of that.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/owner_privileges.h"
#include "src/shared.h"
#include "src/table/own_table.h"
#include "src/wakeup.h"

PG_FUNCTION_INFO_V1(outbox_delivery_changed);
PG_FUNCTION_INFO_V1(outbox_discarded);

/* Trigger: a dead message has been discarded, and its record may be marked. */
Datum
outbox_discarded(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Deferred	discarded;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER UPDATE FOR EACH ROW", "outbox.discarded")));
	own_table_check(trigger->tg_relation, OWN_DEFERRED);
	deferred_read_row(trigger->tg_newslot, &discarded);
	log_append_receipt_of(&discarded.message);
	return PointerGetDatum(NULL);
}

/* Trigger: the dispatcher must read destinations and deferred messages again. */
Datum
outbox_delivery_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager",
						"outbox.delivery_changed")));
	owner_code_refuse();
	if (!shared_is_dispatcher())
	{
		Relation	changed = ((TriggerData *) fcinfo->context)->tg_relation;

		wakeup_reload_at_commit(strcmp(RelationGetRelationName(changed), "deferred") == 0 ? RELOAD_DEFERRED : RELOAD_DESTINATIONS);

		/*
		 * This session forgets that at PREPARE TRANSACTION; COMMIT PREPARED
		 * sends the invalidation: see wakeup_watch_prepared().
		 */
		CacheInvalidateRelcache(changed);
	}
	return PointerGetDatum(NULL);
}

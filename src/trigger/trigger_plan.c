/*
 * trigger_plan.c
 *		Remembers what the triggers of outbox_forward() and outbox_capture() do.
 *
 * Called by these trigger functions for each row. To read the arguments of a
 * trigger takes longer than to write a message, and PostgreSQL keeps nothing of
 * a trigger function from one statement to the next; so each session keeps a
 * plan for each trigger. A plan ends when its table changes, or a composite type
 * whose attributes it uses, or any function, operator, cast or schema, which it
 * may name; or any type, if it names one.
 *
 * A plan may be replaced while it is in use, by a trigger that fires within an
 * expression of the plan. So its memory is freed no earlier than at the end of
 * the transaction.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "src/table/relations.h"
#include "src/table/relcache_callback.h"
#include "src/trigger/trigger_plan.h"

typedef struct Remembered
{
	Oid			trigger;		/* key */
	Oid			table;
	List	   *others;			/* OIDs of other relations that the plan
								 * depends on; pg_type for all types */
	bool		valid;
	MemoryContext memory;
	void	   *plan;
} Remembered;

/* What a plan may name. */
static const int catalogs[] = {PROCOID, OPEROID, CASTSOURCETARGET, NAMESPACEOID, TYPEOID};

static HTAB *plans;
static uint64 changes;			/* how often a catalog has changed */

static void start_remembering(void);
static void forget_invalid(void);
static void forget(Remembered *remembered);
static void *make_plan(const TriggerData *call, TriggerPlanner make);
static void relation_changed(Oid relation);
static void catalog_changed(Datum arg, int cache, uint32 hash);

/* Returns what a trigger function was called with; raises an error if it was not called as one. */
TriggerData *
trigger_plan_call(FunctionCallInfo fcinfo, const char *function)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager", function)));
	return (TriggerData *) fcinfo->context;
}

/* An error context callback, whose argument is a TriggerData: the caller's statement does not mention the trigger. */
void
trigger_plan_context(void *arg)
{
	const TriggerData *call = arg;

	errcontext("trigger \"%s\" of table \"%s\"", call->tg_trigger->tgname, RelationGetRelationName(call->tg_relation));
}

/* Returns the plan of a trigger, valid to the end of the transaction. */
void *
trigger_plan_get(const TriggerData *call, TriggerPlanner make)
{
	Remembered *remembered;

	if (plans == NULL)
		start_remembering();
	remembered = hash_search(plans, &call->tg_trigger->tgoid, HASH_FIND, NULL);
	if (remembered && remembered->valid)
		return remembered->plan;
	forget_invalid();
	return make_plan(call, make);
}

/* Raises an error if the table is one of ours: the outbox would send messages about itself. */
void
trigger_plan_refuse_own_table(Relation table)
{
	if (RelationGetNamespace(table) == get_namespace_oid(OUTBOX_SCHEMA, true))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("table \"%s.%s\" cannot be a source of messages", OUTBOX_SCHEMA, RelationGetRelationName(table)),
				 errdetail("It belongs to the outbox.")));
}

/* Creates the table of plans, once per session. */
static void
start_remembering(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Remembered)};

	plans = hash_create("outbox trigger plans", 16, &control, HASH_ELEM | HASH_BLOBS);
	relcache_callback_add(relation_changed);
	for (int i = 0; i < lengthof(catalogs); i++)
		CacheRegisterSyscacheCallback(catalogs[i], catalog_changed, (Datum) 0);
}

/* Forgets all plans that are not valid any more; their triggers may be gone. */
static void
forget_invalid(void)
{
	HASH_SEQ_STATUS all;
	Remembered *remembered;

	hash_seq_init(&all, plans);
	while ((remembered = hash_seq_search(&all)) != NULL)
	{
		if (!remembered->valid)
			forget(remembered);
	}
}

/* Forgets one plan. */
static void
forget(Remembered *remembered)
{
	MemoryContextSetParent(remembered->memory, TopTransactionContext);
	(void) hash_search(plans, &remembered->trigger, HASH_REMOVE, NULL);
}

/*
 * Makes a plan, and remembers it unless something has changed meanwhile. Its
 * memory is that of the caller until it is complete, so that an error frees it. An expression may
 * have called a function that has made the same plan.
 */
static void *
make_plan(const TriggerData *call, TriggerPlanner make)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "outbox trigger plan", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	uint64		changes_before = changes;
	List	   *others = NIL;
	void	   *plan = make(call->tg_relation, call->tg_trigger, &others);
	Remembered *remembered;
	bool		found;

	MemoryContextSwitchTo(caller);
	MemoryContextSetParent(memory, TopTransactionContext);
	if (changes != changes_before)
		return plan;
	remembered = hash_search(plans, &call->tg_trigger->tgoid, HASH_ENTER, &found);
	if (found)
		MemoryContextSetParent(remembered->memory, TopTransactionContext);
	MemoryContextSetParent(memory, CacheMemoryContext);
	remembered->table = RelationGetRelid(call->tg_relation);
	remembered->others = others;
	remembered->memory = memory;
	remembered->plan = plan;
	remembered->valid = true;
	return plan;
}

/* A RelationListener; InvalidOid stands for all relations. */
static void
relation_changed(Oid relation)
{
	HASH_SEQ_STATUS all;
	Remembered *remembered;

	changes++;
	hash_seq_init(&all, plans);
	while ((remembered = hash_seq_search(&all)) != NULL)
	{
		if (!OidIsValid(relation) || remembered->table == relation ||
			list_member_oid(remembered->others, relation))
			remembered->valid = false;
	}
}

/*
 * A syscache callback. Every new table has a type of its own, so that only plans
 * that name types end with a change of any type.
 */
static void
catalog_changed(Datum arg, int cache, uint32 hash)
{
	relation_changed(cache == TYPEOID ? TypeRelationId : InvalidOid);
}

/*
 * trigger_refusal.c
 *		Which of our tables can have no trigger.
 *
 * Called by trigger_check.c when a trigger has been created.
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "utils/lsyscache.h"

#include "src/table/relations.h"
#include "src/table/trigger_refusal.h"

static bool is_written_by_us(Oid table);
static void refuse(Oid table, const char *name);

/* Raises 42809 if a table cannot have that trigger. */
void
trigger_refusal_check(Oid table, const char *name)
{
	if (is_written_by_us(table))
		refuse(table, name);
}

/*
 * Check whether a table is one of ours to which row_write.c or deferred.c writes; our own script
 * may create triggers there.
 */
static bool
is_written_by_us(Oid table)
{
	static const char *const beginnings[] = {"log_", "window_", "record_", "history_", "deferred", "forgotten"};
	Oid			extension = get_extension_oid("outbox", true);
	const char *name = get_rel_name(table);

	/* Without the extension no table is ours, whatever its name. */
	if (!OidIsValid(extension) || getExtensionOfObject(RelationRelationId, table) != extension ||
		(creating_extension && CurrentExtensionObject == extension))
		return false;
	for (int i = 0; name && i < lengthof(beginnings); i++)
	{
		if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	}
	return false;
}

/*
 * Raises the error for a trigger on a table to which rows are written without firing
 * triggers: what relies on it, such as pg_repack, would lose rows.
 */
static void
refuse(Oid table, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot create trigger \"%s\" on table \"%s.%s\"", name, OUTBOX_SCHEMA, get_rel_name(table)),
			 errdetail("Rows are written to this table without firing triggers."),
			 errhint("A program that copies the table by means of a trigger, such as pg_repack, would lose rows; VACUUM FULL loses none.")));
}

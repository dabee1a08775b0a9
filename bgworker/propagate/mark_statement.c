/*
 * mark_statement.c
 *		Marks the records of some ids in a custom record table as dispatched.
 *
 * Called by marking.c, which decides which ids that are. table_statement.c limits
 * what these statements may do, and handles those that fail or hang. It may all
 * be done twice.
 *
 * It must not mark a record that was claimed again and whose messages are not in
 * Redis yet (claimed_again.c).
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "bgworker/propagate/claimed_again.h"
#include "bgworker/propagate/mark_statement.h"
#include "bgworker/propagate/table_statement.h"
#include "src/record/record_table.h"

static void leave_out_claimed_again(TableStatement *statement);
static void mark_records(TableStatement *statement);
static int64 count_unmarked(TableStatement *statement, const char *table);
static Oid	array_type(const TableStatement *statement);
static Datum make_ids(const TableStatement *statement);
static bool spells_uuid(const char *text);

/*
 * Marks the records of these messages in the table of an endpoint as dispatched; records that do not
 * exist or are already marked are ignored. `is_repeated` says that this may have been
 * done before with the same receipts; records that have been claimed again
 * since then are left to their next receipt.
 */
Marking
mark_statement_execute(const char *endpoint, Oid table, char **msgids, int n, bool is_repeated)
{
	TableStatement statement = {.wanted = table, .msgids = msgids, .nmsgids = n, .is_repeated = is_repeated};

	if (!table_statement_run(mark_records, &statement, endpoint, "marking records"))
		return MARKING_FAILED;
	if (statement.is_gone)
		return MARKING_GONE;
	return statement.is_locked || statement.rows > 0 ? MARKING_INCOMPLETE : MARKING_DONE;
}

/*
 * Leaves out ids that have been claimed again. The array of the caller stays as it is. The
 * record of the later claim has the id as the table spells it.
 */
static void
leave_out_claimed_again(TableStatement *statement)
{
	char	  **msgids = palloc(statement->nmsgids * sizeof(char *));

	memcpy(msgids, statement->msgids, statement->nmsgids * sizeof(char *));
	for (int i = 0; statement->shape.id_type == UUIDOID && i < statement->nmsgids; i++)
	{
		if (spells_uuid(msgids[i]))
			msgids[i] = record_table_spell(&statement->shape, msgids[i]);
	}
	statement->nmsgids = claimed_again_leave_out(statement->endpoint->name, msgids, statement->nmsgids);
	statement->msgids = msgids;
}

/*
 * Marks records that are not locked, and counts the others, which may be
 * changed or deleted by other transactions.
 */
static void
mark_records(TableStatement *statement)
{
	const RecordMapping *mapping = &statement->endpoint->mapping;
	const char *table = record_table_name(mapping->table);
	const char *id = quote_identifier(mapping->message_id);
	const char *dispatched = quote_identifier(mapping->dispatched);
	Oid			type = array_type(statement);
	Datum		ids;

	if (statement->is_repeated)
	{
		/* Mostly all are marked: then the log need not be searched. */
		statement->rows = count_unmarked(statement, table);
		if (statement->rows == 0)
			return;
		leave_out_claimed_again(statement);
	}
	ids = make_ids(statement);
	table_statement_execute(statement, psprintf("UPDATE ONLY %s SET %s = true, %s = clock_timestamp()%s WHERE ctid = ANY(ARRAY("
												"SELECT ctid FROM ONLY %s WHERE %s = ANY($1) AND %s IS NOT TRUE FOR NO KEY UPDATE SKIP LOCKED))",
												table, dispatched, quote_identifier(mapping->dispatched_at),
												statement->shape.zoned ? "" : " AT TIME ZONE 'UTC'", table, id, dispatched),
							1, &type, &ids, 0, NULL);
	statement->rows = count_unmarked(statement, table);
}

/* Counts the records of these ids that are not marked. */
static int64
count_unmarked(TableStatement *statement, const char *table)
{
	const RecordMapping *mapping = &statement->endpoint->mapping;
	Oid			type = array_type(statement);
	Datum		ids = make_ids(statement);
	Datum		count;

	table_statement_execute(statement, psprintf("SELECT count(*) FROM ONLY %s WHERE %s = ANY($1) AND %s IS NOT TRUE", table,
												quote_identifier(mapping->message_id), quote_identifier(mapping->dispatched)),
							1, &type, &ids, 1, &count);
	return DatumGetInt64(count);
}

/* Returns the type of an array of ids. */
static Oid
array_type(const TableStatement *statement)
{
	return statement->shape.id_type == UUIDOID ? UUIDARRAYOID : TEXTARRAYOID;
}

/*
 * Makes the array of ids for a statement. The endpoint may have had another
 * table, or none, when these were processed, so ids that are not UUIDs are left
 * out for a column of type uuid.
 */
static Datum
make_ids(const TableStatement *statement)
{
	bool		is_uuid = statement->shape.id_type == UUIDOID;
	Datum	   *ids = palloc(statement->nmsgids * sizeof(Datum));
	int			n = 0;

	for (int i = 0; i < statement->nmsgids; i++)
	{
		if (!is_uuid)
			ids[n++] = CStringGetTextDatum(statement->msgids[i]);
		else if (spells_uuid(statement->msgids[i]))
			ids[n++] = DirectFunctionCall1(uuid_in, CStringGetDatum(statement->msgids[i]));
	}
	return PointerGetDatum(construct_array(ids, n, statement->shape.id_type,
										   is_uuid ? UUID_LEN : -1, false,
										   is_uuid ? TYPALIGN_CHAR : TYPALIGN_INT));
}

/*
 * Check whether uuid_in() accepts a text: a hyphen may follow each group of
 * four digits, and the whole may be in braces.
 */
static bool
spells_uuid(const char *text)
{
	bool		braces = *text == '{';

	text += braces;
	for (int digit = 0; digit < 2 * UUID_LEN; digit++)
	{
		if (digit > 0 && digit % 4 == 0 && *text == '-')
			text++;
		if (!isxdigit((unsigned char) *text++))
			return false;
	}
	return strcmp(text, braces ? "}" : "") == 0;
}

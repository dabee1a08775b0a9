/*
 * destination_settings.c
 *		The settings of destinations: stream, maximum length, format, partitions, paused.
 *
 * All are read when the dispatcher starts and when they were changed; route.c
 * and deferral.c look them up for each message. Most destinations have none:
 * their name is the stream.
 *
 * How many partitions a destination has changes only when partition_layout.c has told Redis;
 * until then it keeps as many as it has, and their stream, whatever the table says.
 * If Redis refuses to be told, the destination refuses messages: deferral.c defers
 * them, and each probe asks again.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/process/transaction.h"
#include "src/clock.h"
#include "src/compat.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

static MemoryContext context;
static HTAB *destinations;
static bool all_paused;
static uint64 changes;			/* how often anything was changed */
static int	nunsettled;			/* whose partitions Redis is to be told of */
static bool given_partitions;	/* when the table was read last, some were to
								 * have others than before */
static int	nrefused;			/* those that it refused to be told of */

static void load_row(HeapTuple row, TupleDesc columns, HTAB *before);
static bool holds_dead(const char *on_dead);
static void load_partitions(Destination *destination, int wanted, HTAB *before);
static void keep_stream(Destination *destination, const Destination *was);
static void load_names(Destination *destination);
static const char *sent_name(char *name);

/* Reads the table. Needs an open transaction. */
void
destination_load(void)
{
	MemoryContext context_before = context;
	HTAB	   *before = destinations;

	context = AllocSetContextCreate(TopMemoryContext, "outbox destinations", ALLOCSET_SMALL_SIZES);
	destinations = destination_make_table("outbox destinations", context, sizeof(Destination));
	changes++;
	all_paused = false;
	nunsettled = 0;
	nrefused = 0;
	given_partitions = false;

	own_table_require(relations_enter()->destination, OWN_DESTINATION);
	SPI_connect();
	(void) transaction_query("SELECT dest, stream, maxlen, paused, format, partitions, on_dead FROM outbox.destination", 0, NULL, NULL, NULL);
	own_rows_require(ROWS_DESTINATION);
	for (uint64 i = 0; i < SPI_processed; i++)
		load_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, before);
	SPI_finish();
	if (context_before)
		MemoryContextDelete(context_before);
}

/* Returns the settings of a destination; NULL if it has none. */
const Destination *
destination_find(const text *dest)
{
	return destination_look_up(destinations, dest);
}

/* Check whether partitions have changed that Redis is not told of yet. */
bool
destination_any_has_new_partitions(void)
{
	return nunsettled > 0;
}

/*
 * Check whether an administrator has changed partitions, or their stream, as
 * destination_load() has found. Those that Redis was to be told of before do not count.
 */
bool
destination_any_was_given_partitions(void)
{
	return given_partitions;
}

/*
 * Returns those whose partitions Redis is to be told of, in a list to be freed. It is good
 * until destination_load() is called, whatever is noted with them meanwhile.
 */
List *
destination_unsettled(void)
{
	HASH_SEQ_STATUS status;
	Destination *destination;
	List	   *found = NIL;

	if (nunsettled == 0)
		return NIL;
	hash_seq_init(&status, destinations);
	while ((destination = hash_seq_search(&status)) != NULL)
	{
		if (!destination->is_settled && destination->refusal == NULL)
			found = lappend(found, destination);
	}
	return found;
}

/* The same for those whose partitions Redis knows, as was seen before that moment and not since then. */
List *
destination_compared_before(TimestampTz moment)
{
	HASH_SEQ_STATUS status;
	Destination *destination;
	List	   *found = NIL;

	hash_seq_init(&status, destinations);
	while ((destination = hash_seq_search(&status)) != NULL)
	{
		if (destination->is_settled && destination->wanted != -1 && destination->compared < moment)
			found = lappend(found, destination);
	}
	return found;
}

/* Notes that Redis may not know the partitions of a destination any more. */
void
destination_unsettle(Destination *destination)
{
	destination->is_settled = false;
	nunsettled++;
}

/* Notes that Redis knows the partitions of a destination: from now on its messages are spread over them. */
void
destination_settle(Destination *destination)
{
	destination->stream = destination->wanted_stream;
	destination->partitions = destination->wanted;
	destination->is_settled = true;
	destination->compared = clock_now();
	nunsettled--;
	changes++;
}

/* Notes why Redis cannot be told of the partitions of a destination: none of its messages may be sent. */
void
destination_refuse(Destination *destination, const char *error)
{
	destination->refusal = MemoryContextStrdup(context, error);
	nunsettled--;
	nrefused++;
}

/* Returns why Redis cannot be told of the partitions of a destination; NULL if messages may be sent. */
const char *
destination_refusal(const text *dest)
{
	const Destination *destination = nrefused > 0 ? destination_find(dest) : NULL;

	return destination ? destination->refusal : NULL;
}

/* Notes that Redis is to be told once more, if it has refused. */
void
destination_ask_again(const text *dest)
{
	Destination *destination = nrefused > 0 ? destination_look_up(destinations, dest) : NULL;

	if (destination == NULL || destination->refusal == NULL)
		return;
	pfree(destination->refusal);
	destination->refusal = NULL;
	nrefused--;
	nunsettled++;
}

/* Notes that this Redis may not know the partitions of any destination. */
void
destination_unsettle_all(void)
{
	HASH_SEQ_STATUS status;
	Destination *destination;

	nunsettled = 0;
	nrefused = 0;
	hash_seq_init(&status, destinations);
	while ((destination = hash_seq_search(&status)) != NULL)
	{
		if (destination->refusal)
			pfree(destination->refusal);
		destination->refusal = NULL;
		destination->is_settled = destination->wanted == -1;
		if (!destination->is_settled)
			nunsettled++;
	}
}

/*
 * Has Redis asked whether it still knows the partitions of a destination: the one whose
 * answer is oldest, because the key may have been deleted. Until it has answered, nothing changes.
 * A Redis Cluster is asked by cluster_partition_layout_compare() too, but only while nothing is sent.
 */
void
destination_verify_next(void)
{
	HASH_SEQ_STATUS status;
	Destination *destination;
	Destination *oldest = NULL;

	hash_seq_init(&status, destinations);
	while ((destination = hash_seq_search(&status)) != NULL)
	{
		if (destination->wanted != -1 && destination->is_settled &&
			(oldest == NULL || destination->compared < oldest->compared))
			oldest = destination;
	}
	if (oldest)
		destination_unsettle(oldest);
}

/* Check whether outbox_pause(NULL) is in force. */
bool
destination_all_paused(void)
{
	return all_paused;
}

/* Returns a number that is another one, and not 0, when streams or partitions may have changed. */
uint64
destination_changes(void)
{
	return changes;
}

/* Calls visit() for each destination that has settings. */
void
destination_each(void (*visit) (const Destination *destination, void *arg), void *arg)
{
	HASH_SEQ_STATUS status;
	Destination *destination;

	hash_seq_init(&status, destinations);
	while ((destination = hash_seq_search(&status)) != NULL)
		visit(destination, arg);
}

/* Calls visit() for each destination that is paused by name. */
void
destination_each_paused(void (*visit) (const char *dest))
{
	HASH_SEQ_STATUS status;
	Destination *destination;

	hash_seq_init(&status, destinations);
	while ((destination = hash_seq_search(&status)) != NULL)
	{
		if (destination->paused)
			visit(destination->dest);
	}
}

/* Makes an empty hash table whose entries begin with the name of a destination. */
HTAB *
destination_make_table(const char *name, MemoryContext memory, Size entry_size)
{
	HASHCTL		control = {.keysize = MAX_NAME_BYTES + 1, .entrysize = entry_size, .hcxt = memory};

	return hash_create(name, 16, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* Returns the entry of a destination in such a table; NULL if there is none. */
void *
destination_look_up(HTAB *table, const text *dest)
{
	char		key[MAX_NAME_BYTES + 1];

	if (hash_get_num_entries(table) == 0)
		return NULL;
	destination_key(dest, key);
	return hash_search(table, key, HASH_FIND, NULL);
}

/* Writes a name as the key of a hash table: MAX_NAME_BYTES + 1 bytes at `key`. */
void
destination_key(const text *dest, char *key)
{
	size_t		length = Min(VARSIZE_ANY_EXHDR(dest), MAX_NAME_BYTES);

	memcpy(key, VARDATA_ANY(dest), length);
	key[length] = '\0';
}

/* Adds the settings of one destination, or of all of them. */
static void
load_row(HeapTuple row, TupleDesc columns, HTAB *before)
{
	char	   *dest = SPI_getvalue(row, columns, 1);
	bool		isnull;
	Datum		stream;
	int			partitions;
	bool		paused = DatumGetBool(SPI_getbinval(row, columns, 4, &isnull));
	Destination *destination;
	MemoryContext caller;

	/* The row with the empty name stands for all destinations. */
	if (dest[0] == '\0')
	{
		all_paused = paused;
		return;
	}
	destination = hash_search(destinations, dest, HASH_ENTER, NULL);
	destination->paused = paused;
	destination->holds = holds_dead(SPI_getvalue(row, columns, 7));
	destination->maxlen = DatumGetInt32(SPI_getbinval(row, columns, 3, &isnull));
	if (isnull)
		destination->maxlen = -1;
	destination->format = entry_format_from_name(SPI_getvalue(row, columns, 5));

	stream = SPI_getbinval(row, columns, 2, &isnull);
	caller = MemoryContextSwitchTo(context);
	destination->wanted_stream = isnull ? NULL : DatumGetTextPCopy(stream);
	MemoryContextSwitchTo(caller);

	partitions = DatumGetInt32(SPI_getbinval(row, columns, 6, &isnull));
	load_partitions(destination, isnull ? -1 : partitions, before);
}

/* Check whether that is the name of the setting by which a dead message holds back others; NULL is the other one. */
static bool
holds_dead(const char *on_dead)
{
	return on_dead && strcmp(on_dead, "hold") == 0;
}

/* Notes how many partitions a destination is to have. If it ever had some, it keeps those that it has for now. */
static void
load_partitions(Destination *destination, int wanted, HTAB *before)
{
	const Destination *was = before ? hash_search(before, destination->dest, HASH_FIND, NULL) : NULL;
	bool		is_as_before;

	destination->wanted = wanted;
	destination->partitions = was ? was->partitions : 0;
	destination->stream = destination->wanted_stream;
	destination->refusal = NULL;
	destination->compared = was ? was->compared : 0;
	if (wanted != -1)
	{
		load_names(destination);
		keep_stream(destination, was);
	}
	is_as_before = was && was->wanted == wanted &&
		(wanted == -1 || strcmp(was->sent_stream, destination->sent_stream) == 0);
	destination->is_settled = wanted == -1 || (is_as_before && was->is_settled);
	if (!destination->is_settled)
		nunsettled++;
	given_partitions |= wanted != -1 && !is_as_before;
}

/* Has a destination keep the stream that it has, whose partitions consumers know. */
static void
keep_stream(Destination *destination, const Destination *was)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	if (was)
		destination->stream = was->stream ? DatumGetTextPCopy(PointerGetDatum(was->stream)) : NULL;
	MemoryContextSwitchTo(caller);
}

/* Converts the names, which is possible only in a transaction. */
static void
load_names(Destination *destination)
{
	char	   *stream = destination->wanted_stream ? text_to_cstring(destination->wanted_stream) : destination->dest;

	destination->sent_dest = MemoryContextStrdup(context, sent_name(destination->dest));
	destination->sent_stream = MemoryContextStrdup(context, sent_name(stream));
}

/*
 * Returns a name as it is sent, or as it is if it cannot be converted: then no
 * message can be sent by that name, but those of other destinations must be.
 */
static const char *
sent_name(char *name)
{
	int			encoding = GetDatabaseEncoding();
	int			length = strlen(name);
	unsigned char *converted;
	Oid			conversion;

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return name;
	conversion = FindDefaultConversionProc(encoding, PG_UTF8);
	converted = palloc(length * MAX_CONVERSION_GROWTH + 1);
	if (!OidIsValid(conversion) ||
		pg_do_encoding_conversion_buf(conversion, encoding, PG_UTF8, (unsigned char *) name, length,
									  converted, length * MAX_CONVERSION_GROWTH + 1, true) != length)
		return name;
	return (char *) converted;
}

/*
 * destination_settings.c
 *		The settings of destinations: stream, maximum length, format, paused.
 *
 * All are read when the dispatcher starts and when they were changed; command.c
 * and deferral.c look them up for each message. Most destinations have none:
 * their name is the stream.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/defer/destination_settings.h"
#include "src/compat.h"

static MemoryContext context;
static HTAB *destinations;
static bool all_paused;

static void load_row(HeapTuple row, TupleDesc columns);

/* Reads the table. Needs an open transaction. */
void
destination_load(void)
{
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox destinations", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	destinations = destination_make_table("outbox destinations", context, sizeof(Destination));
	all_paused = false;

	SPI_connect();
	if (SPI_execute("SELECT dest, stream, maxlen, paused, format FROM outbox.destination", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.destination");
	for (uint64 i = 0; i < SPI_processed; i++)
		load_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_finish();
}

/* Returns the settings of a destination; NULL if it has none. */
const Destination *
destination_find(const text *dest)
{
	return destination_look_up(destinations, dest);
}

/* Check whether outbox_pause(NULL) is in force. */
bool
destination_all_paused(void)
{
	return all_paused;
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
load_row(HeapTuple row, TupleDesc columns)
{
	char	   *dest = SPI_getvalue(row, columns, 1);
	bool		isnull;
	Datum		stream;
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
	destination->maxlen = DatumGetInt32(SPI_getbinval(row, columns, 3, &isnull));
	if (isnull)
		destination->maxlen = -1;
	destination->format = entry_format_from_name(SPI_getvalue(row, columns, 5));

	stream = SPI_getbinval(row, columns, 2, &isnull);
	caller = MemoryContextSwitchTo(context);
	destination->stream = isnull ? NULL : DatumGetTextPCopy(stream);
	MemoryContextSwitchTo(caller);
}

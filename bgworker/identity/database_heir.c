/*
 * database_heir.c
 *		Records which copy has taken the place of a database that is gone.
 *
 * Called when the dispatcher of a copy starts for the first time. What was
 * pending in an original that is gone must be sent by one of its copies, and
 * the copies do not know of each other. So the first one records it in the file
 * "outbox.heirs" in the data directory, which has a line for each database that
 * left something; the last line of a database counts.
 *
 * The line is on disk before the copy sends anything. If it dies in between, it
 * finds its own line again. If the heir itself is dropped, the next copy may
 * become the heir: messages may then be sent twice, but none is lost.
 *
 * A copy that begins to send its own messages records itself, so that copies
 * that were made of it before do not send them.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lock.h"
#include "utils/syscache.h"

#include "bgworker/identity/database_heir.h"
#include "src/lock_class.h"
#include "src/unique_id.h"

#define FILE_NAME		"outbox.heirs"
#define LINE_BYTES		128

static Oid	find_heir(const char *instance, Oid original);
static void append_heir(const char *instance, Oid original);

/*
 * Takes the place of a database that is gone, for what was enqueued there by
 * that instance, unless another copy has done so. Returns whether this database
 * has the place; `original` may also be this database itself. Waits only for
 * other processes in this function. Needs an open transaction.
 */
bool
database_heir_claim(const pg_uuid_t *instance, Oid original)
{
	char		name[UNIQUE_ID_BYTES];
	LOCKTAG		tag;
	Oid			heir;

	unique_id_write(instance, name);

	/* For all databases together. */
	SET_LOCKTAG_ADVISORY(tag, InvalidOid, 0, 0, LOCK_CLASS_HEIRS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	heir = find_heir(name, original);
	if (heir == InvalidOid || (heir != original && !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(heir))))
	{
		append_heir(name, original);
		heir = MyDatabaseId;
	}
	LockRelease(&tag, ExclusiveLock, false);
	return heir == MyDatabaseId;
}

/* Returns the database that has taken that place last; InvalidOid if none has. */
static Oid
find_heir(const char *instance, Oid original)
{
	FILE	   *file = AllocateFile(FILE_NAME, "r");
	Oid			found = InvalidOid;
	char		line[LINE_BYTES];
	char		name[UNIQUE_ID_BYTES];
	Oid			of;
	Oid			heir;
	char		end;

	while (file && fgets(line, sizeof(line), file))
	{
		/* A line that was cut off by a crash has no newline. */
		if (sscanf(line, "%36s %u %u%c", name, &of, &heir, &end) == 4 && end == '.' &&
			strcmp(name, instance) == 0 && of == original)
			found = heir;
	}
	if (file)
		FreeFile(file);
	return found;
}

/* Notes that this database is the heir. If that fails, each copy takes itself for the heir. */
static void
append_heir(const char *instance, Oid original)
{
	char		line[LINE_BYTES];
	int			file = OpenTransientFile(FILE_NAME, O_WRONLY | O_CREAT | O_APPEND | PG_BINARY);

	snprintf(line, sizeof(line), "\n%s %u %u.\n", instance, original, MyDatabaseId);
	if (file < 0 || write(file, line, strlen(line)) != (ssize_t) strlen(line) || pg_fsync(file) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("outbox: could not write file \"%s\" in the data directory: %m", FILE_NAME)));
	if (file >= 0)
		CloseTransientFile(file);
	fsync_fname(".", true);
}

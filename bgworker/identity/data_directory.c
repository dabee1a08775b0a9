/*
 * data_directory.c
 *		The id of this data directory, which stays the same wherever it is mounted.
 *
 * Called by lease.c when a dispatcher starts. A container that is created again
 * has another host name, often another path, and possibly another device number
 * of the volume; only what is in the data directory stays. So the file
 * "outbox.server" there holds an id, and the inode and birth time of the file
 * itself. In a copy of the directory (pg_basebackup, cp, rsync) these do not
 * match the file, and the copy makes an id of its own.
 *
 * A copy of blocks (a snapshot of a volume) has the same inode and birth time:
 * lease.c must not rely on this id alone while another server is alive.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lock.h"

#include "bgworker/identity/data_directory.h"
#include "src/lock_class.h"

#define FILE_NAME		"outbox.server"
#define LINE_BYTES		128

static bool read_id(char *id);
static bool make_id(char *id);
static bool write_line(int file, char *id);
static void describe(int file, const char *id, char *line);

/*
 * Reads the id, or makes one. Returns false if neither can be done; the log
 * says why. Waits only for other dispatchers in this function.
 */
bool
data_directory_get_id(char *id)
{
	LOCKTAG		tag;
	bool		done;

	/* For all databases together. */
	SET_LOCKTAG_ADVISORY(tag, InvalidOid, 0, 0, LOCK_CLASS_DATA_DIRECTORY);
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	done = read_id(id) || make_id(id);
	LockRelease(&tag, ExclusiveLock, true);
	return done;
}

/* Reads the file. Returns false if there is none, or one that was copied from another directory. */
static bool
read_id(char *id)
{
	int			file = BasicOpenFile(FILE_NAME, O_RDONLY | PG_BINARY);
	char		line[LINE_BYTES] = "";
	char		expected[LINE_BYTES];
	bool		ours;

	if (file < 0)
		return false;
	ours = read(file, line, sizeof(line) - 1) >= DATA_DIRECTORY_ID_BYTES;
	if (ours)
	{
		strlcpy(id, line, DATA_DIRECTORY_ID_BYTES);
		describe(file, id, expected);
		ours = strcmp(line, expected) == 0;
	}
	close(file);
	return ours;
}

/* Makes an id in a new file, which is renamed when it is complete. */
static bool
make_id(char *id)
{
	int			file;

	(void) unlink(FILE_NAME ".new");
	file = BasicOpenFile(FILE_NAME ".new", O_WRONLY | O_CREAT | O_EXCL | PG_BINARY);
	if (file >= 0)
	{
		bool		written = write_line(file, id);

		close(file);
		if (written && durable_rename(FILE_NAME ".new", FILE_NAME, LOG) == 0)
			return true;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("outbox: could not write file \"%s\" in the data directory: %m", FILE_NAME)));
	return false;
}

/* Chooses an id, and writes the line by which this file differs from copies. */
static bool
write_line(int file, char *id)
{
	char		line[LINE_BYTES];
	uint64		random;

	if (!pg_strong_random(&random, sizeof(random)))
		return false;
	snprintf(id, DATA_DIRECTORY_ID_BYTES, "%016llx", (unsigned long long) random);
	describe(file, id, line);
	return write(file, line, strlen(line)) == (ssize_t) strlen(line);
}

/* Writes into `line` what a file with this id holds, unless it was copied. */
static void
describe(int file, const char *id, char *line)
{
	struct stat inode = {0};
	long long	birth = 0;

#ifdef STATX_BTIME
	struct statx more;

	if (statx(file, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 && (more.stx_mask & STATX_BTIME) != 0)
		birth = (long long) more.stx_btime.tv_sec * 1000000000 + more.stx_btime.tv_nsec;
#endif
	(void) fstat(file, &inode);
	snprintf(line, LINE_BYTES, "%s %llu %lld\n", id, (unsigned long long) inode.st_ino, birth);
}

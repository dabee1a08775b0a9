/*
 * lease.c
 *		Decides whether this process may publish for its instance.
 *
 * Called by redis_session.c and redis_lease.c, which ask it about what they have read in
 * Redis, and by command.c and partition_layout.c for the value of the lease.
 *
 * Two servers may both take themselves for the same database: an old primary
 * and the standby promoted in its place, or production and a clone restored
 * beside it. The lease says which of them publishes. It is a key in Redis that
 * expires after 10 s and is renewed with each batch and while idle. Its value
 * begins with its owner: the id of the data directory (data_directory.c), which a
 * copy of the files does not share, and its place: host name, path, device, inode
 * and the boot of the machine. (In a container two clones of a volume may have all
 * of these in common but the last.)
 *
 * The owner's next dispatcher takes the lease over at once. So does any server
 * as long as none has published for this instance before. All others wait until
 * the lease has expired and has been vacant for outbox.takeover_delay: as long
 * as the owner lives, it keeps the lease. outbox.instance.publisher remembers
 * the last owner; who finds the lease of another one notes that one
 * (redis_session.c), and so waits like others from then on.
 *
 * The lease counts as vacant for as long as it was found so again and again. If it could
 * not be looked at for longer than it lives, another server may have had it meanwhile.
 *
 * The same id in another place is either a data directory that has moved, for
 * instance into a container that was created again, or a clone of its blocks.
 * The only difference is that the original of a clone is alive. So such a
 * server waits until the lease has expired, but not for the delay, unless it
 * has seen the lease being renewed.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "bgworker/identity/data_directory.h"
#include "bgworker/identity/lease.h"
#include "src/clock.h"
#include "src/settings.h"

static char owner[LEASE_OWNER_BYTES];
static char value[LEASE_BYTES];
static char other[LEASE_OWNER_BYTES];	/* of the lease that was found last;
										 * empty = it was ours, or there was
										 * none */
static TimestampTz vacant_since;	/* by clock_with_sleep(); 0 = another
									 * server holds it, as far as we know */
static TimestampTz vacant_until;	/* when it was found so last */
static bool is_unseen;			/* since then it could not be looked at, or
								 * was not */
static TimestampTz looked_first;	/* 0 = not yet */
static bool rival_seen;			/* another server is alive */

/* After this time a lease left by an earlier dispatcher of ours has certainly expired. */
#define PAST_MS			(LEASE_MS + 2000)

static void read_boot_id(char *boot, size_t size);
static void note_rival(const char *lease);
static void note_other(const char *lease);
static void note_vacant(void);
static bool may_have_been_taken(int64 unseen_us);
static bool is_owned_by_us(const char *lease);
static bool has_our_id(const char *other);

/* Computes the owner and the value of our lease; called once, when the dispatcher starts. */
void
lease_init(void)
{
	char		host[64] = "";
	char		boot[64] = "";
	char		place[MAXPGPATH + 192];
	char		id[DATA_DIRECTORY_ID_BYTES];
	struct stat directory = {0};
	unsigned long long hash;

	(void) gethostname(host, sizeof(host) - 1);
	(void) stat(DataDir, &directory);
	read_boot_id(boot, sizeof(boot));
	snprintf(place, sizeof(place), "%s %s %llu %llu %s", host, DataDir,
			 (unsigned long long) directory.st_dev, (unsigned long long) directory.st_ino, boot);
	hash = hash_bytes_extended((unsigned char *) place, strlen(place), 0);

	/* Without a file, only the place distinguishes us from others. */
	if (!data_directory_get_id(id))
		snprintf(id, sizeof(id), "%016llx", hash);
	snprintf(owner, sizeof(owner), "%s.%016llx", id, hash);
	snprintf(value, sizeof(value), "%s host %s, database %u, process %d", owner, host, MyDatabaseId, MyProcPid);
}

/* Returns what the value of every lease of our data directory begins with. */
const char *
lease_owner(void)
{
	return owner;
}

/* Returns the value of our lease. */
const char *
lease_value(void)
{
	return value;
}

/* Check whether we may publish. `current` is the lease in Redis, NULL if there is none. If we may not, `reason` says why. */
bool
lease_may_be_taken(const char *current, const char *last_owner, char *reason, size_t size)
{
	other[0] = '\0';
	if (looked_first == 0)
		looked_first = clock_now();
	if (current && !is_owned_by_us(current))
	{
		const char *space = strchr(current, ' ');
		const char *name = space ? space + 1 : current;

		note_rival(current);
		note_other(current);
		vacant_since = 0;
		snprintf(reason, size, "the lease is held by %s", name[0] ? name : "one that does not say who it is");
		return false;
	}
	if (current || last_owner == NULL || strcmp(last_owner, owner) == 0)
		return true;
	if (has_our_id(last_owner) && !rival_seen)
		return true;

	note_vacant();
	if (vacant_until - vacant_since >= outbox_takeover_delay * USECS_PER_SEC)
		return true;
	snprintf(reason, size, "the lease has expired, and this server takes over after outbox.takeover_delay");
	return false;
}

/* Returns the owner of the lease that was found last, if it was one of another server; otherwise NULL. */
const char *
lease_other_owner(void)
{
	return other[0] == '\0' ? NULL : other;
}

/* Notes that the lease cannot be looked at, or need not be for now. */
void
lease_note_unseen(void)
{
	is_unseen = true;
}

/* Reads what is different on any two machines, and after each start of one. Leaves "" where there is no such file. */
static void
read_boot_id(char *boot, size_t size)
{
	int			file = BasicOpenFile("/proc/sys/kernel/random/boot_id", O_RDONLY | PG_BINARY);

	if (file < 0)
		return;
	if (read(file, boot, size - 1) < 0)
		boot[0] = '\0';
	close(file);
}

/*
 * Notes that another server is alive, if this lease shows it: it has another id,
 * or has our own and does not expire, so it is being renewed.
 */
static void
note_rival(const char *lease)
{
	if (!has_our_id(lease) || clock_now() - looked_first > PAST_MS * INT64CONST(1000))
		rival_seen = true;
}

/* Notes the owner of a lease, if it may be one: others may write to Redis, too. */
static void
note_other(const char *lease)
{
	size_t		length = strcspn(lease, " ");

	if (length >= sizeof(other) || strspn(lease, "0123456789abcdef.") < length)
		return;
	memcpy(other, lease, length);
	other[length] = '\0';
}

/* Notes that there is no lease now; nor was there since it was found so first, unless we could not look meanwhile. */
static void
note_vacant(void)
{
	TimestampTz now = clock_with_sleep();

	if (vacant_since == 0 || may_have_been_taken(now - vacant_until))
		vacant_since = now;
	vacant_until = now;
	is_unseen = false;
}

/*
 * Check whether a server may have taken the lease, and lost it again, between two looks.
 * One that does not answer at once may make each look take longer than a lease lives; if
 * that counted, nobody would ever take over.
 */
static bool
may_have_been_taken(int64 unseen_us)
{
	int64		look_ms = 2 * (int64) outbox_connect_timeout + 3 * (int64) outbox_command_timeout;

	return unseen_us > LEASE_MS * INT64CONST(1000) && (is_unseen || unseen_us > (LEASE_MS + look_ms) * 1000);
}

/* Check whether a lease or an owner is of a data directory with our id, at any place. */
static bool
has_our_id(const char *other)
{
	return strncmp(other, owner, DATA_DIRECTORY_ID_BYTES) == 0;
}

/* Check whether a lease is of this data directory at this place. */
static bool
is_owned_by_us(const char *lease)
{
	return strncmp(lease, owner, strlen(owner)) == 0 && lease[strlen(owner)] == ' ';
}

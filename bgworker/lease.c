/*
 * lease.c
 *		Decides whether this process may publish for its instance.
 *
 * Two servers may believe to be the same database: an old primary and the
 * standby promoted in its place, or production and a clone restored beside it.
 * The lease, a key in Redis that lives for 10 s and is renewed with each chunk
 * and while idle, says which of them publishes. Its value begins with its
 * owner: the data directory, which a copy of the files does not share.
 *
 * The owner's next dispatcher takes it over at once. So does anybody as long
 * as nobody has published for this instance before. Everybody else waits until
 * it has run out and stayed so for outbox.takeover_delay: the incumbent wins
 * as long as it lives. outbox.instance.publisher remembers who was last.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "bgworker/lease.h"
#include "src/clock.h"
#include "src/settings.h"

static char owner[LEASE_OWNER_BYTES];
static char value[LEASE_BYTES];
static TimestampTz vacant_since;	/* 0 = somebody else holds it, as far as we
									 * know */

static bool is_owned_by_us(const char *lease);

/* Finds out who we are; once, when the dispatcher starts. */
void
lease_init(void)
{
	char		host[64] = "";
	char		place[MAXPGPATH + 128];
	struct stat directory = {0};

	(void) gethostname(host, sizeof(host) - 1);
	(void) stat(DataDir, &directory);
	snprintf(place, sizeof(place), "%s %s %llu %llu", host, DataDir,
			 (unsigned long long) directory.st_dev, (unsigned long long) directory.st_ino);
	snprintf(owner, sizeof(owner), "%016llx",
			 (unsigned long long) hash_bytes_extended((unsigned char *) place, strlen(place), 0));
	snprintf(value, sizeof(value), "%s host %s, database %u, process %d", owner, host, MyDatabaseId, MyProcPid);
}

/* What all values of our data directory's leases begin with. */
const char *
lease_owner(void)
{
	return owner;
}

/* The value of our lease. */
const char *
lease_value(void)
{
	return value;
}

/*
 * Whether we may publish. `current` is the lease in Redis, NULL if there is
 * none; `last_owner` is who published last, NULL if nobody ever did. If not,
 * says why in `reason`.
 */
bool
lease_may_be_taken(const char *current, const char *last_owner, char *reason, size_t size)
{
	TimestampTz now = clock_now();

	if (current && !is_owned_by_us(current))
	{
		const char *name = strchr(current, ' ');

		vacant_since = 0;
		snprintf(reason, size, "held by %s", name ? name + 1 : current);
		return false;
	}
	if (current || last_owner == NULL || strcmp(last_owner, owner) == 0)
		return true;

	if (vacant_since == 0)
		vacant_since = now;
	if (now - vacant_since >= outbox_takeover_delay * USECS_PER_SEC)
		return true;
	snprintf(reason, size, "run out, this server takes over after outbox.takeover_delay");
	return false;
}

static bool
is_owned_by_us(const char *lease)
{
	return strncmp(lease, owner, strlen(owner)) == 0 && lease[strlen(owner)] == ' ';
}

/*
 * fence.c
 *		The value of the fence, the key in Redis that says how far the dispatcher got.
 *
 * Called by lane.c, and by resume.c and era.c, which read it. Nothing here talks to Redis.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "bgworker/lane/fence.h"
#include "src/unique_id.h"

/*
 * "<window number> <window uuid> <era>.<connection> <last message id>". The name of a
 * connection is "<era>.<random>", of the era in which it has claimed the fence: that is
 * another one until it has sent something.
 */
#define FENCE_FORMAT	"%lld %36s %31s %lld"
#define NAMES_BYTES		32

/* The value before anything was sent; the connection follows. */
#define NO_FENCE	"none"

static bool is_unique_id(const char *text);
static void read_era(const char *names, char *era);

/* Writes a value of the fence that is set by a connection, in an era. */
void
fence_write(char *fence, const Fence *value, const char *era, const char *connection)
{
	char		uuid[UNIQUE_ID_BYTES];

	unique_id_write(&value->uuid, uuid);
	snprintf(fence, FENCE_BYTES, "%lld %s %s.%s %lld", (long long) value->number, uuid, era, connection, (long long) value->last_id);
}

/* Writes the same fence, of the same era, with the name of another connection. */
void
fence_claim(const char *fence, const char *connection, char *claimed, size_t size)
{
	long long	number;
	long long	last_id;
	char		uuid[UNIQUE_ID_BYTES];
	char		names[NAMES_BYTES];
	char		era[ERA_BYTES];

	if (sscanf(fence, FENCE_FORMAT, &number, uuid, names, &last_id) == 4)
	{
		read_era(names, era);
		snprintf(claimed, size, "%lld %s %s.%s %lld", number, uuid, era, connection, last_id);
	}
	else
		snprintf(claimed, size, "%s %s", NO_FENCE, connection);
}

/*
 * Reads a value of the fence. Returns false if it is not one of ours, or was
 * set before anything was sent.
 */
bool
fence_parse(const char *text, Fence *fence)
{
	long long	number;
	long long	last_id;
	char		uuid[UNIQUE_ID_BYTES];
	char		names[NAMES_BYTES];
	pg_uuid_t  *read;

	if (sscanf(text, FENCE_FORMAT, &number, uuid, names, &last_id) != 4 || !is_unique_id(uuid))
		return false;
	fence->number = number;
	fence->last_id = last_id;
	read = DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(uuid)));
	fence->uuid = *read;
	pfree(read);
	read_era(names, fence->era);
	return true;
}

/* Check whether a text is an id as unique_id_write() writes it: uuid_in() would raise an error, and others may write to Redis. */
static bool
is_unique_id(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if (strlen(text) != strlen(form))
		return false;
	for (int i = 0; form[i] != '\0'; i++)
	{
		if (form[i] == '-' ? text[i] != '-' : strchr("0123456789abcdef", text[i]) == NULL)
			return false;
	}
	return true;
}

/* Reads the name of the era in which a fence was claimed last; it is empty if the fence does not tell. */
void
fence_read_claim(const char *text, char *era)
{
	char		uuid[UNIQUE_ID_BYTES];
	char		names[NAMES_BYTES];
	const char *connection = NULL;

	if (sscanf(text, "%*d %36s %31s", uuid, names) == 2 && is_unique_id(uuid))
		connection = strchr(names, '.');
	era[0] = '\0';
	if (connection)
		read_era(connection + 1, era);
	else if (sscanf(text, NO_FENCE " %31s", names) == 1)
		read_era(names, era);
}

/* Reads the name of the era out of "<era>.<connection>". */
static void
read_era(const char *names, char *era)
{
	size_t		size = strspn(names, "0123456789abcdef");

	if (names[size] != '.' || size >= ERA_BYTES)
		size = 0;
	memcpy(era, names, size);
	era[size] = '\0';
}

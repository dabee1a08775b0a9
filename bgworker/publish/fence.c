/*
 * fence.c
 *		The value of the fence, the key in Redis that says how far the dispatcher got.
 *
 * Called by lane.c, and by resume.c, which reads it. Nothing here talks to Redis.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "bgworker/publish/fence.h"
#include "src/unique_id.h"

/* "<window number> <window uuid> <connection> <last message id>" */
#define FENCE_FORMAT	"%lld %36s %*s %lld"

/* The value before anything was sent; the connection follows. */
#define NO_FENCE	"none"

/* Writes a value of the fence that is set by a connection. */
void
fence_write(char *fence, const Fence *value, const char *connection)
{
	char		uuid[UNIQUE_ID_BYTES];

	unique_id_write(&value->uuid, uuid);
	snprintf(fence, FENCE_BYTES, "%lld %s %s %lld", (long long) value->number, uuid, connection, (long long) value->last_id);
}

/* Writes the same fence with the name of another connection. */
void
fence_claim(const char *fence, const char *connection, char *claimed, size_t size)
{
	long long	number;
	long long	last_id;
	char		uuid[UNIQUE_ID_BYTES];

	if (sscanf(fence, FENCE_FORMAT, &number, uuid, &last_id) == 3)
		snprintf(claimed, size, "%lld %s %s %lld", number, uuid, connection, last_id);
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
	pg_uuid_t  *read;

	if (sscanf(text, FENCE_FORMAT, &number, uuid, &last_id) != 3 || strlen(uuid) != 36 ||
		strspn(uuid, "0123456789abcdef-") != 36)
		return false;
	fence->number = number;
	fence->last_id = last_id;
	read = DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(uuid)));
	fence->uuid = *read;
	pfree(read);
	return true;
}

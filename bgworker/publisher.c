/*
 * publisher.c
 *		Sends a window to Redis, chunk by chunk, and reads every verdict.
 *
 * Called by the dispatcher. Each chunk is one run of the script (script.h);
 * the next is made while one is under way. Each page of messages is read in a
 * short transaction, none is open while we wait for Redis.
 *
 * Verdicts: all added: go on. One refused: it goes to deferral.c, chunks behind
 * it have failed the compare, and the window goes on after it. Anything else
 * concerns the server or the link: close it; whoever connects next reads the
 * fence, which tells what has arrived. No error is ever success.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/deferral.h"
#include "bgworker/publisher.h"
#include "bgworker/script.h"
#include "bgworker/transaction.h"
#include "src/compat.h"
#include "src/log.h"
#include "src/relations.h"
#include "src/settings.h"
#include "src/shared.h"

#define LEASE_MS		10000
#define CHUNK_BYTES		(1024 * 1024)	/* a chunk ends when it has as many */
#define CHUNKS_IN_FLIGHT 2
#define KEPT_BUFFER		(4 * CHUNK_BYTES)
#define FENCE_BYTES		96

/* A chunk that is made or under way. */
typedef struct Chunk
{
	int64		next;			/* row of the window that follows it */
	int			n;				/* messages in it */
	int64	   *rows;			/* which rows of the window these are */
	int			size;			/* of the array */
	char		builds_on[FENCE_BYTES]; /* value of the fence before it */
	char		fence[FENCE_BYTES]; /* and after it */
} Chunk;

/* The window that is being published. */
typedef struct Delivery
{
	WindowRows *window;
	int64		next;			/* first row that is not in a chunk yet */
	int			in_flight;
	Chunk		chunks[CHUNKS_IN_FLIGHT];	/* oldest first */
} Delivery;

/* A command in the protocol's form, written by hand. */
typedef struct Command
{
	StringInfoData arguments;
	int			n;
} Command;

static RedisLink *redis;
static MemoryContext page_context;	/* reset for each chunk */
static char fence_key[64];
static char lease_key[64];
static char lease_value[64];
static char script_sha[41];
static char fence[FENCE_BYTES]; /* value in Redis when all in flight is done */
static char warning[256];
static Command command;
static StringInfoData header;

static bool check_server(void);
static bool refuse_cluster(const char *info);
static void warn_of_eviction(const char *info);
static bool load_script(void);
static bool read_fence(void);
static int64 first_row_after(const WindowRows *window, int64 id);
static bool send_chunk(Delivery *delivery);
static bool make_chunk(Delivery *delivery, Chunk *chunk);
static bool take_row(const WindowRows *window, int64 row, Chunk *chunk);
static void fetch_message(const LogRow *row, TupleTableSlot **slot, Relation *table, Message *message);
static void add_message(const Message *message);
static void add_headers(Jsonb *headers);
static void begin_command(const char *new_fence, const char *old_fence);
static bool send_command(void);
static void add_argument(const char *data, size_t size);
static void add_string(const char *string);
static void add_number(int64 number);
static void add_text(const text *value);
static void add_utf8(const char *string, int length);
static bool read_verdict(Delivery *delivery);
static bool judge(Delivery *delivery, redisReply *reply);
static bool set_aside(Delivery *delivery, int added, const char *error);
static bool drain_behind(Delivery *delivery);
static bool is_server_error(const char *error);
static void new_fence_value(char *value, const WindowRows *window, int64 row);
static void count_sent(int n);

/* Prepares for use; once, when the dispatcher starts. */
void
publisher_init(LinkAttend attend)
{
	redis = redis_link_create(attend);
	page_context = AllocSetContextCreate(TopMemoryContext, "outbox page", ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&command.arguments);
	initStringInfo(&header);
}

/* Names our keys in Redis. */
void
publisher_set_instance(const pg_uuid_t *instance)
{
	char	   *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(instance)));

	snprintf(fence_key, sizeof(fence_key), "outbox:fence:%s", id);
	snprintf(lease_key, sizeof(lease_key), "outbox:lease:%s", id);
	snprintf(lease_value, sizeof(lease_value), UINT64_FORMAT " %u %d",
			 GetSystemIdentifier(), MyDatabaseId, MyProcPid);
	pfree(id);
}

/*
 * Connects, reads the fence and goes to where it says. Ends with a chunk of no
 * messages, which tries whether the script may run and write.
 */
bool
publisher_connect(Position *position)
{
	if (!redis_link_open(redis) || !check_server() || !load_script() || !read_fence())
		return false;
	if (!publisher_renew())
		return false;
	if (!transaction_begin("reading the position"))
	{
		redis_link_fail(redis, "the extension is being dropped");
		return false;
	}
	position_resume(position, fence);
	transaction_commit();
	return true;
}

bool
publisher_is_connected(void)
{
	return redis_link_is_open(redis);
}

void
publisher_disconnect(void)
{
	redis_link_close(redis);
}

/* Why the last call returned false. */
const char *
publisher_error(void)
{
	return redis_link_error(redis);
}

/* A setting of Redis that endangers us, or an empty string. */
const char *
publisher_warning(void)
{
	return warning;
}

/*
 * Renews the lease, and so finds out whether Redis is still there and still
 * has our fence. Only when nothing is in flight.
 */
bool
publisher_renew(void)
{
	Delivery none = {0};

	begin_command("", fence);
	return send_command() && judge(&none, redis_link_receive(redis));
}

/*
 * Publishes the window after position->sent and advances. False: the link has
 * failed, or the extension is being dropped; connect anew and go on.
 */
bool
publisher_publish_next(Position *position)
{
	static int64 *row_numbers[CHUNKS_IN_FLIGHT];
	Delivery delivery = {.window = position_next_rows(position)};

	if (delivery.window == NULL)
	{
		redis_link_fail(redis, "the extension is being dropped");
		return false;
	}
	delivery.next = first_row_after(delivery.window, position->resume_after);
	for (int i = 0; i < CHUNKS_IN_FLIGHT; i++)
	{
		row_numbers[i] = row_numbers[i] == NULL ?
			MemoryContextAlloc(TopMemoryContext, outbox_batch_size * sizeof(int64)) :
			repalloc(row_numbers[i], outbox_batch_size * sizeof(int64));
		delivery.chunks[i].rows = row_numbers[i];
		delivery.chunks[i].size = outbox_batch_size;
	}

	while (delivery.next < delivery.window->n || delivery.in_flight > 0)
	{
		while (delivery.in_flight < CHUNKS_IN_FLIGHT && delivery.next < delivery.window->n)
		{
			if (!send_chunk(&delivery))
				return false;
		}
		if (delivery.in_flight > 0 && !read_verdict(&delivery))
			return false;
	}
	position_advance(position);
	return true;
}

/* INFO may be forbidden to us; then we know nothing against the server. */
static bool
check_server(void)
{
	redisReply *reply = redis_link_call(redis, 1, (const char *[]) {"INFO"});
	bool		usable = true;

	if (reply == NULL)
		return false;
	warning[0] = '\0';
	if (reply->type == REDIS_REPLY_STRING)
	{
		usable = refuse_cluster(reply->str);
		warn_of_eviction(reply->str);
	}
	freeReplyObject(reply);
	if (!usable)
		redis_link_fail(redis, "Redis runs in cluster mode, which is not supported");
	return usable;
}

static bool
refuse_cluster(const char *info)
{
	return strstr(info, "cluster_enabled:1") == NULL;
}

static void
warn_of_eviction(const char *info)
{
	const char *policy = strstr(info, "maxmemory_policy:allkeys-");

	if (policy && strstr(info, "\nmaxmemory:0\r") == NULL)
		snprintf(warning, sizeof(warning),
				 "Redis may evict streams and our marks when its memory is full (maxmemory-policy %.*s): set it to noeviction.",
				 (int) strcspn(policy + 17, "\r\n"), policy + 17);
}

static bool
load_script(void)
{
	redisReply *reply = redis_link_call(redis, 3, (const char *[]) {"SCRIPT", "LOAD", publish_script});
	bool		loaded = reply && reply->type == REDIS_REPLY_STRING && reply->len == 40;

	if (loaded)
		strlcpy(script_sha, reply->str, sizeof(script_sha));
	else if (reply)
		redis_link_fail(redis, "could not load the script: %s",
						reply->type == REDIS_REPLY_ERROR ? reply->str : "unexpected reply");
	if (reply)
		freeReplyObject(reply);
	return loaded;
}

static bool
read_fence(void)
{
	redisReply *reply = redis_link_call(redis, 2, (const char *[]) {"GET", fence_key});
	bool		read = reply &&
		(reply->type == REDIS_REPLY_NIL ||
		 (reply->type == REDIS_REPLY_STRING && reply->len < sizeof(fence)));

	if (read)
		strlcpy(fence, reply->type == REDIS_REPLY_NIL ? "" : reply->str, sizeof(fence));
	else if (reply)
		redis_link_fail(redis, "could not read the fence: %s",
						reply->type == REDIS_REPLY_ERROR ? reply->str : "unexpected reply");
	if (reply)
		freeReplyObject(reply);
	return read;
}

static int64
first_row_after(const WindowRows *window, int64 id)
{
	int64		low = 0;
	int64		high = window->n;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		if (window->rows[middle].id <= id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Makes the next chunk and sends it, unless nothing is left to be in it. */
static bool
send_chunk(Delivery *delivery)
{
	Chunk	   *chunk = &delivery->chunks[delivery->in_flight];

	if (!make_chunk(delivery, chunk))
		return false;
	delivery->next = chunk->next;
	if (chunk->n == 0)
		return true;
	if (!send_command())
		return false;
	strlcpy(fence, chunk->fence, sizeof(fence));
	delivery->in_flight++;
	return true;
}

/*
 * Reads a page of messages and writes the command for them. What is diverted
 * on the way is flushed before this returns, for the chunk's fence passes it.
 */
static bool
make_chunk(Delivery *delivery, Chunk *chunk)
{
	const WindowRows *window = delivery->window;
	char		prefix[FENCE_BYTES];
	int64		row = delivery->next;
	MemoryContext caller;

	if (!transaction_begin("reading messages"))
	{
		redis_link_fail(redis, "the extension is being dropped");
		return false;
	}
	caller = MemoryContextSwitchTo(page_context);
	new_fence_value(prefix, window, -1);
	begin_command(prefix, fence);
	strlcpy(chunk->builds_on, fence, sizeof(chunk->builds_on));
	chunk->n = 0;
	for (; row < window->n && chunk->n < chunk->size; row++)
	{
		if (command.arguments.len >= CHUNK_BYTES || !take_row(window, row, chunk))
			break;
	}
	chunk->next = row;
	if (chunk->n > 0)
		new_fence_value(chunk->fence, window, chunk->rows[chunk->n - 1]);
	MemoryContextSwitchTo(caller);
	transaction_commit();
	MemoryContextReset(page_context);
	return true;
}

/*
 * Puts a message into the chunk, or leaves it out. False: it is too large to
 * travel with others; the chunk ends before it.
 */
static bool
take_row(const WindowRows *window, int64 row, Chunk *chunk)
{
	TupleTableSlot *slot;
	Relation	table;
	Message		message;
	bool		fits;

	fetch_message(&window->rows[row], &slot, &table, &message);
	fits = chunk->n == 0 || VARSIZE_ANY_EXHDR(message.body) <= CHUNK_BYTES;
	if (fits && !deferral_leaves_out(&message))
	{
		if (deferral_diverts(&message))
			deferral_divert(&message, window->rows[row].slot);
		else
		{
			add_message(&message);
			chunk->rows[chunk->n++] = row;
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(table, AccessShareLock);
	return fits;
}

/* Committed and immutable: any snapshot will do. */
static void
fetch_message(const LogRow *row, TupleTableSlot **slot, Relation *table, Message *message)
{
	*table = table_open(relations_enter()->slots[RING_LOG][row->slot].table, AccessShareLock);
	*slot = table_slot_create(*table, NULL);
	if (!table_tuple_fetch_row_version(*table, unconstify(ItemPointerData *, &row->tid), SnapshotAny, *slot))
		elog(ERROR, "message %lld is missing in log_%d", (long long) row->id, row->slot);
	log_row_message(*slot, message);
}

static void
add_message(const Message *message)
{
	int			nfields = 3 + (message->cause ? 1 : 0) +
		(message->headers ? JB_ROOT_COUNT(message->headers) : 0);

	add_number(message->id);
	add_text(message->dest);
	add_number(2 * nfields);
	add_string("id");
	add_text(message->message_id);
	add_string("time");
	add_number((message->at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY) / 1000);
	add_string("body");
	add_argument(VARDATA_ANY(message->body), VARSIZE_ANY_EXHDR(message->body));
	if (message->cause)
	{
		add_string("cause");
		add_text(message->cause);
	}
	if (message->headers)
		add_headers(message->headers);
}

static void
add_headers(Jsonb *headers)
{
	JsonbIterator *iterator = JsonbIteratorInit(&headers->root);
	JsonbValue	name;
	JsonbValue	value;

	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		add_utf8(name.val.string.val, name.val.string.len);
		if (value.type == jbvString)
			add_utf8(value.val.string.val, value.val.string.len);
		else if (value.type == jbvBool)
			add_string(value.val.boolean ? "true" : "false");
		else
			add_string(DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric))));
	}
}

/* Begins a run of the script; messages follow. */
static void
begin_command(const char *new_fence, const char *old_fence)
{
	resetStringInfo(&command.arguments);
	if (command.arguments.maxlen > KEPT_BUFFER)
	{
		pfree(command.arguments.data);
		command.arguments.data = MemoryContextAlloc(TopMemoryContext, KEPT_BUFFER);
		command.arguments.maxlen = KEPT_BUFFER;
		resetStringInfo(&command.arguments);
	}
	command.n = 0;
	add_string("EVALSHA");
	add_string(script_sha);
	add_string("2");
	add_string(fence_key);
	add_string(lease_key);
	add_string(old_fence);
	add_string(new_fence);
	add_string(lease_value);
	add_number(LEASE_MS);
	add_number(outbox_stream_maxlen);
}

static bool
send_command(void)
{
	resetStringInfo(&header);
	appendStringInfo(&header, "*%d\r\n", command.n);
	return redis_link_send(redis, header.data, header.len) &&
		redis_link_send(redis, command.arguments.data, command.arguments.len);
}

static void
add_argument(const char *data, size_t size)
{
	char		length[24];
	int			digits = pg_ulltoa_n(size, length);

	enlargeStringInfo(&command.arguments, size + 32);
	appendStringInfoCharMacro(&command.arguments, '$');
	appendBinaryStringInfo(&command.arguments, length, digits);
	appendBinaryStringInfo(&command.arguments, "\r\n", 2);
	appendBinaryStringInfo(&command.arguments, data, size);
	appendBinaryStringInfo(&command.arguments, "\r\n", 2);
	command.n++;
}

static void
add_string(const char *string)
{
	add_argument(string, strlen(string));
}

static void
add_number(int64 number)
{
	char		digits[24];

	add_argument(digits, pg_lltoa(number, digits));
}

static void
add_text(const text *value)
{
	add_utf8(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

/* Everything that is text leaves as UTF-8. */
static void
add_utf8(const char *string, int length)
{
	char	   *converted = pg_server_to_any(string, length, PG_UTF8);

	add_argument(converted, converted == string ? length : strlen(converted));
}

/* Waits for the verdict on the oldest chunk in flight. */
static bool
read_verdict(Delivery *delivery)
{
	return judge(delivery, redis_link_receive(redis));
}

/* Reads a reply, frees it, and does what it asks for. */
static bool
judge(Delivery *delivery, redisReply *reply)
{
	char		error[256] = "";
	int			added = -1;

	if (reply == NULL)
		return false;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		reply->element[0]->type == REDIS_REPLY_INTEGER)
	{
		added = (int) reply->element[0]->integer;
		if (reply->element[1]->type == REDIS_REPLY_STRING)
			strlcpy(error, reply->element[1]->str, sizeof(error));
	}
	else
		strlcpy(error, reply->type == REDIS_REPLY_ERROR ? reply->str : "unexpected reply", sizeof(error));
	freeReplyObject(reply);

	if (added < 0 || (error[0] != '\0' && is_server_error(error)))
	{
		redis_link_fail(redis, "%s", error);
		return false;
	}
	count_sent(added);
	if (error[0] != '\0')
		return set_aside(delivery, added, error);
	if (delivery->in_flight > 0)
	{
		Chunk		done = delivery->chunks[0];

		delivery->in_flight--;
		memmove(&delivery->chunks[0], &delivery->chunks[1], sizeof(Chunk) * (CHUNKS_IN_FLIGHT - 1));
		delivery->chunks[CHUNKS_IN_FLIGHT - 1] = done;	/* its array is free */
	}
	return true;
}

/*
 * The message after the first `added` ones of the oldest chunk was refused:
 * keeps it elsewhere, and goes on behind it.
 */
static bool
set_aside(Delivery *delivery, int added, const char *error)
{
	Chunk	   *chunk = &delivery->chunks[0];
	int64		row = chunk->rows[added];
	const LogRow *refused = &delivery->window->rows[row];
	TupleTableSlot *slot;
	Relation	table;
	Message		message;

	if (!drain_behind(delivery))
		return false;
	if (added > 0)
		new_fence_value(fence, delivery->window, chunk->rows[added - 1]);
	else
		strlcpy(fence, chunk->builds_on, sizeof(fence));

	if (!transaction_begin("deferring a message"))
	{
		redis_link_fail(redis, "the extension is being dropped");
		return false;
	}
	fetch_message(refused, &slot, &table, &message);
	deferral_refused(&message, refused->slot, error);
	ExecDropSingleTupleTableSlot(slot);
	table_close(table, AccessShareLock);
	transaction_commit();

	delivery->next = row + 1;
	delivery->in_flight = 0;
	return true;
}

/* Chunks behind a refused message have failed the compare; nothing else may. */
static bool
drain_behind(Delivery *delivery)
{
	for (int i = 1; i < delivery->in_flight; i++)
	{
		redisReply *reply = redis_link_receive(redis);
		bool		expected = reply && reply->type == REDIS_REPLY_ERROR &&
			strncmp(reply->str, SCRIPT_FENCE_MOVED, strlen(SCRIPT_FENCE_MOVED)) == 0;

		if (reply && !expected)
			redis_link_fail(redis, "%s", reply->type == REDIS_REPLY_ERROR ? reply->str : "unexpected reply");
		if (reply)
			freeReplyObject(reply);
		if (!expected)
			return false;
	}
	return true;
}

/* Whether an error concerns the server and not one message or destination. */
static bool
is_server_error(const char *error)
{
	static const char *const codes[] = {
		"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "OOM", "MISCONF", "BUSY",
		"NOAUTH", "WRONGPASS", "NOSCRIPT", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
		SCRIPT_FENCE_MOVED
	};

	for (int i = 0; i < lengthof(codes); i++)
	{
		size_t		length = strlen(codes[i]);

		if (strncmp(error, codes[i], length) == 0 && (error[length] == ' ' || error[length] == '\0'))
			return true;
	}
	return false;
}

/* "<window> <uuid> <message id>"; without the id, for the script, if row < 0. */
static void
new_fence_value(char *value, const WindowRows *window, int64 row)
{
	char	   *uuid = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&window->uuid)));

	if (row < 0)
		snprintf(value, FENCE_BYTES, "%lld %s ", (long long) window->number, uuid);
	else
		snprintf(value, FENCE_BYTES, "%lld %s %lld", (long long) window->number, uuid,
				 (long long) window->rows[row].id);
	pfree(uuid);
}

static void
count_sent(int n)
{
	pg_atomic_fetch_add_u64(&shared_mine()->sent, n);
}

/*
 * forbidden.c
 *		The messages of a batch whose streams the ACL of Redis forbids.
 *
 * Called by delivery.c, when nothing is under way. In a Redis Cluster a batch declares
 * its streams as keys, so one that is forbidden makes Redis refuse the batch as a
 * whole, without a word of which one it is. Each stream is therefore asked for: a run
 * of the script with the fence and this stream, which builds on a fence that cannot be.
 * It needs the same permissions as a batch, and changes nothing. Only NOPERM is an answer to
 * the question; whatever else there is to say, the next batch is told.
 *
 * If the fence itself is forbidden, no message is to blame. If nothing is, the messages
 * may be sent one by one (suspects.c): who may write to each of them need not be allowed to
 * write to all at once. Nothing is written here.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/connection/traffic.h"
#include "bgworker/process/transaction.h"
#include "bgworker/publish/forbidden.h"
#include "bgworker/window/row_reader.h"
#include "src/kill_point.h"

#define IMPOSSIBLE_FENCE	"?" /* no fence has this value */

/* The streams that messages are for. */
typedef struct Streams
{
	int			n;
	char	  **names;
	bool	   *is_forbidden;
	int		   *of_row;			/* which of them each message is for */
} Streams;

static MemoryContext context;	/* reset for each batch */

static bool read_streams(const RefusedRows *refusal, Run *run, Streams *streams);
static char *stream_of(RowReader *reader, Run *run, int64 row);
static void add_to_name(const char *bytes, size_t size, void *arg);
static int	find_stream(Streams *streams, char *name);
static bool ask(Lane *lane, Streams *streams);
static bool send_questions(Lane *lane, const Streams *streams);
static bool receive_answer(Lane *lane, bool *is_forbidden);
static void keep_forbidden(RefusedRows *refusal, const Streams *streams);

/*
 * Leaves those rows of a refusal whose streams are forbidden; before, it has all rows
 * of a batch that was refused as a whole. Returns false if the links are closed: there
 * is at least one such row otherwise.
 */
bool
forbidden_find(RefusedRows *refusal, Run *run)
{
	Streams		streams;
	bool		found = read_streams(refusal, run, &streams) && ask(refusal->lane, &streams);

	if (found)
	{
		keep_forbidden(refusal, &streams);
		found = refusal->n > 0 || traffic_fail_as_lane(refusal->lane, refusal->error);
	}
	if (context)
		MemoryContextReset(context);
	if (found)
		KILL_POINT("lane_forbidden_found");
	return found;
}

/* Finds the streams of the messages. Returns false if the extension is being dropped; the links are then closed. */
static bool
read_streams(const RefusedRows *refusal, Run *run, Streams *streams)
{
	MemoryContext caller;
	RowReader	reader = {0};

	if (!transaction_begin("looking for a stream that is forbidden"))
	{
		traffic_give_up();
		return false;
	}
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox forbidden streams", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	*streams = (Streams) {
		.names = palloc(refusal->n * sizeof(char *)),
		.is_forbidden = palloc0(refusal->n * sizeof(bool)),
		.of_row = palloc(refusal->n * sizeof(int))
	};
	for (int i = 0; i < refusal->n; i++)
		streams->of_row[i] = find_stream(streams, stream_of(&reader, run, refusal->rows[i]));
	MemoryContextSwitchTo(caller);
	row_reader_close(&reader);
	transaction_commit();
	return true;
}

/* Returns the key of the stream of a message, palloc'd. */
static char *
stream_of(RowReader *reader, Run *run, int64 row)
{
	const LogRow *place = run_row(run, row);
	int64		window = run_place_of(run, place).window;
	StringInfoData name;
	Message		message;
	Route		route;

	log_row_envelope(row_reader_fetch_message(reader, place), &message);
	route = route_find(&message, window);
	initStringInfo(&name);
	route_write_stream(&route, &message, add_to_name, &name);
	return name.data;
}

/* An EntrySink. */
static void
add_to_name(const char *bytes, size_t size, void *arg)
{
	appendBinaryStringInfo(arg, bytes, size);
}

/* Returns which of the streams has that name; it is added if none has. */
static int
find_stream(Streams *streams, char *name)
{
	for (int i = streams->n - 1; i >= 0; i--)
	{
		if (strcmp(streams->names[i], name) == 0)
			return i;
	}
	streams->names[streams->n] = name;
	return streams->n++;
}

/* Asks Redis which of the streams are forbidden. Returns false if the links are closed. */
static bool
ask(Lane *lane, Streams *streams)
{
	bool		is_fence_forbidden;

	if (!send_questions(lane, streams) || !receive_answer(lane, &is_fence_forbidden))
		return false;
	for (int i = 0; i < streams->n; i++)
	{
		if (!receive_answer(lane, &streams->is_forbidden[i]))
			return false;
	}
	return !is_fence_forbidden || traffic_fail("the ACL forbids the fence, a key of the outbox");
}

/* Sends all questions: for the fence alone, and for each stream with it. */
static bool
send_questions(Lane *lane, const Streams *streams)
{
	const char *sha = traffic_script()->sha;

	if (!traffic_ask(lane, 7, (const char *[]) {"EVALSHA", sha, "1", lane->key, IMPOSSIBLE_FENCE, "", "0"}))
		return false;
	for (int i = 0; i < streams->n; i++)
	{
		if (!traffic_ask(lane, 8, (const char *[]) {"EVALSHA", sha, "2", lane->key, streams->names[i], IMPOSSIBLE_FENCE, "", "0"}))
			return false;
	}
	return true;
}

/* Receives the answer to one of them. Returns false if the link fails. */
static bool
receive_answer(Lane *lane, bool *is_forbidden)
{
	redisReply *reply = traffic_receive(lane);

	if (reply == NULL)
		return false;
	*is_forbidden = batch_verdict_forbids_key(reply);
	freeReplyObject(reply);
	return true;
}

/* Leaves the rows of a refusal that are for forbidden streams. */
static void
keep_forbidden(RefusedRows *refusal, const Streams *streams)
{
	int			n = 0;

	for (int i = 0; i < refusal->n; i++)
	{
		if (streams->is_forbidden[streams->of_row[i]])
			refusal->rows[n++] = refusal->rows[i];
	}
	refusal->n = n;
}

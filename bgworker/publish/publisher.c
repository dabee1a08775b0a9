/*
 * publisher.c
 *		Sends a window to Redis, batch by batch, and reads every verdict.
 *
 * Called by the dispatcher. Each batch is one run of the script (publish.lua);
 * the next is made while one is under way. No transaction is open while we
 * wait for Redis.
 *
 * Verdicts: all added: go on. One refused: it goes to deferral.c, together with
 * all of its batch that are refused alike; batches behind it have failed the
 * compare, and the window goes on after it, with one batch at a time until one
 * passes. Anything else
 * concerns the server or the link: close it; whoever connects next reads the
 * fence, which tells what has arrived. No error is ever success.
 *
 * A message that breaks the link gets no verdict. When the link has failed again
 * and again without any progress, what was under way then is suspect and is sent
 * one by one; the one that it fails on even so is deferred as if refused.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "bgworker/defer/tally.h"
#include "bgworker/publish/batch.h"
#include "bgworker/publish/lease.h"
#include "bgworker/publish/publish.lua.h"
#include "bgworker/publish/publisher.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/redis/redis_connect.h"
#include "src/settings.h"
#include "src/shared.h"

#define BATCHES_IN_FLIGHT 2
#define LARGE_BYTES		(8 * 1024 * 1024)	/* a batch that has as many is alone under way */

/* The errors that publish.lua returns begin with one of these. */
#define SCRIPT_FENCE_MOVED	"FENCE"
#define SCRIPT_LEASE_LOST	"LEASE"

#define FENCE_LAG_MS	1000	/* that the fence may stay behind what was dealt with */

/* Failures of the link in a row without any progress, until ... */
#define STRIKES_TO_SUSPECT	3	/* what was under way is sent one by one */
#define STRIKES_TO_DEFER	3	/* the one that was sent alone is deferred */

/* The window that is being published. */
typedef struct Delivery
{
	WindowRows *window;
	int64		next;			/* first row that is not in a batch yet */
	int64		fresh;			/* first row that nobody has looked at before */
	int			batch_size;		/* that the batches have room for; the setting
								 * may change meanwhile */
	bool		begun;			/* a batch was made */
	int64		tried;			/* last message of the batch that was sent
								 * last; 0 = none was */
	bool		refused;		/* something in the batch before was */
	int			in_flight;
	Batch		batches[BATCHES_IN_FLIGHT];	/* oldest first */
	int64	   *rows_refused;	/* room for a batch's */
	int			nrefused;
} Delivery;

/* Messages of a window that the link may have failed on. */
typedef struct Suspects
{
	int64		window;			/* 0 = there are none */
	int64		upto;			/* ids up to this one */
	int64		alone;			/* the one that it failed on when that was
								 * sent alone; 0 = none yet */
	int			strikes;		/* how often in a row it did */
} Suspects;

static RedisLink *redis;
static bool (*is_wanted) (void);	/* elsewhere: then sending is interrupted */
static Instance *instance;
static ScriptCall call;
static char fence[FENCE_BYTES]; /* value in Redis when all in flight is done */
static TimestampTz fence_moved; /* when it named the window that was
								 * published then, by clock_now(); 0 = not
								 * yet, on this connection */
static bool fence_is_ours;		/* on this connection */
static int	answers_due;	/* to batches, on this connection */
static int	strikes;			/* failures of the link since the last progress */
static Suspects suspects;
static bool server_refused;		/* the link failed because the server said so */

static bool send_command(void);
static redisReply *receive_answer(void);
static bool check_server(void);
static bool refuse_cluster(const char *info);
static void warn_of_eviction(const char *info);
static bool load_script(void);
static bool read_fence(void);
static bool claim_fence(void);
static bool set_fence(const char *new_fence);
static Connection look_at_lease(void);
static bool note_publisher(void);
static bool take_fence_along(const WindowRows *window);
static int64 first_row_after(WindowRows *window, int64 id);
static void make_room(Delivery *delivery);
static void begin_delivery(Delivery *delivery, Position *position);
static void note_looked_at(Position *position, const Delivery *delivery);
static bool is_suspect(const Delivery *delivery);
static int	batches_allowed(const Delivery *delivery);
static bool may_send_another(const Delivery *delivery);
static bool deliver(Delivery *delivery);
static void note_strike(const Delivery *delivery);
static void note_progress(void);
static bool give_way(const Delivery *delivery);
static bool send_batch(Delivery *delivery);
static bool read_verdict(Delivery *delivery);
static bool judge(Delivery *delivery, redisReply *reply);
static bool read_refused(Delivery *delivery, int added, const redisReply *places);
static void batch_is_done(Delivery *delivery);
static bool defer_refused(Delivery *delivery, int added, const char *error);
static bool drain_behind(Delivery *delivery);
static bool is_server_error(const char *error);
static bool forbids_command(const char *error);
static bool extension_is_dropped(void);
static void count_sent(int n);

/*
 * Prepares for use; once, when the dispatcher starts. `attend` is called while
 * Redis is waited for; `is_wanted_elsewhere` is asked between two batches.
 */
void
publisher_init(LinkAttend attend, bool (*is_wanted_elsewhere) (void))
{
	is_wanted = is_wanted_elsewhere;
	redis = redis_link_create(attend);
	batch_init();
	lease_init();
}

/* Names our keys in Redis. The instance is remembered by its address. */
void
publisher_set_instance(Instance *ours)
{
	char	   *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&ours->id)));

	instance = ours;
	snprintf(call.fence_key, sizeof(call.fence_key), "outbox:fence:%s", id);
	snprintf(call.lease_key, sizeof(call.lease_key), "outbox:lease:%s", id);
	pfree(id);
}

/*
 * Connects, takes the lease, reads the fence and goes to where it says. A batch
 * of no messages tries whether the script may run and write.
 */
Connection
publisher_connect(Position *position)
{
	Connection	lease;

	fence_is_ours = false;
	answers_due = 0;
	if (!redis_connect(redis) || !check_server() || !load_script())
		return CONNECTION_FAILED;
	lease = look_at_lease();
	if (lease != CONNECTION_OPEN)
		return lease;
	KILL_POINT("lease_looked_at");
	if (!read_fence() || !claim_fence())
		return CONNECTION_FAILED;
	fence_is_ours = true;
	KILL_POINT("fence_claimed");
	if (!transaction_begin("reading the position"))
	{
		(void) extension_is_dropped();
		return CONNECTION_FAILED;
	}
	position_resume(position, fence);
	transaction_commit();
	KILL_POINT("position_resumed");
	return CONNECTION_OPEN;
}

/* Lets others publish without waiting for the lease to run out; for a clean stop. */
void
publisher_release(void)
{
	if (!redis_link_is_open(redis))
		return;
	batch_make_release(&call);
	(void) batch_send(redis);	/* if it does not arrive, it runs out */
	redis_link_close(redis);
}

bool
publisher_is_connected(void)
{
	return redis_link_is_open(redis);
}

/* Whether the link has not failed since something went through. */
bool
publisher_makes_progress(void)
{
	return strikes == 0;
}

/* Why the last call returned false. */
const char *
publisher_error(void)
{
	return redis_link_error(redis);
}

/* Whether publisher_renew() may be called amid whatever is being done with the link. */
bool
publisher_may_renew(void)
{
	return redis_link_is_open(redis) && fence_is_ours && answers_due == 0;
}

/*
 * Renews the lease, and so finds out whether Redis is still there and still
 * has our fence. Only when nothing is in flight. A setting that endangers us
 * may have been mended meanwhile.
 */
bool
publisher_renew(void)
{
	return set_fence(fence) && (!problem_is_set(PROBLEM_EVICTION) || check_server());
}

/* Puts the fence to the end of a window without messages. */
bool
publisher_move_fence(int64 number, const pg_uuid_t *uuid)
{
	char		moved[FENCE_BYTES];

	batch_fence_of_empty_window(moved, &call, number, uuid);
	return set_fence(moved);
}

/*
 * Publishes the window after position->sent, or at least a batch of it if we
 * are wanted elsewhere, and notes in the position how far that got.
 */
Progress
publisher_publish_next(Position *position)
{
	Delivery	delivery = {.window = position_next_rows(position)};
	bool		delivered;

	if (delivery.window == NULL)
	{
		(void) extension_is_dropped();
		return PUBLISH_FAILED;
	}
	if (delivery.window->n == 0)
	{
		/* Receipts only. The fence must not stay at a window that is not kept. */
		if (!publisher_move_fence(delivery.window->number, &delivery.window->uuid))
			return PUBLISH_FAILED;
		position_advance(position);
		return PUBLISHED_WINDOW;
	}
	begin_delivery(&delivery, position);
	if (!give_way(&delivery))
		return PUBLISH_FAILED;
	server_refused = false;
	delivered = deliver(&delivery);
	note_looked_at(position, &delivery);
	if (!delivered)
	{
		if (!server_refused)
			note_strike(&delivery);
		return PUBLISH_FAILED;
	}
	if (delivery.next < delivery.window->n)
	{
		position->resume_after = window_rows_get(delivery.window, delivery.next - 1)->id;
		return PUBLISHED_PART;
	}
	KILL_POINT("window_sent");
	if (!take_fence_along(delivery.window))
		return PUBLISH_FAILED;
	if (suspects.window == delivery.window->number)
		suspects.window = 0;
	tally_settle();
	position_advance(position);
	return PUBLISHED_WINDOW;
}

/* Where the window is to be gone on with, and which of its rows are looked at for the first time. */
static void
begin_delivery(Delivery *delivery, Position *position)
{
	WindowRows *window = delivery->window;

	if (window->number > position->touched)
	{
		position->touched = window->number;
		position->touched_upto = 0;
	}
	delivery->next = first_row_after(window, position->resume_after);
	delivery->fresh = window->number == position->touched ?
		first_row_after(window, position->touched_upto) : window->n;
	delivery->batch_size = outbox_batch_size;
	make_room(delivery);
}

static void
note_looked_at(Position *position, const Delivery *delivery)
{
	if (delivery->window->number == position->touched && delivery->fresh > 0)
		position->touched_upto = Max(position->touched_upto,
									 window_rows_get(delivery->window, delivery->fresh - 1)->id);
}

/*
 * A window of which nothing was added, for all of it was kept elsewhere, has left
 * the fence where it was. If that went on, the fence would in the end name a
 * window that is not kept any more, as after a loss of Redis.
 */
static bool
take_fence_along(const WindowRows *window)
{
	TimestampTz lag = Min(FENCE_LAG_MS * INT64CONST(1000), outbox_replay_window * USECS_PER_SEC / 4);

	if (strtoll(fence, NULL, 10) != window->number)
	{
		if (clock_now() - fence_moved < lag)
			return true;
		if (!publisher_move_fence(window->number, &window->uuid))
			return false;
	}
	fence_moved = clock_now();
	return true;
}

/* Gives all batches arrays that a whole batch fits in; they are kept for the next window. */
static void
make_room(Delivery *delivery)
{
	static int64 *room;
	static int	size;

	if (size != delivery->batch_size)
	{
		size = delivery->batch_size;
		if (room)
			pfree(room);
		room = MemoryContextAlloc(TopMemoryContext, (BATCHES_IN_FLIGHT + 1) * size * sizeof(int64));
	}
	for (int i = 0; i < BATCHES_IN_FLIGHT; i++)
	{
		delivery->batches[i].rows = room + i * size;
		delivery->batches[i].reach = size;
	}
	delivery->rows_refused = room + BATCHES_IN_FLIGHT * size;
}

/* Whether the next message may be what the link failed on. */
static bool
is_suspect(const Delivery *delivery)
{
	return suspects.window == delivery->window->number &&
		delivery->next < delivery->window->n &&
		window_rows_get(delivery->window, delivery->next)->id <= suspects.upto;
}

/*
 * How many batches may be under way. Behind a refusal there are often more, and
 * what is sent behind a batch that is refused was made in vain. And of a large one
 * all is in memory until the socket has taken it.
 */
static int
batches_allowed(const Delivery *delivery)
{
	if (is_suspect(delivery) || delivery->refused ||
		(delivery->in_flight > 0 && delivery->batches[0].bytes >= LARGE_BYTES))
		return 1;
	return BATCHES_IN_FLIGHT;
}

/* Who is wanted elsewhere goes after a batch at the earliest, so there is always progress. */
static bool
may_send_another(const Delivery *delivery)
{
	return delivery->next < delivery->window->n &&
		delivery->in_flight < batches_allowed(delivery) &&
		!(delivery->begun && is_wanted());
}

/* When it returns true, nothing is under way. */
static bool
deliver(Delivery *delivery)
{
	do
	{
		while (may_send_another(delivery))
		{
			if (!send_batch(delivery))
				return false;
		}
		if (delivery->in_flight > 0 && !read_verdict(delivery))
			return false;
	} while (delivery->in_flight > 0 || may_send_another(delivery));
	return true;
}

/* The link has failed, and nothing tells why. */
static void
note_strike(const Delivery *delivery)
{
	strikes++;
	if (delivery->tried == 0)
		return;
	if (suspects.window == delivery->window->number && delivery->tried <= suspects.upto)
	{
		suspects.strikes = delivery->tried == suspects.alone ? suspects.strikes + 1 : 1;
		suspects.alone = delivery->tried;
	}
	else if (strikes >= STRIKES_TO_SUSPECT)
		suspects = (Suspects) {.window = delivery->window->number, .upto = delivery->tried};
}

/* There was a verdict. Whether the rest of what is suspect passes is to be seen yet. */
static void
note_progress(void)
{
	strikes = 0;
	suspects.strikes = 0;
}

/*
 * The link has failed again and again on the one message that was under way,
 * although the server let us in: it is the message (too large for a limit
 * of the server, or of a proxy before it). It gives way to those behind it,
 * which are no longer suspect.
 */
static bool
give_way(const Delivery *delivery)
{
	char		error[LINK_ERROR_BYTES];
	int64		row;

	if (suspects.window != delivery->window->number || suspects.strikes < STRIKES_TO_DEFER)
		return true;
	row = first_row_after(delivery->window, suspects.alone - 1);
	strlcpy(error, redis_link_error(redis), sizeof(error));
	memset(&suspects, 0, sizeof(suspects));
	strikes = 0;
	return batch_defer_rows(delivery->window, &row, 1, error) || extension_is_dropped();
}

/* Sends what batch.c has made last. */
static bool
send_command(void)
{
	answers_due++;
	return batch_send(redis);
}

static redisReply *
receive_answer(void)
{
	redisReply *reply = redis_link_receive(redis);

	answers_due--;
	return reply;
}

/* INFO may be forbidden to us; then we know nothing against the server. */
static bool
check_server(void)
{
	redisReply *reply = redis_link_call(redis, 1, (const char *[]) {"INFO"});
	bool		usable = true;

	if (reply == NULL)
		return false;
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
	char		name[64];

	if (policy == NULL || strstr(info, "\nmaxmemory:0\r") != NULL)
	{
		problem_clear(PROBLEM_EVICTION);
		return;
	}
	policy += strlen("maxmemory_policy:");
	foreign_text_copy(name, sizeof(name), policy, strcspn(policy, "\r\n"));
	problem_set(PROBLEM_EVICTION,
				"Redis may evict streams and our marks when its memory is full (maxmemory-policy %s): set it to noeviction.", name);
}

static bool
load_script(void)
{
	redisReply *reply = redis_link_call(redis, 3, (const char *[]) {"SCRIPT", "LOAD", publish_script});
	bool		loaded = reply && reply->type == REDIS_REPLY_STRING && reply->len == 40;

	if (loaded)
		strlcpy(call.sha, reply->str, sizeof(call.sha));
	else if (reply)
		redis_link_refused(redis, reply, "could not load the script");
	if (reply)
		freeReplyObject(reply);
	return loaded;
}

static bool
read_fence(void)
{
	redisReply *reply = redis_link_call(redis, 2, (const char *[]) {"GET", call.fence_key});
	bool		read = reply &&
		(reply->type == REDIS_REPLY_NIL ||
		 (reply->type == REDIS_REPLY_STRING && reply->len < sizeof(fence)));

	fence_moved = 0;
	if (read)
		strlcpy(fence, reply->type == REDIS_REPLY_NIL ? "" : reply->str, sizeof(fence));
	else if (reply)
		redis_link_refused(redis, reply, "could not read the fence");
	if (reply)
		freeReplyObject(reply);
	return read;
}

/*
 * Puts the name of this connection into the fence, where it stands. So no
 * batch of an earlier connection that is still on its way can ever pass the
 * compare, not even when the window has not moved because a message was set
 * aside.
 */
static bool
claim_fence(void)
{
	char		claimed[FENCE_BYTES];

	snprintf(call.connection, sizeof(call.connection), "%08x", pg_prng_uint32(&pg_global_prng_state));
	position_claim_fence(fence, call.connection, claimed, sizeof(claimed));
	return set_fence(claimed);
}

/* Sets the fence, if nobody else has, and renews the lease. */
static bool
set_fence(const char *new_fence)
{
	Delivery	none = {0};

	batch_make_empty(&call, new_fence, fence);
	if (!send_command())
		return false;
	KILL_POINT("fence_sent");
	if (!judge(&none, receive_answer()))
		return false;
	if (new_fence != fence)
		strlcpy(fence, new_fence, sizeof(fence));
	return true;
}

/* Whether we may publish; and if we come after somebody else, writes it down. */
static Connection
look_at_lease(void)
{
	redisReply *reply = redis_link_call(redis, 2, (const char *[]) {"GET", call.lease_key});
	bool		read = reply && (reply->type == REDIS_REPLY_NIL || reply->type == REDIS_REPLY_STRING);
	char		reason[256];
	bool		ours = false;

	if (read)
		ours = lease_may_be_taken(reply->type == REDIS_REPLY_STRING ? reply->str : NULL,
								  instance->publisher[0] ? instance->publisher : NULL,
								  reason, sizeof(reason));
	else if (reply)
		redis_link_refused(redis, reply, "could not read the lease");
	if (reply)
		freeReplyObject(reply);
	if (!read)
		return CONNECTION_FAILED;
	if (!ours)
	{
		redis_link_fail(redis, "%s", reason);
		return CONNECTION_HELD;
	}
	return note_publisher() ? CONNECTION_OPEN : CONNECTION_FAILED;
}

static bool
note_publisher(void)
{
	if (strcmp(instance->publisher, lease_owner()) == 0)
		return true;
	if (!transaction_begin("noting the publisher"))
		return extension_is_dropped();
	instance_publish_as(instance, lease_owner());
	transaction_commit();
	return true;
}

static int64
first_row_after(WindowRows *window, int64 id)
{
	int64		low = 0;
	int64		high = window->n;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		if (window_rows_get(window, middle)->id <= id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Makes the next batch and sends it, unless nothing is left to be in it. */
static bool
send_batch(Delivery *delivery)
{
	Batch	   *batch = &delivery->batches[delivery->in_flight];

	delivery->begun = true;
	batch->size = is_suspect(delivery) ? 1 : delivery->batch_size;
	if (!batch_make(batch, &call, delivery->window, delivery->next, delivery->fresh, fence))
		return extension_is_dropped();
	delivery->next = batch->next;
	delivery->fresh = Max(delivery->fresh, batch->next);
	if (batch->n == 0)
	{
		KILL_POINT("whole_batch_deferred");
		redis_link_attend(redis);
		return true;
	}
	KILL_POINT("batch_made");
	delivery->tried = window_rows_get(delivery->window, batch->rows[batch->n - 1])->id;
	if (!send_command())
		return false;
	KILL_POINT("batch_sent");
	if (delivery->in_flight == 1)
		KILL_POINT("second_batch_sent");
	strlcpy(fence, batch->fence, sizeof(fence));
	delivery->in_flight++;
	return true;
}

/* Waits for the verdict on the oldest batch in flight. */
static bool
read_verdict(Delivery *delivery)
{
	return judge(delivery, receive_answer());
}

/* Reads a reply, frees it, and does what it asks for. */
static bool
judge(Delivery *delivery, redisReply *reply)
{
	char		error[FOREIGN_TEXT_BYTES] = "";
	int			added = -1;

	if (reply == NULL)
		return false;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
		reply->element[0]->type == REDIS_REPLY_INTEGER)
	{
		added = (int) reply->element[0]->integer;
		if (reply->element[1]->type == REDIS_REPLY_STRING)
		{
			foreign_text_copy(error, sizeof(error), reply->element[1]->str, reply->element[1]->len);
			if (!read_refused(delivery, added, reply->element[2]))
				added = -1;
		}
	}
	else
		redis_reply_error(reply, error, sizeof(error));
	freeReplyObject(reply);
	KILL_POINT("answer_read");

	/* Without an error all are added, or it is not our script that has answered. */
	if (error[0] == '\0' && added != (delivery->in_flight > 0 ? delivery->batches[0].n : 0))
	{
		added = -1;
		strlcpy(error, "unexpected reply", sizeof(error));
	}

	if (added < 0 || (error[0] != '\0' && is_server_error(error)))
	{
		server_refused = is_server_error(error);
		redis_link_fail(redis, "%s", error);
		return false;
	}
	count_sent(added);
	if (added > 0 || error[0] != '\0')
		note_progress();
	delivery->refused = error[0] != '\0';
	if (delivery->refused)
		return defer_refused(delivery, added, error);
	if (delivery->in_flight > 0)
	{
		batch_is_done(delivery);
		KILL_POINT("batch_done");
	}
	return true;
}

/*
 * Notes which rows of the oldest batch were refused, the first one right after
 * those that were added. False: that makes no sense.
 */
static bool
read_refused(Delivery *delivery, int added, const redisReply *places)
{
	const Batch *batch = &delivery->batches[0];

	delivery->nrefused = 0;
	if (delivery->in_flight == 0 || places->type != REDIS_REPLY_ARRAY ||
		places->elements == 0 || places->elements > batch->n)
		return false;
	for (size_t i = 0; i < places->elements; i++)
	{
		const redisReply *place = places->element[i];

		if (place->type != REDIS_REPLY_INTEGER || place->integer < added || place->integer >= batch->n)
			return false;
		delivery->rows_refused[delivery->nrefused++] = batch->rows[place->integer];
	}
	return places->element[0]->integer == added;
}

/* The oldest batch has been added. */
static void
batch_is_done(Delivery *delivery)
{
	Batch		done = delivery->batches[0];

	delivery->in_flight--;
	memmove(&delivery->batches[0], &delivery->batches[1], sizeof(Batch) * (BATCHES_IN_FLIGHT - 1));
	delivery->batches[BATCHES_IN_FLIGHT - 1] = done;	/* its array is free */
}

/*
 * The message after the first `added` ones of the oldest batch was refused:
 * keeps it elsewhere, with those behind it that are refused alike, and goes on
 * behind it.
 */
static bool
defer_refused(Delivery *delivery, int added, const char *error)
{
	Batch	   *batch = &delivery->batches[0];

	KILL_POINT("refusal_read");
	if (added > 0)
		KILL_POINT("refusal_amid_batch_read");
	if (!drain_behind(delivery))
		return false;
	KILL_POINT("batches_behind_drained");
	batch_fence_after(batch, delivery->window, added, fence);

	if (!batch_defer_rows(delivery->window, delivery->rows_refused, delivery->nrefused, error))
		return extension_is_dropped();
	delivery->next = delivery->rows_refused[0] + 1;
	delivery->in_flight = 0;
	return true;
}

/* Batches behind a refused message have failed the compare; nothing else may. */
static bool
drain_behind(Delivery *delivery)
{
	for (int i = 1; i < delivery->in_flight; i++)
	{
		redisReply *reply = receive_answer();
		bool		expected = reply && reply->type == REDIS_REPLY_ERROR &&
			strncmp(reply->str, SCRIPT_FENCE_MOVED, strlen(SCRIPT_FENCE_MOVED)) == 0;

		if (reply && !expected)
			redis_link_refused(redis, reply, "a batch behind a refused message was not left out");
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
		SCRIPT_FENCE_MOVED, SCRIPT_LEASE_LOST
	};

	for (int i = 0; i < lengthof(codes); i++)
	{
		size_t		length = strlen(codes[i]);

		if (strncmp(error, codes[i], length) == 0 && (error[length] == ' ' || error[length] == '\0'))
			return true;
	}
	return forbids_command(error);
}

/*
 * Whether the error says that we may not run a command at all, as against one
 * key that we may not touch: that is about a destination. Redis has one code for
 * both, and none in scripts up to 7.0. The name of a key comes after what
 * tells of it.
 */
static bool
forbids_command(const char *error)
{
	static const char *const texts[] = {"can't run this command", "permissions to run", "Unknown Redis command"};
	static const char *const key_texts[] = {"can't access", "permissions to access", "permission to access"};

	for (int i = 0; i < lengthof(texts); i++)
	{
		const char *found = strstr(error, texts[i]);

		for (int j = 0; found && j < lengthof(key_texts); j++)
		{
			const char *key = strstr(error, key_texts[j]);

			if (key && key < found)
				found = NULL;
		}
		if (found)
			return true;
	}
	return false;
}

/* No transaction could begin. That is no fault of a message. */
static bool
extension_is_dropped(void)
{
	server_refused = true;
	redis_link_fail(redis, "the extension is being dropped");
	return false;
}

static void
count_sent(int n)
{
	pg_atomic_fetch_add_u64(&shared_mine()->sent, n);
}

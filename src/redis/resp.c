/*
 * resp.c
 *		Redis' protocol: commands written, replies limited and read.
 *
 * Called by everything that talks to Redis. A command is an array of strings; it
 * is written by hand into a buffer of the caller's, which may be used again and
 * again. hiredis reads the replies.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/redis/resp.h"

/* Replies that we expect have a number for each message of a batch at the most. */
#define MAX_ELEMENTS	65536

static redisReplyObjectFunctions plain_functions;	/* hiredis' own */

static void *create_array(const redisReadTask *task, compat_elements n);

/* Begins a command of so many strings. */
void
resp_put_array(StringInfo out, int n)
{
	appendStringInfo(out, "*%d\r\n", n);
}

/* Adds a string, which may hold any bytes. */
void
resp_put(StringInfo out, const char *bytes, size_t size)
{
	char		length[24];
	int			digits = pg_ulltoa_n(size, length);

	enlargeStringInfo(out, size + sizeof(length) + 5);
	appendStringInfoCharMacro(out, '$');
	appendBinaryStringInfo(out, length, digits);
	appendBinaryStringInfo(out, "\r\n", 2);
	appendBinaryStringInfo(out, bytes, size);
	appendBinaryStringInfo(out, "\r\n", 2);
}

void
resp_put_string(StringInfo out, const char *string)
{
	resp_put(out, string, strlen(string));
}

void
resp_put_number(StringInfo out, int64 number)
{
	char		digits[24];

	resp_put(out, digits, pg_lltoa(number, digits));
}

/* Limits the replies that are read: hiredis makes room for as many elements as one says it has. */
void
resp_limit_replies(redisReader *reader)
{
	static redisReplyObjectFunctions limited;

	plain_functions = *reader->fn;
	limited = plain_functions;
	limited.createArray = create_array;
	reader->fn = &limited;
}

/* What a reply that was not expected says, as text of the database. */
void
resp_error(const redisReply *reply, char *error, size_t size)
{
	if (reply->type == REDIS_REPLY_ERROR)
		foreign_text_copy(error, size, reply->str, reply->len);
	else
		strlcpy(error, "unexpected reply", size);
}

/* NULL is "out of memory" to hiredis. */
static void *
create_array(const redisReadTask *task, compat_elements n)
{
	return n <= MAX_ELEMENTS ? plain_functions.createArray(task, n) : NULL;
}

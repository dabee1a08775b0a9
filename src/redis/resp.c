/*
 * resp.c
 *		The protocol of Redis: writes commands, limits and reads replies.
 *
 * Called wherever we talk to Redis. A command is an array of strings; it is
 * written into a buffer of the caller, which may be reused. hiredis parses the
 * replies.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/redis/resp.h"

/*
 * The largest arrays that we expect have a number for each message of a batch. The largest
 * reply as a whole is what a node of a cluster says of slots that lie scattered: arrays in
 * arrays, up to 50 elements for each slot. hiredis takes about a hundred bytes for one.
 */
#define MAX_ELEMENTS	65536
#define MAX_ELEMENTS_IN_ALL	(50 * 16384)
#define MAX_DEPTH		8		/* of arrays in arrays; we expect four.
								 * hiredis 1 has no such limit, and frees a
								 * reply by recursion */

static redisReplyObjectFunctions plain_functions;	/* hiredis' own */

static void *create_array(const redisReadTask *task, compat_elements n);

/* Begins a command of n strings. */
void
resp_put_array(StringInfo out, int n)
{
	appendStringInfo(out, "*%d\r\n", n);
}

/* Adds a string, which may contain any bytes. */
void
resp_put(StringInfo out, const char *bytes, size_t size)
{
	char	   *to;

	enlargeStringInfo(out, size + 32);
	to = out->data + out->len;
	*to++ = '$';
	to += pg_ultoa_n((uint32) size, to);
	*to++ = '\r';
	*to++ = '\n';
	memcpy(to, bytes, size);
	to += size;
	*to++ = '\r';
	*to++ = '\n';
	*to = '\0';
	out->len = to - out->data;
}

/* The same for a string that ends with a zero byte. */
void
resp_put_string(StringInfo out, const char *string)
{
	resp_put(out, string, strlen(string));
}

/* The same for a number, in decimal digits. */
void
resp_put_number(StringInfo out, int64 number)
{
	char		digits[24];

	resp_put(out, digits, pg_lltoa(number, digits));
}

/* Writes a whole command, given as strings. */
void
resp_put_command(StringInfo out, int argc, const char **argv)
{
	resp_put_array(out, argc);
	for (int i = 0; i < argc; i++)
		resp_put_string(out, argv[i]);
}

/*
 * Limits the replies that are read: hiredis allocates as many elements as a reply claims to
 * have. *elements, which must live as long as the reader, is for counting them.
 */
void
resp_limit_replies(redisReader *reader, int64 *elements)
{
	static redisReplyObjectFunctions limited;

	plain_functions = *reader->fn;
	limited = plain_functions;
	limited.createArray = create_array;
	reader->fn = &limited;
	reader->privdata = elements;
}

/* Copies what an unexpected reply says, as text in the encoding of the database. */
void
resp_error(const redisReply *reply, char *error, size_t size)
{
	if (reply->type == REDIS_REPLY_ERROR)
		foreign_text_copy(error, size, reply->str, reply->len);
	else
		strlcpy(error, "unexpected reply", size);
}

/* Refuses arrays that are too large, alone or together, or too deep in others. For hiredis, NULL means "out of memory". */
static void *
create_array(const redisReadTask *task, compat_elements n)
{
	int64	   *in_all = task->privdata;	/* in the reply that is being read */
	int			depth = 1;

	for (const redisReadTask *outer = task->parent; outer && depth <= MAX_DEPTH; outer = outer->parent)
		depth++;
	if (task->parent == NULL)
		*in_all = 0;
	*in_all += n;
	return n <= MAX_ELEMENTS && *in_all <= MAX_ELEMENTS_IN_ALL && depth <= MAX_DEPTH ? plain_functions.createArray(task, n) : NULL;
}

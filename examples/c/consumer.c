/*
 * consumer.c
 *		Adds up orders: reads their events in a consumer group and applies each once.
 *
 *	 consumer redis://HOST:PORT NAME [CLAIM-AFTER [until-idle]]
 *
 * To be run in the folder of consume.lua, which says what becomes of an event. NAME
 * tells this consumer from the others of the group; what another one has read and
 * not acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it
 * ends when there is nothing to read. Prints for each event its id and what became
 * of it.
 */
#include <hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM	"order-events"
#define GROUP	"totals"
#define TOTALS	"totals"
#define DEAD	"order-events:dead"

static redisContext *server;

static redisReply *run(int nargs, const char **args, const size_t *lengths);
static char *read_script(void);
static bool work(const char *script, const char *name, const char *claim_after);
static void apply(const char *script, redisReply *entry);

int
main(int argc, char **argv)
{
	const char *create[] = {"XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"};
	char		host[256];
	int			port;
	char	   *script;

	if (argc < 3 || sscanf(argv[1], "redis://%255[^:]:%d", host, &port) != 2)
	{
		fprintf(stderr, "usage: consumer redis://HOST:PORT NAME [CLAIM-AFTER [until-idle]]\n");
		return 1;
	}
	server = redisConnect(host, port);
	script = read_script();
	/* The group may exist. */
	freeReplyObject(redisCommandArgv(server, 6, create, NULL));
	while (work(script, argv[2], argc > 3 ? argv[3] : "60000") || argc < 5)
		;
	free(script);
	redisFree(server);
	return 0;
}

/* Applies entries that a dead consumer left, or else new ones. Returns false if there are none. */
static bool
work(const char *script, const char *name, const char *claim_after)
{
	const char *claim[] = {"XAUTOCLAIM", STREAM, GROUP, name, claim_after, "0-0", "COUNT", "100"};
	const char *read[] = {"XREADGROUP", "GROUP", GROUP, name, "COUNT", "100", "BLOCK", "1000", "STREAMS", STREAM, ">"};
	redisReply *answer = run(8, claim, NULL);
	redisReply *entries = answer->element[1];

	if (entries->elements == 0)
	{
		freeReplyObject(answer);
		answer = run(11, read, NULL);
		entries = answer->type == REDIS_REPLY_NIL ? NULL : answer->element[0]->element[1];
	}
	for (size_t i = 0; entries && i < entries->elements; i++)
		apply(script, entries->element[i]);
	freeReplyObject(answer);
	return entries != NULL;
}

/* Has Redis do what is to be done with one entry: its number, and its fields and values. */
static void
apply(const char *script, redisReply *entry)
{
	redisReply *fields = entry->element[1];
	size_t		nargs = 8 + fields->elements;
	const char **args = calloc(nargs, sizeof(char *));
	size_t	   *lengths = calloc(nargs, sizeof(size_t));
	const char *first[] = {"EVAL", script, "3", STREAM, TOTALS, DEAD, GROUP, entry->element[0]->str};
	redisReply *answer;

	for (size_t i = 0; i < nargs; i++)
	{
		args[i] = i < 8 ? first[i] : fields->element[i - 8]->str;
		lengths[i] = i < 8 ? strlen(first[i]) : (size_t) fields->element[i - 8]->len;
	}
	answer = run((int) nargs, args, lengths);
	printf("%s %s\n", answer->element[0]->str, answer->element[1]->str);
	fflush(stdout);
	freeReplyObject(answer);
	free(args);
	free(lengths);
}

/* Runs a command; ends the program after an error. */
static redisReply *
run(int nargs, const char **args, const size_t *lengths)
{
	redisReply *reply = redisCommandArgv(server, nargs, args, lengths);

	if (reply && reply->type != REDIS_REPLY_ERROR)
		return reply;
	fprintf(stderr, "%s\n", reply ? reply->str : server->errstr);
	exit(1);
}

/* Returns the text of consume.lua. */
static char *
read_script(void)
{
	FILE	   *file = fopen("consume.lua", "r");
	char	   *script = calloc(1, 65536);

	if (file == NULL || fread(script, 1, 65535, file) == 0)
	{
		perror("consume.lua");
		exit(1);
	}
	fclose(file);
	return script;
}

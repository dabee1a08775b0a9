/*
 * redis_url.h
 *		The parts of a Redis URL.
 */
#ifndef OUTBOX_REDIS_URL_H
#define OUTBOX_REDIS_URL_H

#define MAX_NODES	8

typedef struct RedisNode
{
	char		host[256];
	int			port;
} RedisNode;

/* Parts of a URL; a part that is absent is an empty string. */
typedef struct RedisUrl
{
	char		user[128];
	char		password[512];
	int			nnodes;			/* 0 for a Unix-domain socket */
	RedisNode	nodes[MAX_NODES];	/* the server, the sentinels, or some
									 * nodes of a cluster */
	bool		cluster;
	char		master[128];	/* the sentinels' name of the server; empty =
								 * no sentinels */
	char		path[104];		/* of the Unix-domain socket */
	int			db;
	bool		tls;			/* to the server and to the sentinels */
	char		sentinel_user[128]; /* login at the sentinels */
	char		sentinel_password[512];
} RedisUrl;

/* Check whether two addresses are the same. */
static inline bool
redis_node_is(const RedisNode *one, const RedisNode *other)
{
	return one->port == other->port && strcmp(one->host, other->host) == 0;
}

extern bool redis_url_has_scheme(const char *text);
extern bool redis_url_parse(const char *text, RedisUrl *url, const char **reason);
extern bool redis_url_differs_in_password(const char *one, const char *other);

#endif							/* OUTBOX_REDIS_URL_H */

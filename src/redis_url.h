/*
 * redis_url.h
 *		Where a Redis is and how to log in.
 */
#ifndef OUTBOX_REDIS_URL_H
#define OUTBOX_REDIS_URL_H

/* Parts of a URL; a part that is absent is an empty string. */
typedef struct RedisUrl
{
	char		user[128];
	char		password[512];
	char		host[256];		/* empty for a unix socket */
	char		path[104];		/* of the unix socket, else empty */
	int			port;
	int			db;
} RedisUrl;

extern bool redis_url_parse(const char *text, RedisUrl *url, const char **reason);

#endif							/* OUTBOX_REDIS_URL_H */

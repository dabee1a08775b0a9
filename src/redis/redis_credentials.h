/*
 * redis_credentials.h
 *		Where a Redis is, and how to log in there.
 */
#ifndef OUTBOX_REDIS_CREDENTIALS_H
#define OUTBOX_REDIS_CREDENTIALS_H

#include "src/redis/redis_link.h"
#include "src/redis/redis_url.h"

/* It has passwords, so it is wiped when it is not needed any more. */
typedef struct RedisCredentials
{
	RedisUrl	url;			/* with passwords from files, if there are any */
	uint64		hash;			/* of the text of the URL */
	char		password_file[MAXPGPATH];	/* for errors, which name it;
											 * empty = there is none */
} RedisCredentials;

extern bool redis_credentials_read(RedisCredentials *credentials, const char *text, RedisLink *link);
extern void redis_credentials_wipe(RedisCredentials *credentials);
extern void redis_credentials_name(const RedisCredentials *credentials, const RedisNode *node, RedisLink *link);
extern uint64 redis_credentials_hash(const char *text);

#endif							/* OUTBOX_REDIS_CREDENTIALS_H */

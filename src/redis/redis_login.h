/*
 * redis_login.h
 *		Where a Redis is, and how to log in there.
 */
#ifndef OUTBOX_REDIS_LOGIN_H
#define OUTBOX_REDIS_LOGIN_H

#include "src/redis/redis_link.h"
#include "src/redis/redis_url.h"

/* It has passwords, so it is wiped when it is not needed any more. */
typedef struct RedisLogin
{
	RedisUrl	url;			/* with passwords from files, if there are any */
	uint64		hash;			/* of the text of the URL */
	char		password_file[MAXPGPATH];	/* for errors, which name it;
											 * empty = there is none */
} RedisLogin;

extern bool redis_login_read(RedisLogin *login, const char *text, RedisLink *link);
extern void redis_login_wipe(RedisLogin *login);
extern void redis_login_name(const RedisLogin *login, const RedisNode *node, RedisLink *link);
extern uint64 redis_login_hash(const char *text);

#endif							/* OUTBOX_REDIS_LOGIN_H */

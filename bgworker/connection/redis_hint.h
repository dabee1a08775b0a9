/*
 * redis_hint.h
 *		What an administrator can do about an error of Redis.
 */
#ifndef OUTBOX_REDIS_HINT_H
#define OUTBOX_REDIS_HINT_H

extern const char *redis_hint(const char *error);

#endif							/* OUTBOX_REDIS_HINT_H */

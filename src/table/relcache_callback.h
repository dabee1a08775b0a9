/*
 * relcache_callback.h
 *		Tells that a relation has changed.
 */
#ifndef OUTBOX_RELCACHE_CALLBACK_H
#define OUTBOX_RELCACHE_CALLBACK_H

/*
 * Is told of a change of a relation, or of all if that is InvalidOid. It may be
 * called wherever PostgreSQL takes a lock, and must not look anything up.
 */
typedef void (*RelationListener) (Oid relation);

extern void relcache_callback_add(RelationListener listener);

#endif							/* OUTBOX_RELCACHE_CALLBACK_H */

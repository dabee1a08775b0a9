/*
 * relation_change.h
 *		Tells that a relation has changed.
 */
#ifndef OUTBOX_RELATION_CHANGE_H
#define OUTBOX_RELATION_CHANGE_H

/*
 * Is told of a change of a relation, or of all if that is InvalidOid. It may be
 * called wherever PostgreSQL takes a lock, and must not look anything up.
 */
typedef void (*RelationListener) (Oid relation);

extern void relation_change_listen(RelationListener listener);

#endif							/* OUTBOX_RELATION_CHANGE_H */

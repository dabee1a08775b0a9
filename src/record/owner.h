/*
 * owner.h
 *		Working with the rights of a table's owner.
 */
#ifndef OUTBOX_OWNER_H
#define OUTBOX_OWNER_H

/* What is to be restored afterwards. */
typedef struct OwnerRights
{
	Oid			user;
	int			context;
	int			nest_level;
} OwnerRights;

extern void owner_rights_take(OwnerRights *before, Oid owner);
extern void owner_rights_return(const OwnerRights *before);

#endif							/* OUTBOX_OWNER_H */

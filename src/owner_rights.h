/*
 * owner_rights.h
 *		Runs statements with exactly the privileges of a table's owner.
 */
#ifndef OUTBOX_OWNER_RIGHTS_H
#define OUTBOX_OWNER_RIGHTS_H

/* What is to be restored afterwards. */
typedef struct OwnerRights
{
	Oid			user;
	int			context;
	int			nest_level;
} OwnerRights;

/* Runs a statement, with SPI connected. */
typedef void (*OwnerStatement) (void *arg);

extern void owner_rights_take(OwnerRights *before, Oid owner);
extern void owner_rights_return(const OwnerRights *before);

extern ErrorData *owner_try(Oid owner, OwnerStatement statement, void *arg);
extern void owner_code_begin(void);
extern void owner_code_end(void);
extern void owner_code_refuse(void);

#endif							/* OUTBOX_OWNER_RIGHTS_H */

/*
 * owner_privileges.h
 *		Runs statements with exactly the privileges of a table's owner.
 */
#ifndef OUTBOX_OWNER_PRIVILEGES_H
#define OUTBOX_OWNER_PRIVILEGES_H

/* What is to be restored afterwards. */
typedef struct OwnerPrivileges
{
	Oid			user;
	int			context;
	int			nest_level;
} OwnerPrivileges;

/* Runs a statement, with SPI connected. */
typedef void (*OwnerStatement) (void *arg);

extern void owner_privileges_take(OwnerPrivileges *before, Oid owner);
extern void owner_privileges_return(const OwnerPrivileges *before);

extern ErrorData *owner_try(Oid owner, OwnerStatement statement, void *arg);
extern void owner_code_begin(void);
extern void owner_code_end(void);
extern void owner_code_refuse(void);

#endif							/* OUTBOX_OWNER_PRIVILEGES_H */

/*
 * lock_class.h
 *		The classes of our advisory locks.
 *
 * PostgreSQL's own functions use classes 1 and 2, so no user can take our
 * locks. To add a class, add its line here.
 */
#ifndef OUTBOX_LOCK_CLASS_H
#define OUTBOX_LOCK_CLASS_H

typedef enum LockClass
{
	LOCK_CLASS_KEY = 0x0b0c,	/* of a record: its claim;
								 * src/record/record_lock.c */
	LOCK_CLASS_DISPATCHER,		/* one for each database;
								 * bgworker/process/process.c */
	LOCK_CLASS_BOOKKEEPER,		/* likewise */
	LOCK_CLASS_HEIRS,			/* file outbox.heirs;
								 * bgworker/identity/database_heir.c */
	LOCK_CLASS_DATA_DIRECTORY,	/* file outbox.server;
								 * bgworker/identity/data_directory.c */
	LOCK_CLASS_SENDERS,			/* one for each epoch; src/sender_lock.c */
	LOCK_CLASS_RESTORE,			/* of those that restore records;
								 * src/claim/claim.c */
	LOCK_CLASS_ENDPOINT			/* one for each transaction that changes
								 * endpoints; src/record/endpoint_change.c */
} LockClass;

#endif							/* OUTBOX_LOCK_CLASS_H */

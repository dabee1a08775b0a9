/*
 * ddl.h
 *		The hook on utility commands.
 */
#ifndef OUTBOX_DDL_H
#define OUTBOX_DDL_H

extern void ddl_init(void);

#endif							/* OUTBOX_DDL_H */

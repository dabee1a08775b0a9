/*
 * ddl.h
 *		What commands on databases and on the extension ask of us.
 */
#ifndef OUTBOX_DDL_H
#define OUTBOX_DDL_H

extern void ddl_init(void);

#endif							/* OUTBOX_DDL_H */

/*
 * table_expiry.h
 *		Deletes expired records from custom record tables, in rounds.
 */
#ifndef OUTBOX_TABLE_EXPIRY_H
#define OUTBOX_TABLE_EXPIRY_H

extern void table_expiry_begin(void);
extern bool table_expiry_run(void);
extern long table_expiry_ms_until_due(void);
extern const char *table_expiry_error(void);

#endif							/* OUTBOX_TABLE_EXPIRY_H */

/*
 * durable_commit.h
 *		Waits until the record of a duplicate is safe, and for the standby.
 */
#ifndef OUTBOX_DURABLE_COMMIT_H
#define OUTBOX_DURABLE_COMMIT_H

#include "access/xlogdefs.h"

#include "src/record/record_look.h"

extern void durable_commit_wait(const RecordLook *look);
extern bool durable_commit_has_standby(void);
extern bool durable_commit_wait_for_standby(XLogRecPtr lsn, bool (*attend) (void));

#endif							/* OUTBOX_DURABLE_COMMIT_H */

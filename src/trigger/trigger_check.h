/*
 * trigger_check.h
 *		Checks a trigger when it is created.
 */
#ifndef OUTBOX_TRIGGER_CHECK_H
#define OUTBOX_TRIGGER_CHECK_H

#include "nodes/parsenodes.h"

extern void trigger_check_created(const CreateTrigStmt *statement);
extern void trigger_check(Oid table, const char *name);
extern bool trigger_check_is_capture(Oid function);

#endif							/* OUTBOX_TRIGGER_CHECK_H */

/*
 * capture_change.h
 *		Changes of a captured table as messages.
 */
#ifndef OUTBOX_CAPTURE_CHANGE_H
#define OUTBOX_CAPTURE_CHANGE_H

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"
#include "utils/reltrigger.h"

extern void *capture_change_plan(Relation table, const Trigger *trigger, List **others);

#endif							/* OUTBOX_CAPTURE_CHANGE_H */

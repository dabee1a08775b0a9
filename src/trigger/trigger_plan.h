/*
 * trigger_plan.h
 *		What a trigger of ours does with a row, made of its arguments once.
 */
#ifndef OUTBOX_TRIGGER_PLAN_H
#define OUTBOX_TRIGGER_PLAN_H

#include "commands/trigger.h"
#include "fmgr.h"
#include "nodes/pg_list.h"

/*
 * Makes the plan of a trigger in the current memory context, or raises an error that says
 * what is wrong with its arguments. Adds to *others the OIDs of relations that the plan depends
 * on, beside its table; that of a composite type is one, and pg_type stands for all types. If others
 * is NULL, the arguments are only checked, and no function that they name is called.
 */
typedef void *(*TriggerPlanner) (Relation table, const Trigger *trigger, List **others);

extern TriggerData *trigger_plan_call(FunctionCallInfo fcinfo, const char *function);
extern void trigger_plan_context(void *arg);
extern void *trigger_plan_get(const TriggerData *call, TriggerPlanner make);
extern void trigger_plan_refuse_own_table(Relation table);

#endif							/* OUTBOX_TRIGGER_PLAN_H */

/*
 * partition_layout.h
 *		Tells Redis over how many streams a destination is spread.
 */
#ifndef OUTBOX_PARTITION_LAYOUT_H
#define OUTBOX_PARTITION_LAYOUT_H

#include "bgworker/connection/command.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/identity/instance.h"

extern char *partition_layout_key(const Destination *destination);
extern char *partition_layout_field(const Destination *destination, const char *instance);
extern void partition_layout_refuse(Destination *destination, const char *error);
extern bool partition_layout_note_epoch(Instance *instance, int64 least);
extern bool partition_layout_may_follow(const Instance *instance, int64 least, Destination *destination);
extern bool partition_layout_settle(RedisLink *link, const ScriptCall *call, const Lane *lane, Instance *instance,
									bool *refused);

#endif							/* OUTBOX_PARTITION_LAYOUT_H */

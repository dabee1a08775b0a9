/*
 * partition_layout.h
 *		Tells Redis over how many streams a destination is spread.
 */
#ifndef OUTBOX_PARTITION_LAYOUT_H
#define OUTBOX_PARTITION_LAYOUT_H

#include "bgworker/connection/command.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/identity/instance.h"

/* How many times Redis may ask for a greater epoch in a row. */
#define PARTITION_LAYOUT_TRIES	10
#define PARTITION_LAYOUT_ASKS_AGAIN	"Redis asks for a greater epoch each time"

/* What has failed where the server is to blame. */
#define PARTITION_LAYOUT_FAILED	"could not write a number of partitions"

extern char *partition_layout_key(const Destination *destination);
extern char *partition_layout_field(const Destination *destination, const char *instance);
extern bool partition_layout_is_trouble(const char *error);
extern void partition_layout_refuse(Destination *destination, const char *error);
extern bool partition_layout_note_epoch(Instance *instance, int64 least);
extern bool partition_layout_may_follow(const Instance *instance, int64 least, Destination *destination);
extern bool partition_layout_settle(RedisLink *link, const ScriptCall *call, const Lane *lane, Instance *instance);

#endif							/* OUTBOX_PARTITION_LAYOUT_H */

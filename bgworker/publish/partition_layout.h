/*
 * partition_layout.h
 *		Tells Redis over how many streams a destination is spread.
 */
#ifndef OUTBOX_PARTITION_LAYOUT_H
#define OUTBOX_PARTITION_LAYOUT_H

#include "bgworker/publish/command.h"

extern bool partition_layout_settle(RedisLink *link, const ScriptCall *call, const Lane *lane, bool *refused);

#endif							/* OUTBOX_PARTITION_LAYOUT_H */

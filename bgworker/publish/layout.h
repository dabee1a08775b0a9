/*
 * layout.h
 *		Tells Redis over how many streams a destination is spread.
 */
#ifndef OUTBOX_LAYOUT_H
#define OUTBOX_LAYOUT_H

#include "bgworker/defer/destination_settings.h"
#include "bgworker/publish/command.h"

extern bool layout_announce(RedisLink *link, const ScriptCall *call, const char *fence, const Destination *destination);

#endif							/* OUTBOX_LAYOUT_H */

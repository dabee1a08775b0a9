/*
 * layout.h
 *		Tells Redis over how many streams a destination is spread.
 */
#ifndef OUTBOX_LAYOUT_H
#define OUTBOX_LAYOUT_H

#include "bgworker/publish/command.h"

extern bool layout_settle(RedisLink *link, const ScriptCall *call, const char *fence, bool *refused);

#endif							/* OUTBOX_LAYOUT_H */

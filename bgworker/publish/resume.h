/*
 * resume.h
 *		Finds where to resume publishing, by the fence in Redis.
 */
#ifndef OUTBOX_RESUME_H
#define OUTBOX_RESUME_H

#include "bgworker/publish/position.h"

extern void resume_position(Position *position, const char *fence_text);

#endif							/* OUTBOX_RESUME_H */

/*
 * resume.h
 *		Finds where to resume publishing, by the fences in Redis.
 */
#ifndef OUTBOX_RESUME_H
#define OUTBOX_RESUME_H

#include "bgworker/window/position.h"

extern void resume_position(Position *position, bool clustered, bool era_begins);
extern WindowPlace resume_place_at_first_use(const Position *position, const char *fence_text);

#endif							/* OUTBOX_RESUME_H */

/*
 * resume.h
 *		Finds where to resume publishing, by the fences in Redis.
 */
#ifndef OUTBOX_RESUME_H
#define OUTBOX_RESUME_H

#include "bgworker/publish/position.h"

extern void resume_position(Position *position);

#endif							/* OUTBOX_RESUME_H */

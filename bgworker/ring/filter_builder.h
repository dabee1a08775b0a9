/*
 * filter_builder.h
 *		Builds the filters of segments that have none yet.
 */
#ifndef OUTBOX_FILTER_BUILDER_H
#define OUTBOX_FILTER_BUILDER_H

extern bool filter_builder_step(int64 step_us);

#endif							/* OUTBOX_FILTER_BUILDER_H */

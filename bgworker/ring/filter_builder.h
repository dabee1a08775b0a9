/*
 * filter_builder.h
 *		Gives segments their filters.
 */
#ifndef OUTBOX_FILTER_BUILDER_H
#define OUTBOX_FILTER_BUILDER_H

extern bool filter_builder_step(int64 step_us);
extern void filter_builder_begin_current(int n, uint64 state_tag);

#endif							/* OUTBOX_FILTER_BUILDER_H */

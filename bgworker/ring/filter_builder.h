/*
 * filter_builder.h
 *		Builds the filters of segments that have none yet.
 */
#ifndef OUTBOX_FILTER_BUILDER_H
#define OUTBOX_FILTER_BUILDER_H

extern bool filter_builder_step(void);

#endif							/* OUTBOX_FILTER_BUILDER_H */

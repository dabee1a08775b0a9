/*
 * filter_builder.h
 *		Builds the filters of segments that have none.
 */
#ifndef OUTBOX_FILTER_BUILDER_H
#define OUTBOX_FILTER_BUILDER_H

extern bool filter_builder_step(void);

#endif							/* OUTBOX_FILTER_BUILDER_H */

/*
 * duplicate_count.h
 *		Counts the duplicates that were refused.
 */
#ifndef OUTBOX_DUPLICATE_COUNT_H
#define OUTBOX_DUPLICATE_COUNT_H

extern void duplicate_count_add(const char *endpoint);
extern bool duplicate_count_of(const char *endpoint, uint64 *count);

#endif							/* OUTBOX_DUPLICATE_COUNT_H */

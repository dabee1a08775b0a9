/*
 * duplicates.h
 *		Counts the duplicates that were refused.
 */
#ifndef OUTBOX_DUPLICATES_H
#define OUTBOX_DUPLICATES_H

extern void duplicates_count(const char *endpoint);
extern bool duplicates_of(const char *endpoint, uint64 *count);

#endif							/* OUTBOX_DUPLICATES_H */

/*
 * destination_set.h
 *		A set of destinations, of a fixed size.
 */
#ifndef OUTBOX_DESTINATION_SET_H
#define OUTBOX_DESTINATION_SET_H

#define DESTINATION_SET_BYTES	1024

typedef struct DestinationSet
{
	uint8		bits[DESTINATION_SET_BYTES];
} DestinationSet;

extern void destination_set_add(DestinationSet *set, const text *dest);
extern bool destination_set_includes(const DestinationSet *set, const text *dest);

#endif							/* OUTBOX_DESTINATION_SET_H */

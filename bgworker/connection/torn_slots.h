/*
 * torn_slots.h
 *		Lanes that are torn apart between two nodes of a Redis Cluster.
 */
#ifndef OUTBOX_TORN_SLOTS_H
#define OUTBOX_TORN_SLOTS_H

extern void torn_slots_note_refusal(int slot);
extern bool torn_slots_block(int first);

#endif							/* OUTBOX_TORN_SLOTS_H */

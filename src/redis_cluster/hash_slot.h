/*
 * hash_slot.h
 *		In which hash slot of a Redis Cluster a key is.
 */
#ifndef OUTBOX_HASH_SLOT_H
#define OUTBOX_HASH_SLOT_H

#define HASH_SLOTS		16384
#define HASH_SLOT_TAG_BYTES	5	/* of the longest tag, with its end */

extern int	hash_slot_of(const char *key, size_t size);
extern const char *hash_slot_tag(int slot);

#endif							/* OUTBOX_HASH_SLOT_H */

/*
 * used_lanes.h
 *		Which hash slots of a Redis Cluster messages were ever sent to.
 */
#ifndef OUTBOX_USED_LANES_H
#define OUTBOX_USED_LANES_H

extern void used_lanes_load(void);
extern void used_lanes_forget_all(void);
extern bool used_lanes_include(int slot);
extern int	used_lanes_next(int slot);
extern void used_lanes_add(int slot);
extern bool used_lanes_note(void);

#endif							/* OUTBOX_USED_LANES_H */

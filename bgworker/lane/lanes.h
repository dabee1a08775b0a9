/*
 * lanes.h
 *		The lanes that messages are sent in.
 */
#ifndef OUTBOX_LANES_H
#define OUTBOX_LANES_H

#include "bgworker/lane/lane.h"
#include "bgworker/lane/route.h"

extern void lanes_init(const char *instance);
extern void lanes_begin(bool clustered);
extern void lanes_enter(int slot);
extern int	lanes_count(void);
extern Lane *lanes_get(int n);
extern Lane *lanes_find(const Route *route, const Message *message);
extern int	lanes_wanted(void);
extern int	lanes_enter_wanted(void);

extern void lanes_block(Lane *lane, const char *why);
extern bool lanes_block_unused(int slot, const char *why);
extern void lanes_leave_out(const Lane *lane, int64 window);
extern int64 lanes_first_left_out(void);
extern int64 lanes_take_freed(int64 sent);
extern void lanes_forget_left_out(void);
extern void lanes_enter_left_out(void);
extern void lanes_drop_unused(void);
extern void lanes_set_blocked_apart(int first);
extern int	lanes_enter_blocked(void);
extern int	lanes_blocked(void);
extern const char *lanes_why_blocked(void);
extern bool lanes_are_blocked_for(const char *dest);
extern bool lanes_await_partitions(void);

#endif							/* OUTBOX_LANES_H */

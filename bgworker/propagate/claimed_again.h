/*
 * claimed_again.h
 *		Finds records that have been claimed again since a receipt of them.
 */
#ifndef OUTBOX_CLAIMED_AGAIN_H
#define OUTBOX_CLAIMED_AGAIN_H

extern int	claimed_again_leave_out(const char *endpoint, char **msgids, int n);

#endif							/* OUTBOX_CLAIMED_AGAIN_H */

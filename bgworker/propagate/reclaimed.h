/*
 * reclaimed.h
 *		Finds records that have been claimed again since a receipt of them.
 */
#ifndef OUTBOX_RECLAIMED_H
#define OUTBOX_RECLAIMED_H

extern int	reclaimed_leave_out(const char *endpoint, char **msgids, int n);

#endif							/* OUTBOX_RECLAIMED_H */

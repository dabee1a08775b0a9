/*
 * problem_view.h
 *		The problem that outbox.status shows.
 */
#ifndef OUTBOX_PROBLEM_VIEW_H
#define OUTBOX_PROBLEM_VIEW_H

extern char *problem_view_first(void);

#endif							/* OUTBOX_PROBLEM_VIEW_H */

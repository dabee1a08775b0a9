/*
 * problem.h
 *		The problems that the outbox of a database can have.
 */
#ifndef OUTBOX_PROBLEM_H
#define OUTBOX_PROBLEM_H

#include "datatype/timestamp.h"

/*
 * All problems, the worst first: name and severity.
 *
 * "critical": nothing is sent, or not to some part of Redis, or messages are refused or
 * lost. "warning": something is not done, or is in danger.
 *
 * To add one, add its line here, and call problem_set() and problem_clear()
 * where it begins and ends. Each must end by itself or by a function that its
 * text names.
 */
#define PROBLEM_LIST(P) \
	P(NOT_PRELOADED, "not preloaded", "critical") \
	P(DISPATCH_OFF, "dispatch off", "critical") \
	P(NO_DISPATCHER, "no dispatcher", "critical") \
	P(LOCK, "lock", "critical") \
	P(STANDBY, "standby", "critical") \
	P(REDIS_DOWN, "redis down", "critical") \
	P(SLOTS, "slots", "critical") \
	P(LEASE, "lease", "critical") \
	P(PAUSED, "paused", "critical") \
	P(LOG_FULL, "log full", "critical") \
	P(LOSS, "loss", "critical") \
	P(STORE, "store", "critical") \
	P(EVICTION, "eviction", "warning") \
	P(MARKING, "marking", "warning") \
	P(EXPIRY, "expiry", "warning") \
	P(SEGMENT, "segment", "warning") \
	P(DEAD, "dead", "warning") \
	P(DESTINATION, "destination", "warning")

typedef enum ProblemKind
{
#define PROBLEM_ENUM(kind, name, severity) PROBLEM_##kind,
	PROBLEM_LIST(PROBLEM_ENUM)
#undef PROBLEM_ENUM
	PROBLEM_KINDS
} ProblemKind;

/* The size of a text, which is cut if it is longer. */
#define PROBLEM_BYTES	640

/* A problem in shared memory; protected by the lock of the database. */
typedef struct Problem
{
	TimestampTz since;			/* 0 = no problem */
	char		text[PROBLEM_BYTES];	/* empty: problem_view.c makes the
										 * text when it is shown */
} Problem;

struct DatabaseShared;

extern bool problem_set(ProblemKind kind, const char *format,...) pg_attribute_printf(2, 3);
extern bool problem_set_in(struct DatabaseShared *shared, ProblemKind kind, const char *text);
extern void problem_hold(ProblemKind kind, bool present);
extern void problem_clear(ProblemKind kind);
extern bool problem_is_set(ProblemKind kind);
extern void problem_clear_all(void);

#endif							/* OUTBOX_PROBLEM_H */

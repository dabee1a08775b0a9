/*
 * kill_point.h
 *		Named lines of the code at which a test can make a process die.
 *
 * In a normal build they are empty. `make KILL_POINTS=1` compiles them in, for
 * tests only: then a file in the data directory, outbox_kill_point, decides
 * which process dies where (see kill_point.c). t/support/KillPoints.pm walks
 * through all points that it finds in the source by these macros, so a name
 * stands here once, as a literal.
 *
 * PostgreSQL 17 has injection points for the same purpose. They need a server
 * built with --enable-injection-points, which packages are not, and PostgreSQL
 * 15 and 16 lack them; ours need nothing but our own library.
 *
 * A point may be placed wherever CHECK_FOR_INTERRUPTS() may, and in callbacks
 * at the end of a transaction, but not in a critical section.
 */
#ifndef OUTBOX_KILL_POINT_H
#define OUTBOX_KILL_POINT_H

#ifdef OUTBOX_KILL_POINTS

extern void kill_point_pass(const char *prefix, const char *name);

#define KILL_POINT(name) kill_point_pass("", name)

/* One for each ring: "log_", "record_" or "history_" comes before the name. */
#define KILL_POINT_OF_RING(kind, name) kill_point_pass(ring_name(kind), name)

/* The same for steps that only rings which sessions write to go through. */
#define KILL_POINT_OF_WRITTEN_RING(kind, name) kill_point_pass(ring_name(kind), name)

#else

#define KILL_POINT(name) ((void) 0)
#define KILL_POINT_OF_RING(kind, name) ((void) 0)
#define KILL_POINT_OF_WRITTEN_RING(kind, name) ((void) 0)

#endif							/* OUTBOX_KILL_POINTS */

#endif							/* OUTBOX_KILL_POINT_H */

/*
 * process.h
 *		What our processes in a database have in common.
 */
#ifndef OUTBOX_PROCESS_H
#define OUTBOX_PROCESS_H

extern void process_connect(Oid database);

#endif							/* OUTBOX_PROCESS_H */

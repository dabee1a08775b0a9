/*
 * outbox.h
 *		Names that the module and its processes share.
 */
#ifndef OUTBOX_H
#define OUTBOX_H

#define OUTBOX_LIBRARY			"outbox"
#define OUTBOX_LAUNCHER_MAIN	"outbox_launcher_main"
#define OUTBOX_DISPATCHER_MAIN	"outbox_dispatcher_main"
#define OUTBOX_BOOKKEEPER_MAIN	"outbox_bookkeeper_main"

#endif							/* OUTBOX_H */

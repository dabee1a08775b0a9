/*
 * headers.h
 *		Headers of messages: of one, and of all in a session or transaction.
 */
#ifndef OUTBOX_HEADERS_H
#define OUTBOX_HEADERS_H

#include "utils/guc.h"

#include "src/log/log.h"

extern Jsonb *headers_check(Jsonb *headers);
extern void headers_check_name(const char *name);
extern bool headers_check_setting(char **newval, void **extra, GucSource source);
extern void headers_assign_setting(const char *newval, void *extra);
extern void headers_add_setting(Message *message);

#endif							/* OUTBOX_HEADERS_H */

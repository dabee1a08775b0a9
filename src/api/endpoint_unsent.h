/*
 * endpoint_unsent.h
 *		What is still on its way for an endpoint.
 */
#ifndef OUTBOX_ENDPOINT_UNSENT_H
#define OUTBOX_ENDPOINT_UNSENT_H

extern void endpoint_unsent_check(const char *name, bool has_store);

#endif							/* OUTBOX_ENDPOINT_UNSENT_H */

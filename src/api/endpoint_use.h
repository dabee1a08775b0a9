/*
 * endpoint_use.h
 *		What is still on its way for an endpoint.
 */
#ifndef OUTBOX_ENDPOINT_USE_H
#define OUTBOX_ENDPOINT_USE_H

extern void endpoint_use_check(const char *name, bool has_store);

#endif							/* OUTBOX_ENDPOINT_USE_H */

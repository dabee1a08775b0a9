/*
 * resolver.h
 *		Finds the addresses of a host without blocking.
 */
#ifndef OUTBOX_RESOLVER_H
#define OUTBOX_RESOLVER_H

#include <netinet/in.h>

#include "datatype/timestamp.h"

#define MAX_ADDRESSES	8

typedef struct Addresses
{
	int			n;
	char		text[MAX_ADDRESSES][INET6_ADDRSTRLEN];
} Addresses;

extern const char *resolver_find(const char *host, TimestampTz deadline,
								 void (*attend) (void), Addresses *addresses);

#endif							/* OUTBOX_RESOLVER_H */

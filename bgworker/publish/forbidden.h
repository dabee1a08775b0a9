/*
 * forbidden.h
 *		The messages of a batch whose streams the ACL of Redis forbids.
 */
#ifndef OUTBOX_FORBIDDEN_H
#define OUTBOX_FORBIDDEN_H

#include "bgworker/publish/refusals.h"

extern bool forbidden_find(RefusedRows *refusal, Run *run);

#endif							/* OUTBOX_FORBIDDEN_H */

/*
 * retry_pace.h
 *		When refused messages, and destinations that refuse, are tried again.
 */
#ifndef OUTBOX_RETRY_PACE_H
#define OUTBOX_RETRY_PACE_H

#include "datatype/timestamp.h"

extern TimestampTz retry_pace_next_attempt(int attempts);
extern TimestampTz retry_pace_next_probe(void);
extern void retry_pace_begin_probes(void);
extern void retry_pace_note_refused_probe(void);
extern void retry_pace_end_probes(void);

#endif							/* OUTBOX_RETRY_PACE_H */

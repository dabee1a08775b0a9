/*
 * probe_pace.h
 *		When destinations that refuse messages may be tried again.
 */
#ifndef OUTBOX_PROBE_PACE_H
#define OUTBOX_PROBE_PACE_H

#include "datatype/timestamp.h"

extern TimestampTz probe_pace_next(void);
extern void probe_pace_begin(void);
extern void probe_pace_note_refusal(void);
extern void probe_pace_end(void);

#endif							/* OUTBOX_PROBE_PACE_H */

/*
 * pace.h
 *		How long work on a custom record table rests after a statement.
 */
#ifndef OUTBOX_PACE_H
#define OUTBOX_PACE_H

#include "datatype/timestamp.h"

extern TimestampTz pace_rest_after(TimestampTz begun);

#endif							/* OUTBOX_PACE_H */

/*
 * table_pace.h
 *		How long work on a custom record table rests after a statement.
 */
#ifndef OUTBOX_TABLE_PACE_H
#define OUTBOX_TABLE_PACE_H

#include "datatype/timestamp.h"

extern TimestampTz table_pace_rest_after(TimestampTz begun);

#endif							/* OUTBOX_TABLE_PACE_H */

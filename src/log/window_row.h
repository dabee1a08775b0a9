/*
 * window_row.h
 *		The rows of the window tables, one for each window: the messages committed
 *		between two snapshots.
 */
#ifndef OUTBOX_WINDOW_ROW_H
#define OUTBOX_WINDOW_ROW_H

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "utils/snapshot.h"
#include "utils/uuid.h"

#include "src/destination_set.h"
#include "src/log/snapshot_value.h"

/* A row of window_N. */
typedef struct Window
{
	int64		number;
	pg_uuid_t	uuid;
	FullTransactionId tx;
	SnapshotValue *snapshot;
	TimestampTz opened_at;
	int64		published;
	int64		propagated;		/* newest window whose receipts were
								 * propagated */
	int64		targets;		/* hash of that to which they were */
	int64		messages;		/* in all windows up to the end of this one */
	TimestampTz oldest;			/* 0 = it holds no message */
} Window;

extern bool window_row_fetch(int64 number, Window *window);
extern bool window_row_newest(Window *window);
extern bool window_row_at(int64 number, Window *window);
extern bool window_row_after(int64 number, Window *window);
extern int	window_row_series(int64 from, int n, int64 messages, Window *windows);
extern int64 window_row_oldest_number(void);
extern void window_row_append(const Window *window, int segment);

extern bool window_row_published(Window *window);
extern bool window_row_sent(Window *window, DestinationSet *left_out);
extern bool window_row_propagated(Window *window, bool to_tables);
extern bool window_row_published_in(Snapshot snapshot, Window *window);
extern bool window_row_propagated_in(Snapshot snapshot, Window *window);

#endif							/* OUTBOX_WINDOW_ROW_H */

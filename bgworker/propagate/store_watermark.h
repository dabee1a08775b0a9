/*
 * store_watermark.h
 *		The watermark that stands in a deduplication store.
 */
#ifndef OUTBOX_STORE_WATERMARK_H
#define OUTBOX_STORE_WATERMARK_H

#include "src/store/store.h"

extern void store_watermark_write(int64 number, const pg_uuid_t *uuid, char *watermark);
extern void store_watermark_continue(const char *before, char *watermark);
extern int64 store_watermark_oldest(const StoreReport *report);

#endif							/* OUTBOX_STORE_WATERMARK_H */

/*
 * watermark_text.h
 *		The watermark that stands in a deduplication store.
 */
#ifndef OUTBOX_WATERMARK_TEXT_H
#define OUTBOX_WATERMARK_TEXT_H

#include "bgworker/propagate/receipts.h"
#include "src/store/store.h"

extern void watermark_text_write_next(const StoreWatermarks *before, int nparts, const ReceiptReader *reader, uint64 endpoints,
									  StoreWatermarks *next);
extern int64 watermark_text_oldest(const StoreReport *report, uint64 endpoints);

#endif							/* OUTBOX_WATERMARK_TEXT_H */

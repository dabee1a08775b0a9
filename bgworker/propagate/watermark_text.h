/*
 * watermark_text.h
 *		The watermark that stands in a deduplication store.
 */
#ifndef OUTBOX_WATERMARK_TEXT_H
#define OUTBOX_WATERMARK_TEXT_H

#include "src/store/store.h"

extern void watermark_text_write(int64 number, const pg_uuid_t *uuid, char *watermark);
extern void watermark_text_continue(const char *before, char *watermark);
extern int64 watermark_text_oldest(const StoreReport *report);

#endif							/* OUTBOX_WATERMARK_TEXT_H */

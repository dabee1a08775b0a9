/*
 * last_error.h
 *		The error that ends this process.
 */
#ifndef OUTBOX_LAST_ERROR_H
#define OUTBOX_LAST_ERROR_H

extern void last_error_init(void);
extern const char *last_error_text(void);

#endif							/* OUTBOX_LAST_ERROR_H */
